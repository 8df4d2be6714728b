"""Compares the rates of two programs that take turns: what `bench/bench` is made of.

A Program is a command that prints one JSON document with its rate in it. A Row compares two sides:
ours and a peer's. Both run in turn, A B A B ..., on the same machine in the same run, so that what
the machine does to one it does to the other; every round gives a ratio. A side may also be made of
several programs: Best, Efficiency; be made of what one prints: Derived; or be a Bound.
"""

import dataclasses
import json
import math
import os
import signal
import subprocess
import tempfile
import threading
import time

TIMEOUT_S = 600


class Broken(Exception):
    """A program did not do what it is there for; says why."""


class Late(Exception):
    """There is no time left for a program: its own limit is over, or that of all; says which."""


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
    lacks: str = ""  # why it cannot run here, where that is no matter of a file; "": it can
    stays: bool = False  # it prepares itself once: for each line that it reads it prints a document
    limit_s: float = None  # of a turn, that which prepares it included; None: TIMEOUT_S

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
class Derived:
    """A figure that is made of all that a program prints, by `of`, which takes the document."""

    name: str
    program: Program
    of: object

    def programs(self):
        return [self.program]

    def figure(self, documents, better):
        try:
            value = float(self.of(documents[key_of(self.program)]))
        except (ValueError, KeyError, IndexError, TypeError, ZeroDivisionError) as error:
            raise Broken(f"{self.program.name}: {self.name} cannot be made of what it prints: "
                         f"{type(error).__name__} {error}") from None
        if not (math.isfinite(value) and value > 0):
            raise Broken(f"{self.program.name}: {self.name} is {value}")
        return value


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
        if program.lacks:
            return f"{program.name}: {program.lacks}"
        for path, how in program.needs.items():
            if not os.path.exists(path):
                return f"{program.name}: {path} is not there; {how}"
    return None


def key_of(program):
    """Programs with the same key are one run."""
    return (tuple(program.command), tuple(sorted(program.environment.items())))


def seconds_left(program, deadline):
    """For a program: until `deadline` (of time.monotonic; None: there is none). Raises Late."""
    own = program.limit_s or TIMEOUT_S
    left = own if deadline is None else min(own, deadline - time.monotonic())
    if left <= 0:
        raise too_slow(program, deadline)
    return left


def too_slow(program, deadline):
    """What is to be raised of a program that took all the time it had."""
    if deadline is not None and time.monotonic() >= deadline:
        return Late("there was no time for it (--limit)")
    if program.limit_s:
        return Late(f"{program.name}: not done after {program.limit_s:g} s, its own limit")
    return Broken(f"{program.name}: not done after {TIMEOUT_S} s")


def last_line(text):
    return (text.strip().splitlines() or ["it says nothing"])[-1]


def document_in(program, text):
    try:
        return {**json.loads(text)}
    except (ValueError, TypeError) as error:
        raise Broken(f"{program.name}: no rate '{program.rate}' in what it prints: "
                     f"{type(error).__name__} {error}") from None


def end(process):
    """Ends it and all that it started: the next program is to have the machine for itself."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(timeout=5)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass


def output_of(program, left):
    """What it prints on both streams, and its exit code."""
    with subprocess.Popen(program.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, start_new_session=True,
                          env={**os.environ, **program.environment}) as process:
        try:
            return *process.communicate(timeout=left), process.returncode
        except BaseException:
            end(process)
            raise


def run(program, deadline=None):
    """Runs it once: the document that it prints. Raises Broken, Late."""
    left = seconds_left(program, deadline)
    began = time.monotonic()
    try:
        out, words, code = output_of(program, left)
    except subprocess.TimeoutExpired:
        raise too_slow(program, deadline) from None
    except OSError as error:
        raise Broken(f"{program.name}: {error}") from None
    wall_s = time.monotonic() - began
    if code != 0:
        raise Broken(f"{program.name}: exit {code}: {last_line(words)}")
    return {**document_in(program, out), "wall_s": wall_s}


class Staying:
    """A program that stays, between its turns. What it prepares counts to none of them."""

    def __init__(self, program):
        self.program = program
        self.words = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        try:
            self.process = subprocess.Popen(
                program.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.words,
                text=True, start_new_session=True, env={**os.environ, **program.environment})
        except OSError as error:
            self.words.close()
            raise Broken(f"{program.name}: {error}") from None

    def turn(self, deadline):
        """Its next document. Raises Broken, Late; then it is to be closed."""
        left, process = seconds_left(self.program, deadline), self.process
        over = threading.Timer(left, os.killpg, (process.pid, signal.SIGKILL))
        over.start()
        try:
            print(file=process.stdin, flush=True)
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            in_time = over.is_alive()
            over.cancel()
        if line:
            return document_in(self.program, line)
        if not in_time:
            raise too_slow(self.program, deadline)
        code = process.wait()
        self.words.seek(0)
        raise Broken(f"{self.program.name}: exit {code}: {last_line(self.words.read())}")

    def close(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            end(self.process)
        self.process.stdout.close()
        self.words.close()


class Runner:
    """Runs programs for rows that take turns together, and keeps those that stay until it ends."""

    def __init__(self, deadline):
        self.deadline = deadline
        self.staying = {}

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for staying in self.staying.values():
            staying.close()

    def run(self, program):
        if not program.stays:
            return run(program, self.deadline)
        key = key_of(program)
        if key not in self.staying:
            seconds_left(program, self.deadline)
            self.staying[key] = Staying(program)
        return self.staying[key].turn(self.deadline)


class Turns:
    """The rounds of one row: figures of both sides, of each of their programs, and versions."""

    def __init__(self, row):
        self.row = row
        self.reason = missing(row.ours) or missing(row.peer)
        self.verdict = "missing" if self.reason else None
        self.late = False
        self.figures = [[], []]
        self.rates = {(key_of(program), program.rate): [] for program in row.programs()}
        self.versions = {}

    def take(self, documents):
        """A round's documents by key: None in the place of one that is Broken."""
        _, better, _ = self.row.by
        for side, figures in zip((self.row.ours, self.row.peer), self.figures):
            figures.append(side.figure(documents, better))
        for program in self.row.programs():
            document = documents[key_of(program)]
            self.rates[key_of(program), program.rate].append(number_in(program, document))
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
                     "rates": self.rates[key_of(program), program.rate],
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


def run_round(turns, tell, runner):
    """One round of rows that take turns together: each program that they name runs once. Of a row
    that there is no time for those rounds count that are over."""
    documents, failed = {}, {}
    for turn in turns:
        try:
            for program in turn.row.programs():
                key = key_of(program)
                if key in failed:
                    raise failed[key]
                if key not in documents:
                    tell(program.name)
                    try:
                        documents[key] = runner.run(program)
                    except (Broken, Late) as error:
                        failed[key] = error
                        raise
            turn.take(documents)
        except Broken as error:
            turn.verdict, turn.reason = "broken", str(error)
        except Late as error:
            turn.late = True
            if not turn.figures[0]:
                turn.verdict, turn.reason = "left", str(error)


def run_rows(rows, rounds, tell, deadline=None):
    """Rows that take turns together: the part of each in the document; verdict met, missed,
    no goal, missing, left or broken. `deadline`: of time.monotonic, for all of them."""
    turns = [Turns(row) for row in rows]
    with Runner(deadline) as runner:
        for number in range(rounds):
            under_way = [turn for turn in turns if turn.verdict is None and not turn.late
                         and number < (turn.row.rounds or rounds)]
            run_round(under_way, lambda name, number=number:
                      tell(f"{rows[0].name}: round {number + 1} of {rounds}, {name}"), runner)
    return [turn.result() for turn in turns]
