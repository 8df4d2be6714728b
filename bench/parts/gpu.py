"""One worker on one GPU: steps of training against PyTorch's, against what the hardware can do, and how
much of a step the GPU has nothing to do. Only where it is named: `make bench-gpu`."""

from compare import Bound, Derived, Row
from programs import dpbench_on_gpu, has_option, pytorch_on_gpu

ROUNDS = 3
SECONDS = 3  # timed, of each program's turn
COMPILING_S = 150  # of PyTorch's first turn: a network that it compiles for longer is left out

# What it is called, dpbench's name, batch, precision, least ratio to PyTorch compiled. Small batches:
# launching takes as long as computing. In the order in which they matter: there may be little time.
NETWORKS = [
    ("ResNet-50", "resnet50", 256, "bf16", 1.5),
    ("ResNet-50", "resnet50", 32, "bf16", 2.0),
    ("ResNet-50", "resnet50", 64, "bf16", None),
    ("VGG-16", "vgg16", 128, "bf16", 1.2),
    ("AlexNet", "alexnet", 512, "bf16", 1.2),
    ("ResNet-50", "resnet50", 128, "tf32", 1.1),
    ("ResNet-50", "resnet50", 128, "fp32", 1.1),
]
BUSY = 99  # percent of a step, at batch 64


def ours(context, model, batch, precision, *more, place="device", name="dpbench"):
    """With samples that lie in the GPU's memory, which a device without data.place cannot."""
    fed = [f"data.place={place}"] if has_option(context, "data.place") else []
    return dpbench_on_gpu(context, f"model.name={model}", f"run.batch={batch}",
                          f"run.precision={precision}", f"run.seconds={SECONDS}", *fed, *more,
                          name=name if fed else f"{name}, fed by the host")


def torch(context, model, batch, precision, way):
    program = pytorch_on_gpu(context, "torch_gpu.py", model, batch, precision, SECONDS, way=way)
    program.limit_s = COMPILING_S if way in ("compiled", "default") else None
    return program


def busy_percent(document):
    """Of a step, in which the GPU had work: by its own events, or not at all."""
    timing = document["timing"]
    if timing["clock"] != "device":
        raise ValueError("the times are the host's")
    steps = timing["step_ns"]
    return 100 * (1 - timing["breakdown_ns"]["data_wait"] / (sum(steps) / len(steps)))


def least_ns(op, limits, peak):
    """What the hardware needs at least for an op: to compute, or to move what it reads and writes."""
    return 1e9 * max(op["flops"] / limits[peak], op["bytes"] / limits["copy_bytes_per_s"])


def limit_percent(document):
    """Of the hardware's limit, over all ops: the least time that they take by its rates, as the device
    has measured them, by the time that they took."""
    profile = document["profile"]
    precision = document["config"]["run"]["precision"]["value"]
    peak = "bf16_flops_per_s" if precision == "bf16" else "fp32_flops_per_s"
    ops = profile["rows"]
    least = sum(least_ns(op, profile["limits"], peak) for op in ops)
    return 100 * least / sum(op["ns"] for op in ops)


def allowed_rate(document):
    """By moving the bytes of a step, as fast as this GPU copies; a copy reads them and writes them."""
    profile = document["profile"]
    return profile["limits"]["copy_bytes_per_s"] / profile["bytes_per_sample"]


def counted(context, network):
    """Its rate is not that of training: keeping account of every op takes time."""
    return ours(context, *network, "run.profile=yes", name="dpbench, run.profile")


def allowed_row(context, title, network):
    return Row(f"{name_of(title, network)} / memory", "images/s", ours(context, *network),
               Derived("what memory allows", counted(context, network), allowed_rate), rounds=1)


def name_of(title, network):
    _, batch, precision = network
    return f"{title}, batch {batch}, {precision}"


def eager_rows(context, title, network):
    """What needs no compiler."""
    what, mine = name_of(title, network), ours(context, *network)
    result = [Row(f"{what} / eager as a graph", "images/s", mine,
                  torch(context, *network, "graphed"), rounds=ROUNDS)]
    if network[1] == 64:
        result.append(Row(f"{what}: GPU at work", "%", Derived("the GPU's time at work", mine,
                                                               busy_percent),
                          Bound(f"{BUSY} %", BUSY), 1.0, rounds=ROUNDS))
    return result


def compiled_row(context, title, network, goal):
    return Row(f"{name_of(title, network)} / compiled", "images/s", ours(context, *network),
               torch(context, *network, "compiled"), goal, rounds=ROUNDS)


def default_row(context, title, network, goal):
    """Beside compiled_row: the mode that compiles in less time is at times the faster one."""
    return Row(f"{name_of(title, network)} / compiled, default mode", "images/s",
               ours(context, *network), torch(context, *network, "default"), goal, rounds=ROUNDS)


def own_rows(context, title, network):
    """Ours beside ours, set otherwise."""
    _, batch, precision = network
    what, result = name_of(title, network), []
    if has_option(context, "device.layout") and (batch == 256 or precision == "fp32"):
        nhwc, nchw = [ours(context, *network, f"device.layout={layout}",
                           name=f"dpbench, {layout.upper()}") for layout in ("nhwc", "nchw")]
        result.append(Row(f"{what}: NHWC / NCHW", "images/s", nhwc, nchw, rounds=ROUNDS))
    if batch == 256 and has_option(context, "data.place"):
        fed = ours(context, *network, place="host", name="dpbench, fed by the host")
        result.append(Row(f"{what}: fed / on the device", "images/s", fed, ours(context, *network),
                          rounds=ROUNDS))
    return result


def hardware_row(context, title, network):
    return Row(f"{name_of(title, network)}: of its limit", "%",
               Derived("the share of the hardware's limit", counted(context, network),
                       limit_percent),
               Bound("the hardware's limit", 100.0), rounds=1)


IMPORTANT = 3  # of NETWORKS: no other row comes before theirs


def rows(context):
    """The row that matters most first, by both of PyTorch's modes. Then those that need no compiler, for
    compiling may take all the time that is left."""
    networks = [(title, tuple(network), goal) for title, *network, goal in NETWORKS]
    first, others = networks[:IMPORTANT], networks[IMPORTANT:]
    title, network, _ = first[0]
    return [[default_row(context, *first[0]), compiled_row(context, *first[0])]] + [
        eager_rows(context, title, network) for title, network, _ in first] + [
        compiled_row(context, *one) for one in first[1:]] + [
        allowed_row(context, title, network), hardware_row(context, title, network)] + [
        own_rows(context, title, network) for title, network, _ in networks] + [
        eager_rows(context, title, network) for title, network, _ in others] + [
        compiled_row(context, *one) for one in others]
