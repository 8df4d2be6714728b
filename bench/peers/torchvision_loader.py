"""torchvision's way from a folder of photographs to batches, as PyTorch's ImageNet example trains:
ImageFolder, RandomResizedCrop(224), a flip, a DataLoader with so many worker processes. Samples
stay bytes, as dpbench's do (normalising is the device's).

    torchvision_loader.py WORKERS DIRECTORY      prints {"samples_per_s": ..., "versions": {...}}
"""

import json
import statistics
import sys
import time

import PIL
import torch
import torchvision
from torchvision import transforms

BATCH = 32
WINDOWS = 5


def main():
    workers, directory = int(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    photos = torchvision.datasets.ImageFolder(directory, transforms.Compose([
        transforms.RandomResizedCrop(224),
        transforms.RandomHorizontalFlip(),
        transforms.PILToTensor(),
    ]))
    # All windows and a first one that is not timed in one pass: the workers never run dry.
    window = -(-len(photos) // BATCH) * max(1, workers // 2)
    samples = BATCH * window * (WINDOWS + 1)
    many = torch.utils.data.ConcatDataset([photos] * -(-samples // len(photos)))
    loader = torch.utils.data.DataLoader(many, batch_size=BATCH, shuffle=True, drop_last=True,
                                         num_workers=workers)
    marks = []
    for number, _batch in enumerate(loader, start=1):
        if number % window == 0:
            marks.append(time.monotonic())
    rates = [BATCH * window / (end - begin) for begin, end in zip(marks, marks[1:])]
    print(json.dumps({"samples_per_s": statistics.median(rates), "samples": len(photos),
                      "workers": workers,
                      "versions": {"torchvision": torchvision.__version__,
                                   "torch": torch.__version__, "pillow": PIL.__version__}}))


if __name__ == "__main__":
    main()
