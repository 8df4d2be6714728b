"""ptx.py - an independent reading of the CUDA kernels: runs the PTX that nvcc made, on a processor.

`Code` parses PTX and makes a Python function over numpy of each basic block; the lanes of an array are the threads of a
block. `Memory` is one arena whose addresses are real, so that the C functions that launch kernels can be called by
ctypes (kernels.c hands their launches over). `Machine` runs a launch and raises a Fault for

  - an access out of bounds, to memory that is read-only, or not aligned to its size;
  - a read of memory that nothing has written;
  - a race: two threads access the same bytes, one of them writes, and neither a barrier of their block nor a fence
    and an atomic (message order, as the PTX manual's memory model has it) lies between;
  - a barrier that not all threads of a block reach.

Blocks run one after the other in a drawn order, and between two barriers the warps of some blocks in a drawn order:
races do not depend on it, since they are found by stamps. Threads that are apart come together at the block of code
that lies first. fp32 products that are fused are made in fp64 and rounded once more; approximate functions are exact.
An instruction that the reader does not know is an error.
"""

import re
import numpy as np

U1, U2, U4, U8 = (np.dtype(f"u{n}") for n in (1, 2, 4, 8))
F2, F4, F8 = np.dtype("f2"), np.dtype("f4"), np.dtype("f8")
TYPES = {"u8": U1, "s8": np.dtype("i1"), "b8": U1, "u16": U2, "s16": np.dtype("i2"), "b16": U2, "u32": U4,
         "s32": np.dtype("i4"), "b32": U4, "u64": U8, "s64": np.dtype("i8"), "b64": U8, "f16": F2, "bf16": U2,
         "f32": F4, "f64": F8, "pred": np.dtype("?")}
GUARD, SHARED_BYTES, PARAM_BYTES = 512, 1 << 17, 1 << 13
# Kernels in which the compiler reads shared memory early that may be unwritten then; they get poison.
SPECULATED = ("find_factors",)  # the common factors, which LAMB's second round does not use
MOST_THREADS, MANY = 2048, 2047  # a stamp is epoch * MOST_THREADS + thread; MANY threads: more than one
NONE, UNWRITTEN, WRITTEN, FIXED = range(4)  # states of a byte; FIXED: written, and read-only


SHARED = r"^\.shared \.align (\d+) \.([bfu]\d+) ([\w$]+)(?:\[(\d+)\])?"


class Fault(Exception):
    """A kernel did what it must not."""


class Memory:
    """One arena: shared memory, a launch's arguments, then buffers, each with a guard around it."""

    def __init__(self, size=1 << 23):
        whole = np.zeros(size + 4096, U1)
        skip = -whole.ctypes.data % 4096
        self.size, self.bytes = size, whole[skip:skip + size]
        self.base = self.bytes.ctypes.data
        self.state = np.zeros(size, U1)
        self.grain = np.zeros(size >> 8, U1)  # log2 of the bytes that have one stamp, by page
        self.shared, self.params, self.first = 0, SHARED_BYTES, SHARED_BYTES + PARAM_BYTES
        self.rows = {}
        for width in (1, 2, 4, 8, 16):
            self.rows["state", width] = self.state.reshape(-1, width)
        for kind in set(TYPES.values()) - {TYPES["pred"]}:
            for n in (1, 2, 4):
                self.rows[kind, n] = self.bytes.view(kind).reshape(-1, n)
        self.reset()

    def reset(self):
        self.state[self.first:] = NONE
        self.end = self.first + GUARD

    def new(self, content, dtype=None, fixed=False, grain=None, shift=32):
        """A buffer's (address, array). content: an array, whose copy it has; or a number of elements, unwritten."""
        written = not isinstance(content, (int, np.integer))
        values = np.ascontiguousarray(content, dtype) if written else None
        n, dtype = (values.size, values.dtype) if written else (int(content), np.dtype(dtype))
        at = (self.end + 255) // 256 * 256 + shift  # aligned to 32 bytes, no more
        self.end = at + n * dtype.itemsize + GUARD
        assert self.end < self.size, "the arena is too small"
        array = self.bytes[at:at + n * dtype.itemsize].view(dtype)
        self.bytes[at - shift:self.end] = 0xff
        if written:
            array[:] = values.ravel()
        self.state[at:at + array.nbytes] = FIXED if fixed else WRITTEN if written else UNWRITTEN
        self.grain[at >> 8:(self.end >> 8) + 1] = (dtype.itemsize if grain is None else grain).bit_length() - 1
        return self.base + at, array

    def mark(self, address, n):
        """The host has written them."""
        at = address - self.base
        if (self.state[at:at + n] == NONE).any():
            raise Fault(f"{n} bytes are written at {address:#x}, where there is no buffer")
        self.state[at:at + n] = WRITTEN


# ------------------------------------------------------------------------------------------- arithmetic


def bf16_from(x):
    bits = x.view(U4)
    rounded = (bits + (((bits >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7fff))) >> np.uint32(16)
    return np.where(np.isnan(x), np.uint32(0x7fff), rounded).astype(U2)


def bf16_to(x):
    return (x.astype(U4) << np.uint32(16)).view(F4)


def fma4(a, b, c):
    return (a.astype(F8) * b.astype(F8) + c.astype(F8)).astype(F4)


def fma4_down(a, b, c):
    exact = a.astype(F8) * b.astype(F8) + c.astype(F8)
    near = exact.astype(F4)
    return np.where(near > exact, np.nextafter(near, F4.type(-np.inf)), near)


def fma8(a, b, c):
    wide = np.longdouble
    return (a.astype(wide) * b.astype(wide) + c.astype(wide)).astype(F8)


def shift_left(a, s):
    width = a.dtype.itemsize * 8
    return np.where(s < width, a << (s % U4.type(width)).astype(a.dtype), a.dtype.type(0))


def shift_right(a, s):
    width = a.dtype.itemsize * 8
    if a.dtype.kind == "i":
        return a >> np.minimum(s, U4.type(width - 1)).astype(a.dtype)
    return np.where(s < width, a >> (s % U4.type(width)).astype(a.dtype), a.dtype.type(0))


def divide(a, b):
    return np.where(b == 0, ~a.dtype.type(0), a // np.where(b == 0, b.dtype.type(1), b))


def remainder(a, b):
    return np.where(b == 0, a, a % np.where(b == 0, b.dtype.type(1), b))


def bit_field(a, at, n):
    return (a >> at) & (U4.type((1 << int(n[0])) - 1))


def permute(a, b, how):
    wide = a.astype(U8) | (b.astype(U8) << U8.type(32))
    how, made = int(how[0]), U8.type(0)
    for i in range(4):
        made = made | (((wide >> U8.type(8 * (how >> 4 * i & 7))) & U8.type(0xff)) << U8.type(8 * i))
    return made.astype(U4)


def to_int(x, kind):
    limits = np.iinfo(kind)
    wide = np.nan_to_num(x.astype(F8), nan=0.0, posinf=float(limits.max), neginf=float(limits.min))
    return np.clip(wide, float(limits.min), float(limits.max)).astype(kind)


def saturated(x):
    return np.where(np.isnan(x), F4.type(0), np.clip(x, F4.type(0), F4.type(1)))


def put(old, lanes, value, n):
    """The register with these lanes set; arrays are never changed in place, since registers may share them."""
    if old is None:
        made = np.zeros(n, value.dtype)
    else:
        made = np.repeat(old, n) if old.shape[0] == 1 else old.copy()
    made[lanes] = value
    return made


HELPERS = {name: value for name, value in globals().items() if callable(value) and name[0].islower()}


# ------------------------------------------------------------------------------------------- code


class Block:
    """A basic block: its instructions, how it ends, and its two functions, for all threads and for some."""

    def __init__(self):
        self.body, self.kind, self.target, self.condition = [], "next", None, None
        self.source, self.made = {}, {}

    def run(self, machine, I):
        """Its condition, of all threads or of those of I. Its functions are made when they are first called."""
        who = "w" if I is None else "s"
        if who not in self.made:
            exec(self.source[who], self.space)  # pylint: disable=exec-used
            self.made[who] = self.space[f"{who}{self.number}"]
        return self.made[who](machine, I)


class Kernel:
    """A kernel's blocks; `text`: its lines, which a test may change before the kernel runs."""

    def __init__(self, name, params, text, shared, source):
        self.name, self.params, self.text, self.source = name, params, text, source
        self.module_shared, self.blocks = shared, None

    def barriers(self):
        return [i for i, line in enumerate(self.text) if re.search(r"\bbar\.sync\b", line)]

    def changed(self, at, line):
        """A copy with another line at `at`."""
        text = list(self.text)
        text[at] = line
        return Kernel(self.name, self.params, text, self.module_shared, self.source)


def statements(line):
    """The statements of a line, without comments and without the braces of scopes."""
    line = re.sub(r"//.*", "", line).strip()
    if not line or line.startswith(".") or line in ("{", "}", ")"):
        return [line] if line else []
    if line.count("{") > line.count("}") or re.match(r"\{\s", line):
        line = line[1:]
    if line.count("}") > line.count("{"):
        line = line[:line.rindex("}")]
    return [part.strip() for part in line.split(";") if part.strip() and not part.strip().startswith(".reg")]


class Code:
    """PTX, by kernel."""

    def __init__(self):
        self.kernels = {}

    def add(self, ptx, source):
        shared = [(name, TYPES[kind].itemsize * int(n or 1), int(align))
                  for align, kind, name, n in re.findall(SHARED, ptx.split(".entry")[0], re.M)]
        lines = iter([statement for line in ptx.splitlines() for statement in statements(line)])
        for line in lines:
            found = re.search(r"\.entry (\w+)\($", line)
            if not found:
                continue
            params, body, depth = [], [], 0
            for line in lines:
                if line.startswith(".param"):
                    params.append(line)
                elif line in "{}":
                    depth += 1 if line == "{" else -1
                    if depth == 0:
                        break
                elif depth > 0:
                    body.append(line)
            self.kernels[found.group(1)] = Kernel(found.group(1), places(params), body, shared, source)


def places(params):
    """Each argument's (place, size)."""
    made, at = {}, 0
    for line in params:
        found = re.match(r"\.param (?:\.align (\d+) )?\.(\w+)(?: \.ptr .*?)? (\w+)(?:\[(\d+)\])?,?$", line)
        align, kind, name, n = found.groups()
        size = TYPES[kind].itemsize * int(n or 1)
        align = int(align or size)
        at = (at + align - 1) // align * align
        made[name] = (at, size)
        at += size
    return made


def canonical(register):
    if register.startswith("%p"):
        return TYPES["pred"]
    return F8 if register.startswith("%fd") else F4 if register.startswith("%f") else \
        U2 if register.startswith("%rs") else U8 if register.startswith("%rd") else U4


class Compiler:
    """Makes the blocks of a kernel."""

    COMPARE = {"eq": "==", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "ls": "<=", "hi": ">", "hs": ">="}

    def __init__(self, kernel, memory):
        self.kernel, self.memory, self.line = kernel, memory, 0
        self.space = dict(HELPERS, np=np, U1=U1, U2=U2, U4=U4, U8=U8, F2=F2, F4=F4, F8=F8,
                          **{f"t_{name}": value for name, value in TYPES.items()})
        self.numbers, self.constants = {}, {}
        self.symbols, self.shared, at = {}, [], 64
        for name, size, align in kernel.module_shared:
            at = self.place(name, size, align, at)
        self.special = {f"%{name}.{axis}": f"{name}_{axis}" for name in ("tid", "ctaid", "ntid", "nctaid")
                        for axis in "xyz"}
        self.next_shared = at

    def place(self, name, size, align, at):
        at = (at + 255) // 256 * 256  # a page of its own, since a page has one grain
        self.symbols[name] = at
        self.shared.append((at, size, align))
        return at + size + 64

    def constant(self, value, kind):
        name = self.constants.setdefault((repr(value), kind), f"k{len(self.constants)}")
        if name not in self.space:
            bits = int(value) & ((1 << 8 * kind.itemsize) - 1) if kind.kind in "iu" else value
            self.space[name] = np.array([bits], U8).astype(f"u{kind.itemsize}").view(kind) if kind.kind in "iu" \
                else np.array([value], kind)
        return name

    def value(self, text, kind):
        """An operand as an expression of this type."""
        text = text.strip()
        if text in self.special:
            made, own = self.special[text], U4
            self.uses.add(made)
        elif text.startswith("%"):
            made, own = self.read(text), canonical(text)
        elif text[:2] in ("0f", "0d"):
            bits = int(text[2:], 16)
            own = F4 if text[1] == "f" else F8
            array = np.array([bits], f"u{own.itemsize}")
            name = self.constants.setdefault((text, own), f"k{len(self.constants)}")
            self.space[name] = array.view(own)
            return name if kind == own else f"{name}.view(t_u{8 * kind.itemsize})"
        elif text in self.symbols:
            return self.constant(self.symbols[text], kind)
        elif text in self.kernel.params:
            return self.constant(self.memory.base + self.memory.params + self.kernel.params[text][0], kind)
        else:
            return self.constant(int(text.rstrip("U"), 0), kind)
        if kind == own or kind == TYPES["pred"]:
            return made
        if kind.itemsize != own.itemsize:
            return f"{made}.astype(U{kind.itemsize}).view({self.type_name(kind)})"
        return f"{made}.view({self.type_name(kind)})"

    @staticmethod
    def type_name(kind):
        return "t_" + next(name for name, value in TYPES.items() if value == kind)

    def read(self, register):
        number = self.numbers.setdefault(register, len(self.numbers))
        if register not in self.defined:
            self.ins[register] = number
        return f"v{number}"

    def write(self, register, expression, kind):
        number = self.numbers.setdefault(register, len(self.numbers))
        own = canonical(register)
        if kind.itemsize < own.itemsize and own.kind == "u":  # a narrow value in a wide register
            wide = f"t_{'s' if kind.kind == 'i' else 'u'}{8 * own.itemsize}"
            expression = f"({expression}).astype({wide}).view(U{own.itemsize})"
        elif kind != own:
            expression = f"({expression}).view({self.type_name(own)})"
        self.out.append(f"v{number} = {expression}")
        self.defined.add(register)

    def address(self, text, space):
        """The offset in the arena, as an array of uint64."""
        base, plus, more = text.strip("[] ").partition("+")
        more = int(more or "0", 0)
        if base in self.kernel.params:
            at, size = self.kernel.params[base]
            return at + more, size
        if base in self.symbols or not base.startswith("%"):
            where = self.symbols[base] if base in self.symbols else int(base, 0)
            return self.constant(self.memory.shared + where + more, U8)
        shift = self.memory.shared if space == "shared" else -self.memory.base
        return f"({self.value(base, U8)} + {self.constant(shift + more, U8)})"

    def instruction(self, text):
        """Adds the statements of one instruction."""
        op, _, rest = text.partition(" ")
        parts = op.split(".")
        name, kind = parts[0], TYPES.get(parts[-1])
        operands = re.findall(r"\{.*?\}|\[.*?\]|[^,\s][^,]*", rest)
        one = lambda i, k=None: self.value(operands[i], k or kind)
        done = lambda expression, k=None: self.write(operands[0].strip(), expression, k or kind)
        if name in ("ld", "st"):
            return self.access(parts, operands, kind)
        if name in ("atom", "red"):
            what = next(p for p in parts if p in ("inc", "add", "cas"))
            values = ", ".join(one(i) for i in range(2, len(operands)))
            space = "shared" if "shared" in parts else "global"
            return done(f"T.atomic(I, '{what}', {self.address(operands[1], space)}, {self.type_name(kind)}, "
                        f"{self.line}, {values})")
        if name == "membar" or name == "fence":
            return self.out.append(f"T.fence(I, {'acq_rel' not in parts})")
        if name == "mov" and "{" in rest:
            return self.move_parts(operands, kind)
        simple = {"add": "{0} + {1}", "sub": "{0} - {1}", "and": "{0} & {1}", "or": "{0} | {1}", "xor": "{0} ^ {1}",
                  "mov": "{0}", "neg": "-{0}", "abs": "abs({0})", "not": "~{0}", "max": "np.maximum({0}, {1})",
                  "min": "np.minimum({0}, {1})", "cvta": "{0}"}
        if name in ("min", "max") and kind.kind == "f":
            simple[name] = f"np.f{name}({{0}}, {{1}})"
        if name in simple:
            count = simple[name].count("{")
            expression = simple[name].format(*[one(i + 1) for i in range(count)])
            if name == "cvta" and "shared" in parts:
                sign = "-" if "to" in parts else "+"
                expression += f" {sign} {self.constant(self.memory.base + self.memory.shared, U8)}"
            return done(expression)
        if name in ("mul", "mad"):
            more = f" + {one(3, self.wide(kind) if 'wide' in parts else kind)}" if name == "mad" else ""
            if "wide" in parts:
                wide = self.wide(kind)
                to = self.type_name(wide)
                return done(f"{one(1)}.astype({to}) * {one(2)}.astype({to}){more}", wide)
            if "hi" in parts:
                to = self.type_name(self.wide(kind))
                return done(f"(({one(1)}.astype({to}) * {one(2)}.astype({to})) >> {self.constant(32, self.wide(kind))})"
                            f".astype({self.type_name(kind)}){more}")
            return done(f"{one(1)} * {one(2)}{more}")
        if name == "fma":
            function = "fma8" if kind == F8 else "fma4_down" if "rm" in parts else "fma4"
            return done(f"{function}({one(1)}, {one(2)}, {one(3)})")
        if name == "div":
            return done(f"{one(1)} / {one(2)}" if kind.kind == "f" else f"divide({one(1)}, {one(2)})")
        if name == "rem":
            return done(f"remainder({one(1)}, {one(2)})")
        if name in ("rcp", "sqrt", "ex2", "lg2"):
            function = {"rcp": "{1} / {0}", "sqrt": "np.sqrt({0})", "ex2": "np.exp2({0})", "lg2": "np.log2({0})"}[name]
            return done(function.format(one(1), self.constant(1.0, kind)))
        if name in ("shl", "shr"):
            function = "shift_left" if name == "shl" else "shift_right"
            amount = operands[2].strip()
            if not amount.startswith("%") and int(amount, 0) < 8 * kind.itemsize:
                return done(f"{one(1)} {'<<' if name == 'shl' else '>>'} {self.constant(int(amount, 0), kind)}")
            return done(f"{function}({one(1)}, {one(2, U4)})")
        if name == "bfe":
            return done(f"bit_field({one(1)}, {one(2)}, {one(3)})")
        if name == "prmt":
            return done(f"permute({one(1)}, {one(2)}, {one(3)})")
        if name == "copysign":
            return done(f"np.copysign({one(2)}, {one(1)})")
        if name == "selp":
            return done(f"np.where({one(3, TYPES['pred'])}, {one(1)}, {one(2)})")
        if name == "setp":
            return self.compare(parts, operands, kind)
        if name == "cvt":
            return self.convert(parts, operands)
        raise Fault(f"{self.kernel.name}: the reader does not know `{text}`")

    @staticmethod
    def wide(kind):
        return np.dtype(f"{kind.kind}{2 * kind.itemsize}")

    def compare(self, parts, operands, kind):
        a, b, how = self.value(operands[1], kind), self.value(operands[2], kind), parts[1]
        if len(parts) > 3:
            raise Fault(f"{self.kernel.name}: the reader does not know setp.{'.'.join(parts[1:])}")
        if how in ("num", "nan"):
            made = f"(np.isnan({a}) | np.isnan({b}))"
            made = made if how == "nan" else f"~{made}"
        elif how == "ne":
            made = f"({a} != {b})" + (f" & ({a} == {a}) & ({b} == {b})" if kind.kind == "f" else "")
        elif how == "neu":
            made = f"{a} != {b}"
        elif how.endswith("u") and how[:2] in self.COMPARE:
            made = f"({a} {self.COMPARE[how[:2]]} {b}) | np.isnan({a}) | np.isnan({b})"
        else:
            made = f"{a} {self.COMPARE[how]} {b}"
        self.write(operands[0].strip(), made, TYPES["pred"])

    def convert(self, parts, operands):
        to_name, from_name = parts[-2], parts[-1]
        to, of = TYPES[to_name], TYPES[from_name]
        value = self.value(operands[1], of)
        if from_name == "bf16":
            value, of = f"bf16_to({value})", F4
        whole = next((p for p in parts if p in ("rni", "rzi", "rmi", "rpi")), None)
        if whole and of.kind == "f":
            value = {"rni": "np.rint", "rzi": "np.trunc", "rmi": "np.floor", "rpi": "np.ceil"}[whole] + f"({value})"
        if "sat" in parts:
            if to != F4 or of != F4:
                raise Fault(f"{self.kernel.name}: the reader does not know cvt.{'.'.join(parts[1:])}")
            value = f"saturated({value})"
        if to_name == "bf16":
            made = f"bf16_from({value})"
        elif to.kind in "iu" and of.kind == "f":
            made = f"to_int({value}, {self.type_name(to)})"
        else:
            made = f"{value}.astype({self.type_name(to)})"
        self.write(operands[0].strip(), made, to)

    def move_parts(self, operands, kind):
        if operands[0].startswith("{"):
            to = [r.strip() for r in operands[0].strip("{} ").split(",")]
            width = kind.itemsize // len(to)
            whole = self.value(operands[1], np.dtype(f"u{kind.itemsize}"))
            for i, register in enumerate(to):
                shift = self.constant(8 * width * i, np.dtype(f"u{kind.itemsize}"))
                if re.fullmatch(r"%[a-z]+\d+", register):  # others are of a scope, and nothing reads them
                    self.write(register, f"({whole} >> {shift}).astype(U{width})", np.dtype(f"u{width}"))
            return
        of = operands[1].strip("{} ").split(",")
        width, whole = kind.itemsize // len(of), np.dtype(f"u{kind.itemsize}")
        terms = [f"({self.value(r, np.dtype(f'u{width}'))}.astype(U{kind.itemsize}) << "
                 f"{self.constant(8 * width * i, whole)})" for i, r in enumerate(of)]
        self.write(operands[0].strip(), " | ".join(terms), whole)

    def access(self, parts, operands, kind):
        n = next((int(p[1]) for p in parts if re.fullmatch(r"v\d", p)), 1)
        strong = any(p in ("volatile", "relaxed", "acquire", "release") for p in parts)
        space = "shared" if "shared" in parts else "param" if "param" in parts else "global"
        place = operands[1] if parts[0] == "ld" else operands[0]
        registers = [r.strip() for r in (operands[0] if parts[0] == "ld" else operands[1]).strip("{} ").split(",")]
        where = self.address(place, space)
        if isinstance(where, tuple):  # an argument
            at, size = where
            for i, register in enumerate(registers):
                self.write(register, f"T.argument({self.type_name(kind)}, {at + i * kind.itemsize})", kind)
            return
        common = f"I, {where}, {self.type_name(kind)}, {n}, {strong}, {self.line}"
        if parts[0] == "st":
            self.out.append(f"T.store({common}, {', '.join(self.value(r, kind) for r in registers)})")
            return
        self.out.append(f"loaded = T.load({common})")
        for i, register in enumerate(registers):
            self.write(register, f"loaded[{i}]", kind)

    # ---- blocks

    def split(self):
        """Basic blocks in the order of the text. An instruction under a condition has a block of its own."""
        blocks, labels, line = [Block()], {}, 0
        fresh = lambda: blocks.append(Block()) or blocks[-1]
        for part in self.kernel.text:
            if part.startswith(".loc"):
                line = int(part.split()[2])
            elif part.startswith(".shared"):
                align, kind, name, n = re.match(SHARED, part).groups()
                self.next_shared = self.place(name, TYPES[kind].itemsize * int(n or 1), int(align), self.next_shared)
            elif part.startswith(".local") or part.startswith("call"):
                raise Fault(f"{self.kernel.name}: the reader does not know `{part}`")
            elif part.startswith(".") or part in "{}":
                continue
            elif part.endswith(":"):
                if blocks[-1].body or blocks[-1].kind != "next":
                    fresh()
                labels[part[:-1]] = len(blocks) - 1
            else:
                if blocks[-1].kind != "next":
                    fresh()
                self.add(blocks, fresh, part, line)
        return blocks, labels

    @staticmethod
    def add(blocks, fresh, part, line):
        found = re.match(r"@(!?)(%p\d+)\s+(.*)", part)
        negated, condition, part = found.groups() if found else ("", None, part)
        block = blocks[-1]
        if part.startswith("bra"):
            block.kind, block.target = "branch" if condition else "jump", part.split()[-1]
            block.condition = (condition, negated == "!") if condition else None
        elif part.startswith("bar.sync") or part.startswith("barrier.sync"):
            if condition:
                raise Fault("a barrier under a condition, which the reader does not know")
            block.kind = "barrier"
        elif part in ("ret", "exit") and not condition:
            block.kind = "end"
        elif condition:
            block.kind, block.target = "branch", len(blocks) + 1
            block.condition = (condition, negated != "!")
            inner = fresh()
            if part == "ret":
                inner.kind = "end"
            else:
                inner.body.append((line, part))
                fresh()
        else:
            block.body.append((line, part))

    def compile(self):
        blocks, labels = self.split()
        used = {}
        for number, block in enumerate(blocks):
            words = " ".join(part for _, part in block.body) + " " + (block.condition[0] if block.condition else "")
            for register in set(re.findall(r"%[a-z]+\d+", words)):
                used.setdefault(register, set()).add(number)
        for number, block in enumerate(blocks):
            if isinstance(block.target, str):
                block.target = labels[block.target]
            self.generate(number, block, used)
        return blocks

    def generate(self, number, block, used):
        self.ins, self.defined, self.out, self.uses = {}, set(), [], set()
        block.number, block.space = number, self.space
        for self.line, part in block.body:
            self.instruction(part)
        end = "None"
        if block.condition:
            register, negated = block.condition
            end = ("~" if negated else "") + self.value(register, TYPES["pred"])
        outs = [r for r in self.defined if used.get(r, set()) != {number} or r in self.ins]
        for who in "ws":
            get = "{0}" if who == "w" else "({0} if {0}.shape[0] == 1 else {0}[I])"
            lines = [f"def {who}{number}(T, I):", " R = T.registers"]
            lines += [f" {name} = " + get.format(f"T.{name}") for name in sorted(self.uses)]
            for register, index in self.ins.items():
                lines.append(f" v{index} = R[{index}]")
                if who == "s":
                    lines.append(f" v{index} = " + get.format(f"v{index}"))
            lines += [" " + line for line in self.out]
            for register in outs:
                index = self.numbers[register]
                lines.append(f" R[{index}] = " + (f"v{index}" if who == "w" else
                                                   f"put(R[{index}], I, v{index}, T.n)"))
            block.source[who] = "\n".join(lines + [f" return {end}"])


# ------------------------------------------------------------------------------------------- running


class Machine:
    """Runs launches on a memory, by a generator of numbers."""

    def __init__(self, memory, code, seed=1):
        self.memory, self.code = memory, code
        self.draw = np.random.default_rng(seed)
        self.wrote, self.did_read = np.zeros(memory.size, "i8"), np.zeros(memory.size, "i8")
        self.strong, self.shared_read = np.zeros(memory.size, "i8"), np.zeros(memory.size, "i8")
        self.now = 1
        self.executed, self.most_work = 0, 500000
        self.ran = set()
        memory.state[memory.shared:memory.shared + SHARED_BYTES] = NONE

    # ---- what blocks call

    def fault(self, what, line):
        raise Fault(f"{self.kernel.name}, {self.kernel.source}:{line}, block {tuple(self.block)}: {what}")

    def argument(self, kind, at):
        key = (kind, at)
        if key not in self.arguments:
            self.arguments[key] = np.frombuffer(self.raw, kind, 1, at).copy()
        return self.arguments[key]

    def where(self, off, width, line, least):
        """Rows of `width` bytes; checks them."""
        if (off & U8.type(width - 1)).any():
            bad = int(off[(off & U8.type(width - 1)) != 0][0])
            self.fault(f"{width} bytes at offset {bad:#x} are not aligned", line)
        if off.max() >= self.memory.size:
            self.fault(f"address {int(off.max()) + self.memory.base & (1 << 64) - 1:#x} is in no memory", line)
        rows = off >> U8.type(width.bit_length() - 1)
        rows = rows.view("i8")
        states = self.memory.rows["state", width].take(rows, 0)
        low = states.min()
        if low < least and not (low == UNWRITTEN and self.speculates and off.max() < SHARED_BYTES):
            self.fault("memory is accessed out of bounds" if low == NONE else "memory is read that nothing has written",
                       line)
        if least == UNWRITTEN and states.max() == FIXED:
            self.fault("memory is written that is read-only", line)
        return rows

    def lanes(self, I, off):
        """Stamps of the lanes that access, and the offsets, as many."""
        me = self.threads if I is None else self.threads[I]
        return me + self.now * MOST_THREADS, off if off.shape[0] == me.shape[0] else np.repeat(off, me.shape[0])

    def cells(self, off, width, me):
        """Where the stamps of an access are."""
        grains = self.memory.grain[(off >> U8.type(8)).view("i8")]
        grain = int(grains[0]) if (grains == grains[0]).all() else int(grains.min())
        off = off.view("i8")
        count = width >> grain
        if count <= 1:
            return off & -(1 << grain), me
        return (off[:, None] + (np.arange(count) << grain)).ravel(), np.repeat(me, count)

    def conflict(self, seen, me, what, line):
        """Whether an access that has left stamps `seen` is in order with `me`."""
        thread = seen & MANY
        same = (seen >= self.interval * MOST_THREADS) & (thread != (me & MANY))
        if same.any():
            i = int(np.argmax(same))
            other = int(thread[i])
            self.fault(f"race of thread {int(me[i]) & MANY} with "
                       f"{'several' if other == MANY else f'thread {other}'} of its block: {what}", line)
        for i in np.flatnonzero((seen >= self.launch * MOST_THREADS) & (seen < self.begun * MOST_THREADS)):
            if not self.known(int(me[i]) & MANY, int(seen[i])):
                self.fault(f"race with another block: {what}", line)

    def known(self, thread, seen):
        """Whether a release of the block with that stamp has reached the thread."""
        return any(mask[thread] and begun * MOST_THREADS <= seen < max(until, fences[seen & MANY]) * MOST_THREADS
                   for mask, (begun, until, fences) in self.acquired)

    def newest(self, array, cells):
        seen = array[cells]
        return seen if seen.max() >= self.launch * MOST_THREADS else None

    def load(self, I, off, kind, n, strong, line):
        width = kind.itemsize * n
        rows = self.where(off, width, line, WRITTEN)
        found = self.memory.rows[kind, n].take(rows, 0)
        if not strong or off.max() < SHARED_BYTES:
            if off.shape[0] == 1 and self.n > 1:
                count = self.n if I is None else I.shape[0]
                me = np.array([self.now * MOST_THREADS + (MANY if count > 1 else int(self.threads[I][0]))])
            else:
                me, off = self.lanes(I, off)
            self.note_read(*self.cells(off, width, me), line)
        return found.T

    def note_read(self, cells, me, line):
        for array in (self.wrote, self.strong) if self.any_strong else (self.wrote,):
            seen = self.newest(array, cells)
            if seen is not None:
                self.conflict(seen, me, "a write, then a read", line)
        seen, mine = self.did_read[cells], me
        if seen.max() >= self.launch * MOST_THREADS:
            alone = (seen < self.interval * MOST_THREADS) | ((seen & MANY) == (me & MANY))
            mine = np.where(alone, me, self.now * MOST_THREADS + MANY)
            others = (seen >= self.launch * MOST_THREADS) & (seen < self.begun * MOST_THREADS)
            if others.any():
                self.shared_read[cells[others]] = self.launch
        self.did_read[cells] = mine
        twice = self.did_read[cells] != mine
        if twice.any():
            self.did_read[cells[twice]] = self.now * MOST_THREADS + MANY

    def store(self, I, off, kind, n, strong, line, *values):
        width = kind.itemsize * n
        me, off = self.lanes(I, off)
        rows = self.where(off, width, line, UNWRITTEN)
        strong = strong and off.max() >= SHARED_BYTES
        self.note_write(*self.cells(off, width, me), line, strong)
        to = self.memory.rows[kind, n]
        for i, value in enumerate(values):
            to[rows, i] = value
        self.memory.rows["state", width][rows] = WRITTEN

    def note_write(self, cells, me, line, strong):
        arrays = [(self.wrote, "two writes"), (self.did_read, "a read, then a write")]
        if self.any_strong and not strong:
            arrays.append((self.strong, "two writes"))
        for array, what in arrays:
            seen = self.newest(array, cells)
            if seen is not None:
                self.conflict(seen, me, what, line)
        if (self.shared_read[cells] == self.launch).any():
            self.fault("race with another block: a read, then a write", line)
        to = self.strong if strong else self.wrote
        to[cells] = me
        self.any_strong = self.any_strong or strong
        if not strong and (to[cells] != me).any():
            self.fault("race: threads write to the same place at once", line)

    def atomic(self, I, what, off, kind, line, value, other=None):
        me, off = self.lanes(I, off)
        rows = self.where(off, kind.itemsize, line, WRITTEN)
        self.note_write(*self.cells(off, kind.itemsize, me), line, True)
        value = np.broadcast_to(value, me.shape)
        other = None if other is None else np.broadcast_to(other, me.shape)
        memory, found = self.memory.rows[kind, 1], np.zeros(me.shape, kind)
        for i in self.draw.permutation(me.shape[0]):
            old = memory[rows[i], 0]
            found[i] = old
            if what == "inc":
                memory[rows[i], 0] = 0 if old >= value[i] else old + kind.type(1)
            elif what == "add":
                memory[rows[i], 0] = np.add(old, value[i], dtype=kind)
            elif old == value[i]:
                memory[rows[i], 0] = other[i]
            thread, place = int(me[i]) & MANY, int(off[i])
            chain = self.released.setdefault(place, [])
            self.observed.setdefault(thread, set()).update(chain)
            fences = self.fences_seen.copy()
            fences[thread] = self.fences[thread]
            if fences.any():
                chain.append((self.begun, self.intervals[fences.argmax()], tuple(fences)))
        return found

    def fence(self, I, sequential):
        """What lies behind it is released by a later atomic; what an earlier one saw is acquired. One that is not
        sequentially consistent acquires only by an atomic of its own thread."""
        self.now += 1
        own = self.threads if I is None else self.threads[I]
        self.fences[own], self.intervals[own] = self.now, self.interval
        for record in self.observed_by_all if sequential else ():
            mask = np.zeros(MOST_THREADS, bool)
            mask[own] = True
            self.acquired.append((mask, record))
        for thread, records in self.observed.items():
            mask = np.zeros(MOST_THREADS, bool)
            mask[thread] = I is None or thread in I
            self.acquired += [(mask, record) for record in records]

    # ---- a launch

    def run(self, kernel, grid, block, raw):
        """raw: the arguments' bytes. block: x, y."""
        if kernel.blocks is None:
            compiler = Compiler(kernel, self.memory)
            kernel.blocks = compiler.compile()
            kernel.n_registers, kernel.shared = len(compiler.numbers), compiler.shared
        self.ran.add(kernel.name)
        self.kernel, self.raw, self.arguments = kernel, raw, {}
        begin = self.memory.params
        self.memory.state[begin:begin + PARAM_BYTES] = NONE
        self.memory.bytes[begin:begin + len(raw)] = np.frombuffer(raw, U1)
        self.memory.state[begin:begin + len(raw)] = FIXED
        self.n = block[0] * block[1]
        self.threads = np.arange(self.n)
        self.tid_x = (self.threads % block[0]).astype(U4)
        self.tid_y = (self.threads // block[0]).astype(U4) if block[1] > 1 else np.zeros(1, U4)
        self.tid_z = self.ctaid_z = np.zeros(1, U4)
        self.ntid_x, self.ntid_y, self.ntid_z = (np.array([v], U4) for v in (block[0], block[1], 1))
        self.nctaid_x, self.nctaid_y, self.nctaid_z = (np.array([v], U4) for v in (grid[0], grid[1], 1))
        self.speculates = any(name in kernel.name for name in SPECULATED)
        self.now += 1
        self.launch, self.any_strong, self.released = self.now, False, {}
        with np.errstate(all="ignore"):
            for i, k in enumerate(self.draw.permutation(grid[0] * grid[1])):
                self.block = (int(k) % grid[0], int(k) // grid[0])
                self.ctaid_x, self.ctaid_y = (np.array([v], U4) for v in self.block)
                self.run_block(apart=i == 0 and self.n > 32)

    def run_block(self, apart):
        self.registers = [None] * self.kernel.n_registers
        self.acquired, self.observed, self.observed_by_all = [], {}, set()
        self.fences, self.fences_seen, self.intervals = (np.zeros(MOST_THREADS, "i8") for _ in range(3))
        memory = self.memory
        for at, size, align in self.kernel.shared:
            room = slice(memory.shared + at, memory.shared + at + size)
            memory.bytes[room] = 0xff
            memory.state[room] = UNWRITTEN
            memory.grain[room.start >> 8:(room.stop >> 8) + 1] = min(align, 8).bit_length() - 1
            for stamps in (self.wrote, self.did_read, self.strong, self.shared_read):
                stamps[room] = 0
        self.now += 1
        self.begun = self.now
        starts = {0: None}
        while starts:
            self.now += 1
            self.interval = self.now
            waiting, ended = {}, False
            for part in self.parts(starts, apart):
                ended = self.run_part(part, waiting) or ended
            if len(waiting) > 1 or (waiting and ended):
                self.fault("a barrier that not all threads of the block reach", 0)
            for records in self.observed.values():
                self.observed_by_all |= records
            self.fences_seen = self.fences.copy()
            starts = waiting
        for at, size, _ in self.kernel.shared:
            memory.state[memory.shared + at:memory.shared + at + size] = NONE

    def parts(self, starts, apart):
        """The threads at their places; apart: drawn warps first, then the others."""
        if not apart or list(starts.values()) != [None]:
            return [starts]
        place = next(iter(starts))
        first = self.draw.permutation(self.n // 32)[:self.n // 64 or 1]
        mask = np.isin(self.threads // 32, first)
        return [{place: np.flatnonzero(mask)}, {place: np.flatnonzero(~mask)}]

    def join(self, groups, place, I):
        if place in groups:
            I = np.sort(np.concatenate([groups[place], I]))
        groups[place] = None if I is None or I.shape[0] == self.n else I

    def run_part(self, groups, waiting):
        """Runs threads until all wait or have ended; returns whether some have ended."""
        blocks, ended = self.kernel.blocks, False
        while groups:
            place = min(groups)
            I = groups.pop(place)
            block = blocks[place]
            self.executed += len(block.body)
            if self.executed > self.most_work:
                self.fault("it does not end", 0)
            try:
                condition = block.run(self, I)
            except (TypeError, AttributeError) as error:
                if "None" not in str(error):
                    raise
                self.fault("a register is read that nothing has written", block.body[0][0])
            if block.kind == "end":
                ended = True
            elif block.kind == "barrier":
                self.join(waiting, place + 1, I)
            elif block.kind == "branch":
                taken = condition
                if taken.shape[0] == 1 or taken.all() or not taken.any():
                    self.join(groups, block.target if taken[0] else place + 1, I)
                else:
                    all_lanes = self.threads if I is None else I
                    self.join(groups, block.target, all_lanes[taken])
                    self.join(groups, place + 1, all_lanes[~taken])
            else:
                self.join(groups, block.target if block.kind == "jump" else place + 1, I)
        return ended
