#!/usr/bin/env python3
# needs: cpu plain
"""The JSON Schemas of dpbench's documents: what commands write is valid, each field stands in
docs/results.md, and a field that no schema has is refused. Run from the top of the tree; ends on
`N passed, N failed, N skipped`."""

import copy
import glob
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
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
from command import DPBENCH, dpbench, load, own_directory, read, tiny, write  # noqa: E402

BASE = tiny(4, 1)
TWO = "run.workers=2 comm.name="
RUNS = {
    "target": (0, TWO + "shm eval.every=2 eval.target=0.01"),
    "codec": (0, TWO + "ps_cpu run.servers=1 comm.codec=topk"),
    "age": (0, TWO + "ps_async run.servers=1"),
    "tcp": (0, TWO + "ring_tcp"),
    "profile": (0, "device.name=cpu comm.name=independent run.profile=yes"),
    "long": (0, TWO + "shm run.seconds=0.6 run.monitor=0.1s"),
    "failed": (1, "comm.name=independent run.nan=stop optimizer.learning_rate=1000000 run.steps=50"),
    "sweep": (0, "sweep.comm.name=shm,independent sweep.repeats=2 sweep.accuracy=2 sweep.retry_disturbed=0 "
                 "'published.comm.name shm=2, a paper, a machine'"),
    "reached": (0, "sweep.comm.name=shm,independent sweep.seeds=2 sweep.retry_disturbed=0 eval.every=1 "
                   "eval.target=0.01"),
    "refused": (0, "sweep.skip_refused=yes sweep.comm.name=shm,gossip sweep.repeats=1 sweep.retry_disturbed=0 "
                   "comm.codec=topk"),
    "tune": (0, "tune.run.batch=4,8 tune.repeats=2 tune.retry_disturbed=0"),
    "alone": (0, "comm.name=independent"),
}
COMMANDS = {
    "comm": "comm -c base.ini run.workers=2 comm.name=ring_tcp comm_test.sizes=4KiB,64KiB comm_test.iterations=5",
    "one size": "comm -c base.ini run.workers=2 comm.name=shm comm_test.sizes=8 comm_test.codecs=no "
                "comm_test.iterations=5",
    "data": "data -c base.ini run.steps=3",
    "images": "data -c images.ini run.steps=3",
    "links": "links --window 1ms --max 16KiB",
    "topology": "links topology",
    "network": "links network run.workers=2 comm.hosts=1+1 comm.interface=lo comm_test.seconds=5ms "
               "comm_test.max_bytes=16KiB",
    "by profile": "predict v100.json --link 10Gbit,20us --workers 2,4",
    "given": "predict alone.json --link 10Gbit,20us --workers 2,4",
    "fitted": "predict alone.json --comm comm.json --workers 2,3 --batches 4,8",
    "accelerator": "profile show v100_alexnet",
    "slowest": "predict alone.json --links network.json --workers 2",
}
PROFILE = {"schema": "dpbench.profile/1", "accelerator": "V100", "model": "two", "precision": "fp32",
           "kind": "estimated", "source": "made up", "batch": 8, "macs_per_sample": 0,
           "forward_ns": 1000000, "backward_ns": 2000000, "spread": 0.01,
           "tensors": [{"name": "b", "elements": 1000, "ready_ns": 500000},
                       {"name": "a", "elements": 2000, "ready_ns": 2000000}]}
JPEG = bytes.fromhex(  # one grey pixel
    "ffd8ffdb00430003020202020203020202030303030406040404040408060605060908"
    "0a0a090809090a0c0f0c0a0b0e0b09090d110d0e0f101011100a0c12131210130f101010"
    "ffc9000b080001000101011100ffcc000600101005ffda0008010100003f00d2cf20ffd9")


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
        cls.docs = {schema["$id"]: read(schema["title"].split(": ")[-1])
                    for schema in cls.schemas.values()}
        cls.by_environment = os.path.abspath("tests/lib/by_environment")
        own_directory(cls)
        write("base.ini", BASE)
        for name, (code, options) in RUNS.items():
            ended = dpbench("-c", "base.ini", *shlex.split(options), "--output", f"{name}.json")
            assert ended.returncode == code, (name, ended.returncode, ended.stderr)
        cls.documents = {name: load(f"{name}.json") for name in RUNS}
        for split, image in itertools.product(("train", "val"), range(8)):
            os.makedirs(f"images/{split}/{image % 2}", exist_ok=True)
            with open(f"images/{split}/{image % 2}/{image}.jpg", "wb") as file:
                file.write(JPEG)
        write("images.ini", re.sub(r"\[data\].*\n.*\n.*", "[data]\nname = image_folder\npath = images", BASE))
        write("v100.json", json.dumps(PROFILE))
        for name, words in COMMANDS.items():
            ended = dpbench(*words.split(), "--json")
            assert ended.returncode == 0, (name, ended.stderr)
            cls.documents[name] = json.loads(ended.stdout)
            write(f"{name}.json", ended.stdout)
        ended = subprocess.run([cls.by_environment, "2", DPBENCH, *"data -c base.ini run.seconds=5ms --json".split()],
                               capture_output=True, text=True, timeout=100, check=True)
        cls.documents["loaded"] = json.loads(ended.stdout)
        for a, b in (("target", "codec"), ("sweep", "reached"), ("reached", "reached")):
            ended = dpbench("compare", f"{a}.json", f"{b}.json", "--json")
            assert ended.returncode == 0, ended.stderr
            cls.documents[f"{a}, {b}"] = json.loads(ended.stdout)

    def errors_of(self, document):
        name = document["schema"].removeprefix("dpbench.").split("/")[0] + ".json"
        resolver = jsonschema.RefResolver(name, self.schemas[name], store=self.schemas)
        validator = jsonschema.Draft202012Validator(self.schemas[name], resolver=resolver)
        return [f"{'.'.join(map(str, error.absolute_path))}: {error.message[:300]}"
                for error in validator.iter_errors(document)]

    def test_schemas_are_schemas(self):
        self.assertEqual(sorted(self.schemas), ["comm.json", "compare.json", "data.json", "links.json",
                                                "predict.json", "profile.json", "result.json", "sweep.json"])
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
        self.assertLessEqual({"accuracy_workers", "published"}, set(found["sweep"]))
        self.assertIsNotNone(found["reached"]["rows"][0]["to_target"]["seconds"]["mean"])
        self.assertIn("failure", found["refused"]["runs"][0].keys() | found["refused"]["runs"][1].keys())
        self.assertIsNotNone(found["tune"]["tune"]["best"])
        self.assertIsNotNone(found["reached, reached"]["rows"][0]["to_target"])
        self.assertGreater(len(found["comm"]["codecs"]), 0)
        self.assertIsNone(found["one size"]["codecs"])
        self.assertIn("skipped_samples", found["images"]["points"][0]["windows"][0])
        self.assertEqual(set(found["links"]) - set(found["topology"]), {"memory", "cores", "loopback", "devices"})
        self.assertEqual({link["source"] for link in found["given"]["links"] + found["fitted"]["links"]},
                         {"data sheet", "measured"})

    def test_another_field_is_refused(self):
        """In each object but those whose members have names of the user's or the plugins'."""
        free = {"config", "environment", "libraries", "plugins", "inputs", "cell", "axes", "over", "held_s", "paths", "key",
                "values"}
        for name in ("target", "sweep", "tune", "reached, reached", "comm", "data", "loaded", "links", "network",
                     "fitted", "accelerator"):
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
        for name, schema in self.schemas.items():
            words = set(re.findall(r"\w+", " ".join(re.findall("`([^`]+)`", self.docs[name]))))
            for path, value in objects_of(schema):
                if path and path[-1] == "properties":
                    self.assertEqual([key for key in value if key not in words], [], (name, path))


if __name__ == "__main__":
    counted.main()
