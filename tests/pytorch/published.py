"""GPT-2's weights as Hugging Face publishes them: PyTorch saves a module of these names, dpbench
loads the file and has PyTorch's loss; dpbench trains and saves in this layout, PyTorch loads."""

import json
import shutil
import subprocess

import torch
import torch.nn.functional as F
from networks import PublishedGPT2
from safetensors.torch import load_file, save_file
from worst import Worst

TOLERANCE = 1e-12
NCLASS, LAYERS, WIDTH, HEADS, CONTEXT, LENGTH, BATCH = 61, 2, 24, 3, 20, 17, 2
TYPES = [(torch.double, ""), (torch.float, "transformer."), (torch.half, "module."),
         (torch.bfloat16, "module.transformer.")]


class Place:
    def __init__(self, build):
        self.dpbench = str(build / "dpbench")
        self.directory = build / "pytorch" / "published"
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        (self.directory / "empty.ini").touch()
        self.ids = torch.randint(NCLASS, (20 * LENGTH + 1,))
        (self.directory / "ids").write_bytes(self.ids.to(torch.int16).numpy().tobytes())

    def path(self, name):
        return str(self.directory / name)

    def run(self, *settings):
        command = [self.dpbench, "-c", self.path("empty.ini"), "--json", "run.results=",
                   "run.warmup_steps=0", "run.steady_limit_s=0", "run.steps=1",
                   "run.precision=fp64", f"run.batch={BATCH}", "device.name=reference",
                   "device.threads=1", "model.name=gpt", f"model.layers={LAYERS}",
                   f"model.width={WIDTH}", f"model.heads={HEADS}", f"model.context={CONTEXT}",
                   "data.name=tokens", "data.type=uint16", f"data.vocabulary={NCLASS}",
                   f"data.length={LENGTH}", f"data.path={self.path('ids')}", "data.shuffle=no",
                   *settings]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ValueError(f"dpbench: exit {done.returncode}: {done.stderr.strip()}")
        return torch.tensor(json.loads(done.stdout)["loss"][0], dtype=torch.double)

    def loss(self, module):
        """Of the first batch."""
        x = self.ids[: BATCH * LENGTH].view(BATCH, LENGTH)
        labels = self.ids[1 : BATCH * LENGTH + 1].view(BATCH, LENGTH)
        with torch.no_grad():
            return F.cross_entropy(module(x).mT, labels)


def make_module(dtype=torch.double):
    torch.manual_seed(1)
    module = PublishedGPT2(NCLASS, LAYERS, WIDTH, HEADS, CONTEXT)
    return module.to(dtype).double()


def compare_loaded(place):
    worst = Worst(TOLERANCE)
    for dtype, prefix in TYPES:
        module = make_module(dtype)
        tensors = {prefix + name: tensor.to(dtype) for name, tensor in module.state_dict().items()}
        for i in range(LAYERS):
            tensors[f"{prefix}h.{i}.attn.bias"] = torch.ones(1, 1, CONTEXT, CONTEXT).tril()
        save_file(tensors, place.path("theirs.safetensors"), {"format": "pt"})
        ours = place.run("run.mode=forward", f"checkpoint.load={place.path('theirs.safetensors')}")
        worst.see(f"loss of {dtype}", ours, place.loss(module))
    return worst.check()


def compare_saved(place):
    module, saved = make_module(), place.path("ours.safetensors")
    save_file(module.state_dict(), place.path("theirs.safetensors"), {"format": "pt"})
    place.run(f"checkpoint.load={place.path('theirs.safetensors')}", f"checkpoint.save={saved}",
              "checkpoint.layout=gpt2", "optimizer.learning_rate=0.1")
    before = place.loss(module)
    module.load_state_dict({name: tensor for name, tensor in load_file(saved).items()
                            if not name.startswith("optimizer.")})
    if place.loss(module) == before:
        raise ValueError("the step changed nothing")
    worst = Worst(TOLERANCE)
    worst.see("loss", place.run("run.mode=forward", f"checkpoint.load={saved}"), place.loss(module))
    return worst.check()


def run_case(build):
    place = Place(build)
    yield "loaded", lambda: compare_loaded(place)
    yield "saved", lambda: compare_saved(place)
    shutil.rmtree(place.directory)
