"""Outputs that share the memory of an input, where the index maps of the kernels permit it.

In Loop IR a kernel says which elements it reads and writes. An output may share an input's memory if no launch reads
the input once the output is being written. The only exception is the kernel that writes the output, if it reads of the
input only the very element that it stores next, in the same iteration of the same loops. No schedule changes that: an
iteration's loads precede its store, and an element that another thread has staged in shared memory was read before a
barrier. Kernel text calls such an input read-only, which is as good as true: no element that a thread reads has been
written in this launch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...ir.diagnostic import DplcError
from ...ir.expr import free_names
from ...ir.loop import For, Load, Store
from ...ir.program import Block, Kernel, Stmt
from ..compiler import Compilation
from ..kernels.kernels import Plan


def with_aliases(compilation: Compilation, wanted: Mapping[int, str]) -> Compilation:
    """Return the compilation with outputs in the memory of inputs. wanted: {index of an output: name of an input}.

    Raises DplcError for an output that may not share it.
    """
    aliases = {}
    for place, source in wanted.items():
        output = compilation.plan.outputs[place].name
        reason = refusal(compilation.plan, output, source)
        if reason is not None:
            raise DplcError(f"the output `{output}` cannot take the memory of the input `{source}`", notes=(reason,))
        aliases[output] = source
    program = replace(compilation.program, aliases={**compilation.program.aliases, **aliases})
    return replace(compilation, program=program)


def refusal(plan: Plan, output: str, source: str) -> str | None:
    """Return why an output may not share the memory of an input; None if it may."""
    inputs, outputs = ({param.name: param for param in params} for params in (plan.inputs, plan.outputs))
    if source not in inputs:
        return f"there is no input `{source}`"
    if (inputs[source].dtype, inputs[source].shape) != (outputs[output].dtype, outputs[output].shape):
        return "they differ in dtype or shape"
    written = ""
    for kernel in plan.kernels:
        reads = any(param.name == source for param in kernel.ins)
        writes = any(param.name == output for param in kernel.outs)
        if reads and written and not writes:
            return f"`{kernel.name}` reads `{source}` when `{written}` has written `{output}`"
        if writes and written:
            return f"both `{written}` and `{kernel.name}` write `{output}`"
        if writes:
            written = kernel.name
            reason = _reads_elsewhere(kernel, output, source) if reads else None
            if reason is not None:
                return reason
    return None if written else f"no kernel writes `{output}`"


@dataclass(frozen=True)
class _Access:
    """Load or store of a kernel, with its path. loops: {variable: the path of the loop that binds it}."""

    index: tuple[Any, ...]
    loops: Mapping[str, tuple[int, ...]]
    place: tuple[int, ...]

    @property
    def turn(self) -> dict[str, tuple[int, ...]] | None:
        """The loops that its index follows; None if it follows anything else."""
        names = free_names(self.index)
        return {name: self.loops[name] for name in names} if names <= self.loops.keys() else None


def _reads_elsewhere(kernel: Kernel, output: str, source: str) -> str | None:
    """Return why a kernel that writes the output reads of the input more than the element that it is about to store."""
    stores, loads = [], []
    for statement, access in _accesses(kernel.body, {}, ()):
        if isinstance(statement, Store) and statement.buf == output:
            stores.append(access)
        elif isinstance(statement, Load) and statement.buf == source:
            loads.append(access)
    if len(stores) != 1:
        return f"`{kernel.name}` stores `{output}` at {len(stores)} places"
    (store,) = stores
    if store.turn is None or store.turn.keys() != store.loops.keys():
        return f"`{kernel.name}` stores elements of `{output}` that its loops do not tell apart"
    for load in loads:
        if load.index != store.index or load.turn != store.turn:
            return f"`{kernel.name}` reads `{source}` at another element than it writes `{output}`"
        if load.place > store.place:
            return f"`{kernel.name}` reads an element of `{source}` after it has written it"
    return None


def _accesses(
    block: Block, loops: Mapping[str, tuple[int, ...]], way: tuple[int, ...]
) -> Iterator[tuple[Stmt, _Access]]:
    for number, statement in enumerate(block):
        place = (*way, number)
        if isinstance(statement, (Load, Store)):
            yield statement, _Access(statement.idx, loops, place)
        inner = getattr(statement, "body", None)
        if inner is not None:
            bound = {**loops, statement.var: place} if isinstance(statement, For) else loops
            yield from _accesses(inner, bound, place)
