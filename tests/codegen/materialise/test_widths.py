"""Index arithmetic is computed in 64 bits where 32 may not hold it: by analysis of the text, and run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import dplc
from dplc.codegen.dtypes import dtype_of
from dplc.ir.expr import Binary, Call, Sum, Var, add, is_int, multiply, rebuild
from dplc.ir.kernel import BLOCK_INDEX, THREAD, Address, Base, Define, Launch, Loop, Registers, Replicate
from dplc.ir.node import Node
from dplc.ir.program import Kernel
from dplc.ir.ranges import Interval, interval

INT = 2**31
ARITHMETIC = ("*", "//", "%", "^")


class Narrow:
    """The index expressions of a kernel that C computes in int, though they may leave it."""

    def __init__(self, kernel: Kernel):
        (launch,) = kernel.body
        assert isinstance(launch, Launch)
        self.ranges: dict[str, Interval] = {THREAD: (0, launch.block - 1)}
        self.ranges |= {name: (0, extent - 1) for name, extent in zip(BLOCK_INDEX, launch.grid, strict=True)}
        self.dtypes: dict[str, str] = {}
        self.found: list[Any] = []
        self.walk(launch.body)

    def walk(self, node: Any) -> None:
        if isinstance(node, tuple):
            for item in node:
                self.walk(item)
            return
        if not isinstance(node, Node):
            return
        if isinstance(node, Loop):
            last = self.range(node.stop)[1] - 1 + (node.step if is_int(node.step) else self.range(node.step)[1])
            self.define(node.var, node.dtype, (self.range(node.start)[0], last))
        elif isinstance(node, Replicate):
            self.define(node.var, "i32", (0, node.extent - 1))
        elif isinstance(node, Registers):
            self.dtypes[node.dst] = node.dtype
        elif isinstance(node, Define) and not (isinstance(node.val, Call) or node.mutable):
            self.define(node.dst, node.dtype, self.range(node.val))
        elif isinstance(node, Define):
            self.dtypes[node.dst] = node.dtype
        pointer = isinstance(node, Address | Base)
        for field in type(node).inner:
            value = getattr(node, field)
            self.arithmetic(value, pointer)
            self.walk(value)

    def define(self, name: str, dtype: str, span: Interval) -> None:
        self.dtypes[name], self.ranges[name] = dtype, span
        if dtype == "i32" and not fits(span):
            self.found.append((name, span))

    def arithmetic(self, e: Any, pointer: bool) -> None:
        """Partial sums from left to right; a pointer is there first, and takes terms one at a time."""
        if isinstance(e, Sum):
            sofar: Any = 0
            narrow = True
            for atom, factor in e.terms:
                term = multiply(bare(atom), factor)
                own = self.dtype(atom) == "i32"
                if own and is_index(atom) and not fits(self.range(term)):
                    self.found.append(term)
                sofar, narrow = add(sofar, term), narrow and own
                if narrow and not pointer and is_index(atom) and not fits(self.range(sofar)):
                    self.found.append(sofar)
        elif isinstance(e, Binary) and e.op in ARITHMETIC and self.dtype(e) == "i32" and not fits(self.range(bare(e))):
            self.found.append(e)

    def range(self, e: Any) -> Interval:
        return interval(bare(e), self.ranges)

    def dtype(self, e: Any) -> str:
        return dtype_of(e, lambda name: self.dtypes.get(name, "i32"), "i32")


def fits(span: Interval) -> bool:
    return span[0] >= -INT and span[1] < INT


def is_index(e: Any) -> bool:
    return isinstance(e, Var | Binary | Sum)


def bare(e: Any) -> Any:
    """Without what widens."""
    if isinstance(e, Call) and e.fn == "i64":
        return bare(e.args[0])
    return rebuild(e, bare) if isinstance(e, Sum | Binary) else e


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


SCALAR = torch.zeros((), dtype=torch.int64)
HUGE: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "cat": (lambda a, b: torch.cat([a, b]), (meta(2**31 - 8, dtype=torch.bool), meta(100, dtype=torch.bool))),
    "cat of rows": (lambda a, b: torch.cat([a, b], 1), (meta(3, 2**31), meta(3, 7))),
    "argmax": (lambda a: a.argmax(), (meta(2**32 + 8),)),
    "argmax of few rows": (lambda a: a.argmax(1), (meta(3, 2**31 - 100),)),
    "sum": (lambda a: a.sum(), (meta(2**32 + 12345),)),
    "sum of columns": (lambda a: a.sum(0), (meta(2**31 - 1, 3),)),
    "arange": (lambda a: torch.arange(2**31 + 2) + a, (SCALAR,)),
    "shifted": (lambda a: a[2**31 + 5 :] * 2, (meta(2**31 + 77),)),
    "transposed": (lambda a: a.T.contiguous() + 1, (meta(2**16 + 1, 2**16 + 3),)),
    "flipped": (lambda a: a.flip(0), (meta(2**31 + 3),)),
    "padded": (lambda a: torch.nn.functional.pad(a, (2, 2**31)), (meta(5),)),
    "softmax": (lambda a: a.softmax(-1), (meta(2, 2**31 + 1),)),
    "rows of a table": (lambda a, i: a[i], (meta(2**26, 64), meta(8, dtype=torch.int64))),
    "scaled ramp": (lambda a: torch.arange(5) * 2**30 > a, (SCALAR,)),
    "sum of ramps": (lambda a: torch.arange(9)[:, None] * 10**9 + torch.arange(9) * 10**9 + a, (SCALAR,)),
}


@pytest.mark.parametrize("name", HUGE)
def test_nothing_that_an_int_may_not_hold_is_computed_in_one(name: str) -> None:
    function, inputs = HUGE[name]
    for kernel in dplc.compile(function, inputs, target="h200").compilation.kernels:
        assert not (found := Narrow(kernel).found), (found, kernel)


SMALL: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "compared": lambda a: torch.arange(5) * 2**30 > a[:5] + 2**31,
    "added": lambda a: torch.arange(5)[:, None] * 10**9 + torch.arange(5) * 10**9 + a[0],
    "shifted": lambda a: torch.arange(2**31 - 3, 2**31 + 5) + a,
    "less": lambda a: torch.where(torch.arange(8) * 2**29 + 2**30 < 2**31, a, -a),
    "divided": lambda a: (torch.arange(8) * 2**30 + 7) // 3 + a,
    "a remainder": lambda a: torch.arange(8) * (2**30 + 1) % 7 + a,
    "back again": lambda a: (torch.arange(8) * 2**30).to(torch.int32) + a,
    "as floats": lambda a: (torch.arange(8) * 2**30).float() * a,
    "multiplied": lambda a: torch.arange(8)[:, None] * torch.arange(8) * 2**28 - a,
}  # fmt: skip


@pytest.mark.parametrize("name", SMALL)
def test_values_beyond_an_int(name: str) -> None:
    a = torch.tensor([0, 1, -(2**40), 5, 2**31, 7, 2**62, 3])
    got, want = dplc.compile(SMALL[name], (a,))(a), SMALL[name](a)
    assert got.dtype == want.dtype and torch.equal(got, want)


def test_the_dtype_of_nested_calls_is_asked_of_each_operand_once():
    asked: list[str] = []
    nested: Any = Var("x")
    for _ in range(12):
        nested = Call("add", (nested, 1))
    assert dtype_of(nested, lambda name: (asked.append(name), "f32")[1], "i32") == "f32"
    assert asked == ["x"]
