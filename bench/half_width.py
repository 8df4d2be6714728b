#!/usr/bin/env python3
"""The half-width of the 95 % interval of a ratio that is 1, of a study so long, beside two programs
that compute for half of the time, in bursts of 3 s: LeNet by two workers against itself, by turns
or by repeats. Prints JSON.

    bench/half_width.py DPBENCH turns|repeats [SECONDS=40] [quiet]
"""

import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile

BURST = """
import time
while True:
    end = time.monotonic() + 3
    while time.monotonic() < end:
        pass
    time.sleep(3)
"""
STUDENT = {9: 2.262, 10: 2.228, 11: 2.201, 12: 2.179, 13: 2.160, 14: 2.145, 15: 2.131}  # 0.975, by freedom
SETTINGS = """run.name=turns run.results= run.workers=2 run.batch=16 run.warmup_steps=5 run.steady_limit_s=0
model.name=lenet data.name=synthetic comm.name=shm sweep.run.stall_warning_s=30,31""".split()


def study(dpbench, how, seconds):
    """(ratio, low, high) of two equal cells."""
    with tempfile.TemporaryDirectory() as place:
        path = os.path.join(place, "study.json")
        # A start takes a second; 12 repeats of two cells are 24 of them.
        more = ([f"sweep.turns=yes", f"sweep.budget={seconds}s", "run.seconds=1"] if how == "turns" else
                ["sweep.repeats=12", "sweep.retry_disturbed=0", f"run.seconds={max(0.5, seconds / 24 - 1):.2f}"])
        ended = subprocess.run([dpbench, "-c", os.devnull, *SETTINGS, *more, "--output", path], text=True,
                               capture_output=True, check=True)
        if how == "turns":
            found = re.search(r"31 / 30: (\S+)\s\[(\S+)\.\.(\S+)\]", ended.stdout)
            return [float(number) for number in found.groups()]
        pairs = {}  # disturbed runs count, as turns do
        for run in json.load(open(path, encoding="utf-8"))["runs"]:
            pairs.setdefault(run["repeat"], [0, 0])[run["cell_index"]] = run["timing"]["samples_per_s"]["mean"]
        logs = [math.log(b / a) for a, b in pairs.values()]
        mean, half = statistics.mean(logs), STUDENT[len(logs) - 1] * statistics.stdev(logs) / math.sqrt(len(logs))
        return [math.exp(mean), math.exp(mean - half), math.exp(mean + half)]


def main():
    dpbench, how = sys.argv[1:3]
    seconds = float((sys.argv[3:] or ["40"])[0])
    busy = [] if "quiet" in sys.argv else [subprocess.Popen([sys.executable, "-c", BURST]) for _ in range(2)]
    try:
        ratio, low, high = study(dpbench, how, seconds)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    print(json.dumps({"ratio": ratio, "low": low, "high": high, "holds": low <= 1 <= high,
                      "half_width_percent": 100 * math.sqrt(high / low) - 100}))


if __name__ == "__main__":
    main()
