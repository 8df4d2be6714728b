"""Trainings that dpbench and PyTorch continue for each other, through checkpoints in safetensors.

Each case is one training of some steps, done three times: by dpbench alone; begun by dpbench, ended
by PyTorch; begun by PyTorch (with weights of its own), ended by dpbench. All go through the same
samples (batches.c): losses, weights, statistics and optimizer state must be the same. PyTorch is
used as its users use it, but for the precision.
"""

import json
import pathlib
import shutil
import subprocess
from typing import NamedTuple

import torch
import torch.nn.functional as F
from networks import GPT, LeNet, ResNet20
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from worst import Worst

STEPS, STOP = 7, 4  # of the whole training; where it changes hands
SAMPLES = 43  # of the data: the training goes through several epochs, each with some left over


class Case(NamedTuple):
    model: str
    make: type
    precision: str
    settings: str

    def label(self):
        return f"{self.model}, {self.precision}, {self.settings}"


def gpt_tiny(nclass):
    return GPT(nclass, layers=4, width=128, heads=4, context=64)


DEVICES = {"fp64": "reference", "fp32": "cpu"}
DTYPES = {"fp64": torch.double, "fp32": torch.float}
TOLERANCE = {"fp64": 1e-9, "fp32": 1e-4}  # of each loss; in fp64, of each tensor's largest element

BASE = ["run.warmup_steps=0", "run.steady_limit_s=0", "device.threads=1", "data.name=synthetic",
        f"data.samples={SAMPLES}", "optimizer.learning_rate=0.05", "optimizer.weight_decay=0.001"]

CASES = [
    Case("lenet", LeNet, "fp64", "run.batch=3 run.workers=2 run.accumulate=2 comm.name=shm"),
    Case("lenet", LeNet, "fp64", "run.batch=8 optimizer.nesterov=yes"),
    Case("lenet", LeNet, "fp64", "run.batch=8 optimizer.momentum=0"),
    Case("lenet", LeNet, "fp64", "run.batch=8 model.label_smoothing=0.1"),
    Case("lenet", LeNet, "fp64", "run.batch=8 optimizer.name=adagrad optimizer.learning_rate=0.01"),
    Case("lenet", LeNet, "fp64", "run.batch=8 optimizer.name=adam optimizer.learning_rate=0.001"),
    Case("lenet", LeNet, "fp64", "run.batch=8 optimizer.name=adamw optimizer.learning_rate=0.001"),
    Case("lenet", LeNet, "fp64", "run.batch=8 optimizer.name=rmsprop optimizer.learning_rate=0.01"),
    Case("lenet", LeNet, "fp64", "run.batch=8 optimizer.name=rmsprop optimizer.learning_rate=0.001 "
                                 "optimizer.rms_decay=0.7 optimizer.momentum=0 optimizer.epsilon=0.01"),
    Case("resnet20", ResNet20, "fp64", "run.batch=8 optimizer.name=lamb optimizer.learning_rate=0.01"),
    Case("lenet", LeNet, "fp64", "run.batch=3 run.workers=2 comm.name=shm optimizer.name=lamb "
                                 "optimizer.learning_rate=0.01 optimizer.beta1=0.8 "
                                 "optimizer.beta2=0.95"),
    Case("lenet", LeNet, "fp64", "run.batch=8 optimizer.clip_norm=0.5"),
    Case("lenet", LeNet, "fp64", "run.batch=8 optimizer.clip_norm=50"),
    Case("lenet", LeNet, "fp64", "run.batch=3 run.workers=2 comm.name=ring_tcp optimizer.name=adam "
                                 "optimizer.learning_rate=0.001 optimizer.clip_norm=0.5"),
    Case("resnet20", ResNet20, "fp64", "run.batch=8 optimizer.name=lars optimizer.trust=0.02"),
    Case("lenet", LeNet, "fp64", "run.batch=3 run.workers=2 comm.name=shm optimizer.name=lars "
                                 "optimizer.clip_norm=0.5"),
    Case("resnet20", ResNet20, "fp64", "run.batch=8"),
    Case("gpt_tiny", gpt_tiny, "fp64", "run.batch=3 run.workers=2 comm.name=shm optimizer.name=adamw "
                                       "optimizer.learning_rate=0.001"),
    Case("lenet", LeNet, "fp32", "run.batch=8"),
    # A ReLU whose input is all but 0 may go either way: the steps must be small.
    Case("resnet20", ResNet20, "fp32", "run.batch=8 optimizer.learning_rate=0.0005"),
]

# ------------------------------------------------------------------------------------- dpbench's


class Workplace:
    """The programs, and a directory for a case's files."""

    def __init__(self, build, case):
        self.build = build
        self.directory = build / "pytorch" / "continuation"
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        (self.directory / "empty.ini").touch()
        self.settings = [*BASE, f"run.results={self.directory / 'results'}",
                         f"model.name={case.model}", f"run.precision={case.precision}",
                         f"device.name={DEVICES[case.precision]}", *case.settings.split()]

    def path(self, name):
        return str(self.directory / name)

    def run(self, *command):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ValueError(f"{pathlib.Path(command[0]).name}: exit {done.returncode}: "
                             f"{done.stderr.strip()}")
        return done.stdout

    def dpbench(self, steps, *settings):
        text = self.run(str(self.build / "dpbench"), "-c", self.path("empty.ini"), "--json",
                        *self.settings, f"run.steps={steps}", *settings)
        return json.loads(text)

    def batches(self, steps=STEPS):
        self.run(str(self.build / "pytorch" / "batches"), str(self.directory), str(steps),
                 *self.settings, f"run.steps={steps}")
        return Batches(self.directory, steps)


class Batches:
    """What batches.c wrote: input and labels by step and micro-batch."""

    def __init__(self, directory, steps):
        about = json.loads((directory / "batches.json").read_text())
        self.nclass, self.micro_batches = about["nclass"], about["micro_batches"]
        self.global_batch = about["batch"] * self.micro_batches
        split = [steps, self.micro_batches, about["batch"]]
        raw = self.read(directory / "samples", getattr(torch, about["type"])).view(split + about["shape"])
        labels = self.read(directory / "labels", torch.int32).long()
        if about["type"] == "int32":  # ids of tokens, with a label for each
            self.input, self.labels = raw, labels.view(split + [-1])
            return
        scale, offset = (torch.tensor(about[k], dtype=torch.double)[:, None, None]
                         for k in ("scale", "offset"))
        self.input, self.labels = raw.double() * scale + offset, labels.view(split)

    def read(self, path, dtype):
        n = path.stat().st_size // dtype.itemsize
        return torch.from_file(str(path), shared=False, size=n, dtype=dtype)


# ------------------------------------------------------------------------------------- PyTorch's


class Lars(torch.optim.Optimizer):
    """You, Gitman, Ginsburg 2017, Algorithm 1; PyTorch has none."""

    def __init__(self, groups, rate, momentum, trust):
        super().__init__(groups, {"rate": rate, "momentum": momentum, "trust": trust})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                local, decay = 1.0, group["weight_decay"]
                if decay and p.norm() > 0 and p.grad.norm() > 0:
                    local = group["trust"] * p.norm() / (p.grad.norm() + decay * p.norm())
                velocity = self.state[p].setdefault("velocity", torch.zeros_like(p))
                velocity.mul_(group["momentum"]).add_(group["rate"] * local * (p.grad + decay * p))
                p.sub_(velocity)


class RmsProp(torch.optim.Optimizer):
    """Tieleman, Hinton 2012 in TensorFlow's form: the mean square begins at 1, epsilon is inside the
    root, and the rate is in the velocity. PyTorch's is another."""

    def __init__(self, groups, rate, kept, momentum, epsilon):
        super().__init__(groups, {"rate": rate, "kept": kept, "momentum": momentum,
                                  "epsilon": epsilon})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                square = self.state[p].setdefault("square_avg", torch.ones_like(p))
                velocity = self.state[p].setdefault("velocity", torch.zeros_like(p))
                g = p.grad + group["weight_decay"] * p
                square.mul_(group["kept"]).add_((1 - group["kept"]) * g * g)
                way = group["rate"] * g / (square + group["epsilon"]).sqrt()
                velocity.mul_(group["momentum"]).add_(way)
                p.sub_(velocity)


class Lamb(torch.optim.Optimizer):
    """You et al. 2020, Algorithm 2, but tensors without decay go Adam's way as it is, as BERT's do.
    PyTorch has none."""

    def __init__(self, groups, rate, betas, epsilon):
        super().__init__(groups, {"rate": rate, "betas": betas, "epsilon": epsilon})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                state, decay, ratio = self.state[p], group["weight_decay"], 1.0
                first = state.setdefault("exp_avg", torch.zeros_like(p))
                second = state.setdefault("exp_avg_sq", torch.zeros_like(p))
                t = state["step"] = int(state.get("step", 0)) + 1
                first.mul_(beta1).add_((1 - beta1) * p.grad)
                second.mul_(beta2).add_((1 - beta2) * p.grad * p.grad)
                root = (second / (1 - beta2**t)).sqrt() + group["epsilon"]
                way = first / (1 - beta1**t) / root + decay * p
                if decay and p.norm() > 0 and way.norm() > 0:
                    ratio = p.norm() / way.norm()
                p.sub_(group["rate"] * ratio * way)


class Training:
    """A training in PyTorch with the settings of a dpbench result."""

    def __init__(self, case, config, batches):
        self.batches, self.step = batches, 0
        self.dtype = DTYPES[case.precision]
        self.smoothing = config["model.label_smoothing"]
        self.clip_norm = config["optimizer.clip_norm"]
        torch.manual_seed(1)
        self.module = case.make(batches.nclass).to(self.dtype).train()
        parameters = dict(self.module.named_parameters())
        decaying = [p for p in parameters.values() if p.dim() > 1]
        others = [p for p in parameters.values() if p.dim() == 1]
        groups = [{"params": decaying, "weight_decay": config["optimizer.weight_decay"]},
                  {"params": others, "weight_decay": 0}]
        rate, momentum = config["optimizer.learning_rate"], config["optimizer.momentum"]
        betas = config["optimizer.beta1"], config["optimizer.beta2"]
        epsilon = config["optimizer.epsilon"]
        if config["optimizer.name"] in ("adam", "adamw", "lamb"):
            self.buffers_of = ["exp_avg", "exp_avg_sq"]
            make = (Lamb if config["optimizer.name"] == "lamb" else torch.optim.AdamW
                    if config["optimizer.decoupled_decay"] else torch.optim.Adam)
            self.optimizer = make(groups, rate, betas, epsilon)
        elif config["optimizer.name"] == "rmsprop":
            self.buffers_of = ["square_avg", "velocity"]
            self.optimizer = RmsProp(groups, rate, config["optimizer.rms_decay"], momentum, epsilon)
        elif config["optimizer.name"] == "adagrad":
            self.buffers_of = ["sum"]
            self.optimizer = torch.optim.Adagrad(groups, rate, eps=epsilon)
        elif config["optimizer.name"] == "lars":
            self.buffers_of = ["velocity"]
            self.optimizer = Lars(groups, rate, momentum, config["optimizer.trust"])
        else:
            self.buffers_of = ["momentum_buffer"] if momentum else []
            self.optimizer = torch.optim.SGD(groups, rate, momentum,
                                             nesterov=config["optimizer.nesterov"])

    def train(self, to):
        return [self.train_step() for _ in range(self.step, to)]

    def train_step(self):
        """The loss of the step, mean over its micro-batches."""
        self.optimizer.zero_grad()
        n, total = self.batches.micro_batches, 0
        for x, labels in zip(self.batches.input[self.step], self.batches.labels[self.step]):
            loss = F.cross_entropy(self.module(x.to(self.dtype)), labels,
                                   label_smoothing=self.smoothing)
            (loss / n).backward()
            total += loss.item() / n
        if self.clip_norm:
            torch.nn.utils.clip_grad_norm_(self.module.parameters(), self.clip_norm)
        self.optimizer.step()
        self.step += 1
        return total

    def buffers(self):
        """Optimizer state as it is called in a checkpoint."""
        return {f"optimizer.{buffer}.{name}": self.optimizer.state[p][buffer]
                for name, p in self.module.named_parameters() for buffer in self.buffers_of}

    def load(self, path):
        tensors = load_file(path)
        self.module.load_state_dict({name: tensor for name, tensor in tensors.items()
                                     if not name.startswith("optimizer.")})
        with safe_open(path, "pt") as file:
            self.step = int(file.metadata()["dpbench.step"])
        for name, p in self.module.named_parameters():
            for buffer in self.buffers_of:
                self.optimizer.state[p][buffer] = tensors[f"optimizer.{buffer}.{name}"]
            if "exp_avg" in self.buffers_of:
                self.optimizer.state[p]["step"] = torch.tensor(float(self.step))

    def save(self, path):
        save_file(self.module.state_dict() | self.buffers(), path,
                  progress(self.step, self.batches))


def progress(step, batches):
    """How far a training has come, as metadata of its checkpoint."""
    epoch, step_of_epoch = divmod(step, SAMPLES // batches.global_batch)
    return {"dpbench.step": str(step), "dpbench.samples": str(step * batches.global_batch),
            "dpbench.epoch": str(epoch),
            "dpbench.position": str(step_of_epoch * batches.global_batch)}


# ------------------------------------------------------------------------------------ comparison


def expect(what, found, wanted):
    if found != wanted:
        raise ValueError(f"{what}: {found}, not {wanted}")


def compare_contents(place, training, whole):
    """By the package's own reader, the file in the middle has what it should: no more, no less."""
    wanted = {name: list(tensor.shape) for name, tensor in training.module.state_dict().items()
              if not name.endswith(".num_batches_tracked")}
    wanted |= {f"optimizer.{buffer}.{name}": list(p.shape)
               for name, p in training.module.named_parameters() for buffer in training.buffers_of}
    dtype = {torch.double: "F64", torch.float: "F32"}[training.dtype]
    with safe_open(place.path(f"whole-step{STOP}.safetensors"), "pt") as file:
        expect("tensors too many or missing", sorted(set(file.keys()) ^ wanted.keys()), [])
        for name, shape in wanted.items():
            tensor = file.get_slice(name)
            expect(name, (tensor.get_shape(), tensor.get_dtype()), (shape, dtype))
        metadata = file.metadata()
    expect("trained_ns > 0", int(metadata.pop("dpbench.trained_ns")) > 0, True)
    about = {"dpbench.version": whole["versions"]["dpbench"],
             "dpbench.model": whole["model"]["name"], "dpbench.seed": "1"}
    expect("metadata", metadata, progress(STOP, training.batches) | about)
    return f"{len(wanted)} tensors"


def compare_training(case, losses, training, theirs, path):
    """`losses` and the checkpoint at `path` are dpbench's."""
    expect("number of losses", len(losses), len(theirs))
    worst = Worst(TOLERANCE[case.precision])
    first = training.step - len(theirs)
    for i, (a, b) in enumerate(zip(losses, theirs)):
        worst.see(f"loss of step {first + i}", torch.tensor(a, dtype=torch.double),
                  torch.tensor(b, dtype=torch.double))
    verdict = worst.check()
    if case.precision == "fp64":
        worst = Worst(TOLERANCE[case.precision])
        wanted = training.module.state_dict() | training.buffers()
        for name, tensor in load_file(path).items():
            worst.see(name, tensor, wanted[name].detach())
        verdict += f", {worst.check()}"
    return verdict


def compare_start(result, step):
    """dpbench went on where the file says, and had nothing to say about its tensors."""
    expect("first step", result["timing"]["first_step"], step)
    codes = [warning["code"] for warning in result["warnings"]]
    expect("warnings of the checkpoint", [c for c in codes if c.startswith("checkpoint")], [])


def settings_of(result):
    return {f"{section}.{key}": setting["value"] for section, keys in result["config"].items()
            for key, setting in keys.items()}


def pytorch_continues(case, training, whole, place):
    """From dpbench's checkpoint."""
    training.load(place.path(f"whole-step{STOP}.safetensors"))
    theirs = training.train(STEPS)
    return compare_training(case, whole["loss"][STOP:], training, theirs,
                            place.path("whole.safetensors"))


def save_pytorch(training, place):
    """A training by PyTorch, saved at its begin (weights alone, as its users do) and in the middle;
    the losses of all steps."""
    with torch.no_grad():
        for buffer in training.module.buffers():
            if buffer.is_floating_point():
                buffer.uniform_(0.5, 2)
    save_file(training.module.state_dict(), place.path("from0.safetensors"), {"format": "pt"})
    losses = training.train(STOP)
    training.save(place.path(f"from{STOP}.safetensors"))
    return losses + training.train(STEPS)


def dpbench_continues(case, training, losses, place, step):
    """From PyTorch's file of that step."""
    end = place.path("end.safetensors")
    result = place.dpbench(STEPS - step, f"checkpoint.load={place.path(f'from{step}.safetensors')}",
                           f"checkpoint.save={end}")
    compare_start(result, step)
    return compare_training(case, result["loss"], training, losses[step:], end)


def run_case(build, case):
    """Yields (what, function to compare)."""
    place = Workplace(build, case)
    try:
        batches = place.batches()
        whole = place.dpbench(STEPS, f"checkpoint.save={place.path('whole.safetensors')}",
                              f"checkpoint.at={STOP}")
        ours, theirs = (Training(case, settings_of(whole), batches) for _ in "12")
        yield "contents of the file", lambda: compare_contents(place, ours, whole)
        yield "PyTorch continues", lambda: pytorch_continues(case, ours, whole, place)
        losses = save_pytorch(theirs, place)
        yield "dpbench continues", lambda: dpbench_continues(case, theirs, losses, place, STOP)
        yield "dpbench begins", lambda: dpbench_continues(case, theirs, losses, place, 0)
    finally:
        shutil.rmtree(place.directory)
