"""One worker on all cores: steps of training against PyTorch's."""

from compare import LESS, Best, Row
from programs import compiler_needs, pytorch, training

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
    ("GPT-2, window 256", "gpt2", 4, "bf16", 1.15),
    ("GPT-2, window 256", "gpt2", 4, "fp32", 1.05),
    ("ViT-B/16", "vit_b16", 16, "bf16", 1.15),
    ("ViT-B/16", "vit_b16", 16, "fp32", 1.05),
]
# Those whose peak memory is compared, too: batch and precision.
MEMORY = [("resnet50", 32, "bf16"), ("gpt2", 4, "bf16"), ("vit_b16", 16, "bf16")]


def ours(context, model, batch, precision, **more):
    return training(context, model, batch, precision, f"run.seconds={SECONDS}", **more)


def torch(context, model, batch, precision, rate="samples_per_s"):
    def way(name, needs=None):
        return pytorch(context, "torch_train.py", model, batch, precision, context.cores, SECONDS,
                       name, rate=rate, name=f"PyTorch, {name}", needs=needs)

    return Best("PyTorch", [way("eager"), way("compiled", compiler_needs())])


def rows(context):
    result = []
    for title, *network, goal in NETWORKS:
        model, batch, precision = network
        what = f"{title}, batch {batch}, {precision}"
        unit = "sequences/s" if model == "gpt2" else "images/s"
        group = [Row(what, unit, ours(context, *network), torch(context, *network), goal,
                     rounds=ROUNDS)]
        if (model, batch, precision) in MEMORY:
            group.append(Row(
                f"{title}, its peak memory", "bytes",
                ours(context, *network, rate="ranks.0.peak_memory_bytes"),
                torch(context, *network, rate="peak_memory_bytes"), 1.0, by=LESS, rounds=ROUNDS))
        result.append(group)
    return result
