#!/bin/sh
# needs: plain
#
# `make install` and `make uninstall`, and what an author of plugins does with the result: the
# commands of docs/writing-plugins.md as they are written, on a copy that is installed into a
# directory of its own. tests/install/bare-root does the same on a system that has nothing else. Run
# from the top of the tree.
set -u
build=${DPB_BUILD:-build}
passed=0 failed=0 work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
root=$PWD prefix=$work/usr

verdict() { # STATUS TEXT: counts; on failure shows $work/log
    if [ "$1" -eq 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "$2:"
        tail -n 30 "$work/log" | sed 's/^/    /'
    fi
}

# The environment holds the installed program, the compiler, and nothing of the tree.
outside() {
    mkdir -p "$work/outside" && cd "$work/outside" &&
        env -i HOME="$work/outside" TMPDIR="$work" LC_ALL=C ASAN_OPTIONS="${ASAN_OPTIONS:-}" \
            UBSAN_OPTIONS="${UBSAN_OPTIONS:-}" LSAN_OPTIONS="${LSAN_OPTIONS:-}" \
            PATH="$prefix/bin:/usr/bin:/bin" PKG_CONFIG_PATH="$prefix/lib/pkgconfig" "$@"
}

make install BUILD="$build" PREFIX="$prefix" DESTDIR= V=0 >"$work/log" 2>&1
verdict $? "make install"
! grep -E '^  (CC|LD|AR) ' "$work/log" >/dev/null
verdict $? "make install built something"

(cd "$prefix/share" && [ -s man/man1/dpbench.1 ] && [ -s man/man5/dpbench.ini.5 ] &&
    [ -s bash-completion/completions/dpbench ])
verdict $? "manual pages and completion"

(outside dpbench plugins --json) >"$work/log" 2>&1 &&
    ! grep -E "\"usable\": false|\"path\": \"(/[^\"]*)?$build/plugins" "$work/log" >/dev/null &&
    [ "$(grep -c '"usable": true' "$work/log")" -ge "$(find "$prefix/lib/dpbench" -name '*_*.so' | wc -l)" ]
verdict $? "what is installed can be used"

# All but those whose data no machine has by itself, that another launcher has to start, for a GPU that is
# not here, or for a precision that this processor does not have.
(cd "$root" && for conf in "$prefix"/share/dpbench/conf/*.ini; do
    said=$(outside dpbench check "$(basename "$conf" .ini)" 2>&1) && continue
    case $said in *"needs data.path"* | *"works under mpirun or srun only"* | \
        *"device 'cuda' cannot run here: "* | *"device 'cuda' was not built: "* | \
            *"comm.inside = nccl cannot run here: "* | *"comm 'ring_verbs' cannot run here: "* | \
            *"device 'cpu' does not compute in bf16"*"oneDNN has no bf16 on this processor"*) continue ;; esac
    echo "$conf: $said"
    exit 1
done) >"$work/log" 2>&1
verdict $? "the installed experiments can be run"

# What it counts is counted here.
(outside "$root/tests/document/run" "$prefix/share/doc/dpbench/docs/writing-plugins.md") >"$work/log" 2>&1
[ $? -eq 0 ] || sed 's/^/    /' "$work/log"
counted=$(tail -n 1 "$work/log")
n=${counted%% passed*}
passed=$((passed + ${n:-0}))
case $counted in *" passed, 0 failed, 0 skipped") ;; *) failed=$((failed + 1)) ;; esac

# A file of somebody else's stays.
touch "$prefix/lib/dpbench/comm_mine.so"
make uninstall BUILD="$build" PREFIX="$prefix" DESTDIR= V=0 >"$work/log" 2>&1
verdict $? "make uninstall"
(cd "$prefix" && find . ! -type d -o -name dpbench) | sort >"$work/log"
[ "$(tr '\n' ' ' <"$work/log")" = "./lib/dpbench ./lib/dpbench/comm_mine.so " ]
verdict $? "make uninstall left"

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
