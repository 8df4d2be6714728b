"""dpbench as tests in Python run it, and an experiment that takes it milliseconds."""

import os
import subprocess

DPBENCH = os.path.abspath(os.path.join(os.environ.get("DPB_BUILD", "build"), "dpbench"))


def dpbench(*arguments, timeout=100):
    """What it printed stands in `stdout` and `stderr`, how it ended in `returncode`."""
    return subprocess.run([DPBENCH, *arguments], capture_output=True, text=True, timeout=timeout, check=False)


def tiny(steps, warmup_steps, run=""):
    """The text of an .ini; `run`: more lines of [run]."""
    return f"""[run]
results =
{run}batch = 4
steps = {steps}
warmup_steps = {warmup_steps}
steady_limit_s = 0
[model]
name = tiny
[data]
samples = 64
test_samples = 16
[device]
name = reference
threads = 1
"""
