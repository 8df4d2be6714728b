"""Programs that several parts run: dpbench training, and PyTorch."""

import functools
import os
import shutil
import subprocess
import sysconfig

from compare import Program

DEPS = "run `make bench-deps`"


def dpbench(context, *settings, rate="timing.samples_per_s.median", name="dpbench",
            ini="training.ini"):
    """A run of bench/INI with these settings."""
    return Program(
        name=name,
        command=[context.dpbench, "-c", os.path.join(context.here, ini), "--json",
                 f"run.results={os.path.join(context.bench, 'runs')}", *settings],
        rate=rate,
        versions="versions.plugins.device.libraries",
        needs={os.path.join(context.build, "plugins", "device_cpu.so"):
               "`make` says why it was not built"},
        same="model.parameters")


# Networks of transformers.ini.
TRANSFORMERS = {"gpt2": ["model.name=gpt", "model.context=256"], "vit_b16": ["model.name=vit_b16"]}


def training(context, model, batch, precision, *settings, **more):
    """A run that trains a network of the parts `training` and `scaling`."""
    return dpbench(context, *TRANSFORMERS.get(model, [f"model.name={model}"]), f"run.batch={batch}",
                   f"run.precision={precision}", *settings,
                   ini="transformers.ini" if model in TRANSFORMERS else "training.ini", **more)


def compiled_in(context):
    """Where PyTorch keeps what it compiled and tuned, for later processes and for the next `make bench`."""
    kept = os.path.abspath(os.path.join(context.bench, "inductor"))
    return {"TORCHINDUCTOR_CACHE_DIR": kept, "TRITON_CACHE_DIR": os.path.join(kept, "triton"),
            "TORCHINDUCTOR_FX_GRAPH_CACHE": "1"}


def pytorch(context, script, *arguments, rate="samples_per_s", name="PyTorch", needs=None):
    return Program(
        name=name,
        command=[context.python, os.path.join(context.peers, script), *map(str, arguments)],
        rate=rate,
        versions="versions",
        needs={os.path.join(context.build, "venv", "requirements-peers.txt"): DEPS,
               **(needs or {})},
        environment=compiled_in(context),
        same="parameters")


# ---- on a GPU -----------------------------------------------------------------------------------


@functools.lru_cache(maxsize=None)
def path_for(build):
    """The environment by which a tree that was built elsewhere (tests/gpu/pack) finds its libraries."""
    if not os.path.isdir(os.path.join(build, "gpu-libs")):
        return {}
    finder = os.path.join(os.path.dirname(__file__), "..", "tests", "gpu", "libraries")
    found = subprocess.run([finder, build], capture_output=True, text=True, check=True).stdout.strip()
    return {"LD_LIBRARY_PATH": ":".join(filter(None, [found, os.environ.get("LD_LIBRARY_PATH")]))}


def first_error(command, environment=None, timeout_s=120):
    """What a command says that fails; "": it does not."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s,
                              env={**os.environ, **(environment or {})}, stdin=subprocess.DEVNULL,
                              check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    lines = [line for line in done.stderr.splitlines() if line] or [f"exit {done.returncode}"]
    errors = [line for line in lines if line.startswith("error: ")] or lines[-1:]
    return errors[0].removeprefix("error: ") if done.returncode else ""


def has_option(context, option):
    return not first_error([context.dpbench, "help", option], path_for(context.build))


def dpbench_on_gpu(context, *settings, rate="timing.samples_per_s.median", name="dpbench"):
    """A run of bench/training.ini with these settings on the cuda device; where `dpbench check` does
    not pass them it lacks what that says."""
    settings = ["device.name=cuda", "run.warmup_steps=10",
                f"device.tuning={os.path.abspath(os.path.join(context.bench, 'cuda-tuning'))}",
                *settings]
    program = dpbench(context, *settings, rate=rate, name=name)
    check = [word for word in program.command if word != "--json"]
    program.environment = path_for(context.build)
    program.lacks = first_error([check[0], "check", *check[1:]], program.environment)
    program.needs = {}
    return program


def pythons(context):
    """The build's own, with its PyTorch, and the machine's: one may have a PyTorch for its GPU."""
    found = [path for path in (context.python, shutil.which("python3")) if path and
             os.path.exists(path)]
    return found or ["python3"]


@functools.lru_cache(maxsize=None)
def lacks_for(python, probe, way):
    return first_error([python, probe, way])


def pytorch_on_gpu(context, script, *arguments, way):
    """It stays: what it compiles and captures is there for all of its turns."""
    probe = os.path.join(context.peers, "torch_gpu_probe.py")
    reasons = {python: lacks_for(python, probe, way) for python in pythons(context)}
    python = next((python for python, reason in reasons.items() if not reason), None)
    program = pytorch(context, script, *arguments, way, name=f"PyTorch, {way}")
    program.command[0] = python or next(iter(reasons))
    program.lacks = "" if python else "; ".join(reasons.values())
    program.needs = {}
    program.stays = True
    return program


def compiler_needs():
    """What torch.compile needs beside PyTorch."""
    header = os.path.join(sysconfig.get_path("include"), "Python.h")
    return {shutil.which("g++") or "g++": DEPS, header: DEPS}
