"""Print and read whole programs: kernels and graphs of every level."""

# ---- printing

from __future__ import annotations

import re
from types import MappingProxyType

from ..diagnostic import DplcError, Source, did_you_mean
from ..expr import Size
from ..node import Node
from ..program import LEVELS, PRECISIONS, Kernel
from ..sizes import Binding
from ..tensor import TensorGraph
from ..torch import TorchGraph
from . import syntax as s
from .parse import parse
from .print_statements import print_block, print_value
from .read_statements import read_block, read_params
from .sizes import declared, print_sizes, settled
from .tensor import print_graph, read_graph
from .torch import print_torch_graph, read_torch_graph


def print_unit(unit: Node) -> str:
    """Print a kernel or a graph, without a newline at the end."""
    if isinstance(unit, Kernel):
        ins = ", ".join((*print_sizes(unit), *map(print_value, unit.ins)))
        precision = "" if unit.precision == PRECISIONS[0] else f" in {unit.precision}"
        head = f"kernel {unit.name}({ins}) -> {', '.join(map(print_value, unit.outs))}{precision}:"
        return f"{head}\n{print_block(unit.body, 1)}"
    if isinstance(unit, TensorGraph):
        return print_graph(unit)
    if isinstance(unit, TorchGraph):
        return print_torch_graph(unit)
    raise TypeError(f"not a unit: {unit!r}")


def print_program(units: tuple[Node, ...] | Node, level: str | None = None) -> str:
    """Print a whole dump, with its `## level:` header if a level is given, and a newline at the end."""
    listed = units if isinstance(units, tuple) else (units,)
    header = f"## level: {level}\n" if level else ""
    return header + "\n\n".join(map(print_unit, listed)) + "\n"


# ---- reading


def read_program(
    text: str, name: str = "<text>", sizes: Binding | None = MappingProxyType({})
) -> tuple[str | None, tuple[Node, ...]]:
    """Read the level and the units of a dump. The level is that of the header, or None without a header.

    sizes: the numbers of the sizes that units declare; None leaves them open. Raises DplcError with a caret.
    """
    level, units = syntax_of(text, name)
    return level, tuple(read_unit(unit, level, sizes) for unit in units)


def sizes_of(text: str, name: str = "<text>") -> dict[str, Size]:
    """Return the sizes that the units of a dump declare, by name. Raises DplcError with a caret."""
    return declared(syntax_of(text, name)[1])


def syntax_of(text: str, name: str) -> tuple[str | None, s.Nodes]:
    """Return the level of a dump, and its units as syntax. Raises DplcError with a caret."""
    source = Source(name, text)
    header = re.match(r"\s*##[ \t]*level:[ \t]*(\w+)", text)
    level = header[1] if header else None
    if level is not None and level not in LEVELS:
        raise DplcError(f"{name}: unknown level `{level}`", hint=did_you_mean(level, LEVELS))
    if header:  # keep the line numbers
        source = Source(name, "\n" * text[: header.end()].count("\n") + text[header.end() :])
    return level, parse(source)


def read_unit(unit: s.Syntax, level: str | None = None, sizes: Binding | None = MappingProxyType({})) -> Node:
    """Read a kernel or a graph."""
    if not isinstance(unit, s.Unit):
        raise DplcError("a program holds kernels and graphs only", unit, "rules are given by --rules")
    unit = settled(unit, sizes)
    precision = unit.precision or PRECISIONS[0]
    if precision not in PRECISIONS or (unit.precision and unit.kind == "graph"):
        what = f"`in {precision}` is no precision of a {unit.kind}"
        raise DplcError(what, unit, f"a kernel multiplies in {' or in '.join(PRECISIONS)}; a graph does not say")
    if unit.kind == "kernel":
        return Kernel(unit.name, read_params(unit.ins), read_params(unit.outs), read_block(unit.body), precision)
    if level == "torch" or (level is None and any(isinstance(x, s.Assign) and x.types for x in unit.body)):
        return read_torch_graph(unit)
    return read_graph(unit)
