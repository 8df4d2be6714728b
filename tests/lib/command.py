"""dpbench as tests in Python run it, its files, and an experiment that takes it milliseconds."""

import json
import os
import subprocess
import tempfile

DPBENCH = os.path.abspath(os.path.join(os.environ.get("DPB_BUILD", "build"), "dpbench"))


def dpbench(*arguments, timeout=100):
    """What it printed stands in `stdout` and `stderr`, how it ended in `returncode`."""
    return subprocess.run([DPBENCH, *arguments], capture_output=True, text=True, timeout=timeout, check=False)


def own_directory(cls):
    """For setUpClass: the tests of the class work in a directory that goes with them."""
    place = tempfile.TemporaryDirectory()
    cls.addClassCleanup(place.cleanup)
    cls.addClassCleanup(os.chdir, os.getcwd())
    os.chdir(place.name)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def load(path):
    return json.loads(read(path))


def page(path):
    """What a page of `dpbench report --html` gives its script to show."""
    return json.loads(read(path).split('id="report">')[1].split("</script>")[0])


def save(document, path):
    """Its path."""
    write(path, json.dumps(document))
    return path


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
