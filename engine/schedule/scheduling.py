"""Lowering of Loop IR to Tile IR, by remembered schedules where there are any, else by the passes in default order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from ...codegen.cuda import print_cuda
from ...codegen.kernel import MAX_THREADS_PER_BLOCK, CudaKernel
from ...codegen.materialise import materialise
from ...codegen.target import Target
from ...ir.expr import Var
from ...ir.node import nodes
from ...ir.program import Kernel
from ...ir.sizes import AT_HINTS, Binding
from ...ir.substitute import substitute, with_hints
from ...ir.text.print_statements import print_expr
from ...ir.tile import Tile
from ..cost.instruction_counts import instruction_counts
from ..cost.predict import Prediction, predict
from ..facts.accesses import registers
from ..facts.shared_memory import smem_left
from ..language.rule import policy
from ..rewrite.statements.compiled import Program
from ..rewrite.statements.driver import Decide, Shaped, run_pipeline
from ..rewrite.statements.site import Site, unused
from ..rewrite.trace import Remark, Trace
from ..ruleset import Toolchain

SCHEDULING = ("loop", "tile")


@dataclass(frozen=True)
class Origin:
    """Origin of the schedule of a kernel of Loop IR.

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
        """Return the record for `--json`."""
        return {
            "kernel": self.kernel, "source": self.source, "basis": self.basis or None,
            "microseconds": None if self.seconds is None else self.seconds * 1e6, "about": self.text,
        }  # fmt: skip


class ScheduleStore(Protocol):
    """Stored schedules."""

    def schedule(self, kernel: Kernel, scheduler: Scheduler, shaped: Shaped) -> tuple[Program | None, Origin]:
        """Return a kernel of Loop IR as kernels of Tile IR, None for the default order; and where that comes from."""


@dataclass(frozen=True)
class Scheduler:
    """Rules and target of a compile, the trace that the compile fills, and the store of schedules.

    The rules and numbers that are declared for the target alone are in force in both. trace: None if it is not needed.
    """

    tools: Toolchain
    target: Target
    trace: Trace | None = None
    schedules: ScheduleStore | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "tools", self.tools.at(self.target))
        object.__setattr__(self, "target", self.tools.on(self.target))

    def passes(
        self, pipeline: str, program: Program, shaped: Shaped | None = None, decide: Decide | None = None
    ) -> Program:
        """Return kernels after the passes of a pipeline. shaped, decide: as of `run_pipeline`."""
        trace, tools = self.trace and self.trace.at(pipeline), self.tools
        return run_pipeline(tools.engine, tools.pipelines[pipeline], program, self.target, trace, shaped, decide)

    def tiles(self, loops: Program, shaped: Shaped) -> tuple[Program, tuple[Origin, ...]]:
        """Schedule the kernels of a program, and say where the schedules come from.

        Without a store this is the default order for the whole program. shaped: receives the passes that changed each
        kernel.
        """
        if self.schedules is None:
            return self.by_default(loops, shaped), ()
        found = [self.schedules.schedule(kernel, self, shaped) for kernel in loops]
        origins = tuple(origin for _, origin in found)
        if self.trace is not None:
            self.trace.at("tile").events += [Remark("t", "store", o.kernel, o.text) for o in origins]
        out: list[Kernel] = []
        taken = names_of_all(loops)
        waiting: list[Kernel] = []  # neighbours without a stored schedule: some rules look at several kernels
        for kernel, (made, _) in zip(loops, found, strict=True):
            if made is None:
                waiting.append(kernel)
                continue
            out += placed(self.by_default(tuple(waiting), shaped), tuple(waiting), taken)
            out += placed(made, (kernel,), taken)
            waiting = []
        out += placed(self.by_default(tuple(waiting), shaped), tuple(waiting), taken)
        return tuple(out), origins

    def by_default(self, program: Program, shaped: Shaped | None = None) -> Program:
        """Return kernels of Loop IR in Tile IR, in the default order."""
        for pipeline in SCHEDULING if program else ():
            program = self.passes(pipeline, program, shaped)
        return program

    def kernel_ir(self, tile: Program, shaped: Shaped | None = None) -> Program:
        """Lower kernels from Tile IR to Kernel IR. Raises DplcError for a kernel that the target cannot launch."""
        return self.passes("kernel", tuple(materialise(kernel, self.target) for kernel in tile), shaped)


def names_of_all(kernels: Program) -> set[str]:
    """Return the names of kernels and of their buffers."""
    return {name for kernel in kernels for name in (kernel.name, *(p.name for p in (*kernel.ins, *kernel.outs)))}


def placed(made: Program, before: Program, taken: set[str]) -> Program:
    """Rename the kernels and buffers that some kernels became, so that their names are free in the whole program.

    A schedule is carried out without a look at its neighbours, so new names are new only among its own.
    """
    own = names_of_all(made) - names_of_all(before)
    again = {}
    for name in sorted(own & taken):
        again[name] = Var(unused(name, taken | own))
        own.add(again[name].name)
    taken |= own
    return substitute(made, again)  # type: ignore[no-any-return]


# ---- Print kernels as CUDA, and predict their times.


def cuda_of(kernels: Program, shaped: Shaped | None = None, sizes: Binding = AT_HINTS) -> tuple[CudaKernel, ...]:
    """Return the CUDA of kernels. shaped: the rules that a comment names; sizes: the numbers of the kernels' sizes."""
    named: Mapping[str, list[str]] = shaped or {}
    return tuple(print_cuda(kernel, tuple(dict.fromkeys(named.get(kernel.name, ()))), sizes) for kernel in kernels)


def predictions(
    kernels: Program, target: Target, registers: Sequence[int | None] | None = None
) -> tuple[Prediction, ...]:
    """Return the predictions of the model for kernels of Kernel IR, with their sizes at the hints.

    registers: of a thread of each, where they are known.
    """
    known, plain = registers or [None] * len(kernels), with_hints(kernels)
    return tuple(predict(instruction_counts(kernel, n), target) for kernel, n in zip(plain, known, strict=True))


def seconds_of(kernels: Program, target: Target, registers: Sequence[int | None] | None = None) -> float:
    """Return the predicted seconds of kernels of Kernel IR, one after the other."""
    return sum(prediction.seconds for prediction in predictions(kernels, target, registers))


# ---- Reject schedules that the target cannot launch, before anything is built.


MOST_REGISTERS = 255  # of one thread
REGISTER_GRAIN = 8


def register_budget(tile: Tile, target: Target) -> int:
    """Return the registers that the compiler may give to a thread, limited by the blocks that must be co-resident."""
    threads = -(-_extent(tile, "THREAD") // 32) * 32
    share = target.registers // (threads * max(tile.resident, 1))
    return min(MOST_REGISTERS, share // REGISTER_GRAIN * REGISTER_GRAIN)


def predicted_registers(program: Program, number: int, target: Target) -> int:
    """Return the registers of a thread, predicted from Tile IR.

    NVRTC took 0.86 to 1.11 times as many for norms, products and attention, 0.45 to 1.65 for small kernels (scans, a
    convolution of 3 channels), in 11 kernels on sm_80.
    """
    site = Site(program, (number,), target)
    tile: Any = site.tile
    return min(int(registers(site, tile.axes, tile.body)), register_budget(tile, target))


def estimated_registers(program: Program, target: Target) -> int:
    """Return the largest estimate of a thread's registers among the kernels, regardless of the budget."""
    sites = (Site(program, (number,), target) for number in range(len(program)))
    return max((int(registers(site, site.tile.axes, site.tile.body)) for site in sites if site.tile), default=0)


def refusal(program: Program, target: Target, granted: int = 0) -> str | None:
    """Return why a program cannot be launched, or would spill its registers; None if nothing is known against it.

    granted: the estimate for a schedule that is known to fit, the default one: if that estimate is too high, so are
    others.
    """
    found = (_refusal(program, number, target, granted) for number in range(len(program)))
    return next((why for why in found if why is not None), None)


def no_launch(program: Program, target: Target) -> str | None:
    """Return why no device launches a program, however many registers it needs; None if nothing is known against it."""
    return next((why for number in range(len(program)) if (why := _no_launch(program, number, target))), None)


def _no_launch(program: Program, number: int, target: Target) -> str | None:
    kernel, site = program[number], Site(program, (number,), target)
    tile = next(iter(nodes(kernel, Tile)), None)
    if tile is None:
        return f"kernel `{kernel.name}` has no tile"
    unknown = next((axis for axis in tile.axes if axis.role != "BLOCK" and axis.extent.__class__ is not int), None)
    if unknown is not None:
        return f"axis `{unknown.name}` of a block is as long as `{print_expr(unknown.extent)}`, known at a call only"
    threads = _extent(tile, "THREAD")
    if threads > MAX_THREADS_PER_BLOCK:
        return f"{threads} threads per block; {MAX_THREADS_PER_BLOCK} are possible"
    left = smem_left(site)
    if left < 0:
        return f"{target.smem - left} bytes of shared memory; {target.smem} are possible"
    return None


def _refusal(program: Program, number: int, target: Target, granted: int) -> str | None:
    why = _no_launch(program, number, target)
    tile = next(iter(nodes(program[number], Tile)), None)
    if why is not None or tile is None:
        return why
    site = Site(program, (number,), target)
    wanted, budget = registers(site, tile.axes, tile.body), register_budget(tile, target)
    if wanted > max(budget + policy(target).register_slack, granted):
        return f"about {wanted} registers per thread; {budget} are possible"
    return None


def _extent(tile: Tile, role: str) -> int:
    return math.prod(int(axis.extent) for axis in tile.axes if axis.role == role)
