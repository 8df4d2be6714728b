#!/bin/sh
# needs: plain waits
#
# The commands of docs/study.md run as the page has them, and print what the page says. Run from the top of the tree;
# BUILD=build.
build=$(realpath "${DPB_BUILD:-build}")
here=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cd "$work" && PATH=$build:$PATH sh "$here/tests/document/run" "$here/docs/study.md"
