#!/bin/sh
# needs: plain
#
# Two makes of one build directory, side by side, both write the headers that say what was built.
. tests/lib/verdict.sh
unset MAKEFLAGS MAKELEVEL
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
end
