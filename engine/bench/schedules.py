"""Random points of the schedule space, run whole in checked mode: every legal choice of the tile rules must be right.

A point is a program after the passes of the default order, each with its default choice, another legal choice, or no
choice. Its kernels are lowered, run on the emulator with every access checked, and compared with float64.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from itertools import islice

from ...codegen.kernel import Program
from ...codegen.target import Target
from ...ir.diagnostic import DplcError
from ...ir.node import nodes
from ...ir.program import Kernel
from ...ir.tile import Tile
from ..capture.capture import Capture
from ..compiler import Compiler, launch_plan
from ..kernels.kernels import launches_of
from ..kernels.sharing import share
from ..language.pipeline import PassStep
from ..rewrite.statements.driver import choices, run_pipeline
from ..rewrite.trace import Trace
from ..ruleset import Toolchain
from ..schedule.scheduling import cuda_of

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
        program, launched = launch_plan(
            self._plan, launches_of(self._plan, self._shared, kernels), kernels, cuda, self._folded.kinds
        )
        return Drawn(seed, log, None, program, tiles, tuple(kernels[index] for index in launched))


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
