#!/bin/sh
# needs: plain built
#
# Commands are programs: dpbench itself has nothing of study, links, conform, emulate and watch, becomes dpbench-NAME for
# their commands, and for a user's own program in PATH. Run from the top of the tree; BUILD=build.
. tests/lib/verdict.sh
build=$(realpath "${DPB_BUILD:-build}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

says() { # WORDS TEXT CODE COMMAND...: the command ends with CODE and prints WORDS
    words=$1 text=$2 code=$3
    shift 3
    "$@" >"$work/out" 2>&1 </dev/null
    ended=$?
    verdict "$text" "$({ [ -z "$words" ] || grep -qF -e "$words" "$work/out"; } && [ $ended -eq "$code" ] ||
        { echo "exit code $ended, wanted $code and: $words"; cat "$work/out"; })"
}

names() { # FILE: the functions and variables that it defines
    nm --defined-only "$1" 2>/dev/null | awk 'NF == 3 && $2 ~ /^[A-Z]$/ { print $3 }' | sort -u
}

names "$build/libstudy.a" >"$work/study"
verdict "names of libstudy.a" "$([ "$(wc -l <"$work/study")" -gt 100 ] || cat "$work/study")"
names "$build/dpbench" >"$work/own"
verdict "names of dpbench" "$(grep -qx dpb_program_main "$work/own" || echo none)"
verdict "dpbench has names of study, links, conform, emulate or watch" \
    "$(comm -12 "$work/study" "$work/own" | grep -v '^__')"

mkdir "$work/bin" && cd "$work" || exit
cat >bin/dpbench-hello <<'END'
#!/bin/sh
[ "$1" = pipe ] && kill -PIPE $$
echo "hello $# $*"
exit 7
END
printf '#!/bin/sh\necho mine\n' >bin/dpbench-report
echo "no program" >bin/dpbench-text
chmod +x bin/dpbench-hello bin/dpbench-report
PATH=$work/bin:$PATH
export PATH

says "hello 2 a  b --json" "a user's program gets its words" 7 "$build/dpbench" hello "a  b" --json
says "" "a user's program ends by a closed pipe" 141 "$build/dpbench" hello pipe
says "dpbench hello ..." "help lists a user's program" 0 "$build/dpbench" help
says "$work/bin/dpbench-hello" "help says where it is" 0 "$build/dpbench" help
verdict "help lists what is no program, or one of ours" \
    "$(grep -nE 'dpbench (text|report|sweep|matrix) \.\.\.' "$work/out")"
says "command hello: a program of yours" "help of a user's program" 0 "$build/dpbench" help hello
says "which results?" "a user's program does not replace one of ours" 2 "$build/dpbench" report
says "unknown command 'text'" "what is no program" 2 "$build/dpbench" text
for word in sweep matrix; do
    says "unknown command '$word'" "a program that is no command" 2 "$build/dpbench" $word
done
says "unknown command '../bin/dpbench'" "a path is no command" 2 "$build/dpbench" ../bin/dpbench
says "which results?" "a program of ours by its own name" 2 "$build/dpbench-report"
says "command report: " "--help of a program of ours" 0 "$build/dpbench-report" --help

cp "$build/dpbench" .
PATH=/usr/bin:/bin
says "the program dpbench-tune is missing: it belongs into $work" "a missing program" 1 ./dpbench tune
end
