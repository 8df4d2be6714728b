#!/bin/sh
# needs: plain built
#
# The walls: tools/rooms holds includes and calls to the arrows between rooms, and finds loops. Here: public
# headers include each other alone. Plugins include public headers, the libraries beside them and nothing of
# core's, and a plugin exports its entry and nothing else. Run from the top of the tree; BUILD=build.
. tests/lib/verdict.sh
build=${DPB_BUILD:-build}

includes() { # of the files in "$@": FILE:LINE:#include "X"
    grep -nE '^#include "' "$@" /dev/null
}

verdict "tools/rooms --check" "$(tools/rooms --check "$build" || true)"
verdict "public headers include private ones" \
    "$(includes core/include/dpbench/*.h | grep -vE '#include "[a-z]+\.h"')"
verdict "plugins include core's private headers" \
    "$(find plugins -name '*.[ch]' -exec grep -nHE '^#include "(base|machine|plugin|graph|world|launch|measure|optim|feed|plan|exchange|save|proof|loop|bench|record|cli|study|links|conform|emulate|watch)/|\.\./core' {} +)"
# Variables of the environment, which results record, and strategies, which predict takes by name, have the
# names that they have.
verdict "core names a vendor or a plugin's library" \
    "$(grep -rniE 'nvidia|nvml|cu(da|dnn|blas)|onednn|dnnl|nccl|gloo|ibv(erbs|_)|infiniband/|[^a-z](intel|amd|mkl)[^a-z]' \
        core study links conform emulate watch --include='*.[ch]' --exclude-dir=include |
        grep -vE '^(core/record/invocation.c:[0-9]+:  +"[A-Z]+_"|study/predict/predict_report.c:[0-9]+: +\{"nccl", DPB_WAY_)')"
# A wait for another process goes by base/deadline.h, which leaves out time in which this process did not run. Let
# through: spins of a moment, the turns of a retry, and times that are measured.
verdict "a deadline by another clock than base/deadline.h" \
    "$(grep -rnE 'now_ns(\(\))? *[<>]|[<>]=? *(dpb_)?now_ns|(deadline|give_up|kill_at)_ns' core/launch core/world core/plugin \
        core/exchange core/feed core/save core/loop study/sweep --include='*.[ch]' | grep -vE 'spins_until_ns|again_ns')"

for plugin in "$build"/plugins/*_*.so; do
    case $plugin in */comm_ring_verbs.so | */comm_hierarchical.so | */comm_gloo.so | */comm_ps_cpu.so) ;; *)
        verdict "$plugin is linked to libibverbs" "$(readelf -d "$plugin" | grep 'NEEDED.*libibverbs')" ;;
    esac
    verdict "$plugin is linked to libmpi" "$(readelf -d "$plugin" | grep 'NEEDED.*libmpi')"
    verdict "$plugin exports more than its entry" \
        "$(nm -D --defined-only "$plugin" | grep -vE ' (dpb_plugin_entry|_init|_fini|__bss_start|_edata|_end|__asan.*|__odr_asan.*|__ubsan.*)$')"
done
end
