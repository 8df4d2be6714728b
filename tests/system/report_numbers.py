#!/usr/bin/env python3
# needs: plain
"""The numbers of `dpbench report` for ten results, computed again from what their ranks measured: the
times of single steps, the parts of the step and the losses. Run from the top of the tree; ends on
`N passed, N failed, N skipped`."""

import csv
import io
import os
import re
import statistics
import sys
import unittest

sys.dont_write_bytecode = True
sys.path[:0] = ["tests/lib", "tests/unit"]

import counted  # noqa: E402
from command import dpbench, load, own_directory, tiny, write  # noqa: E402
from stats_oracle import of_logarithms, quantile  # noqa: E402

TREE = os.getcwd()
BASE = tiny(12, 1)
RUNS = ["comm.name=independent", "run.workers=2 comm.name=independent", "run.workers=2 comm.name=shm",
        "run.workers=2 comm.name=ring_tcp run.steps=9", "run.workers=3 comm.name=ps_cpu run.servers=1",
        "run.workers=2 comm.name=shm run.accumulate=2 run.batch=3", "run.workers=2 comm.name=local_sgd"]
SWEEPS = ["sweep.comm.name=independent,shm sweep.run.workers=1,2 sweep.repeats=3",
          "sweep.comm.name=shm sweep.run.workers=2,4 sweep.repeats=2 run.steps=7",
          "sweep.comm.name=shm,ring_tcp sweep.run.workers=1,2 sweep.run.batch=2,4 sweep.seeds=2"]
UNITS = {"us": 1e3, "ms": 1e6}
PARTS = ("data_wait", "forward", "delay", "backward", "optimizer", "comm_exposed")


def make(settings, name):
    """Again where workers that never meet had no time in common, as on a busy machine."""
    for _ in range(5):
        done = dpbench("-c", "base.ini", "--output", name, *settings.split())
        assert done.returncode == 0, done.stderr
        document = load(name)
        if all(run["timing"]["step_ns"] for run in document.get("runs", [document])):
            break
    return document


def report(*arguments):
    done = dpbench("report", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rate_of(run):
    """Samples of all workers by the time of all steps."""
    steps = run["timing"]["step_ns"]
    return run["batch"]["global"] * len(steps) * 1e9 / sum(steps)


def exposed_of(run):
    parts = run["timing"]["breakdown_ns"]
    return parts["comm_exposed"] / sum(parts[part] for part in PARTS)


def mean_of(run, what, samples):
    """The mean of the steps within the last tenth of the first `samples`, at least the last of these."""
    batch = run["batch"]["global"]
    steps = run[what][:samples // batch]
    within = [number for i, number in enumerate(steps) if i * batch >= 0.9 * samples]
    return statistics.fmean(within or steps[-1:])


class Numbers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        own_directory(cls)
        write("base.ini", BASE)

    def near(self, printed, number, what):
        """As printed: to half of the last digit, or as closely as sums of floats agree."""
        digits = len(printed.partition(".")[2]) if "e" not in printed else 0
        most = 0.5000001 * 10 ** -digits if digits < 6 else 1e-9 * abs(number)
        self.assertLessEqual(abs(float(printed) - number), max(most, 1e-9 * abs(number)), what)

    def test_runs(self):
        for i, settings in enumerate(RUNS):
            run = make(settings, f"run{i}.json")
            text = report(f"run{i}.json")
            rates = [run["batch"]["global"] * 1e9 / ns for ns in run["timing"]["step_ns"]]
            found = re.search(r"samples/s +(\S+) over all", text)
            self.near(found[1], rate_of(run), settings)
            found = re.search(r"step by step: median ([\d.]+)(?: \(95 %: [^)]*\))?, "
                              r"p10 (\S+), p90 ([\d.]+)", text)  # the interval: from 0.5 s on
            for k, p in enumerate((0.5, 0.1, 0.9), 1):
                self.near(found[k], quantile(rates, p), settings)
            parts = run["timing"]["breakdown_ns"]
            step_ns = sum(run["timing"]["step_ns"]) / len(run["timing"]["step_ns"])
            found = re.search(r"^  step +(\S+) (us|ms)", text, re.M)
            self.near(found[1], step_ns / UNITS[found[2]], settings)
            for part in PARTS:
                found = re.search(rf"^    {part} +(\S+) (us|ms) +(\S+) %", text, re.M)
                self.assertTrue(found or parts[part] == 0, (settings, part))
                if found:
                    self.near(found[1], parts[part] / UNITS[found[2]], (settings, part))
                    self.near(found[3], 100 * parts[part] / sum(parts[part] for part in PARTS), (settings, part))
            found = re.search(r"loss +(\S+) at the first step, (\S+) at the last", text)
            self.near(found[1], run["loss"][0], settings)
            self.near(found[2], run["loss"][-1], settings)
            last = run["training_accuracy"][-((len(run["loss"]) + 9) // 10):]
            found = re.search(r"training +accuracy (\S+) % in the last tenth", text)
            self.near(found[1], 100 * statistics.fmean(last), settings)

    def test_quoted(self):
        """README.md has the table that `report` prints of the packed document that it names."""
        with open(f"{TREE}/README.md", encoding="utf-8") as file:
            readme = file.read()
        paths = re.findall(r"dpbench report (results/\S+\.json\.gz)`", readme)
        self.assertTrue(paths)
        for path in paths:
            table = report(f"{TREE}/{path}").partition("\n")[2].partition("\n\n")[0]
            self.assertGreater(table.count("\n"), 5)
            self.assertIn("".join(f"    {line}\n" for line in table.splitlines()), readme)

    def test_sweeps(self):
        for i, settings in enumerate(SWEEPS):
            sweep = make(settings + " sweep.retry_disturbed=0", f"sweep{i}.json")
            rows = list(csv.DictReader(io.StringIO(report("--csv", f"sweep{i}.json"))))
            self.assertGreater(len(rows), 1)
            samples = min(len(run["loss"]) * run["batch"]["global"] for run in sweep["runs"])
            cells = [self.cell(sweep, row, samples, settings) for row in rows]
            self.speedups(rows, cells, settings)

    def cell(self, sweep, row, samples, settings):
        """A row against its runs; its median rate."""
        runs = [run for run in sweep["runs"] if run["cell_index"] == int(row["cell_index"])]
        clean = [run for run in runs if not (run["load"] or {}).get("disturbed")] or runs
        rates = [rate_of(run) for run in clean]
        middle = statistics.median(rates)
        self.assertEqual(int(row["runs"]), len(clean))
        self.near(row["samples_per_s.median"], middle, settings)
        if len(rates) > 1:
            for end, number in zip(("low", "high"), of_logarithms(rates)[1:]):
                self.assertLess(abs(float(row[f"samples_per_s.{end}"]) / number - 1), 1e-6, settings)
        self.near(row["comm_exposed_share"], statistics.median(map(exposed_of, clean)), settings)
        self.near(row["step_ns"], statistics.median(
            sum(run["timing"]["step_ns"]) / len(run["timing"]["step_ns"]) for run in clean), settings)
        for part in PARTS:
            self.near(row[f"breakdown_ns.{part}"],
                      statistics.fmean(run["timing"]["breakdown_ns"][part] for run in clean), settings)
        for what in ("loss", "training_accuracy"):
            self.near(row[what], statistics.fmean(mean_of(run, what, samples) for run in clean), settings)
        return middle

    def speedups(self, rows, cells, settings):
        for row, rate in zip(rows, cells):
            alike = [(int(other["workers"]), other["strategy"] != "independent", base)
                     for other, base in zip(rows, cells)
                     if other["strategy"] in (row["strategy"], "independent") and
                     other["batch_per_worker"] == row["batch_per_worker"]]
            independent = [x for x in alike if not x[1]]
            workers, _, base = min(independent or alike)
            self.near(row["speedup"], rate / base, settings)
            self.near(row["efficiency"], rate / base * workers / int(row["workers"]), settings)


if __name__ == "__main__":
    counted.main()
