"""Print Kernel IR as readable CUDA. Printing decides nothing."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import wrap
from types import MappingProxyType
from typing import Any

from ..ir.diagnostic import DplcError, InternalError
from ..ir.dtypes import DTYPES, SMALL_FLOATS
from ..ir.expr import COMPARISONS, Binary, Call, Not, Size, Sum, Var, is_int
from ..ir.functions import CAST, FUNCTIONS, HELD, opmath
from ..ir.kernel import (
    BLOCK_INDEX,
    SHARED,
    THREAD,
    Address,
    Advance,
    Assign,
    Barrier,
    Base,
    Branch,
    Butterfly,
    CheckPlace,
    CopyAsync,
    CopyBox,
    Define,
    Element,
    Fragment,
    Intrinsic,
    Launch,
    LoadFrom,
    LoadMatrix,
    Loop,
    Matrix,
    Multiply,
    PackWord,
    QueueProduct,
    Registers,
    Replicate,
    Shuffle,
    StoreTo,
    TensorMap,
    WaitProducts,
    method_for_each,
)
from ..ir.node import Expr, nodes
from ..ir.program import Block, Kernel, Stmt
from ..ir.sizes import sizes_in, value_of
from ..ir.text.print_statements import print_expr
from . import scalar
from .dtypes import dtype_of, is_literal, operand_dtypes
from .kernel import Box, CudaKernel, KernelParam
from .scalar import ATOM, BITAND, SHIFT, SUM, TERM, UNARY, Text, apply_form, bracket, convert, form_of, rounded

Lines = list[str]  # of CUDA

# ---- expressions, with their C++ types: values, registers, addresses


_BINARY = {"and": ("&&", scalar.AND), "or": ("||", scalar.OR), "==": ("==", scalar.EQUAL), "!=": ("!=", scalar.EQUAL)}
_BINARY |= {op: (op, scalar.COMPARE) for op in COMPARISONS if op not in _BINARY}


def unrounded(e: Any, dtype: str) -> Any:
    """Return the operand of a rounding to 16 or 8 bits that the conversion to the dtype repeats."""
    return e.args[0] if dtype in SMALL_FLOATS and e.__class__ is Call and e.fn == dtype else e


INDENT = "  "
WORDS = ("f32", "i32")  # dtypes with functions named after the width alone
VECTOR_TYPES = {("f32", 2): "float2", ("f32", 4): "float4", ("i32", 2): "int2", ("i32", 4): "int4"}
# `a || shfl_xor(a, lanes)` would leave out lanes of a shuffle that all must reach
EAGER = {"{0} || {1}": "|", "{0} && {1}": "&", "{0} != {1}": "^"}


class Printer:
    """Prints the expressions and statements of one kernel.

    names: the identifier of every name. writes: the number of statements that write a register without a shape.
    """

    def __init__(self, kernel: Kernel, names: Mapping[str, str]):
        self.names = names
        self.taken = set(names.values())
        self.dtypes: dict[str, str] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.pointers = {param.name: DTYPES[param.dtype].c_type + "*" for param in kernel.outs}
        self.pointers |= {param.name: f"const {DTYPES[param.dtype].c_type}*" for param in kernel.ins}
        changes = nodes(kernel.body, Assign, Butterfly, Shuffle)
        places = [*(stmt.into for stmt in nodes(kernel.body, LoadFrom)), *(stmt.place for stmt in changes)]
        self.writes = Counter(place.name for place in places if place.__class__ is Var)

    def type_of(self, name: str) -> str:
        return self.dtypes.get(name, "i32")

    def dtype(self, e: Expr) -> str:
        return dtype_of(e, self.type_of, "i32")

    def text(self, e: Expr, needed: int = 0) -> str:
        """Return an expression, in parentheses if it binds looser than `needed`."""
        return bracket(self.expr(e), needed)

    def value(self, e: Expr, dtype: str) -> Text:
        """Return an expression as a value of a dtype."""
        e = unrounded(e, dtype)
        return scalar.literal(e, dtype) if is_literal(e) else convert(self.expr(e), self.dtype(e), dtype)

    def expr(self, e: Any) -> Text:
        kind = e.__class__
        if kind is Var or kind is Size:
            return self.names[e.name], ATOM
        if kind is Element:
            return self.names[e.name] + "".join(f"[{self.text(i)}]" for i in e.index), ATOM
        if kind is Sum:
            return self.sum(e, None)
        if kind is Binary:
            return self.binary(e)
        if kind is Call:
            return self.call(e)
        if kind is Not:
            return f"!{self.text(e.a, UNARY)}", UNARY
        return scalar.literal(e, self.dtype(e)) if not is_int(e) else scalar.integer(e)

    def sum(self, e: Any, first: str | None) -> Text:
        """Return the text of the terms of a sum that follow a first one.

        Division by constants of powers of two is a shift.
        """
        text = first or ""
        for atom, factor in e.terms:
            size = abs(factor)
            part = self.text(atom, TERM) if size == 1 else f"{self.text(atom, TERM)} * {scalar.integer(size)[0]}"
            sign = "-" if factor < 0 else "+"
            text = f"{text} {sign} {part}" if text else (f"-{part}" if factor < 0 else part)
        if e.constant:
            number = scalar.integer(abs(e.constant))[0]
            text = f"{text} {'-' if e.constant < 0 else '+'} {number}"
        if len(e.terms) > 1 or e.constant or first is not None:
            return text, SUM
        negated = e.terms[0][1] == -1 and self.expr(e.terms[0][0])[1] != TERM
        return text, UNARY if negated else TERM  # -a*b binds as a product does

    def plus(self, first: str, e: Expr) -> str:
        """Return `first + e`, without a trailing `+ 0`."""
        if e.__class__ is int:
            return first if e == 0 else f"{first} {'-' if e < 0 else '+'} {scalar.integer(abs(e))[0]}"
        return self.sum(e, first)[0] if e.__class__ is Sum else f"{first} + {self.text(e, TERM)}"

    def binary(self, e: Any) -> Text:
        if e.op in _BINARY:
            op, strength = _BINARY[e.op]
            return f"{self.text(e.a, strength)} {op} {self.text(e.b, strength + 1)}", strength
        if e.op == "^":
            return f"{self.text(e.a, TERM)} ^ {self.text(e.b, TERM)}", scalar.XOR
        power = is_int(e.b) and e.b > 0 and e.b & (e.b - 1) == 0
        if e.op == "//" and power:
            return f"{self.text(e.a, TERM)} >> {e.b.bit_length() - 1}", SHIFT
        if e.op == "%" and power:
            return f"{self.text(e.a, TERM)} & {e.b - 1}", BITAND
        op = "/" if e.op == "//" else e.op
        return f"{self.text(e.a, TERM)} {op} {self.text(e.b, UNARY)}", TERM

    def call(self, e: Any) -> Text:
        operands = operand_dtypes(e, self.type_of, "i32")
        texts = [self.value(arg, dtype) for arg, dtype in zip(e.args, operands, strict=True)]
        if e.fn in SMALL_FLOATS:
            return rounded(texts[0], operands[0], e.fn)
        if e.fn in HELD:
            return convert(texts[0], operands[0], "f32")
        if FUNCTIONS[e.fn].kind == CAST:
            whole = e.fn == "f64" and is_literal(e.args[0])
            return scalar.literal(e.args[0], "f64") if whole else convert(texts[0], operands[0], e.fn)
        return apply_form(form_of(e.fn, operands[-1]), texts)

    def address(self, address: Address) -> str:
        base = self.names[address.base]
        if address.xor.__class__ is int and address.xor == 0:
            return self.plus(base, address.offset)
        flipped = f"{base} ^ {self.text(address.xor, TERM)}"
        alone = address.offset.__class__ is int and address.offset == 0
        return flipped if alone else self.plus(f"({flipped})", address.offset)  # C's + binds tighter than ^

    # ---- statements

    def block(self, block: Block, depth: int) -> Lines:
        """Return the lines of a block. A register that is loaded right away is declared with its value."""
        lines: Lines = []
        position = 0
        while position < len(block):
            stmt, after = block[position], block[position + 1] if position + 1 < len(block) else None
            if (
                isinstance(stmt, Registers)
                and not stmt.shape
                and isinstance(after, LoadFrom)
                and after.into is Var(stmt.dst)
                and self.writes[stmt.dst] == 1
            ):
                self.declare(stmt.dst, stmt.dtype)
                lines.append(f"{INDENT * depth}const {DTYPES[stmt.dtype].c_type} {self.load_from(after)}")
                position += 2
                continue
            lines += [INDENT * depth + line for line in self.statement(stmt)]
            position += 1
        return lines

    def statement(self, stmt: Stmt) -> Lines:
        result = PRINT[type(stmt)](self, stmt)
        return [result] if isinstance(result, str) else result

    def declare(self, name: str, dtype: str, shape: tuple[int, ...] = ()) -> None:
        self.dtypes[name], self.shapes[name] = dtype, shape

    def contents(self, e: Expr, dtype: str) -> str:
        """Return an expression as the contents of a register; index arithmetic is an int as it is."""
        return (self.expr(e) if dtype == "i32" and not is_literal(e) else self.value(e, dtype))[0]

    def define(self, stmt: Define) -> str:
        self.declare(stmt.dst, stmt.dtype)
        const = "" if stmt.mutable else "const "
        val = self.contents(stmt.val, stmt.dtype)
        text = f"warp_uniform({val})" if stmt.uniform else val
        return f"{const}{DTYPES[stmt.dtype].c_type} {self.names[stmt.dst]} = {text};"

    def base(self, stmt: Base) -> str:
        name = self.names[stmt.dst]
        if stmt.root == SHARED or stmt.root not in self.pointers:
            ctype = "uint32_t" if stmt.mutable else "const uint32_t"
        else:
            ctype = self.pointers[stmt.dst] = self.pointers[stmt.root]
        return f"{ctype} {name} = {self.plus(self.names[stmt.root], stmt.offset)};"

    def advance(self, stmt: Advance) -> str:
        if is_int(stmt.by) and stmt.by < 0:
            return f"{self.names[stmt.base]} -= {scalar.integer(-stmt.by)[0]};"
        return f"{self.names[stmt.base]} += {self.text(stmt.by)};"

    def registers(self, stmt: Registers) -> str:
        self.declare(stmt.dst, stmt.dtype, stmt.shape)
        dims = "".join(f"[{extent}]" for extent in stmt.shape)
        fill = "" if stmt.fill is None else " = {}" if dims else f" = {scalar.literal(stmt.fill, stmt.dtype)[0]}"
        return f"{DTYPES[stmt.dtype].c_type} {self.names[stmt.dst]}{dims}{fill};"

    def replicate(self, stmt: Replicate) -> Lines:
        self.declare(stmt.var, "i32")
        name = counter = self.names[stmt.var]
        lines = []
        if stmt.reverse is not None:
            while counter in self.taken:
                counter += "_"
            serpentine = f"{self.names[stmt.reverse]} & 1 ? {stmt.extent - 1} - {counter} : {counter}"
            lines = [f"{INDENT}const int {name} = {serpentine};"]
        head = f"for (int {counter} = 0; {counter} < {stmt.extent}; ++{counter}) {{"
        return ["#pragma unroll", head, *lines, *self.block(stmt.body, 1), "}"]

    def loop(self, stmt: Loop) -> Lines:
        self.declare(stmt.var, stmt.dtype)
        name = self.names[stmt.var]
        step = f"++{name}" if stmt.step == 1 else f"{name} += {self.text(stmt.step)}"
        start = f"{DTYPES[stmt.dtype].c_type} {name} = {self.text(stmt.start)}"
        head = f"for ({start}; {name} < {self.text(stmt.stop, SHIFT)}; {step}) {{"
        pragma = [f"#pragma unroll {stmt.unroll}"] if stmt.unroll else []
        return [*pragma, head, *self.block(stmt.body, 1), "}"]

    def branch(self, stmt: Branch) -> Lines:
        one = stmt.alone and isinstance(stmt.cond, Binary)
        cond = f"one_thread({self.text(stmt.cond.a)})" if one else self.text(stmt.cond)
        return [f"if ({cond}) {{", *self.block(stmt.body, 1), "}"]

    def assign(self, stmt: Assign) -> str:
        place, val = self.text(stmt.place), stmt.val
        dtype = self.dtype(stmt.place)
        if val.__class__ is Call and val.args[0] is stmt.place and len(val.args) == 2 and dtype in ("f32", "f64"):
            op = {"add": "+", "subtract": "-", "multiply": "*"}.get(val.fn)
            if op:
                return f"{place} {op}= {self.value(val.args[1], dtype)[0]};"
        return f"{place} = {self.contents(val, dtype)};"

    def butterfly(self, stmt: Butterfly) -> Lines:
        place, dtype = self.text(stmt.place), self.dtype(stmt.place)
        other = f"shfl_xor({place}, lanes)"
        added = stmt.fn == "add" and dtype in ("f32", "f64")
        op = EAGER[form_of(stmt.fn, dtype).text] if dtype == "b8" else "+" if added else None
        combined = apply_form(form_of(stmt.fn, dtype), [(place, ATOM), (other, ATOM)])[0]
        step = f"{place} {op}= {other};" if op else f"{place} = {combined};"
        if stmt.low == stmt.high:
            return [step.replace("lanes)", f"{stmt.low})")]
        return ["#pragma unroll", f"for (int lanes = {stmt.high}; lanes >= {stmt.low}; lanes >>= 1) {step}"]

    def shuffle(self, stmt: Shuffle) -> str:
        place = self.text(stmt.place)
        return f"{place} = shfl_xor({place}, {stmt.lanes});"

    # ---- memory

    def load_from(self, stmt: LoadFrom) -> str | Lines:
        shared, address = stmt.address.base not in self.pointers, self.address(stmt.address)
        into, ctype, held = self.text(stmt.into), DTYPES[stmt.dtype].c_type, self.type_of(stmt.into.name)
        letters = "lds" if shared else "ldg"
        other = scalar.literal(stmt.other, held)[0]
        if stmt.width == 1:
            word = stmt.dtype == "f32" or (stmt.dtype == "i32" and not shared)
            read = f"lds<{ctype}>({address})" if shared else f"ldg({address})"
            read = f"{letters}32({address})" if word else read
            read = convert((read, ATOM), stmt.dtype, held)[0]
            if stmt.when is True:
                return f"{into} = {read};"
            return f"{into} = {self.text(stmt.when, scalar.OR)} ? {read} : {other};"
        whole = isinstance(stmt.into, Element) and len(stmt.into.index) == len(self.shapes[stmt.into.name])
        bits = 8 * stmt.width * DTYPES[stmt.dtype].item_bytes
        widened = f"<{ctype}>" if shared and held != stmt.dtype else ""
        read = f"{letters}{bits}{widened}({'&' if whole else ''}{into}, {address});"
        if stmt.when is True:
            return read
        places = " = ".join(f"{into}[{lane}]" for lane in range(stmt.width))
        return [f"if ({self.text(stmt.when)}) {{", INDENT + read, "} else {", f"{INDENT}{places} = {other};", "}"]

    def check_place(self, stmt: CheckPlace) -> str:
        end = scalar.integer(stmt.extent)[0] if is_int(stmt.extent) else self.text(stmt.extent)
        check = f"check_place({self.text(stmt.place)}, {end});"
        return check if stmt.when is True else f"if ({self.text(stmt.when)}) {check}"

    def store_to(self, stmt: StoreTo) -> str | Lines:
        shared, address = stmt.address.base not in self.pointers, self.address(stmt.address)
        letters, width = "sts" if shared else "stg", len(stmt.values)
        if width == 1:
            word = stmt.dtype == "f32" or (stmt.dtype == "i32" and not shared)
            value = self.value(stmt.values[0], stmt.dtype)[0]
            cast = shared and stmt.dtype not in WORDS and stmt.dtype not in SMALL_FLOATS
            value = f"({DTYPES[stmt.dtype].c_type})({value})" if cast else value
            return f"{letters}{'32' if word else ''}({address}, {value});"
        name = f"{letters}{8 * width * DTYPES[stmt.dtype].item_bytes}"
        kept = tuple(unrounded(value, stmt.dtype) for value in stmt.values)
        same = all(self.dtype(value) == stmt.dtype for value in kept)
        held = "f32" if stmt.dtype in SMALL_FLOATS and not same else stmt.dtype
        name += f"<{DTYPES[stmt.dtype].c_type}>" if shared and held != stmt.dtype else ""
        run = self.run_of(kept) if self.dtype(kept[0]) == held else None
        if run is not None:
            return f"{name}({address}, {run});"
        values = [self.value(value, held)[0] for value in kept]
        vector = VECTOR_TYPES.get((stmt.dtype, width))
        if vector is None:
            array = listed(f"const {DTYPES[held].c_type} lane[] = {{", values, "};")
            return ["{", *(INDENT + line for line in array), f"{INDENT}{name}({address}, lane);", "}"]
        return listed(f"{name}({address}, {vector}{{", values, "});")

    def run_of(self, values: tuple[Any, ...]) -> str | None:
        """Return the registers that hold the values in this order, if the values are a whole run of an array."""
        first = values[0]
        if not isinstance(first, Element) or self.shapes.get(first.name, (0,))[-1] != len(values):
            return None
        if len(first.index) != len(self.shapes[first.name]):
            return None
        if any(value is not Element(first.name, (*first.index[:-1], lane)) for lane, value in enumerate(values)):
            return None
        lead = first.index[:-1]
        return self.text(Element(first.name, lead) if lead else Var(first.name))

    def copy_async(self, stmt: CopyAsync) -> str:
        conditions = [("_if", stmt.when), ("_zfill", stmt.inside)]
        kept = [(suffix, condition) for suffix, condition in conditions if condition is not True]
        name = f"cp_async{stmt.bytes}" + "".join(suffix for suffix, _ in kept)
        arguments = [self.text(condition) for _, condition in kept] + [self.address(stmt.to), self.address(stmt.source)]
        return f"{name}({', '.join(arguments)});"

    def tensor_map(self, stmt: TensorMap) -> Lines:
        """Return a parameter of the kernel."""
        return []

    def copy_box(self, stmt: CopyBox) -> str:
        places = ", ".join(self.text(e) for e in reversed(stmt.at))  # the innermost first, as in a tensor map
        barrier = self.address(stmt.barrier)
        shared = f"_shared<{stmt.cluster}>" if stmt.cluster > 1 else ""
        to, name = self.address(stmt.to), self.names[stmt.map]
        return f"copy_box_{len(stmt.at)}d{shared}({to}, {name}, {barrier}, {places});"

    def intrinsic(self, stmt: Intrinsic) -> str:
        operands = {field.name: getattr(stmt, field.name) for field in type(stmt).fields}
        texts = {name: self.address(e) if isinstance(e, Address) else self.text(e) for name, e in operands.items()}
        return f"{stmt.call.format(**texts)};"

    def barrier(self, stmt: Barrier) -> str:
        return "cluster_sync();" if stmt.cluster > 1 else "block_sync();"

    # ---- fragments

    def fragment(self, stmt: Fragment) -> str:
        self.declare(stmt.dst, stmt.dtype, (stmt.words,))
        return f"uint32_t {self.names[stmt.dst]}[{stmt.words}];"

    def load_matrix(self, stmt: LoadMatrix) -> str:
        trans = "_trans" if stmt.trans else ""
        return f"ldmatrix_x{stmt.count}{trans}(&{self.text(stmt.into, UNARY)}, {self.address(stmt.address)});"

    def pack_word(self, stmt: PackWord) -> str:
        dtype = self.dtype(stmt.into)
        values = [self.value(unrounded(value, dtype), opmath(dtype))[0] for value in stmt.values]
        return f"{self.text(stmt.into)} = pack<{DTYPES[dtype].c_type}>({', '.join(values)});"

    def multiply(self, stmt: Multiply) -> str:
        places = ", ".join(f"&{self.text(place, UNARY)}" for place in (stmt.acc, stmt.a, stmt.b))
        dtypes = dict.fromkeys(map(self.dtype, (stmt.a, stmt.b)))  # of both operands, once where they are one
        return f"mma_{stmt.atom}_{'_'.join(dtypes)}({places});"

    def queue_product(self, stmt: QueueProduct) -> str:
        left = self.matrix(stmt.a) if isinstance(stmt.a, Matrix) else f"&{self.text(stmt.a, UNARY)}"
        operands = f"&{self.text(stmt.acc, UNARY)}, {left}, {self.matrix(stmt.b)}"
        return f"wgmma_{stmt.atom}_{stmt.dtype}({operands});"

    def matrix(self, matrix: Any) -> str:
        form = f"across<{matrix.stride}, {matrix.leading}>" if matrix.across else f"along<{matrix.stride}>"
        at = matrix.at
        if at.xor == 0 and at.offset != 0:  # what a descriptor says of the offset is added to it as it is
            return f"matrix_{form}({self.names[at.base]}, {self.text(at.offset)})"
        return f"matrix_{form}({self.address(at)})"

    def wait_products(self, stmt: WaitProducts) -> Lines:
        return [f"wgmma_wait<{stmt.keep}>();", *(f"wgmma_done({self.text(sums)});" for sums in stmt.sums)]


def listed(head: str, values: Lines, tail: str) -> Lines:
    """Return values between braces, one to a line where they do not fit."""
    line = f"{head}{', '.join(values)}{tail}"
    return [line] if len(line) < 120 else [head, *(f"{INDENT * 2}{value}," for value in values), tail]


PRINT = method_for_each(Printer)


# ---- names as C++ identifiers: an input may be called `float`, `threadIdx` or `ldg128`


PRELUDE = tuple(Path(__file__).parent / name for name in ("prelude.cuh", "float8.cuh"))

KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        """
        alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t char8_t class
        co_await co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype
        default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline
        int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register
        reinterpret_cast requires return short signed sizeof static static_assert static_cast struct switch template
        this thread_local throw true try typedef typeid typename union unsigned using virtual void volatile
        wchar_t while xor xor_eq

        threadIdx blockIdx blockDim gridDim warpSize dim3 float2 float4 int2 int4 f16 bf16 e4m3 e5m2 i8 i16 u8 size_t
        uint8_t uint16_t uint32_t uint64_t int32_t int64_t

        memcpy assert site TensorMap NULL NAN INFINITY EOF linux unix major minor main
        """,
    )
)
OURS = ("dplc", "DPLC")  # what the prelude's own names begin with
BOUND = {
    THREAD: "threadIdx.x",
    **dict(zip(BLOCK_INDEX, ("blockIdx.x", "blockIdx.y", "blockIdx.z"))),
    SHARED: SHARED,
}


@functools.cache
def reserved() -> frozenset[str]:
    """Return the identifiers with a meaning in a kernel: keywords, the prelude's functions, those of scalar.py."""
    prelude = "".join(path.read_text() for path in PRELUDE)
    functions = set(re.findall(r"DPLC_FN [\w:]+(?: [\w:]+)*?[ *]+(\w+)\(", prelude)) | set(
        re.findall(r"DPLC_(?:CP_ASYNC|COPY_BOX|F64_[12])\((\w+)", prelude)
    )
    functions |= {
        name + end for name in list(functions) if name.startswith("cp_async") for end in ("_if", "_zfill", "_if_zfill")
    }
    tables = (*scalar.TABLES.values(), scalar.INTEGER, scalar.ANY)
    texts = " ".join(form.text for table in tables for form in table.values())
    functions |= set(re.findall(r"[A-Za-z_]\w*", texts)) | {"smem_buf"}
    return KEYWORDS | functions


def is_reserved(name: str) -> bool:
    return name in reserved() or name.startswith(OURS) or "__" in name


def safe_names(kernel: Kernel) -> dict[str, str]:
    """Return an identifier for every name of a kernel; those that need no change keep theirs."""
    names = dict.fromkeys(_names(kernel))
    result = dict(BOUND)
    taken = set(names) | set(BOUND)
    for name in names:
        if name in result:
            continue
        safe = name
        while is_reserved(safe) or (safe is not name and safe in taken):
            plain = re.sub("__+", "_", safe.strip("_")) if "__" in safe else safe
            safe = f"{'v_' * plain.startswith(OURS)}{plain}_v"
        taken.add(safe)
        result[name] = safe
    return result


# `extern "C"` puts a kernel in one namespace with the C library
LIBRARY = frozenset(
    re.findall(
        r"\w+",
        "sin cos tan exp log sqrt pow abs fabs floor ceil round trunc erf gamma div time index y0 y1 yn j0 j1 jn",
    )
)


def safe_kernel_name(name: str) -> str:
    return f"{name}_kernel" if is_reserved(name) or name in LIBRARY else name


def _names(kernel: Kernel) -> Iterator[str]:
    """Yield every name that a kernel defines, in the order of its text."""
    yield from (param.name for param in kernel.params)
    yield from sorted({size.name for size in nodes(kernel, Size)})
    for stmt in nodes(kernel.body, Stmt):
        for field in ("dst", "var"):
            if field in type(stmt).by_name:
                yield getattr(stmt, field)


WIDTH = 116
INT_LIMIT = 2**31


def print_cuda(
    kernel: Kernel, rules: Sequence[str] = (), sizes: Mapping[str, int] = MappingProxyType({})
) -> CudaKernel:
    """Return CUDA text of a Kernel IR kernel.

    Its params are those of the kernel in order, under names that C++ accepts.
    sizes: the numbers of the sizes that it declares: of its grid and its buffers; the text is the same for all. A
    size without a number has its hint.
    """
    if len(kernel.body) != 1 or not isinstance(kernel.body[0], Launch):
        raise InternalError(f"kernel `{kernel.name}` is not Kernel IR: its body is not one Launch")
    launch = kernel.body[0]
    names = safe_names(kernel)
    declared = list(sizes_in(kernel).values())
    for size in declared:
        if size.high >= INT_LIMIT:
            raise DplcError(
                f"kernel `{kernel.name}`: `{size.name}` goes to {size.high}; a kernel takes an int of 32 bits"
            )
    dtypes: dict[str, Any] = {param.name: param.dtype for param in kernel.params}
    roles: dict[str, Any] = dict.fromkeys(dtypes, "in") | {param.name: "out" for param in kernel.outs}
    params = [KernelParam(names[name], dtypes[name], (), role) for name, role in roles.items()]
    for stmt in nodes(launch.body, TensorMap):
        box = Box(names[stmt.src], stmt.box, stmt.swizzle)
        params.append(KernelParam(names[stmt.dst], dtypes[stmt.src], (), "tensor_map", box))
    comment = header(launch, rules)
    name = safe_kernel_name(kernel.name)
    lines = [f"// {line}" for line in comment.splitlines()]
    clusters = f" __cluster_dims__({launch.cluster}, 1, 1)" if launch.cluster > 1 else ""
    # Without the minimum of one block, NVRTC takes up to a fifth more registers for the same instructions.
    lines.append(f'extern "C" __global__ void{clusters} __launch_bounds__({launch.block}, 1)')
    lines += signature(
        name, [*(param.declaration for param in params), *(f"const int {names[size.name]}" for size in declared)]
    )
    if launch.shared:
        lines += ["  DPLC_DYN_SMEM(float, smem_buf);", "  const uint32_t smem = smem_addr(smem_buf);"]
    lines += Printer(kernel, names).block(launch.body, 1)
    text = "\n".join([*lines, "}"]) + "\n"
    grid, cluster = (launch.cluster, 1, 1), launch.cluster
    made = CudaKernel(name, text, grid, launch.block, launch.shared, tuple(params), comment, (), cluster)
    return _at_sizes(kernel, made, {size.name: size.hint for size in declared} | dict(sizes))


def bound(kernel: Kernel, made: CudaKernel, sizes: Mapping[str, int]) -> CudaKernel:
    """Return a printed kernel at other numbers of its sizes: the text is the same."""
    return _at_sizes(kernel, made, sizes) if made.values else made


def _at_sizes(kernel: Kernel, made: CudaKernel, sizes: Mapping[str, int]) -> CudaKernel:
    """Return a printed kernel with the grid, the shapes and the arguments that follow from its sizes."""
    launch: Any = kernel.body[0]
    buffers = zip(kernel.params, made.params)  # tensor maps follow
    shapes = {param.name: tuple(value_of(n, sizes) for n in buffer.shape) for buffer, param in buffers}
    params = tuple(replace(p, shape=shapes[p.box.source if p.box else p.name]) for p in made.params)
    x, y, z = (value_of(extent, sizes) for extent in launch.grid)
    return replace(made, grid=(x, y, z), params=params, values=tuple(sizes[name] for name in sizes_in(kernel)))


def header(launch: Launch, rules: Sequence[str]) -> str:
    """Return the comment of a kernel: its rules and its launch."""
    grid = " x ".join(map(print_expr, launch.grid))
    shared = f", {launch.shared} bytes of shared memory" if launch.shared else ""
    clusters = f" in clusters of {launch.cluster}" if launch.cluster > 1 else ""
    last = f"grid {grid}{clusters}, {launch.block} thread{'s' if launch.block > 1 else ''}{shared}"
    lead = "rules: "
    wrapped = wrap(
        " ".join(rules), WIDTH, initial_indent=lead, subsequent_indent=" " * len(lead), break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
    return "\n".join([*wrapped, last])


def signature(name: str, declarations: Lines) -> Lines:
    """Return `name(params) {`, one parameter a line where they do not fit."""
    line = f"{name}({', '.join(declarations)}) {{"
    if len(line) <= WIDTH:
        return [line]
    return [f"{name}(", *(f"    {d}," for d in declarations[:-1]), f"    {declarations[-1]}) {{"]
