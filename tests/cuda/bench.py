"""bench.py - calls the C functions that launch kernels, and has tests/cuda/ptx.py run what they launch."""

import ctypes
import os
import re
import subprocess
import sys

import numpy as np
import ptx

FP32, BF16, FP16 = range(3)  # enum cuda_type
STORED = {FP32: np.dtype("f4"), BF16: np.dtype("u2"), FP16: np.dtype("f2")}
ERROR = {FP32: 2e-6, BF16: 2.0 ** -8, FP16: 2.0 ** -10}  # of one rounding, and of sums of a few in fp32
C_TYPES = {"I": ctypes.c_uint32, "Q": ctypes.c_uint64, "f": ctypes.c_float, "d": ctypes.c_double, "?": ctypes.c_bool,
           "P": ctypes.c_void_p, "i": ctypes.c_int32}


class Wrong(Exception):
    """A result that is not the reference's."""


def struct(fields, *values):
    """A C struct: `fields` has a letter for each member ("P": an address; "S": a struct)."""
    members = []
    for i, letter in enumerate(fields):
        value = values[i]
        kind = type(value) if letter == "S" else C_TYPES[letter]
        members.append((f"m{i}", kind))
    made = type("Struct", (ctypes.Structure,), {"_fields_": members})()
    for i, value in enumerate(values):
        setattr(made, f"m{i}", getattr(value, "at", value) if fields[i] == "P" else value)
    return made


class Buffer:
    """Memory of the device. `at`: its address."""

    def __init__(self, memory, content, dtype=None, type_=None, **how):
        self.type = type_
        if type_ is not None:
            dtype = STORED[type_]
            if not isinstance(content, (int, np.integer)):
                content = encode(content, type_)
        self.at, self.raw = memory.new(content, dtype, **how)

    @property
    def values(self):
        return decode(self.raw, self.type) if self.type is not None else self.raw


def encode(values, type_):
    values = np.asarray(values, "f4")
    return ptx.bf16_from(values) if type_ == BF16 else values.astype(STORED[type_])


def decode(raw, type_):
    return (ptx.bf16_to(raw) if type_ == BF16 else raw).astype("f8")


class Bench:
    """The kernels of the objects of a build, ready to be launched."""

    def __init__(self, library, objects, cuobjdump):
        self.code = ptx.Code()
        for path in objects:
            text = subprocess.run([cuobjdump, "-ptx", path], capture_output=True, text=True, check=True).stdout
            self.code.add(text, os.path.basename(path).replace(".o", ".cu"))
        self.library = ctypes.CDLL(os.path.abspath(library))
        # The functions are hidden: their places are the symbol table's.
        names = subprocess.run(["nm", library], capture_output=True, text=True, check=True).stdout
        self.places = {name: int(at, 16) for at, name in re.findall(r"^(\w+) [tT] (\w+)$", names, re.M)}
        self.base = ctypes.cast(self.library.take_launches, ctypes.c_void_p).value - self.places["take_launches"]
        self.memory = ptx.Memory()
        self.machine = ptx.Machine(self.memory, self.code)
        self.draw = np.random.default_rng(7)
        self.changed, self.error, self.launched = {}, None, []
        self.twins, self.structs, self.long = True, [], ctypes.c_uint64
        on_launch = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint32),
                                     ctypes.POINTER(ctypes.c_uint32), ctypes.POINTER(ctypes.c_void_p))
        on_write = ctypes.CFUNCTYPE(None, ctypes.c_size_t, ctypes.c_size_t)
        self.taken = on_launch(self.launch), on_write(self.write)
        self.library.take_launches(*self.taken)

    def reset(self):
        self.memory.reset()
        self.structs = []

    def kept(self, one):
        """A struct's address, for a struct that points at it."""
        self.structs.append(one)
        return ctypes.addressof(one)

    @staticmethod
    def row(structs):
        raw = b"".join(bytes(one) for one in structs)
        return (ctypes.c_char * len(raw)).from_buffer_copy(raw)

    def buffer(self, content, dtype=None, **how):
        return Buffer(self.memory, content, dtype, **how)

    def of(self, type_, content, **how):
        return Buffer(self.memory, content, type_=type_, **how)

    def normal(self, *shape):
        return self.draw.standard_normal(shape).astype("f4")

    # ---- launches

    def write(self, at, n):
        try:
            self.memory.mark(at, n)
        except ptx.Fault as error:
            self.error = self.error or error

    def launch(self, name, grid, block, arguments):
        """Runs a launch; in the cases' own turn also with fewer blocks and with wide indices, for the same bits."""
        if self.error is not None:
            return
        try:
            kernel = self.code.kernels[name.decode()]
            values = [ctypes.string_at(arguments[i], size) for i, (_, size) in enumerate(kernel.params.values())]
            whole, threads = (grid[0], grid[1]), (block[0], block[1])
            self.launched.append(kernel.name)
            kernel = self.changed.get(kernel.name, kernel)
            few = self.fewer(kernel, *whole)
            if not self.twins:
                return self.run(kernel, values, few, threads)
            twin = self.twin(kernel, values, whole)
            ways = ([(kernel, values, few)] if few != whole else []) + ([twin] if twin else [])
            memory, made = self.memory, []
            before = memory.bytes[:memory.end].copy(), memory.state[:memory.end].copy()
            for way in ways + [(kernel, values, whole)]:
                memory.bytes[:memory.end], memory.state[:memory.end] = before
                self.run(*way, threads)
                made.append(memory.bytes[memory.first:memory.end].copy())
            if any(not np.array_equal(made[0], other) for other in made):
                raise Wrong(f"{kernel.name}: its results depend on the number of blocks, or on the width of indices")
        except Exception as error:  # pylint: disable=broad-except  # nothing passes through C
            self.error = error

    def run(self, kernel, values, grid, block):
        raw = bytearray(max(at + size for at, size in kernel.params.values()))
        for (at, size), value in zip(kernel.params.values(), values):
            raw[at:at + size] = value
        self.machine.executed = 0
        self.machine.run(kernel, grid, block, bytes(raw))

    @staticmethod
    def fewer(kernel, x, y):
        """A smaller grid, for kernels that loop over what it leaves: those that ask for its size."""
        return (1, y) if any("%nctaid.x" in line for line in kernel.text) else (x, y)

    def twin(self, kernel, values, grid):
        """The same kernel by indices of 64 bits, which only large arrays get, and its arguments."""
        if kernel.name.startswith("_Z12pack_weights"):
            return kernel, values[:2] + [b"\1"], self.fewer(kernel, *grid)
        for found in re.finditer("j", kernel.name):
            twin = self.code.kernels.get(kernel.name[:found.start()] + "m" + kernel.name[found.end():])
            if twin is not None:
                sizes = [size for _, size in twin.params.values()]
                return twin, [value.ljust(size, b"\0") for value, size in zip(values, sizes)], grid
        return None

    def call(self, name, *arguments, result=None):
        """Calls a launching function on stream NULL; a Buffer is its address, a struct goes by address unless it is in
        a list; floats are float."""
        given = []
        for value in arguments:
            if isinstance(value, list):
                given.append(value[0])
            elif isinstance(value, ctypes.Structure):
                given.append(ctypes.byref(value))
            elif isinstance(value, Buffer):
                given.append(ctypes.c_void_p(value.at))
            elif isinstance(value, (bool, np.bool_)):
                given.append(ctypes.c_bool(value))
            elif isinstance(value, float):
                given.append(ctypes.c_float(value))
            elif value is None or isinstance(value, ctypes.Array):
                given.append(value)
            else:
                given.append(ctypes.c_uint64(int(value)))
        self.error = None
        made = ctypes.cast(self.base + self.places[name], ctypes.CFUNCTYPE(result))
        answer = made(*given)
        if self.error is not None:
            raise self.error
        return answer

    def enqueue(self, name, *arguments):
        self.call(name, None, *arguments)


def close(what, found, wanted, type_=FP32, error=None, scale=None):
    """Raises unless each value is within one rounding of its type, and `scale` times fp32's error, of the reference."""
    found, wanted = np.asarray(found, "f8").ravel(), np.asarray(wanted, "f8").ravel()
    scale = 1.0 if scale is None else scale
    bound = (ERROR[type_] if error is None else error) * np.abs(wanted) + ERROR[FP32] * scale
    bad = ~((np.abs(found - wanted) <= bound) | (np.isnan(found) & np.isnan(wanted)) | (found == wanted))
    if found.shape != wanted.shape or bad.any():
        i = int(np.argmax(bad))
        raise Wrong(f"{what}: {int(bad.sum())} of {bad.size} are wrong; the {i}th is {found[i]}, not {wanted[i]}")


def same(what, found, wanted):
    if not np.array_equal(np.asarray(found).ravel(), np.asarray(wanted).ravel()):
        raise Wrong(f"{what}: {np.asarray(found).ravel()[:8]}..., not {np.asarray(wanted).ravel()[:8]}...")
