#!/usr/bin/env python3
# needs: plain waits
"""The line of progress on a terminal: as wide as the terminal, and no wider. Run from the top of
the tree; ends on `N passed, N failed, N skipped`."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, "tests/lib")

import counted  # noqa: E402

BUILD = os.path.abspath(os.environ.get("DPB_BUILD", "build"))
OPTIONS = """run.results= run.steady_limit_s=0 run.warmup_steps=1 run.steps=150 model.name=timed
data.name=timed device.name=timed device.threads=1 device.forward=5 device.backward=5
comm.name=shm sweep.optimizer.learning_rate=0.01 sweep.optimizer.momentum=0.5
sweep.run.batch=8 sweep.repeats=1 sweep.retry_disturbed=0""".split()


# A label of more than 255 characters is cut.
LONG = """sweep.run.name={} sweep.optimizer.weight_decay=0.0001 sweep.run.seed=123456789
sweep.data.shuffle=yes sweep.comm.bucket=4MiB sweep.run.timeout_s=60
sweep.run.stall_warning_s=30""".format("n" * 60).split()


def lines_at(columns, more=()):
    """What a run draws on a terminal of so many columns, one after the other."""
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    seen = []

    def read():
        try:
            while block := os.read(terminal, 65536):
                seen.append(block)
        except OSError:  # the other end is closed
            pass

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    with tempfile.TemporaryDirectory() as path:
        with open(os.path.join(path, "empty.ini"), "w", encoding="ascii"):
            pass
        environment = dict(os.environ, DPBENCH_PLUGIN_PATH=os.path.join(BUILD, "tests/plugins"))
        done = subprocess.run([os.path.join(BUILD, "dpbench"), "-c", "empty.ini", *OPTIONS, *more],
                              cwd=path, env=environment, stdout=subprocess.DEVNULL, stderr=end,
                              timeout=100, check=False)
    os.close(end)
    reader.join()
    os.close(terminal)
    assert done.returncode == 0, seen
    text = b"".join(seen).decode()
    # A line of progress begins behind an erasing and ends at the next one; a message ends itself.
    return [line for line in re.findall(r"\r\x1b\[K([^\r\n]*)(?=\r\x1b)", text) if line]


class Progress(unittest.TestCase):
    def test_a_wide_terminal_has_all_of_it(self):
        lines = lines_at(200)
        whole = re.compile(r"step \d+ / \d+  \S+ steps/s  ETA ")
        self.assertTrue(any(map(whole.search, lines)), lines)
        self.assertGreater(max(map(len, lines)), 79)

    def test_a_long_label_leaves_room_for_the_step(self):
        lines = lines_at(600, LONG)
        self.assertTrue(any(len(x) > 300 and " steps/s  ETA " in x for x in lines), lines)

    def test_a_narrow_one_is_not_left(self):
        for columns in (80, 30):
            lines = lines_at(columns)
            self.assertTrue(lines)
            self.assertEqual(max(map(len, lines)), columns - 1, lines)


if __name__ == "__main__":
    counted.main()
