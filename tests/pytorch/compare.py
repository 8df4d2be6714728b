"""Compares the reference device with PyTorch in float64, model by model; then what both make of
each other's checkpoints (continuation.py) and of GPT-2's published layout (published.py), and the
codec powersgd with its hook (powersgd.py).

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

import continuation
import text
import powersgd
import published
import torch
import torch.nn.functional as F
from networks import GPT, LeNet, MobileNet, ResNet20, ResNet50, ResNeXt50, ViT
from safetensors import SafetensorError
from worst import Worst

TOLERANCE = 1e-9  # of the largest element of each tensor

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
    ("resnext50_32x4d", [], 2, (3, 64, 64), ResNeXt50),
    ("mobilenet_v1", [], 2, (3, 64, 64), MobileNet),
    ("alexnet", [], 2, (3, 99, 99), None),
    ("vgg11", [], 2, (3, 64, 64), None),
    ("vgg16", [], 2, (3, 64, 64), None),
    ("vgg19", [], 2, (3, 64, 64), None),
    ("vgg16_cifar", [], 8, (3, 32, 32), None),
    ("googlenet", [], 2, (3, 64, 64), None),
    ("inception3", [], 2, (3, 107, 107), None),
    ("overfeat", [], 2, (3, 103, 103), None),
    ("densenet40_k12", [], 2, (3, 32, 32), None),
    ("densenet40_k12", ["form=tf"], 2, (3, 32, 32), None),
    ("densenet100_k12", [], 2, (3, 16, 16), None),
    ("densenet100_k24", [], 2, (3, 16, 16), None),
    ("cifar_cnn", [], 4, (3, 32, 32), None),
    ("gpt", ["layers=2", "heads=3", "width=24", "context=20", "tied=no"], 2, (1, 1, 17), None),
    ("gpt", ["layers=2", "heads=3", "width=24", "context=20"], 2, (1, 1, 20), None),
    ("gpt_tiny", [], 2, (1, 1, 64), lambda n: GPT(n, 4, 128, 4, 64)),
    ("gpt2", [], 2, (1, 1, 24), lambda n: GPT(n, 12, 768, 12, 1024)),
    ("gpt", ["layers=2", "heads=16", "width=1024", "context=8"], 1, (1, 1, 8), None),
    ("gpt", ["layers=2", "heads=20", "width=1280", "context=8"], 1, (1, 1, 8), None),
    ("gpt", ["layers=2", "heads=25", "width=1600", "context=8"], 1, (1, 1, 8), None),
    ("vit", ["layers=2"], 2, (3, 48, 32), None),
    ("vit_ti16", [], 2, (3, 64, 64), None),
    ("vit_b32", [], 2, (3, 64, 64), None),
    ("vit_s16", [], 2, (3, 64, 64), lambda n: ViT(n, 384, 6)),
    ("vit_b16", [], 2, (3, 64, 64), lambda n: ViT(n, 768, 12)),
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
        self.logits = self.array("logits").view(self.batch, self.nclass, -1)
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


def attention(x, node):
    """Queries, keys and values of all heads lie one after the other."""
    n, channels, _, length = x.shape
    q, k, v = x.view(n, 3, node["heads"], channels // 3 // node["heads"], length).mT.unbind(1)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=node["causal"])
    return y.mT.reshape(n, channels // 3, 1, length)


def run_node(dump, index, x, weight, bias, statistics):
    node = dump.nodes[index]
    match node["op"]:
        case "input":
            return dump.input
        case "convolution":
            if node["tied"]:
                weight = weight[:, :, None, None]
            return F.conv2d(F.pad(x[0], node["pad"]), weight, bias, node["stride"],
                            groups=node["groups"])
        case "batch-norm":
            return batch_norm(x[0], weight, bias, node, statistics)
        case "relu":
            return F.relu(x[0])
        case "max pool":
            padded = F.pad(x[0], node["pad"], value=-torch.inf)
            return F.max_pool2d(padded, node["kernel"], node["stride"])
        case "mean pool":
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
        case "embedding":
            return F.embedding(x[0].long().flatten(1), weight).mT[:, :, None]
        case "layer-norm":
            y = F.layer_norm(x[0].movedim(1, -1), x[0].shape[1:2], weight, bias, node["epsilon"])
            return y.movedim(-1, 1)
        case "gelu":
            return F.gelu(x[0], approximate="tanh" if node["tanh"] else "none")
        case "attention":
            return attention(x[0], node)
        case "positions":
            return x[0] + weight[: x[0][0, 0].numel()].T.reshape(x[0].shape[1:])
        case "prepend":
            token = weight[None, :, None].expand(len(x[0]), -1, 1)
            return torch.cat([token, x[0].flatten(2)], 2)[:, :, None]
        case "softmax loss":
            logits = x[0].flatten(2)
            return F.cross_entropy(logits, dump.labels.view(len(logits), -1))
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


def compare_graph(dump):
    loss, gradients, statistics = run_graph(dump)
    worst = Worst(TOLERANCE)
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
    worst = Worst(TOLERANCE)
    worst.see("logits", dump.logits, module(dump.input).detach().view_as(dump.logits))
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


class Count:
    """Runs comparisons, prints a line each and counts how they end."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def fail(self, label, why):
        print(f"{label}: FAILED: {why}", flush=True)
        self.failed += 1

    def skip(self, label, why):
        print(f"{label}: skipped: {why}", flush=True)
        self.skipped += 1

    def run(self, label, comparisons):
        try:
            for what, compare in comparisons:
                print(f"{label}, {what}: {compare()}", flush=True)
                self.passed += 1
        except (ValueError, KeyError, OSError, RuntimeError, SafetensorError,
                subprocess.CalledProcessError) as error:
            self.fail(label, error)


def main():
    build, wanted = pathlib.Path(sys.argv[1]), sys.argv[2:]
    work, dump_program = build / "pytorch", build / "pytorch" / "dump"
    listed = subprocess.run([dump_program, "--list"], check=True, capture_output=True, text=True)
    there = listed.stdout.split()
    # profile computes nothing; of the larger GPTs, whose copies memory does not hold, two blocks.
    known = {case[0] for case in CASES} | {"powersgd", "text", "profile", "gpt2_medium", "gpt2_large",
                                           "gpt2_xl"}
    count = Count()
    for model in sorted(set(there) - known) + sorted(set(wanted) - known):
        count.fail(model, "no case in tests/pytorch/compare.py")
    for case in CASES:
        if not wanted or case[0] in wanted:
            count.run(" ".join([case[0]] + case[1]), run_case(dump_program, work, *case))
    for case in continuation.CASES:
        device = continuation.DEVICES[case.precision]
        if wanted and case.model not in wanted:
            continue
        if not (build / "plugins" / f"device_{device}.so").exists():
            count.skip(case.label(), f"this build has no device '{device}'")
        else:
            count.run(case.label(), continuation.run_case(build, case))
    if not wanted or "text" in wanted:
        count.run("gpt_tiny on text", text.run_case(build))
    for rank, n_workers in powersgd.CASES:
        if not wanted or "powersgd" in wanted:
            count.run(f"powersgd, rank {rank}, {n_workers} workers",
                      powersgd.run_case(build, rank, n_workers))
    if not wanted or "gpt2" in wanted:
        count.run("gpt2, as published", published.run_case(build))
    print(f"{count.passed} passed, {count.failed} failed, {count.skipped} skipped")
    return 1 if count.failed else 0


if __name__ == "__main__":
    sys.exit(main())
