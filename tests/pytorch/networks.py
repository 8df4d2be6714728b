"""Networks written by hand from the papers, with the names and shapes of dpbench's."""

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
