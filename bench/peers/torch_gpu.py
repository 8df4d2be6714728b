"""Training as PyTorch does it best on one GPU: channels_last, autocast to bf16 (or fp32, or tf32 in
convolutions and products), cuDNN's algorithms chosen by trying them, fused SGD with momentum, one batch
that lies in the GPU's memory.

    torch_gpu.py MODEL BATCH bf16|fp32|tf32 SECONDS WAY [cuda|cpu]

    eager      operation by operation
    graphed    the same, the whole step (forward, backward, update) captured as one CUDA graph
    default    torch.compile in its default mode; on a GPU the whole step as one CUDA graph
    compiled   the same with mode max-autotune; the graph takes the place of those that this mode
               would make of forward and backward

For each line on stdin it trains for SECONDS and prints a document: {"samples_per_s": ..., "step_s": ...,
"parameters": ..., "versions": {...}, ...}. Compiling and capturing come before the first and are not
timed. Steps on a GPU are timed by its events: a step lasts from the end of the one before it to its own.
With `cpu` it does what a CPU can, so that it can be tried without a GPU.
"""

import sys
import time

import torch
import training

WARM_UP = 10   # steps of each turn, on a GPU
MAX_STEPS = 100000
MODES = {"default": "default", "compiled": "max-autotune-no-cudagraphs"}  # of torch.compile, by way


def captured(step):
    """The step as a CUDA graph, after the warm-up that PyTorch's notes on capturing ask for."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()

    def replay():
        graph.replay()
        return loss

    return replay


def seconds_of(step, n):
    """Of each of n steps, by the GPU's events; the host runs ahead."""
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(n + 1)]
    marks[0].record()
    for mark in marks[1:]:
        step()
        mark.record()
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) / 1e3 for begin, end in zip(marks, marks[1:])]


def turn_on(device, step, seconds):
    """The times of the steps of a turn."""
    if device == "cpu":
        warm = training.seconds_of(step, 1)
        return training.seconds_of(step, training.steps_in(seconds, warm[-1]))
    warm = seconds_of(step, WARM_UP)
    return seconds_of(step, min(MAX_STEPS, training.steps_in(seconds, min(warm))))


def choose(precision):
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"


def made(name, batch, precision, way, device):
    """The model, and its step."""
    model = training.network(name, device)
    forward = model
    if way in MODES:
        forward = torch.compile(model, mode=MODES[way])
    images, labels = training.random_batch(name, batch, device)
    step = training.training_step(forward, model, images, labels, precision)
    if device == "cuda" and way != "eager":
        step = captured(step)
    return model, step


def versions_on(device):
    if device == "cpu":
        return {}
    return {"CUDA": torch.version.cuda, "cuDNN": str(torch.backends.cudnn.version()),
            "GPU": torch.cuda.get_device_name()}


def main():
    name, batch, precision, seconds, way = sys.argv[1:6]
    device = sys.argv[6] if len(sys.argv) > 6 else "cuda"
    if device == "cuda" and not torch.cuda.is_available():
        sys.exit("PyTorch finds no GPU")
    if device == "cpu" and (way == "graphed" or precision == "tf32"):
        sys.exit(f"{'CUDA graphs' if way == 'graphed' else 'tf32'}: there are none on a CPU")
    choose(precision)
    began = time.monotonic()
    model, step = made(name, int(batch), precision, way, device)
    prepared_s = None
    for _ in sys.stdin:
        if prepared_s is None:
            step()  # compiles what is not captured
            prepared_s = time.monotonic() - began
        step_s = turn_on(device, step, float(seconds))
        peak = torch.cuda.max_memory_allocated() if device == "cuda" else None
        training.report(model, int(batch), step_s, step(), versions_on(device), way=way,
                        prepared_s=prepared_s, gpu_memory_bytes=peak)


if __name__ == "__main__":
    main()
