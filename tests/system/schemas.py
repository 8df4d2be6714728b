#!/usr/bin/env python3
# needs: cpu plain
"""The JSON Schemas of dpbench's documents: what commands write is valid, each field stands in
docs/results.md, and a field that no schema has is refused. Run from the top of the tree; ends on
`N passed, N failed, N skipped`."""

import copy
import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
import warnings

sys.dont_write_bytecode = True
sys.path.insert(0, "tests/lib")

try:
    import jsonschema
except ImportError:  # the distribution's package is for the distribution's python
    if sys.executable != "/usr/bin/python3":
        os.execv("/usr/bin/python3", ["/usr/bin/python3", *sys.argv])
    raise

import counted  # noqa: E402

DPBENCH = os.path.abspath(os.path.join(os.environ.get("DPB_BUILD", "build"), "dpbench"))
BASE = """[run]
results =
batch = 4
steps = 4
warmup_steps = 1
steady_limit_s = 0
[model]
name = tiny
[data]
samples = 64
test_samples = 16
[device]
name = reference
threads = 1
"""
TWO = "run.workers=2 comm.name="
RUNS = {
    "target": (0, TWO + "shm eval.every=2 eval.target=0.01"),
    "codec": (0, TWO + "ps_cpu run.servers=1 comm.codec=topk"),
    "age": (0, TWO + "ps_async run.servers=1"),
    "tcp": (0, TWO + "ring_tcp"),
    "profile": (0, "device.name=cpu comm.name=independent run.profile=yes"),
    "long": (0, TWO + "shm run.seconds=0.6 run.monitor=0.1s"),
    "failed": (1, "comm.name=independent run.nan=stop optimizer.learning_rate=1000000 run.steps=50"),
    "sweep": (0, "sweep.comm.name=shm,independent sweep.repeats=2 sweep.accuracy=2 sweep.retry_disturbed=0"),
    "reached": (0, "sweep.comm.name=shm,independent sweep.seeds=2 sweep.retry_disturbed=0 eval.every=1 "
                   "eval.target=0.01"),
    "refused": (1, "sweep.comm.name=shm,hierarchical sweep.repeats=1 sweep.retry_disturbed=0 "
                   "comm.codec=topk"),
    "tune": (0, "tune.run.batch=4,8 tune.repeats=2 tune.retry_disturbed=0"),
}


def dpbench(*arguments):
    return subprocess.run([DPBENCH, *arguments], capture_output=True, text=True, timeout=100, check=False)


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def objects_of(value, path=()):
    """All objects below a value, each with its path."""
    if isinstance(value, dict):
        yield path, value
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        yield from objects_of(member, (*path, key))


class Documents(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        warnings.simplefilter("ignore", DeprecationWarning)  # RefResolver; both versions have it
        cls.schemas = {os.path.basename(path): load(path) for path in glob.glob("schemas/*.json")}
        with open("docs/results.md", encoding="utf-8") as file:
            cls.docs = file.read()
        cls.directory = tempfile.TemporaryDirectory()
        cls.before = os.getcwd()
        os.chdir(cls.directory.name)
        with open("base.ini", "w", encoding="ascii") as file:
            file.write(BASE)
        for name, (code, options) in RUNS.items():
            ended = dpbench("-c", "base.ini", *options.split(), "--output", f"{name}.json")
            assert ended.returncode == code, (name, ended.returncode, ended.stderr)
        cls.documents = {name: load(f"{name}.json") for name in RUNS}
        for a, b in (("target", "codec"), ("sweep", "reached"), ("reached", "reached")):
            ended = dpbench("compare", f"{a}.json", f"{b}.json", "--json")
            assert ended.returncode == 0, ended.stderr
            cls.documents[f"{a}, {b}"] = json.loads(ended.stdout)

    @classmethod
    def tearDownClass(cls):
        os.chdir(cls.before)
        cls.directory.cleanup()

    def errors_of(self, document):
        name = document["schema"].removeprefix("dpbench.").split("/")[0] + ".json"
        resolver = jsonschema.RefResolver(name, self.schemas[name], store=self.schemas)
        validator = jsonschema.Draft202012Validator(self.schemas[name], resolver=resolver)
        return [f"{'.'.join(map(str, error.absolute_path))}: {error.message[:300]}"
                for error in validator.iter_errors(document)]

    def test_schemas_are_schemas(self):
        self.assertEqual(sorted(self.schemas), ["compare.json", "result.json", "sweep.json"])
        for schema in self.schemas.values():
            jsonschema.Draft202012Validator.check_schema(schema)

    def test_documents_are_valid(self):
        for name, document in self.documents.items():
            self.assertEqual(self.errors_of(document), [], name)

    def test_documents_have_what_is_optional(self):
        """Else their schemas would be held to nothing."""
        found = self.documents
        self.assertIsNotNone(found["target"]["target"]["at"])
        self.assertIsNotNone(found["codec"]["comm"]["codec"])
        self.assertIsNotNone(found["age"]["strategy"]["age"])
        self.assertIn("comm", found["tcp"]["ranks"][0])
        self.assertGreater(len(found["profile"]["profile"]["rows"]), 0)
        self.assertIsNotNone(found["long"]["why"])
        self.assertIsNotNone(found["long"]["monitor"])
        self.assertEqual(found["failed"]["status"], "failed")
        self.assertIn("accuracy_workers", found["sweep"])
        self.assertIsNotNone(found["reached"]["rows"][0]["to_target"]["seconds"]["mean"])
        self.assertIn("failure", found["refused"]["runs"][0].keys() | found["refused"]["runs"][1].keys())
        self.assertIsNotNone(found["tune"]["tune"]["best"])
        self.assertIsNotNone(found["reached, reached"]["rows"][0]["to_target"])

    def test_another_field_is_refused(self):
        """In each object but those whose members have names of the user's or the plugins'."""
        free = {"config", "environment", "libraries", "plugins", "inputs", "cell", "axes", "over", "held_s"}
        for name in ("target", "sweep", "tune", "reached, reached"):
            document = self.documents[name]
            document = {**document, "runs": [], "config": {}} if "runs" in document else document
            for path, _ in objects_of(document):
                names = [key for key in path if isinstance(key, str)]
                last = names[-1] if names else ""
                if last in free or "config" in names or names[:1] in (["only_a"], ["only_b"]) or \
                        names == ["ranks", "comm"] or (names[:1] == ["differences"] and len(path) > 2):
                    continue
                changed = copy.deepcopy(document)
                place = changed
                for key in path:
                    place = place[key]
                place["undocumented"] = 1
                self.assertNotEqual(self.errors_of(changed), [], (name, path))

    def test_fields_are_documented(self):
        words = set(re.findall(r"\w+", " ".join(re.findall("`([^`]+)`", self.docs))))
        for name, schema in self.schemas.items():
            for path, value in objects_of(schema):
                if path and path[-1] == "properties":
                    self.assertEqual([key for key in value if key not in words], [], (name, path))


if __name__ == "__main__":
    counted.main()
