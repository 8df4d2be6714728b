#!/usr/bin/env python3
"""`dpbench predict` on published tables: docs/predicting.md has what came out.

    bench/published.py [BUILD]

What such a table does not tell is assumed, for all of its rows alike: backward is two thirds of a
step and makes gradients final evenly, steps do not vary, updates cost nothing, buckets have 4 MiB.
Links are those of the machines: PCIe or NVLink within them, Ethernet or InfiniBand across.

Horovod's source tells more (v0.10.0, horovod/tensorflow/mpi_ops.cc): one ring of all GPUs, a fusion
buffer of 64 MiB, and a thread that looks every 5 ms for what is final, so 2.5 ms late on average.
"""

import json
import os
import subprocess
import sys
import tempfile

PARAMETERS = {"alexnet": 61100840, "inception3": 23834568, "resnet50": 25557032,
              "resnet101": 44549160, "resnet152": 60192808, "vgg16": 138357544}
STEPS = 1000  # of no spread: their number says nothing
PARTS = 64    # of the gradients


class Table:
    def __init__(self, title, link, inside, per_machine, rows, bucket="4MiB", late_ns=0):
        self.title, self.link, self.inside, self.per_machine = title, link, inside, per_machine
        self.bucket, self.late_ns = bucket, late_ns
        self.rows = rows  # model, batch, strategy, rate of one worker, {workers: efficiency}


def rates(*numbers):
    """Of 1, 2, 4, 8 workers, as one worker's rate and the efficiencies."""
    return numbers[0], {2 ** i: rate / numbers[0] / 2 ** i
                        for i, rate in enumerate(numbers) if i > 0}


TABLES = [
    Table("DGX-1 (TensorFlow, 2017)", "1Gbit,50us", "10GB,10us", 8, [
        ("inception3", 64, "ps_cpu", *rates(142, 284, 569, 1131)),
        ("resnet50", 64, "ps_cpu", *rates(219, 422, 852, 1734)),
        ("resnet152", 64, "ps_cpu", *rates(91.8, 181, 356, 716)),
        ("alexnet", 512, "shm", *rates(2987, 5658, 10509, 17822)),
        ("vgg16", 64, "shm", *rates(154, 295, 584, 1081))]),
    Table("two M60 (TensorFlow 1.3)", "1Gbit,50us", "6.07GB,21us", 2, [
        ("alexnet", 512, "ps_cpu", *rates(908.11, 1640.91)),
        ("inception3", 32, "ps_cpu", *rates(47.49, 95.43))]),
    Table("Horovod, 25 GbE, TCP", "25Gbit,50us", "10GB,10us", 4, [
        ("inception3", 64, "ring_tcp", 142, {128: 0.88}),
        ("resnet101", 64, "ring_tcp", 130, {128: 0.88})], bucket="64MiB", late_ns=2.5e6),
    Table("Goyal et al., 50 GbE", "50Gbit,50us", "20GB,10us", 8, [
        ("resnet50", 32, "hierarchical", 219, {256: 0.90})]),
    Table("PowerAI DDL", "100Gbit,5us", "20GB,10us", 4, [
        ("resnet101", 32, "hierarchical", 130,
         {8: 1.00, 16: 0.98, 32: 0.99, 64: 0.97, 128: 0.95, 256: 0.95})]),
]


def result_of(model, batch, rate, late_ns):
    step_ns = batch / rate * 1e9
    parts = [(i + 1) / PARTS for i in range(PARTS)]
    ready = {"elements": [round(part * PARAMETERS[model]) for part in parts],
             "ns": [step_ns * (1 + 2 * part) / 3 + late_ns for part in parts]}
    return {"schema": "dpbench.result/1", "status": "ok", "world": {"workers": 1},
            "strategy": {"name": "independent", "consistency": "none"},
            "model": {"name": model, "parameters": PARAMETERS[model]},
            "batch": {"per_worker": batch, "accumulate": 1},
            "timing": {"steps": STEPS, "step_ns": [step_ns] * STEPS, "ready": ready,
                       "breakdown_ns": {"backward": step_ns * 2 / 3, "optimizer": 0,
                                        "comm_exposed": 0}},
            "config": {"comm": {"bucket": {"value": 4 << 20}, "gradient": {"value": "auto"}},
                       "run": {"precision": {"value": "fp32"}, "comm_cores": {"value": 1}}}}


def predict(dpbench, path, table, strategy, workers):
    done = subprocess.run(
        [dpbench, "predict", path, "--link", table.link, "--inside", table.inside,
         "--per-machine", str(table.per_machine), "--strategies", strategy,
         "--buckets", table.bucket, "--workers", ",".join(map(str, workers)), "--json"],
        capture_output=True, text=True, check=True)
    return {row["workers"]: row["efficiency"] for row in json.loads(done.stdout)["rows"]}


def run(dpbench, table, directory):
    errors = []
    for model, batch, strategy, rate, published in table.rows:
        path = os.path.join(directory, "one.json")
        with open(path, "w", encoding="utf-8") as out:
            json.dump(result_of(model, batch, rate, table.late_ns), out)
        predicted = predict(dpbench, path, table, strategy, published)
        for workers, efficiency in published.items():
            errors.append(predicted[workers] / efficiency - 1)
            print(f"  {model:<10} {workers:>4} workers: published {efficiency:.3f}, "
                  f"predicted {predicted[workers]:.3f} ({100 * errors[-1]:+.1f} %)")
    mean = sum(map(abs, errors)) / len(errors)
    print(f"{table.title}: mean error {100 * mean:.1f} %, largest {100 * max(map(abs, errors)):.1f} %")
    return mean


def main():
    build = sys.argv[1] if len(sys.argv) > 1 else "build"
    with tempfile.TemporaryDirectory() as directory:
        for table in TABLES:
            run(os.path.join(build, "dpbench"), table, directory)


if __name__ == "__main__":
    main()
