#!/usr/bin/env python3
# needs: plain waits
"""Runs whose cause of slowness is planted: a slow rank, a slow loader, a slow link, and none. What
the lines `why` say is made again from ranks[] and from the times that the device wrote down itself.
Run from the top of the tree; ends on `N passed, N failed, N skipped`."""

import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, "tests/lib")

import counted  # noqa: E402
from command import DPBENCH, load, page, write  # noqa: E402

BUILD = os.path.abspath(os.environ.get("DPB_BUILD", "build"))
WARM = 1
BASE = f"""[run]
results =
steps = 30
batch = 8
warmup_steps = {WARM}
steady_limit_s = 0
[model]
name = timed
[data]
name = timed
[device]
name = timed
threads = 1
forward = 10 ms
backward = 30 ms
"""
TWO = "comm.name=shm run.workers=2"
LINK = "comm.name=timed comm.bucket=4096 comm.exchange=25ms comm.payload=1000000"
DELAY = " run.delay=constant(20ms) run.delay_ranks=1"
OWN = ("data_wait", "forward", "delay", "backward")
TRIES = 5


class Run:
    """A result, its table, and the passes of each rank by the device's own clock."""

    def __init__(self, options):
        with tempfile.TemporaryDirectory() as path:
            write(os.path.join(path, "why.ini"), BASE)
            plugins = os.path.join(BUILD, "tests/plugins")
            done = subprocess.run(
                [DPBENCH, "-c", "why.ini", "device.trace=trace", "--output", "why.json",
                 *options.split()],
                cwd=path, env=dict(os.environ, DPBENCH_PLUGIN_PATH=plugins), capture_output=True,
                text=True, timeout=100, check=False)
            assert done.returncode == 0, done.stderr
            self.table = done.stdout
            self.document = load(os.path.join(path, "why.json"))
            self.page = ""
            if "sweep." in options:
                subprocess.run([DPBENCH, "report", "--html", "why.html", "why.json"], cwd=path,
                               check=True, capture_output=True, timeout=60)
                self.page = " ".join(page(os.path.join(path, "why.html"))[0]["below"])
            self.passes = []
            for rank in range(self.document.get("world", {}).get("workers", 0)):
                with open(os.path.join(path, f"trace.{rank}"), encoding="ascii") as file:
                    self.passes.append([list(map(int, line.split())) for line in file])
        self.why = self.document.get("why")
        words = [line.split(None, 1)[1] for line in self.table.splitlines()
                 if line.startswith("  why ")]
        self.words = [line for line in words if not line.startswith("waits: ")]
        self.waits = [line for line in words if line.startswith("waits: ")]

    def own(self, rank):
        """By timed step, how long forward and backward took, without the strategy's code."""
        return [p[3] - p[1] + p[6] - p[4] - p[7] for p in self.passes[rank] if p[0] >= WARM]

    def rank(self, rank):
        return self.document["ranks"][rank]["breakdown_ns"]


class Why(unittest.TestCase):
    def near(self, value, wanted, within=1e-9):
        self.assertLessEqual(abs(value - wanted), within * max(1.0, abs(wanted)))

    def check_last(self, run):
        """All of `last` but the bounds, from ranks[]."""
        last = run.why["last"]
        own = [sum(run.rank(r)[part] for part in OWN) for r in range(2)]
        slow = 0 if own[0] >= own[1] else 1
        by = {part: run.rank(slow)[part] - run.rank(1 - slow)[part] for part in OWN}
        self.assertEqual(last["rank"], slow)
        self.assertEqual(last["part"], max(OWN, key=by.get))
        self.near(last["part_ns"], run.rank(slow)[last["part"]])
        self.near(last["others_part_ns"], run.rank(1 - slow)[last["part"]])
        self.near(last["behind_ns"], own[slow] - own[1 - slow], 1e-6)
        self.near(sum(last["shares"]), 1)
        self.assertLessEqual(last["behind_low_ns"], last["behind_ns"])
        step = sum(r["step_ns"]["mean"] for r in run.document["ranks"]) / 2
        self.assertEqual(last["decided"], last["behind_low_ns"] > 0.05 * step)

    def check_rates(self, run):
        samples, workers = run.document["batch"]["per_worker"], run.document["world"]["workers"]
        exchange, rates = run.why["exchange"], run.why["samples_per_s"]
        step = sum(r["step_ns"]["mean"] for r in run.document["ranks"]) / workers
        hidden = max(step - exchange["exposed_ns"], exchange["communication_ns"])
        self.near(rates["hidden"], workers * samples * 1e9 / hidden)
        own = [sum(run.rank(r)[part] for part in (*OWN, "optimizer")) for r in range(workers)]
        self.near(rates["without"], sum(samples * 1e9 / ns for ns in own))
        data = run.why["data"]
        waits = [run.rank(r)["data_wait"] for r in range(workers)]
        self.assertEqual(data["rank"], waits.index(max(waits)))
        self.near(data["wait_ns"], max(waits))
        self.near(data["step_ns"], run.document["ranks"][data["rank"]]["step_ns"]["mean"])
        self.near(data["samples_per_s"], samples * 1e9 / data["step_ns"])

    def check_waits(self, run):
        """Said of a mean step that waits for more than 5 % of it; two figures below 1 ms."""
        timing, parts = run.document["timing"], run.document["timing"]["breakdown_ns"]
        step, exposed = timing["elapsed_ns"] / timing["steps"], parts["comm_exposed"]
        self.assertEqual(len(run.waits), exposed > 0.05 * step)
        for line in run.waits:
            found = [float(number) for number in re.findall(r"(\d+\.?\d*) ms", line)]
            wanted = [step, exposed]
            if parts["comm_wait_peer"] > 0:
                wait = parts["comm_exposed_wait"]
                wanted += [wait, exposed - wait]
            self.assertEqual(len(found), len(wanted), line)
            for value, ns in zip(found, wanted):
                self.assertLessEqual(abs(value - ns / 1e6), 0.051 * max(1, ns / 1e8), line)

    def until_quiet(self, options, judge):
        """A busy machine adds causes: one run of a few has to show the planted one alone."""
        for attempt in range(TRIES):
            run = Run(options)
            if run.document["world"]["workers"] == 2:
                self.check_last(run)
            self.check_rates(run)
            self.check_waits(run)
            if judge(run):
                return run
            print(f"try {attempt + 1}: {run.words}", file=sys.stderr)
        self.fail(f"{options}: {run.words}")

    def test_a_slow_rank(self):
        run = self.until_quiet(TWO + DELAY, lambda r: len(r.words) == 2 and
                               r.why["last"]["shares"][1] >= 0.9)
        found = re.fullmatch(
            r"rank 1 was last in (\d+) % of the steps \(delay (\S+) ms, others 0.0\)", run.words[0])
        self.assertTrue(found, run.words)
        self.assertEqual(found.group(1), f"{100 * run.why['last']['shares'][1]:.0f}")
        self.assertEqual(found.group(2), f"{run.rank(1)['delay'] / 1e6:.1f}")
        self.assertGreaterEqual(float(found.group(2)), 20.0)
        rates = run.why["samples_per_s"]
        self.assertEqual(run.words[1],
                         f"samples/s: {rates['hidden']:.1f} if all communication were hidden, "
                         f"{rates['without']:.1f} with none and no waiting")
        rows = [line.split() for line in re.findall(r"\n    (rank \d.*)", run.table)]
        self.assertEqual(len(rows), 2)
        for rank, row in enumerate(rows):
            self.assertEqual(row[2], f"{100 * run.why['last']['shares'][rank]:.1f}")
            parts = (*OWN, "optimizer", "comm_exposed")
            self.assertEqual(row[4:], [f"{run.rank(rank)[part] / 1e6:.3f}" for part in parts])

    def test_a_rank_that_computes_slowly(self):
        for late_in in ("forward", "backward"):
            run = self.until_quiet(
                f"{TWO} device.late_rank=0 device.late=20ms device.late_in={late_in}",
                lambda r: len(r.words) == 2)
            self.assertIn(f"({late_in} ", run.words[0])
            self.assertTrue(run.words[0].startswith("rank 0 was last in "), run.words)
            # By the device's clock, which rank took longer in how many steps.
            own = [run.own(rank) for rank in range(2)]
            self.assertEqual(len(own[0]), 30)
            n_last = sum(a >= b for a, b in zip(*own))
            self.assertLessEqual(abs(n_last - 30 * run.why["last"]["shares"][0]), 2)

    def test_a_slow_loader(self):
        # A batch of 8 takes 60 ms, and computing 40.
        run = self.until_quiet(
            "comm.name=shm data.fetch=60ms data.threads=1",
            lambda r: len(r.words) == 1 and
            0.9 * 8 / 0.060 < r.why["data"]["samples_per_s"] <= 1.02 * 8 / 0.060)
        data = run.why["data"]
        found = re.fullmatch(r"data: rank 0 waits (\S+) of (\S+) ms; its loader gives (\S+)/s: "
                             r"raise data.threads \(1\)", run.words[0])
        self.assertTrue(found, run.words)
        self.assertEqual(found.groups(),
                         (f"{data['wait_ns'] / 1e6:.1f}", f"{data['step_ns'] / 1e6:.1f}",
                          f"{data['samples_per_s']:.1f}"))

    @staticmethod
    def is_as_planted(run):
        """100 ms of communication do not hide behind 40 of computing."""
        exchange, rates = run.why["exchange"], run.why["samples_per_s"]
        return (len(run.words) == 2 and 75e6 <= exchange["exposed_ns"] < 100e6 and
                0.9 * 80 < rates["hidden"] <= 80.1 and 0.9 * 200 < rates["without"] <= 200.1)

    def test_a_slow_link(self):
        """Four buckets of 25 ms, ready one by one in 30 ms of backward: at least 75 are exposed."""
        run = self.until_quiet(LINK, self.is_as_planted)
        exchange, rank = run.why["exchange"], run.rank(0)
        self.near(exchange["exposed_ns"], rank["comm_exposed"])
        self.near(exchange["communication_ns"], rank["comm_exposed"] + rank["comm_hidden"])
        self.near(exchange["bytes"], run.document["comm"]["bytes_per_step"])
        self.near(exchange["bytes"], 4e6)
        self.near(exchange["bytes_per_s"], 4e6 * 1e9 / exchange["communication_ns"])
        ms, all_ms = exchange["exposed_ns"] / 1e6, exchange["communication_ns"] / 1e6
        self.assertEqual(run.words[0],
                         f"exchange: {ms:.1f} of {all_ms:.1f} ms exposed on a step's last "
                         f"worker; a worker passes 4.00 MB at "
                         f"{exchange['bytes_per_s'] / 1e9:.3g} GB/s")

    def test_nothing_is_slow(self):
        """Work hidden behind computing is no cause; nor is a worker for which nobody waits."""
        for options in (TWO, "comm.name=shm data.fetch=30ms data.threads=2",
                        LINK.replace("25ms", "100us"),
                        "comm.name=independent run.workers=2" + DELAY):
            run = Run if "independent" in options else self.quiet
            run = run(options + " device.forward=40ms device.backward=60ms")
            self.assertEqual(run.words, [])
            self.assertNotRegex(run.table, r"\n    rank \d")

    def quiet(self, options):
        return self.until_quiet(options, lambda r: not r.words)

    def test_too_short_says_nothing(self):
        run = Run(TWO + DELAY + " run.steps=5")
        self.assertIsNone(run.why)
        self.assertEqual(run.words, [])

    def test_a_sweep_says_what_all_runs_show(self):
        for _ in range(TRIES):
            run = Run("run.workers=2 sweep.comm.name=shm,independent sweep.repeats=2 "
                      "sweep.retry_disturbed=0" + DELAY)
            runs = [r for r in run.document["runs"] if r["strategy"]["name"] == "shm"]
            text = " ".join(run.table.split())
            self.assertNotIn("why independent", text)
            if all(r["why"]["last"]["decided"] for r in runs):
                break
            self.assertNotIn("why shm, 2 workers is not faster: rank ", text)
        self.assertTrue(all(r["why"]["last"]["decided"] for r in runs))
        runs = [r for r in runs if not r["load"]["disturbed"]] or runs
        runs.sort(key=lambda r: r["timing"]["samples_per_s"]["mean"])
        last = runs[(len(runs) - 1) // 2]["why"]["last"]
        line = (f"- why shm, 2 workers is not faster: rank 1 was last in "
                f"{100 * last['shares'][1]:.0f} % of the steps "
                f"(delay {last['part_ns'] / 1e6:.1f} ms, others 0.0)")
        self.assertIn(line, text)
        self.assertIn(line, run.page)


if __name__ == "__main__":
    counted.main()
