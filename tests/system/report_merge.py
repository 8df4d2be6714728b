#!/usr/bin/env python3
"""`dpbench report` of several results: the rows of a sweep made again from its runs, runs that are of
no sweep, what is named and what is refused, documents that are made to be hostile. Run from the top
of the tree; ends on `N passed, N failed, N skipped`."""

import copy
import csv
import glob
import io
import json
import math
import os
import random
import shutil
import statistics
import sys
import unittest
import unittest.mock
import xml.etree.ElementTree

sys.dont_write_bytecode = True
sys.path.insert(0, "tests/lib")

import counted  # noqa: E402
from command import dpbench, load, own_directory, page, read, save, tiny, write  # noqa: E402

SWEEP = tiny(3, 1, run="name = merged\n") + """[sweep]
comm.name = shm, independent
run.batch = 8, 4
comm.bucket = 4 KiB, 8 KiB
seeds = 2
retry_disturbed = 0
"""
OF_SWEEP = ("cell", "cell_index", "repeat", "purpose")


def report(*arguments):
    return dpbench("report", *arguments)


def rows_of(*arguments):
    ended = report("--csv", *arguments)
    assert ended.returncode == 0, ended.stderr
    return list(csv.DictReader(io.StringIO(ended.stdout)))


def put(document, path, value):
    *above, last = path.split(".")
    for key in above:
        document = document[key]
    document[last] = value


class OfSeveral(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        own_directory(cls)
        write("sweep.ini", SWEEP)
        ended = dpbench("-c", "sweep.ini", "--output", "sweep.json")
        assert ended.returncode == 0, ended.stderr
        cls.files = sorted(glob.glob("sweep.json.runs/0*.json"))
        for path in cls.files:  # a busy machine leaves no run out of its row
            run = load(path)
            run["load"]["disturbed"] = False
            save(run, path)
        ended = dpbench("rerun", "sweep.json.runs", "--resume", "--output", "sweep.json")
        assert ended.returncode == 0, ended.stderr
        cls.table = ended.stdout
        cls.sweep = load("sweep.json")

    def plain(self, **changes):
        """The runs of the sweep as runs of no sweep, each with these changes; their files."""
        files = []
        for i, run in enumerate(self.sweep["runs"]):
            made = {key: value for key, value in copy.deepcopy(run).items() if key not in OF_SWEEP}
            for path, value in changes.items():
                put(made, path.replace("__", "."), value)
            files.append(save(made, f"plain{i}{'x' if changes else ''}.json"))
        return files

    def test_runs_of_a_sweep_give_its_rows(self):
        of_sweep = report("--csv", "sweep.json").stdout
        self.assertEqual(of_sweep.count("\n"), 1 + 8)
        self.assertEqual(report("--csv", *self.files).stdout, of_sweep)
        mixed = self.files[:]
        random.Random(1).shuffle(mixed)
        mixed = [row["samples_per_s.median"] for row in rows_of(*mixed)]
        self.assertEqual(mixed, [row["samples_per_s.median"] for row in rows_of("sweep.json")])
        text = report(*self.files).stdout
        table = self.table[:self.table.index("\n\n")]
        self.assertIn(table, text)
        self.assertIn("- from sweep.json.runs.\n- repeats differ in run.seed.\n", text)
        self.assertNotIn("different", text[:text.index("strategy")])

    def test_a_run_counts_once(self):
        ended = report("sweep.json", "sweep.json.runs", *self.files)
        self.assertIn("- 32 runs were given twice and count once.", ended.stdout)
        self.assertIn(self.table[:self.table.index("\n\n")], ended.stdout)
        for text in (ended.stdout, report(*glob.glob("sweep.json.runs/*.json")).stdout):
            self.assertNotIn("ran at different times", text)  # sweep.json of a directory has no runs

    def test_runs_of_no_sweep(self):
        """Settings that differ are axes, with the values that the runs had; seeds are repeats."""
        files = self.plain()
        runs = dict(zip(files, self.sweep["runs"]))
        files.sort(key=lambda file: runs[file]["batch"]["per_worker"] == 4)
        rows = rows_of(*files)  # those of batch 8 first
        found = {(row["cell.comm.name"], row["cell.run.batch"], row["cell.comm.bucket"]): row for row in rows}
        self.assertEqual(len(rows), 8)
        bytes_of = {"4 KiB": "4096", "8 KiB": "8192"}
        for row in self.sweep["rows"]:
            cell = row["cell"]
            mine = found[cell["comm.name"], cell["run.batch"], bytes_of[cell["comm.bucket"]]]
            self.assertEqual(float(mine["samples_per_s.median"]), row["samples_per_s"]["median"])
            self.assertEqual(mine["runs"], "2")
            self.assertEqual(float(mine["loss"]), row["loss"])
        self.assertEqual([row["cell.run.batch"] for row in rows][:4], ["4"] * 4)

    def test_a_sweep_and_runs_of_none(self):
        """A size is the same in bytes; the axes are those of the sweep; no pairs between the two."""
        rows = rows_of("sweep.json", *self.plain(started="another"))
        self.assertEqual([row["runs"] for row in rows], ["4"] * 8)
        for row, alone in zip(rows, self.sweep["rows"]):
            logs = [math.log(rate) for rate in alone["rates"]] * 2
            margin = 3.182446305 * statistics.stdev(logs) / 2  # of Student's t, 3 degrees of freedom
            low = math.exp(statistics.mean(logs) - margin)
            self.assertAlmostEqual(float(row["samples_per_s.low"]) / low, 1, 6)
        self.assertEqual([row["cell.comm.bucket"] for row in rows][:2], ["4 KiB", "8 KiB"])
        self.assertEqual([row["cell.run.batch"] for row in rows][:4], ["8", "8", "4", "4"])

    def test_other_circumstances_are_rows_of_their_own(self):
        other = self.plain(machine__processor="of another kind", name="other",
                           versions__plugins__model={"name": "tiny", "file": {"crc32": "0x1"}})
        ended = report("sweep.json", *other)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        head = " ".join(ended.stdout[:ended.stdout.index("strategy ")].split())
        here = self.sweep["runs"][0]["machine"]["processor"]
        self.assertIn(f'- different machine.processor: "{here}" (setup 1), "of another kind" (setup 2).', head)
        self.assertIn("- different plugins.model 'tiny'.file.crc32: ", head)
        self.assertIn("- different run.name: merged, other.", head)
        self.assertIn("- setup 1: sweep.json. - setup 2: plain0x.json, ", head)
        rows = rows_of("sweep.json", *other)
        self.assertEqual([row["cell.setup"] for row in rows], ["1", "2"] * 8)
        self.assertEqual({row["runs"] for row in rows}, {"2"})
        ended = report("sweep.json", other[0], "--html", "page.html")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertIn('"of another kind" (setup 2)', " ".join(page("page.html")[0]["above"]))
        self.assertIn("- setup 2: plain0x.json.\n", report("--markdown", "sweep.json", other[0]).stdout)

    def test_what_changes_on_one_machine_makes_no_setup(self):
        """A guest's memory and a launcher's binding change; the name of a pod may be pooled."""
        state = self.plain(machine__memory_bytes=12345678, machine__usable_cores=77)
        ended = report("sweep.json", *state)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        head = " ".join(ended.stdout[:ended.stdout.index("strategy ")].split())
        self.assertIn("- machine.memory_bytes changed meanwhile, which makes no setup: ", head)
        self.assertIn("12345678 (result 2", head)
        self.assertNotIn("cell.setup", rows_of("sweep.json", *state)[0])
        pods = self.plain(machine__host="dpbench-1-xk2lp")
        self.assertEqual(rows_of("sweep.json", *pods)[0]["cell.setup"], "1")
        self.assertNotIn("cell.setup", rows_of("--pool", "machine.host", "sweep.json", *pods)[0])
        quota = self.plain(machine__cgroup__cpus=1.5)
        self.assertEqual({row["cell.setup"] for row in rows_of("sweep.json", *quota)}, {"1", "2"})

    def test_rows_of_a_sweep_that_was_resumed_elsewhere(self):
        resumed = copy.deepcopy(self.sweep)
        for run in resumed["runs"][::2]:
            run["machine"]["processor"] = "another"
        save(resumed, "resumed.json")
        self.assertEqual(report("--csv", "resumed.json", "resumed.json").stdout,
                         report("--csv", "sweep.json").stdout)

    def test_rows_of_a_plugin_that_was_replaced(self):
        """While a sweep ran: its own table, that of its runs, and that of a sweep that goes on from it."""
        shutil.copytree("sweep.json.runs", "replaced.runs")
        for path in glob.glob("replaced.runs/0*.json"):
            run = load(path)
            if run["repeat"] == 1:
                run["versions"]["plugins"]["device"]["file"]["crc32"] = "another"
            save(run, path)
        for before, after in (("replaced.runs", "replaced.json"), ("replaced.json", "again.json")):
            ended = dpbench("rerun", before, "--resume", "--output", after)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            self.assertIn("'.file.crc32 is ", load(after)["warnings"][-1]["text"])
        of_sweep = rows_of("again.json")
        self.assertEqual(sorted(row["cell.setup"] + row["runs"] for row in of_sweep), ["11"] * 8 + ["21"] * 8)
        self.assertEqual(sorted(row["samples_per_s.median"] for row in rows_of("replaced.runs", "again.json")),
                         sorted(row["samples_per_s.median"] for row in of_sweep))

    def test_a_default_of_each_plugin_is_no_replicate(self):
        """comm.period is 1 for gossip and 8 for local_sgd: the strategy decides, not the repeat."""
        ended = dpbench("-c", "sweep.ini", "--output", "periods.json", "run.workers=2",
                        "sweep.comm.name=gossip, local_sgd", "sweep.run.batch=4", "sweep.comm.bucket=4 KiB")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        files = sorted(glob.glob("periods.json.runs/0*.json"))
        text = report(*files).stdout
        self.assertIn("- repeats differ in run.seed.\n", text)
        self.assertNotIn("comm.period", text)
        run = load(files[-1])
        self.assertEqual(run["config"]["comm"]["period"]["value"], 8)
        for key in OF_SWEEP:
            del run[key]
        rows = rows_of("periods.json", save(dict(run, started="later"), "period8.json"))
        self.assertNotIn("cell.comm.period", rows[0])
        self.assertEqual([row["cell.comm.name"] for row in rows], ["gossip", "local_sgd"])
        for period in 1, 16:  # that of gossip, too, is another one for local_sgd
            run["config"]["comm"]["period"] = {"value": period, "origin": "command line"}
            rows = rows_of("periods.json", save(run, "period.json"))
            self.assertEqual(sorted((row["cell.comm.name"], int(row["cell.comm.period"])) for row in rows),
                             sorted([("gossip", 1), ("local_sgd", 8), ("local_sgd", period)]))

    def test_a_default_of_each_plugin_is_no_column_of_single_runs(self):
        """Nobody set comm.period; a column stands where somebody did, or where a default changed."""
        runs = {}
        for name in "gossip", "local_sgd":
            ended = dpbench("-c", "sweep.ini", "--output", f"{name}1.json", "run.workers=2",
                            f"sweep.comm.name={name}", "sweep.run.batch=4", "sweep.comm.bucket=4 KiB",
                            "sweep.seeds=1")
            self.assertEqual(ended.returncode, 0, ended.stderr)
            run = load(glob.glob(f"{name}1.json.runs/0*.json")[0])
            runs[name] = {key: value for key, value in run.items() if key not in OF_SWEEP}
        files = [save(run, f"{name}.json") for name, run in runs.items()]
        self.assertEqual([run["config"]["comm"]["period"] for run in runs.values()],
                         [{"value": 1, "origin": "default"}, {"value": 8, "origin": "default"}])
        rows = rows_of(*files)
        self.assertEqual([row["cell.comm.name"] for row in rows], ["gossip", "local_sgd"])
        self.assertNotIn("cell.comm.period", rows[0])
        other = copy.deepcopy(runs["gossip"])
        for name, origin in ("easgd", "command line"), ("gossip", "default"):
            put(other, "config.comm.name.value", name)
            put(other, "config.comm.period", {"value": 4, "origin": origin})
            rows = rows_of(*files, save(other, "other.json"))
            self.assertEqual(sorted((row["cell.comm.name"], row["cell.comm.period"]) for row in rows),
                             sorted([("gossip", "1"), ("local_sgd", "8"), (name, "4")]))

    def test_where_a_launcher_puts_the_workers(self):
        """comm.hosts follows from the workers; where it does not, it has a column."""
        files = {}
        for workers, hosts in ((2, "1+1"), (4, "2+2"), (2, "2+0")):
            run = copy.deepcopy(self.sweep["runs"][0])
            for key in OF_SWEEP:
                del run[key]
            put(run, "config.run.workers.value", workers)
            put(run, "config.comm.hosts", {"value": hosts, "origin": "launcher"})
            files[hosts] = save(run, f"hosts{hosts}.json")
        rows = rows_of(files["1+1"], files["2+2"])
        self.assertEqual([row["cell.run.workers"] for row in rows], ["2", "4"])
        self.assertNotIn("cell.comm.hosts", rows[0])
        rows = rows_of(*files.values())
        self.assertEqual({(row["cell.run.workers"], row["cell.comm.hosts"]) for row in rows},
                         {("2", "1+1"), ("2", "2+0"), ("4", "2+2")})

    def test_accuracy_after_other_steps_is_left_out(self):
        files = {}
        for steps in 500, 501, 1e300:
            run = dict(copy.deepcopy(self.sweep["runs"][0]), purpose="accuracy", started=str(steps),
                       eval=[{"accuracy": 0.5}])
            put(run, "config.run.steps.value", steps)
            files[steps] = save(dict(self.sweep, runs=self.sweep["runs"] + [run]), f"accuracy{steps}.json")
        text = " ".join(report(files[500], "sweep.json").stdout.split())
        self.assertIn("accuracy: of the test set after 500 steps", text)
        self.assertNotIn("left out", text)
        for names, n in (((files[500], files[501]), "2 accuracy runs are"),
                         ((files[1e300], "sweep.json"), "1 accuracy run is")):
            text = " ".join(report(*names).stdout.split())
            self.assertIn(f"- {n} left out: the numbers of steps differ, or ", text)
            self.assertNotIn("accuracy: of the test set", text)
            self.assertEqual({row["accuracy"] for row in rows_of(*names)}, {""})

    def test_models_are_refused(self):
        run = copy.deepcopy(self.sweep["runs"][0])
        run["model"]["parameters"] += 1
        ended = report("sweep.json", save(run, "model.json"))
        self.assertEqual(ended.returncode, 2)
        self.assertIn("sweep.json and model.json are of different models: model.parameters is ", ended.stderr)
        ended = report("--each", "sweep.json", "model.json")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertIn(self.table, ended.stdout)
        save({"schema": "dpbench.compare/1"}, "compare.json")
        self.assertIn("schema is dpbench.compare/1", report("sweep.json", "compare.json").stderr)

    def test_forms_are_of_rows(self):
        for form in ("--markdown", "--csv"):
            ended = report(form, self.files[0])
            self.assertEqual((ended.returncode, ended.stdout), (2, ""))
            self.assertIn("a run has no rows", ended.stderr)
        for arguments, words in ((("--rows", "comm.name"), "unknown option '--rows'"),
                                 (("--csv", "--markdown"), "one form at a time"),
                                 (("--csv", "--html", "page.html"), "one form at a time")):
            ended = report("sweep.json", *arguments)
            self.assertEqual((ended.returncode, ended.stdout), (2, ""), arguments)
            self.assertIn(words, ended.stderr)

    def test_lines_of_runs_and_steps(self):
        lines = list(csv.DictReader(io.StringIO(report("--csv=runs", "sweep.json").stdout)))
        self.assertEqual(len(lines), 16)
        for line, run in zip(lines, self.sweep["runs"]):
            self.assertEqual(line["cell.run.batch"], run["cell"]["run.batch"])
            self.assertEqual(float(line["timing.samples_per_s.mean"]), run["timing"]["samples_per_s"]["mean"])
            self.assertEqual((line["machine.host"], line["machine.processor"], line["versions.build.crc32"]),
                             (run["machine"]["host"], run["machine"]["processor"], run["versions"]["build"]["crc32"]))
        lines = list(csv.DictReader(io.StringIO(report("--csv=steps", "sweep.json").stdout)))
        at = 0
        for number, run in enumerate(self.sweep["runs"]):
            timing = run["timing"]
            known = timing["warmup_step_ns"] + timing["step_ns"]
            first = timing["warmup_steps"] - len(timing["warmup_step_ns"])
            for i, (line, ns) in enumerate(zip(lines[at:], known)):
                self.assertEqual(
                    (int(line["run"]), line["comm.bucket"], int(line["step"]), line["timed"],
                     int(line["step_ns"]), float(line["loss"])),
                    (number, run["cell"]["comm.bucket"], first + i,
                     str(first + i >= timing["warmup_steps"]).lower(), ns, run["loss"][first + i]))
            at += len(known)
        self.assertEqual(at, len(lines))
        alone = report("--csv=steps", self.files[0]).stdout.splitlines()
        self.assertEqual(alone[0], "run,repeat,step,timed,step_ns,loss")
        self.assertEqual(len(alone), 1 + sum(line["run"] == "0" for line in lines))

    @unittest.skipUnless(shutil.which("node"), "needs node")
    def test_figure(self):
        ended = report("--figure", "rates.svg", "sweep.json")
        self.assertEqual((ended.returncode, ended.stderr), (0, "figure: rates.svg\n"))
        space = "{http://www.w3.org/2000/svg}"
        drawing = xml.etree.ElementTree.parse("rates.svg").getroot()
        texts = [text.text for text in drawing.iter(space + "text")]
        self.assertEqual((drawing.tag, texts[0]), (space + "svg", "Rates"))
        self.assertIn("strategy, workers", texts)
        shown = {title.text for title in drawing.iter(space + "title")}
        for row in (row for row in self.sweep["rows"] if row["cell"]["run.batch"] == "8"
                    and row["cell"]["comm.bucket"] == "4 KiB"):
            rate = row["samples_per_s"]["median"]
            self.assertIn(f"{row['strategy']}, {row['workers']}: {rate:.{0 if rate >= 1000 else 1}f}", shown)
        self.assertNotIn("var(", read("rates.svg"))
        ended = report("--figure", "rate.svg", "sweep.json")
        self.assertEqual(ended.returncode, 2)
        self.assertRegex(ended.stderr, r"--figure rate.svg: there is no such figure; there are: rates, parts-of-the-step")
        self.assertFalse(os.path.exists("rate.svg"))
        ended = report("--figure", "rates.png", "sweep.json")
        self.assertEqual(ended.returncode, 2)
        self.assertIn("--figure rates.png: --figure writes SVG alone: name the file rates.svg, or save", ended.stderr)
        with unittest.mock.patch.dict(os.environ, PATH="/none"):
            ended = report("--figure", "speedup.svg", "sweep.json")
        self.assertEqual(ended.returncode, 2)
        self.assertIn("--figure draws by node, which does not start", ended.stderr)

    def test_where_runs_stay_in_memory(self):
        for arguments in (["sweep.json"], ["sweep.json", *self.files], ["--csv=runs", "sweep.json"], ["--csv=steps", "sweep.json"],
                          ["sweep.json", "--html", "page.html"]):
            shown = report(*arguments), read("page.html") if "--html" in arguments else ""
            with unittest.mock.patch.dict(os.environ, TMPDIR="/none"):
                alike = report(*arguments), read("page.html") if "--html" in arguments else ""
            self.assertEqual((alike[0].stdout, alike[1]), (shown[0].stdout, shown[1]))
            self.assertEqual(alike[0].stderr.count("/none/dpbench-"), 1)
            self.assertIn("set TMPDIR", alike[0].stderr)

    def test_text_of_a_sweep(self):
        """Runs are read one by one, wherever they stand and whatever their text looks like."""
        runs = copy.deepcopy(self.sweep["runs"])
        for run in runs:
            run["name"] = 'a"}]}\\", "runs": [{'
        odd = {"runs": runs, "invocation": {"runs": [{"command": '"runs": [{\\'}]}, "x": "runs", "y": [{"runs": [{}]}]}
        odd.update((key, value) for key, value in self.sweep.items() if key not in ("runs", "invocation"))
        self.assertEqual(report(save(odd, "odd.json")).stdout.splitlines()[1:], report("sweep.json").stdout.splitlines()[1:])
        text = json.dumps(odd)
        for cut in (text[:5000], text[:-1], text + "]", text.replace('"repeat": 1', '"repeat": 1 1', 1), text.replace("}, {", "}, 7 {", 1),
                    text.replace('"repeat": 1', '"repeat": 1, "repeat": 1', 1), '{"runs": [], ' + text[1:]):
            write("cut.json", cut)
            ended = report("cut.json")
            self.assertEqual(ended.returncode, 2, cut[-100:])
            self.assertIn("cut.json: ", ended.stderr)
            self.assertIn("is it a result of dpbench?", ended.stderr)

    def test_hostile(self):
        fields = ("cell", "cell_index", "repeat", "purpose", "config", "config.run", "config.run.batch",
                  "config.run.batch.value", "batch", "batch.global", "loss", "timing", "timing.step_ns",
                  "timing.samples_per_s.mean", "timing.steps", "world", "world.workers", "machine", "versions",
                  "versions.plugins", "versions.plugins.comm", "inputs", "invocation", "strategy", "status",
                  "started", "name", "warnings", "ranks", "eval", "target", "comm")
        files = {field: f"hostile{i}.json" for i, field in enumerate(fields)}
        for value in (None, -1, 1e308, 5e-324, "\x1b[31m\n", [], {}, [[]], {"a.b": {"c": [1]}}):
            for field, file in files.items():
                run = copy.deepcopy(self.sweep["runs"][0])
                put(run, field, value)
                save(run, file)
            for form in ([], ["--csv"], ["--csv=runs"], ["--csv=steps"]):
                ended = report(*form, "sweep.json", *files.values())
                self.assertEqual(ended.returncode, 0, (value, form, ended.stderr[-2000:]))
                self.assertNotIn("\x1b", ended.stdout)
        save({"schema": "dpbench.sweep/1", "repeats": 1e308, "runs": [1, None, {}]}, "none.json")
        self.assertIn(report("none.json", "none.json").returncode, (0, 2))


if __name__ == "__main__":
    counted.main()
