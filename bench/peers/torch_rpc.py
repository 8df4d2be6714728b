"""A parameter server by PyTorch's RPC over TCP on this machine: in each step a worker hands its
gradient to a server process, which applies SGD with momentum and answers with the new weights.
Nothing else is done, so a step is a push and a pull.

    torch_rpc.py ELEMENTS SECONDS      ELEMENTS: of float32

Prints the mean time of a step. Each of the two processes has one thread on a core of its own.
"""

import json
import multiprocessing
import os
import sys
import tempfile
import time

import torch
from torch.distributed import rpc

WARM_UP = 5
RATE, MOMENTUM = 0.01, 0.9
NAMES = "server", "worker"

shard = {}  # the server's


def make(elements):
    shard["weights"] = torch.zeros(elements)
    shard["velocity"] = torch.zeros(elements)


def apply(gradients):
    shard["velocity"].mul_(MOMENTUM).add_(gradients)
    shard["weights"].add_(shard["velocity"], alpha=-RATE)
    return shard["weights"]


def train(elements, seconds):
    rpc.rpc_sync("server", make, args=(elements,))
    gradients = torch.full((elements,), 1e-3)
    for _ in range(WARM_UP):
        rpc.rpc_sync("server", apply, args=(gradients,))
    n, begin = 0, time.monotonic_ns()
    while time.monotonic_ns() < begin + seconds * 1e9:
        weights = rpc.rpc_sync("server", apply, args=(gradients,))
        n += 1
    step_ns = (time.monotonic_ns() - begin) / n
    assert weights.numel() == elements and torch.all(weights < 0)
    print(json.dumps({"step_ns": step_ns, "steps": n, "parameters": elements,
                      "versions": {"PyTorch": torch.__version__}}))


def work(rank, core, meeting, elements, seconds):
    os.sched_setaffinity(0, {core})
    torch.set_num_threads(1)
    # Its transports of one machine are shared memory; ours is TCP in this row, too.
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{meeting}", num_worker_threads=2,
                                              _transports=["uv"], _channels=["basic"])
    rpc.init_rpc(NAMES[rank], rank=rank, world_size=2, rpc_backend_options=options)
    if NAMES[rank] == "worker":
        train(elements, seconds)
    rpc.shutdown()


def main():
    elements, seconds = int(sys.argv[1]), float(sys.argv[2])
    cores = sorted(os.sched_getaffinity(0))
    os.environ["TP_SOCKET_IFNAME"] = "lo"
    fork = multiprocessing.get_context("fork")  # nothing has started threads yet
    with tempfile.TemporaryDirectory() as directory:
        meeting = os.path.join(directory, "meeting")
        processes = [fork.Process(target=work, args=(rank, cores[rank % len(cores)], meeting,
                                                     elements, seconds)) for rank in range(2)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
    sys.exit(next((1 for process in processes if process.exitcode != 0), 0))


if __name__ == "__main__":
    main()
