"""One worker on all cores: steps of training against PyTorch's."""

from compare import LESS, Best, Row
from programs import compiler_needs, dpbench, pytorch

ROUNDS = 3
SECONDS = 5  # timed, of each program, and three steps at least

# What it is called, dpbench's name, batch, precision, least ratio to PyTorch's rate. Batches: so
# that a step of PyTorch's takes a few seconds on two cores, and its memory a few GiB.
NETWORKS = [
    ("ResNet-50", "resnet50", 32, "bf16", 2.5),
    ("ResNet-50", "resnet50", 32, "fp32", 1.4),
    ("VGG-16", "vgg16", 16, "bf16", 1.5),
    ("AlexNet", "alexnet", 128, "bf16", 1.5),
    ("Inception-v3", "inception3", 32, "bf16", 1.5),
    ("ResNet-110", "resnet110", 128, "bf16", 1.5),
    ("MobileNet v1", "mobilenet_v1", 32, "fp32", 0.8),
    ("ResNeXt-50 32x4d", "resnext50_32x4d", 16, "fp32", 0.8),
]


def ours(context, model, batch, precision, rate="timing.samples_per_s.median"):
    return dpbench(context, f"model.name={model}", f"run.batch={batch}",
                   f"run.precision={precision}", f"run.seconds={SECONDS}", rate=rate)


def torch(context, model, batch, precision, rate="samples_per_s"):
    def way(name, needs=None):
        return pytorch(context, "torch_train.py", model, batch, precision, context.cores, SECONDS,
                       name, rate=rate, name=f"PyTorch, {name}", needs=needs)

    return Best("PyTorch", [way("eager"), way("compiled", compiler_needs())])


def rows(context):
    result = []
    for title, *network, goal in NETWORKS:
        _, batch, precision = network
        what = f"{title}, batch {batch}, {precision}"
        group = [Row(what, "images/s", ours(context, *network), torch(context, *network), goal,
                     rounds=ROUNDS)]
        if network == ["resnet50", 32, "bf16"]:
            group.append(Row(
                "its peak memory", "bytes",
                ours(context, *network, rate="ranks.0.peak_memory_bytes"),
                torch(context, *network, rate="peak_memory_bytes"), 1.0, by=LESS, rounds=ROUNDS))
        result.append(group)
    return result
