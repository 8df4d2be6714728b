#!/usr/bin/env python3
"""Makes the files that fuzzing begins with: small ones that are good, and a few that are nearly so.

    seeds.py DIRECTORY      DIRECTORY/NAME/good-* and seed-*, in the form that fuzz_NAME.c says
"""
import gzip
import io
import json
import os
import struct
import sys
import tarfile

MASK = (1 << 64) - 1


def part(data):
    return struct.pack("<H", len(data)) + data


# ---- text ----------------------------------------------------------------------------------------

def ini():
    every = """; a comment\n# another\n[run]\nworkers = 2\nsteps = 100\ntimeout_s = 1.5 min
results = /tmp/x\nprove = yes\nprecision = fp32\nsteady_drift = 1e-2\n[comm]\nname = shm\nbucket = 4 MiB
[optimizer]\nname = sgd\ndecay_at = 1, 2\nmomentum=.9 ; behind\n[model]\nname = resnet20\n[device]
threads = 2\n[checkpoint]\nat = 5,7\nsave = x.safetensors\n[eval]\nevery = 10\ntarget = 0.9\n[data]\nthreads=0\n"""
    return {
        "every": every.encode(),
        "mark": b"\xef\xbb\xbf[run]\r\n  steps =  7\r\n",
        "wrong": b"[run]\nstep = 1\n[com]\nbucket = 3 mib\n",
        "numbers": b"[run]\nsteps = 99999999999999999999\ntimeout_s = 1e300\nsteady_spread = 1e999\n"
                   b"[comm]\nbucket = 9223372036854775807.5 GiB\n",
        "utf8": b"[run]\nname = \xc3\xa4\xff\n",
        "line": b"[run]\nname = " + b"x" * 300 + b"\n",
    }


def sweep():
    return {
        "two": b"[run]\nsteps = 10\n[comm]\nname = shm\nbucket = 1 MiB\n[sweep]\ncomm.name = independent, shm\n"
               b"run.workers = 1, 2, 4\nrepeats = 3\naccuracy = 50\n",
        "wide": b"[sweep]\nrun.seed = " + b",".join(b"%d" % i for i in range(40)) + b"\nrepeats=1000\n",
        "wrong": b"[sweep]\ncomm.name = a,,b\nsweep.x = 1\n",
        "lists": b"[run]\nsteps = 10\n[sweep]\ncomm.name = independent, \"s,h\", shm\nrun.workers = 1..16 x2\n"
                 b"comm.bucket = 1..64 MiB x4\ndevice.ids = 0,1;2\n"
                 b"when = comm.name != independent or run.workers > 1 and run.steps = 10\nrepeats = 2\n",
        "length": b"[run]\nepochs = 1\n[sweep]\nrun.steps = 1, 2\n",
        "lengths": b"[sweep]\nrun.steps = 1, 2\nrun.epochs = 1\n",
        "published": b"[sweep]\ncomm.name = shm, gloo\ncomm.bucket = 1 MiB\n[published]\n"
                     b"comm.name shm comm.bucket 1MiB = 9.5, paper, machine\ncomm.name gloo = 1e3, x, y, z\n",
    }


def result():
    setting = {"value": "shm", "origin": "x.ini:3"}
    config = {"comm": {"name": setting, "bucket": {"value": 4194304, "origin": "x.ini:4"}},
              "run": {"steps": {"value": 100, "origin": "command line"},
                      "prove": {"value": True, "origin": "x.ini"},
                      "timeout_s": {"value": 60.5, "origin": "x.ini"},
                      "seed": {"value": None, "origin": "default"}},
              "data": {"path": {"value": "some/where", "origin": "x.ini:9"}}}
    one = {"schema": "dpbench.result/1", "config": config,
           "invocation": {"directory": "/home/user", "environment": {"OMP_NUM_THREADS": "2"}},
           "machine": {"cpu": "other", "memory": {"bytes": 1.0, "deep": {"er": [1, 2]}}},
           "versions": {"dpbench": "0.1"}, "inputs": {}}
    several = {"schema": "dpbench.sweep/1", "runs": [{}, {"machine": {"cpu": "x"}}],
               "config": {"sweep": {"comm.name": {"value": "shm, independent", "origin": "x.ini:1"}}}}
    measured = dict(one, status="ok", error=None, name="x", throttled=False, loss=[2.3, None],
                    world={"workers": 2, "servers": 1, "oversubscribed": True}, comm={"bytes_per_step": 8.0},
                    batch={"per_worker": 4, "global": 8, "accumulate": 2}, target={"accuracy": 0.9, "at": {"step": 3}},
                    timing={"steps": 2, "warmup_steps": 1, "elapsed_ns": 2000000, "gated": True, "steady": False,
                            "breakdown_ns": {"forward": 400000.0, "comm_exposed": 1.5},
                            "samples_per_s": {"mean": 8000.0, "median": 7e3, "ci95": [1.0, 2.0], "uncertainty": 3.0}},
                    ranks=[{"threads": 1, "comm": {"device": "x"}, "gpu": None}], eval=[{"accuracy": 0.5, "step": 2}],
                    warnings=[{"code": "drift", "text": "t", "count": 2}], loss_scale={"final": 1.0})
    rate = {"median": 10.0, "low": 9.0, "high": 11.0}
    rows = dict(several, repeats=2, accuracy_steps=3, accuracy_workers=2, status="failed", warnings=measured["warnings"],
                rows=[{"cell": {"comm.name": name, "run.workers": "2", "comm.bucket": "1kB"}, "strategy": name,
                       "workers": 2, "runs": 2, "consistency": kind, "samples_per_s": rate, "speedup": 1.5,
                       "speedup_over": "independent, 1 worker", "verified": None, "disturbed": True}
                      for name, kind in (("shm", "synchronous"), ("independent", "none"), ("gloo", "synchronous"))]
                + [{"cell": {"comm.name": "mpi"}, "status": "failed", "error": "e\nf"}])
    cell = dict(measured, purpose="timing", cell={"comm.name": "shm"}, cell_index=0, repeat=0)
    no_batch = dict(several, repeats=1, runs=[dict(cell, batch={"per_worker": 0, "global": 0})])
    # Numbers that are no index, and no count of workers.
    left = dict(several, repeats=1, runs=[dict(cell, world={"workers": 2, "left": 1e300})])
    rank = dict(measured, why={"last": {"decided": True, "shares": [0.5]}}, ranks=[{"rank": -2}])
    tune = dict(several, tune={"best": {}, "trials": [{"value": 1.0}]})
    points = [{"bytes": size, "buckets": 1, "time_us": {"p50": time}} for size, time in ((1000, 201), (4000000, 4200))]
    comm = {"status": "ok", "bucket_bytes": 4000000, "strategy": {"name": "ring_tcp"}, "points": points,
            "world": {"workers": 2, "servers": 0, "machines": 2}}
    alone = dict(measured, world={"workers": 1}, strategy={"name": "independent", "consistency": "none"},
                 batch={"per_worker": 4, "accumulate": 1}, model={"parameters": 1000}, comm=comm,
                 timing={"steps": 2, "step_ns": [9e5, 1.1e6], "ready": {"elements": [500, 1000], "ns": [3e5, 6e5]},
                         "breakdown_ns": {"backward": 5e5, "optimizer": 1e5, "comm_exposed": 0}})
    shm = dict(comm, strategy={"name": "shm"}, world={"workers": 1e300, "machines": 1})
    deep = dict(one, machine={"a" * 120: {"b" * 120: {"c" * 120: 1}}})
    return {
        "one": json.dumps(one).encode(),
        "sweep": json.dumps(several).encode(),
        "deep": json.dumps(deep).encode(),
        "measured": json.dumps(measured).encode(),
        "rows": json.dumps(rows).encode(),
        "no-batch": json.dumps(no_batch).encode(),
        "left": json.dumps(left).encode(),
        "rank": json.dumps(rank).encode(),
        "tune": json.dumps(tune).encode(),
        "alone": json.dumps(alone).encode(),
        "crowd": json.dumps(dict(alone, comm=shm)).encode(),
        "types": b'{"schema": "dpbench.result/1", "config": [1], "invocation": 3}',
        "cut": json.dumps(one).encode()[:150],
    }


# ---- data ----------------------------------------------------------------------------------------

def idx_file(dimensions, content):
    return bytes([0, 0, 8, len(dimensions)]) + b"".join(struct.pack(">I", d) for d in dimensions) + content


def idx():
    train = [idx_file([3, 2, 2], bytes(range(12))), idx_file([3], bytes([0, 1, 2]))]
    test = [idx_file([2, 2, 2], bytes(range(8))), idx_file([2], bytes([2, 0]))]
    files = train + test
    zipped = [gzip.compress(f, mtime=0) for f in files]
    flat = [idx_file([3, 2, 2], bytes(12))] + files[1:]
    huge = [idx_file([0xffffffff] * 3, b"")] + files[1:]
    members = [gzip.compress(files[0][:7], mtime=0) + gzip.compress(files[0][7:], mtime=0)] + zipped[1:]
    cut = [zipped[0][:-6]] + files[1:]
    sets = {"plain": files, "gzip": zipped, "flat": flat, "huge": huge, "members": members, "cut": cut,
            "zeros": [gzip.compress(bytes(100000), mtime=0)] + files[1:]}
    return {name: b"".join(map(part, fs)) for name, fs in sets.items()}


def cifar10():
    return {
        "two": bytes([1, 0, 0, 0, 0, 1, 0]) + bytes([3, 10, 200, 4, 5]),
        "crops": bytes([2, 1, 0, 0, 3, 1, 1]) + bytes(range(10)),
        "long": bytes([0x11, 0, 0, 0, 0, 1, 0, 1]),
        "label": bytes([1, 0, 0, 0, 0, 1, 0, 10]),
        "missing": bytes([1, 0, 0, 0, 0, 0, 0, 1]),
        "empty": b"",
    }


def llmc(ids, magic=20240520, version=1, count=None):
    header = [magic, version, len(ids) if count is None else count] + [0] * 253
    return struct.pack("<256I", *header) + struct.pack(f"<{len(ids)}{'I' if magic == 20240801 else 'H'}", *ids)


def tokens():
    def case(kind, first, second=b"", test=b""):
        return bytes([kind, bool(test)]) + part(first) + part(second) + part(test)

    ids = [i * 37 % 300 for i in range(42)]
    raw = struct.pack("<42H", *ids)
    return {
        "llmc": case(0, llmc(ids), llmc(ids[:5]), llmc(ids[:9])),
        "llmc32": case(0, llmc(ids, 20240801, 7), llmc(ids[:20])),
        "bytes": case(1, b"Call me Ishmael. Some years ago - never mind how long precisely", b"", b"Whale"),
        "uint16": case(2, raw, raw[:8], raw[:12]),
        "vocabulary": case(2, raw[:40] + b"\x2c\x01" + raw[42:]),
        "vocabulary32": case(0, llmc([*ids[:20], 0xffffffff, 0x80000000, 300], 20240801, 7), llmc(ids)),
        "odd": case(2, raw[:41], raw),
        "magic": case(0, llmc(ids, 20240519), llmc(ids)),
        "version": case(0, llmc(ids, 20240801, 1), llmc(ids)),
        "evaluation": case(0, llmc(ids, 20240522), llmc(ids)),
        "count": case(0, llmc(ids, count=0xffffffff), llmc(ids)),
        "cut": case(0, llmc(ids)[:1000], llmc(ids)),
        "short": case(1, b"Call"),
        "empty": b"",
    }


def tensors(entries, data, metadata=None, pad=0):
    header = {} if metadata is None else {"__metadata__": metadata}
    header.update(entries)
    text = json.dumps(header).encode() + b" " * pad
    return struct.pack("<Q", len(text)) + text + data


def tensor(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def network(dtype, size, optimizer=False):
    shapes = {"bn.weight": [2], "bn.bias": [2], "fc.weight": [2, 2], "fc.bias": [2],
              "bn.running_mean": [2], "bn.running_var": [2]}
    if optimizer:
        shapes.update({"optimizer.momentum_buffer." + n: s for n, s in list(shapes.items())[:4]})
    entries, at = {}, 0
    for name, shape in shapes.items():
        bytes_ = size * (4 if len(shape) == 2 else 2)
        entries[name] = tensor(dtype, shape, at, at + bytes_)
        at += bytes_
    return entries, bytes(at)


def published(dtype, size, prefix, head=None):
    """A file in a layout of others; `head`: the elements of the second copy of its tied weight."""
    shapes = {"wte.weight": [2, 2], "h.0.fc.weight": [2, 2], "h.0.fc.bias": [2], "h.0.mask": [2]}
    entries, data = {}, b""
    for name, shape in (shapes | ({"head.weight": [2, 2]} if head is not None else {})).items():
        bytes_ = head if name == "head.weight" else bytes(size * (4 if len(shape) == 2 else 2))
        entries[prefix + name] = tensor(dtype, shape, len(data), len(data) + len(bytes_))
        data += bytes_
    return tensors(entries, data, {"format": "pt"})


def safetensors():
    step = {"dpbench.step": "12", "dpbench.epoch": "1", "dpbench.samples": "1200"}
    return {
        "weights": tensors(*network("F32", 4)),
        "double": tensors(*network("F64", 8)),
        "training": tensors(*network("F32", 4, True), step),
        "progress": tensors(*network("F32", 4, True), {"dpbench.step": "-99999999999999999999"}),
        "published": published("BF16", 2, "module.net.", bytes(8)),
        "half": published("F16", 2, ""),
        "differs": published("F32", 4, "net.", b"\x01" * 16),
        "twice": tensors({"wte.weight": tensor("F32", [2], 0, 8), "net.wte.weight": tensor("F32", [2], 8, 16)},
                         bytes(16)),
        "scalar": tensors({"x": tensor("F32", [], 0, 4), "y": tensor("BF16", [2], 4, 8)}, bytes(8)),
        "overlap": tensors({"x": tensor("F32", [2], 0, 8), "y": tensor("F32", [2], 4, 12)}, bytes(12)),
        "huge": struct.pack("<Q", MASK) + b"{}",
        "number": tensors({"x": tensor("F32", [2], 0, 1 << 62), "": 3, "z": []}, bytes(8)),
    }


def hashed(name):
    h = 0xcbf29ce484222325
    for byte in name.encode():
        h = (h ^ byte) * 0x100000001b3 & MASK
    return h


def pack():
    image, names = picture(8, 8, 1), ("train/a/0.jpg", "train/b/1.jpg", "val/a/2.jpg", "val/b/3.jpg")
    n, entries, at = len(image), b"", 64 + len(names) * 40
    for name in names:
        entries += struct.pack("<5Q", hashed(name), n, 1000 * 10**9, at, n)
        at += n
    header = struct.pack("<8Q", 0, 2, 2, 0, 0, 1 << 40, 0, 0)
    good = header + entries + image * 4
    first = header + entries[:24]
    return {"plain": b"\1" + good, "raw": b"\0" + good, "cut": b"\1" + good[:100], "empty": b"\0",
            "corrupt": b"\1" + header + entries + image[:-9] + bytes(9) + image * 3,
            "unreadable": b"\1" + first + struct.pack("<2Q", MASK - 1, 0) + entries[40:] + image * 4,
            "far": b"\1" + first + struct.pack("<2Q", MASK - 5, MASK - 5) + entries[40:] + image * 4,
            "short": b"\1" + first + struct.pack("<2Q", 64, 3) + entries[40:] + image * 4,
            "counts": b"\1" + struct.pack("<8Q", 0, 3, 1, 0, 0, 1 << 40, 0, 0) + entries + image * 4,
            "small": b"\1" + struct.pack("<8Q", 0, 2, 2, 0, 0, 1, 0, 0) + entries + image * 4,
            "stale": b"\1" + header + struct.pack("<5Q", hashed(names[0]), n, 7, 224, n) + entries[40:] + image * 4}


# ---- pictures: baseline JPEG of one block a component, every coefficient but the first zero --------

def segment(marker, data):
    return bytes([0xff, marker]) + struct.pack(">H", len(data) + 2) + data


def picture(w, h, components, frame=0xc0, extra=b"", scan=bytes(4)):
    one_code = bytes([0, 2] + [0] * 14)
    out = b"\xff\xd8" + extra + segment(0xdb, b"\0" + bytes([1] * 64))
    out += segment(frame, struct.pack(">BHHB", 8, h, w, components)
                   + b"".join(bytes([c + 1, 0x11, 0]) for c in range(components)))
    out += segment(0xc4, b"\x00" + one_code + bytes([0, 4])) + segment(0xc4, b"\x10" + one_code + bytes([0, 1]))
    last = 0 if frame == 0xc2 else 63
    out += segment(0xda, bytes([components]) + b"".join(bytes([c + 1, 0]) for c in range(components))
                   + bytes([0, last, 0]))
    return out + scan + b"\xff\xd9"


def jpeg():
    adobe = segment(0xee, b"Adobe\0\x64\0\0\0\0\2")
    jfif = segment(0xe0, b"JFIF\0\1\2\0\0\1\0\1\0\0")
    return {
        "grey": b"\0" + picture(8, 8, 1),
        "grey-partial": b"\x0b" + picture(40, 24, 1, scan=bytes(24)),
        "colour": b"\x06" + picture(16, 8, 3, extra=jfif, scan=bytes(12)),
        "cmyk": b"\x0d" + picture(16, 16, 4, extra=adobe, scan=bytes(32)),
        "progressive": b"\x02" + picture(16, 16, 3, frame=0xc2, scan=bytes(16)),
        "wide": b"\x0f" + picture(500, 1, 1, scan=bytes(40)),
        "huge": b"\0" + picture(65500, 65500, 1),
        "codes": b"\0" + picture(8, 8, 1, scan=b"\x2b\xff\x00\x2b"),
        "cut": b"\0" + picture(8, 8, 1)[:-2],
        "png": b"\0\x89PNG\r\n\x1a\n",
    }


# ---- shards of pictures ------------------------------------------------------------------------

def varint(value):
    out = b""
    while value >= 0x80:
        out, value = out + bytes([value & 0x7f | 0x80]), value >> 7
    return out + bytes([value])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def masked(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    crc ^= 0xffffffff
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff)


def framed(record):
    length = struct.pack("<Q", len(record))
    return length + masked(length) + record + masked(record)


def tfrecord():
    image = picture(8, 8, 1)

    def feature(key, kind, value):
        return field(1, field(1, key) + field(2, field(kind, value)))

    def example(label, key=b"image/encoded", what=image):
        return field(1, feature(key, 1, field(1, what)) + feature(b"image/class/label", 3, label))

    one, packed = example(b"\x08\x01"), example(field(1, b"\x02"))
    raw = b"".join(framed(record) for record in (one, packed))
    return {
        "two": b"\1" + part(one) + part(packed), "raw": b"\0" + raw, "cut": b"\0" + raw[:-1], "empty": b"\0",
        "damaged": b"\1" + part(one[:-5]) + part(one) + part(b"") + part(b"\x0a\x7f"),
        "label": b"\1" + part(example(b"\x08\x03")),
        "negative": b"\1" + part(example(b"\x08" + b"\xff" * 9 + b"\x01")),
        "key": b"\1" + part(example(b"\x08\x01", b"image")) + part(one),
        "no-image": b"\1" + part(example(b"\x08\x01", what=b"\x89PNG")) + part(one),
        "long": b"\0" + struct.pack("<Q", MASK) + masked(struct.pack("<Q", MASK)) + b"x",
        "gzip": b"\0" + gzip.compress(raw, mtime=0)}


def tar():
    def made(members, form):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=form) as file:
            for name, data in members:
                info = tarfile.TarInfo(name)
                info.size = len(data)
                file.addfile(info, io.BytesIO(data))
        return out.getvalue().rstrip(b"\0") + bytes(1024)

    image = picture(8, 8, 1)
    two = [("a/0.jpg", image), ("a/0.cls", b"0"), ("a/1.cls", b"1\n"), ("a/1.json", b"{}"), ("a/1.jpeg", image)]
    deep = [("d" * 120 + "/" + name, data) for name, data in two]
    good = made(two, tarfile.USTAR_FORMAT)
    return {
        "ustar": good, "gnu": made(deep, tarfile.GNU_FORMAT), "pax": made(deep, tarfile.PAX_FORMAT),
        "cut": good[:600], "alone": made(two[:1], tarfile.USTAR_FORMAT),
        "class": made([("0.cls", b"x")], tarfile.USTAR_FORMAT),
        "label": made([two[0], ("a/0.cls", b"2")], tarfile.USTAR_FORMAT),
        "size": good[:124] + b"77777777777" + good[135:],
        "gzip": gzip.compress(good, mtime=0), "empty": bytes(1024)}


def profile():
    one = {"schema": "dpbench.profile/1", "accelerator": "X", "model": "two", "precision": "fp32", "kind": "estimated",
           "source": "a guess", "batch": 64, "macs_per_sample": 1000, "forward_ns": 61, "backward_ns": 122.5,
           "spread": 0.01, "common": 0.8, "warmup": [3.0, 1.2], "update_elements_per_s": 2.5e10,
           "tensors": [{"name": "b", "elements": 20, "ready_ns": 12}, {"name": "a", "elements": 7, "ready_ns": 122}]}

    def event(name, ts, dur):
        return {"ph": "X", "cat": "user_annotation", "name": "dpbench." + name, "ts": ts, "dur": dur}

    def node(number, name, kind, us, deps, attr=()):
        return {"id": str(number), "name": name, "type": kind, "durationMicros": str(us), "dataDeps": deps,
                "attr": [{"name": key, "int64Val": str(value)} for key, value in attr]}

    step = [event("forward", 0, 10), event("backward", 11, 20.5), event("ready b 20", 15, 1),
            event("ready a 7", 30, 1), event("update", 32, 2)]
    later = [dict(e, ts=e["ts"] + 100) for e in step]
    chakra = [node(1, "l_fwd", "COMP_NODE", 10, []), node(2, "l_bwd", "COMP_NODE", 20, ["1"]),
              node(3, "sum", "COMM_COLL_NODE", 5, ["2"], (("comm_type", 0), ("comm_size", 4096)))]
    run = {"schema": "dpbench.result/1", "status": "ok", "world": {"workers": 1}, "strategy": {"consistency": "none"},
           "model": {"name": "tiny", "parameters": 1690}, "batch": {"per_worker": 8, "accumulate": 1},
           "timing": {"step_ns": [700, 800], "warmup_step_ns": [2000], "ready": {"elements": [80, 1760], "ns": [400, 700]},
                      "breakdown_ns": {"backward": 300.5, "optimizer": 2, "comm_exposed": 0}},
           "machine": {"processor": "X"}, "ranks": [{"gpu": None}],
           "config": {"model": {"name": {"value": "tiny", "origin": "x"}}, "run": {"precision": {"value": "fp32"}}}}
    circle = [dict(chakra[0], dataDeps=["3"]), *chakra[1:]]
    return {name: json.dumps(value).encode() if not isinstance(value, bytes) else value for name, value in {
        "one": one, "torch": {"traceEvents": step + later}, "torch-odd": {"traceEvents": step + later[:3]},
        "chakra": b"\n".join(json.dumps(part).encode() for part in ({"version": "1"}, *chakra)),
        "chakra-circle": circle, "result": run, "numbers": dict(one, batch=1e300, forward_ns=-1, tensors=[{}])}.items()}


# ---- structs -------------------------------------------------------------------------------------

def text(word):
    return bytes([len(word)]) + word


def plugin(kind, rows=(), wrong=0, size=16):
    out = bytes([kind]) + struct.pack("<IB", 0, wrong) + b"\0"
    out += text(b"good") + text(b"1") + text(b"sum")
    out += bytes([size, len(rows)]) if not wrong & 64 else b"\1\0\0\0" + bytes([len(rows)])
    return out + b"".join(rows)


def row(name, kind, default, offset, choice=0):
    return bytes([kind]) + text(name) + text(default) + b"\1" + struct.pack("<IB", offset, 0) + bytes([choice, 0, 0])


def plugins():
    rows = [row(b"a", 1, b"5", 0), row(b"b", 6, b"two", 8, 1), row(b"c", 5, b"text", 8)]
    return {
        "comm": b"\3\0" + plugin(3, rows),
        "three": b"\1\2" + plugin(1) + plugin(1, rows[:1]) + plugin(1),
        "kind": b"\3\0" + plugin(2),
        "behind": b"\3\0" + plugin(3, [row(b"a", 1, b"5", 9)]),
        "nothing": b"\3\0" + plugin(3, [row(b"a", 6, b"x", 0)]),
        "type": b"\3\0" + plugin(3, [row(b"a", 77, b"x", 0)]),
        "circle": b"\3\0" + plugin(3, wrong=16),
        "magic": b"\3\0" + plugin(3, wrong=1),
        "empty": b"",
    }


def frame(rank, op, key=0, form=0, rest=b""):
    return bytes([rank << 4 | 4, form | key, op, 7]) + rest


def store():
    put, get, barrier, bye, answer = 1, 2, 3, 4, 5
    meet = b"".join(frame(r, barrier) for r in range(3))
    value = struct.pack("<I", 40)
    raw = struct.pack("<IHHIIiIq", 0x53425044, 1, 4, 1, 3, 0, 0, 0) + b"key0abc"
    return {
        "meet": meet + b"".join(frame(r, bye) for r in range(3)),
        "two": frame(0, barrier, form=8) + frame(1, barrier, form=8) + frame(2, barrier, form=8),
        "values": frame(0, get) + frame(1, put, form=32, rest=value) + frame(2, get) + frame(2, put) + b"\3\x13\x23",
        "late": frame(0, barrier, form=64, rest=b"\1\0\0\0") + b"\1\xff\xff\xff\x7f" + b"\3",
        "dead": frame(0, barrier) + b"\x12" + frame(2, barrier) + b"\x22\2",
        "raw": b"\0" + part(raw) + b"\0" + part(raw[:10]) + b"\3",
        "long": frame(0, put, form=128, rest=b"\xff\xff\xff\xff") + frame(1, answer) + frame(1, 6),
        "many": b"".join(frame(0, get, key=i % 4) for i in range(70)) + b"\1\xff\xff\xff\x7f",
    }


def ring():
    def chunk(bucket, round_, form=0, rest=b""):
        return bytes([4, bucket | round_ << 2 | form]) + rest

    post, credit, close = b"\3", b"\1", b"\x42"
    def credits(slots):
        return credit + bytes([slots])

    whole = b"".join(chunk(0, r) for r in range(4))
    sums = (post + whole + post + b"".join(chunk(1, r) for r in range(4)) + credits(15)
            + post + b"".join(chunk(2, r) for r in range(4)) + credits(12))
    given = post + chunk(0, 0) + chunk(0, 1) + chunk(1, 0) + post + chunk(1, 1) + credits(15)
    raw = struct.pack("<IIIIQQQQ", 0x4d425044, 0, 0, 0, 0, 0, 40, 0) + bytes(40)
    return {
        "whole": post + whole,
        "buckets": post * 3 + b"".join(chunk(b, r) for r in range(4) for b in range(3)) + post,
        "given": sums + given + post + chunk(2, 0) + chunk(2, 1) + credits(12) + post + whole,
        "given-twice": sums + post + chunk(0, 0) * 2,
        "given-sum": sums + post * 2 + chunk(1, 2, 128, b"\0\2\1"),
        "early": chunk(0, 0) + chunk(1, 0) + chunk(0, 1) + post * 2 + chunk(0, 2) + chunk(0, 3),
        "full": b"".join(chunk(b, 0) for b in range(3)) + chunk(0, 1) + chunk(1, 1),
        "twice": post + chunk(0, 0) * 2,
        "long": post + chunk(0, 0, 32, b"\0\0\0\x80\x20"),
        "far": post + chunk(0, 0, 64, b"\xff\xff\xff\xff\x20"),
        "next": post + chunk(0, 0, 16, b"\1"),
        "other": post + chunk(0, 0, 128, b"\7\7\1"),
        "arena": chunk(0, 2),
        "credits": post + credit + b"\1" + credit + b"\xff",
        "gone": post + chunk(0, 0) + close,
        "raw": post + b"\x08" + part(raw[:30]) + b"\x08" + part(raw[30:]),
        "half": post + b"\x08" + part(raw[:60]) + b"\x4a",
    }


def mesh():
    def message(kind, n, stream=0, form=0, rest=b""):
        return bytes([4 | stream << 3, kind | form]) + bytes([n]) + rest

    close = b"\2"
    both = b"".join(message(k, n, s) for n in range(7) for k in range(2) for s in range(2))
    raw = struct.pack("<IIIIQQQQ", 0x4d425044, 1, 0, 0, 0, 0, 40, 7) + bytes(40)
    return {
        "both": both,
        "skew": b"".join(message(0, n) for n in range(4)) + b"".join(message(0, n, 1) for n in range(4)),
        "send": b"\3\0" * 20 + both[:9],
        "other": message(2, 0),
        "ahead": message(0, 1),
        "long": message(0, 0, 0, 32, b"\0\0\0\x80\x20"),
        "far": message(0, 0, 0, 64, b"\xff\xff\xff\xff\x20"),
        "bucket": message(0, 0, 0, 16, b"\1"),
        "bye": both + b"\1" + b"\x09" + close,
        "gone": message(0, 0) + close,
        "raw": b"\0" + part(raw[:30]) + b"\0" + part(raw[30:]),
        "half": b"\0" + part(raw[:60]) + close,
    }


def channel():
    greeting = struct.pack("<QIIII", 0x3154454552475044, 1, 0, 1, 0) + bytes(range(32))
    page = struct.pack("<IHHIIiIq", 0x53425044, 34, 0, 0, 5, 0, 1, 0) + b"abcde"
    return {
        "greeting": b"\0" + part(greeting) + part(bytes(32)),
        "halves": b"\0" + part(greeting[:20]) + part(greeting[20:]) + part(bytes(31)) + part(b"x"),
        "rubbish": b"\0" + part(b"GET / HTTP/1.0\r\n\r\n" * 4),
        "frames": b"\1" + part(page + page[:10]) + part(page[10:]),
        "length": b"\1" + part(struct.pack("<IHHIIiIq", 0x53425044, 34, 0, 0, 0xffffffff, 0, 1, 0)),
        "operation": b"\1" + part(struct.pack("<IHHIIiIq", 0x53425044, 2, 0, 0, 0, 0, 1, 0)),
    }


def party():
    config = b'{"run":{"workers":{"value":"3","origin":"x.ini:2"}},"comm":{"name":{"value":"shm","origin":"default"}}}'
    other = config.replace(b"shm", b"replicated")

    def report(form, text=config):
        return bytes([form]) + part(text)

    def head(a, b, own=config):
        return b"\0" + part(own) + a + b

    verdict = struct.pack("<iIII", 0, 1, 2, 1) + bytes(32)
    return {
        "agreed": head(report(0), report(0)),
        "cores": head(report(8), report(0)),
        "differ": head(report(0), report(0, other)),
        "missing": head(report(0, b"{}"), report(0)),
        "no-json": head(report(0, b"\xff{"), report(0, b"[1]")),
        "no-object": head(report(0, b'{"run":1,"comm":{"name":2}}'), report(0), b'{"run":{"a":{}}}'),
        "refused": head(report(2, b"x.ini:3: no"), report(0)),
        "version": head(report(4), report(0)),
        "short": head(report(1, b"abc"), report(17, b"abc")),
        "other": head(report(16), report(0)),
        "verdict": b"\1\0" + verdict,
        "no": b"\1\0" + struct.pack("<i", 2) + verdict[4:],
        "verdict-short": b"\1\0" + verdict[:-1],
        "verdict-raw": b"\1\2" + verdict,
        "joins": b"\2\1\2\0\0\0\0" + b"host1".ljust(256, b"\0") + b"host2",
        "joins-alone": b"\2\0\1\0\0\0\0" + b"x" * 300,
        "no-ranks": b"\2\0\0\0\0\0\0",
        "many": b"\2\0\0\20\0\0\0",
        "rank": b"\2\1\2\0\0\0\4",
        "half": b"\2\1\2\0\0\0\20",
        "failed": b"\2\1\2\0\0\0\12",
    }


def texts():
    def hosts(n_ranks, text):
        return bytes([2 | (n_ranks - 1) << 2]) + text

    return {
        "sizes": b"\0 8,4 KiB, 1 MiB,0.5kB",
        "none": b"\0none",
        "range": b"\0",
        "sizes-wrong": b"\0 4 KiB,,-1,1e400 GB",
        "sizes-many": b"\0" + b",".join(b"%d" % (4 * i) for i in range(1, 140)),
        "loopback": b"\1lo",
        "network": b"\1" b"127.0.0.0/8",
        "address": b"\5" b"127.0.0.1",
        "default": b"\5",
        "network-wrong": b"\1" b"127.0.0.0/33",
        "network-6": b"\1fd00::/64",
        "name-long": b"\1" + b"x" * 100,
        "hosts": hosts(4, b"2x2"),
        "hosts-mixed": hosts(7, b"1+2x3"),
        "hosts-list": hosts(4, b"0,1,0,1"),
        "hosts-one": hosts(64, b"64"),
        "hosts-order": hosts(3, b"0,2,1"),
        "hosts-few": hosts(5, b"2x2"),
        "hosts-large": hosts(9, b"9999x9999"),
        "hosts-zero": hosts(2, b"0x2+2"),
    }


# ---- messages of codecs --------------------------------------------------------------------------

def codec(n, data, option=b"", encode=False, round_=0):
    return bytes([encode + 2 * round_]) + part(option) + struct.pack("<I", n - 1) + part(data)


def codec_seeds(message, n, option=b""):
    floats = struct.pack("<6f", 1, -2, 0, 1e-30, -3e38, 0.5)
    odd = struct.pack("<4f", float("nan"), 1, float("inf"), -1)
    return {"message": codec(n, message, option), "encode": codec(1500, floats * 200, option, True),
            "odd": codec(600, odd, option, True), "one": codec(1, floats, option, True),
            "long": codec(n, message + b"x", option), "short": codec(n, message[:-1], option),
            "other": codec(n + 1024, message, option), "option": codec(n, message, b"codec_feedback=no")}


def topk_seeds():
    def message(*indices):
        return struct.pack("<3I3f", *indices, 1, -2, 3)
    return dict(codec_seeds(message(0, 5, 29), 30, b"codec_ratio=0.1"),
                sampled=codec(4000, bytes(range(256)) * 62, b"codec_ratio=0.4", True),
                **{name: codec(30, message(*indices), b"codec_ratio=0.1") for name, indices in
                   {"beyond": (0, 5, 30), "far": (0, 5, 0xffffffff), "twice": (0, 5, 5), "falls": (5, 0, 29)}.items()})


CODECS = {
    "codec_topk": topk_seeds,
    "codec_int8": lambda: codec_seeds(struct.pack("<2f", 0.1, 2) + bytes(range(250)) * 5, 1250),
    "codec_fp8": lambda: dict(codec_seeds(struct.pack("<2f", 0.1, 2) + bytes(range(250)) * 5, 1250),
                              wide=codec(256, struct.pack("<f", 1) + bytes(range(256)), b"codec_format=e5m2")),
    "codec_threshold": lambda: codec_seeds(bytes(range(75)), 300),
    "codec_onebit": lambda: codec_seeds(struct.pack("<4f", 1, -1, 2, -2) + bytes(150), 1200),
    "codec_powersgd": lambda: dict(codec_seeds(struct.pack("<78f", *range(78)), 1250),
                                   **{"second": codec(1250, struct.pack("<140f", *range(140)), round_=1),
                                      "rank": codec(4000, bytes(range(256)) * 62, b"codec_rank=9", True),
                                      "far": codec(1250, struct.pack("<140f", *[3e38] * 140), round_=1)}),
    "codec_qsgd": lambda: dict(codec_seeds(struct.pack("<2f", 1, 2) + b"\x7e" * 300, 600),
                               level=codec(600, struct.pack("<2f", 1, 2) + b"\xf7" * 300),
                               wide=codec(3, struct.pack("<f", 1) + b"\0\x7f\xfe", b"codec_levels=127")),
}

ALL = {"ini": ini, "sweep": sweep, "result": result, "idx": idx, "cifar10": cifar10, "tokens": tokens,
       "safetensors": safetensors,
       "pack": pack, "jpeg": jpeg, "tfrecord": tfrecord, "tar": tar, "plugin": plugins, "store": store, "ring": ring,
       "mesh": mesh, "channel": channel,
       "party": party, "text": texts, "profile": profile, **CODECS}


# Those that a target uses to its end; replay.c sees to it.
GOOD = {"ini": ["every", "mark"], "sweep": ["two", "wide", "lists", "length", "published"], "result": ["one", "deep", "sweep", "measured", "rows"],
        "idx": ["plain", "gzip", "members"], "cifar10": ["two", "crops"], "tokens": ["llmc", "llmc32", "bytes", "uint16"],
        "safetensors": ["weights", "double", "training", "published", "half"], "pack": ["plain", "corrupt", "unreadable"],
        "jpeg": ["grey", "grey-partial", "colour", "cmyk", "progressive", "wide"], "plugin": ["comm", "three"],
        "tfrecord": ["two", "raw", "damaged"], "tar": ["ustar", "gnu", "pax"],
        "store": ["meet", "two", "raw", "values"], "ring": ["whole", "buckets", "early", "given"],
        "mesh": ["both", "skew", "bye"], "party": ["agreed", "cores", "verdict", "joins", "joins-alone"],
        "text": ["sizes", "range", "loopback", "network", "address", "default", "hosts", "hosts-mixed",
                 "hosts-list", "hosts-one"], "profile": ["one", "torch", "chakra"],
        **{name: ["message", "encode", "odd", "one"] for name in CODECS}}


def main():
    for name, make in ALL.items():
        directory = os.path.join(sys.argv[1], name)
        os.makedirs(directory, exist_ok=True)
        for seed, data in make().items():
            file = ("good-" if seed in GOOD.get(name, ()) else "seed-") + seed
            with open(os.path.join(directory, file), "wb") as f:
                f.write(data)


main()
