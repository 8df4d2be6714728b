#!/bin/sh
# needs: plain built
#
# `make install` into a directory of its own, what is installed used from there, and `make
# uninstall`. tests/install/bare-root does the same on a system that has nothing else, and there runs
# the commands of docs/writing-plugins.md as they are written. Run from the top of the tree.
set -u
build=${DPB_BUILD:-build}
passed=0 failed=0 work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
prefix="$work/it's (1) R&D a|b"

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

install() { # PLUGIN...
    make install BUILD="$build" PREFIX="$prefix" DESTDIR= V=0 PLUGINS="$*" >"$work/log" 2>&1
}

# The plugins that are there: `make check` makes none of CUDA's.
install "$build"/plugins/*.so
verdict $? "make install"
! grep -E '^  (CC|LD|AR) ' "$work/log" >/dev/null
verdict $? "make install built something"

(cd "$prefix/share" && [ -s man/man1/dpbench.1 ] && [ -s man/man5/dpbench.ini.5 ] &&
    [ -s bash-completion/completions/dpbench ] && cd zsh/site-functions && [ -s _dpbench ] &&
    grep -q '^source .*/../../bash-completion' _dpbench && [ -s ../../bash-completion/completions/dpbench ])
verdict $? "manual pages and completion"

(outside dpbench plugins --json) >"$work/log" 2>&1 &&
    ! grep -E "\"usable\": false|\"path\": \"(/[^\"]*)?$build/plugins" "$work/log" >/dev/null &&
    [ "$(grep -c '"usable": true' "$work/log")" -ge "$(find "$prefix/lib/dpbench" -name '*_*.so' | wc -l)" ]
verdict $? "what is installed can be used"

# Of the days on which a plugin was tried on a GPU the last one that proved it.
contacts=$prefix/share/dpbench/bench/gpu
for row in '2098-12-31 early passed' '2099-01-01 late passed' '2099-01-02 failing failed'; do
    read -r day name judged <<END
$row
END
    echo "{\"day\": \"$day\", \"gpu\": \"G9\", \"parts\": [{\"name\": \"$name\", \"verdict\": \"$judged\",
        \"proves\": [\"comm_ps_gpu\"]}]}" >"$contacts/$day.json"
done
(diff -r bench/gpu "$contacts" | grep -v "^Only in $prefix") >"$work/log" ||
    (outside dpbench plugins) >"$work/log" 2>&1 &&
    grep -A 1 '^comm  *ps_gpu ' "$work/log" | grep -q '^  *proved on a GPU: 2099-01-01, G9: late$' &&
    grep -A 1 '^comm  *replicated ' "$work/log" | grep -q '^  *proved on a GPU: never$' &&
    ! grep -A 1 '^comm  *shm ' "$work/log" | grep -q 'on a GPU'
verdict $? "when a GPU last proved a plugin"
rm -f "$contacts"/2098* "$contacts"/2099*

# test_conf checks and runs every experiment of the tree.
(diff -r conf "$prefix/share/dpbench/conf" && for name in quickstart strategies; do
    outside dpbench check $name || exit
done) >"$work/log" 2>&1
verdict $? "the installed experiments can be run"
diff -r schemas "$prefix/share/dpbench/schemas" >"$work/log" 2>&1
verdict $? "the schemas of the documents"
(outside dpbench profile show v100_resnet50) >"$work/log" 2>&1
verdict $? "an installed profile by its name"

# The tree is moved, and is found where it is then.
mv "$prefix" "$work/moved" && prefix=$work/moved

# compiles COMPILER TEXT FLAG...: a header in a text, as C or C++ that needs nothing but what is installed
compiles() {
    printf '%b' "$2" | outside "$1" -Wall -Wextra -Werror -I"$prefix/include" -fsyntax-only "$3" -x "$4" -
}

: >"$work/log"
n=0
for header in "$prefix"/include/dpbench-comm/*.h; do
    name=$(basename "$header")
    (compiles cc "#include <dpbench-comm/$name>\n" -std=c11 c &&
        compiles c++ "extern \"C\" {\n#include <dpbench-comm/$name>\n}\n" -std=c++17 c++) \
        >>"$work/log" 2>&1 && n=$((n + 1))
done
[ $n -gt 10 ] && [ $n -eq "$(ls "$prefix/include/dpbench-comm" | wc -l)" ]
verdict $? "headers of the strategies' library that are complete by themselves: $n"
libs=$(outside pkg-config --libs dpbench-comm)
(outside cc -shared -o probe.so -Wl,-z,defs -Wl,--whole-archive $libs -Wl,--no-whole-archive -lm &&
    [ -z "$(nm -D --defined-only "$work/outside/probe.so" | grep ' [TDBR] ' | grep -vE ' _(init|fini)$')" ]) \
    >"$work/log" 2>&1
verdict $? "all of the strategies' library can be linked into a plugin, which exports none of it"

(outside sh -c 'for kind in model data comm codec; do
    dpbench new $kind own_$kind && make -C own_$kind || exit
done') >"$work/log" 2>&1
verdict $? "a new plugin of each kind is built with what is installed"

# What an installation of other parts had goes, and a file of somebody else's stays.
touch "$prefix/lib/dpbench/comm_mine.so"
install "$build"/plugins/model_*.so "$build"/plugins/comm_shm.so
verdict $? "make install of less"
[ "$(cd "$prefix/lib/dpbench" && echo comm_* data_*)" = "comm_mine.so comm_shm.so data_*" ]
verdict $? "an installation of less has the plugins of both"

# What was installed goes, also where it is not built any more.
make uninstall BUILD="$work/none" CPU=no PREFIX="$prefix" DESTDIR= V=0 >"$work/log" 2>&1
verdict $? "make uninstall"
(cd "$prefix" && find . ! -type d -o -name dpbench) | sort >"$work/log"
[ "$(tr '\n' ' ' <"$work/log")" = "./lib/dpbench ./lib/dpbench/comm_mine.so " ]
verdict $? "make uninstall left"

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
