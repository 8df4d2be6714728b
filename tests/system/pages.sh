#!/bin/sh
# needs: built
#
# The manual pages and the completion of bash name every command, section, option and plugin. The
# experiments that README.md and docs run pass `check`. Run from the top of the tree; BUILD=build.
. tests/lib/verdict.sh
build=${DPB_BUILD:-build}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

missing() { # FILE: those words of standard input that are not in the file
    while read -r word; do
        grep -qw -e "$word" "$1" || echo "$word"
    done
}

verdict "tools/pages" "$(tools/pages "$build/dpbench" "$work" 2>&1)"
sed 's/\\-/-/g' "$work/dpbench.ini.5" >"$work/ini"
sed 's/\\-/-/g' "$work/dpbench.1" >"$work/program"

# From the sources of the tables, not from help.
options=$(sed -nE 's/^ *\{"([a-z0-9_]+)", DPB_OPT_.*/\1/p' core/base/settings.c core/cli/sweep_options.c
    # shellcheck disable=SC2044 # names without spaces
    for plugin in $(find "$build/plugins" -name '*_*.so' -printf '%f\n'); do
        name=${plugin#*_}
        find plugins/*/"${name%.so}" plugins/*/"${name%.so}.c" -name '*.c' 2>/dev/null
    done | xargs cat | awk '/\.name = "/ { name = $0 } /\.type = DPB_OPT_/ { print name }' |
        sed -E 's/.*\.name = "([a-z0-9_]+)".*/\1/')
commands=$(sed -nE 's/^ *\{"([a-z]+)",( |$).*/\1/p' core/cli/commands.c)
verdict "found too few options and commands" "$([ "$(echo "$options" | wc -l)" -gt 60 ] &&
    [ "$(echo "$commands" | wc -l)" -gt 10 ] || echo "$options $commands")"
verdict "options that dpbench.ini(5) lacks" "$(echo "$options" | missing "$work/ini")"
verdict "options that the completion lacks" "$(echo "$options" | missing "$work/dpbench")"
verdict "commands that dpbench(1) lacks" "$(echo "$commands" | missing "$work/program")"
verdict "commands that the completion lacks" "$(echo "$commands" | missing "$work/dpbench")"
verdict "plugins that dpbench.ini(5) lacks" \
    "$("$build/dpbench" plugins | awk 'NR > 1 && /^$/ { exit } NR > 1 && /^[a-z]/ { print $2 }' | missing "$work/ini")"
verdict "this machine's paths" "$(grep -n "$PWD" "$work/dpbench.1" "$work/dpbench.ini.5" "$work/dpbench")"
! command -v groff >/dev/null || verdict "groff's warnings" \
    "$(groff -man -ww -z -rLL=100n "$work/dpbench.1" "$work/dpbench.ini.5" 2>&1)"

missing="cannot run here|was not built|unknown device 'cuda'|device.mps = require"
missing="$missing|data.path|checkpoint cannot be read"
refused() { # those of the commands on standard input for which no part of the machine is missing
    while read -r command; do
        if message=$(eval "$build/dpbench check $command" 2>&1 >/dev/null </dev/null); then
            echo "$message" | grep "does nothing"
        else
            echo "$message" | grep -qE "$missing" || echo "$command: $message"
        fi
    done
}
verdict "commands of the pages that check refuses" \
    "$(sed -nE '/\\$/d; s/^    build\/dpbench (run )?((-c conf\/|[a-z0-9_]+ run\.).*)/\2/p' \
        README.md docs/*.md | sed 's/   .*//' | sort -u | refused)"

complete_line() { # WORD...: what bash offers after these words of a command line
    program=$build/dpbench bash -c '
        compopt() { :; }
        . "$1"
        shift
        COMP_WORDS=("$program" "$@") COMP_CWORD=$#
        _dpbench
        echo "${COMPREPLY[*]}"
    ' bash "$work/dpbench" "$@" 2>&1
}
expect() { # OFFERED WORD...
    wanted=$1
    shift
    got=$(complete_line "$@")
    verdict "after '$*'" "$([ "$got" = "$wanted" ] || echo "'$got', not '$wanted'")"
}
expect gate ga
expect quickstart check quick
expect run.precision= -c x.ini run.prec
expect "--threshold" compare a.json --thr
expect "--markdown" report a.json --mark
expect topk -c x.ini comm.codec = to
expect bf16 -c x.ini run.precision = b
expect comm.name=gloo check comm.name=gl # as zsh cuts words
expect shm check -c x.ini comm.name = shm
expect v1.5 check -c x.ini model.version = v1.
expect none check -c x.ini comm.codec = no
expect tune_batch tune tune_b
expect comm.bucket help comm.buck
expect densenet40_k12 help densenet4
cd "$work" || exit
expect program -c prog
: >run.json
expect run.json compare run. # no setting
expect run.json rerun run.
expect run.seed= rerun run.json run.see
end
