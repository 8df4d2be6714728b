#!/usr/bin/env python3
"""Runs a small sweep to an accuracy and makes its table of times again, from eval[] of the raw runs
alone: the criterion, means, Student's t, ranks and ratios. Run from the top of the tree; ends on
`N passed, N failed, N skipped`."""

import csv
import re
import shutil
import statistics
import sys
import unittest

sys.dont_write_bytecode = True
sys.path[:0] = ["tests/lib", "tests/unit"]

import counted  # noqa: E402
from command import dpbench, load, own_directory, page, save, write  # noqa: E402
from stats_oracle import of_logarithms  # noqa: E402

TARGET, SEEDS = 0.9, 3
SWEEP = f"""run.results= run.steady_limit_s=0 run.warmup_steps=0 run.precision=fp64 run.steps=80
run.workers=2 device.name=reference device.threads=1 data.name=synthetic data.samples=64
data.test_samples=64 model.name=tiny model.nclass=2 eval.every=5 eval.target={TARGET}
eval.criterion=median5 eval.require_target=yes sweep.comm.name=shm,sma,independent
sweep.optimizer.learning_rate=0.02,0.0001 sweep.run.batch=8 sweep.seeds={SEEDS}
sweep.retry_disturbed=0 sweep.when=comm.name=shm@or@optimizer.learning_rate=0.02 run.seed=5""".split()


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


class Table(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        own_directory(cls)
        write("empty.ini", "")
        cls.done = dpbench("-c", "empty.ini", "--output", "sweep.json",
                           *(word.replace("@", " ") for word in SWEEP), timeout=200)
        cls.document = load("sweep.json")
        cls.csv = dpbench("report", "--csv", "sweep.json").stdout
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

    @unittest.skipUnless(shutil.which("node"), "needs node")
    def test_figures(self):
        for name in ("time-to-the-target", "accuracy-by-samples"):
            self.assertEqual(dpbench("report", "--figure", f"{name}.svg", "sweep.json").returncode, 0)
        with open("time-to-the-target.svg", encoding="utf-8") as file:
            drawn = file.read()
        shown = [row for row in self.document["rows"] if row["cell"]["optimizer.learning_rate"] == "0.02"]
        for row in shown:
            mean = row["to_target"]["seconds"]["mean"]
            found = re.search(f"<title>{row['strategy']}, 2: ([^<]*)</title>", drawn)[1]
            if mean is None:
                self.assertEqual(found, f"{row['to_target']['reached']} of {SEEDS} runs")
            else:
                self.assertLess(abs(float(found.removesuffix(" s")) / mean - 1), 0.006)
        with open("accuracy-by-samples.svg", encoding="utf-8") as file:
            drawn = file.read()
        self.assertIn("target from 90 to 90", drawn)
        self.assertRegex(drawn, 'class="band c0" d="M[^"]*L[^"]*Z"')
        self.assertIn("2 workers; 3 seeds: median, least to largest, until the first one ends<", drawn)

    def test_curves_over_seeds(self):
        """The median, the least and the largest of the seeds where all have a point; else one run."""
        def lines():
            self.assertEqual(dpbench("report", "--html", "page.html", "made.json").returncode, 0)
            return page("page.html")[0]["rows"]["lines"]

        document = load("sweep.json")
        save(document, "made.json")
        for line in lines():
            runs = [run for run in document["runs"] if run["cell"] == line["row"]["cell"]]
            for what, wanted in (("loss", [run["loss"] for run in runs]),
                                 ("accuracy", [[e["accuracy"] for e in run["eval"]] for run in runs])):
                for point, values in zip(line["training"][what][0], zip(*wanted), strict=True):
                    numbers = statistics.median(values), min(values), max(values)
                    for number, value in zip(point[1:], numbers, strict=True):
                        self.near(number, value)
                end = "" if len(set(map(len, wanted))) == 1 else ", until the first one ends"
                self.assertEqual(line["training"]["how"][what], "3 seeds: median, least to largest" + end)
                self.assertLessEqual({len(point) for point in line["training"][what][1]}, {2})
        for run in document["runs"]:
            run["eval"] = run["eval"][:4]
        document["runs"][0]["batch"]["global"] += 1
        save(document, "made.json")
        made = next(line for line in lines() if line["row"]["cell"] == document["runs"][0]["cell"])["training"]
        self.assertEqual(made["how"], {"loss": "one run each", "accuracy": "3 seeds: median, least to largest"})
        for run in document["runs"]:
            run["config"]["run"]["seed"]["value"] = 5
        save(document, "made.json")
        self.assertEqual({how for line in lines() for how in line["training"]["how"].values()}, {"one run each"})

    def test_columns_are_those_of_the_raw_results(self):
        for row, target, repeats in self.rows():
            n_met = sum(r["met"] for r in repeats)
            self.assertEqual((target["reached"], target["of"]), (n_met, SEEDS))
            for part in ("seconds", "epochs", "samples", "samples_per_s"):
                of = target[part]
                if n_met == SEEDS or part == "samples_per_s":
                    for name, wanted in zip(("mean", "low", "high"), of_logarithms([r[part] for r in repeats])):
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
        whole = [(of_logarithms([r["seconds"] for r in repeats])[0], row["cell_index"])
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
            wanted, _, _ = of_logarithms([b[part] / a[part] for a, b in zip(by_rank[1], by_rank[2])])
            self.assertEqual(found.group(1), f"{wanted:.3f}", line)

    def test_a_miss_ends_the_sweep_with_4(self):
        self.assertEqual(self.done.returncode, 4, self.done.stderr)
        self.assertEqual(self.document["status"], "failed")
        self.assertIn("not all runs reached eval.target", self.document["error"])
        self.assertIn("> ", self.done.stdout)


if __name__ == "__main__":
    counted.main()
