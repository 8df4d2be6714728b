"""What turns are worth beside others: the interval of a study by turns against that of one by repeats
of equal duration (bench/half_width.py)."""

import os
import sys

from compare import LESS, Derived, Program, Row

ROUNDS = 20


def study(context, how):
    script = os.path.join(context.here, "half_width.py")
    return Program(name=f"by {how}", command=[sys.executable, script, context.dpbench, how],
                   rate="half_width_percent", same="")


def rows(context):
    turns, repeats = study(context, "turns"), study(context, "repeats")
    return [Row("LeNet / LeNet beside others, half-width of the interval", "%", turns, repeats, 3, by=LESS,
                rounds=ROUNDS),
            Row("the same by turns: 1 in the interval", "of 1", Derived("holds", turns, lambda of: 0.01 + of["holds"]),
                repeats, rounds=ROUNDS)]
