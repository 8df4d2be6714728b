#!/bin/sh
# needs: plain built
#
# Dependencies flow one way: cli -> study -> train -> launch, graph -> world -> plugin, machine -> base.
# core/conform stands on graph and plugin; its oracle is the ops of device reference. core/train's network
# test connects machines by the strategies' code.
# Includes and names are both held to that; neither includes nor calls between core's files form a loop.
# In plugins/lib and plugins/comm neither modules nor rooms (directories) form a loop, and the strategy on
# which the others stand knows none of them.
# Public headers include each other alone. Plugins include public headers, the libraries beside them and
# nothing of core's, and a plugin exports its entry and nothing else. Run from the top of the tree;
# BUILD=build.
. tests/lib/verdict.sh
build=${DPB_BUILD:-build}
uses=$(mktemp)
trap 'rm -f "$uses" "$uses.comm"' EXIT

includes() { # of the files in "$@": FILE:LINE:#include "X"
    grep -nE '^#include "' "$@" /dev/null
}

object_uses() { # of the sources in "$@": lines USER DEFINER SYMBOL, by their objects
    for source in "$@"; do
        echo "$build/obj/${source%.*}.o"
    done | xargs nm -A | sed "s,^$build/obj/,,; s/\\.o:/ /" | awk '
        $(NF - 1) == "U" { used[$1, $NF]; next }
        $(NF - 1) ~ /^[A-Z]$/ { definer[$NF] = $1 }
        END {
            for (use in used) {
                split(use, part, SUBSEP)
                if (part[2] in definer)
                    print part[1], definer[part[2]], part[2]
            }
        }'
}

include_uses() { # of the files in "$@": lines FILE INCLUDED
    { printf '%s\n' "$@"; grep -HE '^#include "' "$@"; } | awk -F '(:#include )?"' '
        NF == 1 { known[$1]; next }
        {
            directory = $1
            sub("[^/]*$", "", directory)
            split(directory " core/ core/include/ plugins/ '"$(printf '%s ' plugins/lib/*/)"'", from, " ")
            for (i = 1; i in from; i++)
                if (from[i] $2 in known) {
                    print $1, from[i] $2
                    break
                }
        }'
}

loops() { # in the pairs on standard input
    tsort 2>&1 >/dev/null | sed 's/^tsort: //'
}

layer() { # NAME MAY-USE...: what else its files include from core, and which names they use
    name=$1
    allowed=$(echo "dpbench $*" | tr ' ' '|')
    verdict "core/$name includes more than $allowed" \
        "$(includes core/"$name"/*.[ch]* | grep -vE "#include \"($allowed)/" | grep -vE '#include "[^/]*"' |
            grep -vE '^core/conform/opcheck.c:[0-9]+:#include "devices/reference/ops.h"|^core/train/network_test.c:[0-9]+:#include "lib/tcp/tcp_connect.h"')"
    verdict "core/$name uses names of more than $allowed" \
        "$(grep "^core/$name/" "$uses" | grep -vE "^[^ ]* core/($allowed)/")"
}

object_uses core/*/*.c >"$uses"
verdict "core's objects are not in $build/obj" "$([ -s "$uses" ] || echo none)"
verdict "calls between core's files form a loop" "$(cut -d ' ' -f 1,2 "$uses" | loops)"
# plugin_loops NAME DIRECTORY: of a plugin that was built
plugin_loops() {
    [ ! -f "$build/plugins/$1.so" ] || verdict "calls between the files of $1 form a loop" \
        "$(object_uses "$2"/*.c | cut -d ' ' -f 1,2 | loops)"
}
plugin_loops device_cpu plugins/devices/cpu
plugin_loops device_cuda plugins/devices/cuda
plugin_loops comm_hierarchical plugins/comm/hierarchical
plugin_loops comm_nccl plugins/comm/nccl
plugin_loops comm_ring_verbs plugins/lib/verbs
plugin_loops data_image_folder plugins/data/image_folder
# shellcheck disable=SC2046 # names without spaces
verdict "files include each other" \
    "$(include_uses $(find core plugins -name '*.[ch]' -o -name '*.cu' -o -name '*.cc' -o -name '*.inc') | loops)"

# comm_uses: lines USER USED of the modules of strategies and of their library, by names and by includes.
# A module is a .c with its .h. What this build is without has no objects.
comm_uses() {
    # shellcheck disable=SC2046 # names without spaces
    {
        include_uses $(find plugins/lib plugins/comm -name '*.[ch]')
        object_uses $(for source in plugins/lib/*/*.c plugins/comm/*.c plugins/comm/*/*.c; do
            [ ! -f "$build/obj/${source%.c}.o" ] || echo "$source"
        done) | cut -d ' ' -f 1,2
    } | sed -E 's/\.[ch]( |$)/\1/g' | awk '$1 != $2'
}
comm_uses >"$uses.comm"
verdict "modules of plugins/lib and plugins/comm form a loop" "$(loops <"$uses.comm")"
verdict "rooms of plugins/lib and plugins/comm form a loop" \
    "$(sed -E 's,/[^/ ]*( |$),\1,g' "$uses.comm" | awk '$1 != $2' | loops)"
verdict "a strategy knows an heir" \
    "$(grep -E '^plugins/lib/(signals|strategy)/[^ ]* plugins/lib/(coded|ring|averaging|reduce|device_strategy)/' "$uses.comm"
        grep -nE 'struct (dpb_)?(coded|ring|averaging|reduce|device_strategy)' plugins/lib/strategy/*)"

layer base
layer machine base
layer plugin base
layer graph base
layer conform base plugin graph
layer world base machine plugin
layer launch base machine plugin world
layer train base machine plugin world launch graph
layer study base machine plugin world launch graph train
layer cli base machine plugin world launch graph conform train study

verdict "public headers include private ones" \
    "$(includes core/include/dpbench/*.h | grep -vE '#include "[a-z]+\.h"')"
verdict "plugins include core's private headers" \
    "$(find plugins -name '*.[ch]' -exec grep -nHE '^#include "(base|machine|plugin|world|launch|graph|train|study|cli)/|\.\./core' {} +)"
# Variables of the environment, which results record, have the names that they have.
verdict "core names a vendor or a plugin's library" \
    "$(grep -rniE 'nvidia|nvml|cu(da|dnn|blas)|onednn|dnnl|nccl|gloo|ibv(erbs|_)|infiniband/|[^a-z](intel|amd|mkl)[^a-z]' \
        core --include='*.[ch]' --exclude-dir=include | grep -vE '^core/study/invocation.c:[0-9]+:  +"[A-Z]+_"')"

for plugin in "$build"/plugins/*_*.so; do
    case $plugin in */comm_ring_verbs.so | */comm_hierarchical.so | */comm_gloo.so | */comm_ps_cpu.so) ;; *)
        verdict "$plugin is linked to libibverbs" "$(readelf -d "$plugin" | grep 'NEEDED.*libibverbs')" ;;
    esac
    verdict "$plugin is linked to libmpi" "$(readelf -d "$plugin" | grep 'NEEDED.*libmpi')"
    verdict "$plugin exports more than its entry" \
        "$(nm -D --defined-only "$plugin" | grep -vE ' (dpb_plugin_entry|_init|_fini|__bss_start|_edata|_end|__asan.*|__odr_asan.*|__ubsan.*)$')"
done
end
