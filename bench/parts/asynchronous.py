"""What ps_async costs and gains: an exchange beside ps_cpu's, and beside a parameter server of
PyTorch's RPC; four workers, one of them slow, beside four that do not exchange."""

import os

from compare import LESS, Row
from programs import dpbench, pytorch

ROUNDS = 3
SECONDS = 3  # timed, of each program
NETWORK = "densenet40_k12"  # 1,019,722 parameters: 4 MB pushed and 4 MB pulled
LARGE, PARAMETERS = "mlp", 20922378  # 84 MB each way, and little to compute between exchanges
OF_PS_CPU = 0.8
OF_RPC = 2.0
OF_ALONE = 0.95


def exchange(context, strategy, *settings):
    """Time of a step in which one worker waits for one server."""
    return dpbench(context, f"comm.name={strategy}", "run.workers=1", "run.servers=1",
                   f"model.name={NETWORK}", "run.batch=1", "device.threads=1",
                   f"run.seconds={SECONDS}", *settings,
                   rate="timing.breakdown_ns.comm_exposed", name=f"dpbench {strategy}")


def beside_a_straggler(context, strategy, *settings):
    """Workers that sleep, so they need no core each: 20 ms a step, the first one 40 ms."""
    trace = os.path.join(context.here, "straggler.trace")
    return dpbench(context, f"comm.name={strategy}", "run.workers=4", "model.name=tiny",
                   "run.batch=1", "device.threads=1", f"run.seconds={SECONDS}",
                   f"run.delay=trace({trace})", *settings,
                   rate="timing.samples_per_s.mean", name=f"dpbench {strategy}, 4")


def rows(context):
    if context.cores < 2:
        return []
    apart = ["comm.hosts=1+1", "comm.interface=lo"]
    # In one bucket: nothing of the push is hidden, as nothing of the peer's is.
    whole = [*apart, f"model.name={LARGE}", "comm.bucket=1GiB"]
    free = beside_a_straggler(context, "independent")
    return [
        [Row("push and pull of 4 MB, ps_async / ps_cpu", "ns", exchange(context, "ps_async"),
             exchange(context, "ps_cpu"), OF_PS_CPU, by=LESS, rounds=ROUNDS)],
        [Row("the same, both by messages", "ns", exchange(context, "ps_async", *apart),
             exchange(context, "ps_cpu", *apart), by=LESS, rounds=ROUNDS)],
        [Row("push and pull of 84 MB by TCP, ps_async / PyTorch's RPC", "ns",
             exchange(context, "ps_async", *whole),
             pytorch(context, "torch_rpc.py", PARAMETERS, SECONDS, rate="step_ns"), OF_RPC,
             by=LESS, rounds=ROUNDS)],
        [Row("4 workers, one slow, ps_async / alone", "images/s",
             beside_a_straggler(context, "ps_async", "run.servers=1"), free, OF_ALONE,
             rounds=ROUNDS),
         Row("4 workers, one slow, ps_cpu / alone", "images/s",
             beside_a_straggler(context, "ps_cpu", "run.servers=1"), free, rounds=ROUNDS)]]
