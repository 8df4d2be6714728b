#!/usr/bin/env python3
# needs: cells stand-in
"""`dpbench help matrix` and docs/matrix.md, which `dpbench help matrix --markdown` prints: on the CUDA for tests, with
all plugins. Combinations that are said to work are run: some drawn by a seed, with DPB_ALL_CELLS 150. By hand:
DPB_MATRIX_RUNS=N runs N, DPB_SEED=S draws others. Run from the top of the tree; ends on `N passed, N failed, N skipped`."""

import csv
import json
import os
import random
import sys
import unittest
import unittest.mock

sys.dont_write_bytecode = True
sys.path.insert(0, "tests/lib")

import command  # noqa: E402
import counted  # noqa: E402

HERE = os.getcwd()
STAND_IN = os.path.join(os.path.dirname(command.DPBENCH), "tests", "cuda", "plugins")
CUDA = os.environ.get("DPB_TEST_CUDA", "")
RUNS = int(os.environ.get("DPB_MATRIX_RUNS", 150 if "DPB_ALL_CELLS" in os.environ else 8))
MORE = "run.results= run.steady_limit_s=0 run.warmup_steps=0 run.prove={} --json"


def tables(text):
    """The cells of a page's tables by section, row and column, and all other lines."""
    section, heads, cells, lines = "", None, {}, []
    for line in text.splitlines():
        words = [word.strip() for word in line.split("|")[1:-1]]
        if line.startswith("#"):
            section = line
        if not words:
            heads = None
            lines.append((section, line))
        elif heads is None:
            heads = words
        elif words[0] != "---":
            cells.update({(section, words[0], head): word for head, word in zip(heads[1:], words[1:])})
    return cells, lines


class Page(unittest.TestCase):
    """What a build without CUDA cannot say is `?`, and the strategies that it lacks are not there. Nor is one whose
    library cannot be loaded, as NCCL's where the plugins of a GPU were built without one."""

    def setUp(self):
        self.printed = command.dpbench("help", "matrix", "--markdown").stdout
        self.page = command.read(os.path.join(HERE, "docs/matrix.md"))

    def test_page(self):
        new, lines = tables(self.printed)
        old, _ = tables(self.page)
        self.assertGreater(len(new), 4000)
        for cell, word in new.items():
            if word != "?":
                self.assertEqual(old.get(cell), word, f"{cell}: docs/matrix.md is not what help matrix --markdown prints")
        if "?" not in new.values() and new.keys() == old.keys():
            self.assertEqual(self.page, self.printed, "docs/matrix.md is not what help matrix --markdown prints")

    def test_complete(self):
        """The page has all there is, each refusal has a note, each note a refusal."""
        cells, _ = tables(self.page)
        notes = {cell[1]: word for cell, word in cells.items() if cell[0] == "## Notes"}
        said = {word for cell, word in cells.items() if cell[0] not in ("## Notes", "## Features")}
        self.assertEqual(said - set(notes), {"yes", "host", ""})
        self.assertEqual(set(notes) - said, set())
        self.assertTrue(all(len(words.split()) <= 10 for words in notes.values()), notes)

    def test_user(self):
        """A refusal that has no note is printed as it is."""
        path = os.path.join(os.path.dirname(command.DPBENCH), "tests", "plugins")
        with unittest.mock.patch.dict(os.environ, {"DPBENCH_PLUGIN_PATH": path}):
            said = command.dpbench("help", "matrix", "good")
        self.assertRegex(said.stdout, "(?m)^lrn  .* no ")
        self.assertIn("no: refused without a note; the first: matrix: optimizer 'lars' needs all mean gradients", said.stdout)
        self.assertEqual(said.returncode, 0)


class Runs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        command.own_directory(cls)
        command.write("empty.ini", "")

    def works(self):
        """The combinations that this machine can run: the test's are those on the host, or those on the stand-in."""
        plugins = json.loads(command.dpbench("plugins", "--json").stdout)["plugins"]
        here = {row["name"] for row in plugins
                if row["kind"] == "comm" and row["usable"] and not row["missing"] and row["name"] != "mpi"}
        for row in csv.DictReader(command.dpbench("help", "matrix", "--csv").stdout.splitlines()):
            on_gpu = "device.name=cuda" in row["settings"]
            if row["verdict"] in ("yes", "host") and row["strategy"].split("/")[0] in here and \
                    CUDA != ("no" if on_gpu else "only"):
                yield row

    def test_runs(self):
        rows = list(self.works())
        self.assertGreater(len(rows), 100)
        random.Random(int(os.environ.get("DPB_SEED", 1))).shuffle(rows)
        for row in rows[:RUNS]:
            with self.subTest(strategy=row["strategy"], features=row["features"]):
                more = MORE.format("no" if row["strategy"] == "independent" else "yes")
                ended = command.dpbench("-c", "empty.ini", *row["settings"].split(), *more.split())
                self.assertEqual(ended.returncode, 0, f"{row['settings']}: {ended.stderr}")
                self.assertNotIn("fail", json.loads(ended.stdout)["verification"].values(), row["settings"])


if __name__ == "__main__":
    if CUDA != "no" and os.path.exists(os.path.join(STAND_IN, "device_cuda.so")):
        os.environ["DPBENCH_PLUGIN_PATH"] = STAND_IN
    counted.main()
