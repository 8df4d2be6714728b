"""Codecs on one core: encoding and decoding a bucket, against a plain pass over memory and against
the rates that each is to reach."""

import os

from compare import Bound, Program, Row

SECONDS = 0.3

# name, options, least GB/s of fp32 encoded
CODECS = [
    ("int8", [], 6.0),
    ("fp8", [], 6.0),
    ("threshold", [], 6.0),
    ("onebit", [], 4.0),
    ("qsgd", [], None),
    ("topk", ["codec_ratio=0.01"], 1.5),
    ("powersgd", ["codec_rank=4"], None),
]

# Least of a plain pass, which has one operation an element; rank 4 has 24: half as many a second.
OF_PLAIN = {("powersgd", "encode"): 0.5 / 24}


def codec(context, name, options, what):
    program = os.path.join(context.bench, "codec")
    return Program(
        name="plain pass" if name == "plain" else f"{name}, {what}",
        command=[program, name, str(SECONDS), *options],
        rate=f"{what}_gb_per_s",
        environment={"DPBENCH_PLUGIN_PATH": os.path.join(context.build, "plugins")},
        needs={program: "`make bench` builds it"})


def rows(context):
    result = []
    for name, options, goal in CODECS:
        encode = codec(context, name, options, "encode")
        if goal:
            result.append(Row(f"{name} encodes / {goal:g} GB/s", "GB/s", encode,
                              Bound(f"{goal:g} GB/s", goal), goal=1.0))
        for what in ("encode", "decode"):
            result.append(Row(f"{name} {what}s / a plain pass", "GB/s",
                              codec(context, name, options, what),
                              codec(context, "plain", [], what), goal=OF_PLAIN.get((name, what))))
    return result
