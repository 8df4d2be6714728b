"""Data-parallel training by PyTorch's DistributedDataParallel over Gloo: so many processes of this
machine, each with one thread on a core of its own. One process trains alone, without DDP.

    torch_ddp.py MODEL BATCH fp32|bf16 PROCESSES SECONDS      BATCH: of each process

Gradients are exchanged in fp32, as they are kept under autocast. Prints what torch_train.py prints,
of all processes together.
"""

import datetime
import multiprocessing
import os
import sys
import tempfile

import torch
import training
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

TIMEOUT = datetime.timedelta(seconds=120)  # of every wait for the others


def steps_for_all(seconds, step_s):
    """As many on every process: rank 0's number."""
    steps = torch.tensor([training.steps_in(seconds, step_s)])
    distributed.broadcast(steps, 0)
    return steps.item()


def train(rank, core, n_processes, meeting, name, batch, precision, seconds):
    os.sched_setaffinity(0, {core})
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank,
                                   world_size=n_processes, timeout=TIMEOUT)
    model = training.network(name)
    forward = model
    if n_processes > 1:
        forward = DistributedDataParallel(model, gradient_as_bucket_view=True,
                                          broadcast_buffers=False)
    images, labels = training.random_batch(name, batch)
    step = training.training_step(forward, model, images, labels, precision)
    warm = training.seconds_of(step, training.WARM_UP)
    step_s = training.seconds_of(step, steps_for_all(seconds, warm[-1]))
    loss = step()
    if rank == 0:
        training.report(model, n_processes * batch, step_s, loss, warm_up_s=warm)
    distributed.destroy_process_group()


def main():
    name, batch, precision, n_processes, seconds = sys.argv[1:]
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < int(n_processes):
        sys.exit(f"{n_processes} processes need a core each, there are {len(cores)}")
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    fork = multiprocessing.get_context("fork")  # nothing has started threads yet
    with tempfile.TemporaryDirectory() as directory:
        processes = [
            fork.Process(target=train, args=(rank, core, int(n_processes),
                                             os.path.join(directory, "meeting"), name, int(batch),
                                             precision, float(seconds)))
            for rank, core in enumerate(cores[:int(n_processes)])]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
    sys.exit(next((1 for process in processes if process.exitcode != 0), 0))


if __name__ == "__main__":
    main()
