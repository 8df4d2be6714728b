#!/usr/bin/env python3
"""Writes stats_oracle.h: series and their statistics by Python's own library and exact fractions.
make writes it into the build directory.

The interval of the median is that of the ideal bootstrap (infinitely many resamples): for odd n
the median of a resample is at most the j-th smallest value with the probability that a
binomial(n, j / n) number reaches (n + 1) / 2. The table has the values between which each end
must lie, for 10,000 resamples: the ideal quantiles 2.5 standard errors to either side.

Student's t for whole degrees of freedom has a finite sum (Abramowitz and Stegun 26.7.3, 26.7.4).
The error of a mean of steps that depend on each other is found by drawing blocks.
"""
import math
import random
import statistics
import textwrap
from fractions import Fraction


def quantile(x, p):
    x = sorted(x)
    position = (len(x) - 1) * Fraction(p).limit_denominator(1000)
    below = math.floor(position)
    above = min(below + 1, len(x) - 1)
    low, high = Fraction(x[below]), Fraction(x[above])
    return float(low + (position - below) * (high - low))


def log_choose(n, k):
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def at_most(n, j):
    """Probability that the median of a resample is at most the j-th smallest of n values, n odd."""
    if j <= 0 or j >= n:
        return float(j >= n)
    p = j / n
    return math.fsum(math.exp(log_choose(n, k) + k * math.log(p) + (n - k) * math.log1p(-p))
                     for k in range((n + 1) // 2, n + 1))


def bootstrap_bounds(x):
    """Bounds of either end: (low_min, low_max, high_min, high_max)."""
    x, n = sorted(x), len(x)
    error = 2.5 * math.sqrt(0.025 * 0.975 / 10000)
    bounds = []
    for p in (0.025 - error, 0.025 + error, 0.975 - error, 0.975 + error):
        bounds.append(x[next((j for j in range(1, n + 1) if at_most(n, j) >= p), n) - 1])
    return bounds


def within(t, freedom):
    """Probability of |T| <= t."""
    angle = math.atan(t / math.sqrt(freedom))
    term, total = (math.cos(angle), 0.0) if freedom % 2 else (1.0, 0.0)
    for k in range(2 if freedom % 2 == 0 else 3, freedom + 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (k - 1) / k
    return math.sin(angle) * total if freedom % 2 == 0 else \
        2 / math.pi * (angle + math.sin(angle) * total)


def student(freedom):
    below, above = 0.0, 20.0
    for _ in range(100):
        middle = (below + above) / 2
        below, above = (middle, above) if within(middle, freedom) < 0.95 else (below, middle)
    return below


def of_logarithms(values):
    """The geometric mean and the ends of its 95 % interval."""
    logs = [math.log(value) for value in values]
    middle = statistics.fmean(logs)
    half = student(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half)


def block_error(x, rng):
    """Error of the mean, as a share of it: circular blocks of sqrt(n), resampled."""
    n, length = len(x), math.ceil(math.sqrt(len(x)))
    blocks = n // length
    means = [math.fsum(x[(i + k) % n] for k in range(length)) / length for i in range(n)]
    drawn = [math.fsum(rng.choices(means, k=blocks)) / blocks for _ in range(40000)]
    # The spread of so few blocks is about their own mean.
    return statistics.pstdev(drawn) * math.sqrt(blocks / (blocks - 1)) / statistics.fmean(x)


def cases():
    rng = random.Random(20240229)
    yield "two", [3.0, 1.0]
    yield "constant", [7.25] * 9
    yield "small", [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]
    yield "signs", [-3.5, 0.0, 12.0, -1e-3, 2.5]
    yield "offset", [1e9 + v for v in (4.0, 7.0, 13.0, 16.0)]
    yield "normal", [rng.gauss(100, 5) for _ in range(101)]
    yield "skewed", [math.exp(rng.gauss(0, 1)) for _ in range(151)]
    yield "outlier", [10 + rng.random() for _ in range(40)] + [1000.0]
    yield "even", [rng.uniform(1, 2) for _ in range(64)]
    waves = [100.0]
    while len(waves) < 150:
        waves.append(100 + 0.9 * (waves[-1] - 100) + rng.gauss(0, 1))
    yield "waves", waves


def main():
    print("/* Made by stats_oracle.py. */\n/* clang-format off */")
    print("struct oracle_case {\n    const char *name;\n    size_t n;\n    double x[160];")
    print("    double mean, stddev, min, p10, median, p90, p99, max, jitter, uncertainty;")
    print("    double ci95_bounds[4]; /* all 0: not known */")
    print("    double block_error; /* 0: too few for blocks */\n};\n")
    print("/* By whole degrees of freedom, from 1. */")
    quantiles = ", ".join(repr(student(freedom)) for freedom in range(1, 41))
    print("static const double oracle_student[] = {\n" +
          textwrap.fill(quantiles, 96, initial_indent="    ", subsequent_indent="    ") + "};\n")
    rng = random.Random(7)
    print("static const struct oracle_case oracle_cases[] = {")
    for name, x in cases():
        exact = [Fraction(v) for v in x]
        mean = sum(exact) / len(exact)
        median = statistics.median(exact)
        stddev = math.sqrt(statistics.variance(exact))
        jitter = 1.4826 * float(statistics.median([abs(v - median) for v in exact]))
        bounds = bootstrap_bounds(x) if len(x) % 2 == 1 and len(x) > 100 else [0.0] * 4
        values = [float(mean), stddev, min(x), quantile(x, 0.1), float(median), quantile(x, 0.9),
                  quantile(x, 0.99), max(x), jitter, stddev / math.sqrt(len(x))]
        series = ",\n      ".join(", ".join(map(repr, x[i:i + 4])) for i in range(0, len(x), 4))
        print(f'    {{"{name}", {len(x)},\n     {{{series}}},')
        print("     " + ",\n     ".join(map(repr, values)) + ",")
        error = block_error(x, rng) if len(x) >= 40 else 0.0
        print("     {" + ", ".join(map(repr, bounds)) + "},\n     " + repr(error) + "},")
    print("};")


if __name__ == "__main__":
    main()
