"""Cases of a suite at extents that the emulator can look at whole: smaller, with the residues, and rings still turn.

A case is looked at at short extents: those that it names itself (`emulated`), or reduced ones. Where a ring of a
schedule would turn less than twice at reduced ones, what is summed over is longer, no more than it takes, and there are
as few batches as possible.
"""

from __future__ import annotations

import functools
import math
import random
import resource
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from dplc.codegen import cache
from dplc.codegen.build import emulator_sources
from dplc.codegen.emulator.executor import ORDERS, EmulatorExecutor, bytes_of
from dplc.codegen.emulator.runtime import DeviceBuffer, DeviceMemory, EmulatorError, LoadedKernels, load
from dplc.codegen.judge import judge
from dplc.codegen.kernel import CudaKernel, Program
from dplc.codegen.target import Target
from dplc.engine.bench.cases import BenchCase, BenchOperation, Suite, subject_of
from dplc.engine.capture.capture import bits, capture
from dplc.engine.capture.signature import Capture
from dplc.engine.compiler import Compiler, launch_plan
from dplc.engine.kernels.kernels import launches_of
from dplc.engine.kernels.sharing import share
from dplc.engine.language.pipeline import PassStep
from dplc.engine.rewrite.statements.driver import RuleSite, run_pipeline, spots
from dplc.engine.rewrite.trace import Trace, assigned
from dplc.engine.ruleset import Toolchain
from dplc.engine.run.calls import run_eager, run_reference
from dplc.engine.schedule.scheduling import cuda_of
from dplc.ir.diagnostic import DplcError
from dplc.ir.loop import For
from dplc.ir.node import nodes
from dplc.ir.program import Kernel
from dplc.ir.tile import Stage, Tile

LONGEST, KEPT = 256, 64  # sizes beyond the first are reduced, and keep their residue modulo the second
SHORT = 3  # times KEPT: tiles of every side, and one more
LONGER = (4, 6, 8)  # the same: two, three, four slots of the longest chunks, twice
TURNS = 2
BATCH, BATCH_KEPT, FEW = 16, 8, 2  # the same of sizes that only count independent problems, and the least of them


def shortened(operation: BenchOperation, sizes: dict[str, int], alone: bool = False) -> dict[str, int]:
    """The short extents of a case, residues kept; of batches their quotients, if they have any. alone: one batch."""
    batches = {name: n for name, n in sizes.items() if name in _batches(operation)}
    least = min(batches.values(), default=1)
    fewer = BATCH_KEPT + least % BATCH_KEPT if least > BATCH else FEW + least % FEW if least > FEW + 1 else least
    if any(n % least for n in batches.values()):
        least = fewer = 1
    if alone:
        fewer = 1
    out = {name: n if n <= LONGEST else SHORT * KEPT + n % KEPT for name, n in sizes.items()}
    return out | {name: n // least * fewer for name, n in batches.items()}


def _batches(operation: BenchOperation) -> set[str]:
    """Sizes that are never among the last two dimensions of an input."""
    dims = [text.split() for text in operation.inputs.values()]
    return {name for text in dims for name in text[:-2]} - {name for text in dims for name in text[-2:]}


def reduced(suite: Suite) -> Iterator[tuple[BenchCase, tuple[BenchCase, ...]]]:
    """Each case at short extents once, with the cases that it stands for."""
    found: dict[tuple[str, str, tuple[tuple[str, int], ...]], list[BenchCase]] = {}
    for case in suite.cases:
        sizes = case.emulated or shortened(suite.operations[case.operation], case.sizes)
        found.setdefault((case.operation, case.dtype, tuple(sizes.items())), []).append(case)
    for (operation, dtype, items), cases in found.items():
        yield BenchCase(cases[0].name, operation, dict(items), dtype), tuple(cases)


def summed_over(suite: Suite, case: BenchCase, tools: Toolchain, target: Target) -> set[str]:
    """The sizes that some loop of the program reduces over, found by making them all different."""
    operation = suite.operations[case.operation]
    names = [name for name in case.sizes if name not in _batches(operation)]
    probe = {name: (SHORT + place) * KEPT + case.sizes[name] % KEPT for place, name in enumerate(names)}
    sizes = shortened(operation, case.sizes) | probe
    captured = subject_of(suite, BenchCase(case.name, case.operation, sizes, case.dtype)).capture()
    kernels = Compiler(tools, target).cut(captured)[1].kernels
    loops = {loop.stop for kernel in kernels for loop in nodes(kernel, For) if loop.role == "reduce"}
    return {name for name, n in probe.items() if n in loops}


# ---- random schedules: every pass does as by default, makes another legal choice, or makes none


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
    """Random schedule, lowered. choices: `rule@site(parameters)` in order, with the default choices of passes.

    refused: why it cannot be launched, else None. tiles: its Tile IR; kernels: Kernel IR of every launch.
    """

    seed: int
    choices: tuple[str, ...]
    refused: str | None = None
    program: Program | None = None
    tiles: tuple[Kernel, ...] = ()
    kernels: tuple[Kernel, ...] = ()

    @property
    def rules(self) -> frozenset[str]:
        """Rules that fired."""
        return frozenset(choice.split("@")[0] for choice in self.choices)


class CaseSpace:
    """Schedules of one program on one target. The work before the first choice is done once."""

    def __init__(self, captured: Capture, tools: Toolchain, target: Target) -> None:
        self._tools, self._target, self._compiler = tools, target, Compiler(tools, target)
        values = self._compiler.values(captured)
        self._folded, (_, self._plan) = values.captured, self._compiler.fused(values)
        self._shared = share(self._plan.kernels)
        self._loops = run_pipeline(tools.engine, tools.pipelines["loop"], self._shared.kernels, target)

    def draw(self, seed: int) -> Drawn:
        """Return the random schedule of a seed, lowered."""
        tiles, log = random_schedule(self._tools, self._loops, self._target, seed)
        try:
            kernels = self._compiler.kernel_ir(tiles)
            cuda = cuda_of(kernels)
        except DplcError as error:
            return Drawn(seed, log, refused=error.what)
        launches = launches_of(self._plan, self._shared, kernels)
        program = launch_plan(self._plan, launches, kernels, cuda, self._folded.kinds)
        return Drawn(seed, log, None, program, tiles, tuple(kernels[step.index] for step in launches.steps))


def random_schedule(
    tools: Toolchain, program: tuple[Kernel, ...], target: Target, seed: int
) -> tuple[tuple[Kernel, ...], tuple[str, ...]]:
    """Apply random choices of the passes in order to a program. Return the program and the choices.

    Every pass has its own random generator, so that an additional pass changes only the schedules in which it fires.
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
    """Apply random legal choices of one pass, at most REPEATED of them."""
    done: set[str] = set()
    skipped = SKIPPED if step.group is None else LEFT_TO_OTHERS
    for _ in range(REPEATED):
        free = (spot for spot in spots(tools.engine, step, program, target) if spot.kernel not in done)
        found = list(islice((choice for spot in free for choice in _complete(spot)), LOOKED_AT))
        if not found or (step.label not in NEEDED and dice.random() < skipped):
            break
        choice = dice.choice(found)
        made = choice.apply()
        if step.label not in (*NEEDED, "blockify_launch") and any(map(_too_large, nodes(made, Tile))):
            break
        if not any("repeat" in rule.attributes for rule in step.rules):
            done |= {choice.kernel} | ({k.name for k in made} - {k.name for k in program})
        program = made
        log.append(f"{choice.rule}@{choice.where}({assigned(choice.parameters)})")
    return program


def _complete(spot: RuleSite) -> Iterator[RuleSite]:
    """Yield a site with every legal value of what is open."""
    if spot.open is None:
        yield spot
        return
    for made in map(spot.choose, spot.open.values):
        if made is not None:
            yield from _complete(made)


def _too_large(tile: Tile) -> bool:
    return math.prod(int(axis.extent) for axis in tile.axes if axis.role != "BLOCK") > LARGEST


# ---- their check


@dataclass(frozen=True)
class ScheduleVerdict:
    """What came of a check. fault: what is wrong; seconds: of processor time, by phase."""

    fault: str | None
    seconds: dict[str, float] = field(default_factory=dict, compare=False)


class CheckedSpace(CaseSpace):
    """The schedules of one program, and whether they are right."""

    @functools.cached_property
    def _reference(self) -> list[Any]:
        return run_reference(self._folded, self._folded.tensors)

    @functools.cached_property
    def _eager(self) -> list[Any]:
        """What torch gives in the program's own dtypes, one op after the other."""
        return run_eager(self._folded, self._folded.tensors, self._target)

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
        right = judge(results, self._reference, self._eager).ok
        lap("compare")
        return ScheduleVerdict(None if right else "the result is wrong: outside of the gate", seconds)


class WholeExecutor(EmulatorExecutor):
    """Runs programs in checked mode alone: every block, under several orders of threads, costs not counted.

    What the first order leaves is what follows. Raises EmulatorError for the first finding.
    """

    def __init__(self, orders: tuple[int, ...] = ORDERS) -> None:
        super().__init__(checked=True)
        self._orders = orders

    def _launch(self, kernels: LoadedKernels, kernel: CudaKernel, buffers: Mapping[str, DeviceMemory]) -> None:
        first, *others = (replace(self._options, order=order) for order in self._orders)
        kernels.launch(kernel, buffers, first)
        for options in others:
            again = {
                param.name: buffers[param.name] if param.role != "out" else DeviceBuffer(buffers[param.name].buffer)
                for param in kernel.params
            }
            kernels.launch(kernel, again, options)
            for param in kernel.params:
                if param.role == "out":
                    _check_same(kernel, options.order, param.name, buffers[param.name].array, again[param.name].array)


def _check_same(
    kernel: CudaKernel, order: int, name: str, first: npt.NDArray[np.generic], again: npt.NDArray[np.generic]
) -> None:
    different = int((bytes_of(first) != bytes_of(again)).any(axis=1).sum())
    if different:
        raise EmulatorError(
            f"kernel `{kernel.name}` gives other values for {different} elements of `{name}`: order {order}"
        )


def processor_seconds() -> float:
    """Of this process and of the compilers that it ran."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _flat(tensor: Any) -> Any:
    """A tensor without its size-1 dimensions, as kernels know it."""
    return tensor.detach().reshape([n for n in tensor.shape if n != 1] or [1])


def turns(program: tuple[Kernel, ...]) -> float:
    """How often the ring of shared tiles turns that turns least: chunks, those before the loop included, over slots."""
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


@dataclass(frozen=True)
class DrawnSchedule:
    """A schedule that was drawn, and the extents it was drawn at. thin: one of its rings turns less than it should."""

    space: CheckedSpace
    drawn: Drawn
    sizes: dict[str, int]
    thin: bool = False


class Points:
    """The points of a case by number."""

    def __init__(self, suite: Suite, case: BenchCase, tools: Toolchain, target: Target) -> None:
        self._suite, self._case, self._tools, self._target = suite, case, tools, target
        self._spaces: dict[int, CheckedSpace] = {}

    def draw(self, seed: int) -> DrawnSchedule:
        """The schedule of a seed, at extents where its rings turn."""
        point = self._at(SHORT, seed)
        if self._case.emulated:
            return point
        for times in LONGER if self._wide else ():
            before, least = point, turns(point.drawn.tiles)
            if least < TURNS:
                point = self._at(times, seed)
            if turns(point.drawn.tiles) == least and self._wide != self._summed:
                return before  # a ring over what was not shortened
        return replace(point, thin=turns(point.drawn.tiles) < TURNS and self._wide == self._summed)

    def _at(self, times: int, seed: int) -> DrawnSchedule:
        sizes = self._case.emulated or self._lengthened(times)
        if times not in self._spaces:
            subject = subject_of(self._suite, BenchCase(self._case.name, self._case.operation, sizes, self._case.dtype))
            captured = capture(subject.function, list(subject.inputs().values()))
            self._spaces[times] = CheckedSpace(captured, self._tools, self._target)
        return DrawnSchedule(self._spaces[times], self._spaces[times].draw(seed), sizes)

    def _lengthened(self, times: int) -> dict[str, int]:
        sizes = shortened(self._suite.operations[self._case.operation], self._case.sizes, times > SHORT)
        return sizes | {name: times * KEPT + self._case.sizes[name] % KEPT for name in self._wide}

    @functools.cached_property
    def _summed(self) -> set[str]:
        return summed_over(self._suite, self._case, self._tools, self._target)

    @functools.cached_property
    def _wide(self) -> set[str]:
        """What is summed over and was shortened. The other rings turn as often as they do in the case itself."""
        return {name for name in self._summed if self._case.sizes[name] > LONGEST}
