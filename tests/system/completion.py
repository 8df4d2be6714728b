#!/usr/bin/env python3
# needs: built
"""Words and names of files are completed in bash and zsh, as somebody types them into a terminal. Run from the top of the
tree; ends on `N passed, N failed, N skipped`."""
import os
import pty
import select
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, "tests/lib")

import counted  # noqa: E402

BUILD = os.environ.get("DPB_BUILD", "build")
TREE = os.getcwd()
DEADLINE_S = 60

# What is typed (a tab completes), and the words that the program then gets.
CASES = [
    ("dpbench ga\tx\n", ["gate", "x"]),
    ("dpbench compare my\t\n", ["compare", "my run.json"]),
    ("dpbench compare my\\ r\t\n", ["compare", "my run.json"]),
    ("dpbench -c con\tqui\tx=1\n", ["-c", "conf/quick.ini", "x=1"]),
    ("dpbench -c conf/quick.ini checkpoint.save=con\tqui\t\n",
     ["-c", "conf/quick.ini", "checkpoint.save=conf/quick.ini"]),
    ("dpbench -c conf/quick.ini checkpoint.load=my\t\n",
     ["-c", "conf/quick.ini", "checkpoint.load=my run.json"]),
]


class Shell:
    """A shell in a terminal of its own."""

    def __init__(self, directory, *words):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.chdir(directory)
            os.execvpe(words[0], words, {"PATH": os.environ["PATH"], "HOME": directory,
                                         "TERM": "dumb", "PS1": "$ ", "LC_ALL": "C.UTF-8"})

    def type(self, text):
        os.write(self.terminal, text.encode())

    def read_until(self, mark):
        """What the terminal shows up to the mark."""
        shown, end = "", time.monotonic() + DEADLINE_S
        while mark not in shown:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.terminal], [], [], left)[0]:
                raise AssertionError(f"{mark!r} did not come; the terminal shows {shown!r}")
            shown += os.read(self.terminal, 65536).decode(errors="replace")
        return shown

    def close(self):
        os.close(self.terminal)
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)


class Completion(unittest.TestCase):
    def setUp(self):
        self.work = tempfile.TemporaryDirectory()
        self.addCleanup(self.work.cleanup)
        self.pages = f"{self.work.name}/share/bash-completion/completions"
        subprocess.run([f"{TREE}/tools/pages", f"{TREE}/{BUILD}/dpbench", self.pages], check=True)
        self.files = f"{self.work.name}/files"
        os.makedirs(f"{self.files}/conf")
        for name in ("conf/quick.ini", "my run.json"):
            open(f"{self.files}/{name}", "w", encoding="utf-8").close()

    def check(self, shell, prepare):
        self.addCleanup(shell.close)
        # Written in two parts, so that the mark is not in what the terminal echoes.
        show = "dpbench() { printf '[%s]' \"$@\"; echo 'E''ND'; }\n"
        shell.type(prepare + show + "echo 'REA''DY'\n")
        shell.read_until("READY")
        for typed, words in CASES:
            shell.type(typed)
            shown = shell.read_until("END")
            self.assertIn("".join(f"[{word}]" for word in words) + "END", shown, typed)

    def test_bash(self):
        self.check(Shell(self.files, "bash", "--norc", "--noprofile", "-i"),
                   f"bind 'set enable-bracketed-paste off'; source {self.pages}/dpbench\n")

    def test_zsh(self):
        functions = f"{self.work.name}/share/zsh/site-functions"
        os.makedirs(functions)
        os.rename(f"{self.pages}/_dpbench", f"{functions}/_dpbench")
        self.check(Shell(self.files, "zsh", "-f", "-i"),
                   f"unsetopt zle_bracketed_paste 2>/dev/null; fpath=({functions} $fpath); "
                   "autoload -U compinit; compinit -u -D\n")


if __name__ == "__main__":
    counted.main()
