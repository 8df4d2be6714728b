"""cases.py - launches of every kernel of plugins/devices/cuda on small tensors with odd tails, and what numpy makes of
them in fp64. To add a kernel: a function with @case that makes buffers, enqueues, and compares (`close`: one rounding
of the type, and fp32's error times `scale`; `same`: every bit). kernel_results.py fails if a kernel has no case.
"""

import numpy as np
from bench import BF16, FP16, FP32, STORED, Wrong, close, encode, same, struct

CASES = []
TYPES = (FP32, BF16, FP16)
NAN = float("nan")


def case(*types):
    def take(function):
        CASES.extend((f"{function.__name__} {('fp32', 'bf16', 'fp16')[t]}", function, t) for t in types or TYPES)
        return function
    return take


def grid(n, h, w, c, planes=False):
    return struct("IIII?", n, h, w, c, planes)


def divisor(by):
    shift = (by - 1).bit_length()
    return struct("III", by, (((1 << shift) - by) << 32) // by + 1, shift)


def per_pack(type_, n):
    lanes = 16 // STORED[type_].itemsize
    return lanes if n % lanes == 0 else 1


def images(array, planes):
    """NHWC from how a grid lies; and back by `lies`."""
    return array.transpose(0, 2, 3, 1) if planes else array


def lies(array, planes):
    return np.ascontiguousarray(array.transpose(0, 3, 1, 2) if planes else array)


def random4(seed, stream, c0, c1, c2, c3):
    """Philox4x32-10 (core/include/dpbench/random.h) of arrays of counters."""
    low = np.uint64(0xffffffff)
    whole = np.zeros(np.broadcast(c0, c1, c2, c3).shape, "u8")
    c0, c1, c2, c3 = (np.asarray(c, "u8") + whole for c in (c0, c1, c2, c3))
    k0, k1 = seed & 0xffffffff, (seed >> 32) ^ (stream << 24)
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
        c0, c1 = (p1 >> np.uint64(32)) ^ c1 ^ np.uint64(k0), p1 & low
        c2, c3 = (p0 >> np.uint64(32)) ^ c3 ^ np.uint64(k1), p0 & low
        k0, k1 = (k0 + 0x9E3779B9) & 0xffffffff, (k1 + 0xBB67AE85) & 0xffffffff
    return np.stack([c0, c1, c2, c3], -1)


def uniform(bits):
    return (bits >> np.uint64(8)).astype("f8") * 2.0 ** -24


# ------------------------------------------------------------------------------------ kernels_simple.cu


@case()
def weights(b, t):
    """Packed weights, and the gradient's way back: a permutation, a plain conversion by packs, and one of odd size."""
    shapes = [(3, 5, 9, 8), (4, 16, 1, 16), (3, 5, 1, 5)]
    core = b.normal(1000)
    arena, table, at, outs = b.buffer(core), [], 7, []
    for o, i, hw, wide in shapes:
        at = (at + 7) // 8 * 8
        outs.append((b.of(t, o * hw * wide), core[at:at + o * i * hw].reshape(o, i, hw)))
        table.append(struct("QPIIIIS", at, outs[-1][0], o, i, hw, wide, divisor(wide)))
        at += o * i * hw
    rows = b.buffer(np.frombuffer(b"".join(bytes(row) for row in table), "u4"))
    b.enqueue("cuda_pack_weights", t, rows, len(table), arena)
    for (out, wanted), (o, i, hw, wide), row in zip(outs, shapes, table):
        packed = np.zeros((o, hw, wide))
        packed[:, :, :i] = wanted.transpose(0, 2, 1)
        close("packed", out.values, packed, t)
        back = b.buffer(o * i * hw, "f4")
        b.enqueue("cuda_unpack_gradient", t, out, back, row)
        close("unpacked", back.values, out.values.reshape(o, hw, wide)[:, :, :i].transpose(0, 2, 1))


@case()
def samples(b, t):
    scale, offset = np.array([.5, .25, 2.]), np.array([1., -2., .125])
    for whole, chw, planes, c in ((True, True, False, 8), (False, False, False, 3), (True, False, True, 3)):
        pool = b.draw.integers(0, 255, (5, 3, 6, 7)) if whole else b.normal(5, 3, 6, 7)
        data = b.buffer(np.ascontiguousarray(pool if chw else pool.transpose(0, 2, 3, 1)), "u1" if whole else "f4")
        order = [4, 0, 3]
        numbers = b.buffer(np.array(order, "u4")) if chw else None
        y = b.of(t, 3 * 6 * 7 * c)
        given = struct("PPI??" + "f" * 8, data, numbers, 3, whole, chw, *scale, 0., *offset, 0.)
        b.enqueue("cuda_normalise_samples", t, given, y, [grid(3, 6, 7, c, planes)])
        wanted = np.zeros((3, 6, 7, c))
        wanted[..., :3] = pool[order if chw else [0, 1, 2]].transpose(0, 2, 3, 1) * scale + offset
        close("normalised samples", y.values, lies(wanted, planes), t, scale=255)


@case()
def biases(b, t):
    for n, h, w, c, planes, relu, biased in ((3, 5, 7, 16, 0, 1, 1), (2, 3, 3, 5, 0, 0, 1), (2, 4, 8, 3, 1, 1, 1),
                                             (2, 3, 3, 5, 1, 1, 0), (18, 5, 7, 24, 0, 1, 1)):
        x = b.of(t, b.normal(n * h * w * c))
        bias = b.buffer(b.normal(c)) if biased else None
        whole = images(x.values.reshape((n, c, h, w) if planes else (n, h, w, c)), planes)
        whole = whole + (bias.values.astype("f8") if biased else 0)
        b.enqueue("cuda_bias_relu", t, x, bias, bool(relu), x, [grid(n, h, w, c, bool(planes))])
        close("bias", x.values, lies(np.maximum(whole, 0) if relu else whole, planes), t)


@case()
def relu_backward(b, t):
    for n in (1003, 264):
        y, dy = b.of(t, b.normal(n)), b.of(t, b.normal(n))
        wanted = np.where(y.values <= 0, 0, dy.values)
        b.enqueue("cuda_relu_backward", t, dy, y, dy, n)
        same("ReLU backward", dy.values, wanted)


@case()
def sums(b, t):
    for n in (509, 2056):
        parts = [b.of(t, b.normal(n)) for _ in range(3)]
        wanted = sum(p.values for p in parts)
        b.enqueue("cuda_sum", t, struct("P" * 128 + "I", *parts, *[None] * 125, 3), parts[1], n)
        close("sum", parts[1].values, wanted, t, scale=4)


@case(FP32, BF16)
def columns(b, t):
    for wide, at, c in ((24, 8, 8), (24, 4, 12), (10, 2, 6), (7, 3, 1)):
        matrix, rows = b.of(t, b.normal(37, wide)), 37
        part, back = b.of(t, rows * c), b.of(t, b.normal(rows, wide))
        wanted = back.values.copy().reshape(rows, wide)
        b.enqueue("cuda_gather_columns", t, matrix, wide, at, part, rows, c)
        same("columns", part.values, matrix.values.reshape(rows, wide)[:, at:at + c])
        b.enqueue("cuda_scatter_columns", t, part, back, wide, at, rows, c)
        wanted[:, at:at + c] = part.values.reshape(rows, c)
        same("columns back", back.values, wanted)


@case()
def shortcuts(b, t):
    for planes in (False, True):
        large, small = b.of(t, b.normal(2, 3, 7, 5) if planes else b.normal(2, 7, 5, 3)), b.of(t, 2 * 3 * 3 * 4)
        by = struct("SSII", grid(2, 7, 5, 3, planes), grid(2, 3, 3, 4, planes), 2, 2)
        whole = images(large.values.reshape((2, 3, 7, 5) if planes else (2, 7, 5, 3)), planes)
        wanted = np.zeros((2, 3, 3, 4))
        wanted[..., :3] = whole[:, 0:6:2, 0:6:2]
        b.enqueue("cuda_sample", t, by, large, small)
        same("sampled", small.values, lies(wanted, planes))
        back, wanted_back = b.of(t, 2 * 7 * 5 * 3), np.zeros((2, 7, 5, 3))
        wanted_back[:, 0:6:2, 0:6:2] = wanted[..., :3]
        b.enqueue("cuda_spread", t, by, small, back)
        same("spread", back.values, lies(wanted_back, planes))


@case(FP32, BF16)
def frames(b, t):
    for c, planes in ((8, False), (4, False), (2, False), (3, False), (3, True)):
        inner, outer = b.of(t, b.normal(2, c, 3, 4) if planes else b.normal(2, 3, 4, c)), b.of(t, 2 * 7 * 6 * c)
        by = struct("SSII", grid(2, 3, 4, c, planes), grid(2, 7, 6, c, planes), 3, 1)
        whole = images(inner.values.reshape((2, c, 3, 4) if planes else (2, 3, 4, c)), planes)
        wanted = np.zeros((2, 7, 6, c))
        wanted[:, 3:6, 1:5] = whole
        b.enqueue("cuda_pad", t, by, inner, outer)
        same("padded", outer.values, lies(wanted, planes))
        back = b.of(t, 2 * 3 * 4 * c)
        b.enqueue("cuda_crop", t, by, outer, back)
        same("cropped", back.values, inner.values)


@case()
def dropout(b, t):
    for planes in (False, True):
        n, h, w, c = 3, 4, 5, 3
        x, y = b.of(t, b.normal(n * h * w * c)), b.of(t, n * h * w * c)
        words = b.buffer(np.array([6, 40, 0, 0, 0], "u4"))
        b.enqueue("cuda_dropout", t, struct("QIdP", 5 | 7 << 32, 2, .3, words), x, y, [grid(n, h, w, c, planes)])
        sample, element = np.arange(n)[:, None], np.arange(h * w * c)[None]
        four = random4(5 | 7 << 32, 2, 2, element // 4, sample + 40, 6)
        word = (element % 4)[..., None] + np.zeros_like(sample)[..., None]
        keeps = (uniform(np.take_along_axis(four, word, -1)) >= .3).reshape(n, c, h, w)
        keeps = keeps if planes else keeps.transpose(0, 2, 3, 1)
        close("dropout", y.values, np.where(keeps.ravel(), x.values / .7, 0), t)


@case()
def random_values(b, t):
    y = b.of(t, 1038)
    b.enqueue("cuda_fill_random", t, y, 1038)
    four = random4(1, 4, np.arange(260), 0, 0, 0)
    close("random", y.values, (2 * uniform(four) - 1).ravel()[:1038], t)


@case(FP32)
def flags(b, _):
    words, flag = b.buffer(np.array([0, 0, 0, 77, 0], "u4")), b.buffer(np.zeros(1, "u4"))
    b.enqueue("cuda_raise", words, flag)
    same("flag", flag.values, [77])
    for n, at in ((1003, 1002), (1024, 5)):
        values = b.normal(n)
        x = b.buffer(values)
        flag.raw[:] = 0
        b.enqueue("cuda_find_infinite", words, x, n, flag)
        same("no flag", flag.values, [0])
        x.raw[[3, at]] = np.inf, NAN
        b.enqueue("cuda_find_infinite", words, x, n, flag)
        same("the flag", flag.values, [77])


# ------------------------------------------------------------------------------------ batch-norm

# Several slabs of rows and a block with columns behind the last; few elements by packs; packs of pixels.
SHAPES = ((3, 10, 20, 33, False), (1, 3, 5, 24, False), (2, 5, 16, 3, True), (2, 3, 5, 3, True))
LARGE = (5, 15, 15, 64, False)


def norm_room(b, c):
    return b.buffer(np.full(64 * 3 * c, NAN)), b.buffer(np.zeros(c, "u4"))


class Norm:
    """A batch-norm of c channels, with its struct and its values."""

    def __init__(self, b, c, plain=False):
        self.mean, self.inverse = b.buffer(b.normal(c)), b.buffer(np.abs(b.normal(c)) + .5)
        self.gamma = None if plain else b.buffer(b.normal(c))
        self.beta = None if plain else b.buffer(b.normal(c))
        self.struct = struct("PPPPd", self.mean, self.inverse, self.gamma, self.beta, 1e-5)
        self.scale = self.inverse.raw.astype("f8") * (1 if plain else self.gamma.raw.astype("f8"))

    def of(self, x):
        return (x - self.mean.raw.astype("f8")) * self.scale + (0 if self.beta is None else self.beta.raw.astype("f8"))

    def normal(self, x):
        return (x - self.mean.raw.astype("f8")) * self.inverse.raw.astype("f8")


def tensor(b, t, shape):
    n, h, w, c, planes = shape
    made = b.of(t, b.normal(n, c, h, w) if planes else b.normal(n, h, w, c))
    return made, images(made.values.reshape((n, c, h, w) if planes else (n, h, w, c)), planes)


def run_of(shape):
    n, h, w, c, planes = shape
    return h * w if planes else c


def bits_of(t, shape, whole):
    """A mask's bytes: a bit for each element of a pack."""
    lanes = per_pack(t, run_of(shape))
    flags_ = lies(whole, shape[4]).reshape(-1, lanes)
    return (flags_ << np.arange(lanes)).sum(1).astype("u1")


@case()
def channel_sums(b, t):
    for shape in SHAPES + (LARGE,):
        x, whole = tensor(b, t, shape)
        partial, tickets = norm_room(b, shape[3])
        y = b.buffer(shape[3], "f4")
        b.enqueue("cuda_column_sums", t, x, [grid(*shape)], [struct("PP", partial, tickets)], y)
        close("sums", y.values, whole.sum((0, 1, 2)), scale=60)
        same("tickets", tickets.values, np.zeros(shape[3]))


@case()
def moments(b, t):
    for shape in SHAPES:
        x, whole = tensor(b, t, shape)
        partial, tickets = norm_room(b, shape[3])
        rows, c = whole[..., 0].size, shape[3]
        made = [b.buffer(c, "f4") for _ in range(4)]
        by = struct("PPPPd", made[0], made[1], None, None, 1e-3)
        b.enqueue("cuda_batch_moments", t, x, [grid(*shape)], [struct("PP", partial, tickets)],
                  struct("SdPP", by, float(rows), made[2], made[3]))
        mean, variance = whole.mean((0, 1, 2)), whole.var((0, 1, 2))
        close("mean", made[0].values, mean, scale=4)
        close("inverse", made[1].values, 1 / np.sqrt(variance + 1e-3), scale=10)
        close("mean of statistics", made[2].values, mean, scale=4)
        close("variance", made[3].values, variance * rows / (rows - 1), scale=10)
    c = 300
    mean, variance = b.buffer(b.normal(c)), b.buffer(np.abs(b.normal(c)))
    made = [b.buffer(c, "f4") for _ in range(2)]
    b.enqueue("cuda_running_moments", mean, variance, c, struct("PPPPd", *made, None, None, 1e-3))
    close("running", made[1].values, 1 / np.sqrt(variance.raw.astype("f8") + 1e-3))
    same("running mean", made[0].values, mean.values)


@case()
def normalise(b, t):
    for number, shape in enumerate(SHAPES):
        for adds in range(3):
            x, whole = tensor(b, t, shape)
            more, added = tensor(b, t, shape)
            norm, other = Norm(b, shape[3]), Norm(b, shape[3], plain=True)
            relu, y = bool((number + adds) % 3), b.of(t, x.raw.size)
            lanes = per_pack(t, run_of(shape))
            mask = b.buffer(x.raw.size // lanes, "u1") if relu else None
            given = struct("PP", more if adds else None, b.kept(other.struct) if adds == 2 else None)
            wanted = norm.of(whole) + (0, added, other.of(added))[adds]
            wanted = np.maximum(wanted, 0) if relu else wanted
            b.enqueue("cuda_normalise", t, x, norm.struct, given, relu, y, mask, [grid(*shape)])
            close("normalised", y.values, lies(wanted, shape[4]), t, scale=20)
            if relu:
                out = images(y.values.reshape((shape[0], shape[3]) + shape[1:3] if shape[4] else shape[:4]), shape[4])
                same("mask", mask.values, bits_of(t, shape, (out != 0).astype("i4")))


def norm_gradient(b, t, shape, sides, more, masked, pool=None, where=None, dy=None):
    """Runs the sums and the backward of one or two batch-norms; compares with dz."""
    c = shape[3]
    given, dz_whole = tensor(b, t, shape) if dy is None else dy
    added = tensor(b, t, shape) if more else None
    mask = None
    if more:
        dz_whole = encode_round(dz_whole + added[1], t)
    if masked:
        counts = b.draw.integers(0, 2, dz_whole.shape)
        mask = b.buffer(bits_of(t, shape, counts), "u1")
        dz_whole = dz_whole * counts
    partial, tickets = norm_room(b, c)
    dz = None if where is not None else b.of(t, int(np.prod(shape[:4])))
    by = struct("PPPPSP", given, mask, added[0] if more else None, dz, pool or NO_WINDOW, where)
    all_sides, norms, xs = [], [], []
    for _ in range(sides):
        x, whole = tensor(b, t, shape)
        norm = Norm(b, c)
        made = [b.buffer(2 * c, "f4"), b.buffer(c, "f4"), b.buffer(c, "f4"), b.of(t, x.raw.size)]
        all_sides.append(struct("PSPPPP", x, norm.struct, *made))
        norms.append((norm, made))
        xs.append(whole)
    array, room, shape_ = b.row(all_sides), [struct("PP", partial, tickets)], [grid(*shape)]
    b.enqueue("cuda_norm_sums", t, by, array, sides, shape_, room)
    if dz is not None:
        close("dz", dz.values, lies(dz_whole, shape[4]), t)
    for (norm, made), whole in zip(norms, xs):
        first, second = dz_whole.sum((0, 1, 2)), (dz_whole * norm.normal(whole)).sum((0, 1, 2))
        close("sums", made[0].values, np.concatenate([first, second]), scale=200)
        close("dgamma", made[1].values, second, scale=200)
        close("dbeta", made[2].values, first, scale=200)
    last = struct("PPPPSP", given if where is not None else dz, mask, None, None, pool or NO_WINDOW, where)
    b.enqueue("cuda_norm_backward", t, last, array, sides, shape_)
    rows = dz_whole[..., 0].size
    for (norm, made), whole in zip(norms, xs):
        stored = made[0].raw.astype("f8")
        wanted = norm.scale * (dz_whole - stored[:c] / rows - norm.normal(whole) * stored[c:] / rows)
        close("dx", made[3].values, lies(wanted, shape[4]), t, scale=20)


def encode_round(values, t):
    return values if t == FP32 else decode_of(encode(values, t), t)


def decode_of(raw, t):
    return (raw.astype("u4") << np.uint32(16)).view("f4").astype("f8") if t == BF16 else raw.astype("f8")


@case()
def norm_backward(b, t):
    for number, shape in enumerate(SHAPES):
        for sides, more in ((1, False), (1, True), (2, number % 2 == 0)):
            norm_gradient(b, t, shape, sides, more, masked=(sides + number + more) % 3 > 0)


# ------------------------------------------------------------------------------------ pools and LRN


def window(n, h, w, c, out_h, out_w, kernel, stride, pad, planes=False):
    return struct("SSIIIIII", grid(n, h, w, c, planes), grid(n, out_h, out_w, c, planes), kernel, kernel, stride,
                  stride, pad, pad)


NO_WINDOW = window(0, 0, 0, 0, 0, 0, 0, 0, 0)
# n, h, w, c, out_h, out_w, kernel, stride, pad, planes
WINDOWS = ((2, 9, 7, 16, 5, 4, 3, 2, 1, False), (2, 6, 7, 5, 3, 3, 2, 2, 0, False), (2, 6, 5, 3, 4, 3, 3, 2, 1, True))


def reaches(out, kernel, stride, pad, size):
    return [(max(0, min(size, o * stride - pad)), max(0, min(size, o * stride - pad + kernel))) for o in range(out)]


@case()
def max_pools(b, t):
    for number, (n, h, w, c, oh, ow, kernel, stride, pad, planes) in enumerate(WINDOWS + WINDOWS[:2]):
        shape, norm = (n, h, w, c, planes), Norm(b, c) if number >= len(WINDOWS) else None
        x, whole = tensor(b, t, shape)
        by = window(n, h, w, c, oh, ow, kernel, stride, pad, planes)
        y, where = b.of(t, n * oh * ow * c), b.buffer(n * oh * ow * c, "u1")
        b.enqueue("cuda_max_pool", t, by, x, norm and norm.struct, y, where)
        values = whole if norm is None else encode_round(np.maximum(norm.of(whole), 0).astype("f4"), t)
        best, places = np.zeros((n, oh, ow, c)), np.zeros((n, oh, ow, c), "i4")
        for i, (top, bottom) in enumerate(reaches(oh, kernel, stride, pad, h)):
            for j, (left, right) in enumerate(reaches(ow, kernel, stride, pad, w)):
                part = values[:, top:bottom, left:right].reshape(n, -1, c)
                best[:, i, j], at = part.max(1), part.argmax(1)
                places[:, i, j] = (at // (right - left) + top - (i * stride - pad)) * kernel + \
                    at % (right - left) + left - (j * stride - pad)
        # With a norm, fp32's rounding may choose another place: the gradient goes by the place that was written.
        close("maxima", y.values, lies(best, planes), t, scale=10 if norm else 0)
        found = images(where.raw.astype("i4").reshape((n, c, oh, ow) if planes else (n, oh, ow, c)), planes)
        if norm is None:
            same("places", found, places)
        else:
            same("no place of a zero", found[best == 0], np.full((best == 0).sum(), 255))
        dy, dy_whole = tensor(b, t, (n, oh, ow, c, planes))
        wanted = np.zeros((n, h, w, c))
        for i, j, k, m in np.ndindex(n, oh, ow, c):
            place = found[i, j, k, m]
            if place != 255:
                row, column = place // kernel + j * stride - pad, place % kernel + k * stride - pad
                wanted[i, row, column, m] += dy_whole[i, j, k, m]
        dx = b.of(t, x.raw.size)
        b.enqueue("cuda_max_pool_backward", t, by, dy, where, dx)
        close("max pool's gradient", dx.values, lies(wanted, planes), t, scale=4)
        if norm is not None:
            norm_gradient(b, t, shape, 1, False, False, by, where, (dy, encode_round(wanted.astype("f4"), t)))


@case()
def mean_pools(b, t):
    for n, h, w, c, oh, ow, kernel, stride, pad, planes in WINDOWS:
        x, whole = tensor(b, t, (n, h, w, c, planes))
        dy, dy_whole = tensor(b, t, (n, oh, ow, c, planes))
        by = window(n, h, w, c, oh, ow, kernel, stride, pad, planes)
        mean, back = np.zeros((n, oh, ow, c)), np.zeros((n, h, w, c))
        for i, (top, bottom) in enumerate(reaches(oh, kernel, stride, pad, h)):
            for j, (left, right) in enumerate(reaches(ow, kernel, stride, pad, w)):
                size = (bottom - top) * (right - left)
                mean[:, i, j] = whole[:, top:bottom, left:right].sum((1, 2)) / size
                back[:, top:bottom, left:right] += dy_whole[:, i:i + 1, j:j + 1] / size
        y, dx = b.of(t, mean.size), b.of(t, back.size)
        b.enqueue("cuda_mean_pool", t, by, x, y)
        close("means", y.values, lies(mean, planes), t)
        b.enqueue("cuda_mean_pool_backward", t, by, dy, dx)
        close("mean pool's gradient", dx.values, lies(back, planes), t)


@case()
def lrn(b, t):
    for shape in ((2, 3, 3, 9, False), (1, 2, 4, 6, True)):
        x, whole = tensor(b, t, shape)
        dy, dy_whole = tensor(b, t, shape)
        by, c = struct("Ifff", 2, 2., .1, .75), shape[3]
        alpha, beta = np.float32(.1).astype("f8"), .75
        near = np.abs(np.arange(c)[:, None] - np.arange(c)) <= 2
        s = 2 + alpha * (whole ** 2) @ near
        y, dx = b.of(t, x.raw.size), b.of(t, x.raw.size)
        b.enqueue("cuda_lrn", t, by, x, y, [grid(*shape)])
        close("LRN", y.values, lies(whole * s ** -beta, shape[4]), t, scale=4)
        b.enqueue("cuda_lrn_backward", t, by, x, dy, dx, [grid(*shape)])
        total = (dy_whole * whole * s ** (-beta - 1)) @ near
        close("LRN's gradient", dx.values, lies(dy_whole * s ** -beta - 2 * alpha * beta * whole * total, shape[4]), t,
              scale=8)


# ------------------------------------------------------------------------------------ kernels_sequence.cu


@case(FP32)
def ids(b, _):
    pool = b.draw.integers(0, 9, (6, 50)).astype("i4")
    source, to, numbers = b.buffer(pool), b.buffer(150, "i4"), b.buffer(np.array([5, 0, 2], "u4"))
    b.enqueue("cuda_copy_ids", source, numbers, 50, to, 150)
    same("ids", to.values, pool[[5, 0, 2]])
    b.enqueue("cuda_copy_ids", source, None, 50, to, 150)
    same("ids in order", to.values, pool[:3])
    some = b.draw.integers(0, 40, 300).astype("i4")
    order = b.buffer(300, "u4")
    b.enqueue("cuda_sort_ids", b.buffer(some), 300, order)
    same("order", order.values, np.argsort(some, kind="stable"))


@case()
def embedding(b, t):
    for channels in (24, 5, 264):
        rows, words = 100, 7
        some = b.draw.integers(0, words, rows).astype("i4")
        some[:70] = 3
        table, given, y = b.buffer(b.normal(words, channels)), b.buffer(some), b.of(t, rows * channels)
        b.enqueue("cuda_embed", t, given, table, y, rows, channels)
        close("embedded", y.values, table.values.reshape(words, channels)[some], t)
        order = b.buffer(np.argsort(some, kind="stable"), "u4")
        dy, to = b.of(t, b.normal(rows * channels)), b.buffer(b.normal(words, channels))
        wanted = to.values.reshape(words, channels).astype("f8")
        for adds in (True, False):
            wanted = wanted.copy()
            for word in np.unique(some):
                wanted[word] = dy.values.reshape(rows, channels)[some == word].sum(0) + (wanted[word] if adds else 0)
            b.enqueue("cuda_embed_backward", t, given, order, rows, dy, to, channels, adds)
            close("embedding's gradient", to.values, wanted, scale=40)


@case()
def layer_norms(b, t):
    for channels, rows in ((24, 19), (33, 9), (264, 9)):
        x, dy = b.of(t, b.normal(rows, channels)), b.of(t, b.normal(rows, channels))
        gamma, beta, moments_ = b.buffer(b.normal(channels)), b.buffer(b.normal(channels)), b.buffer(2 * rows, "f4")
        by = struct("PPPfI", moments_, gamma, beta, 1e-3, channels)
        y, dx = b.of(t, rows * channels), b.of(t, rows * channels)
        values, gradient = x.values.reshape(rows, channels), dy.values.reshape(rows, channels)
        inverse = 1 / np.sqrt(values.var(1, keepdims=True) + 1e-3)
        normal = (values - values.mean(1, keepdims=True)) * inverse
        b.enqueue("cuda_layer_norm", t, x, by, y, rows)
        close("layer-norm", y.values, normal * gamma.raw.astype("f8") + beta.raw.astype("f8"), t, scale=20)
        close("its moments", moments_.values.reshape(rows, 2)[:, 1], inverse, scale=20)
        g = gradient * gamma.raw.astype("f8")
        wanted = inverse * (g - g.mean(1, keepdims=True) - normal * (g * normal).mean(1, keepdims=True))
        b.enqueue("cuda_layer_norm_backward", t, dy, x, by, dx, rows)
        close("layer-norm's gradient", dx.values, wanted, t, scale=20)
        partial, tickets = norm_room(b, channels)
        made = [b.buffer(channels, "f4") for _ in range(2)]
        b.enqueue("cuda_layer_norm_weights", t, dy, x, moments_, [grid(rows, 1, 1, channels)],
                  [struct("PP", partial, tickets)], *made)
        close("gradient by gamma", made[0].values, (gradient * normal).sum(0), scale=40)
        close("gradient by beta", made[1].values, gradient.sum(0), scale=40)


@case()
def gelus(b, t):
    from math import erf
    for n, tangent in ((1003, True), (520, False)):
        x, dy = b.of(t, b.normal(n) * 2), b.of(t, b.normal(n))
        y, dx = b.of(t, n), b.of(t, n)
        v = x.values
        if tangent:
            g = np.tanh(np.sqrt(2 / np.pi) * (v + .044715 * v ** 3))
            slope = (1 - g * g) * np.sqrt(2 / np.pi) * (1 + 3 * .044715 * v * v)
        else:
            g = np.array([erf(one) for one in v / np.sqrt(2)])
            slope = np.sqrt(2 / np.pi) * np.exp(-v * v / 2)
        b.enqueue("cuda_gelu", t, x, tangent, y, n)
        close("GELU", y.values, v * (1 + g) / 2, t, scale=8)
        b.enqueue("cuda_gelu_backward", t, dy, x, tangent, dx, n)
        close("GELU's gradient", dx.values, dy.values * (1 + g + v * slope) / 2, t, scale=8)


@case()
def positions(b, t):
    for count, n, stride in ((3, 40, 48), (37, 15, 15)):
        x, table = b.of(t, b.normal(count, n)), b.buffer(b.normal(n))
        for given in (x, None):
            y = b.of(t, b.normal(count, stride))
            wanted = y.values.reshape(count, stride).copy()
            wanted[:, :n] = table.raw.astype("f8") + (x.values.reshape(count, n) if given else 0)
            b.enqueue("cuda_add_rows", t, given, table, y, struct("III", count, n, stride))
            close("rows added", y.values, wanted, t)
        to = b.buffer(n, "f4")
        b.enqueue("cuda_sum_samples", t, y, to, struct("III", count, n, stride))
        close("sums of samples", to.values, y.values.reshape(count, stride)[:, :n].sum(0), scale=40)


@case()
def attention(b, t):
    count, length, heads, width, parts = 2, 5, 3, 16, 3
    by = struct("IIII", count, length, heads, width)
    x, to = b.of(t, b.normal(count, length, parts, heads, width)), b.of(t, count * length * parts * heads * width)
    b.enqueue("cuda_split_heads", t, by, parts, x, to)
    whole = x.values.reshape(count, length, parts, heads, width).transpose(2, 0, 3, 1, 4)
    same("heads", to.values, whole)
    given, back = b.buffer(b.normal(parts, count, heads, length, width)), b.of(t, x.raw.size)
    b.enqueue("cuda_join_heads", t, by, parts, given, back)
    close("rows of heads", back.values, given.raw.reshape(whole.shape).transpose(1, 3, 0, 2, 4), t)
    for n_heads, queries, keys, wide, first, causal in ((3, 5, 11, 16, 6, True), (2, 3, 45, 48, 0, False)):
        scores, dp = b.normal(n_heads, queries, wide) * 4, b.normal(n_heads, queries, wide)
        size = n_heads * queries * wide
        log_sum, p, ds, total = b.buffer(n_heads * 16, "f4"), b.of(t, size), b.of(t, size), 16
        block = struct("IIIII?fPI", n_heads, queries, keys, wide, first, causal, .25, log_sum, total)
        seen = np.arange(wide) < (first + np.arange(queries)[:, None] + 1 if causal else keys)
        power = np.where(seen, np.exp(scores.astype("f8") * .25), 0)
        wanted = power / power.sum(2, keepdims=True)
        lanes = 16 // STORED[t].itemsize
        written = (keys + lanes - 1) // lanes * lanes  # of each row; nothing reads the others
        given = b.buffer(scores)
        b.enqueue("cuda_softmax", t, block, given, p)
        shape = n_heads, queries, wide
        close("softmax", p.values.reshape(shape)[:, :, :written], wanted[:, :, :written], t, scale=4)
        sums_ = log_sum.values.reshape(n_heads, 16)[:, first:first + queries]
        close("log of sums", sums_, np.log(power.sum(2)), scale=8)
        b.enqueue("cuda_softmax_backward", t, block, given, b.buffer(dp), p, ds)
        slope = .25 * wanted * (dp - (wanted * dp).sum(2, keepdims=True))
        close("softmax again", p.values.reshape(shape)[:, :, :written], wanted[:, :, :written], t, scale=8)
        close("softmax's gradient", ds.values.reshape(shape)[:, :, :written], slope[:, :, :written], t, scale=8)


@case()
def losses(b, t):
    for n, classes, wide, smoothing in ((7, 10, 16, 0.), (3, 301, 301, .1), (2, 1029, 1032, .1)):
        logits, labels = b.of(t, b.normal(n, wide) * 3), b.draw.integers(0, classes, n).astype("i4")
        made = b.buffer(n, "f8"), b.buffer(n, "f8"), b.buffer(n, "u4")
        loss = struct("PPPPIIIIf", b.buffer(labels), *made, n, 1, classes, wide, smoothing)
        values = logits.values.reshape(n, wide)[:, :classes]
        log_sum = np.log(np.exp(values).sum(1))
        mine = values[np.arange(n), labels]
        smooth = np.float32(smoothing).astype("f8")
        b.enqueue("cuda_softmax_loss", t, loss, logits)
        close("log of sums", made[0].values, log_sum, scale=8)
        one = log_sum - (1 - smooth) * mine - smooth / classes * values.sum(1)
        close("losses", made[1].values, one, scale=8)
        rank = (values > mine[:, None]).sum(1) + \
            ((values == mine[:, None]) & (np.arange(classes) < labels[:, None])).sum(1)
        same("ranks", made[2].values, rank)
        words = b.buffer(np.array([0, 0, n - 1, 0, np.float32(4.).view("u4")], "u4"))
        outcome = b.buffer(2, "f8", grain=4)
        b.enqueue("cuda_outcome", loss, words, outcome)
        close("loss", outcome.values[:1], one[:-1].mean(), scale=8)
        same("right", outcome.raw.view("u4")[2:], [(rank[:-1] == 0).sum(), (rank[:-1] < 5).sum()])
        wanted = np.exp(values - log_sum[:, None]) - smooth / classes
        wanted[np.arange(n), labels] -= 1 - smooth
        b.enqueue("cuda_softmax_loss_backward", t, loss, words, logits, logits)
        close("loss' gradient", logits.values.reshape(n, wide)[:, :classes], wanted / n * 4, t, scale=8)


# ------------------------------------------------------------------------------------ kernels_arena.cu

DTYPE = {FP32: 1, BF16: 2, FP16: 3}  # enum dpb_dtype
PLAIN, MOMENTUM, NESTEROV, ADAGRAD, ADAM, RMSPROP = range(6)


@case()
def arenas(b, t):
    for n, odd in ((1003, 0), (777, 1)):  # odd: no array begins a pack
        at = lambda content: b.of(t, content, shift=32 + odd * STORED[t].itemsize)
        parts = [at(b.normal(n)) for _ in range(3)]
        wanted = sum(p.values for p in parts)
        b.enqueue("cuda_sum_arenas", DTYPE[t], struct("P" * 64 + "I", *parts, *[None] * 61, 3), parts[2], n)
        close("sum", parts[2].values, wanted, t, scale=4)
        wanted = .5 * parts[0].values - 2 * parts[1].values
        b.enqueue("cuda_axpby", DTYPE[t], .5, parts[0], -2., parts[1], n)
        close("axpby", parts[1].values, wanted, t, scale=4)
        wide, back = b.buffer(n, "f4", shift=32 + 4 * odd), at(n)
        b.enqueue("cuda_cast", DTYPE[FP32], wide, DTYPE[t], parts[0], n)
        same("cast", wide.values, parts[0].values)
        wide.raw[:] = b.normal(n)
        wanted = encode(wide.raw, t)
        b.enqueue("cuda_cast", DTYPE[t], back, DTYPE[FP32], wide, n)
        same("cast to the type", back.raw, wanted)


def rule(kind, by, w, g, first, second, decay):
    """core/base/update.c in fp64: how far a weight falls, and the new state."""
    rate, scale, momentum, epsilon, beta2, one, two, apart = by
    whole = scale * g + (0 if apart else decay) * w
    if kind in (MOMENTUM, NESTEROV):
        first = momentum * first + whole
        return rate * (first if kind == MOMENTUM else whole + momentum * first), first, second
    if kind == ADAGRAD:
        first = first + whole ** 2
        return rate * whole / (np.sqrt(first) + epsilon), first, second
    if kind == ADAM:
        first = momentum * first + (1 - momentum) * whole
        second = beta2 * second + (1 - beta2) * whole ** 2
        return rate * (first / one / (np.sqrt(second / two) + epsilon) + (decay if apart else 0) * w), first, second
    if kind == RMSPROP:
        first = beta2 * first + (1 - beta2) * whole ** 2
        second = momentum * second + rate * whole / np.sqrt(first + epsilon)
        return second, first, second
    return rate * whole, first, second


def update(kind, by, decoupled, n, first, decays, t, arrays, words=None, factors=None, not_finite=None):
    rate, scale, momentum, epsilon, beta2, one, two, _ = by
    return struct("idddddddd?PPQQPQiiPPPPP", kind, rate, scale, .1, momentum, epsilon, beta2, one, two, decoupled,
                  words, factors, n, first, decays, 2, DTYPE[FP32], DTYPE[t], *arrays, not_finite)


@case()
def updates(b, t):
    n, begin = 1003, 40
    ranges = np.array([30, 200, 600, 1000], "u8")
    place = begin + np.arange(n)
    decay = .1 * (((place >= 30) & (place < 200)) | ((place >= 600) & (place < 1000)))
    for kind, apart, odd in ((PLAIN, 0, 0), (MOMENTUM, 0, 0), (NESTEROV, 0, 1), (ADAGRAD, 0, 0), (ADAM, 0, 0),
                             (ADAM, 1, 1), (RMSPROP, 0, 0)):
        w, first, second = (b.buffer(x, shift=32 + 4 * odd) for x in (b.normal(n), np.abs(b.normal(n)),
                                                                       np.abs(b.normal(n))))
        g, decays = b.of(t, b.normal(n), shift=32 + odd * STORED[t].itemsize), b.buffer(ranges)
        by = (.05, .5, .9, 1e-3, .99, .75, .3, bool(apart))
        fall, one, two = rule(kind, by, w.raw.astype("f8"), g.values, first.raw.astype("f8"),
                              second.raw.astype("f8"), decay)
        wanted = w.raw - fall
        words = b.buffer(np.array([by[0], by[1], by[5], by[6]])) if odd else None
        lowest = b.buffer(np.zeros(1, "u8"))
        arrays = w, None if kind == PLAIN else first, second if kind in (ADAM, RMSPROP) else None, g
        b.enqueue("cuda_update", update(kind, by, bool(apart), n, begin, decays, t, arrays, words, None, lowest))
        close(f"weights by rule {kind}", w.values, wanted, scale=10)
        close(f"state by rule {kind}", first.values, one, scale=10)
        close(f"second state by rule {kind}", second.values, two, scale=10)
        same("all finite", lowest.values, [0])
        g.raw[[900, 701, 703, 950]] = encode([NAN] * 4, t)
        b.enqueue("cuda_update", update(kind, by, bool(apart), n, begin, decays, t, arrays, words, None, lowest))
        same("the first that is not finite", lowest.values, [begin + 701 + 1])


@case()
def norms(b, t):
    """LARS in one round, then LAMB's second."""
    n, tensors = 5000, 3
    w, first, second, g = (b.buffer(b.normal(n)), b.buffer(b.normal(n)), b.buffer(np.abs(b.normal(n))),
                           b.of(t, b.normal(n)))
    cuts = ((0, 0, 2500, 0, 1), (2500, 2500, 37, 0, 1), (2600, 2600, 600, 1, 0), (3200, 3200, 400, 1, 0),
            (3700, 3700, 1100, 2, 1))
    pieces = b.buffer(np.frombuffer(b"".join(bytes(struct("QQII?", *one)) for one in cuts), "u4"))
    firsts = b.buffer(np.array([0, 2, 4, 5], "u4"))
    by = (.05, .5, .9, 1e-3, .99, .75, .3, True)
    step = update(ADAM, by, True, n, 0, None, t, (w, first, second, g))
    for way, weigh in ((False, True), (True, True), (True, False)):
        sums, own = b.buffer(10, "f8"), b.buffer(6, "f8")
        factors = b.buffer(np.tile([.05, .5, .1], 3)) if way else b.buffer(9, "f8")
        given = struct("SSPPIIPP??", struct("iddd", 2 if way else 1, 0. if way else .01, .02, .1), step, pieces, firsts,
                       len(cuts), tensors, sums, factors, way, weigh)
        b.enqueue("cuda_squares", given, own)
        wanted = np.zeros((tensors, 2))
        fall = rule(ADAM, (1.,) + by[1:], w.raw.astype("f8"), g.values, first.raw.astype("f8"), second.raw.astype("f8"),
                    .1)[0]
        for begin, _, count, number, decays in cuts:
            part = slice(begin, begin + count)
            if not way or decays:
                wanted[number, 0] += ((fall if way else g.values)[part] ** 2).sum()
            wanted[number, 1] += (w.raw[part].astype("f8") ** 2).sum() * decays * weigh
        close("squares", own.values, wanted, scale=20 if way else 1e-6)
        b.enqueue("cuda_factors", given, b.buffer(np.concatenate([own.values, own.values])), 2)
        total = 2 * wanted
        clip = min(1, .01 / (.5 * np.sqrt(total[:, 0].sum()) + 1e-6))
        scale = .5 if way else .5 * clip
        norm, length = np.sqrt(total).T
        moved = norm if way else scale * norm + .1 * length
        trusted = (1 if way else .02) * length / np.where(moved > 0, moved, 1)
        rate = .05 * np.where((norm > 0) & (length > 0), trusted, 1)
        both = np.stack([rate, rate * 0 + scale, rate * 0 + .1], 1) if way else \
            np.stack([rate * 0 + 1, scale * rate, .1 * rate], 1)
        close("factors", factors.values, both, error=1e-5, scale=1e-6)


@case(FP32)
def many_tensors(b, _):
    """A clip by the norm of more tensors than a block has threads."""
    tensors = 300
    squares, factors = np.abs(b.draw.standard_normal((tensors, 2))), b.buffer(3 * tensors, "f8")
    step = update(PLAIN, (.05, .5, .9, 0., 0., 1., 1., False), False, 1, 0, None, FP32, (None, None, None, None))
    given = struct("SSPPIIPP??", struct("iddd", 0, .01, 0., 0.), step, None, None, 1, tensors, None, factors, False,
                   False)
    b.enqueue("cuda_factors", given, b.buffer(squares), 1)
    scale = .5 * .01 / (.5 * np.sqrt(squares[:, 0].sum()) + 1e-6)
    close("factors", factors.values, np.tile([.05, scale, .1], tensors), error=1e-9, scale=1e-6)


# ------------------------------------------------------------------------------------ codecs


def part_of(n, step=3, round_=0, state=None, velocity=None, added=None, workers=2):
    return struct("QQQQIIIPPPPI", 64, n, 5, step, 1, round_, workers, state, velocity, added, None, 0)


@case(FP32)
def int8(b, _):
    for n, stochastic in ((2500, False), (1000, True)):
        scales = (n + 1023) // 1024
        g, residual = b.buffer(b.normal(n)), b.buffer(b.normal(n))
        message, total = b.buffer(4 * scales + n, "u1"), b.buffer(b.normal(n))
        value, before = residual.raw + g.raw, total.raw.astype("f8")
        b.enqueue("cuda_encode_int8", g, residual, message, n, stochastic, 77)
        made, integers = message.raw[:4 * scales].view("f4"), message.raw[4 * scales:].view("i1")
        largest = np.array([np.abs(value[k:k + 1024]).max() for k in range(0, n, 1024)])
        close("scales", made, largest / 127, scale=.01)
        each = made.astype("f8")[np.arange(n) // 1024]
        close("message and residual", integers * each + residual.values, value, scale=4)
        if (np.abs(residual.values) > each * (1.001 if stochastic else .5001)).any():
            raise Wrong("a residual is larger than a rounding")
        b.enqueue("cuda_decode_int8", message, total, n)
        close("decoded", total.values, before + integers * each, scale=4)


@case(FP32)
def topk(b, _):
    for n, k, momentum in ((3001, 37, 0.), (2048, 300, .5)):
        g, residual = b.buffer(b.normal(n)), b.buffer(b.normal(n))
        g.raw[:200], residual.raw[:200] = 1.5, 1.  # more equal magnitudes than are sent
        velocity, added = (b.buffer(b.normal(n)), b.buffer(b.normal(n))) if momentum else (None, None)
        new = g.raw + (np.float32(momentum) * velocity.raw if momentum else 0)
        value = residual.raw + new
        order = np.sort(np.lexsort((np.arange(n), -np.abs(value)))[:k])
        bytes_ = b.call("cuda_topk_bytes", n, result=b.long)
        message, room = b.buffer(2 * k, "u4"), b.buffer(bytes_ // 4, "u4")
        part = part_of(n, velocity=velocity, added=added)
        b.enqueue("cuda_encode_topk", part, g, residual, message, k, momentum, room)
        same("indices", message.values[:k], order)
        same("values", message.raw[k:].view("f4"), value[order])
        value[order] = 0
        same("residual", residual.values, value)
        if momentum:
            new[order] = 0
            same("velocity", velocity.values, new)
        total, refused = b.buffer(b.normal(n)), b.buffer(np.zeros(1, "u4"))
        wanted = total.raw.copy()
        wanted[order] += message.raw[k:].view("f4")
        b.enqueue("cuda_decode_topk", part, message, k, total, refused)
        same("decoded", total.values, wanted)
        message.raw[[3, 5, 30]] = n, 0, n + 7
        b.enqueue("cuda_decode_topk", part, message, k, total, refused)
        same("refused", refused.values, [2])


def orthogonal(columns):
    made = []
    for column in columns.astype("f8"):
        for other in made:
            column = column - (other @ column) * other
        made.append(column / np.sqrt(column @ column))
    return np.array(made)


@case(FP32)
def powersgd(b, _):
    rows, columns, rank, lacks, begin, from_ = 37, 50, 3, 5, 8, 3
    n = rows * columns - lacks - 8
    count = begin + n
    g, residual = b.buffer(b.normal(count)), b.buffer(b.normal(count))
    state = b.buffer(np.concatenate([b.normal(rank * columns), np.zeros(rank * rows, "f4")]))
    state.raw[columns:2 * columns] = 0  # a column to be drawn
    m = struct("Q" * 9, begin, n, lacks, rows, columns, rank, 0, 0, 0)
    whole = np.zeros(rows * columns)
    whole[lacks:lacks + n] = (g.raw.astype("f8") + residual.raw)[begin:]
    whole = whole.reshape(rows, columns)
    start = state.raw[:rank * columns].reshape(rank, columns).copy()
    factor = b.buffer(rank * rows, "f4")
    b.enqueue("cuda_powersgd_multiply", part_of(count, state=state), m, g, residual, factor)
    q = state.raw[:rank * columns].reshape(rank, columns)
    start[1] = q[1]
    close("Q", q, orthogonal(start), scale=20)
    close("P", factor.values, q.astype("f8") @ whole.T, scale=100)
    b.enqueue("cuda_powersgd_take", part_of(count, state=state), m, factor)
    p = state.raw[rank * columns:].reshape(rank, rows)
    close("P, orthogonal", p, orthogonal(factor.raw.reshape(rank, rows)), scale=40)
    second = b.buffer(rank * columns, "f4")
    b.enqueue("cuda_powersgd_multiply", part_of(count, round_=1, state=state), m, g, residual, second)
    close("Q of round 2", second.values, p.astype("f8") @ whole, scale=100)
    b.enqueue("cuda_powersgd_take", part_of(count, round_=1, state=state), m, second)
    same("the state", state.raw[:rank * columns], second.raw)
    before, old = g.raw.astype("f8").copy(), residual.raw.astype("f8").copy()
    decoded = (p.astype("f8").T @ second.raw.reshape(rank, columns)).ravel()[lacks:lacks + n]
    b.enqueue("cuda_powersgd_settle", part_of(count, state=state), m, from_, second, g, residual)
    close("decoded", g.values[begin:], decoded, scale=40)
    close("residual", residual.values[begin:], (old + before)[begin:] - decoded / 2, scale=40)
    same("before the matrix", g.values[from_:begin], np.zeros(begin - from_))
    close("its residual", residual.values[from_:begin], (old + before)[from_:begin])
    plain = struct("Q" * 9, begin, n, lacks, rows, columns, 0, 0, 0, 0)
    total = b.buffer(b.normal(n))
    b.enqueue("cuda_powersgd_settle", part_of(count, state=state), plain, begin, total, g, residual)
    same("sent uncoded", g.values[begin:], total.values)
