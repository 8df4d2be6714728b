"""What workers cost each other: strategies between two one-core workers against no exchange at all
and against PyTorch's DDP; the loop against the bare device; how soon many workers are ready."""

import os

from compare import LESS, POINTS, Bound, Efficiency, Program, Row
from programs import dpbench, pytorch, training

ROUNDS = 3
SECONDS = 5  # timed, of each program

# What it is called, dpbench's name, batch of each worker, least share of the rate of two workers
# that do not exchange.
NETWORKS = [
    ("ResNet-50", "resnet50", 16, 0.99),
    ("VGG-11", "vgg11", 16, 0.97),
    ("AlexNet", "alexnet", 16, 0.94),
    ("GPT-2, window 256", "gpt2", 4, 0.94),
]
ABOVE_DDP = 5  # points


def workers(context, n, model, batch, strategy):
    """n of them with a core each."""
    return training(context, model, batch, "bf16", f"run.seconds={SECONDS}", f"run.workers={n}",
                    "device.threads=1", f"comm.name={strategy}", name=f"dpbench {strategy}, {n}")


def processes(context, n, model, batch):
    return pytorch(context, "torch_ddp.py", model, batch, "bf16", n, SECONDS,
                   name=f"PyTorch DDP, {n}")


def network_rows(context, title, model, batch, share):
    """They share the runs of shm."""
    shm = workers(context, 2, model, batch, "shm")
    free, alone = (workers(context, n, model, batch, "independent") for n in (2, 1))
    ours = Efficiency("dpbench shm", shm, alone, 2)
    peer = Efficiency("PyTorch DDP", *(processes(context, n, model, batch) for n in (2, 1)), 2)
    unit = "sequences/s" if model == "gpt2" else "images/s"
    result = [
        Row(f"{title}, shm / independent", unit, shm, free, share, rounds=ROUNDS),
        Row(f"{title}, of twice one alone", "%", ours, peer, ABOVE_DDP, by=POINTS, rounds=ROUNDS)]
    if model == "alexnet":
        result.append(Row(f"{title}, ps_cpu / shm", unit,
                          workers(context, 2, model, batch, "ps_cpu"), shm, 0.85, rounds=ROUNDS))
    return result


def shard_row(context, n, strategy, *optimizer):
    def ours(shard):
        return dpbench(context, f"run.workers={n}", f"comm.name={strategy}", f"comm.shard={shard}",
                       *optimizer, ini="sharded.ini", name=f"{strategy}, {n}, shard = {shard}")

    title = "momentum" if "optimizer.name=sgd" in optimizer else "adam"
    cores = f" on {context.cores} cores" if n > context.cores else ""
    return Row(f"AlexNet b2, {title}, {n} {strategy} workers{cores}, sharded / whole", "images/s",
               ours("optimizer"), ours("none"), 0.97, rounds=ROUNDS)


def shard_rows(context):
    return [shard_row(context, n, strategy, *optimizer)
            for n in (2, 4)
            for strategy in ("shm", "ring_tcp")
            for optimizer in (["optimizer.name=sgd", "optimizer.momentum=0.9"],
                              ["optimizer.name=adam"])]


def loop_row(context, title, model, batch, precision, share):
    """The loop's own time: the same settings, with it and without."""
    settings = [f"model.name={model}", f"run.batch={batch}", f"run.precision={precision}",
                f"run.seconds={SECONDS}"]
    program = os.path.join(context.bench, "device_alone")
    alone = Program(
        name="device alone",
        command=[program, os.path.join(context.here, "training.ini"), *settings],
        rate="samples_per_s",
        needs={program: "`make bench` builds it"},
        environment={"DPBENCH_PLUGIN_PATH": os.path.join(context.build, "plugins")},
        same="parameters")
    return Row(f"{title}, the loop / the device alone", "images/s", dpbench(context, *settings),
               alone, share)


def start_row(context):
    """From the command to its end, with one step of one sample: more than being ready takes."""
    ours = dpbench(context, "model.name=lenet", "run.workers=8", "device.threads=1",
                   "comm.name=shm", "run.batch=1", "run.steps=1", "run.warmup_steps=0",
                   rate="wall_s", name="dpbench, 8 workers")
    return Row("8 workers start LeNet, a step, and end", "s", ours, Bound("1 s", 1.0), 1.0, by=LESS)


def rows(context):
    result = []
    if context.cores >= 2:
        result += [network_rows(context, *network) for network in NETWORKS]
    return result + shard_rows(context) + [loop_row(context, "ResNet-50 b16", "resnet50", 16, "bf16", 0.99),
                     loop_row(context, "LeNet b32", "lenet", 32, "fp32", 0.97),
                     start_row(context)]
