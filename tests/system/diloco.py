#!/usr/bin/env python3
# needs: plain
"""diloco and local_sgd against a plain script of the papers' rules, in float64: the same network,
samples, order and first weights, AdamW inside, ten meetings. Run from the top of the tree; ends on
`N passed, N failed, N skipped`."""

import json
import math
import struct
import sys
import unittest

sys.dont_write_bytecode = True
sys.path[:0] = ["tests/lib"]

import counted  # noqa: E402
from command import dpbench, own_directory  # noqa: E402

SIDE, CLASSES, BATCH, STEPS_OF_EPOCH, PERIOD, MEETINGS = 9, 5, 2, 7, 3, 10
RATE, BETA1, BETA2, EPSILON, DECAY = 0.01, 0.9, 0.95, 1e-6, 0.1
LAYERS = ("fc1", "fc2", "fc3")
SETTINGS = ("-c empty.ini --json run.results= run.steady_limit_s=0 run.warmup_steps=0 "
            "run.precision=fp64 device.name=reference device.threads=1 model.name=tiny_dense "
            f"data.name=idx data.path=. data.shuffle=no run.batch={BATCH} comm.bucket=424 "
            f"optimizer.name=adamw optimizer.beta1={BETA1} optimizer.beta2={BETA2} "
            f"optimizer.epsilon={EPSILON} optimizer.weight_decay={DECAY}")


def run(settings):
    done = dpbench(*SETTINGS.split(), *settings.split())
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def load_tensors(path):
    """Name to a flat list, of a file in safetensors with F64 alone."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    header.pop("__metadata__", None)
    pieces = {name: data[slice(*about["data_offsets"])] for name, about in header.items()}
    return {name: list(struct.unpack(f"<{len(piece) // 8}d", piece))
            for name, piece in pieces.items()}


def write_idx(n):
    """Pixels that look random; the samples as a device sees them."""
    state, pixels = 1, []
    for _ in range(n * SIDE * SIDE):
        state = state * 1103515245 + 12345 & 0x7fffffff
        pixels.append(state >> 16 & 0xff)
    labels = [i * 3 % CLASSES for i in range(n)]
    for split in "train", "t10k":
        with open(f"{split}-images-idx3-ubyte", "wb") as file:
            file.write(struct.pack(">4B3I", 0, 0, 8, 3, n, SIDE, SIDE) + bytes(pixels))
        with open(f"{split}-labels-idx1-ubyte", "wb") as file:
            file.write(struct.pack(">4BI", 0, 0, 8, 1, n) + bytes(labels))
    mean = sum(pixels) / len(pixels)
    deviation = math.sqrt(sum(p * p for p in pixels) / len(pixels) - mean * mean)
    scale, offset = (struct.unpack("f", struct.pack("f", x))[0]
                     for x in (1 / deviation, -mean / deviation))
    values = [p * scale + offset for p in pixels]
    return [values[i * SIDE * SIDE:(i + 1) * SIDE * SIDE] for i in range(n)], labels


def dense(weights, layer, x):
    w, b = weights[f"{layer}.weight"], weights[f"{layer}.bias"]
    return [b[o] + sum(w[o * len(x) + i] * x[i] for i in range(len(x))) for o in range(len(b))]


def add_gradients(weights, x, label, gradients):
    """Those of a sample, as its part of a batch's mean; returns its part of the mean loss."""
    inputs = [x]
    for layer in LAYERS[:-1]:
        inputs.append([max(0.0, y) for y in dense(weights, layer, inputs[-1])])
    logits = dense(weights, LAYERS[-1], inputs[-1])
    highest = max(logits)
    powers = [math.exp(y - highest) for y in logits]
    back = [(p / sum(powers) - (c == label)) / BATCH for c, p in enumerate(powers)]
    for layer, given in zip(reversed(LAYERS), reversed(inputs)):
        w = weights[f"{layer}.weight"]
        for o, d in enumerate(back):
            gradients[f"{layer}.bias"][o] += d
            for i, value in enumerate(given):
                gradients[f"{layer}.weight"][o * len(given) + i] += d * value
        back = [sum(d * w[o * len(given) + i] for o, d in enumerate(back)) if given[i] > 0 else 0.0
                for i in range(len(given))]
    return (math.log(sum(powers)) + highest - logits[label]) / BATCH


def zeros(weights):
    return {name: [0.0] * len(values) for name, values in weights.items()}


class Worker:
    def __init__(self, weights):
        self.weights = {name: list(values) for name, values in weights.items()}
        self.first, self.second, self.updates = zeros(weights), zeros(weights), 0

    def train(self, samples, labels, at):
        """One step of AdamW; its loss."""
        gradients = zeros(self.weights)
        loss = sum(add_gradients(self.weights, samples[i], labels[i], gradients)
                   for i in range(at, at + BATCH))
        self.updates += 1
        for name, w in self.weights.items():
            m, v = self.first[name], self.second[name]
            decay = DECAY if name.endswith("weight") else 0
            for i, g in enumerate(gradients[name]):
                m[i] = BETA1 * m[i] + (1 - BETA1) * g
                v[i] = BETA2 * v[i] + (1 - BETA2) * g * g
                m_hat = m[i] / (1 - BETA1 ** self.updates)
                v_hat = v[i] / (1 - BETA2 ** self.updates)
                w[i] -= RATE * (m_hat / (math.sqrt(v_hat) + EPSILON) + decay * w[i])
        return loss


def train(start, n_workers, outer_rate, outer_momentum, samples, labels):
    """Douillard et al. 2023, algorithm 1; the outer optimizer as PyTorch's SGD with nesterov=True.
    The weights, and the mean loss of each step."""
    z, velocity, losses = {name: list(values) for name, values in start.items()}, zeros(start), []
    workers = [Worker(z) for _ in range(n_workers)]
    for step in range(PERIOD * MEETINGS):
        at = step % STEPS_OF_EPOCH * n_workers * BATCH
        losses.append(sum(worker.train(samples, labels, at + k * BATCH)
                          for k, worker in enumerate(workers)) / n_workers)
        if (step + 1) % PERIOD:
            continue
        for name, values in z.items():
            for i, value in enumerate(values):
                gradient = value - sum(worker.weights[name][i] for worker in workers) / n_workers
                velocity[name][i] = outer_momentum * velocity[name][i] + gradient
                values[i] = value - outer_rate * (gradient + outer_momentum * velocity[name][i])
            for worker in workers:
                worker.weights[name] = list(values)
    return z, losses


class Rules(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        own_directory(cls)
        open("empty.ini", "w", encoding="utf-8").close()

    def compare(self, n_workers, comm, outer_rate, outer_momentum):
        samples, labels = write_idx(STEPS_OF_EPOCH * n_workers * BATCH)
        common = f"run.workers={n_workers} comm.name={comm} comm.period={PERIOD} "
        run(common + "run.steps=1 optimizer.learning_rate=0 checkpoint.save=start.safetensors")
        names = [f"{layer}.{what}" for layer in LAYERS for what in ("weight", "bias")]
        start = load_tensors("start.safetensors")
        wanted, losses = train({name: start[name] for name in names}, n_workers, outer_rate,
                               outer_momentum, samples, labels)
        result = run(common + f"run.steps={PERIOD * MEETINGS} optimizer.learning_rate={RATE} "
                     "checkpoint.save=end.safetensors")
        end = load_tensors("end.safetensors")
        self.assertEqual(len(result["loss"]), len(losses))
        for found, loss in zip(result["loss"], losses):
            self.assertLess(abs(found - loss), 1e-10 * loss)
        for name in names:
            largest = max(abs(value) for value in wanted[name])
            off = max(abs(a - b) for a, b in zip(end[name], wanted[name]))
            moved = max(abs(a - b) for a, b in zip(start[name], wanted[name]))
            self.assertGreater(moved, 0.01 * largest)
            self.assertLess(off, 1e-10 * largest, name)

    def test_diloco(self):
        for n_workers in 1, 2, 3:
            self.compare(n_workers, "diloco", 0.7, 0.9)

    def test_other_outer_optimizer(self):
        self.compare(2, "diloco comm.outer_rate=0.5 comm.outer_momentum=0.8", 0.5, 0.8)

    def test_local_sgd(self):
        self.compare(3, "local_sgd", 1, 0)
        self.compare(2, "diloco comm.outer_rate=1 comm.outer_momentum=0", 1, 0)


if __name__ == "__main__":
    counted.main()
