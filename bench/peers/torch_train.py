"""Training as PyTorch does it best on a CPU: channels_last, autocast to bf16, fused SGD with
momentum; one process, data in memory, eager or through torch.compile.

    torch_train.py MODEL BATCH fp32|bf16 THREADS SECONDS eager|compiled

Prints {"samples_per_s": ..., "parameters": ..., "peak_memory_bytes": ..., "versions": {...}, ...};
warm-up (torch.compile's work, too) is not timed.
"""

import sys

import torch
import training


def main():
    name, batch, precision, threads, seconds, way = sys.argv[1:]
    torch.set_num_threads(int(threads))
    model = training.network(name)
    forward = torch.compile(model) if way == "compiled" else model
    images, labels = training.random_batch(name, int(batch))
    step = training.training_step(forward, model, images, labels, precision)
    warm = training.seconds_of(step, training.WARM_UP)
    step_s = training.seconds_of(step, training.steps_in(float(seconds), warm[-1]))
    training.report(model, int(batch), step_s, step(), way=way, warm_up_s=warm)


if __name__ == "__main__":
    main()
