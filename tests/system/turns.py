#!/usr/bin/env python3
# needs: plain waits
"""A job that its launcher parks by orders (core/launch/turns.h): what it trains, and how it ends; and
sweeps whose cells run side by side. Run from the top of the tree; ends on `N passed, N failed, N skipped`."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, "tests/lib")

import counted  # noqa: E402
from command import dpbench, load, own_directory, read, save, tiny, write  # noqa: E402

BUILD = os.path.abspath(os.environ.get("DPB_BUILD", "build"))
TINY = {"model.name": "tiny", "data.name": "synthetic", "data.samples": "64", "run.workers": "2",
        "run.batch": "4", "run.warmup_steps": "2", "run.steady_limit_s": "0", "device.name": "reference",
        "run.steps": "1000000"}


def children(pid):
    return [int(child) for child in read(f"/proc/{pid}/task/{pid}/children").split()]


def state(pid):
    return read(f"/proc/{pid}/stat").rsplit(") ", 1)[1][0]


def request(settings, **more):
    config = {}
    for name, value in {**TINY, **settings}.items():
        section, key = name.split(".", 1)
        if value is not None:
            config.setdefault(section, {})[key] = {"value": value, "origin": "the test"}
    text = tempfile.TemporaryFile("w+")
    json.dump({"schema": "dpbench.cell/1", "config": config, **more}, text)
    text.seek(0)
    return text


class Counter:
    """An energy counter of processors, for programs that start with `words`."""

    def __init__(self):
        self.joules = 0
        self.zone = "class/powercap/intel-rapl:0"
        os.makedirs(self.zone)
        write(f"{self.zone}/name", "package-0\n")
        write(f"{self.zone}/max_energy_range_uj", "1000000000000\n")
        self.set(0)
        own = [] if os.geteuid() == 0 else ["-r"]
        self.words = ["unshare", "-m", *own, "sh", "-c", 'mount --bind "$0" /sys/class && exec "$@"',
                      os.path.abspath("class")]

    def works(self):
        return subprocess.run([*self.words, "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0

    def set(self, joules):
        self.joules = joules
        write("energy", f"{round(joules * 1e6)}\n")
        os.rename("energy", f"{self.zone}/energy_uj")

    def run(self, ended):
        """1 W until the event."""
        began = time.monotonic()
        while not ended.wait(0.002):
            self.set(time.monotonic() - began)


class Job:
    """A cell with orders; as a context, none of it is left."""

    def __init__(self, words=(), **settings):
        self.orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.orders.settimeout(60)
        settings = {name.replace("__", "."): value for name, value in settings.items()}
        with theirs, request(settings, orders=theirs.fileno()) as stdin:
            self.process = subprocess.Popen([*words, f"{BUILD}/dpbench", "-c", "-", "--json"], stdin=stdin,
                                            text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                            pass_fds=[theirs.fileno()])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()
        self.orders.close()

    def order(self, order=None):
        """Sends it; the first word of the answer, and the steps."""
        if order:
            self.orders.send(order.encode())
        word, _, steps, *self.before = self.orders.recv(128).decode().split()
        return word, int(steps)

    def turn(self, block, seconds=0.05):
        assert self.order(f"go {block}")[0] == "went"
        time.sleep(seconds)
        return self.order("park")

    def ranks(self):
        return children(self.process.pid)

    def states(self):
        return {state(pid) for pid in self.ranks()}

    def end(self):
        """Its document, exit code and seconds, within which it has left nothing."""
        began, ranks = time.monotonic(), self.ranks()
        out, self.err = self.process.communicate(timeout=60)
        assert not any(os.path.exists(f"/proc/{pid}") for pid in ranks)
        return json.loads(out), self.process.returncode, time.monotonic() - began


class Turns(unittest.TestCase):
    def test_the_bits_of_a_training(self):
        for more in ({"comm__name": "ps_cpu", "run__servers": "1"}, {"comm__name": "shm", "comm__late": "1"}):
            settings = {name.replace("__", "."): value for name, value in more.items()}
            with request({**settings, "run.steps": "200"}) as stdin:
                alone = json.loads(subprocess.run([f"{BUILD}/dpbench", "-c", "-", "--json"], stdin=stdin, check=True,
                                                  stdout=subprocess.PIPE).stdout)
            with Job(run__steps="200", **more) as job:
                self.assertEqual(job.order()[0], "ready")
                for block in range(5):
                    job.turn(block, 0.002)
                job.order("go 5")
                document, code, _ = job.end()
            self.assertEqual(code, 0, job.err)
            self.assertEqual([rank["checksum"] for rank in document["ranks"]],
                             [rank["checksum"] for rank in alone["ranks"]])
            self.assertEqual(document["loss"], alone["loss"])

    def test_turns_count_steps_and_no_rest(self):
        with Job(comm__name="shm") as job:
            self.assertEqual(job.order()[0], "ready")
            self.assertEqual(job.states(), {"T"})
            self.assertEqual(job.order("park")[0], "refused")
            parked = [job.turn(block, 0.1) for block in (3, 5)]
            block, told = job.before  # of the turn before the last one
            self.assertEqual(block, "3")
            self.assertLess(parked[0][1], parked[1][1])
            self.assertEqual(job.order("go 7")[0], "went")
            self.assertEqual(job.order("go 8")[0], "refused")
            job.orders.send(b"end")
            document, code, _ = job.end()
        self.assertEqual((code, document["status"]), (0, "ok"), job.err)
        turns, timing = document["turns"], document["timing"]
        self.assertEqual(turns["block"], [3, 5])
        way = document["core_to_core"] or {"cores": [0, 1], "ns": 1}  # null: others held a core
        self.assertEqual(way["cores"], [rank["cores"][0] for rank in document["ranks"]])
        self.assertEqual(len(turns["core_to_core_ns"]), 2)
        self.assertAlmostEqual(float(told), turns["samples_per_s"][0], delta=1e-3 * float(told))
        for steps, seconds, rate in zip(turns["steps"], turns["seconds"], turns["samples_per_s"]):
            self.assertAlmostEqual(rate, 8 * steps / seconds, delta=0.02 * rate)
            self.assertGreater(seconds, 0.05)
        self.assertLess(timing["elapsed_ns"] * 1e-9, 0.9 * (timing["elapsed_ns"] * 1e-9 + turns["parked_s"]) + 0.2)
        self.assertEqual(timing["suspended"], [])
        self.assertEqual(sum(timing["step_ns"]), timing["elapsed_ns"])
        self.assertNotIn("suspended", [warning["code"] for warning in document["warnings"]])

    def test_what_rests_while_parked(self):
        """Waits, stall looks and the run's seconds: a rest of 1.6 s is past all of them."""
        with Job(comm__name="shm", run__steps=None, run__seconds="0.4", run__timeout_s="1",
                 run__stall_warning_s="0.3") as job:
            self.assertEqual(job.order()[0], "ready")
            time.sleep(0.3)
            first = job.turn(0)
            os.kill(job.process.pid, signal.SIGTSTP)  # ^Z, while parked: it stays so
            time.sleep(0.2)
            os.kill(job.process.pid, signal.SIGCONT)
            time.sleep(0.3)
            self.assertEqual(job.states(), {"T"})
            for _ in range(3):  # never longer than a test may sleep
                time.sleep(0.27)
            second = job.turn(1)
            self.assertLess(first[1], second[1])  # run.seconds have not passed
            job.order("go 2")
            document, code, _ = job.end()
        self.assertEqual((code, document["status"]), (0, "ok"), job.err)
        self.assertFalse({"stall", "suspended"} & {warning["code"] for warning in document["warnings"]}, job.err)

    def test_ends_while_parked(self):
        def kill_rank(job):
            os.kill(job.ranks()[1], signal.SIGKILL)

        def end(job):
            job.orders.send(b"end")

        limit = 5  # seconds; on a slow machine by what the end without a fault takes
        for how, code, status, words in ((end, 0, "ok", ""), (kill_rank, 1, "failed", "rank 1 "),
                                         (lambda job: job.orders.close(), 0, "ok", ""),
                                         (lambda job: job.process.terminate(), 143, "interrupted", "by signal 15")):
            with Job(comm__name="shm") as job:
                self.assertEqual(job.order()[0], "ready")
                job.turn(0)
                how(job)
                document, ended, seconds = job.end()
            self.assertEqual((ended, document["status"]), (code, status), job.err)
            self.assertIn(words, document["error"] or "")
            limit = max(limit, 5 * seconds) if how is end else limit
            self.assertLess(seconds, limit)
            self.assertEqual(document["turns"]["block"], [0])

    def test_what_cannot_be_parked(self):
        with Job(comm__name="shm", run__delay="constant(1ms)") as job:
            _, err = job.process.communicate(timeout=60)
        self.assertEqual(job.process.returncode, 2)
        self.assertIn("cannot run in turns: run.delay", err)


class Energy(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        own_directory(cls)
        cls.counter = Counter()
        if not cls.counter.works():
            raise unittest.SkipTest("no mount namespace")

    def test_joules_of_own_turns(self):
        settings = {"words": self.counter.words, "comm__name": "shm", "run__warmup_steps": "50"}
        with Job(run__monitor="60", **settings) as one, Job(run__monitor="0.2", **settings) as other:
            n_steps = [-job.order()[1] for job in (one, other)]
            seconds = [0, 0]
            for block, joules in enumerate(((3, 5), (2, 7))):
                for i, job in enumerate((one, other)):
                    began = time.monotonic()
                    self.assertEqual(job.order(f"go {block}")[0], "went")
                    self.counter.set(self.counter.joules + joules[i])
                    for _ in range(3 if job is other else 1):
                        time.sleep(0.2)
                    steps = job.order("park")[1]
                    seconds[i] += time.monotonic() - began
                    n_steps[i] += steps if block == 1 else 0
                self.counter.set(self.counter.joules + 100)  # of neither
            for job in (one, other):
                job.orders.send(b"end")
            documents = [job.end()[0] for job in (one, other)]
        for i, (document, joules) in enumerate(zip(documents, (5, 12))):
            (machine,), energy = document["monitor"]["machines"], document["monitor"]["joules_per_sample"]
            self.assertAlmostEqual(machine["package_j"], joules, delta=1e-6)
            self.assertAlmostEqual(joules / energy["packages"] / 8, n_steps[i], delta=2)
            self.assertLess(machine["seconds"][-1], seconds[i])
            self.assertGreater(machine["seconds"][-1], sum(document["turns"]["seconds"]))
            self.assertGreater(machine["monitor_cpu_s"], 0)
            of_intervals = [watts * (end - begin) for watts, begin, end in
                            zip(machine["package_w"], [0, *machine["seconds"]], machine["seconds"])]
            self.assertAlmostEqual(sum(of_intervals), joules, delta=1e-6)
        one, other = [len(document["monitor"]["machines"][0]["seconds"]) for document in documents]
        self.assertEqual(one, 2)  # as many as turns: their ends
        self.assertGreater(other, 2)

    def test_a_sweep_shares_the_energy(self):
        write("base.ini", tiny(1, 1).replace("steps = 1\n", "seconds = 1\nworkers = 2\nmonitor = 0.5\n", 1) +
              "[sweep]\ncomm.name = shm, replicated\nturns = 60 ms\n")
        ended = threading.Event()
        thread = threading.Thread(target=self.counter.run, args=[ended])
        thread.start()
        try:
            sweep = subprocess.run([*self.counter.words, f"{BUILD}/dpbench", "-c", "base.ini", "--output",
                                    "turns.json"], capture_output=True, text=True, check=False)
        finally:
            ended.set()
            thread.join()
        self.assertEqual(sweep.returncode, 0, sweep.stderr)
        document = load("turns.json")
        self.assertTrue(all(row["turns"] for row in document["rows"]), sweep.stderr)
        machines = [run["monitor"]["machines"][0] for run in document["runs"]]
        self.assertLess(sum(machine["package_j"] for machine in machines), self.counter.joules)
        for machine in machines:  # at 1 W; the whole is about twice as much
            self.assertAlmostEqual(machine["package_j"], machine["seconds"][-1],
                                   delta=0.35 * machine["seconds"][-1])


class Sweeps(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        own_directory(cls)
        write("base.ini", tiny(1, 1).replace("steps = 1\n", "seconds = 1\nworkers = 2\n", 1) +
              "[sweep]\ncomm.name = shm, replicated\nturns = 60 ms\n")

    def test_rows_by_blocks(self):
        ended = dpbench("-c", "base.ini", "--output", "turns.json")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        document = load("turns.json")
        shm, replicated = document["rows"]
        self.assertEqual(shm["turns"]["block"], list(range(len(shm["turns"]["block"]))))
        self.assertEqual(shm["turns"]["block"], replicated["turns"]["block"])
        self.assertIn(f"{len(shm['turns']['block'])} blocks of 2 cells", ended.stderr)
        self.assertRegex(" ".join(ended.stdout.split()),  # though timed once
                         r"2 workers: [a-z]+ is f[^;]*; [a-z]+ / [a-z]+ \d\.\d+ \[\d")
        self.assertEqual(len(document["runs"]), 2)
        # A run that is missing runs again, beside the first cell, in blocks of its own.
        n = len(shm["turns"]["block"])
        document["runs"] = [run for run in document["runs"] if run["cell_index"] == 0]
        again = dpbench("rerun", save(document, "part.json"), "--resume", "--output", "whole.json")
        self.assertEqual(again.returncode, 0, again.stderr)
        shm, replicated = load("whole.json")["rows"]
        self.assertEqual(shm["turns"]["block"], list(range(len(shm["turns"]["block"]))))
        self.assertEqual(replicated["turns"]["block"], shm["turns"]["block"][n:])

    def test_check_tells_the_time(self):
        for budget, minutes in (("90", "1.5"), ("0", "0.0")):
            checked = dpbench("check", "-c", "base.ini", f"sweep.budget={budget}")
            self.assertIn(f" {minutes} min of timed steps", checked.stdout)

    def test_looks_end_blocks(self):
        ended = dpbench("-c", "base.ini", "comm.name=shm", "sweep.run.batch=1,16", "sweep.budget=3.6", "--output",
                        "looks.json")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        small, large = [row["turns"] for row in load("looks.json")["rows"]]
        n = len(small["block"])
        if n > 10:  # a slow machine takes fewer in the budget
            self.assertIn(f"{n} blocks of 2 cells in", ended.stderr)
            self.assertIn(" have decided", ended.stderr)
            self.assertIs(small["decided"] and large["decided"], True)
            self.assertLess(n, small["planned"] + 2)
            self.assertEqual(small["planned"], large["planned"])

    def test_ends_alone_and_together(self):
        """A rank is killed while it stands: the others go on. A signal ends all of them soon."""
        sweep = subprocess.Popen([f"{BUILD}/dpbench", "-c", "base.ini", "sweep.budget=100", "--output", "ended.json"],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            def stand(job):
                return children(job) and all(state(rank) == "T" for rank in children(job))

            started = time.monotonic()
            deadline = started + 60
            while len(children(sweep.pid)) < 2 or not stand(children(sweep.pid)[1]):
                time.sleep(0.005)
                assert time.monotonic() < deadline
            limit = max(5, 5 * (time.monotonic() - started))  # by what two starts take
            os.kill(children(children(sweep.pid)[1])[0], signal.SIGKILL)
            while len(children(sweep.pid)) == 2:
                time.sleep(0.01)
                assert time.monotonic() < deadline
            time.sleep(0.2)
            (left,) = children(sweep.pid)
            began = time.monotonic()
            sweep.terminate()
            _, err = sweep.communicate(timeout=60)
            self.assertLess(time.monotonic() - began, limit)
        finally:
            sweep.kill()
            sweep.wait()
        self.assertFalse(os.path.exists(f"/proc/{left}"))
        document = load("ended.json")
        self.assertEqual(document["status"], "interrupted", err)
        self.assertEqual([run["status"] for run in document["runs"]], ["failed", "interrupted"])
        self.assertIn("killed by signal 9", document["runs"][0]["error"])

    def test_repeats_instead(self):
        ended = dpbench("-c", "base.ini", "run.delay=constant(1ms)", "run.seconds=0.1", "sweep.repeats=1", "--output",
                        "repeats.json")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertIn("sweep.turns: this job cannot run in turns: run.delay", ended.stderr)
        self.assertEqual([row["turns"] for row in load("repeats.json")["rows"]], [None, None])


if __name__ == "__main__":
    counted.main()
