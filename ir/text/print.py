"""Whole programs to text: kernels and graphs of every level."""

from __future__ import annotations

from ..node import Node
from ..program import Kernel
from ..tensor import TensorGraph
from ..torch import TorchGraph
from .print_statements import print_block, print_value
from .sizes import print_sizes
from .tensor import print_graph
from .torch import print_torch_graph


def print_unit(unit: Node) -> str:
    """A kernel or a graph, without a newline at the end."""
    if isinstance(unit, Kernel):
        ins = ", ".join((*print_sizes(unit), *map(print_value, unit.ins)))
        head = f"kernel {unit.name}({ins}) -> {', '.join(map(print_value, unit.outs))}:"
        return f"{head}\n{print_block(unit.body, 1)}"
    if isinstance(unit, TensorGraph):
        return print_graph(unit)
    if isinstance(unit, TorchGraph):
        return print_torch_graph(unit)
    raise TypeError(f"not a unit: {unit!r}")


def print_program(units: tuple[Node, ...] | Node, level: str | None = None) -> str:
    """A whole dump, with its `## level:` header if a level is given, ending in a newline."""
    listed = units if isinstance(units, tuple) else (units,)
    header = f"## level: {level}\n" if level else ""
    return header + "\n\n".join(map(print_unit, listed)) + "\n"
