#!/usr/bin/env python3
"""`dpbench predict` on published tables, beside its two controls: docs/predicting.md has what came out.

    bench/published.py [BUILD]

Figures of one machine are the [published] sections of conf/, and the workers are those of profiles/.
What such a table does not tell is assumed, for all of its rows alike: updates cost nothing, buckets have
4 MiB; without a profile, backward is two thirds of a step and makes gradients final evenly, and steps do
not vary. Links are those of the machines, by their data sheets.

Horovod's source tells more (v0.10.0, horovod/tensorflow/mpi_ops.cc): one ring of all GPUs, a fusion
buffer of 64 MiB, and a thread that looks every 5 ms for what is final, so 2.5 ms late on average.
"""

import json
import os
import re
import subprocess
import sys
import tempfile

PARAMETERS = {"alexnet": 61100840, "inception3": 23834568, "resnet50": 25557032,
              "resnet101": 44549160, "resnet152": 60192808, "vgg16": 138357544}
PARTS = 64  # of the gradients
WAYS = ("predict", "simple", "perfect")


class Table:
    """rows: model, batch, strategy, rate of one worker, {workers: published efficiency}"""

    def __init__(self, title, accelerator, link, inside, per_machine, rows, *options):
        self.title, self.accelerator, self.rows = title, accelerator, rows
        self.options = ["--link", link, "--inside", inside, "--per-machine", str(per_machine), *options]


def figures(conf):
    """The [published] rates of an experiment, by model, strategy and number of workers."""
    with open(f"conf/{conf}.ini", encoding="utf-8") as file:
        text = file.read()
    found = {}
    strategy = re.search(r"^\[comm\]\nname = (\w+)", text, re.M)
    for cell, figure in re.findall(r"^(model\.name .*) = ([\d.]+),", text.split("[published]\n")[1], re.M):
        words = cell.split()
        named = dict(zip(words[::2], words[1::2]))
        key = named["model.name"], named.get("comm.name") or strategy[1], int(named["run.workers"])
        found[key] = float(figure)
    return found


def rows_of(conf, batches, *strategies):
    """Of one worker without an exchange, where the table has that, or else of the strategy's own."""
    rates = figures(conf)
    for strategy in strategies:
        for model, batch in batches.items():
            one = rates.get((model, "independent", 1)) or rates[model, strategy, 1]
            yield model, batch, strategy, one, {
                workers: rate / one / workers for (name, by, workers), rate in rates.items()
                if (name, by) == (model, strategy) and workers > 1}


def tables():
    return [
        Table("DGX-1, parameter servers on the CPU", "p100", "1Gbit,50us", "10GB,10us", 8, list(rows_of(
            "gpu_scaling_ps_cpu", {"inception3": 64, "resnet50": 64, "resnet152": 64}, "ps_cpu"))),
        Table("DGX-1, NCCL", "p100", "1Gbit,50us", "80GB,10us", 8, list(rows_of(
            "gpu_scaling_nccl", {"alexnet": 512, "vgg16": 64}, "nccl"))),
        Table("two M60, parameter servers on the CPU", "m60", "1Gbit,50us", "6.07GB,21us", 2, list(rows_of(
            "gpu_strategies", {"alexnet": 512, "inception3": 32}, "ps_cpu"))),
        Table("two M60, GPU to GPU", "m60", "1Gbit,50us", "5.3GB,21us", 2, list(rows_of(
            "gpu_strategies", {"alexnet": 512, "inception3": 32}, "replicated", "nccl"))),
        Table("Horovod, 128 GPUs over TCP", "p100", "25Gbit,50us", "10GB,10us", 4, [
            ("inception3", 64, "ring_tcp", 142, {128: 0.88}),
            ("resnet101", 64, "ring_tcp", 130, {128: 0.88})], "--buckets", "64MiB", "--delay", "constant(2.5 ms)"),
        Table("Goyal et al., 256 GPUs", "p100", "50Gbit,50us", "20GB,10us", 8, [
            ("resnet50", 32, "hierarchical", 219, {256: 0.90})]),
        Table("PowerAI DDL, 8 to 256 GPUs", "p100", "100Gbit,5us", "20GB,10us", 4, [
            ("resnet101", 32, "hierarchical", 130,
             {8: 1.00, 16: 0.98, 32: 0.99, 64: 0.97, 128: 0.95, 256: 0.95})]),
    ]


def profile_of(title, model, batch, rate):
    step_ns, backward_ns = batch / rate * 1e9, round(batch / rate * 1e9 * 2 / 3)
    ends = [round(PARAMETERS[model] * part / PARTS) for part in range(PARTS + 1)]
    return {"schema": "dpbench.profile/1", "accelerator": "GPU", "model": model, "precision": "fp32",
            "kind": "published", "source": f"{title}: the rate of one worker; all else assumed",
            "batch": batch, "forward_ns": round(step_ns) - backward_ns, "backward_ns": backward_ns,
            "spread": 0,
            "tensors": [{"name": f"part {part}", "elements": ends[part] - ends[part - 1],
                         "ready_ns": backward_ns * part // PARTS} for part in range(1, PARTS + 1)]}


def shipped(accelerator, model, batch):
    """The name of the profile in profiles/, if there is one of this batch."""
    name = f"{accelerator}_{model}"
    if not os.path.exists(f"profiles/{name}.json"):
        return None
    with open(f"profiles/{name}.json", encoding="utf-8") as file:
        return name if json.load(file)["batch"] == batch else None


def predict(dpbench, path, table, strategy, workers):
    done = subprocess.run(
        [dpbench, "predict", path, *table.options, "--strategies", strategy,
         "--workers", ",".join(map(str, workers)), "--json"],
        capture_output=True, text=True, check=True)
    return {row["workers"]: row for row in json.loads(done.stdout)["rows"]}


def run(dpbench, table, directory):
    """Of each cell the errors of the efficiency, as shares of the published one, and whether that one
    lies in the band."""
    errors = []
    for model, batch, strategy, rate, published in table.rows:
        path = shipped(table.accelerator, model, batch)
        if not path:
            path = os.path.join(directory, "one.json")
            with open(path, "w", encoding="utf-8") as out:
                json.dump(profile_of(table.title, model, batch, rate), out)
        for workers, row in predict(dpbench, path, table, strategy, published).items():
            alone_ns = batch / rate * 1e9
            by = [alone_ns / row["step_ns"], alone_ns / row["controls"]["simple"]["step_ns"], 1]
            within = alone_ns / row["high_ns"] <= published[workers] <= alone_ns / row["low_ns"]
            errors.append([*(one / published[workers] - 1 for one in by), within])
            print(f"  {model:<10} {strategy:<12} {workers:>4} workers: published {published[workers]:.3f}, "
                  + ", ".join(f"{way} {one:.3f}" for way, one in zip(WAYS, by)))
    return errors


def line(title, errors):
    """A row of the document's table: mean error of each way, how often predict was too high, and how
    often the published figure lay in its band."""
    means = [sum(abs(cell[way]) for cell in errors) / len(errors) for way in range(len(WAYS))]
    high, within = sum(cell[0] > 0 for cell in errors), sum(cell[-1] for cell in errors)
    cells = [title, len(errors), *(f"{100 * mean:.1f} %" for mean in means), high, within]
    return f"| {' | '.join(map(str, cells))} |"


def lines(dpbench):
    """The document's table, without its head."""
    found, everything = [], []
    with tempfile.TemporaryDirectory() as directory:
        for table in tables():
            print(table.title)
            errors = run(dpbench, table, directory)
            found.append(line(table.title, errors))
            everything += errors
    return [*found, line("all", everything)]


def main():
    build = sys.argv[1] if len(sys.argv) > 1 else "build"
    print("\n".join(["", "| table | cells | predict | simple | 100 % | too high | in the band |",
                     *lines(os.path.join(build, "dpbench"))]))


if __name__ == "__main__":
    main()
