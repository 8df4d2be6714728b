#!/usr/bin/env python3
"""The driver of `make bench` on programs whose rates are known: turns, statistics, verdicts, what
it writes, how it ends. Nothing is timed. Run from the top of the tree; ends on `N passed, N failed,
N skipped`."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, "bench")

import compare  # noqa: E402

PART = """
import os, sys
from compare import Program, Row

def program(name, *rates, code=0, text=None, needs=None):
    \"\"\"Prints its rates one a call, and notes each call in the file `calls`.\"\"\"
    script = (
        "import sys, json\\n"
        f"with open({os.path.join(HERE, 'calls')!r}, 'a+') as calls:\\n"
        f"    calls.write({name!r} + '\\\\n')\\n"
        "    calls.seek(0)\\n"
        f"    n = calls.read().split('\\\\n').count({name!r})\\n"
        f"rates, text = {rates!r}, {text!r}\\n"
        "print(text if text is not None else json.dumps("
        "{'a': [{'rate': rates[(n - 1) % len(rates)]}], 'v': {'thing': '1.2'}}))\\n"
        f"sys.exit({code})\\n")
    return Program(name, [sys.executable, "-ISc", script], "a.0.rate", "v", needs or {})

def rows(context):
    return [ROWS]
"""


class Sandbox(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory(prefix="dpb-bench-")
        self.path = self.directory.name

    def tearDown(self):
        self.directory.cleanup()

    def bench(self, rows, *arguments, rounds=3):
        """Its exit code, what it printed, and the document that it wrote (None: none)."""
        with open(os.path.join(self.path, "part.py"), "w", encoding="utf-8") as out:
            out.write(f"HERE = {self.path!r}\n" + PART.replace('ROWS', rows))
        done = subprocess.run(
            ["bench/bench", "--directory", self.path, "--build", self.path, "--rounds", str(rounds),
             *arguments], capture_output=True, text=True, timeout=60, check=False)
        results = os.path.join(self.path, "bench", "results")
        document = None
        for name in os.listdir(results) if os.path.isdir(results) else []:
            self.assertTrue(name.endswith(".json"), name)
            with open(os.path.join(results, name), encoding="utf-8") as text:
                document = json.load(text)
        return done.returncode, done.stdout + done.stderr, document

    def calls(self):
        with open(os.path.join(self.path, "calls"), encoding="utf-8") as text:
            return text.read().split()


class Statistics(unittest.TestCase):
    def test_quantiles(self):
        """As dpbench's own: type 7 of Hyndman and Fan."""
        self.assertEqual(compare.quantile([3, 1, 2], 0.5), 2)
        self.assertEqual(compare.quantile([4, 1, 3, 2], 0.5), 2.5)
        self.assertAlmostEqual(compare.quantile([5, 4, 3, 2, 1], 0.1), 1.4)
        self.assertAlmostEqual(compare.quantile([1, 2, 3, 4, 5], 0.9), 4.6)
        self.assertEqual(compare.quantile([7], 0.9), 7)

    def test_ratio_is_that_of_each_round(self):
        """A machine that slows down to a third does not move it."""
        ratio = compare.ratio_of([90, 30, 60], [100, 40, 60])
        self.assertEqual(ratio["values"], [0.9, 0.75, 1.0])
        self.assertEqual(ratio["median"], 0.9)
        self.assertAlmostEqual(ratio["p10"], 0.78)
        self.assertAlmostEqual(ratio["p90"], 0.98)

    def test_verdicts(self):
        self.assertEqual(compare.verdict_of({"median": 0.9}, 0.9), "met")
        self.assertEqual(compare.verdict_of({"median": 0.899}, 0.9), "missed")
        self.assertEqual(compare.verdict_of({"median": 0.1}, None), "no goal")


class Driver(Sandbox):
    def test_turns_and_document(self):
        code, text, document = self.bench(
            "Row('first', 'things/s', program('a', 90, 30, 60), program('b', 100, 40, 60), 0.95),"
            "Row('second', 'things/s', program('c', 5), program('d', 4), 1.2),"
            "Row('third', 'things/s', program('e', 5), program('f', 10))")
        self.assertEqual(code, 0, text)  # a missed goal is a row that says so
        self.assertEqual(self.calls(), ["a", "b"] * 3 + ["c", "d"] * 3 + ["e", "f"] * 3)
        self.assertEqual(document["schema"], "dpbench.bench/1")
        self.assertEqual(document["status"], "ok")
        self.assertEqual([row["verdict"] for row in document["rows"]], ["missed", "met", "no goal"])
        first = document["rows"][0]
        self.assertEqual(first["part"], "part")
        self.assertEqual(first["ours"]["rates"], [90, 30, 60])
        self.assertEqual(first["peer"]["rates"], [100, 40, 60])
        self.assertEqual(first["peer"]["versions"], {"thing": "1.2"})
        self.assertEqual(first["ratio"]["median"], 0.9)
        self.assertGreater(document["machine"]["cores"], 0)
        self.assertRegex(text, r"first +60\.0 +60\.0 +0\.90 +0\.78 \.\. 0\.98 +>= 0\.95 +missed\n")
        self.assertRegex(text, r"second +5\.0 +4\.0 +1\.25 +1\.25 \.\. 1\.25 +>= 1\.20 +met\n")
        self.assertIn("peers: thing 1.2\n", text)

    def test_missing_peer(self):
        code, text, document = self.bench(
            "Row('gone', 'x/s', program('a', 1), program('b', 1, needs={'/no/such': 'get it'})),"
            "Row('there', 'x/s', program('c', 1), program('d', 1))")
        self.assertEqual(code, 0, text)
        self.assertRegex(text, r"gone +missing: b: /no/such is not there; get it\n")
        self.assertEqual([row["verdict"] for row in document["rows"]], ["missing", "no goal"])
        self.assertEqual(self.calls(), ["c", "d"] * 3)

    def test_broken(self):
        """Each kind of it is a row with its reason; the others run; exit 1."""
        code, text, document = self.bench(
            "Row('exit', 'x/s', program('a', 1), program('b', 1, code=3)),"
            "Row('text', 'x/s', program('c', text='fast'), program('d', 1)),"
            "Row('path', 'x/s', program('e', text='{\"a\": []}'), program('f', 1)),"
            "Row('zero', 'x/s', program('g', 0), program('h', 1)),"
            "Row('nan', 'x/s', program('i', text='{\"a\": [{\"rate\": NaN}], \"v\": {}}'),"
            "    program('j', 1)),"
            "Row('null', 'x/s', program('k', None), program('l', 1)),"
            "Row('none', 'x/s', Program('m', ['/no/such/program'], 'rate'), program('n', 1)),"
            "Row('fine', 'x/s', program('o', 1), program('p', 1), 1.0)", rounds=1)
        self.assertEqual(code, 1, text)
        verdicts = [row["verdict"] for row in document["rows"]]
        self.assertEqual(verdicts, ["broken"] * 7 + ["met"])
        self.assertRegex(text, r"exit +broken: b: exit 3: it says nothing\n")
        self.assertRegex(text, r"text +broken: c: no rate 'a\.0\.rate' in what it prints")
        self.assertRegex(text, r"zero +broken: g: its rate is 0\.0\n")
        self.assertRegex(text, r"nan +broken: i: its rate is nan\n")
        self.assertIn("/no/such/program", text)

    def test_usage(self):
        code, text, _ = self.bench("", "nothing")
        self.assertEqual(code, 2)
        self.assertIn("there is no part 'nothing'; there are: part", text)
        self.assertEqual(self.bench("", rounds=0)[0], 2)

    def test_list_runs_nothing(self):
        code, text, document = self.bench(
            "Row('x', 'x/s', program('a', 1), program('b', 1, needs={'/no/such': 'get it'}), 0.5)",
            "--list")
        self.assertEqual(code, 0)
        self.assertEqual(text, "part: x: a / b, x/s, goal 0.50 "
                               "(missing: b: /no/such is not there; get it)\n")
        self.assertIsNone(document)
        self.assertFalse(os.path.exists(os.path.join(self.path, "calls")))


class Parts(unittest.TestCase):
    def test_every_part_makes_its_rows(self):
        """Also where nothing was built or fetched."""
        done = subprocess.run(["bench/bench", "--list", "--build", "/nowhere"], capture_output=True,
                              text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        for name in os.listdir("bench/parts"):
            if name.endswith(".py"):
                self.assertIn(f"{name[:-3]}: ", done.stdout)


def main():
    result = unittest.main(exit=False, verbosity=1).result
    failed = len(result.failures) + len(result.errors)
    skipped = len(result.skipped)
    print(f"{result.testsRun - failed - skipped} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
