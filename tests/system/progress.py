#!/usr/bin/env python3
# needs: plain waits
"""What is shown of running jobs: on a terminal as wide as the terminal, and no wider, elsewhere
twice a minute; and to others, by `dpbench watch`. Run from the top of the tree; ends on `N passed, N failed, N skipped`."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, "tests/lib")

import counted  # noqa: E402

BUILD = os.path.abspath(os.environ.get("DPB_BUILD", "build"))
OPTIONS = """run.results= run.steady_limit_s=0 run.warmup_steps=1 run.steps=100 model.name=timed
data.name=timed device.name=timed device.threads=1 device.forward=5 device.backward=5
comm.name=shm sweep.optimizer.learning_rate=0.01 sweep.optimizer.momentum=0.5
sweep.run.batch=8 sweep.repeats=2 sweep.retry_disturbed=0""".split()


# A label of more than 255 characters is cut.
LONG = """sweep.run.name={} sweep.optimizer.weight_decay=0.0001 sweep.run.seed=123456789
sweep.data.shuffle=yes sweep.comm.bucket=4MiB sweep.run.timeout_s=60
sweep.run.stall_warning_s=30""".format("n" * 60).split()


class Terminal:
    """A terminal of so many columns, and what was written on it."""

    def __init__(self, columns):
        self.side, self.end = pty.openpty()
        fcntl.ioctl(self.end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.seen = []
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        try:
            while block := os.read(self.side, 65536):
                self.seen.append(block)
        except OSError:  # the other end is closed
            pass

    def close(self):
        """The text."""
        os.close(self.end)
        self.reader.join()
        os.close(self.side)
        return b"".join(self.seen).decode()


def start(options, **streams):
    """dpbench in a directory of its own, with the plugins of the tests."""
    path = tempfile.TemporaryDirectory()
    with open(os.path.join(path.name, "empty.ini"), "w", encoding="ascii"):
        pass
    environment = dict(os.environ, DPBENCH_PLUGIN_PATH=os.path.join(BUILD, "tests/plugins"))
    process = subprocess.Popen([os.path.join(BUILD, "dpbench"), *options], cwd=path.name,
                               env=environment, **streams)
    process.directory = path  # removed with it
    return process


def lines_at(columns, more=()):
    """What a sweep draws on a terminal of so many columns, one after the other."""
    terminal = Terminal(columns)
    process = start(["-c", "empty.ini", *OPTIONS, *more], stdout=subprocess.DEVNULL, stderr=terminal.end)
    code = process.wait(timeout=100)
    text = terminal.close()
    assert code == 0, text
    # A line of progress begins behind an erasing and ends at the next one; a message ends itself.
    return [line for line in re.findall(r"\r\x1b\[K([^\r\n]*)(?=\r\x1b)", text) if line]


TIME = r"\d+ (s|min)"
NUMBERS = re.compile(rf"  step \d+ / \d+  \S+ samples/s  loss \S+  ETA {TIME}, all {TIME}$")


class Progress(unittest.TestCase):
    def test_a_wide_terminal_has_all_of_it(self):
        lines = lines_at(200)
        self.assertTrue(any(map(NUMBERS.search, lines)), lines)
        self.assertGreater(max(map(len, lines)), 79)

    def test_a_long_label_leaves_room_for_the_numbers(self):
        for columns in (600, 80):
            lines = lines_at(columns, LONG)
            self.assertTrue(any(map(NUMBERS.search, lines)), lines)
            self.assertGreaterEqual(max(map(len, lines)), min(columns - 1, 300), lines)
            self.assertLess(max(map(len, lines)), columns, lines)

    def test_values_stay_where_names_have_no_room(self):
        lines = lines_at(90)
        self.assertTrue(any(re.search(r"^\[\d/2\] 0.01 0.5 8  step \d", line) for line in lines), lines)

    def test_a_narrow_one_is_not_left(self):
        for columns in (50, 30):
            lines = lines_at(columns)
            self.assertTrue(lines)
            self.assertEqual(max(map(len, lines)), columns - 1, lines)

    def test_without_a_terminal_two_lines_a_minute(self):
        process = start(["-c", "empty.ini", *OPTIONS, "run.steps=3200"], stdout=subprocess.DEVNULL,
                        stderr=subprocess.PIPE, text=True)
        first = [process.stderr.readline() for _ in range(2)]
        process.send_signal(signal.SIGINT)
        text = "".join(first) + process.communicate(timeout=60)[1]
        lines = [line for line in text.splitlines() if "samples/s  loss" in line]
        self.assertEqual(len(lines), 1, text)
        self.assertRegex(lines[0], NUMBERS)


ONE = [word for word in OPTIONS if not word.startswith("sweep.")] + ["run.batch=8", "run.workers=2"]


class Watch(unittest.TestCase):
    def job(self, *more):
        """A job that has begun to train, ended with the test."""
        process = start(["-c", "empty.ini", *ONE, *more], stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        deadline = time.monotonic() + 30
        while "samples/s" not in self.once(process.pid)[1] and time.monotonic() < deadline:
            time.sleep(0.2)
        return process

    @staticmethod
    def once(pid):
        done = subprocess.run([os.path.join(BUILD, "dpbench"), "watch", str(pid)], timeout=30,
                              capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    def test_without_a_terminal_it_looks_once(self):
        process = self.job("run.steps=100000", "run.name=far away")
        code, text, _ = self.once(process.pid)
        self.assertEqual(code, 0)
        first, *ranks = text.splitlines()
        self.assertRegex(first, rf"^{process.pid}  far away.*  step \d+ / \d+  \S+ samples/s  loss ")
        self.assertEqual(len(ranks), 2, text)
        for rank, line in enumerate(ranks):
            self.assertRegex(line, rf"^  rank {rank} \(\S+, pid \d+\)  \w+ of step \d+")

    def test_it_fits_the_terminal_and_ends_with_the_job(self):
        for columns in (120, 40):
            process = self.job("run.steps=100000")
            terminal = Terminal(columns)
            watch = start(["watch", str(process.pid)], stdout=terminal.end, stderr=subprocess.DEVNULL)
            deadline = time.monotonic() + 30
            while b"".join(terminal.seen).count(b"rank 1 (") < 2 and time.monotonic() < deadline:
                time.sleep(0.1)  # two pictures
            self.assertIsNone(watch.poll())
            process.kill()  # by SIGKILL: nothing of the job says goodbye
            process.wait()
            self.assertEqual(watch.wait(timeout=30), 0)
            lines = re.sub(r"\x1b\[\d*[A-Z]", "", terminal.close()).splitlines()
            self.assertEqual(lines[-1], "all jobs have ended")
            self.assertGreater(len(lines), 6)  # two pictures of three lines
            self.assertLess(max(map(len, lines)), columns, lines)

    def test_where_there_is_none(self):
        code, _, errors = self.once(os.getpid())
        self.assertEqual(code, 1)
        self.assertIn(f"process {os.getpid()} runs no job", errors)


if __name__ == "__main__":
    counted.main()
