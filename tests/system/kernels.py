#!/usr/bin/env python3
# needs: cuda
"""What the compiler made of kernels that pass over large tensors (in plugins/devices/cuda batch-norm's, pools', biases,
copies of a concat and of frames, the ops of sequences, casts of weights, and sums, casts and updates of arenas), in the
machine code for sm_90 of the objects that were built: reads of 16 bytes that are begun before the first of them is
used, registers, local memory. A GPU's memory gives its rate only to many reads that are under way at once. Run from the
top of the tree; ends on `N passed, N failed, N skipped`."""

import os
import re
import subprocess
import sys

BUILD = os.environ.get("DPB_BUILD", "build")
OBJECTS = [f"{BUILD}/obj/plugins/devices/cuda/kernels_{name}.o"
           for name in ("norm", "norm_backward", "window", "arena", "simple", "sequence")]
# Mangled names: of each kernel with packs of 16 bytes, by the walk of either layout.
TYPES = {"fp32": "fLi4E", "fp16": "6__halfLi8E", "bf16": "13__nv_bfloat16Li8E"}
WALKS = ("10pixel_walk", "10plane_walk")
SUMS = ("10norm_terms", "12joined_terms", "10both_terms", "12moment_terms", "11plain_terms")
# Reads of 16 bytes under way; registers: 4, 3, or 2 blocks at a time. A pool's windows are few: other threads hide
# what its reads take.
LEAST_READS = {"sum_slabs": 4, "norm_terms": 4, "joined_terms": 4, "both_terms": 6, "row_norm_terms": 4,
               "normalise": 4, "normalise 2": 4,
               "norm_backward 1": 4, "norm_backward 2": 6, "pooled_terms": 1, "norm_backward pooled": 1, "max_pool": 1,
               "max_pool_backward": 1, "mean_pool": 1, "mean_pool_backward": 1, "packs": 1,
               "weight_update": 2}
MOST_REGISTERS = {"sum_slabs": 64, "norm_terms": 80, "joined_terms": 80, "both_terms": 128,
                  "row_norm_terms": 80, "normalise": 80,
                  "normalise 2": 128, "norm_backward 1": 80, "norm_backward 2": 128, "pooled_terms": 128,
                  "norm_backward pooled": 80, "max_pool": 80, "max_pool_backward": 64, "mean_pool": 64,
                  "mean_pool_backward": 64, "packs": 64, "weight_update": 80}
# All reads of a kernel: four packs, or as many of two tensors, and the channels' values, four of them at once.
MOST_LOADS = {"normalise": 12, "normalise 2": 20, "norm_backward 1": 20, "norm_backward 2": 20}
# Bytes under way in a multiprocessor for the memory's rate: 4.3 TB/s by 0.9 us, of 132 multiprocessors. A kernel of
# batch-norm has more with all the registers that it may take.
IN_FLIGHT = 4.3e12 * 0.9e-6 / 132
REGISTERS, MOST_THREADS = 65536, 2048  # of a multiprocessor


def wanted():
    """What a kernel is called, and a pattern of how its function's name begins."""
    for name in ("bf16", "fp16"):
        kind = rf"N\w+4{name}E"  # of a namespace without a name
        for work in (f"9arena_sumI{kind}", f"10scaled_sumI{kind}", f"10conversionIf{kind}", f"10conversionI{kind}f"):
            yield f"packs {work}", f"_Z7work_onI{work}ELi8E"
        yield f"weight_update {name}", f"_Z7work_onI13weight_updateI{kind}ELi8E"
    yield "weight_update fp32", "_Z7work_onI13weight_updateIfELi4E"
    for name in ("bf16", "fp16"):
        yield f"packs pack_weights {name}", f"_Z12pack_weightsI{TYPES[name].removesuffix('Li8E')}E"
        yield f"packs convert_gradient {name}", f"_Z16convert_gradientI{TYPES[name]}E"
    for copies in ("gather_columns", "scatter_columns", "pad", "crop"):
        yield f"packs {copies}", f"_Z{len(copies)}{copies}I5uint4jE"
    for type_name, mangled in TYPES.items():
        yield f"packs bias_relu {type_name}", f"_Z9bias_reluI{mangled}jE"
    for type_name, mangled in TYPES.items():
        for kernel in ("gelu", "gelu_backward", "layer_norm", "layer_norm_backward", "embed_backward", "sum_samples",
                       "softmax", "softmax_backward"):
            yield f"packs {kernel} {type_name}", f"_Z{len(kernel)}{kernel}I{mangled}E"
        for kernel in ("embed", "add_rows"):
            yield f"packs {kernel} {type_name}", f"_Z{len(kernel)}{kernel}I{mangled}jE"
        yield f"sum_slabs row_norm_terms {type_name}", f"_Z9sum_slabsI{mangled}10pixel_walk14row_norm_terms"
    for type_name, mangled in TYPES.items():
        for walk in WALKS:
            for terms in SUMS:
                yield f"sum_slabs {terms[2:]} {type_name} {walk[2:]}", f"_Z9sum_slabsI{mangled}{walk}{terms}"
            for adds in "012":
                yield f"normalise {adds} {type_name} {walk[2:]}", f"_Z9normaliseI{mangled}{walk}L6adding{adds}E"
            for sides in "12":
                yield (f"norm_backward {sides} {type_name} {walk[2:]}",
                       f"_Z13norm_backwardI{mangled}{walk}Li{sides}E15stored")
        pooled = re.sub("^[0-9].*Li", "S0_Li", mangled)
        for index in "jm":
            what = f"{pooled}{index}E"
            yield (f"sum_slabs pooled_terms {type_name} {index}",
                   f"_Z9sum_slabsI{mangled}10pixel_walk12pooled_termsI{what}")
            yield (f"norm_backward pooled {type_name} {index}",
                   f"_Z13norm_backwardI{mangled}10pixel_walkLi1E15pooled_gradientI{what}")
            for by in ("8as_it_is", "7norm_by"):
                yield f"max_pool {by[1:]} {type_name} {index}", f"_Z8max_poolI{mangled}{index}{by}E"
            for pool in ("max_pool_backward", "mean_pool", "mean_pool_backward"):
                yield f"{pool} {type_name} {index}", f"_Z{len(pool)}{pool}I{mangled}{index}E"


def find_cuobjdump():
    """Its path, or None."""
    found = subprocess.run(["tools/find-cuda", f"{BUILD}/deps/cuda", f"{BUILD}/venv"], capture_output=True,
                           text=True, check=False).stdout
    nvcc = re.search(r"NVCC=(\S+)/nvcc ", found)
    for place in [nvcc.group(1)] if nvcc else []:
        for directory in (place, f"{BUILD}/deps/disassembler/nvidia/cu13/bin"):
            if os.access(f"{directory}/cuobjdump", os.X_OK):
                return f"{directory}/cuobjdump"
    return None


def cuobjdump(program, option):
    """What it prints of all objects."""
    path = os.path.dirname(os.path.abspath(program)) + ":" + os.environ["PATH"]  # it calls nvdisasm
    return "".join(subprocess.run([program, "-arch", "sm_90", option, name], capture_output=True, text=True,
                                  check=True, env={**os.environ, "PATH": path}).stdout for name in OBJECTS)


def functions(sass):
    """The instructions of each function, by its name."""
    made, body = {}, []
    for line in sass.splitlines():
        name = re.search(r"Function : (\S+)", line)
        text = re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(.*?);", line)
        if name:
            body = made.setdefault(name.group(1), [])
        elif text:
            body.append(text.group(1).strip())
    return made


def registers_in(text):
    return {int(number) for number in re.findall(r"\bR(\d+)\b", text)}


def reads_before_use(instructions):
    """The most reads of 16 bytes in a row whose results nothing between them names, nor any branch parts."""
    most, pending = 0, []
    for text in instructions:
        read = re.match(r"(?:@!?U?P\d+ )?LDG\.E\.128\S* R(\d+), desc\[\S+\]\[(.*)", text)
        named = registers_in(read.group(2) if read else text)
        predicated = text.startswith("@")
        if re.search(r"\b(BRA|BSYNC|BREAK|EXIT|CALL|RET|BAR)\b", text):
            pending = []
        # The address of a read may lie where its result will.
        while pending and any(named & taken for taken in pending):
            pending.pop(0)
        if read and not predicated:
            first = int(read.group(1))
            pending.append(set(range(first, first + 4)))
            most = max(most, len(pending))
    return most


def in_flight(reads, registers, block):
    """Bytes that a multiprocessor has under way: of as many blocks of threads as its registers are enough for."""
    threads = REGISTERS // (-(-registers // 8) * 8 * block) * block
    return 16 * reads * min(threads, MOST_THREADS)


def usage(text):
    """(registers, bytes of local memory and stack) of each function, by its name."""
    lines = re.findall(r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", text)
    return {name: (int(registers), int(stack) + int(local)) for name, registers, stack, local in lines}


def check_scan():
    """The scan itself, on code that is known."""
    read = "LDG.E.128 R{}, desc[UR8][R{}.64]"
    four = [read.format(4 * k, 4 * k) for k in range(1, 5)]
    use = "FADD R40, R41, R4"
    return [("the scan counts 4 reads", reads_before_use(four + [use]) == 4),
            ("a use between ends the row", reads_before_use(four[:1] + [use] + four[1:]) == 3),
            ("a branch between does", reads_before_use(four[:2] + ["@P0 BRA 0x10"] + four[2:]) == 2),
            ("reads under a condition do not count", reads_before_use(["@P0 " + r for r in four]) == 0),
            ("80 registers leave 3 blocks of 256 threads", in_flight(4, 80, 256) == 4 * 16 * 768)]


def main():
    program = find_cuobjdump()
    missing = [name for name in OBJECTS if not os.path.exists(name)]
    if missing or program is None:
        print(f"kernels: {'no ' + ', '.join(missing) if missing else 'no cuobjdump: `make deps` brings one'}")
        print("0 passed, 1 failed, 0 skipped")
        return 1
    code, used = functions(cuobjdump(program, "-sass")), usage(cuobjdump(program, "-res-usage"))
    checks = check_scan()
    for what, pattern in wanted():
        names = [name for name in code if re.match(pattern, name)]
        reads = reads_before_use(code[names[0]]) if len(names) == 1 else 0
        registers, local = used[names[0]] if len(names) == 1 else (0, 0)
        words = what.split()
        kernel = next(name for name in (" ".join(words[:2]), words[1], words[0]) if name in LEAST_READS)
        good = reads >= LEAST_READS[kernel] and 0 < registers <= MOST_REGISTERS[kernel] and local == 0
        if LEAST_READS[kernel] > 1:
            good = good and in_flight(reads, registers, 128 if kernel == "both_terms" else 256) >= IN_FLIGHT
        loads = sum("LDG" in text for text in code[names[0]]) if len(names) == 1 else 0
        good = good and loads <= MOST_LOADS.get(kernel, loads)
        checks.append((f"{what}: {len(names)} function(s), {reads} of {loads} reads before the first use, "
                       f"{registers} registers, {local} bytes of local memory", good))
    failed = [text for text, good in checks if not good]
    for text in failed:
        print(text)
    print(f"{len(checks) - len(failed)} passed, {len(failed)} failed, 0 skipped")
    return 1 if failed else 0


sys.exit(main())
