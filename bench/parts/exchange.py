"""The exchange alone, between two processes: shm against MPI_Allreduce and the bound of memory,
hierarchical, which on one machine is no more than shm, against shm."""

import os

from compare import Bound, Program, Row

KIB, MIB = 1 << 10, 1 << 20
SECONDS = 0.5
RANKS = 2
OF_SHM = 0.97

# bytes, least ratio to Open MPI's all-reduce, least ratio to the bare sum
SIZES = [
    (4 * KIB, None, None),
    (256 * KIB, 7.0, 0.8),
    (4 * MIB, 3.0, 0.8),
    (16 * MIB, 3.0, 0.8),
    (64 * MIB, 5.0, 0.8),
]


def exchange(context, what, size):
    program = os.path.join(context.bench, "all_reduce")
    return Program(
        name={"direct": "bare sum"}.get(what, what),
        command=[program, what, str(RANKS), str(size), str(SECONDS)],
        rate="rate",
        environment={"DPBENCH_PLUGIN_PATH": os.path.join(context.build, "plugins")},
        needs={program: "`make bench` builds it"})


def open_mpi(context, size):
    program = os.path.join(context.bench, "mpi_all_reduce")
    return Program(
        name="MPI_Allreduce",
        command=["mpirun", "--allow-run-as-root", "--bind-to", "core", "-n", str(RANKS), program,
                 str(size), str(SECONDS)],
        rate="rate",
        versions="versions",
        needs={program: "install libopenmpi-dev and openmpi-bin (`make bench-deps`)"})


def text_of(size):
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"


def rows(context):
    if context.cores < RANKS:
        return []
    # Of the smallest the goal is a time.
    result = [Row("shm / 1 microsecond, 4 KiB", "GB/s", exchange(context, "shm", 4 * KIB),
                  Bound("1 microsecond", 4 * KIB / 1e3), goal=1.0)]
    for size, over_mpi, of_bound in SIZES:
        ours = exchange(context, "shm", size)
        result.append(Row(f"shm / MPI_Allreduce, {text_of(size)}", "GB/s", ours,
                          open_mpi(context, size), goal=over_mpi))
        result.append(Row(f"hierarchical / shm on one machine, {text_of(size)}", "GB/s",
                          exchange(context, "hierarchical", size), ours, goal=OF_SHM))
        result.append(Row(f"shm / bare sum, {text_of(size)}", "GB/s", ours,
                          exchange(context, "direct", size), goal=of_bound))
    return result
