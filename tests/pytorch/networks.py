"""Networks written by hand from the papers, with the names and shapes of dpbench's."""

import torch
import torch.nn.functional as F
from torch import nn


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
    def __init__(self, channels_in, width, out, stride, version, groups=1):
        super().__init__()
        first, second = (stride, 1) if version == "v1" else (1, stride)
        self.conv1 = nn.Conv2d(channels_in, width, 1, first, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, second, padding=1, groups=groups, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out)
        if stride != 1 or channels_in != out:
            projection = nn.Conv2d(channels_in, out, 1, stride, bias=False)
            self.downsample = nn.Sequential(projection, nn.BatchNorm2d(out))
        else:
            self.downsample = nn.Identity()

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.downsample(x) + self.bn3(self.conv3(y)))


class PreactivationBottleneck(nn.Module):
    """ResNet v2: the projection reads the block's input after batch-norm and ReLU."""

    def __init__(self, channels_in, width, out, stride):
        super().__init__()
        self.bn0 = nn.BatchNorm2d(channels_in)
        self.conv1 = nn.Conv2d(channels_in, width, 1, stride, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, out, 1, bias=False)
        self.downsample = None
        if stride != 1 or channels_in != out:
            projection = nn.Conv2d(channels_in, out, 1, stride, bias=False)
            self.downsample = nn.Sequential(projection)

    def forward(self, x):
        y = F.relu(self.bn0(x))
        x = self.downsample(y) if self.downsample else x
        y = F.relu(self.bn1(self.conv1(y)))
        y = F.relu(self.bn2(self.conv2(y)))
        return x + self.conv3(y)


class ResNet50(nn.Module):
    def __init__(self, nclass, version, width=64, groups=1):
        super().__init__()
        self.version, self.groups = version, groups
        self.conv1 = nn.Conv2d(3, 64, 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = self.stage(64, width, 256, 3, 1)
        self.layer2 = self.stage(256, 2 * width, 512, 4, 2)
        self.layer3 = self.stage(512, 4 * width, 1024, 6, 2)
        self.layer4 = self.stage(1024, 8 * width, 2048, 3, 2)
        self.bn5 = nn.BatchNorm2d(2048) if version == "v2" else None
        self.fc = nn.Linear(2048, nclass)

    def stage(self, channels_in, width, out, n_blocks, stride):
        blocks = []
        for i in range(n_blocks):
            args = (channels_in if i == 0 else out, width, out, stride if i == 0 else 1)
            v2 = self.version == "v2"
            blocks.append(PreactivationBottleneck(*args) if v2
                          else Bottleneck(*args, self.version, self.groups))
        return nn.Sequential(*blocks)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, padding=1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        x = F.relu(self.bn5(x)) if self.bn5 else x
        return self.fc(x.mean((2, 3)))


class ResNeXt50(ResNet50):
    def __init__(self, nclass):
        super().__init__(nclass, "v1.5", width=128, groups=32)


class Separable(nn.Module):
    """MobileNet's block: each channel alone, then all of a pixel; strides are padded (0,1)."""

    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.padding = (1, 1, 1, 1) if stride == 1 else (0, 1, 0, 1)
        self.conv1 = nn.Conv2d(channels_in, channels_in, 3, stride, groups=channels_in, bias=False)
        self.bn1 = nn.BatchNorm2d(channels_in)
        self.conv2 = nn.Conv2d(channels_in, channels, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(F.pad(x, self.padding))))
        return F.relu(self.bn2(self.conv2(x)))


class MobileNet(nn.Module):
    def __init__(self, nclass):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, 3, 2, bias=False)
        self.bn1 = nn.BatchNorm2d(32)
        widths = [32, 64, 128, 128, 256, 256, 512, 512, 512, 512, 512, 512, 1024, 1024]
        strides = [1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1]
        self.blocks = []
        for i, stride in enumerate(strides):
            self.blocks.append(Separable(widths[i], widths[i + 1], stride))
            self.add_module(f"block{i + 1}", self.blocks[i])
        self.fc = nn.Linear(1024, nclass)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(F.pad(x, (0, 1, 0, 1)))))
        for block in self.blocks:
            x = block(x)
        return self.fc(x.mean((2, 3)))


class Token(nn.Module):
    def __init__(self, *shape):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(shape))


class TransformerBlock(nn.Module):
    """Positions stay pixels {width, 1, length}, as dpbench has them."""

    def __init__(self, width, heads, causal=False):
        super().__init__()
        self.heads, self.causal = heads, causal
        epsilon = 1e-5 if causal else 1e-6
        self.norm1 = nn.LayerNorm(width, eps=epsilon)
        self.qkv = nn.Conv2d(width, 3 * width, 1)
        self.projection = nn.Conv2d(width, width, 1)
        self.norm2 = nn.LayerNorm(width, eps=epsilon)
        self.fc1 = nn.Conv2d(width, 4 * width, 1)
        self.fc2 = nn.Conv2d(4 * width, width, 1)

    @staticmethod
    def over_channels(norm, x):
        return norm(x.movedim(1, -1)).movedim(-1, 1)

    def forward(self, x):
        n, width, _, length = x.shape
        y = self.qkv(self.over_channels(self.norm1, x))
        q, k, v = y.view(n, 3, self.heads, width // self.heads, length).mT.unbind(1)
        scores = q @ k.mT / (width // self.heads) ** 0.5
        if self.causal:
            scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -torch.inf)
        y = scores.softmax(-1) @ v
        x = x + self.projection(y.mT.reshape(n, width, 1, length))
        y = self.fc1(self.over_channels(self.norm2, x))
        return x + self.fc2(F.gelu(y, approximate="tanh" if self.causal else "none"))


class ViT(nn.Module):
    """For images of 64x64, which have 16 patches."""

    def __init__(self, nclass, width, heads):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.add_module("class", Token(width))
        self.positions = Token(17, width)
        for i in range(1, 13):
            self.add_module(f"block{i}", TransformerBlock(width, heads))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, nclass)

    def forward(self, x):
        x = self.patches(x).flatten(2)
        token = getattr(self, "class").weight[None, :, None].expand(len(x), -1, 1)
        x = torch.cat([token, x], 2) + self.positions.weight.T
        x = x[:, :, None]
        for i in range(1, 13):
            x = getattr(self, f"block{i}")(x)
        return self.head(self.norm(x[:, :, 0, 0]))


class GPT(nn.Module):
    """GPT-2: the classifier has the embedding's weight."""

    def __init__(self, nclass, layers, width, heads, context):
        super().__init__()
        self.layers = layers
        self.tokens = nn.Embedding(nclass, width)
        self.positions = Token(context, width)
        for i in range(1, layers + 1):
            self.add_module(f"block{i}", TransformerBlock(width, heads, causal=True))
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        ids = x.long().flatten(1)
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        x = x.mT[:, :, None]
        for i in range(1, self.layers + 1):
            x = getattr(self, f"block{i}")(x)
        x = self.norm(x.flatten(2).mT)
        return (x @ self.tokens.weight.T).mT


class Conv1D(nn.Module):
    """A dense layer whose weight is [in, out]."""

    def __init__(self, channels_in, channels):
        super().__init__()
        self.weight = nn.Parameter(0.2 * torch.randn(channels_in, channels))
        self.bias = nn.Parameter(0.2 * torch.randn(channels))

    def forward(self, x):
        return x @ self.weight + self.bias


class PublishedBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(width)
        self.attn = nn.ModuleDict({"c_attn": Conv1D(width, 3 * width),
                                   "c_proj": Conv1D(width, width)})
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.ModuleDict({"c_fc": Conv1D(width, 4 * width),
                                  "c_proj": Conv1D(4 * width, width)})

    def forward(self, x):
        n, length, width = x.shape
        y = self.attn["c_attn"](self.ln_1(x)).view(n, length, 3, self.heads, width // self.heads)
        q, k, v = y.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn["c_proj"](y.transpose(1, 2).reshape(n, length, width))
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh"))


class PublishedGPT2(nn.Module):
    """GPT-2 with the names and dimensions that Hugging Face's files have."""

    def __init__(self, nclass, layers, width, heads, context):
        super().__init__()
        self.wte = nn.Embedding(nclass, width)
        self.wpe = nn.Embedding(context, width)
        self.h = nn.ModuleList([PublishedBlock(width, heads) for _ in range(layers)])
        self.ln_f = nn.LayerNorm(width)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe.weight[: ids.shape[1]]
        for block in self.h:
            x = block(x)
        return self.ln_f(x) @ self.wte.weight.T
