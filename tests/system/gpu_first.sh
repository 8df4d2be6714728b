#!/bin/bash
# needs: cuda stand-in plain
# tests/gpu/first: a part that hangs costs its own time alone, files stay small, what has no time left is said, and
# each part is in the record; the parts that it has for a GPU, all of its calls on a machine without a driver and on
# the CUDA for tests; which libraries it takes, the pack; and what tests/gpu/run takes from the tree. Run from the top of the tree; DPB_BUILD=build.
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

first() { # CALL PARTS [LIMIT_S]
    rm -rf "$work/out"
    LIMIT_S=${3:-300} RECORD=$work/gpu/day.json \
        tests/gpu/first "$build" "$work/out" "$1" "$2" >"$work/log" 2>&1
}
recorded() { # PYTHON, of each part as `part`
    python3 -c "import json, sys; day = json.load(open('$work/gpu/day.json'))
assert all($1 for part in day['parts']), day"
}

# A part that ignores signals and has a child that does, one that prints too much, one that fails.
cat >"$work/parts" <<END
# call seconds file proves name command
1 3 a.txt  - hangs    trap '' TERM INT HUP; (trap '' TERM; exec sleep 7531.$$) & sleep 7531.$$
1 20 a.txt - works   echo fine; echo '{"samples_per_s": 5}'
1 20 b.txt - prints  head -c 30000000 /dev/zero | tr '\\\\0' x; echo the end
1 20 b.txt - fails   exit 7
1 20 b.txt - first   (exit 5); echo the second
2 20 b.txt - other   echo fine
END
first 1 "$work/parts"
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
holds "parts of another call are not run" sh -c "! grep -q other '$work/out/summary.txt'"
holds "the record has each part, and no rate of kernels that nobody has checked" recorded \
    "len(day['parts']) == 5 and 'samples_per_s' not in part"
holds "OUT has the record" cmp "$work/gpu/day.json" "$work/out/day.json"
grep -v hangs "$work/parts" >"$work/again"
first 1 "$work/again"
holds "what has passed is not run again" says "^passed  works: before"
holds "what has failed is" says "^failed  fails: exit 7"
rm -rf "$work/gpu"
printf '1 20 c.txt - %s\n' 'ops! exit 1' 'late echo late' >"$work/parts"
holds "a call that ends early fails" sh -c '! "$@"' - first 1 "$work/parts"
first 1 "$work/parts"
holds "where a part that all need has failed the call ends" says "^left    late: ops has not passed"
printf '1 20 c.txt - late echo late\n' >"$work/parts"
first 1 "$work/parts" 4
holds "without time nothing begins" says "^left    late: no time"

# What it has for a GPU.
grep -v '^#' tests/gpu/first.parts >"$work/real"
for call in 1 2; do
    holds "the limits of call $call add up to at most 300 s" \
        awk "\$1 == $call { sum += \$2; n++ } END { exit sum > 300 || n < 5 }" "$work/real"
done
holds "each part has a limit, a file and a command" \
    awk '$2 !~ /^[0-9]+$/ || $2 > 150 || NF < 6 { print; bad = 1 } END { exit bad || NR < 10 }' "$work/real"
holds "at most 8 files come back from a call" sh -c \
    "for call in 1 2 3; do [ \$(awk -v call=\$call '\$1 == call { print \$3 }' '$work/real' | sort -u | wc -l) -le 6 ] || exit 1; done"
for file in $(grep -oE '(bench|tests)/[a-z_/]+\.(ini|py)' tests/gpu/first tests/gpu/first.parts | sed 's/.*://' | sort -u); do
    holds "$file is of the checkout" test -f "$file"
done
if [ ! -e /dev/nvidia0 ]; then
    started=$(date +%s)
    tests/gpu/libraries "$build" >"$work/chosen" 2>&1
    control=$(($(date +%s) - started))
    first 1 tests/gpu/first.parts
    holds "without a driver it ends within 5 s of having looked for libraries" \
        test $(($(date +%s) - started - 2 * control)) -le $((5 + control))
    holds "and says so" says "^failed  versions: "
    for name in $(awk '$1 == 1 { sub("!", "", $5); print $5 }' "$work/real"); do
        holds "$name is named" says " $name: "
    done
fi

# Made-up libraries: the one that the loader finds is of another release.
library() { # DIRECTORY FILE VERSION
    local other=cudnnGetVersion
    [ "$2" = libnccl.so.2 ] || other=ncclGetVersion
    mkdir -p "$work/$1"
    echo "size_t cudnnGetVersion(void) { return $3; } int ncclGetVersion(int *v) { *v = $3; return 0; }" |
        gcc -include stddef.h -shared -fPIC -Wl,-soname,"$2" "-D$other=unused" -x c -o "$work/$1/$2" -
}
library system libcudnn.so.9 91400
library home/lib64 libcudnn.so.9 91000
library conda/lib libcudnn.so.9 91977
library home/lib64 libnccl.so.2 22877
library conda/lib libnccl.so.2 22701
mkdir -p "$work/made/plugins"
for row in 'device_cuda libcudnn.so.9 cudnnGetVersion cuDNN 9.19.77' 'comm_nccl libnccl.so.2 ncclGetVersion NCCL 2.28.77'; do
    read -r plugin file function name version <<END
$row
END
    printf 'char text[] = "built for %s %s";\nint %s();\nint entry(void) { return %s(0); }\n' \
        "$name" "$version" "$function" "$function" |
        gcc -shared -fPIC -x c -o "$work/made/plugins/$plugin.so" - -x none "$work/home/lib64/$file"
done
choose() {
    CUDA_HOME=$work/home CONDA_PREFIX=$work/conda LD_LIBRARY_PATH=$work/system \
        tests/gpu/libraries "$work/made" >"$work/chosen" 2>"$work/told"
}
choose
holds "the release that was built for comes first" grep -q "^$work/conda/lib:$work/home/lib64\(:.*\)*$" "$work/chosen"
holds "the choice is said" grep -q "libcudnn.so.9 *9.19.77, as built for: $work/conda/lib" "$work/told"
library conda/lib libcudnn.so.9 91976
choose
holds "where none fits it is said" grep -q "libcudnn.so.9 *NONE IS 9.19.77.*9.14.0 in $work/system.*9.19.76 in $work/conda" "$work/told"

if [ -f "$build/plugins/device_cuda.so" ] && [ -f "$build/tests/test_cuda_arenas" ]; then
    holds "the plugins say what they were built for" \
        grep -aqE 'built for cuDNN 9\.[0-9]+\.[0-9]+' "$build/plugins/device_cuda.so"
    holds "the pack and the tree have at most 55 MiB" tests/gpu/pack "$build" "$work/pack.tar.gz" nodata
    tar -tzf "$work/pack.tar.gz" >"$work/packed"
    for program in dpbench plugins/device_cuda.so plugins/comm_nccl.so obj/build_info.h tests/test_model_ops \
        $(grep -o '\$BUILD/tests/[a-z_]*' tests/gpu/first.parts | sed 's/.BUILD.//' | sort -u); do
        holds "the pack has $program" grep -qx "build/$program" "$work/packed"
    done
    holds "the pack has no data and no oneDNN" sh -c "! grep -E 'fashion|dnnl|device_cpu' '$work/packed'"
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
# All of the first two calls: runs of ResNet-50 with a tiny network, of two ranks as they are, of others as `dpbench
# check`; without PyTorch and nvidia-smi.
if [ -f "$build/tests/cuda/plugins/device_cuda.so" ] && [ -f "$build/tests/cuda/plugins/comm_nccl.so" ]; then
    mkdir -p "$work/bin"
    printf '#!/bin/sh\necho "A GPU for tests"\n' >"$work/bin/nvidia-smi"
    chmod +x "$work/bin/nvidia-smi"
    rm -rf "$work/gpu"
    sed -e 's/\$RUN \(model.name=\)/$BUILD\/dpbench check ${RUN#* } \1/g; /dpbench check/s/--json//g' \
        -e 's/ resnet20 gpt_tiny$//; s/run.seconds=5/run.steps=3/' \
        -e "s/echo | python3 .*/echo '{\"samples_per_s\": 5}'/" \
        -e 's/\$BUILD.tests.test_cuda_queues; .*/true/' tests/gpu/first.parts >"$work/parts"
    export DPBENCH_PLUGIN_PATH="$build/tests/cuda/plugins" PATH="$work/bin:$PATH" SLOW=10 DPB_TEST_DEVICE=cuda_stand_in
    export RESNET50="model.name=tiny run.batch=4 run.precision=fp32 run.steady_limit_s=0"
    for call in 1 2; do
        first $call "$work/parts" 500
        cat "$work/out"/*.txt >>"$work/log"
        holds "all parts of call $call pass on the CUDA for tests" \
            sh -c "! grep -E '^(cut|failed|left) ' '$work/out/summary.txt'"
    done
    holds "the record says so" recorded "part['verdict'] == 'passed' and day['gpu'] == 'A GPU for tests' \
and 'cuDNN' in day['versions'] and len(day['parts']) == 11"
    holds "and has their rates" recorded "part.get('samples_per_s') or not part['name'].startswith(('resnet', 'pytorch'))"
    first 1 "$work/parts" 500
    holds "a call that is made again runs nothing again" says "^passed  resnet50-tuned: before"
fi
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
