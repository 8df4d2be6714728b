"""What torch_train.py, torch_ddp.py and torch_gpu.py share: dpbench's networks in PyTorch, a training
step as PyTorch's guides recommend it, and its time.

A network has exactly as many parameters as dpbench's of that name (`make bench` compares), shapes
of every layer and dropout are the same. Data are one batch of random numbers in memory.
"""

import json
import resource
import statistics
import sys
import time
import warnings

warnings.filterwarnings("ignore")

import torch  # noqa: E402
import torchvision  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

WARM_UP = 2    # steps
MIN_STEPS = 3  # timed, however long they take
NCLASS = 1000  # of ImageNet
VOCABULARY, WINDOW = 50257, 256  # GPT-2's, and the length of its sequences


# ---- networks ---------------------------------------------------------------------------------


def alexnet():
    """In one tower, as in "One weird trick", with 384 channels in the fourth convolution."""
    features = nn.Sequential(
        nn.Conv2d(3, 64, 11, 4), nn.ReLU(True), nn.MaxPool2d(3, 2),
        nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(True), nn.MaxPool2d(3, 2),
        nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(True),
        nn.Conv2d(384, 384, 3, padding=1), nn.ReLU(True),
        nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(True), nn.MaxPool2d(3, 2))
    return nn.Sequential(
        features, nn.Flatten(),
        nn.Linear(256 * 6 * 6, 4096), nn.ReLU(True), nn.Dropout(0.5),
        nn.Linear(4096, 4096), nn.ReLU(True), nn.Dropout(0.5),
        nn.Linear(4096, NCLASS))


class BasicBlock(nn.Module):
    """Shortcuts without parameters: every second pixel, and channels of zeros."""

    def __init__(self, channels_in, channels):
        super().__init__()
        self.stride = 1 if channels == channels_in else 2
        self.new_channels = channels - channels_in
        self.conv1 = nn.Conv2d(channels_in, channels, 3, self.stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        if self.stride == 2:
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, self.new_channels))
        return F.relu(y + x, inplace=True)


def resnet110():
    """For images of CIFAR-10."""
    layers = [nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(True)]
    widths = [16] * 18 + [32] * 18 + [64] * 18
    layers += [BasicBlock(a, b) for a, b in zip([16] + widths, widths)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def inception3():
    """Batch-norm has no gamma: it stays at 1. No auxiliary head."""
    model = torchvision.models.inception_v3(aux_logits=False, init_weights=True)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.weight.requires_grad_(False)
    return model


def mobilenet_v1():
    """A depthwise convolution is one with a group a channel."""
    def convolution(channels_in, channels, size, stride, groups=1):
        return [nn.Conv2d(channels_in, channels, size, stride, size // 2, groups=groups,
                          bias=False), nn.BatchNorm2d(channels), nn.ReLU(True)]

    layers = convolution(3, 32, 3, 2)
    widths = [32, 64, 128, 128, 256, 256, 512, 512, 512, 512, 512, 512, 1024, 1024]
    for i, (a, b) in enumerate(zip(widths, widths[1:])):
        layers += convolution(a, a, 3, 2 if i in (1, 3, 5, 11) else 1, groups=a)
        layers += convolution(a, b, 1, 1)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, NCLASS))


class Block(nn.Module):
    """GPT-2's, with PyTorch's own attention."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(n, length, 3, self.heads, width // self.heads)
        y = F.scaled_dot_product_attention(*qkv.permute(2, 0, 3, 1, 4), is_causal=True)
        x = x + self.projection(y.transpose(1, 2).reshape(n, length, width))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x)), approximate="tanh"))


class GPT2(nn.Module):
    """The classifier has the embedding's weight. Logits are {n, classes, length}."""

    def __init__(self, context=WINDOW, width=768, heads=12, layers=12):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Parameter(torch.randn(context, width) * 0.01)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, ids):
        x = self.norm(self.blocks(self.tokens(ids) + self.positions))
        return F.linear(x, self.tokens.weight).transpose(1, 2)


# Network and size of its images.
NETWORKS = {
    "alexnet": (alexnet, 227),
    "inception3": (inception3, 299),
    "resnet50": (torchvision.models.resnet50, 224),
    "mobilenet_v1": (mobilenet_v1, 224),
    "resnet110": (resnet110, 32),
    "resnext50_32x4d": (torchvision.models.resnext50_32x4d, 224),
    "gpt2": (GPT2, None),
    "vit_b16": (torchvision.models.vit_b_16, 224),
    "vgg11": (torchvision.models.vgg11, 224),
    "vgg16": (torchvision.models.vgg16, 224),
}


def network(name, device="cpu"):
    torch.manual_seed(1)
    make, _ = NETWORKS[name]
    return make().train().to(device, memory_format=torch.channels_last)


def n_parameters(model):
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def random_batch(name, batch, device="cpu"):
    _, size = NETWORKS[name]
    if size is None:
        ids = torch.randint(VOCABULARY, (batch, WINDOW + 1), device=device)
        return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    nclass = 10 if size == 32 else NCLASS
    images = torch.randn(batch, 3, size, size, device=device)
    labels = torch.randint(nclass, (batch,), device=device)
    return images.contiguous(memory_format=torch.channels_last), labels


# ---- a step -----------------------------------------------------------------------------------


def training_step(forward, model, images, labels, precision):
    """A function that does one step; `forward` is the model, or what it was compiled to."""
    trained = [p for p in model.parameters() if p.requires_grad]
    if any(isinstance(module, nn.LayerNorm) for module in model.modules()):
        optimizer = torch.optim.AdamW(trained, lr=0.001, fused=True)
    else:
        optimizer = torch.optim.SGD(trained, lr=0.001, momentum=0.9, fused=True)
    device = images.device.type
    rounding = {"dtype": torch.bfloat16, "enabled": precision == "bf16"}
    if device == "cuda":
        rounding["cache_enabled"] = False  # a captured step has to round the weights it finds

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, **rounding):
            loss = F.cross_entropy(forward(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    return step


def seconds_of(step, n):
    """Of each of n steps."""
    marks = [time.monotonic()]
    for _ in range(n):
        step()
        marks.append(time.monotonic())
    return [end - begin for begin, end in zip(marks, marks[1:])]


def steps_in(seconds, step_s):
    return max(MIN_STEPS, round(seconds / step_s))


def report(model, samples, step_s, loss, versions=None, **more):
    """Prints the document, a line: the rate is that of the median step."""
    if not torch.isfinite(loss):
        sys.exit("the loss is not finite")
    print(json.dumps({
        "samples_per_s": samples / statistics.median(step_s), "step_s": step_s,
        "parameters": n_parameters(model), "loss": loss.item(),
        "peak_memory_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, **more,
        "versions": {"torch": torch.__version__, "torchvision": torchvision.__version__,
                     **(versions or {})}}), flush=True)
