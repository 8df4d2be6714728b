#!/usr/bin/env python3
"""Runs a small sweep to an accuracy and makes its table of times again, from eval[] of the raw runs
alone: the criterion, means, Student's t, ranks and ratios. Run from the top of the tree; ends on
`N passed, N failed, N skipped`."""

import csv
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, "tests/lib")

import counted  # noqa: E402

BUILD = os.path.abspath(os.environ.get("DPB_BUILD", "build"))
TARGET, SEEDS = 0.9, 3
SWEEP = f"""run.results= run.steady_limit_s=0 run.warmup_steps=0 run.precision=fp64 run.steps=80
run.workers=2 device.name=reference device.threads=1 data.name=synthetic data.samples=64
data.test_samples=64 model.name=tiny model.nclass=2 eval.every=5 eval.target={TARGET}
eval.criterion=median5 eval.require_target=yes sweep.comm.name=shm,sma,independent
sweep.optimizer.learning_rate=0.02,0.0001 sweep.run.batch=8 sweep.seeds={SEEDS}
sweep.retry_disturbed=0 sweep.when=comm.name=shm@or@optimizer.learning_rate=0.02 run.seed=5""".split()


def student(freedom):
    """The quantile 0.975 of t, by bisection of its distribution, a sum by Simpson's rule."""
    scale = math.gamma((freedom + 1) / 2) / math.sqrt(freedom * math.pi) / math.gamma(freedom / 2)

    def share(t, parts=2000):
        points = [scale * (1 + (t * i / parts) ** 2 / freedom) ** (-(freedom + 1) / 2)
                  for i in range(parts + 1)]
        return (points[0] + points[-1] + 4 * sum(points[1::2]) + 2 * sum(points[2:-1:2])) * t / parts / 3

    low, high = 0.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if share(middle) < 0.475 else (low, middle)
    return low


def reach(run):
    """Whether a run met the target; samples, seconds, epochs then, or at its last evaluation."""
    evals = run["eval"]
    met, at = False, evals[-1]
    for i in range(4, len(evals)):
        if statistics.median(e["correct"] / e["samples"] for e in evals[i - 4:i + 1]) >= TARGET:
            met, at = True, evals[i]
            break
    samples = at["trained_samples"]
    return {"met": met, "samples": samples, "seconds": at["trained_s"],
            "epochs": samples / run["batch"]["per_epoch"], "samples_per_s": samples / at["trained_s"]}


def mean(values):
    """Of logarithms, with its 95 % interval."""
    logs = [math.log(value) for value in values]
    middle = statistics.fmean(logs)
    half = student(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half)


class Table(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as path:
            with open(os.path.join(path, "empty.ini"), "w", encoding="ascii"):
                pass
            file = os.path.join(path, "sweep.json")
            cls.done = subprocess.run(
                [os.path.join(BUILD, "dpbench"), "-c", "empty.ini", "--output", file,
                 *(word.replace("@", " ") for word in SWEEP)],
                cwd=path, capture_output=True, text=True, timeout=200, check=False)
            with open(file, encoding="utf-8") as text:
                cls.document = json.load(text)
            cls.csv = subprocess.run(
                [os.path.join(BUILD, "dpbench"), "report", "--csv", file], capture_output=True,
                text=True, timeout=60, check=True).stdout
        cls.reached = {}
        for run in cls.document["runs"]:
            cls.reached.setdefault(run["cell_index"], {})[run["repeat"]] = reach(run)

    def near(self, value, wanted):
        self.assertLess(abs(value - wanted), 1e-6 * max(1.0, abs(wanted)))

    def rows(self):
        for row in self.document["rows"]:
            repeats = self.reached[row["cell_index"]]
            yield row, row["to_target"], [repeats[i] for i in range(SEEDS)]

    def test_repeats_have_seeds_of_their_own(self):
        self.assertEqual(self.document["over"], {"run.seed": ["5", "6", "7"]})
        for run in self.document["runs"]:
            self.assertEqual(run["config"]["run"]["seed"]["value"], 5 + run["repeat"])
        self.assertEqual(len(self.document["runs"]), 4 * SEEDS)

    def test_columns_are_those_of_the_raw_results(self):
        for row, target, repeats in self.rows():
            n_met = sum(r["met"] for r in repeats)
            self.assertEqual((target["reached"], target["of"]), (n_met, SEEDS))
            for part in ("seconds", "epochs", "samples", "samples_per_s"):
                of = target[part]
                if n_met == SEEDS or part == "samples_per_s":
                    for name, wanted in zip(("mean", "low", "high"), mean([r[part] for r in repeats])):
                        self.near(of[name], wanted)
                    self.assertIsNone(of["above"])
                else:
                    self.assertIsNone(of["mean"])
                    self.near(of["above"], min(r[part] for r in repeats if not r["met"]))

    def test_the_csv_has_the_same_columns(self):
        lines = list(csv.DictReader(self.csv.splitlines()))
        self.assertEqual(len(lines), len(self.document["rows"]))
        for line, (row, target, _) in zip(lines, self.rows()):
            self.assertEqual(line["cell.comm.name"], row["strategy"])
            for part in ("seconds", "epochs", "samples", "samples_per_s"):
                for name, value in target[part].items():
                    text = line[f"to_target.{part}.{name}"]
                    self.assertEqual(float(text) if text else None, value)

    def test_ranks_are_by_time_where_all_reached_it(self):
        whole = [(mean([r["seconds"] for r in repeats])[0], row["cell_index"])
                 for row, _, repeats in self.rows()
                 if all(r["met"] for r in repeats) and row["strategy"] != "independent"]
        self.assertEqual(len(whole), 2)
        ranks = {cell: i + 1 for i, (_, cell) in enumerate(sorted(whole))}
        for row, target, _ in self.rows():
            self.assertEqual(target["rank"], ranks.get(row["cell_index"]))
        self.assertEqual([t["model"] for r, t, _ in self.rows() if r["strategy"] == "independent"],
                         ["rank 0"])

    def test_the_printed_ratios_are_those_of_the_raw_results(self):
        by_rank = {t["rank"]: repeats for _, t, repeats in self.rows()}
        text = " ".join(self.done.stdout.split())
        line = text[text.index("- to the target, "):]
        for part, name in (("samples", "samples"), ("seconds", "time"), ("samples_per_s", "rate")):
            found = re.search(name + r" ([0-9.]+)", line)
            wanted, _, _ = mean([b[part] / a[part] for a, b in zip(by_rank[1], by_rank[2])])
            self.assertEqual(found.group(1), f"{wanted:.3f}", line)

    def test_a_miss_ends_the_sweep_with_4(self):
        self.assertEqual(self.done.returncode, 4, self.done.stderr)
        self.assertEqual(self.document["status"], "failed")
        self.assertIn("not all runs reached eval.target", self.document["error"])
        self.assertIn("> ", self.done.stdout)


if __name__ == "__main__":
    counted.main()
