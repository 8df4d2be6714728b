#!/usr/bin/env python3
# needs: plain
"""The driver of `make bench` on programs whose rates are known: turns, statistics, verdicts, what
it writes, how it ends. Nothing is timed. Run from the top of the tree; ends on `N passed, N failed,
N skipped`."""

import json
import os
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
sys.path[:0] = ["bench", "tests/lib"]

import compare  # noqa: E402
import counted  # noqa: E402
import published  # noqa: E402
from command import DPBENCH  # noqa: E402

PART = """
import os, sys
from compare import LESS, POINTS, Best, Bound, Derived, Efficiency, Program, Row

RATE = "a.0.rate"

def program(name, *rates, code=0, text=None, needs=None, **more):
    \"\"\"Prints its rates one a call, and notes each call in the file `calls`.\"\"\"
    script = (
        "import sys, json\\n"
        f"with open({os.path.join(HERE, 'calls')!r}, 'a+') as calls:\\n"
        f"    calls.write({name!r} + '\\\\n')\\n"
        "    calls.seek(0)\\n"
        f"    n = calls.read().split('\\\\n').count({name!r})\\n"
        f"rates, text = {rates!r}, {text!r}\\n"
        "print(text if text is not None else json.dumps("
        "{'a': [{'rate': rates[(n - 1) % len(rates)]}], 'half': rates[(n - 1) % len(rates)] / 2, 'v': {'thing': '1.2'},"
        " 'w': {'other': {'built': '3.4', 'loaded': '3.5'}}}))\\n"
        f"sys.exit({code})\\n")
    more = {"rate": RATE, "versions": "v", **more}
    return Program(name, [sys.executable, "-ISc", script], needs=needs or {}, **more)

def staying(name, *rates, prepares="pass", ends="sys.exit('no more of them')", **more):
    \"\"\"Notes its start in the file `calls`; prints its rates, one for each line that it reads.\"\"\"
    script = (
        "import sys, json, time\\n"
        f"with open({os.path.join(HERE, 'calls')!r}, 'a') as calls:\\n"
        f"    calls.write({name!r} + '\\\\n')\\n"
        f"{prepares}\\n"
        f"for line, rate in zip(sys.stdin, {rates!r}):\\n"
        "    print(json.dumps({'a': [{'rate': rate}], 'v': {}}), flush=True)\\n"
        f"{ends}\\n")
    return Program(name, [sys.executable, "-ISc", script], rate=RATE, stays=True, **more)

def written(figure):
    \"\"\"Prints a figure of the document that the driver has written so far.\"\"\"
    script = (
        "import glob, json\\n"
        f"document = json.load(open(glob.glob({os.path.join(HERE, 'bench/results/*.json')!r})[0]))\\n"
        f"print(json.dumps({{'a': [{{'rate': {figure}}}], 'v': {{}}}}))\\n")
    return Program("written", [sys.executable, "-ISc", script], rate=RATE)

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

    def test_summary(self):
        ratio = compare.summary_of([0.9, 0.75, 1.0])
        self.assertEqual(ratio["median"], 0.9)
        self.assertAlmostEqual(ratio["p10"], 0.78)
        self.assertAlmostEqual(ratio["p90"], 0.98)

    def test_verdicts(self):
        self.assertEqual(compare.verdict_of({"median": 0.9}, 0.9), "met")
        self.assertEqual(compare.verdict_of({"median": 0.899}, 0.9), "missed")
        self.assertEqual(compare.verdict_of({"median": 0.1}, None), "no goal")


class Published(unittest.TestCase):
    def test_the_document_has_these_errors(self):
        """No bound: "100 %" is about as near to most of these tables as any prediction."""
        with open("docs/predicting.md", encoding="utf-8") as file:
            document = file.read()
        for line in published.lines(DPBENCH):
            self.assertIn("\n" + line + "\n", document)


class Driver(Sandbox):
    def test_turns_and_document(self):
        """A ratio is that of a round: a machine that slows down to a third does not move it."""
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
        self.assertEqual(first["peer"]["programs"][0]["versions"], {"thing": "1.2"})
        self.assertEqual(first["ratio"]["values"], [0.9, 0.75, 1.0])
        self.assertEqual(first["ratio"]["median"], 0.9)
        self.assertGreater(document["machine"]["cores"], 0)
        self.assertRegex(text, r"first +60\.0 +60\.0 +0\.90 +0\.78 \.\. 0\.98 +>= 0\.95 +missed\n")
        self.assertRegex(text, r"second +5\.00 +4\.00 +1\.25 +1\.25 \.\. 1\.25 +>= 1\.20 +met\n")
        self.assertIn("peers: thing 1.2\n", text)

    def test_best_of_several_ways(self):
        """All are run, each round has its own best; of times and bytes it is the least."""
        ways = "Best('b', [program('b1', 4, 2), program('b2', 1, 8)])"
        code, text, document = self.bench(
            f"Row('rate', 'x/s', program('a', 8), {ways}, 1.5),"
            f"Row('time', 's', program('c', 8), {ways}, 1.0, by=LESS)", rounds=2)
        self.assertEqual(code, 0, text)
        self.assertEqual(self.calls(), ["a", "b1", "b2"] * 2 + ["c", "b1", "b2"] * 2)
        rate, time = document["rows"]
        self.assertEqual(rate["peer"]["rates"], [4, 8])
        self.assertEqual([way["rates"] for way in rate["peer"]["programs"]], [[4, 2], [1, 8]])
        self.assertEqual(rate["ratio"]["values"], [2, 1])
        self.assertEqual(time["peer"]["rates"], [1, 2])
        self.assertEqual(time["ratio"]["values"], [1 / 8, 2 / 8])
        self.assertEqual([rate["verdict"], time["verdict"]], ["met", "missed"])

    def test_two_rates_of_one_run(self):
        """A program that measures both sides runs once a round."""
        _, text, document = self.bench(
            "Row('r', 'x/s', program('a', 8, 6), program('a', 8, 6, rate='half'), 1.5)", rounds=2)
        self.assertEqual(self.calls(), ["a"] * 2, text)
        row = document["rows"][0]
        self.assertEqual(row["ratio"]["values"], [2, 2])
        self.assertEqual(row["ours"]["programs"][0]["rates"], [8, 6])
        self.assertEqual(row["peer"]["programs"][0]["rates"], [4, 3])

    def test_best_lacks_a_way(self):
        _, text, document = self.bench(
            "Row('x', 'x/s', program('a', 1), Best('b', [program('b1', 1),"
            "    program('b2', 1, needs={'/no/such': 'get it'})]))")
        self.assertEqual(document["rows"][0]["verdict"], "missing")
        self.assertRegex(text, r"x +missing: b2: /no/such is not there; get it\n")

    def test_efficiencies_in_points(self):
        side = "Efficiency('{0}', program('{0}2', {1}), program('{0}1', {2}), 2)"
        code, text, document = self.bench(
            f"Row('met', '%', {side.format('a', 19, 10)}, {side.format('b', 9, 5)}, 5, by=POINTS),"
            f"Row('not', '%', {side.format('c', 9, 5)}, {side.format('d', 9, 5)}, 5, by=POINTS)",
            rounds=1)
        self.assertEqual(code, 0, text)
        self.assertEqual(self.calls(), ["a1", "a2", "b1", "b2", "c1", "c2", "d1", "d2"])
        row = document["rows"][0]
        self.assertEqual([row["ours"]["rates"], row["peer"]["rates"]], [[95], [90]])
        self.assertEqual([row["ratio"], row["difference"]["values"]], [None, [5]])
        self.assertRegex(text, r"met +95\.0 +90\.0 +\+5\.0 +\+5\.0 \.\. \+5\.0 +>= \+5\.0 +met\n")
        self.assertEqual(document["rows"][1]["verdict"], "missed")

    def test_bound(self):
        code, text, document = self.bench(
            "Row('rate', 'x/s', program('a', 8), Bound('4 x/s', 4), 1.0),"
            "Row('time', 's', program('b', 1, rate='wall_s'), Bound('1 h', 3600), 1.0, by=LESS)",
            rounds=1)
        self.assertEqual(code, 0, text)
        self.assertEqual(document["rows"][0]["ratio"]["values"], [2])
        self.assertEqual(document["rows"][0]["peer"]["programs"], [])
        self.assertEqual(document["rows"][1]["verdict"], "met")
        self.assertGreater(document["rows"][1]["ours"]["rates"][0], 0)

    def test_derived(self):
        code, text, document = self.bench(
            "Row('made', '%', Derived('twice', program('a', 8), lambda d: 2 * d['a'][0]['rate']),"
            "    program('b', 4)),"
            "Row('none', '%', Derived('what', program('c', 8), lambda d: 1 / d['x']), program('d', 1)),"
            "Row('zero', '%', Derived('what', program('e', 8), lambda d: 0), program('f', 1))",
            rounds=1)
        self.assertEqual(code, 1, text)
        self.assertEqual(document["rows"][0]["ours"]["rates"], [16])
        self.assertRegex(text, r"none +broken: c: what cannot be made of what it prints: KeyError")
        self.assertRegex(text, r"zero +broken: e: what is 0\.0\n")

    def test_programs_that_stay(self):
        """They start once for all rows that take turns together, and end with them."""
        code, text, document = self.bench(
            "[Row('first', 'x/s', program('a', 8), staying('b', 4, 2)),"
            " Row('other', 'x/s', program('c', 8), staying('b', 4, 2))],"
            "Row('ends', 'x/s', program('d', 8), staying('e', 4)),"
            "Row('never', 'x/s', program('f', 8), staying('g', 4, prepares='sys.exit(\"not here\")'))",
            rounds=2)
        self.assertEqual(code, 1, text)
        self.assertEqual(self.calls(), ["a", "b", "c", "a", "c", "d", "e", "d", "f", "g"])
        self.assertEqual(document["rows"][0]["ratio"]["values"], [2, 4])
        self.assertEqual(document["rows"][1]["ratio"]["values"], [2, 4])
        self.assertRegex(text, r"ends +broken: e: exit 1: no more of them\n")
        self.assertRegex(text, r"never +broken: g: exit 1: not here\n")

    def test_limit(self):
        """What it overtakes is left; of a row whose first rounds are over those count."""
        code, text, document = self.bench(
            "Row('once', 'x/s', program('a', 8), staying('b', 4, ends='time.sleep(600)')),"
            "Row('later', 'x/s', program('c', 8), program('d', 4))", "--limit", "4", rounds=2)
        self.assertEqual(code, 0, text)
        self.assertEqual([row["verdict"] for row in document["rows"]], ["no goal", "left"])
        self.assertEqual(document["rows"][0]["ratio"]["values"], [2])
        self.assertRegex(text, r"later +left: there was no time for it \(--limit\)\n")
        self.assertEqual(self.calls(), ["a", "b", "a"])
        self.assertEqual(self.bench("", "--limit", "0")[0], 2)

    def test_limit_in_a_program(self):
        slow = "Program('a', [sys.executable, '-c', 'import time; time.sleep(600)'], RATE)"
        code, text, document = self.bench(f"Row('slow', 'x/s', {slow}, program('b', 4))",
                                          "--limit", "1")
        self.assertEqual((code, document["rows"][0]["verdict"]), (0, "left"), text)
        self.assertFalse(os.path.exists(os.path.join(self.path, "calls")))

    def test_own_limit(self):
        """A program that takes longer than it may is left and named; the rows after it run."""
        code, text, document = self.bench(
            "[Row('slow', 'x/s', program('a', 8), staying('b', 4, prepares='time.sleep(600)',"
            "     limit_s=1.5)),"
            " Row('also', 'x/s', program('a', 8), staying('b', 4, prepares='time.sleep(600)',"
            "     limit_s=1.5))],"
            "Row('after', 'x/s', program('c', 8), program('d', 4))", rounds=2)
        self.assertEqual(code, 0, text)
        self.assertEqual([row["verdict"] for row in document["rows"]], ["left", "left", "no goal"])
        self.assertEqual(document["status"], "ok")
        self.assertRegex(text, r"slow +left: b: not done after 1\.5 s, its own limit\n")
        self.assertIn("no time for: slow; also\n", text)
        self.assertEqual(self.calls(), ["a", "b", "c", "d", "c", "d"])

    def test_what_it_started_ends_with_it(self):
        """A program that is not done in time takes its own processes along."""
        late = os.path.join(self.path, "late")
        slow = f"['sh', '-c', '(sleep 3; : >{late}) & sleep 600'], RATE, limit_s=1"
        for stays in (False, True):
            code, text, document = self.bench(
                f"Row('slow', 'x/s', Program('a', {slow}, stays={stays}), program('b', 4))")
            self.assertEqual((code, document["rows"][0]["verdict"]), (0, "left"), text)
        time.sleep(3)
        self.assertFalse(os.path.exists(late))

    def test_written_after_each_group(self):
        """What is cut off has written what it has measured."""
        code, text, document = self.bench(
            "Row('first', 'x/s', program('a', 8), program('b', 4)),"
            "Row('second', 'x', written('len(document[\"rows\"])'), Bound('1', 1)),"
            "Row('third', 'x', written('len(document[\"rows\"])'), Bound('1', 1)),"
            "Row('last', 'x', written('2 + (document[\"status\"] == \"unfinished\")'), Bound('1', 1))",
            rounds=1)
        self.assertEqual(code, 0, text)
        self.assertEqual([row["ours"]["rates"] for row in document["rows"]], [[8], [1], [2], [3]])
        self.assertEqual(document["status"], "ok")

    def test_rows_that_take_turns_together(self):
        """What they share runs once a round, other figures of one run included; one of them that
        breaks does not stop the others; of long programs there are fewer rounds."""
        code, text, document = self.bench(
            "[Row('first', 'x/s', program('a', 8, 16), program('b', 4)),"
            " Row('other', 'x', program('a', 8, 16, rate='v.thing'), program('b', 4)),"
            " Row('third', 'x/s', program('b', 4), program('c', 1, code=1)),"
            " Row('once', 'x/s', program('a', 8, 16), program('d', 2, versions='w'), rounds=1)]",
            rounds=2)
        self.assertEqual(code, 1, text)
        self.assertEqual(self.calls(), ["a", "b", "c", "d", "a", "b"])
        rows = document["rows"]
        self.assertEqual([row["verdict"] for row in rows], ["no goal"] * 2 + ["broken", "no goal"])
        self.assertEqual(rows[0]["ratio"]["values"], [2, 4])
        self.assertEqual(rows[1]["ratio"]["values"], [0.3, 0.3])
        self.assertEqual(rows[3]["ratio"]["values"], [4])
        self.assertIn("peers: other 3.5, thing 1.2\n", text)

    def test_work_has_to_be_the_same(self):
        code, text, document = self.bench(
            "Row('alike', 'x/s', program('a', 8, same=RATE), program('b', 8, same=RATE)),"
            "Row('other', 'x/s', program('c', 8, same=RATE), program('d', 9, same=RATE)),"
            "Row('silent', 'x/s', program('e', 8, same='size'), program('f', 9))", rounds=1)
        self.assertEqual(code, 1, text)
        self.assertEqual([row["verdict"] for row in document["rows"]],
                         ["no goal", "broken", "broken"])
        self.assertRegex(text, r"other +broken: d: a\.0\.rate is 9, that of c 8\n")
        self.assertRegex(text, r"silent +broken: e: no 'size' in what it prints\n")

    def test_missing_peer(self):
        code, text, document = self.bench(
            "Row('gone', 'x/s', program('a', 1), program('b', 1, needs={'/no/such': 'get it'})),"
            "Row('there', 'x/s', program('c', 1), program('d', 1))")
        self.assertEqual(code, 0, text)
        self.assertRegex(text, r"gone +missing: b: /no/such is not there; get it\n")
        self.assertEqual([row["verdict"] for row in document["rows"]], ["missing", "no goal"])
        self.assertEqual(self.calls(), ["c", "d"] * 3)

    def test_what_a_program_lacks(self):
        code, text, _ = self.bench("Row('x', 'x/s', program('a', 1), program('b', 1, lacks='no b'))")
        self.assertEqual(code, 0, text)
        self.assertRegex(text, r"x +missing: b: no b\n")

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

    def test_rows_by_name(self):
        rows = ("[Row('Net A', 'x/s', program('a', 8), program('b', 4)),"
                " Row('its memory', 'x', program('a', 8, rate='v.thing'), program('b', 4))],"
                "Row('Net B', 'x/s', program('c', 1), program('d', 1))")
        code, text, document = self.bench(rows, "--rows", "net a", rounds=1)
        self.assertEqual(code, 0, text)
        self.assertEqual([row["name"] for row in document["rows"]], ["Net A"])
        self.assertEqual(self.calls(), ["a", "b"])
        code, text, _ = self.bench(rows, "--rows", "net c")
        self.assertEqual((code, text), (2, "bench: no row has 'net c' in its name; see --list\n"))

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

    def test_important_rows_of_the_gpu_come_first(self):
        """ResNet-50 compiled; then those that need no compiler before those that may take all the time."""
        done = subprocess.run(["bench/bench", "--list", "--build", "/nowhere", "gpu"],
                              capture_output=True, text=True, timeout=60, check=False)
        names = [line.removeprefix("gpu: ").split(": dpbench")[0].split(": the GPU's")[0]
                 for line in done.stdout.splitlines()]
        eager = [f"ResNet-50, batch {batch}, bf16 / eager as a graph" for batch in (256, 32, 64)]
        compiled = [f"ResNet-50, batch {batch}, bf16 / compiled" for batch in (256, 32, 64)]
        self.assertEqual(names[:8], [compiled[0] + ", default mode", compiled[0]] + eager +
                         ["ResNet-50, batch 64, bf16: GPU at work"] + compiled[1:])
        self.assertEqual(len(names), len(set(names)))


if __name__ == "__main__":
    counted.main()
