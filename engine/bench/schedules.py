"""Random points of the rule space, whole in checked mode: whatever the tile rules may do, they must do right.

A point is what the passes of the default order make of a program when each of them does as by default, or something
else that is legal, or nothing. Its kernels are lowered, run on the emulator with every access
looked at, and compared with float64.
"""

from __future__ import annotations

import functools
import math
import random
import resource
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from ...codegen import cache
from ...codegen.build import emulator_sources
from ...codegen.emulator.executor import WholeExecutor
from ...codegen.emulator.runtime import EmulatorError, load
from ...codegen.kernel import Program
from ...codegen.target import Target
from ...ir.diagnostic import DplcError
from ...ir.loop import For
from ...ir.node import nodes
from ...ir.program import Kernel
from ...ir.tile import Stage, Tile
from ..capture.capture import Capture
from ..capture.constants import bits
from ..compiler import CompileOptions, cut_into_kernels, launch_plan
from ..kernels.kernels import launches_of
from ..kernels.sharing import share
from ..language.pipeline import PassStep
from ..rewrite.statements.driver import choices, run_pipeline
from ..rewrite.trace import Trace
from ..ruleset import Toolchain
from ..run.judge import accepted, run_eager, run_reference
from ..schedule.scheduling import cuda_of, kernel_ir

NEEDED = ("tileify", "collapse")  # without them there is nothing to choose from
# How often a pass of a point does otherwise than by default: deep schedules need most of the default order.
BOLDNESS = (0.15, 0.4, 1.0)
SKIPPED = 0.2  # how often it then does nothing
LEFT_TO_OTHERS = 0.5  # the same for a pass of a `one of`: what comes after it has its turn
LOOKED_AT = 4096  # choices of a pass
REPEATED = 4  # firings of a pass
LARGEST = 16384  # values of one name in a block, over threads and registers


@dataclass(frozen=True)
class Drawn:
    """A random schedule, lowered. choices: `rule@site(parameters)` in order, with what passes did by default.

    refused: why it cannot be launched, else the program. turns: of its ring that turns least (infinite without rings).
    kernels: Kernel IR of every launch.
    """

    seed: int
    choices: tuple[str, ...]
    refused: str | None = None
    program: Program | None = None
    turns: float = math.inf
    kernels: tuple[Kernel, ...] = ()

    @property
    def rules(self) -> frozenset[str]:
        """The rules that fired."""
        return frozenset(choice.split("@")[0] for choice in self.choices)


@dataclass(frozen=True)
class ScheduleVerdict:
    """What came of a check. fault: what is wrong; seconds: of processor time, by phase."""

    fault: str | None
    seconds: dict[str, float] = field(default_factory=dict, compare=False)


class CaseSpace:
    """The schedules of one program on one target. What comes before the first choice is done once."""

    def __init__(self, captured: Capture, tools: Toolchain, target: Target) -> None:
        self._tools, self._target = tools, target
        self._folded, _, self._plan = cut_into_kernels(captured, CompileOptions(tools, target))
        self._shared = share(self._plan.kernels)
        self._loops = run_pipeline(tools.engine, tools.pipelines["loop"], self._shared.kernels, target)

    @functools.cached_property
    def _reference(self) -> list[Any]:
        return run_reference(self._folded, self._folded.tensors)

    @functools.cached_property
    def _eager(self) -> list[Any]:
        """What torch gives in the program's own dtypes, one op after the other."""
        return run_eager(self._folded, self._folded.tensors)

    def draw(self, seed: int) -> Drawn:
        """The schedule that a seed stands for."""
        tiles, log = random_schedule(self._tools, self._loops, self._target, seed)
        try:
            kernels = kernel_ir(tiles, self._tools, self._target)
            cuda = cuda_of(kernels)
        except DplcError as error:
            return Drawn(seed, log, refused=error.what)
        program, launched = launch_plan(
            self._plan, launches_of(self._plan, self._shared, kernels), kernels, cuda, self._folded.kinds
        )
        return Drawn(seed, log, None, program, turns(tiles), tuple(kernels[index] for index in launched))

    @functools.cached_property
    def _task(self) -> str:
        values = [*self._folded.tensors.values(), *self._reference, *self._eager]
        return cache.digest([*emulator_sources(), *(bytes(bits(value)) for value in values)])

    def digest(self, program: Program) -> str:
        """What decides the verdict on a program: its kernels, the values it is run on and should give, the emulator."""
        return cache.digest([self._task, repr(program)])

    def check(self, program: Program) -> ScheduleVerdict:
        """Every block in checked mode, forwards or backwards and in a random order, then against float64."""
        digits = int(self.digest(program)[:8], 16)
        seconds: dict[str, float] = {}
        start = processor_seconds()

        def lap(phase: str) -> None:
            nonlocal start
            seconds[phase], start = processor_seconds() - start, processor_seconds()

        load(program.distinct_kernels(), True)
        lap("build")
        names = [buffer.name for buffer in (*program.inputs, *program.constants)]
        try:
            made = WholeExecutor((digits % 2, 2 + digits // 2 % 1000)).run(
                program, {name: _flat(self._folded.tensors[name]) for name in names}
            )
        except EmulatorError as error:
            lap("run")
            return ScheduleVerdict("\n".join((error.what, *error.notes)), seconds)
        lap("run")
        outputs = zip(self._plan.outputs, self._plan.results, strict=True)
        results = [made[param.name].reshape(kind.shape) for param, kind in outputs]
        right = accepted(results, self._reference, self._eager)
        lap("compare")
        return ScheduleVerdict(None if right else "the result is wrong: outside of the gate", seconds)


def processor_seconds() -> float:
    """Of this process and of the compilers that it ran."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _flat(tensor: Any) -> Any:
    """A tensor without its size-1 dimensions, as kernels know it."""
    return tensor.detach().reshape([n for n in tensor.shape if n != 1] or [1])


def turns(program: tuple[Kernel, ...]) -> float:
    """How often the ring of slabs turns that turns least: chunks, those before the loop included, over slots."""
    found = [math.inf]
    for kernel in program:
        copies = Counter(stage.dst for stage in nodes(kernel, Stage))
        for loop in nodes(kernel, For):
            inside = [stmt for stmt in loop.body if isinstance(stmt, Stage)]
            for stage in inside:
                if stage.depth > 1 and isinstance(loop.start, int) and isinstance(loop.stop, int):
                    peeled = copies[stage.dst] - sum(other.dst == stage.dst for other in inside)
                    found.append((loop.stop - loop.start + peeled) / stage.depth)
    return min(found)


def random_schedule(
    tools: Toolchain, program: tuple[Kernel, ...], target: Target, seed: int
) -> tuple[tuple[Kernel, ...], tuple[str, ...]]:
    """A program after random choices of its passes in order, and what they did.

    Every pass throws dice of its own, so that a pass that is added changes only the schedules in which it fires.
    """
    log: list[str] = []
    trace = Trace()
    bold = random.Random(str(seed)).choice(BOLDNESS)

    def drawn(step: PassStep, program: tuple[Kernel, ...]) -> tuple[Kernel, ...] | None:
        log.extend(f"{firing.rule}@{firing.unit} {firing.where}() by default" for firing in trace.firings)
        trace.events.clear()
        dice = random.Random(f"{seed} {step.label}")
        return _choose(tools, step, program, target, dice, log) if dice.random() < bold else None

    program = run_pipeline(tools.engine, tools.pipelines["tile"], program, target, trace, decide=drawn)
    log.extend(f"{firing.rule}@{firing.unit} {firing.where}() by default" for firing in trace.firings)
    return program, tuple(log)


def _choose(
    tools: Toolchain, step: PassStep, program: tuple[Kernel, ...], target: Target, dice: random.Random, log: list[str]
) -> tuple[Kernel, ...]:
    """A pass that does whatever is legal, once or more often."""
    done: set[str] = set()
    skipped = SKIPPED if step.group is None else LEFT_TO_OTHERS
    for _ in range(REPEATED):
        every = choices(tools.engine, step, program, target, step.parameters, frozenset(done))
        found = list(islice(every, LOOKED_AT))
        if not found or (step.label not in NEEDED and dice.random() < skipped):
            break
        choice = dice.choice(found)
        made = choice.apply()
        if step.label not in (*NEEDED, "blockify_launch") and any(map(_too_large, nodes(made, Tile))):
            break
        if not any("repeat" in rule.attributes for rule in step.rules):
            done |= {choice.kernel} | ({k.name for k in made} - {k.name for k in program})
        program = made
        log.append(choice.key)
    return program


def _too_large(tile: Tile) -> bool:
    return math.prod(int(axis.extent) for axis in tile.axes if axis.role != "BLOCK") > LARGEST
