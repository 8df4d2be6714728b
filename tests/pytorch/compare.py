"""Compares the reference device with PyTorch in float64, model by model.

Each model runs one training pass on the device (dump.c). Then the same pass runs in PyTorch, twice:
from the graph that core built, which checks the device; and, for some models, from a module written
here by hand from the papers, which checks the graph: names and shapes of all parameters, and the
logits.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import warnings

warnings.filterwarnings("ignore", message="Failed to initialize NumPy")

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

TOLERANCE = 1e-9  # of the largest element of each tensor

# ------------------------------------------------------------------------------ networks by hand


class LeNet(nn.Module):
    def __init__(self, nclass):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 5, padding=2)
        self.conv2 = nn.Conv2d(32, 64, 5, padding=2)
        self.fc1 = nn.Linear(7 * 7 * 64, 512)
        self.fc2 = nn.Linear(512, nclass)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class BasicBlock(nn.Module):
    """ResNet for CIFAR: shortcuts without parameters, `same` padding (0,1) where it strides."""

    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.stride, self.new_channels = stride, channels - channels_in
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x):
        padding = (1, 1, 1, 1) if self.stride == 1 else (0, 1, 0, 1)
        y = F.relu(self.bn1(self.conv1(F.pad(x, padding))))
        y = self.bn2(self.conv2(y))
        x = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.new_channels))
        return F.relu(x + y)


class ResNet20(nn.Module):
    def __init__(self, nclass):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = nn.Sequential(*[BasicBlock(16, 16, 1) for _ in range(3)])
        self.layer2 = nn.Sequential(BasicBlock(16, 32, 2), *[BasicBlock(32, 32, 1) for _ in "12"])
        self.layer3 = nn.Sequential(BasicBlock(32, 64, 2), *[BasicBlock(64, 64, 1) for _ in "12"])
        self.fc = nn.Linear(64, nclass)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(x.mean((2, 3)))


class Bottleneck(nn.Module):
    def __init__(self, channels_in, width, stride, version):
        super().__init__()
        first, second = (stride, 1) if version == "v1" else (1, stride)
        self.conv1 = nn.Conv2d(channels_in, width, 1, first, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, second, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        if stride != 1 or channels_in != 4 * width:
            projection = nn.Conv2d(channels_in, 4 * width, 1, stride, bias=False)
            self.downsample = nn.Sequential(projection, nn.BatchNorm2d(4 * width))
        else:
            self.downsample = nn.Identity()

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.downsample(x) + self.bn3(self.conv3(y)))


class PreactivationBottleneck(nn.Module):
    """ResNet v2: the projection reads the block's input after batch-norm and ReLU."""

    def __init__(self, channels_in, width, stride):
        super().__init__()
        self.bn0 = nn.BatchNorm2d(channels_in)
        self.conv1 = nn.Conv2d(channels_in, width, 1, stride, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.downsample = None
        if stride != 1 or channels_in != 4 * width:
            projection = nn.Conv2d(channels_in, 4 * width, 1, stride, bias=False)
            self.downsample = nn.Sequential(projection)

    def forward(self, x):
        y = F.relu(self.bn0(x))
        x = self.downsample(y) if self.downsample else x
        y = F.relu(self.bn1(self.conv1(y)))
        y = F.relu(self.bn2(self.conv2(y)))
        return x + self.conv3(y)


class ResNet50(nn.Module):
    def __init__(self, nclass, version):
        super().__init__()
        self.version = version
        self.conv1 = nn.Conv2d(3, 64, 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = self.stage(64, 64, 3, 1)
        self.layer2 = self.stage(256, 128, 4, 2)
        self.layer3 = self.stage(512, 256, 6, 2)
        self.layer4 = self.stage(1024, 512, 3, 2)
        self.bn5 = nn.BatchNorm2d(2048) if version == "v2" else None
        self.fc = nn.Linear(2048, nclass)

    def stage(self, channels_in, width, n_blocks, stride):
        blocks = []
        for i in range(n_blocks):
            args = (channels_in if i == 0 else 4 * width, width, stride if i == 0 else 1)
            v2 = self.version == "v2"
            blocks.append(PreactivationBottleneck(*args) if v2 else Bottleneck(*args, self.version))
        return nn.Sequential(*blocks)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, padding=1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        x = F.relu(self.bn5(x)) if self.bn5 else x
        return self.fc(x.mean((2, 3)))


# Model, its options, batch, (channels, height, width), module by hand or None.
CASES = [
    ("tiny", [], 4, (3, 9, 9), None),
    ("tiny_dense", [], 4, (3, 9, 9), None),
    ("tiny_bn", [], 4, (3, 9, 9), None),
    ("mlp", [], 2, (1, 1, 1000), None),
    ("lenet", [], 4, (1, 28, 28), LeNet),
    ("alexnet_cifar10", [], 3, (3, 32, 32), None),
    ("resnet20", [], 4, (3, 32, 32), ResNet20),
    ("resnet32", [], 2, (3, 32, 32), None),
    ("resnet44", [], 2, (3, 32, 32), None),
    ("resnet56", [], 2, (3, 32, 32), None),
    ("resnet110", [], 2, (3, 32, 32), None),
    ("resnet50", ["version=v1"], 2, (3, 64, 64), lambda n: ResNet50(n, "v1")),
    ("resnet50", ["version=v1.5"], 2, (3, 64, 64), lambda n: ResNet50(n, "v1.5")),
    ("resnet50", ["version=v2"], 2, (3, 64, 64), lambda n: ResNet50(n, "v2")),
    ("resnet101", [], 2, (3, 64, 64), None),
    ("resnet152", [], 2, (3, 64, 64), None),
    ("alexnet", [], 2, (3, 99, 99), None),
    ("vgg11", [], 2, (3, 64, 64), None),
    ("vgg16", [], 2, (3, 64, 64), None),
    ("vgg19", [], 2, (3, 64, 64), None),
    ("googlenet", [], 2, (3, 64, 64), None),
    ("inception3", [], 2, (3, 107, 107), None),
    ("overfeat", [], 2, (3, 103, 103), None),
    ("densenet40_k12", [], 2, (3, 32, 32), None),
    ("densenet100_k12", [], 2, (3, 16, 16), None),
    ("densenet100_k24", [], 2, (3, 16, 16), None),
    ("cifar_cnn", [], 4, (3, 32, 32), None),
]

# ------------------------------------------------------------------------- networks from a graph


class Dump:
    """What dump.c wrote."""

    def __init__(self, directory):
        self.directory = directory
        for key, value in json.loads((directory / "graph.json").read_text()).items():
            setattr(self, key, value)
        shape = [self.batch] + self.nodes[0]["shape"]
        self.input = self.array("input").view(shape)
        self.labels = self.array("labels", torch.int32).long()
        self.logits = self.array("logits").view(self.batch, self.nclass)
        self.weights = self.views("weights")
        self.gradients = self.views("gradients")
        statistics = self.array("statistics") if self.states else None
        self.statistics = [statistics[s["offset"] : s["offset"] + s["n"]] for s in self.states]

    def array(self, name, dtype=torch.float64):
        path = self.directory / name
        n = path.stat().st_size // dtype.itemsize
        return torch.from_file(str(path), shared=False, size=n, dtype=dtype)

    def views(self, name):
        arena = self.array(name)
        views = []
        for tensor in self.tensors:
            n = torch.Size(tensor["dims"]).numel()
            views.append(arena[tensor["offset"] : tensor["offset"] + n].view(tensor["dims"]))
        return views


def windowed_mean(x, node):
    """Mean over windows without what is padding: the sum over the count."""
    padding, kernel, stride = node["pad"], node["kernel"], node["stride"]
    total = F.avg_pool2d(F.pad(x, padding), kernel, stride, divisor_override=1)
    count = F.avg_pool2d(F.pad(torch.ones_like(x), padding), kernel, stride, divisor_override=1)
    return total / count


def local_response_norm(x, node):
    size = 2 * node["lrn_radius"] + 1
    alpha = node["lrn_alpha"] * size  # PyTorch takes the mean of the squares
    return F.local_response_norm(x, size, alpha, node["lrn_beta"], node["lrn_k"])


def batch_norm(x, gamma, beta, node, statistics):
    """Leaves the batch's mean and unbiased variance in statistics."""
    mean, variance = torch.zeros_like(beta), torch.ones_like(beta)
    y = F.batch_norm(x, mean, variance, gamma, beta, True, 1.0, node["epsilon"])
    statistics[node["mean"]], statistics[node["variance"]] = mean, variance
    return y


def shortcut(x, node):
    x = x[:, :, :: node["stride"][0], :: node["stride"][1]]
    return F.pad(x, (0, 0, 0, 0, 0, node["shape"][0] - x.shape[1]))


def run_node(dump, index, x, weight, bias, statistics):
    node = dump.nodes[index]
    match node["op"]:
        case "input":
            return dump.input
        case "conv":
            return F.conv2d(F.pad(x[0], node["pad"]), weight, bias, node["stride"])
        case "batch_norm":
            return batch_norm(x[0], weight, bias, node, statistics)
        case "relu":
            return F.relu(x[0])
        case "max_pool":
            padded = F.pad(x[0], node["pad"], value=-torch.inf)
            return F.max_pool2d(padded, node["kernel"], node["stride"])
        case "mean_pool":
            return windowed_mean(x[0], node)
        case "dense":
            return F.linear(x[0].flatten(1), weight, bias)[:, :, None, None]
        case "add":
            return x[0] + x[1]
        case "concat":
            return torch.cat(x, 1)
        case "dropout":
            return x[0] * dump.array(f"mask_{index}").view_as(x[0])
        case "lrn":
            return local_response_norm(x[0], node)
        case "shortcut":
            return shortcut(x[0], node)
        case "softmax_loss":
            return F.cross_entropy(x[0].flatten(1), dump.labels)
        case unknown:
            raise ValueError(f"no op '{unknown}' in compare.py")


def run_graph(dump):
    """Loss, gradients by tensor and statistics by state of one training pass."""
    weights = [w.clone().requires_grad_() for w in dump.weights]
    statistics = [None] * len(dump.states)
    values = []
    for index, node in enumerate(dump.nodes):
        weight, bias = (None if node[k] is None else weights[node[k]] for k in ("weight", "bias"))
        x = [values[i] for i in node["inputs"]]
        values.append(run_node(dump, index, x, weight, bias, statistics))
        if values[-1].dim() == 4 and list(values[-1].shape[1:]) != node["shape"]:
            raise ValueError(f"{node['name']}: shape {values[-1].shape}, not {node['shape']}")
    values[-1].backward()
    return values[-1].detach(), [w.grad for w in weights], statistics


# ------------------------------------------------------------------------------------ comparison


class Worst:
    """The largest error, relative to the largest element of its tensor, and where it is."""

    def __init__(self):
        self.error, self.where = 0.0, "nothing"

    def see(self, where, ours, theirs):
        scale = theirs.abs().max().item()
        error = (ours - theirs).abs().max().item() / scale if scale else ours.abs().max().item()
        if not error <= self.error:  # a NaN is the worst
            self.error, self.where = error, where

    def check(self):
        if not self.error <= TOLERANCE:
            raise ValueError(f"{self.where}: off by {self.error:.2e}, allowed {TOLERANCE:.0e}")
        return f"{self.error:.1e} ({self.where})"


def compare_graph(dump):
    loss, gradients, statistics = run_graph(dump)
    worst = Worst()
    worst.see("loss", torch.tensor(dump.loss, dtype=torch.double), loss)
    for tensor, ours, theirs in zip(dump.tensors, dump.gradients, gradients, strict=True):
        worst.see(f"gradient of {tensor['name']}", ours, theirs)
    for state, (ours, theirs) in enumerate(zip(dump.statistics, statistics, strict=True)):
        worst.see(f"statistics {state}", ours, theirs)
    return worst.check()


def compare_module(dump, make):
    module = make(dump.nclass).double().train()
    theirs = {name: list(p.shape) for name, p in module.named_parameters()}
    ours = {tensor["name"]: tensor["dims"] for tensor in dump.tensors}
    different = sorted(k for k in ours.keys() | theirs.keys() if ours.get(k) != theirs.get(k))
    if different:
        name = different[0]
        raise ValueError(f"{len(different)} parameters differ: {name} is {ours.get(name)} in the "
                         f"graph, {theirs.get(name)} by hand")
    with torch.no_grad():
        parameters = dict(module.named_parameters())
        for tensor, weight in zip(dump.tensors, dump.weights, strict=True):
            parameters[tensor["name"]].copy_(weight)
    worst = Worst()
    worst.see("logits", dump.logits, module(dump.input).detach())
    return worst.check()


def run_case(dump_program, work, model, options, batch, shape, make):
    """Yields (what, function to compare) once the pass is dumped."""
    directory = work / "-".join([model] + options)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    command = [dump_program, directory, model, batch, *shape, *options]
    subprocess.run([str(word) for word in command], check=True)
    dump = Dump(directory)
    yield "gradients", lambda: compare_graph(dump)
    if make:
        yield "by hand", lambda: compare_module(dump, make)
    shutil.rmtree(directory)


def main():
    dump_program, work, wanted = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
    listed = subprocess.run([dump_program, "--list"], check=True, capture_output=True, text=True)
    there = listed.stdout.split()
    known = {case[0] for case in CASES}
    passed = failed = 0
    for model in sorted(set(there) - known) + sorted(set(wanted) - known):
        print(f"{model}: FAILED: no case in tests/pytorch/compare.py")
        failed += 1
    for case in CASES:
        if wanted and case[0] not in wanted:
            continue
        label = " ".join([case[0]] + case[1])
        try:
            for what, compare in run_case(dump_program, work, *case):
                print(f"{label}, {what}: {compare()}", flush=True)
                passed += 1
        except (ValueError, OSError, RuntimeError, subprocess.CalledProcessError) as error:
            print(f"{label}: FAILED: {error}", flush=True)
            failed += 1
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


sys.exit(main())
