"""What is known of the names of a kernel while its statements are checked, and what all of these checks ask."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import gcd
from typing import Any

from ..expr import Sum, Var, is_int
from ..facts.divisors import counters, divisor
from ..facts.kernel_names import names_read
from ..facts.layout import DTYPE_BYTES
from ..kernel import BLOCK_INDEX, SHARED, THREAD, Address, Element
from ..node import Expr
from ..program import Kernel, Stmt
from ..text.print_statements import print_statement


@dataclass
class KnownName:
    """What a name stands for.

    kind: value, registers, fragment, base, map or index. factor: a divisor of the address that a base holds.
    """

    kind: str
    dtype: str | None = None
    shape: tuple[int, ...] = ()
    mutable: bool = False
    constant: bool = False  # known once everything is unrolled
    divergent: bool = False  # may differ between threads of a block
    writable: bool = False
    factor: int = 0


@dataclass
class NamesInScope:
    """The names in scope at a statement, and what was found wrong so far (`found`, a sentence each)."""

    kernel: Kernel
    names: dict[str, KnownName] = field(default_factory=dict)
    found: list[str] = field(default_factory=list)
    divergent: bool = False  # the current block may be entered by a part of the threads
    strides: dict[str, int] = field(default_factory=dict)  # a divisor of every value of a counter

    def __post_init__(self) -> None:
        self.names |= {name: KnownName("index") for name in BLOCK_INDEX}
        self.names[THREAD] = KnownName("index", divergent=True)
        self.names[SHARED] = KnownName("base", None, writable=True)
        self.strides = counters(self.kernel.body)
        for params, writable in ((self.kernel.ins, False), (self.kernel.outs, True)):
            self.names |= {p.name: KnownName("base", p.dtype, writable=writable) for p in params}

    def say(self, stmt: Stmt, what: str) -> None:
        self.found.append(f"{what}: `{print_statement(stmt).splitlines()[0].strip()}`")

    def bind(self, stmt: Any, name: str, meaning: KnownName) -> None:
        if name in self.names:
            self.say(stmt, f"`{name}` is defined twice")
        self.names[name] = meaning

    def varies(self, e: Any) -> bool:
        """Whether an expression may differ between threads of a block."""
        return not is_int(e) and any(self.names[name].divergent for name in names_of(e) if name in self.names)

    def together(self, stmt: Stmt) -> None:
        if self.divergent:
            self.say(stmt, "not every thread of the block comes here")

    def elements(self, stmt: Stmt, e: Any) -> None:
        """Registers are read one at a time, at places that are constant after unrolling."""
        if isinstance(e, Element):
            if len(e.index) != len(self.names[e.name].shape):
                self.say(stmt, f"`{e.name}` has {len(self.names[e.name].shape)} dimensions")
            self.places(stmt, e)
            return
        for part in _parts(e):
            self.elements(stmt, part)

    def places(self, stmt: Stmt, e: Element) -> None:
        for place, extent in zip(e.index, self.names[e.name].shape, strict=False):
            if is_int(place) and not 0 <= place < extent:
                self.say(stmt, f"`{e.name}` has {extent} registers here")
            if not all(self.names[name].constant for name in names_of(place)):
                self.say(stmt, f"`{e.name}` is indexed at run time")

    def target(self, stmt: Stmt, place: Expr) -> str | None:
        """The dtype of a place that is written."""
        if not isinstance(place, Var | Element):
            self.say(stmt, "this is no place")
            return None
        known = self.names[place.name]
        if known.kind not in ("value", "registers") or not known.mutable:
            self.say(stmt, f"`{place.name}` is not mutable")
        if known.kind == "value":
            known.divergent = True
        return known.dtype

    def address(self, stmt: Stmt, address: Address, dtype: str | None, size: int) -> KnownName:
        """An address of `size` bytes (or of elements of a dtype): the right memory, aligned."""
        base = self.names[address.base]
        if base.kind != "base":
            self.say(stmt, f"`{address.base}` is no address")
        unit = 1 if base.dtype is None else DTYPE_BYTES[base.dtype]
        if base.dtype is not None and dtype is not None and base.dtype != dtype:
            self.say(stmt, f"`{address.base}` points to {base.dtype}")
        reach = gcd(gcd(base.factor, divisor(address.offset, self.strides)), divisor(address.xor, self.strides)) * unit
        if size and reach % size:  # `width` has said what is wrong with a size of 0
            self.say(stmt, f"the address is a multiple of {reach} bytes only")
        return base


def names_of(value: Any) -> frozenset[str]:
    if value.__class__ is tuple:
        return frozenset().union(*map(names_of, value))
    return names_read(value) if hasattr(value, "_memo") else frozenset()


def _parts(e: Any) -> list[Any]:
    if e.__class__ is tuple:
        return list(e)
    if e.__class__ is Sum:
        return [atom for atom, _ in e.terms]
    if hasattr(e, "_memo") and not isinstance(e, Var):
        return [getattr(e, f.name) for f in type(e).fields]
    return []
