#!/bin/sh
# needs: plain
#
# The profiles that come with dpbench are those that profiles/make makes, and are found by their names.
# Run from the top of the tree; BUILD=build.
. tests/lib/verdict.sh
build=${DPB_BUILD:-build}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

verdict "profiles/make" "$(DPB_BUILD=$build profiles/make "$work" 2>&1 >/dev/null | grep -vE ' tensors; ')"
for file in profiles/*.json "$work"/*.json; do
    name=$(basename "$file")
    verdict "profiles/make makes another $name" "$(diff "profiles/$name" "$work/$name" 2>&1 | head -n 20)"
done
verdict "a profile by its name" \
    "$("$build/dpbench" profile show p100_resnet50 2>&1 | grep -q '^rate  *219 samples/s' || echo missing)"
end
