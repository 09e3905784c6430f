"""The CUDA text of Kernel IR statements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ir.diagnostic import InternalError
from ..ir.dtypes import DTYPES, SMALL_FLOATS
from ..ir.expr import Binary, Call, Var, is_int
from ..ir.functions import opmath
from ..ir.kernel import (  # fmt: skip
    SHARED,
    Advance,
    Arrive,
    Assign,
    Barrier,
    Base,
    Branch,
    Butterfly,
    CheckPlace,
    Commit,
    CommitProducts,
    CopyAsync,
    CopyBox,
    Define,
    Element,
    EnterTurn,
    Expect,
    FenceBarriers,
    FenceProducts,
    Fragment,
    InitBarrier,
    LastThreads,
    LeaveTurn,
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
    WaitGroup,
    WaitPhase,
    WaitProducts,
)
from ..ir.program import Block, Stmt
from . import scalar
from .cuda_expressions import ExpressionPrinter, unrounded
from .dtypes import is_literal
from .scalar import (
    ATOM,
    SHIFT,
    UNARY,
    apply_form,
    convert,
    form_of,
)

INDENT = "  "
WIDTH = 120
WORDS = ("f32", "i32")  # dtypes with functions named after the width alone
VECTOR_TYPES = {("f32", 2): "float2", ("f32", 4): "float4", ("i32", 2): "int2", ("i32", 4): "int4"}
# `a || shfl_xor(a, lanes)` would leave out lanes of a shuffle that all must reach
EAGER = {"{0} || {1}": "|", "{0} && {1}": "&", "{0} != {1}": "^"}


class Printer(ExpressionPrinter):
    """Prints the statements of one kernel."""

    # ---- statements

    def block(self, block: Block, depth: int) -> list[str]:
        """The lines of a block. A register that is loaded right away is declared with its value."""
        lines: list[str] = []
        position = 0
        while position < len(block):
            stmt, after = block[position], block[position + 1] if position + 1 < len(block) else None
            if (
                isinstance(stmt, Registers)
                and not stmt.shape
                and isinstance(after, LoadFrom)
                and after.into is Var(stmt.dst)
            ):
                self.declare(stmt.dst, stmt.dtype)
                lines.append(f"{INDENT * depth}const {DTYPES[stmt.dtype].c_type} {self.load(after)}")
                position += 2
                continue
            lines += [INDENT * depth + line for line in self.statement(stmt)]
            position += 1
        return lines

    def statement(self, stmt: Stmt) -> list[str]:
        printer = PRINT.get(type(stmt))
        if printer is None:
            raise InternalError(f"no CUDA text for `{type(stmt).__name__}`")
        result = printer(self, stmt)
        return [result] if isinstance(result, str) else result

    def declare(self, name: str, dtype: str, shape: tuple[int, ...] = ()) -> None:
        self.dtypes[name], self.shapes[name] = dtype, shape

    def define(self, stmt: Define) -> str:
        self.declare(stmt.dst, stmt.dtype)
        const = "" if stmt.mutable else "const "
        val = (
            self.expr(stmt.val)
            if stmt.dtype == "i32" and not is_literal(stmt.val)
            else self.value(stmt.val, stmt.dtype)
        )
        text = f"warp_uniform({val[0]})" if stmt.uniform else val[0]
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

    def replicate(self, stmt: Replicate) -> list[str]:
        self.declare(stmt.var, "i32")
        name = counter = self.names[stmt.var]
        lines = []
        if stmt.reverse is not None:
            while counter in self.taken:
                counter += "_"
            turned = f"{self.names[stmt.reverse]} & 1 ? {stmt.extent - 1} - {counter} : {counter}"
            lines = [f"{INDENT}const int {name} = {turned};"]
        head = f"for (int {counter} = 0; {counter} < {stmt.extent}; ++{counter}) {{"
        return ["#pragma unroll", head, *lines, *self.block(stmt.body, 1), "}"]

    def loop(self, stmt: Loop) -> list[str]:
        self.declare(stmt.var, stmt.dtype)
        name = self.names[stmt.var]
        step = f"++{name}" if stmt.step == 1 else f"{name} += {self.text(stmt.step)}"
        start = f"{DTYPES[stmt.dtype].c_type} {name} = {self.text(stmt.start)}"
        head = f"for ({start}; {name} < {self.text(stmt.stop, SHIFT)}; {step}) {{"
        pragma = [f"#pragma unroll {stmt.unroll}"] if stmt.unroll else []
        return [*pragma, head, *self.block(stmt.body, 1), "}"]

    def branch(self, stmt: Branch) -> list[str]:
        one = stmt.alone and isinstance(stmt.cond, Binary)
        cond = f"one_thread({self.text(stmt.cond.a)})" if one else self.text(stmt.cond)  # type: ignore[attr-defined]
        return [f"if ({cond}) {{", *self.block(stmt.body, 1), "}"]

    def assign(self, stmt: Assign) -> str:
        place, val = self.text(stmt.place), stmt.val
        dtype = self.dtype(stmt.place)
        if val.__class__ is Call and val.args[0] is stmt.place and len(val.args) == 2 and dtype in ("f32", "f64"):
            op = {"add": "+", "subtract": "-", "multiply": "*"}.get(val.fn)
            if op:
                return f"{place} {op}= {self.value(val.args[1], dtype)[0]};"
        text = self.expr(val) if dtype == "i32" and not is_literal(val) else self.value(val, dtype)
        return f"{place} = {text[0]};"

    def butterfly(self, stmt: Butterfly) -> list[str]:
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

    def load(self, stmt: LoadFrom) -> str | list[str]:
        shared, address = self.is_shared(stmt.address.base), self.address(stmt.address)
        into, ctype, held = self.text(stmt.into), DTYPES[stmt.dtype].c_type, self.type_of(stmt.into.name)
        letters, early = "lds" if shared else "ldg", "_early" if stmt.early else ""
        other = scalar.literal(stmt.other, held)[0]
        if stmt.width == 1:
            word = not early and (stmt.dtype == "f32" or (stmt.dtype == "i32" and not shared))
            read = f"lds<{ctype}>({address})" if shared else f"ldg{early}({address})"
            read = f"{letters}32({address})" if word else read
            read = convert((read, ATOM), stmt.dtype, held)[0]
            if stmt.when is True:
                return f"{into} = {read};"
            return f"{into} = {self.text(stmt.when, scalar.OR)} ? {read} : {other};"
        whole = isinstance(stmt.into, Element) and len(stmt.into.index) == len(self.shapes[stmt.into.name])
        bits = 8 * stmt.width * DTYPES[stmt.dtype].item_bytes
        widened = f"<{ctype}>" if shared and held != stmt.dtype else ""
        read = f"{letters}{bits}{early}{widened}({'&' if whole else ''}{into}, {address});"
        if stmt.when is True:
            return read
        places = " = ".join(f"{into}[{lane}]" for lane in range(stmt.width))
        return [f"if ({self.text(stmt.when)}) {{", INDENT + read, "} else {", f"{INDENT}{places} = {other};", "}"]

    def check_place(self, stmt: CheckPlace) -> str:
        end = scalar.integer(stmt.extent)[0] if is_int(stmt.extent) else self.text(stmt.extent)
        check = f"check_place({self.text(stmt.place)}, {end});"
        return check if stmt.when is True else f"if ({self.text(stmt.when)}) {check}"

    def store(self, stmt: StoreTo) -> str | list[str]:
        shared, address = self.is_shared(stmt.address.base), self.address(stmt.address)
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
        run = self.run_of(kept)
        if run is not None:
            return f"{name}({address}, {run});"
        values = [self.value(value, held)[0] for value in kept]
        vector = VECTOR_TYPES.get((stmt.dtype, width))
        if vector is None:
            array = listed(f"const {DTYPES[held].c_type} lane[] = {{", values, "};")
            return ["{", *(INDENT + line for line in array), f"{INDENT}{name}({address}, lane);", "}"]
        return listed(f"{name}({address}, {vector}{{", values, "});")

    def run_of(self, values: tuple[Any, ...]) -> str | None:
        """The registers in whose order the values stand, if they are a whole run of an array."""
        first = values[0]
        if not isinstance(first, Element) or self.shapes.get(first.name, (0,))[-1] != len(values):
            return None
        if len(first.index) != len(self.shapes[first.name]):
            return None
        if any(value is not Element(first.name, (*first.index[:-1], lane)) for lane, value in enumerate(values)):
            return None
        lead = first.index[:-1]
        return self.text(Element(first.name, lead) if lead else Var(first.name))

    def copy(self, stmt: CopyAsync) -> str:
        conditions = [("_if", stmt.when), ("_zfill", stmt.inside)]
        kept = [(suffix, condition) for suffix, condition in conditions if condition is not True]
        name = f"cp_async{stmt.bytes}" + "".join(suffix for suffix, _ in kept)
        arguments = [self.text(condition) for _, condition in kept] + [self.address(stmt.to), self.address(stmt.source)]
        return f"{name}({', '.join(arguments)});"

    def copy_box(self, stmt: CopyBox) -> str:
        places = ", ".join(self.text(e) for e in reversed(stmt.at))  # the innermost first, as in a tensor map
        barrier = self.address(stmt.barrier)
        shared = f"_shared<{stmt.cluster}>" if stmt.cluster > 1 else ""
        to, name = self.address(stmt.to), self.names[stmt.map]
        return f"copy_box_{len(stmt.at)}d{shared}({to}, {name}, {barrier}, {places});"

    def arrive(self, stmt: Arrive) -> str:
        cluster = f"_shared<{stmt.cluster}>" if stmt.cluster > 1 else ""
        return f"mbarrier_arrive{cluster}({self.address(stmt.barrier)});"

    def barrier(self, stmt: Barrier) -> str:
        if stmt.cluster > 1:
            return "cluster_sync();"
        return f"part_sync<{stmt.threads}>();" if stmt.threads else "block_sync();"

    def last_threads(self, stmt: LastThreads) -> list[str]:
        """The threads that run the body end with it, so that the rest needs no brace."""
        head = f"if (last_threads<{stmt.threads}>()) {{"
        fewer = [f"{INDENT}registers_lower<{stmt.registers}>();"] if stmt.registers else []
        more = [f"registers_raise<{stmt.others}>();"] if stmt.others else []
        return [head, *fewer, *self.block(stmt.body, 1), f"{INDENT}return;", "}", *more]

    # ---- fragments

    def fragment(self, stmt: Fragment) -> str:
        self.declare(stmt.dst, stmt.dtype, (stmt.words,))
        return f"uint32_t {self.names[stmt.dst]}[{stmt.words}];"

    def load_matrix(self, stmt: LoadMatrix) -> str:
        trans = "_trans" if stmt.trans else ""
        return f"ldmatrix_x{stmt.count}{trans}(&{self.text(stmt.into, UNARY)}, {self.address(stmt.address)});"

    def pack(self, stmt: PackWord) -> str:
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

    def wait_products(self, stmt: WaitProducts) -> list[str]:
        return [f"wgmma_wait<{stmt.keep}>();", *(f"wgmma_done({self.text(sums)});" for sums in stmt.sums)]


def listed(head: str, values: list[str], tail: str) -> list[str]:
    """Values between braces, one to a line where they do not fit."""
    line = f"{head}{', '.join(values)}{tail}"
    return [line] if len(line) < WIDTH else [head, *(f"{INDENT * 2}{value}," for value in values), tail]


PRINT: dict[type[Stmt], Callable[[Printer, Any], str | list[str]]] = {
    Define: Printer.define,
    Base: Printer.base,
    Advance: Printer.advance,
    Registers: Printer.registers,
    Replicate: Printer.replicate,
    Loop: Printer.loop,
    Branch: Printer.branch,
    Assign: Printer.assign,
    Butterfly: Printer.butterfly,
    Shuffle: Printer.shuffle,
    LoadFrom: Printer.load,
    CheckPlace: Printer.check_place,
    StoreTo: Printer.store,
    CopyAsync: Printer.copy,
    Commit: lambda printer, stmt: "cp_async_commit();",
    WaitGroup: lambda printer, stmt: f"cp_async_wait<{stmt.keep}>();",
    TensorMap: lambda printer, stmt: [],
    InitBarrier: lambda printer, stmt: f"mbarrier_init({printer.address(stmt.at)}, {stmt.arrivals});",
    FenceBarriers: lambda printer, stmt: "mbarrier_fence();",
    Expect: lambda printer, stmt: f"mbarrier_expect({printer.address(stmt.barrier)}, {stmt.bytes});",
    Arrive: Printer.arrive,
    LastThreads: Printer.last_threads,
    CopyBox: Printer.copy_box,
    EnterTurn: lambda printer, stmt: f"mbarrier_wait({printer.address(stmt.barrier)}, {printer.text(stmt.parity)});",
    LeaveTurn: lambda printer, stmt: f"mbarrier_arrive({printer.address(stmt.barrier)});",
    WaitPhase: lambda printer, stmt: f"mbarrier_wait({printer.address(stmt.barrier)}, {printer.text(stmt.parity)});",
    Barrier: Printer.barrier,
    Fragment: Printer.fragment,
    LoadMatrix: Printer.load_matrix,
    PackWord: Printer.pack,
    Multiply: Printer.multiply,
    FenceProducts: lambda printer, stmt: "wgmma_fence();",
    QueueProduct: Printer.queue_product,
    CommitProducts: lambda printer, stmt: "wgmma_commit();",
    WaitProducts: Printer.wait_products,
}
