"""Photographs to samples: image_folder against bare decoding and against torchvision's loader."""

import os

from compare import Program, Row

DEPS = "run `make bench-deps`"


def image_folder(context, threads, more=()):
    photos = os.path.join(context.bench, "photos")
    return Program(
        name="dpbench image_folder",
        command=[context.dpbench, "data", "-c", os.path.join(context.here, "data.ini"), "--json",
                 f"data.path={photos}", f"data.threads={threads}",
                 f"run.epochs={max(1, threads // 2)}", *more],
        rate="points.0.samples_per_s.median",
        versions="versions.plugins.data.libraries",
        needs={os.path.join(context.build, "plugins", "data_image_folder.so"):
               "`make` says why it was not built", photos: DEPS})


def libjpeg(context, threads):
    program = os.path.join(context.bench, "jpeg_decode")
    photos = os.path.join(context.bench, "photos", "train")
    return Program(
        name="libjpeg-turbo, full size",
        command=[program, str(threads), photos],
        rate="samples_per_s",
        versions="versions",
        needs={program: "install libjpeg-dev and run `make bench` again", photos: DEPS})


def torchvision(context, threads):
    photos = os.path.join(context.bench, "photos", "train")
    installed = os.path.join(context.build, "venv", "requirements-peers.txt")
    return Program(
        name="torchvision ImageFolder",
        command=[context.python, os.path.join(context.peers, "torchvision_loader.py"),
                 str(threads), photos],
        rate="samples_per_s",
        versions="versions",
        needs={installed: DEPS, photos: DEPS})


def rows(context):
    result = []
    for threads in sorted({1, context.cores}):
        plural = "s" if threads > 1 else ""
        ours = image_folder(context, threads)
        full = image_folder(context, threads, ["data.decode=full"])
        bare = libjpeg(context, threads)
        result += [
            Row(f"libjpeg-turbo, {threads} thread{plural}", "samples/s", ours, bare, goal=0.9),
            Row(f"the same with data.decode=full, {threads} thread{plural}", "samples/s", full,
                bare),
            Row(f"torchvision, {threads} worker{plural}", "samples/s", ours,
                torchvision(context, threads)),
        ]
    return result
