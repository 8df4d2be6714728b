#!/bin/sh
# Dependencies flow one way: cli -> study -> train -> launch, graph -> world -> plugin, machine -> base.
# Public headers include each other alone. Plugins include public headers, the libraries beside them and
# nothing of core's, and a plugin exports its entry and nothing else. Run from the top of the tree;
# BUILD=build.
build=${DPB_BUILD:-build}
passed=0 failed=0

verdict() { # TEXT OFFENDERS: passes when there are none
    if [ -z "$2" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "$1:"
        echo "$2" | sed 's/^/    /'
    fi
}

includes() { # of the files in "$@": FILE:LINE:#include "X"
    grep -nE '^#include "' "$@" /dev/null
}

layer() { # NAME MAY-INCLUDE...: what else its files include from core
    name=$1
    allowed=$(echo "dpbench $*" | tr ' ' '|')
    verdict "core/$name includes more than $allowed" \
        "$(includes core/"$name"/*.[ch]* | grep -vE "#include \"($allowed)/" | grep -vE '#include "[^/]*"')"
}

layer base
layer machine base
layer plugin base
layer graph base
layer world base machine plugin
layer launch base machine plugin world
layer train base machine plugin world launch graph
layer study base machine plugin world launch graph train
layer cli base machine plugin world launch graph train study

verdict "public headers include private ones" \
    "$(includes core/include/dpbench/*.h | grep -vE '#include "[a-z]+\.h"')"
verdict "plugins include core's private headers" \
    "$(find plugins -name '*.[ch]' -exec grep -nHE '^#include "(base|machine|plugin|world|launch|graph|train|study|cli)/|\.\./core' {} +)"
verdict "core knows a library of a plugin" \
    "$(grep -rnE '#include <(dnnl|oneapi|cuda|mpi|infiniband|nccl)' core)"

for plugin in "$build"/plugins/*_*.so; do
    case $plugin in */comm_ring_verbs.so | */comm_hierarchical.so | */comm_gloo.so | */comm_ps_cpu.so) ;; *)
        verdict "$plugin is linked to libibverbs" "$(readelf -d "$plugin" | grep 'NEEDED.*libibverbs')" ;;
    esac
    verdict "$plugin is linked to libmpi" "$(readelf -d "$plugin" | grep 'NEEDED.*libmpi')"
    verdict "$plugin exports more than its entry" \
        "$(nm -D --defined-only "$plugin" | grep -vE ' (dpb_plugin_entry|_init|_fini|__bss_start|_edata|_end|__asan.*|__odr_asan.*|__ubsan.*)$')"
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
