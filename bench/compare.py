"""Compares the rates of two programs that take turns: what `bench/bench` is made of.

A Program is a command that prints one JSON document with its rate in it. A Row compares two sides:
ours and a peer's. Both run in turn, A B A B ..., on the same machine in the same run, so that what
the machine does to one it does to the other; every round gives a ratio. A side may also be made of
several programs: Best, Efficiency; or be a Bound.
"""

import dataclasses
import json
import math
import os
import subprocess
import time

TIMEOUT_S = 600


class Broken(Exception):
    """A program did not do what it is there for; says why."""


# ---- sides --------------------------------------------------------------------------------------


@dataclasses.dataclass
class Program:
    name: str
    command: list
    rate: str  # where it stands in the document: "points.0.samples_per_s.median"; "wall_s": how
    # long the program ran, by the driver's clock
    versions: str = ""  # likewise, of an object {name: version}; "": none
    needs: dict = dataclasses.field(default_factory=dict)  # path: how to get it
    environment: dict = dataclasses.field(default_factory=dict)
    same: str = ""  # where that stands which is equal on both sides: the size of the work

    def programs(self):
        return [self]

    def figure(self, documents, better):
        return number_in(self, documents[key_of(self)])


@dataclasses.dataclass
class Best:
    """The best of several ways to do the work; all of them run every round."""

    name: str
    ways: list

    def programs(self):
        return [program for way in self.ways for program in way.programs()]

    def figure(self, documents, better):
        return better(way.figure(documents, better) for way in self.ways)


@dataclasses.dataclass
class Efficiency:
    """What `many` of something reach of `times` times what one alone reaches, in percent."""

    name: str
    many: Program
    one: Program
    times: int

    def programs(self):
        return self.one.programs() + self.many.programs()

    def figure(self, documents, better):
        alone = self.one.figure(documents, better)
        return 100 * self.many.figure(documents, better) / (self.times * alone)


@dataclasses.dataclass
class Bound:
    """A figure that a goal names, in the place of a peer."""

    name: str
    value: float

    def programs(self):
        return []

    def figure(self, documents, better):
        return self.value


# ---- rows ---------------------------------------------------------------------------------------

# What a row shows of the two figures of a round, and which of a figure's values is the better one.
RATIO = ("ratio", max, lambda ours, peer: ours / peer)
LESS = ("ratio", min, lambda ours, peer: peer / ours)  # of times and bytes
POINTS = ("difference", max, lambda ours, peer: ours - peer)  # of percentages


@dataclasses.dataclass
class Row:
    name: str
    unit: str
    ours: object
    peer: object
    goal: float = None  # the least ratio or difference; None: only reported
    by: tuple = RATIO
    rounds: int = None  # at most so many: of programs that take long

    def programs(self):
        return self.ours.programs() + self.peer.programs()


# ---- statistics ---------------------------------------------------------------------------------


def quantile(values, p):
    """Linear between the order statistics around (n - 1) p, as dpbench's own (Hyndman, Fan: 7)."""
    ordered = sorted(values)
    at = (len(ordered) - 1) * p
    below = math.floor(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (at - below) * (ordered[above] - ordered[below])


def summary_of(values):
    """Of the ratios (differences) of the rounds: their median and their spread."""
    return {
        "median": quantile(values, 0.5),
        "p10": quantile(values, 0.1),
        "p90": quantile(values, 0.9),
        "values": values,
    }


def verdict_of(summary, goal):
    if goal is None:
        return "no goal"
    return "met" if summary["median"] >= goal else "missed"


# ---- running ------------------------------------------------------------------------------------


def at(document, path):
    for key in path.split("."):
        document = document[int(key)] if isinstance(document, list) else document[key]
    return document


def number_in(program, document):
    try:
        value = float(at(document, program.rate))
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise Broken(f"{program.name}: no rate '{program.rate}' in what it prints: "
                     f"{type(error).__name__} {error}") from None
    if not (math.isfinite(value) and value > 0):
        raise Broken(f"{program.name}: its rate is {value}")
    return value


def found(program, document, path):
    """What stands at `path`; Broken where nothing does."""
    try:
        return at(document, path)
    except (ValueError, KeyError, IndexError, TypeError):
        raise Broken(f"{program.name}: no '{path}' in what it prints") from None


def missing(side):
    """Why the side cannot run here; None when it can."""
    for program in side.programs():
        for path, how in program.needs.items():
            if not os.path.exists(path):
                return f"{program.name}: {path} is not there; {how}"
    return None


def key_of(program):
    """Programs with the same key are one run."""
    return (tuple(program.command), tuple(sorted(program.environment.items())))


def run(program):
    """Runs it once: the document that it prints. Raises Broken."""
    environment = {**os.environ, **program.environment}
    began = time.monotonic()
    try:
        done = subprocess.run(program.command, capture_output=True, text=True, env=environment,
                              timeout=TIMEOUT_S, stdin=subprocess.DEVNULL, check=False)
    except subprocess.TimeoutExpired:
        raise Broken(f"{program.name}: not done after {TIMEOUT_S} s") from None
    except OSError as error:
        raise Broken(f"{program.name}: {error}") from None
    wall_s = time.monotonic() - began
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise Broken(f"{program.name}: exit {done.returncode}: {last}")
    try:
        return {**json.loads(done.stdout), "wall_s": wall_s}
    except (ValueError, TypeError) as error:
        raise Broken(f"{program.name}: no rate '{program.rate}' in what it prints: "
                     f"{type(error).__name__} {error}") from None


class Turns:
    """The rounds of one row: figures of both sides, of each of their programs, and versions."""

    def __init__(self, row):
        self.row = row
        self.reason = missing(row.ours) or missing(row.peer)
        self.verdict = "missing" if self.reason else None
        self.figures = [[], []]
        self.rates = {key_of(program): [] for program in row.programs()}
        self.versions = {}

    def take(self, documents):
        """A round's documents by key: None in the place of one that is Broken."""
        _, better, _ = self.row.by
        for side, figures in zip((self.row.ours, self.row.peer), self.figures):
            figures.append(side.figure(documents, better))
        for program in self.row.programs():
            document = documents[key_of(program)]
            self.rates[key_of(program)].append(number_in(program, document))
            if program.versions:
                self.versions[key_of(program)] = found(program, document, program.versions)
        self.check_same(documents)

    def check_same(self, documents):
        said = [(program, found(program, documents[key_of(program)], program.same))
                for program in self.row.programs() if program.same]
        for program, value in said:
            if value != said[0][1]:
                raise Broken(f"{program.name}: {program.same} is {value}, that of "
                             f"{said[0][0].name} {said[0][1]}")

    def side(self, side, figures):
        programs = [{"name": program.name, "command": program.command,
                     "rates": self.rates[key_of(program)],
                     "versions": self.versions.get(key_of(program), {})}
                    for program in side.programs()]
        return {"name": side.name, "rates": figures, "programs": programs}

    def result(self):
        row, summary = self.row, None
        name, _, by = row.by
        if self.verdict is None:
            summary = summary_of([by(ours, peer) for ours, peer in zip(*self.figures)])
            self.verdict = verdict_of(summary, row.goal)
        return {"name": row.name, "unit": row.unit, "goal": row.goal, "verdict": self.verdict,
                "reason": self.reason, "ratio": None, "difference": None, name: summary,
                "ours": self.side(row.ours, self.figures[0]),
                "peer": self.side(row.peer, self.figures[1])}


def run_round(turns, tell):
    """One round of rows that take turns together: each program that they name runs once."""
    documents, broken = {}, {}
    for turn in turns:
        try:
            for program in turn.row.programs():
                key = key_of(program)
                if key in broken:
                    raise broken[key]
                if key not in documents:
                    tell(program.name)
                    try:
                        documents[key] = run(program)
                    except Broken as error:
                        broken[key] = error
                        raise
            turn.take(documents)
        except Broken as error:
            turn.verdict, turn.reason = "broken", str(error)


def run_rows(rows, rounds, tell):
    """Rows that take turns together: the part of each in the document; verdict met, missed,
    no goal, missing or broken."""
    turns = [Turns(row) for row in rows]
    for number in range(rounds):
        under_way = [turn for turn in turns if turn.verdict is None
                     and number < (turn.row.rounds or rounds)]
        run_round(under_way, lambda name, number=number:
                  tell(f"{rows[0].name}: round {number + 1} of {rounds}, {name}"))
    return [turn.result() for turn in turns]
