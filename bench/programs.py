"""Programs that several parts run: dpbench training, and PyTorch."""

import os
import shutil
import sysconfig

from compare import Program

DEPS = "run `make bench-deps`"


def dpbench(context, *settings, rate="timing.samples_per_s.median", name="dpbench"):
    """A run of bench/training.ini with these settings."""
    return Program(
        name=name,
        command=[context.dpbench, "-c", os.path.join(context.here, "training.ini"), "--json",
                 f"run.results={os.path.join(context.bench, 'runs')}", *settings],
        rate=rate,
        versions="versions.plugins.device.libraries",
        needs={os.path.join(context.build, "plugins", "device_cpu.so"):
               "`make` says why it was not built"},
        same="model.parameters")


def pytorch(context, script, *arguments, rate="samples_per_s", name="PyTorch", needs=None):
    return Program(
        name=name,
        command=[context.python, os.path.join(context.peers, script), *map(str, arguments)],
        rate=rate,
        versions="versions",
        needs={os.path.join(context.build, "venv", "requirements-peers.txt"): DEPS,
               **(needs or {})},
        environment={"TORCHINDUCTOR_CACHE_DIR": os.path.abspath(
            os.path.join(context.bench, "inductor"))},
        same="parameters")


def compiler_needs():
    """What torch.compile needs beside PyTorch."""
    header = os.path.join(sysconfig.get_path("include"), "Python.h")
    return {shutil.which("g++") or "g++": DEPS, header: DEPS}
