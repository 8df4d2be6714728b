#!/bin/sh
# needs: plain waits
#
# The commands of docs/study.md run as the page has them, and print what the page says. Run from the top of the tree;
# BUILD=build.
build=$(realpath "${DPB_BUILD:-build}")
here=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The page stands on [sweep.VALUE] and on `compare --undecided`.
if ! "$build/dpbench" help sweep | grep -qF '[sweep.VALUE]'; then
    echo "this build has no settings of one value of an axis"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
cd "$work" && PATH=$build:$PATH sh "$here/tests/document/run" "$here/docs/study.md"
