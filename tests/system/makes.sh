#!/bin/sh
# needs: plain
#
# Two makes of one build directory, side by side, both write the headers that say what was built.
# `make tests` compiles no kernels. Without a GPU the first build of the tests on CUDA has kernels for one
# architecture, and `make` those for all.
. tests/lib/verdict.sh
unset MAKEFLAGS MAKELEVEL CUDA_ARCHS
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT

headers() {
    make -s BUILD="$directory" CUDA=no "$directory/obj/build_info.h" "$directory/obj/not_built.h" 2>&1
}

said=$(for _ in 1 2 3 4 5 6 7 8; do
    headers &
    headers
    wait
done)
verdict "a make fails beside another" "$said"
verdict "headers are missing or others are left" \
    "$(cd "$directory/obj" && printf '%s\n' * | grep -vxE '(build_info|not_built)\.h'
    grep -L '^#define DPB_BUILD_GIT' "$directory/obj/build_info.h")"

# What a builder sets is in each command that it belongs to. -n shows the commands.
PKG_CONFIG="$directory/pkg_config"
printf '#!/bin/sh\necho -DPKG_CONFIG_WAS_CALLED\n' >"$PKG_CONFIG"
chmod +x "$PKG_CONFIG"
make -n V=1 BUILD="$directory" CUDA=no CPU=no CC=a_cc CXX=a_cxx AR=an_ar CPPFLAGS=-DA_CPPFLAG CFLAGS=-O1 LDFLAGS=-La_ldflag \
    PKG_CONFIG="$PKG_CONFIG" all tests >"$directory/commands" 2>&1
offend() { # WHAT MUST-HAVE: commands of the kind without it; "none at all" where the kind has none
    grep -E -- "$1" "$directory/commands" >"$directory/of_kind" || echo "none at all: $1"
    grep -vF -- "$2" "$directory/of_kind"
}
verdict "variables of builders that commands lack" "$(
    offend '^a_c(c|xx) .* -c ' -DA_CPPFLAG
    offend '^a_c(c|xx) .* -o .*\.c( |$)' -DA_CPPFLAG
    offend '^a_c(c|xx) .*( -shared| -pie|\.a )' -La_ldflag
    offend ' rcs ' an_ar
    offend '^a_cc .* -o [^ ]*/core/base/json\.o' -DPKG_CONFIG_WAS_CALLED
)"

# What clean removes is not built beside it.
said=$(for _ in 1 2 3 4; do
    make -s -j4 BUILD="$directory" CUDA=no clean "$directory/obj/build_info.h" "$directory/obj/not_built.h" 2>&1 >/dev/null
    ls "$directory/obj/build_info.h" "$directory/obj/not_built.h" 2>&1 >/dev/null
done)
verdict "goals beside clean" "$said"

# A tree of another user's has no commit, and says so.
mkdir "$directory/tree"
git init -q "$directory/tree"
said=$(cd "$directory/tree" && GIT_TEST_ASSUME_DIFFERENT_OWNER=1 "$OLDPWD/tools/git-version" 2>"$directory/why")
[ "$said" = "unknown (git: dubious ownership)" ] && grep -q safe.directory "$directory/why" && said=
verdict "a tree of another user's" "$said"

kernels() { # ARCHITECTURES GOALS: says what else a make of the goals compiles first
    found=$(make -n BUILD="$directory" $2 2>&1 | sed -n 's/.*NVCC .* (\(.*\))"$/\1/p' | head -n 1)
    [ "$found" = "$1" ] || echo "make $2: '$found', not '$1'"
}
if ls /dev/nvidia[0-9]* >/dev/null 2>&1 || ! tools/find-cuda build/deps/cuda build/venv | grep -q '^NVCC='; then
    echo "kernels for one architecture: no nvcc, or a GPU"
else
    verdict "kernels of the first build" \
        "$(kernels "" tests && kernels sm_90 tests-cuda && kernels sm_90 check-layers && kernels "sm_80 sm_90 sm_100" &&
        kernels "sm_80 sm_90 sm_100" "tests gpu-pack")"
    echo 80 90 >"$directory/obj/cuda_archs"
    verdict "kernels of a build that is there" "$(kernels "sm_80 sm_90" tests-cuda && kernels "sm_80 sm_90 sm_100" all)"
fi
end
