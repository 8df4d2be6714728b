#!/usr/bin/env python3
"""trace_reader.py TRACE RESULT [all]: reads a file of run.trace and checks it: spans nest, and the
unions of a step's spans are what the account says of the step. `all`: it shows all steps of a
synchronous run. Then those of the timed steps are the result's breakdown, and every bucket of every
step is there. Prints what it has looked at, as JSON; or a message, with exit code 1."""

import json
import sys

PARTS = {"data": "data_wait_ns", "forward": "forward_ns", "delay": "delay_ns"}
WORK = ("wait", "transfer", "reduce")


def ns(us):
    """The file's microseconds, whose third decimal is a nanosecond."""
    return round(us * 1000)


class Span:
    def __init__(self, event):
        self.pid, self.tid = event["pid"], event["tid"]
        self.kind, self.name = event["cat"], event["name"]
        self.args = event["args"]
        self.begin = ns(event["ts"])
        self.end = self.begin + ns(event.get("dur", 0))


def union(spans, step):
    """Disjoint rising intervals within the step."""
    made = []
    for begin, end in sorted((max(s.begin, step.begin), min(s.end, step.end)) for s in spans):
        if end <= begin:
            continue
        if made and begin <= made[-1][1]:
            made[-1][1] = max(made[-1][1], end)
        else:
            made.append([begin, end])
    return made


def length(intervals):
    return sum(end - begin for begin, end in intervals)


def common(a, b):
    return sum(max(0, min(x[1], y[1]) - max(x[0], y[0])) for x in a for y in b)


def check_nesting(spans):
    """On a row a span lies beside or within each other one."""
    rows = {}
    for span in spans:
        rows.setdefault((span.pid, span.tid), []).append(span)
    for row, members in rows.items():
        around = []
        for span in sorted(members, key=lambda s: (s.begin, -s.end)):
            while around and around[-1].end <= span.begin:
                around.pop()
            assert not around or span.end <= around[-1].end, \
                f"row {row}: {span.name} [{span.begin}, {span.end}] crosses {around[-1].name} " \
                f"[{around[-1].begin}, {around[-1].end}]"
            around.append(span)


def figures(step, spans):
    """What the account defines, from the spans of the step's rank alone (measure/account.h)."""
    def of(kind, *names):
        return union([s for s in spans if s.kind == kind and (not names or s.name in names)], step)
    exposed, update = of("exposed"), of("bucket", "update")
    work = of("bucket", *WORK)
    made = {"optimizer_ns": common(exposed, update),
            "comm_hidden_ns": length(work) - common(work, exposed),
            "comm_wait_peer_ns": length(of("bucket", "wait")),
            "comm_exposed_wait_ns": common(exposed, of("bucket", "wait"))}
    made["comm_exposed_ns"] = length(exposed) - made["optimizer_ns"]
    for name, figure in PARTS.items():
        part = of("part", name)
        made[figure] = length(part) - common(part, exposed)
    made["backward_ns"] = step.end - step.begin - length(exposed) - sum(
        made[figure] for figure in PARTS.values())
    return made


def check_steps(spans):
    """The steps of a worker, and what they add up to from the first timed one on."""
    steps = [s for s in spans if s.kind == "step"]
    assert [s.args["step"] for s in steps] == list(
        range(steps[0].args["step"], steps[0].args["step"] + len(steps))), "steps are missing"
    sums = {}
    for step in steps:
        near = [s for s in spans if s.begin < step.end and s.end > step.begin
                and (s.kind != "bucket" or s.args.get("step") == step.args["step"])]
        for figure, value in figures(step, near).items():
            assert value == step.args[figure], \
                f"step {step.args['step']}: {figure} is {value} by its spans, {step.args[figure]} " \
                "by the account"
            sums[figure] = sums.get(figure, 0) + (value if step.args["timed"] else 0)
    return steps, sums


def check_sums(sums, of):
    """`of`: the entry of ranks[] in the result."""
    for figure, value in sums.items():
        wanted = of["breakdown_ns"][figure[:-len("_ns")]]
        assert abs(value / of["steps"] - wanted) < 0.001, \
            f"{figure}: a mean of {value / of['steps']} in the trace, {wanted} in the result"


def check_buckets(steps, spans):
    """Every bucket of every step: it became ready here, and somebody worked on it and updated it."""
    pid = steps[0].pid
    buckets = {s.args["bucket"] for s in spans if s.name == "ready"}
    assert buckets == set(range(len(buckets))) and len(buckets) > 1, f"the buckets are {buckets}"
    for step in steps:
        near = [s for s in spans if s.kind == "bucket" and s.begin < step.end
                and s.end >= step.begin]
        for names, own in (("ready",), True), (("update",), False), (WORK, False):
            found = {s.args["bucket"] for s in near if s.name in names and (not own or s.pid == pid)}
            assert found == buckets, \
                f"step {step.args['step']} of process {pid}: {names} of buckets " \
                f"{sorted(buckets - found)} is missing"
    return len(buckets)


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        trace = json.load(file)
    with open(sys.argv[2], encoding="utf-8") as file:
        result = json.load(file)
    about = trace["otherData"]
    assert about["schema"] == "dpbench.trace/1" and about["status"] == result["status"], about
    spans = [Span(event) for event in trace["traceEvents"] if event["ph"] in "Xi"]
    named = {e["pid"] for e in trace["traceEvents"] if e["name"] == "process_name"}
    assert named == {rank["rank"] + 1 for rank in about["ranks"]}, named
    check_nesting([s for s in spans if s.name != "ready"])
    n_steps = n_buckets = 0
    for rank in about["ranks"]:
        if rank["role"] == "worker":
            own = [s for s in spans if s.pid == rank["rank"] + 1]
            steps, sums = check_steps(own)
            assert len(steps) == rank["steps"] > 0
            n_steps += len(steps)
            if sys.argv[3:] == ["all"]:
                assert rank["complete"], rank
                check_sums(sums, result["ranks"][rank["rank"]])
                n_buckets = check_buckets(steps, spans)
    print(json.dumps({"steps": n_steps, "spans": len(spans), "buckets": n_buckets}))


if __name__ == "__main__":
    try:
        main()
    except (AssertionError, KeyError) as error:
        sys.exit(f"{sys.argv[1]}: {error!r}")
