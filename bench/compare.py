"""Compares the rates of two programs that take turns: what `bench/bench` is made of.

A Program is a command that prints one JSON document with its rate (higher is better) in it. A Row
is a pair of them: ours and a peer's. Both run in turn, A B A B ..., on the same machine in the same
run, so that what the machine does to one it does to the other; every round gives a ratio.
"""

import dataclasses
import json
import math
import os
import subprocess

TIMEOUT_S = 600


class Broken(Exception):
    """A program did not do what it is there for; says why."""


@dataclasses.dataclass
class Program:
    name: str
    command: list
    rate: str  # where it stands in the document: "points.0.samples_per_s.median"
    versions: str = ""  # likewise, of an object {name: version}; "": none
    needs: dict = dataclasses.field(default_factory=dict)  # path: how to get it
    environment: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Row:
    name: str
    unit: str
    ours: Program
    peer: Program
    goal: float = None  # least ratio of our rate to the peer's; None: only reported


# ---- statistics ---------------------------------------------------------------------------------


def quantile(values, p):
    """Linear between the order statistics around (n - 1) p, as dpbench's own (Hyndman, Fan: 7)."""
    ordered = sorted(values)
    at = (len(ordered) - 1) * p
    below = math.floor(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (at - below) * (ordered[above] - ordered[below])


def ratio_of(ours, peers):
    """Of rates that were measured in turn: the ratio of each round, its median and its spread."""
    values = [a / b for a, b in zip(ours, peers)]
    return {
        "median": quantile(values, 0.5),
        "p10": quantile(values, 0.1),
        "p90": quantile(values, 0.9),
        "values": values,
    }


def verdict_of(ratio, goal):
    if goal is None:
        return "no goal"
    return "met" if ratio["median"] >= goal else "missed"


# ---- running ------------------------------------------------------------------------------------


def at(document, path):
    for key in path.split("."):
        document = document[int(key)] if isinstance(document, list) else document[key]
    return document


def missing(program):
    """Why the program cannot run here; None when it can."""
    for path, how in program.needs.items():
        if not os.path.exists(path):
            return f"{program.name}: {path} is not there; {how}"
    return None


def measure(program):
    """Runs it once: its rate and its versions. Raises Broken."""
    environment = {**os.environ, **program.environment}
    try:
        done = subprocess.run(program.command, capture_output=True, text=True, env=environment,
                              timeout=TIMEOUT_S, stdin=subprocess.DEVNULL, check=False)
    except subprocess.TimeoutExpired:
        raise Broken(f"{program.name}: not done after {TIMEOUT_S} s") from None
    except OSError as error:
        raise Broken(f"{program.name}: {error}") from None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise Broken(f"{program.name}: exit {done.returncode}: {last}")
    try:
        document = json.loads(done.stdout)
        rate = float(at(document, program.rate))
        versions = at(document, program.versions) if program.versions else {}
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise Broken(f"{program.name}: no rate '{program.rate}' in what it prints: "
                     f"{type(error).__name__} {error}") from None
    if not (math.isfinite(rate) and rate > 0):
        raise Broken(f"{program.name}: its rate is {rate}")
    return rate, versions


def run_row(row, rounds, tell):
    """The row's part of the document; verdict met, missed, no goal, missing or broken."""
    sides = [row.ours, row.peer]
    rates, versions = [[], []], [{}, {}]
    ratio, reason = None, missing(row.ours) or missing(row.peer)
    verdict = "missing"
    if reason is None:
        try:
            for number in range(rounds):
                for side, program in enumerate(sides):
                    tell(f"{row.name}: round {number + 1} of {rounds}, {program.name}")
                    rate, versions[side] = measure(program)
                    rates[side].append(rate)
            ratio = ratio_of(*rates)
            verdict = verdict_of(ratio, row.goal)
        except Broken as error:
            verdict, reason = "broken", str(error)
    programs = [{"name": program.name, "command": program.command, "rates": rates[side],
                 "versions": versions[side]} for side, program in enumerate(sides)]
    return {"name": row.name, "unit": row.unit, "goal": row.goal, "verdict": verdict,
            "reason": reason, "ratio": ratio, "ours": programs[0], "peer": programs[1]}
