#!/usr/bin/env python3
# needs: plain
"""GPT-2's weights as Hugging Face publishes them: files written here, with nothing of ours, load and
give the loss of GPT-2's arithmetic, written here, too; what is saved in that layout; what is refused.
Run from the top of the tree; ends on `N passed, N failed, N skipped`."""

import json
import math
import random
import struct
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, "tests/lib")

import counted  # noqa: E402
from command import dpbench, own_directory, tiny, write  # noqa: E402

VOCABULARY, WIDTH, HEADS, BLOCKS, CONTEXT, LENGTH = 11, 8, 2, 2, 8, 6
EXPERIMENT = f"""[run]
results =
batch = 2
steps = 1
warmup_steps = 0
steady_limit_s = 0
precision = fp64
[model]
name = gpt
layers = {BLOCKS}
heads = {HEADS}
width = {WIDTH}
context = {CONTEXT}
[data]
name = tokens
path = ids
type = uint16
vocabulary = {VOCABULARY}
length = {LENGTH}
shuffle = no
[device]
name = reference
threads = 1
[optimizer]
name = adamw
learning_rate = 0.01
"""
IDS = [(7 * i * i + 3 * i) % VOCABULARY for i in range(20 * LENGTH + 1)]

# ---------------------------------------------------------------------------------------- files


def shapes():
    """Of Hugging Face's names: a Conv1D has its weight as [in, out]."""
    found = {"wte.weight": [VOCABULARY, WIDTH], "wpe.weight": [CONTEXT, WIDTH]}
    for i in range(BLOCKS):
        for layer, rows, columns in (("attn.c_attn", WIDTH, 3 * WIDTH), ("attn.c_proj", WIDTH, WIDTH),
                                     ("mlp.c_fc", WIDTH, 4 * WIDTH), ("mlp.c_proj", 4 * WIDTH, WIDTH)):
            found[f"h.{i}.{layer}.weight"] = [rows, columns]
            found[f"h.{i}.{layer}.bias"] = [columns]
        for layer in ("ln_1", "ln_2"):
            found |= {f"h.{i}.{layer}.{kind}": [WIDTH] for kind in ("weight", "bias")}
    return found | {f"ln_f.{kind}": [WIDTH] for kind in ("weight", "bias")}


def masks():
    found = {}
    for i in range(BLOCKS):
        found[f"h.{i}.attn.bias"] = ([1, 1, CONTEXT, CONTEXT], [1.0] * CONTEXT**2)
        found[f"h.{i}.attn.masked_bias"] = ([], [-1e4])
    return found


def drawn(seed=1):
    """Weights that bfloat16 has, so that every type has the same."""
    draw = random.Random(seed)
    return {name: (shape, [draw.randrange(-96, 97) / 128 for _ in range(math.prod(shape))])
            for name, shape in shapes().items()}


def encode(values, dtype):
    if dtype == "BF16":
        return b"".join(struct.pack("<f", value)[2:] for value in values)
    return struct.pack(f"<{len(values)}{ {'F64': 'd', 'F32': 'f', 'F16': 'e', 'I64': 'q'}[dtype] }",
                       *(map(int, values) if dtype == "I64" else values))


def write_weights(path, tensors, dtype="F32", types=None, text=None):
    """`types`: of tensors that have another; `text`: changes the header."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (shape, values) in tensors.items():
        kind = (types or {}).get(name, dtype)
        coded = encode(values, kind)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(coded)]}
        data += coded
    line = json.dumps(header)
    line = (text(line) if text else line).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(line)) + line + data)


def read_weights(path):
    """The metadata, and (shape, values) by name; the type is the one of all tensors."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    metadata, found = header.pop("__metadata__"), {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        assert entry["dtype"] == "F64"
        found[name] = (entry["shape"], list(struct.unpack(f"<{(end - begin) // 8}d", data[begin:end])))
    return metadata, found


def transposed(matrix):
    (rows, columns), values = matrix
    return [columns, rows], [values[i * columns + k] for k in range(columns) for i in range(rows)]


# ----------------------------------------------------------------------------- GPT-2's arithmetic


def rows_of(matrix):
    shape, values = matrix
    return [values[i:i + shape[1]] for i in range(0, len(values), shape[1])]


class GPT2:
    def __init__(self, weights):
        self.weights = weights

    def norm(self, x, name):
        gamma, beta = (self.weights[f"{name}.{kind}"][1] for kind in ("weight", "bias"))
        mean = sum(x) / len(x)
        scale = 1 / math.sqrt(sum((v - mean) ** 2 for v in x) / len(x) + 1e-5)
        return [(v - mean) * scale * g + b for v, g, b in zip(x, gamma, beta)]

    def conv1d(self, x, name):
        y = list(self.weights[name + ".bias"][1])
        for value, row in zip(x, rows_of(self.weights[name + ".weight"])):
            y = [a + value * b for a, b in zip(y, row)]
        return y

    @staticmethod
    def attention(qkv):
        """Of one sequence: a position sees itself and those before it."""
        out, size = [[] for _ in qkv], WIDTH // HEADS
        for first in range(0, WIDTH, size):
            q, k, v = ([x[part * WIDTH + first:part * WIDTH + first + size] for x in qkv] for part in range(3))
            for i, query in enumerate(q):
                scores = [math.exp(sum(a * b for a, b in zip(query, key)) / math.sqrt(size)) for key in k[:i + 1]]
                out[i] += [sum(s * row[c] for s, row in zip(scores, v)) / sum(scores) for c in range(size)]
        return out

    @staticmethod
    def gelu(x):
        return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    def loss(self, ids):
        """The mean over the positions of one sequence, which predict the next id."""
        tokens, positions = (rows_of(self.weights[name + ".weight"]) for name in ("wte", "wpe"))
        x = [[a + b for a, b in zip(tokens[id], positions[p])] for p, id in enumerate(ids[:-1])]
        for i in range(BLOCKS):
            y = self.attention([self.conv1d(self.norm(v, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn") for v in x])
            x = [[a + b for a, b in zip(v, self.conv1d(w, f"h.{i}.attn.c_proj"))] for v, w in zip(x, y)]
            y = [[self.gelu(a) for a in self.conv1d(self.norm(v, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc")] for v in x]
            x = [[a + b for a, b in zip(v, self.conv1d(w, f"h.{i}.mlp.c_proj"))] for v, w in zip(x, y)]
        total, head = 0, rows_of(self.weights.get("lm_head.weight", self.weights["wte.weight"]))
        for v, label in zip(x, ids[1:]):
            v = self.norm(v, "ln_f")
            logits = [sum(a * b for a, b in zip(v, row)) for row in head]
            total += math.log(sum(map(math.exp, logits))) - logits[label]
        return total / len(x)


def loss_of_batch(weights):
    """Of the first two samples."""
    return sum(GPT2(weights).loss(IDS[i * LENGTH:i * LENGTH + LENGTH + 1]) for i in range(2)) / 2


# ----------------------------------------------------------------------------------------- tests


class Layout(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        own_directory(cls)
        write("gpt.ini", EXPERIMENT)
        with open("ids", "wb") as file:
            file.write(struct.pack(f"<{len(IDS)}H", *IDS))
        cls.weights = drawn()

    def run_it(self, *settings):
        done = dpbench("-c", "gpt.ini", "--json", *settings)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout), done.stderr

    def expect_loss(self, wanted, note, *settings):
        result, said = self.run_it("run.mode=forward", "checkpoint.load=w.safetensors", *settings)
        self.assertLess(abs(result["loss"][0] / wanted - 1), 1e-13)
        self.assertEqual([w for w in result["warnings"] if w["code"].startswith("checkpoint")], [])
        self.assertEqual(said.count("recognised"), 1, said)
        self.assertIn(f"w.safetensors: recognised as layout gpt2{note}\n", said)

    def expect_refused(self, *words, settings=()):
        done = dpbench("check", "-c", "gpt.ini", "checkpoint.load=w.safetensors", *settings)
        self.assertEqual(done.returncode, 2, done.stderr)
        for word in words + ("w.safetensors: ",):
            self.assertIn(word, done.stderr)

    def test_loss_is_gpt2s(self):
        wanted = loss_of_batch(self.weights)
        for dtype, prefix in (("F32", ""), ("F64", "transformer."), ("F16", "module."), ("BF16", "module.transformer.")):
            note = f", with names behind '{prefix}'" if prefix else ""
            write_weights("w.safetensors", {prefix + name: tensor for name, tensor in self.weights.items()}, dtype)
            self.expect_loss(wanted, note)
        # As GPT2LMHeadModel has them: the classifier is no part of the transformer.
        whole = {"transformer." + name: tensor for name, tensor in (self.weights | masks()).items()}
        write_weights("w.safetensors", whole | {"lm_head.weight": self.weights["wte.weight"]})
        self.expect_loss(wanted, ", with names behind 'transformer.'")

    def test_untied_classifier(self):
        weights = self.weights | {"lm_head.weight": drawn(2)["wte.weight"]}
        write_weights("w.safetensors", weights)
        self.expect_loss(loss_of_batch(weights), "", "model.tied=no")
        self.expect_refused("'lm_head.weight' differs from 'wte.weight'", "model 'gpt' has one tensor for both")
        write_weights("w.safetensors", self.weights)
        self.expect_refused("has no tensor 'lm_head.weight'", settings=["model.tied=no"])

    def test_others_are_named(self):
        write_weights("w.safetensors", self.weights | {"score.weight": ([2], [0, 0])})
        result, _ = self.run_it("run.mode=forward", "checkpoint.load=w.safetensors")
        text, = (w["text"] for w in result["warnings"] if w["code"] == "checkpoint_other_tensors")
        self.assertIn("1 tensors are not the model's and were not read; the first is 'score.weight'", text)

    def test_saved_and_continued(self):
        """The same training, saved in both layouts: equal bits, and both go on as one that was not stopped."""
        write_weights("w.safetensors", self.weights)
        for workers in (1, 2):
            start = ["checkpoint.load=w.safetensors", "run.steps=4", f"run.workers={workers}",
                     "comm.name=" + ("shm" if workers > 1 else "independent")]
            whole, _ = self.run_it(*start)
            for layout in ("dpbench", "gpt2"):
                self.run_it(*start, "run.steps=2", f"checkpoint.save={layout}.safetensors",
                            f"checkpoint.layout={layout}")
                rest, _ = self.run_it(*start[2:], f"checkpoint.load={layout}.safetensors", "run.steps=2")
                self.assertEqual(rest["timing"]["first_step"], 2)
                self.assertEqual(rest["loss"], whole["loss"][2:])
            self.expect_same_bits(*read_weights("dpbench.safetensors"), *read_weights("gpt2.safetensors"))

    def test_state_begins_as_without_a_file(self):
        """RMSProp's mean square at 1."""
        write_weights("w.safetensors", self.weights)
        rule = ["checkpoint.load=w.safetensors", "optimizer.name=rmsprop", "optimizer.epsilon=0.1", "run.steps=3"]
        (continued, _), (anew, _) = (self.run_it(*rule, f"checkpoint.resume={word}") for word in ("yes", "no"))
        self.assertEqual(continued["loss"], anew["loss"])

    def expect_same_bits(self, about, ours, their_about, theirs):
        own = {"wte": "tokens", "wpe": "positions", "ln_f": "norm"}
        for i in range(BLOCKS):
            for name, layer in (("ln_1", "norm1"), ("attn.c_attn", "qkv"), ("attn.c_proj", "projection"),
                                ("ln_2", "norm2"), ("mlp.c_fc", "fc1"), ("mlp.c_proj", "fc2")):
                own[f"h.{i}.{name}"] = f"block{i + 1}.{layer}"
        wanted = {}
        for state in ("", "optimizer.exp_avg.", "optimizer.exp_avg_sq."):
            for name, shape in shapes().items():
                layer, kind = name.rsplit(".", 1)
                found, values = ours[f"{state}{own[layer]}.{kind}"]
                matrix = [d for d in found if len(found) < 3 or d > 1], values
                wanted[state + name] = transposed(matrix) if ".c_" in name and kind == "weight" else matrix
                self.assertEqual(wanted[state + name][0], shape)
        self.assertEqual(theirs, wanted)
        self.assertEqual(their_about.pop("format"), "pt")
        for one in (about, their_about):
            self.assertGreater(int(one.pop("dpbench.trained_ns")), 0)
        self.assertEqual(their_about, about)

    def test_damaged_files_are_refused(self):
        def without(name):
            return {key: tensor for key, tensor in self.weights.items() if key != name}

        write_weights("w.safetensors", without("h.1.mlp.c_fc.weight"))
        self.expect_refused("has no tensor 'h.1.mlp.c_fc.weight'; is it of another model?")
        write_weights("w.safetensors", without("wte.weight"))
        self.expect_refused("has no tensor 'wte.weight'")
        name = "h.0.attn.c_attn.weight"
        write_weights("w.safetensors", self.weights | {name: transposed(self.weights[name])})
        self.expect_refused(f"tensor '{name}' has shape [24,8], the model's has [8,24]")
        write_weights("w.safetensors", self.weights, types={name: "I64"})
        self.expect_refused(f"tensor '{name}' is of type 'I64'; F64, F32, F16 and BF16 are read")
        both = self.weights | {"transformer.ln_f.bias": self.weights["ln_f.bias"]}
        write_weights("w.safetensors", both)
        self.expect_refused("has both 'ln_f.bias' and 'transformer.ln_f.bias'", "leave one out")
        both = self.weights | {"lm_head.weight": self.weights["wte.weight"]}
        write_weights("w.safetensors", both | {"module.lm_head.weight": both["wte.weight"]})
        self.expect_refused("has both 'lm_head.weight' and 'module.lm_head.weight'")
        write_weights("w.safetensors", both, types={"lm_head.weight": "I64"})
        self.expect_refused("tensor 'lm_head.weight' is of type 'I64'")
        write_weights("w.safetensors", self.weights, text=lambda line: line.replace("ln_f.bias", "ln_f.weight"))
        self.expect_refused("its header is not JSON: duplicate object key")
        write_weights("w.safetensors", self.weights)
        self.expect_refused("tensor 'wpe.weight' has shape [8,8], the model's has [9,8]",
                            settings=["model.context=9"])

    def test_layouts_that_a_model_lacks(self):
        write("tiny.ini", tiny(1, 0))
        for file, layout, words in (("tiny.ini", "gpt2", "= gpt2: model 'tiny' has no such layout; take dpbench\n"),
                                    ("gpt.ini", "hf", "= hf: model 'gpt' has no such layout; take dpbench or gpt2\n")):
            done = dpbench("check", "-c", file, "checkpoint.save=s.safetensors", f"checkpoint.layout={layout}")
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(words, done.stderr)
        done = dpbench("check", "-c", "gpt.ini", "checkpoint.layout=gpt2")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("checkpoint.layout = gpt2 does nothing: it needs checkpoint.save (not given); leave", done.stderr)


if __name__ == "__main__":
    counted.main()
