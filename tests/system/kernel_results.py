#!/usr/bin/env python3
# needs: cuda stand-in
"""The kernels of plugins/devices/cuda as nvcc compiled them to PTX, run by an interpreter (tests/cuda/ptx.py) from the
C functions that launch them: results against numpy in fp64, bounds, alignment, reads of what nothing has written, races.
Then the reader itself: it must see planted mistakes, and barriers and fences that are taken out one at a time. Run from
the top of the tree, with words of cases' names for some of them; ends on `N passed, N failed, N skipped`."""

import glob
import os
import re
import subprocess
import sys
import time

BUILD = os.environ.get("DPB_BUILD") or os.environ.get("BUILD") or "build"
OBJECTS = sorted(glob.glob(f"{BUILD}/obj/plugins/devices/cuda/kernels_*.o"))
LIBRARY = f"{BUILD}/tests/cuda/launches.so"
sys.dont_write_bytecode = True
sys.path[:0] = [path for path in (f"{BUILD}/deps/numpy",) if os.path.isdir(path)] + ["tests/cuda"]

# Case and kernel that have all of a kernel's ways, where the fastest have not: several slabs; more than 256 tensors.
ALL_WAYS = {"sum_slabs": ("channel_sums", "Li1E10pixel_walk"), "find_factors": ("many_tensors", "")}


def find_cuobjdump():
    """Its path, or None."""
    found = subprocess.run(["tools/find-cuda", f"{BUILD}/deps/cuda", f"{BUILD}/venv"], capture_output=True, text=True,
                           check=False).stdout
    nvcc = re.search(r"NVCC=(\S+)/nvcc ", found)
    places = [nvcc.group(1)] if nvcc else []
    return next((f"{place}/cuobjdump" for place in places + [f"{BUILD}/deps/disassembler/nvidia/cu13/bin"]
                 if os.access(f"{place}/cuobjdump", os.X_OK)), None)


def source_name(kernel):
    """A kernel's name in the source."""
    found = re.match(r"_ZN?(\d+)", kernel)
    return kernel[found.end():found.end() + int(found.group(1))]


def run_case(bench, function, type_, seed=7):
    """What is wrong, or None."""
    import numpy
    import ptx
    from bench import Wrong
    bench.reset()
    bench.draw = numpy.random.default_rng(seed)
    bench.launched = []
    try:
        with numpy.errstate(all="ignore"):  # planted mistakes make values of all kinds
            function(bench, type_)
    except (Wrong, ptx.Fault) as error:
        return str(error)
    return None


def run_cases(bench, words):
    import cases
    checks, of_kernel = [], {}
    for name, function, type_ in cases.CASES:
        if words and not any(word in name for word in words):
            continue
        begun = time.process_time()
        wrong = run_case(bench, function, type_)
        took = time.process_time() - begun
        checks.append((f"{name}: {wrong}", wrong is None))
        for kernel in set(bench.launched):
            of_case, of_name = ALL_WAYS.get(source_name(kernel), ("", ""))
            if name.startswith(of_case) and of_name in kernel and \
                    (kernel not in of_kernel or took < of_kernel[kernel][0]):
                of_kernel[kernel] = (took, function, type_)
    missing = {source_name(kernel) for kernel in bench.code.kernels} - \
        {source_name(kernel) for kernel in bench.machine.ran}
    if not words:
        checks.append((f"kernels without a case (tests/cuda/cases.py): {', '.join(sorted(missing))}", not missing))
    return checks, of_kernel


def unseen(bench, of_kernel, plant, each):
    """Plants mistakes, one at a time, in the kernel of each source name whose case is the fastest: how many, and the
    source names of those with which the case passes. plant(kernel): the lines to change, with what they become. Not
    `each`: one of a kernel's is enough, since a case need not run all of its ways."""
    count, passed, done = 0, [], set()
    for name, (_, function, type_) in sorted(of_kernel.items(), key=lambda item: item[1][0]):
        kernel = bench.code.kernels[name]
        changes = plant(kernel) if source_name(name) not in done else []
        not_seen = 0
        for at, line in changes:
            done.add(source_name(name))
            bench.changed = {name: kernel.changed(at, line)}
            wrong = run_case(bench, function, type_)
            bench.changed = {}
            count += each
            not_seen += wrong is None
            if wrong is not None and not each:
                not_seen = 0
                break
        if not each:
            count, not_seen = count + (len(changes) > 0), min(1, not_seen)
        passed += [source_name(name)] * not_seen
    return count, passed


def lines_of(kernel, pattern):
    return [(at, line) for at, line in enumerate(kernel.text) if re.search(pattern, line)]


def one_barrier_less(kernel):
    return [(at, ".pragma") for at, _ in lines_of(kernel, r"^bar\.sync")]


def one_fence_less(kernel):
    return [(at, ".pragma") for at, _ in lines_of(kernel, r"^membar\.gl")]


def moved(line, n):
    """An access n bytes on."""
    return re.sub(r"\[([%\w]+)(?:\+(-?\d+))?\]", lambda m: f"[{m.group(1)}+{int(m.group(2) or 0) + n}]", line)


def one_further(kernel):
    """A write to global memory, one element on."""
    return [(at, moved(line, int(re.search(r"(\d+) ", line).group(1)) // 8))
            for at, line in lines_of(kernel, r"^st\.(volatile\.)?global\.([bfus]\d+|v\d\.[bfus]\d+) ")][::-1]


def no_bound(kernel):
    """A branch is not taken: the first ones leave out the threads behind the last element."""
    return [(at, ".pragma") for at, _ in lines_of(kernel, r"^@!?%p\d+ bra")][:4]


def not_aligned(kernel):
    return [(at, moved(line, 4)) for at, line in lines_of(kernel, r"^(ld|st)\.global\.(nc\.)?v4\.[bfu]32")]


def main():
    cuobjdump = find_cuobjdump()
    lacks = None if cuobjdump else "cuobjdump: `make deps` brings one"
    lacks = lacks if os.path.exists(LIBRARY) else f"{LIBRARY}: `make check-kernel_results` builds it"
    try:
        import numpy  # pylint: disable=unused-import
    except ImportError:
        lacks = "numpy for this Python: `make deps` brings one"
    if lacks:
        print(f"kernels: no {lacks}\n0 passed, 1 failed, 0 skipped")
        return 1
    from bench import Bench
    bench = Bench(LIBRARY, OBJECTS, cuobjdump)
    words = sys.argv[1:]
    checks, of_kernel = run_cases(bench, words)
    bench.twins = False
    if not words:
        checks += planted(bench, of_kernel)
    failed = [text for text, good in checks if not good]
    for text in failed:
        print(text)
    print(f"{len(checks) - len(failed)} passed, {len(failed)} failed, 0 skipped")
    return 1 if failed else 0


# Barriers that are one too many, since others lie between the accesses: the last one of largest_of_block, and in
# softmax those of two rows' joins, which have rooms of their own; the first one of the sum of weights' squares.
SPARE = {"orthogonalise": 2, "begin_columns": 1, "softmax": 2, "square_pieces": 1}
PLANTED = (("barriers taken out", one_barrier_less, True, SPARE),
           ("fences taken out", one_fence_less, True, {}),
           ("writes one element further", one_further, False, {}),
           ("bounds not checked", no_bound, False, {}),
           ("packs that are not aligned", not_aligned, False, {}))


def planted(bench, of_kernel):
    """The reader's own check."""
    checks = []
    for what, plant, each, spare in PLANTED:
        count, passed = unseen(bench, of_kernel, plant, each)
        print(f"{what}: {count}, of which {count - len(passed)} were seen", flush=True)
        wrong = sorted({name for name in passed if passed.count(name) > spare.get(name, 0)})
        checks.append((f"{what}: not seen in {', '.join(wrong)} ({passed})", not wrong and count > 0))
    return checks


if __name__ == "__main__":
    sys.exit(main())
