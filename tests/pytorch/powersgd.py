"""The codec powersgd beside PyTorch's own hook (torch.distributed), on the same gradients.

Each worker of the hook is a process; gloo sums. The hook gets a bucket as DistributedDataParallel
would hand it over, and begins with the codec's first Q: each draws its own at random. It computes
in float64, the codec in fp32.
"""

import shutil
import subprocess
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from worst import Worst

TOLERANCE = 1e-5  # of the largest element of each tensor
STEPS = 6

# Rank of the factors, workers. From rank 3 on the hook orthogonalises by QR, below by Gram-Schmidt.
CASES = [(1, 2), (2, 3), (4, 2), (40, 2)]
SHAPES = [(16, 3, 3, 3), (16,), (32, 16, 3, 3), (120, 84), (10, 120), (10,)]


class Bucket:
    """What the hook asks of a torch.distributed.GradBucket."""

    def __init__(self, buffer):
        self.flat = buffer

    def buffer(self):
        return self.flat

    def gradients(self):
        return views(self.flat)

    def index(self):
        return 0

    def is_last(self):
        return True


def views(flat):
    sizes = [torch.Size(shape).numel() for shape in SHAPES]
    return [part.view(shape) for part, shape in zip(flat.split(sizes), SHAPES, strict=True)]


def factors(rank):
    """(rows, columns, rank) of each tensor that goes as two factors."""
    for shape in SHAPES:
        rows, columns = shape[0], torch.Size(shape[1:]).numel()
        r = min(rank, rows, columns)
        if (rows + columns) * r < rows * columns:
            yield rows, columns, r


def first_factors(state, rank):
    """P and Q as the hook keeps them; the state has Q, then P of each matrix, column by column."""
    ps, qs, at = [], [], 0
    for rows, columns, r in factors(rank):
        qs.append(state[at:at + columns * r].view(r, columns).T.reshape(-1))
        ps.append(torch.zeros(rows * r, dtype=torch.double))
        at += (rows + columns) * r
    return torch.cat(ps or [torch.zeros(0)]), torch.cat(qs or [torch.zeros(0)])


def read(directory, name, *shape):
    n = torch.Size(shape).numel() if shape else (directory / name).stat().st_size // 4
    flat = torch.from_file(str(directory / name), shared=False, size=n, dtype=torch.float)
    return flat.double().view(shape or -1)


def work(worker, n_workers, rank, directory, meeting):
    """A worker of the hook: writes what it decodes in each step, and its error after the last."""
    dist.init_process_group("gloo", init_method=f"file://{meeting}/meeting", rank=worker,
                            world_size=n_workers)
    state = PowerSGDState(None, matrix_approximation_rank=rank, start_powerSGD_iter=2,
                          min_compression_rate=1)
    state.iter = 2
    state.p_memory_dict[0], state.q_memory_dict[0] = first_factors(read(directory, "first"), rank)
    n = sum(torch.Size(shape).numel() for shape in SHAPES)
    gradients = read(directory, "gradients", STEPS, n_workers, n)
    means = [powerSGD_hook(state, Bucket(gradients[step, worker].clone())).wait()
             for step in range(STEPS)]
    torch.save((torch.stack(means), state.error_dict[0]), directory / f"hook-{worker}")
    dist.destroy_process_group()


def compare(program, directory, rank, n_workers):
    n = sum(torch.Size(shape).numel() for shape in SHAPES)
    torch.manual_seed(1)
    # Gradients of one training resemble each other; each worker and step adds some of its own.
    gradients = torch.randn(n) + 0.5 * torch.randn(STEPS, n_workers, n)
    (directory / "gradients").write_bytes(gradients.numpy().tobytes())
    shapes = ["x".join(map(str, shape)) for shape in SHAPES]
    subprocess.run([program, directory, str(rank), str(n_workers), str(STEPS), *shapes],
                   check=True)
    with tempfile.TemporaryDirectory() as meeting:
        mp.spawn(work, (n_workers, rank, directory, meeting), n_workers)
    sums, residuals = read(directory, "sums", STEPS, n), read(directory, "residuals", n_workers, n)
    worst = Worst(TOLERANCE)
    for worker in range(n_workers):
        means, error = torch.load(directory / f"hook-{worker}")
        for step in range(STEPS):
            pairs = zip(SHAPES, views(sums[step] / n_workers), views(means[step]), strict=True)
            for shape, ours, theirs in pairs:
                worst.see(f"step {step}, {shape}", ours, theirs)
        compressed = [(rows, columns) for rows, columns, _ in factors(rank)]
        # The hook keeps the error of tensors that go raw, too; in the sum over workers it is 0.
        for shape, ours, theirs in zip(SHAPES, views(residuals[worker]), views(error), strict=True):
            if (shape[0], torch.Size(shape[1:]).numel()) in compressed:
                worst.see(f"residual of worker {worker}, {shape}", ours, theirs)
    return worst.check()


def run_case(build, rank, n_workers):
    directory = build / "pytorch" / f"powersgd-{rank}-{n_workers}"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    program = build / "pytorch" / "powersgd"
    yield "the hook", lambda: compare(program, directory, rank, n_workers)
    shutil.rmtree(directory)
