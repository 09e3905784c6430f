"""Loop IR to Tile IR: kernels with a remembered schedule get it, the others go through the passes in their default
order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

from ...codegen.target import Target
from ...ir.expr import Var
from ...ir.program import Kernel
from ...ir.substitute import substitute
from ..rewrite.statements.names import unused
from ..rewrite.statements.passes import Shaped, run_pipeline
from ..rewrite.trace import Remark, Trace
from ..ruleset import Toolchain

Program = tuple[Kernel, ...]
SCHEDULING = ("loop", "tile")


@dataclass(frozen=True)
class Origin:
    """Where the schedule of a kernel of Loop IR comes from.

    source: the default order; the store, for this very kernel; the store, for the same kernel at other sizes. basis,
    seconds: of the remembered schedule, at the sizes it was found for. text: one line for people. brief: without
    figures, "" for the default order.
    """

    kernel: str
    source: Literal["default", "store", "nearest"]
    text: str
    basis: str = ""
    seconds: float | None = None
    brief: str = ""

    @property
    def line(self) -> str:
        """For people, where it is not the default order; else ""."""
        return "" if self.source == "default" else f"schedule of `{self.kernel}`: {self.text}"

    def record(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "kernel": self.kernel, "source": self.source, "basis": self.basis or None,
            "microseconds": None if self.seconds is None else self.seconds * 1e6, "about": self.text,
        }  # fmt: skip


class ScheduleStore(Protocol):
    """Remembered schedules."""

    def schedule(
        self, kernel: Kernel, tools: Toolchain, target: Target, trace: Trace | None, shaped: Shaped
    ) -> tuple[Program | None, Origin]:
        """A kernel of Loop IR as kernels of Tile IR, None for the default order; and where that comes from."""


def schedule_tiles(
    loops: Program,
    tools: Toolchain,
    target: Target,
    trace: Trace | None,
    shaped: Shaped,
    schedules: ScheduleStore | None,
) -> tuple[Program, tuple[Origin, ...]]:
    """The kernels of a program in Tile IR. shaped: filled with the passes that changed each of them.

    Without a store this is the default order for the whole program.
    """
    if schedules is None:
        return by_default(loops, tools, target, trace, shaped), ()
    if trace is not None:
        trace.at("tile")
    found = [schedules.schedule(kernel, tools, target, trace, shaped) for kernel in loops]
    origins = tuple(origin for _, origin in found)
    for origin in origins if trace is not None else ():
        trace.add(Remark("t", "store", origin.kernel, origin.text))  # type: ignore[union-attr]
    out: list[Kernel] = []
    taken = names_of_all(loops)
    waiting: list[Kernel] = []  # neighbours without a remembered schedule: some rules look at several kernels
    for kernel, (made, _) in zip(loops, found, strict=True):
        if made is None:
            waiting.append(kernel)
            continue
        out += placed(by_default(tuple(waiting), tools, target, trace, shaped), tuple(waiting), taken)
        out += placed(made, (kernel,), taken)
        waiting = []
    out += placed(by_default(tuple(waiting), tools, target, trace, shaped), tuple(waiting), taken)
    return tuple(out), origins


def by_default(
    program: Program, tools: Toolchain, target: Target, trace: Trace | None = None, shaped: Shaped | None = None
) -> Program:
    """Kernels of Loop IR in Tile IR, in the default order."""
    if not program:
        return ()
    for pipeline in SCHEDULING:
        events = trace.at(pipeline) if trace is not None else None
        program = run_pipeline(tools.engine, tools.pipelines[pipeline], program, target, events, shaped)
    return program


def names_of_all(kernels: Program) -> set[str]:
    """The names of kernels and of their buffers."""
    return {name for kernel in kernels for name in (kernel.name, *(p.name for p in (*kernel.ins, *kernel.outs)))}


def placed(made: Program, before: Program, taken: set[str]) -> Program:
    """What became of some kernels, beside others: kernels and buffers that it made get names that are free.

    A schedule is carried out without a look at its neighbours, so what it makes has names that are new among its own.
    """
    own = names_of_all(made) - names_of_all(before)
    again = {}
    for name in sorted(own & taken):
        again[name] = Var(unused(name, taken | own))
        own.add(again[name].name)
    taken |= own
    return substitute(made, again)  # type: ignore[no-any-return]
