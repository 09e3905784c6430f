"""Whole programs from text: kernels and graphs of every level."""

from __future__ import annotations

import re
from types import MappingProxyType

from ..diagnostic import DplcError, Source, did_you_mean
from ..expr import Size
from ..node import Node
from ..program import Kernel
from . import syntax as s
from .parse import parse
from .read_statements import read_block, read_params
from .sizes import Binding, declared, settled
from .tensor_read import read_graph
from .torch import read_torch_graph

LEVELS = ("torch", "tensor", "loop", "tile", "kernel")


def read_program(
    text: str, name: str = "<text>", sizes: Binding | None = MappingProxyType({})
) -> tuple[str | None, tuple[Node, ...]]:
    """(level, units) of a dump. The level is the header's, or None if it has none. Raises DplcError with a caret.

    sizes: the numbers of the sizes that units declare; None leaves them open.
    """
    level, units = syntax_of(text, name)
    return level, tuple(read_unit(unit, level, sizes) for unit in units)


def sizes_of(text: str, name: str = "<text>") -> dict[str, Size]:
    """The sizes that the units of a dump declare, by name. Raises DplcError with a caret."""
    return declared(syntax_of(text, name)[1])


def syntax_of(text: str, name: str) -> tuple[str | None, tuple[s.Syntax, ...]]:
    """The level of a dump, and its units as they are written. Raises DplcError with a caret."""
    source = Source(name, text)
    header = re.match(r"\s*##[ \t]*level:[ \t]*(\w+)", text)
    level = header[1] if header else None
    if level is not None and level not in LEVELS:
        raise DplcError(f"{name}: unknown level `{level}`", hint=did_you_mean(level, LEVELS))
    if header:  # keep the line numbers
        source = Source(name, "\n" * text[: header.end()].count("\n") + text[header.end() :])
    return level, parse(source)


def read_unit(unit: s.Syntax, level: str | None = None, sizes: Binding | None = MappingProxyType({})) -> Node:
    """A kernel or a graph."""
    if not isinstance(unit, s.Unit):
        raise DplcError("a program holds kernels and graphs only", unit.span)
    unit = settled(unit, sizes)
    if unit.kind == "kernel":
        return Kernel(unit.name, read_params(unit.ins), read_params(unit.outs), read_block(unit.body))
    if level == "torch" or (level is None and any(isinstance(x, s.Assign) and x.types for x in unit.body)):
        return read_torch_graph(unit)
    return read_graph(unit)
