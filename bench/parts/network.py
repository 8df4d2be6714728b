"""The exchange over TCP on the loopback interface: ring_tcp against Gloo and against Open MPI's TCP,
by itself and in training; and what Gloo and MPI lose by being called through dpbench."""

import os

from compare import Best, Program, Row
from programs import DEPS, dpbench

KIB, MIB = 1 << 10, 1 << 20
BUCKET = 4 * MIB  # comm.bucket's default
TRAINING_S, ROUNDS = 5, 3

SIZES = [64 * KIB, 1 * MIB, 4 * MIB, 64 * MIB]
OVER_GLOO, OVER_MPI, OF_BARE, OF_INDEPENDENT = 1.5, 1.0, 0.97, 0.93


def seconds_of(size):
    """Long enough for a median of some dozens."""
    return "0.5" if size < 16 * MIB else "3"


def ours(context, strategy, ranks, size):
    program = os.path.join(context.bench, "all_reduce")
    return Program(
        name=strategy,
        command=[program, strategy, str(ranks), str(size), seconds_of(size)],
        rate="rate",
        environment={"DPBENCH_PLUGIN_PATH": os.path.join(context.build, "plugins")},
        needs={program: "`make bench` builds it",
               os.path.join(context.build, "plugins", f"comm_{strategy}.so"):
               "`make` says why it was not built"})


def gloo(context, ranks, size, algorithm, bucket, where="free"):
    """The library called from a bare loop."""
    program = os.path.join(context.bench, "gloo_all_reduce")
    return Program(
        name=f"Gloo, {algorithm}, {where}, buckets of {text_of(bucket)}",
        command=[program, str(ranks), str(size), seconds_of(size), algorithm, where, str(bucket)],
        rate="rate",
        versions="versions",
        needs={program: DEPS})


def gloo_alone(context, ranks, size):
    """By the ways that are its best at one size or another."""
    return [gloo(context, ranks, size, algorithm, size)
            for algorithm in ("ring", "ring_chunked", "halving_doubling")]


def mpi_turns(context, ranks, size, way):
    """Both are one run."""
    program = os.path.join(context.bench, "mpi_turns")
    return Program(
        name=f"MPI_Iallreduce, {way}",
        command=["mpirun", "--allow-run-as-root", "-n", str(ranks), program, str(ranks), str(size),
                 seconds_of(size)],
        rate=f"{way}.rate",
        versions="versions",
        environment={"DPBENCH_PLUGIN_PATH": os.path.join(context.build, "plugins")},
        needs={program: "`make` says why MPI was not found"})


def open_mpi(context, ranks, size):
    program = os.path.join(context.bench, "mpi_all_reduce")
    return Program(
        name="Open MPI, TCP",
        command=["mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "pml", "ob1",
                 "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo", "-n", str(ranks),
                 program, str(size), seconds_of(size)],
        rate="rate",
        versions="versions",
        needs={program: "install libopenmpi-dev and openmpi-bin (`make bench-deps`)"})


def text_of(size):
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"


def training(context, strategy):
    return dpbench(context, "model.name=resnet50", "run.batch=32", "run.precision=bf16",
                   f"run.seconds={TRAINING_S}", "run.workers=2", "device.threads=1",
                   f"comm.name={strategy}", name=f"dpbench {strategy}, 2")


def rows(context):
    result = []
    if context.cores < 2:
        return result
    for ranks in (2, 4):
        for size in SIZES:
            ring, what = ours(context, "ring_tcp", ranks, size), f"{ranks} ranks, {text_of(size)}"
            through = ours(context, "gloo", ranks, size)
            result.append([
                Row(f"ring_tcp / Gloo, {what}", "GB/s", ring,
                    Best("Gloo", [*gloo_alone(context, ranks, size), through]), OVER_GLOO),
                Row(f"gloo / the same called bare, {what}", "GB/s", through,
                    Best("Gloo, bare", [gloo(context, ranks, size, "ring", BUCKET, where)
                                        for where in ("free", "pinned")]), OF_BARE),
                Row(f"ring_tcp / Open MPI's TCP, {what}", "GB/s", ring,
                    open_mpi(context, ranks, size), OVER_MPI)])
            if ranks <= context.cores:
                result.append(
                    Row(f"mpi / the same called bare, {what}", "GB/s",
                        mpi_turns(context, ranks, size, "through"),
                        mpi_turns(context, ranks, size, "bare"), OF_BARE))
    result.append(Row("ResNet-50, ring_tcp / independent", "images/s",
                      training(context, "ring_tcp"), training(context, "independent"),
                      OF_INDEPENDENT, rounds=ROUNDS))
    return result
