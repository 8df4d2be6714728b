#!/usr/bin/env python3
# needs: built
"""`dpbench help` knows every word in the head of a table, and every word that a note below one explains. The words
are those of the sources. Run from the top of the tree; ends on `N passed, N failed, N skipped`."""
import glob
import os
import re
import subprocess
import sys
import unittest

sys.path.insert(0, "tests/lib")

import counted  # noqa: E402

BUILD = os.environ.get("DPB_BUILD", "build")
STRING = r'"((?:\\.|[^"\\])*)"'
PADDED = r"(?:\\n)? *(?:%-?(?:\d+|\*)s *){3,}(?:%s)?\\n"
UNITS = r" (?:us|ms|MB/s|GB/s|Gbit/s|samples/s|seconds|in points)$"


def heads(text):
    """The heads of tables in a source: arrays of titles; formats of padded strings alone; texts of
    words with gaps between them."""
    for titles in re.findall(r"\btitles?\b[^=;{]*=\s*\{([^}]*)\}", text):
        yield from re.findall(STRING, titles)
    for call in re.findall(r'printf\(((?:[^;"]|"(?:\\.|[^"\\])*")*)\);', text):
        form, *words = re.findall(STRING, call) or [""]
        whole = "".join([form, *words])
        if re.fullmatch(PADDED, form) and len(words) > 2:
            yield from words
        elif re.search(r"[a-z/]{2,} {2,}[a-zA-Z/]+ {2,}[a-z]", whole) and "%" not in whole.replace("%s", ""):
            yield from re.split(r" {2,}", re.sub(r"%s|\\n", "  ", whole))


def notes(text):
    """What stands before a colon where a note, or a part of one, begins."""
    for string in re.findall(STRING, text):
        yield from re.findall(r"(?:^- |^; |\. )([a-z][a-z/.]*(?: [a-z0-9]+)?): [a-z]", string)


def output(*words):
    return subprocess.run(words, capture_output=True, check=True, text=True).stdout


def known():
    """The terms, of which help is made, also as several; and the options of core's sections."""
    terms = set(re.findall(r'TERM\("([^"]*)"', output("tools/glossary", "docs/glossary.md")))
    options = set()
    for source in ("core/base/settings.c", "core/cli/sweep_options.c"):
        with open(source, encoding="utf-8") as file:
            options.update(re.findall(r'{"(\w+)", DPB_OPT_', file.read()))
    return terms | {term + "s" for term in terms} | options


class Words(unittest.TestCase):
    def test_all(self):
        words, has = set(), known()
        for source in (p for room in "core study links watch emulate".split()
                       for p in glob.glob(room + "/**/*.c", recursive=True)):
            with open(source, encoding="utf-8") as file:
                text = file.read()
            words.update(heads(text))
            if source.startswith("study/table/"):
                words.update(notes(text))
        words = {re.sub(UNITS, "", re.sub(r" (?:as rates )?\[.*", "", part.strip()))
                 for word in words for part in word.split(", or ")}
        words = {w for w in words if re.search("[A-Za-z]", w)}
        self.assertLessEqual({"speedup", "busbw", "to target", "wait", "of fp32"}, words)
        # Two heads may have one blank between them.
        self.assertEqual([w for w in sorted(words) if w not in has and not set(w.split()) <= has], [])

    def test_answers(self):
        for word, answer in (("target", "term target: the test accuracy"), ("of fp32", "term of fp32: "),
                             ("workers", "term worker: a rank that trains"), ("batch", "run.batch = ")):
            self.assertIn(answer, output(BUILD + "/dpbench", "help", word))


if __name__ == "__main__":
    counted.main()
