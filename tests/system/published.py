#!/usr/bin/env python3
# needs: plain
"""[published]: figures of others beside a sweep's rows, in the table, in a report of the saved
document and in a rerun; what is refused, by `check` too. Run from the top of the tree; ends on
`N passed, N failed, N skipped`."""

import json
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, "tests/lib")

import counted  # noqa: E402
from command import dpbench, own_directory, page, tiny, write  # noqa: E402

SWEEP = tiny(12, 1) + """[sweep]
comm.name = independent, shm
run.workers = 1, 2
when = comm.name != independent or run.workers = 1
repeats = 1
retry_disturbed = 0
[published]
"""
BASE = "comm.name independent run.workers 1 = 40, A paper (2017), a slow machine\n"
PAIR = BASE + "comm.name shm run.workers 2 = 70, A paper (2017), a slow machine\n"
SOURCE = "no pass or fail; A paper (2017), on a slow machine."


def words(text):
    return " ".join(text.split())


class Published(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        own_directory(cls)

    def expect_beside(self, text):
        """The column has a figure in two lines of three, and the source stands below."""
        lines = [line.split() for line in text.splitlines() if line.startswith(("strategy", "independent ", "shm "))]
        at = lines[0].index("publ.")
        self.assertEqual([line[at] for line in lines[1:4]], ["1.00", "-", "1.75"], text)
        self.assertIn(SOURCE, words(text))

    def test_stands_beside_ours(self):
        write("base.ini", SWEEP + PAIR)
        self.assertEqual(dpbench("check", "-c", "base.ini").returncode, 0)
        ran = dpbench("-c", "base.ini", "--output", "sweep.json")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.expect_beside(ran.stdout)
        report = dpbench("report", "sweep.json")
        self.assertEqual(report.stdout.split("\n", 1)[1].strip(), ran.stdout.strip())
        markdown = dpbench("report", "--markdown", "sweep.json").stdout
        self.assertIn("| publ. |", markdown)
        self.assertIn("| 1.75 |", markdown)
        self.assertIn(SOURCE, markdown)
        self.assertIn(",published_speedup", dpbench("report", "--csv", "sweep.json").stdout)
        self.assertEqual(dpbench("report", "--html", "page.html", "sweep.json").returncode, 0)
        section, = page("page.html")
        self.assertIn("publ.", section["rows"]["titles"])
        self.assertIn(SOURCE, " ".join(section["below"]))
        again = dpbench("rerun", "sweep.json", "run.seed=7")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.expect_beside(again.stdout)
        self.assertIn("Here the command line set run.seed = 7.", words(again.stdout))

    def test_without_figures_there_is_nothing(self):
        write("base.ini", SWEEP)
        ran = dpbench("-c", "base.ini", "--json")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        document = json.loads(ran.stdout)
        self.assertNotIn("published", document)
        self.assertEqual([row["published_speedup"] for row in document["rows"]], [None] * 3)

    def test_refuses_by_file_and_line(self):
        line = SWEEP.count("\n") + 2
        for text, reason in (
                ("comm.name ring_tcp run.workers 2 = 70, A paper, a machine", "no cell of [sweep] has comm.name = ring_tcp"),
                ("comm.name independent run.workers 2 = 70, A paper, a machine", "no cell of [sweep] has all of"),
                ("comm.name shm = 70, A paper, a machine", "'comm.name shm' is 2 cells of [sweep]: name run.workers, too"),
                ("comm.name shm run.workers 2 = much, A paper, a machine", "the figure 'much' is no number above 0"),
                ("comm.name shm run.workers 2 = 70, A paper", "'70, A paper' is not FIGURE, SOURCE, HARDWARE"),
                ("run.workers 1 comm.name independent = 40, A paper, a machine", "has a figure already, 40")):
            write("base.ini", SWEEP + BASE + text + "\n")
            for command in (["check"], ["run"]):
                refused = dpbench(*command, "-c", "base.ini")
                self.assertEqual(refused.returncode, 2, text)
                self.assertIn(f"base.ini:{line}: [published]: ", refused.stderr)
                self.assertIn(reason, refused.stderr)
        write("base.ini", tiny(12, 1) + "[published]\n" + BASE)
        self.assertIn("[published] has figures for the cells of a [sweep]", dpbench("check", "-c", "base.ini").stderr)


if __name__ == "__main__":
    counted.main()
