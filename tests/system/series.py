#!/usr/bin/env python3
# needs: cpu plain
"""Series of every command that measures: their values against the document's other numbers, thresholds and
their exit codes, JSON lines, and Prometheus' text format by a strict reader. `compare`, `gate` and `report` take
each of them. Run from the top of the tree; ends on `N passed, N failed, N skipped`."""

import csv
import itertools
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, "tests/lib")

import counted  # noqa: E402
from command import DPBENCH, dpbench, load, own_directory, save, tiny, write  # noqa: E402

COMM = "comm -c base.ini comm.name=shm run.workers=2 comm_test.sizes=8,4KiB comm_test.codecs=no comm_test.iterations=25"
COMMANDS = {
    "run": "-c base.ini run.steps=45",
    "sweep": "-c base.ini sweep.comm.name=shm,independent sweep.repeats=3 sweep.retry_disturbed=0 run.workers=1",
    "comm": COMM,
    "data": "data -c base.ini run.steps=3",
    "links": "links cores loopback --window 1ms --max 4KiB",
    "network": "links network run.workers=2 comm.hosts=1+1 comm.interface=lo comm_test.seconds=5ms "
               "comm_test.max_bytes=4KiB",
}
# A demand that holds however fast the machine is, one that fails, and a field that others have.
DEMANDS = {
    "run": ("samples_per_s=0.001", "samples_per_s=1e15", "bus_gb_per_s"),
    "sweep": ("samples_per_s@comm.name=shm=0.001", "samples_per_s@strategy=shm,workers=1=1e15", "bus_gb_per_s"),
    "comm": ("bus_gb_per_s@size=4KiB=1kB/s", "bus_gb_per_s@size=4096=1e9", "samples_per_s"),
    "data": ("samples_per_s@threads=1=0.001/s", "samples_per_s=1e15", "time_us"),
    "links": ("bytes_per_s@part=loopback,what=rate=8kbit/s", "bytes_per_s@part=cores,size=1KiB=1e15", "bus_gb_per_s"),
    "network": ("bytes_per_s@from=0,to=1=1", "bytes_per_s@from=0=1e15", "samples_per_s"),
}
SAMPLE = re.compile(r'([a-z_]+)(\{.*\}) (\S+)')
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"([,}])')


def metrics_of(text):
    """{(metric, its labels as a frozenset): value}; an AssertionError where the text breaks a rule of the format or
    of the names."""
    assert text.endswith("\n")
    found, families, kind = {}, [], None
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            name, help_text = line[7:].split(" ", 1)
            assert name not in families and help_text.endswith("."), line
            families.append(name)
            kind = None
        elif line.startswith("# TYPE "):
            assert line == f"# TYPE {families[-1]} gauge" and kind is None, line
            kind = "gauge"
        else:
            name, labels, value = SAMPLE.fullmatch(line).groups()
            assert name == families[-1] and kind == "gauge", line
            assert re.fullmatch("dpbench_(up|([a-z]+_)*(timestamp_seconds|seconds|(bytes|samples|tokens)_per_second))",
                                name), line
            at, pairs = 1, []
            while at < len(labels):
                label, text_of, end = LABEL.match(labels, at).groups()
                at = LABEL.match(labels, at).end()
                assert not label.startswith("__") and (end == "}") == (at == len(labels)), line
                pairs.append((label, re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], text_of)))
            assert len(dict(pairs)) == len(pairs), line
            key = name, frozenset(pairs)
            assert key not in found, line
            found[key] = float(value)
    return found


class Series(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        own_directory(cls)
        write("base.ini", tiny(4, 1, "seed = 1\n"))
        cls.documents = {}
        for name, words in COMMANDS.items():
            ended = dpbench(*words.split(), "--output", f"{name}.json")
            assert ended.returncode == 0, (name, ended.stderr)
            cls.documents[name] = load(f"{name}.json")

    def rows(self, name, field):
        return [(row["key"], row["values"][field]) for row in self.documents[name]["series"] if field in row["values"]]

    def ends(self, code, words, *says):
        ended = dpbench(*words)
        self.assertEqual(ended.returncode, code, (words, ended.stdout, ended.stderr))
        for text in says:
            self.assertIn(text, ended.stderr, words)
        return ended

    def test_a_runs_values_are_those_of_its_steps(self):
        timing = self.documents["run"]["timing"]
        steps = timing["step_ns"]
        (key, values), = self.rows("run", "samples_per_s")
        self.assertEqual((key, len(values)), ({}, 10))
        mean = sum(steps) / len(steps)
        for i, value in enumerate(values):
            batch = steps[i * len(steps) // 10:(i + 1) * len(steps) // 10]
            should = timing["samples_per_s"]["mean"] * mean / (sum(batch) / len(batch))
            self.assertAlmostEqual(value / should, 1, 12)

    def test_a_sweeps_values_are_its_rates(self):
        sweep = self.documents["sweep"]
        self.assertEqual([values for _, values in self.rows("sweep", "samples_per_s")],
                         [row["rates"] for row in sweep["rows"]])
        self.assertEqual([row["key"] for row in sweep["series"]],
                         [{"strategy": name, "workers": 1, "comm.name": name} for name in ("shm", "independent")])

    def test_values_of_comm_are_those_of_its_points(self):
        points = self.documents["comm"]["points"]
        rows = self.documents["comm"]["series"]
        self.assertEqual([row["key"] for row in rows],
                         [{"operation": "all_reduce", "size": point["bytes"], **({"model": point["model"]} if point["model"] else {})}
                          for point in points])
        for point, row in zip(points, rows):
            values = row["values"]
            self.assertEqual({name: len(list_of) for name, list_of in values.items()},
                             dict.fromkeys(("time_us", "algorithm_gb_per_s", "bus_gb_per_s"), 10))
            for us, algorithm, bus in zip(*values.values()):
                self.assertAlmostEqual(algorithm / (point["bytes"] / us / 1e3), 1, 12)
                self.assertAlmostEqual(bus / algorithm, 2 * (2 - 1) / 2, 12)
                self.assertTrue(point["time_us"]["min"] <= us <= point["time_us"]["max"])
            # The median of all lies among the medians of the batches.
            self.assertTrue(min(values["time_us"]) <= point["time_us"]["p50"] <= max(values["time_us"]))

    def test_values_of_data_are_those_of_its_windows(self):
        for point, (key, values) in zip(self.documents["data"]["points"], self.rows("data", "samples_per_s")):
            self.assertEqual(key, {"threads": point["threads"]})
            self.assertEqual(len(values), len(point["windows"]))
            for window, value in zip(point["windows"], values):
                self.assertAlmostEqual(value / (window["samples"] * 1e9 / window["ns"]), 1, 12)

    def test_values_of_links_are_those_of_its_tables(self):
        for name, way, key in (("links", self.documents["links"]["loopback"], {"part": "loopback", "what": "rate"}),
                               ("links", self.documents["links"]["cores"]["rate"][0], {"part": "cores", "what": "rate"}),
                               ("network", self.documents["network"]["network"]["ways"][1],
                                {"part": "network", "what": "rate", "from": 1, "to": 0})):
            for point in way["rate"]:
                wanted = {**key, "size": point["bytes"]}
                (_, values), = [(of, values) for of, values in self.rows(name, "bytes_per_s")
                                if wanted.items() <= of.items()]
                value = point["bytes_per_s"]
                self.assertIn(len(values), (3, 5))
                self.assertEqual((statistics.median(values), min(values), max(values)),
                                 (value["median"], value["least"], value["most"]))
                self.assertEqual(set(value), {"median", "least", "most"})
        self.assertGreater(len(self.rows("links", "latency_s")), 0)

    def test_thresholds_of_every_command(self):
        for name, (holds, fails, foreign) in DEMANDS.items():
            words = COMMANDS[name].split()
            ended = self.ends(4, [*words, "--least", holds, "--least", fails], f"--least {holds} holds in",
                              "less than 1e+")
            self.assertNotEqual(ended.stdout, "")
            self.ends(2, [*words, "--least", f"{foreign}=1"], f"has no field '{foreign}'; its fields are")
            self.ends(2, [*words, "--most", "nothing"], "takes FIELD[@KEY=VALUE,...]=NUMBER")
        self.ends(0, [*COMM.split(), "--most", "time_us=100min"], "holds in")
        self.ends(2, [*COMMANDS["sweep"].split(), "--least", "samples_per_s@strategy=none=1"],
                  "no row has this field and these keys; keys are strategy, workers, comm.name")
        self.ends(2, ["check", "-c", "base.ini", "--least", "samples_per_s=1"], "unknown option '--least'")

    def test_one_repeat_decides_nothing(self):
        words = [word for word in COMM.split() if "iterations" not in word] + ["comm_test.iterations=1"]
        for number in ("1e-9", "1e9"):
            self.ends(6, [*words, "--least", f"bus_gb_per_s@size=8={number}"],
                      "bus_gb_per_s at operation=all_reduce size=8 has no interval: it has fewer than 2 repeats")

    def test_a_document_is_written_whatever_is_judged(self):
        for code, demand in ((4, "bus_gb_per_s=1e9"), (2, "bus_gb_per_s@size=9=1")):
            self.ends(code, [*COMM.split(), "--least", demand, "--output", f"judged{code}.json"])
            self.assertEqual(load(f"judged{code}.json")["status"], "ok")

    def test_a_failure_is_not_judged(self):
        ended = self.ends(1, ["-c", "base.ini", "run.nan=stop", "optimizer.learning_rate=1000000", "run.steps=50",
                              "--least", "samples_per_s=1e15"])
        self.assertNotIn("less than", ended.stderr)

    def lines_are_the_series(self, document, text):
        lines = [json.loads(line) for line in text.splitlines()]
        rows = [(row["key"], {field: values[i] for field, values in row["values"].items()}, i)
                for row in document["series"] for i in range(len(next(iter(row["values"].values()))))]
        self.assertEqual(len(lines), len(rows))
        for line, (key, values, repeat) in zip(lines, rows):
            self.assertEqual(line["repeat"], repeat)
            self.assertLessEqual({**key, **values}.items(), line.items())
            self.assertLessEqual({"command", "host" if "machine" in document else "name", "time", "status"}, set(line))

    def test_json_lines(self):
        for name, document in self.documents.items():
            text = self.ends(0, ["report", "--jsonl", f"{name}.json"]).stdout
            self.lines_are_the_series(document, text)
        ended = self.ends(0, [*COMM.split(), "--jsonl", "--output", "lines.json"])
        self.lines_are_the_series(load("lines.json"), ended.stdout)
        self.ends(2, [*COMM.split(), "--jsonl", "--json"], "one form at a time")

    def test_prometheus(self):
        files = [f"{name}.json" for name in self.documents if name != "network"]
        found = metrics_of(self.ends(0, ["report", "--prometheus", *files]).stdout)
        labels = {"command": "comm", "name": self.documents["comm"]["name"], "strategy": "shm", "workers": "2",
                  "size": "4096", "operation": "all_reduce", "host": self.documents["comm"]["machine"]["host"]}
        values = dict((key.get("size"), values) for key, values in self.rows("comm", "bus_gb_per_s"))[4096]
        key = frozenset(labels.items())
        mean = statistics.geometric_mean(values) * 1e9
        self.assertAlmostEqual(found["dpbench_bus_bytes_per_second", key] / mean, 1, 9)
        self.assertLess(found["dpbench_bus_low_bytes_per_second", key], mean)
        self.assertGreater(found["dpbench_bus_high_bytes_per_second", key], mean)
        self.assertEqual(sum(name == "dpbench_up" and value == 1 for (name, _), value in found.items()), len(files))
        self.assertEqual({name for name, _ in found} & {"dpbench_samples_per_second", "dpbench_exchange_seconds",
                                                         "dpbench_link_bytes_per_second", "dpbench_latency_seconds"},
                         {"dpbench_samples_per_second", "dpbench_exchange_seconds", "dpbench_link_bytes_per_second",
                          "dpbench_latency_seconds"})
        self.ends(2, ["report", "--prometheus", "comm.json", "comm.json"], "both have {command=")

    def test_prometheus_escapes_and_leaves_out(self):
        name = 'a "b" \\ c\nd{e="f"} 7'
        made = {**self.documents["comm"], "name": name, "status": "failed", "series": [
            {"key": {"size": 8, "x.y-z": "1"}, "values": {"time_us": [2.0]}},
            {"key": {"size": 9}, "values": {"time_us": [None, 1]}}]}
        found = metrics_of(self.ends(0, ["report", "--prometheus", save(made, "hostile.json")]).stdout)
        samples = {(metric, dict(key).get("size")): (value, dict(key)) for (metric, key), value in found.items()}
        self.assertEqual({labels["name"] for _, labels in samples.values()}, {name})
        self.assertAlmostEqual(samples["dpbench_exchange_seconds", "8"][0], 2e-6)
        self.assertEqual(samples["dpbench_exchange_seconds", "8"][1]["x_y_z"], "1")
        self.assertEqual(samples["dpbench_up", None][0], 0)
        self.assertEqual({key for key in samples if key[1]}, {("dpbench_exchange_seconds", "8")})  # no interval, no value

    def test_the_reader_is_strict(self):
        head = "# HELP dpbench_up Up.\n# TYPE dpbench_up gauge\n"
        metrics_of(head + 'dpbench_up{a="b"} 1\n')
        for text in ('dpbench_up{a="b"} 1\n', head + 'dpbench_up{a="b"} 1', head + 'dpbench_up{a="b} 1\n',
                     head + 'dpbench_up{a="b"} 1\ndpbench_up{a="b"} 2\n', head + 'dpbench_up{a.b="c"} 1\n',
                     head + 'dpbench_up{a="\\t"} 1\n', head + head, head + 'dpbench_down{a="b"} 1\n'):
            with self.assertRaises((AssertionError, AttributeError, IndexError, ValueError), msg=text):
                metrics_of(text)

    def test_compare_takes_each(self):
        for name in ("comm", "data", "links", "network"):
            compared = json.loads(self.ends(0, ["compare", f"{name}.json", f"{name}.json", "--json"]).stdout)
            fields = [(row["key"], field) for row in self.documents[name]["series"] for field in row["values"]]
            self.assertCountEqual([(row["cell"], row["field"]) for row in compared["rows"]], fields)
            self.assertEqual({row["ratio"] for row in compared["rows"]}, {1})
        self.ends(2, ["compare", "comm.json", "data.json"], "two documents of one command")

    def test_compare_is_of_rates(self):
        """B takes twice as long in each field: its rates are half, its times twice."""
        a = {**self.documents["comm"], "load": None, "world": {}, "series": [
            {"key": {"size": 8}, "values": {"time_us": [10, 11, 12], "bus_gb_per_s": [4, 4.1, 4.2]}},
            {"key": {"size": 16}, "values": {"time_us": [10, 11, 12]}}]}
        b = {**a, "series": [{"key": {"size": 8}, "values": {
            "time_us": [20, 22, 24], "bus_gb_per_s": [2, 2.05, 2.1]}}]}
        words = ["compare", save(a, "a.json"), save(b, "b.json"), "--threshold", "5", "--json"]
        compared = json.loads(self.ends(4, words).stdout)
        self.assertEqual([(row["field"], round(row["ratio"], 9), row["verdict"]) for row in compared["rows"]],
                         [("bus_gb_per_s", 0.5, "slower"), ("time_us", 0.5, "slower")])
        self.assertEqual((compared["only_a"], compared["only_b"]), ([{"size": 16}], []))

    def test_report_takes_each(self):
        names = list(self.documents)
        shown = self.ends(0, ["report", *(f"{name}.json" for name in names)]).stdout
        for name in names:
            self.assertIn(f"{name}.json: command=", shown)
        rows = list(csv.DictReader(self.ends(0, ["report", "--csv", "comm.json", "links.json"]).stdout.splitlines()))
        fields = itertools.chain(*(row["values"] for name in ("comm", "links") for row in self.documents[name]["series"]))
        self.assertEqual([row["field"] for row in rows if row["repeats"]], [row["field"] for row in rows])
        self.assertCountEqual([row["field"] for row in rows], fields)
        for form in ("--markdown", "--csv=runs", "--pool machine.host"):
            self.ends(2, ["report", "comm.json", *form.split()], "are for runs and sweeps")
        self.ends(2, ["report", "comm.json", "--html", "x.html"], "are for runs and sweeps")
        old = {name: value for name, value in self.documents["comm"].items() if name != "series"}
        self.ends(2, ["report", save(old, "old.json")], "has no series: an older dpbench wrote it")

    def test_gate_takes_each(self):
        for name in ("comm", "data", "links"):
            words = COMMANDS[name].split()[1:]
            made = json.loads(self.ends(0, ["gate", name, "--base", DPBENCH, "--repeats", "2", *words, "--json"]).stdout)
            self.assertTrue(made["paired"])
            self.assertEqual({row["a"]["repeats"] for row in made["rows"]}, {2})
            self.assertEqual(len(made["rows"]), sum(len(row["values"]) for row in self.documents[name]["series"]))
        write("old", f"#!/bin/sh\n{DPBENCH} \"$@\" | sed 's/\"series\"/\"parts\"/'\n")
        os.chmod("old", 0o755)
        self.ends(2, ["gate", "comm", "--base", "./old", "--repeats", "2", *COMM.split()[1:]], "had no series")
        self.ends(2, ["gate", "comm", "--base", DPBENCH, "-c", "none.ini"], "none.ini")

    def gate_of(self, code, loss, *words, disturbed=False):
        """A gate of two scripts in the place of builds: this one is slower by `loss`. Returns the turns of the base."""
        os.makedirs("builds", exist_ok=True)
        os.makedirs("conf", exist_ok=True)
        for copied in ("base", "dpbench"):
            factor = 1 - loss if copied == "dpbench" else 1
            for turn in range(30):
                rate = 100 * factor * (1 + 0.01 * ((turn * (3 if copied == "base" else 4)) % 7 - 3))
                made = {**self.documents["comm"], "load": {"disturbed": disturbed}, "world": {},
                        "series": [{"key": {"size": 8}, "values": {"bus_gb_per_s": [rate]}}]}
                save(made, f"builds/{copied}.{turn}.json")
            write(f"builds/{copied}.n", "0\n")
            write(f"builds/{copied}", '#!/bin/sh\nread -r n <"$0.n"\necho $((n + 1)) >"$0.n"\nexec cat "$0.$n.json"\n')
            os.chmod(f"builds/{copied}", 0o755)
        if not os.path.exists("builds/dpbench-gate"):
            shutil.copy(os.path.join(os.path.dirname(DPBENCH), "dpbench-gate"), "builds")
        ended = subprocess.run(["builds/dpbench-gate", "comm", "--base", "builds/base", "--threshold", "5", *words],
                               capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(ended.returncode, code, ended.stdout + ended.stderr)
        with open("builds/base.n", encoding="utf-8") as file:
            return int(file.read()), ended

    def test_gate_takes_pairs_until_they_decide(self):
        turns, ended = self.gate_of(4, 0.15)
        self.assertEqual(turns, 10)
        self.assertIn("slower REGRESSION", ended.stdout)
        turns, ended = self.gate_of(0, 0)
        self.assertEqual(turns, 10)
        self.assertIn("10 pairs have decided", ended.stderr)
        self.assertIn("pass: B is not slower by 5 %", ended.stdout)
        turns, ended = self.gate_of(6, 0.05)
        self.assertEqual(turns, 30)
        self.assertIn("undecided: it is not shown whether B is slower by 5 %", ended.stdout)
        self.assertEqual(self.gate_of(4, 0.15, "--repeats", "4")[0], 4)  # one look, at the end
        self.assertEqual(self.gate_of(6, 0.15, "--repeats", "3", disturbed=True)[0], 12)
        self.gate_of(0, 0.15, "--repeats", "2", "--undecided", "pass", disturbed=True)
        self.gate_of(4, 0, "--repeats", "2", "--undecided", "fail", disturbed=True)


if __name__ == "__main__":
    counted.main()
