#!/bin/sh
# needs: cuda stand-in plain
# tests/gpu/first: a part that hangs costs its own time alone, files stay small, what has no time left is said;
# the parts that it has for a GPU, their programs in the pack, and its runs of dpbench on the CUDA for tests; and what
# tests/gpu/run takes from the tree. Run from the top of the tree; DPB_BUILD=build.
build=$(realpath "${DPB_BUILD:-build}")
passed=0 failed=0 work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

holds() { # TEXT COMMAND...
    text=$1
    shift
    if "$@" >"$work/said" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "$text: not so:"
        tail -n 5 "$work/said" | sed 's/^/    /'
    fi
}

says() { grep -q "$1" "$work/out/summary.txt" || { cat "$work/out/summary.txt"; false; }; }

# A part that ignores signals and has a child that does, one that prints too much, one that fails.
cat >"$work/parts" <<END
# seconds file name command
3 a.txt hangs    trap '' TERM INT HUP; (trap '' TERM; exec sleep 7531.$$) & sleep 7531.$$
20 a.txt works   echo fine
20 b.txt prints  head -c 30000000 /dev/zero | tr '\\\\0' x; echo the end
20 b.txt fails   exit 7
20 b.txt first   (exit 5); echo the second
END
LIMIT_S=300 tests/gpu/first "$build" "$work/out" "$work/parts" >"$work/log" 2>&1
holds "the part that hangs is cut" says "^cut     hangs: not over after [0-9][0-9]\{0,1\} s"
holds "the next one passes" says "^passed  works"
holds "one that fails says its code" says "^failed  fails: exit 7"
holds "so does one whose last command does not fail" says "^failed  first: exit 5"
holds "its other commands run" grep -qx 'the second' "$work/out/b.txt"
holds "nothing of it is left" sh -c "! pgrep -f '^sleep 7531.$$\$'"
holds "where it stood is said" grep -q "^---- [0-9]*: sleep 7531.$$" "$work/out/a.txt"
holds "its output is there" grep -qx fine "$work/out/a.txt"
holds "the end of what is long is kept" grep -q 'the end$' "$work/out/b.txt"
holds "and no more than there is room for" test "$(stat -c %s "$work/out/b.txt")" -le $((16 << 20))
echo '20 c.txt late echo late' >"$work/parts"
LIMIT_S=4 tests/gpu/first "$build" "$work/out" "$work/parts" >"$work/log" 2>&1
holds "without time nothing begins" says "^left    late: no time"

# What it has for a GPU.
grep -v '^#' tests/gpu/first.parts >"$work/real"
holds "each part has a limit of at most two minutes" \
    awk '$1 !~ /^[0-9]+$/ || $1 > 120 || NF < 4 { print; bad = 1 } END { exit bad || NR < 10 }' "$work/real"
holds "at most 8 files" test "$(awk '{ print $2 } END { print "summary.txt" }' "$work/real" | sort -u | wc -l)" -le 8
for file in $(grep -o 'bench/[a-z_/]*\.[a-z]*' tests/gpu/first tests/gpu/first.parts | sed 's/.*://' | sort -u); do
    holds "$file is of the checkout" test -f "$file"
done

if [ -f "$build/plugins/device_cuda.so" ] && [ -f "$build/tests/test_cuda_arenas" ]; then
    tests/gpu/pack "$build" "$work/pack.tar.gz" nodata >"$work/log" 2>&1
    holds "the pack is at most 60 MiB" test "$(stat -c %s "$work/pack.tar.gz")" -le $((60 << 20))
    tar -tzf "$work/pack.tar.gz" >"$work/packed"
    for program in dpbench plugins/device_cuda.so plugins/comm_nccl.so obj/build_info.h \
        $(grep -o '\$BUILD/tests/[a-z_]*' tests/gpu/first.parts | sed 's/.BUILD.//' | sort -u); do
        holds "the pack has $program" grep -qx "build/$program" "$work/packed"
    done
    holds "the pack has no data" sh -c "! grep -q fashion '$work/packed'"
fi
# tests/gpu/run with two programs in the tests' place: one passes, one is killed within its second case.
if [ -f "$build/tests/cuda/plugins/device_cuda.so" ]; then
    mkdir -p "$work/tree/tests"
    ln -s "$build/dpbench" "$work/tree/dpbench"
    printf '#!/bin/sh\necho "[  PASSED  ] 1 test(s)."\n' >"$work/tree/tests/test_cuda_codecs"
    printf '#!/bin/sh\nprintf "[ RUN      ] %%s\\n" one two\necho "[       OK ] one"\nkill -KILL $$\n' \
        >"$work/tree/tests/test_cuda_queues"
    chmod +x "$work/tree/tests"/*
    CHECKS='^test_cuda_(codecs|queues)$' DPBENCH_PLUGIN_PATH=$build/tests/cuda/plugins \
        tests/gpu/run "$work/tree" "$work/judged" >"$work/log" 2>&1
    holds "a check says its verdict when it ends" grep -q '^test_cuda_codecs passed: [0-9]* s$' "$work/log"
    holds "the case that hangs is named" grep -q '^test_cuda_queues left: not over after [0-9]* s, in two$' "$work/log"
fi
# The record of a run in which nothing was judged.
: >"$work/verdicts"
tests/gpu/record "$work/verdicts" "$work/status" unknown none
holds "a record without verdicts is docs/gpu-status.md" diff "$work/status" docs/gpu-status.md
# What tests/gpu/run has compute-sanitizer look at.
echo plugins/devices/cuda/*.cu | sed "s,\(plugins[^ ]*\)\.cu,$build/obj/\1.o,g" >"$work/objects"
if xargs nm <"$work/objects" >"$work/symbols" 2>/dev/null; then
    sed -n 's/.*__device_stub__Z\([0-9]*\)\([a-z_0-9]*\).*/\1 \2/p' "$work/symbols" |
        awk '{ print substr($2, 1, $1) }' | sort -u >"$work/compiled"
    tests/gpu/kernels >"$work/named"
    holds "tests/gpu/kernels names the kernels that were compiled" diff "$work/compiled" "$work/named"
fi
# Its runs of two ranks as they are; those of one rank as `dpbench check`.
if [ -f "$build/tests/cuda/plugins/device_cuda.so" ] && [ -f "$build/tests/cuda/plugins/comm_nccl.so" ]; then
    grep ' ranks.txt ' "$work/real" >"$work/parts"
    sed -n 's/^\([0-9]* *[a-z0-9]*.txt *[a-z0-9-]*\) *\$RUN \([^;]*\).*/\1 $BUILD\/dpbench check ${RUN#* } \2/p' \
        "$work/real" | sed 's/--json//' >>"$work/parts"
    rm -rf "$work/out"
    DPBENCH_PLUGIN_PATH=$build/tests/cuda/plugins LIMIT_S=500 SLOW=10 \
        tests/gpu/first "$build" "$work/out" "$work/parts" >"$work/log" 2>&1
    cat "$work/out"/*.txt >>"$work/log"
    holds "all of $(wc -l <"$work/parts") runs pass on the CUDA for tests" \
        sh -c "! grep -E '^(cut|failed|left) ' '$work/out/summary.txt'"
fi
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
