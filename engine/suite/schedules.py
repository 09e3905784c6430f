"""Random points of the rule space, whole in checked mode: whatever the tile rules may do, they must do right.

A point is one choice or none for every pass of the default order and of the passes that the default leaves out. Its
kernels are lowered, run on the emulator with every access looked at, and compared with float64.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ...codegen.cuda import print_cuda
from ...codegen.emulator.checking import CheckingExecutor
from ...codegen.emulator.runtime import EmulatorError
from ...codegen.materialise import materialise
from ...codegen.target import Target
from ...ir.diagnostic import DplcError
from ...ir.node import nodes
from ...ir.program import Kernel
from ...ir.tile import Tile
from ..compiler import Stopwatch, cut_into_kernels, launch_plan
from ..front.capture import Capture
from ..match.choices import choices
from ..match.passes import run_pipeline
from ..reference import accepted, run_reference
from ..rw.pipeline import PassStep
from ..sharing import share
from ..toolchain import Toolchain
from .suite_file import Case, Suite

# Passes of the library that no default line names, and the passes that they stand before.
BESIDE = {
    "async_copy": ("tma_copy", "swizzle", "split_inner_for_swizzle"),
    "xor_smem": ("pad_smem",),
    "pipeline_predicated": ("pipeline_k_outer",),
}
NEEDED = ("tileify", "collapse")  # without them there is nothing to choose from
SKIPPED = 0.2  # how often a pass that could fire does not
LOOKED_AT = 16  # choices of a pass
REPEATED = 3  # firings of a pass
LARGEST = 16384  # values of one name in a block, over threads and registers
LONGEST, KEPT = 256, 64  # sizes beyond the first are reduced, and keep their residue modulo the second


@dataclass(frozen=True)
class Point:
    """What came of one random schedule. choices: in order; refused: why it cannot be launched; fault: what is wrong."""

    seed: int
    choices: tuple[str, ...]
    refused: str | None = None
    fault: str | None = None


def reduced(suite: Suite) -> Iterator[Case]:
    """The cases of a suite at reduced extents, each once: residues stay, and rings turn twice."""
    seen = set()
    for case in suite.cases:
        sizes = {name: n if n <= LONGEST else 3 * KEPT + n % KEPT for name, n in case.sizes.items()}
        key = (case.operation, tuple(sorted(sizes.items())))
        if key not in seen:
            seen.add(key)
            yield Case(case.name, case.operation, sizes, case.dtype)


def check_point(captured: Capture, tools: Toolchain, target: Target, seed: int) -> Point:
    """One random schedule of a program, checked."""
    dice = random.Random(seed)
    folded, _, plan = cut_into_kernels(captured, tools, target, None, Stopwatch())
    shared = share(plan.kernels)
    loops = run_pipeline(tools.engine, tools.pipelines["loop"], shared.kernels, target)
    tiles, log = random_schedule(tools, loops, target, dice)
    try:
        kernels = tuple(materialise(kernel, target) for kernel in tiles)
        kernels = run_pipeline(tools.engine, tools.pipelines["kernel"], kernels, target)
        cuda = tuple(print_cuda(kernel) for kernel in kernels)
    except DplcError as error:
        return Point(seed, log, refused=error.what)
    checker = CheckingExecutor(("all",), orders=(dice.randrange(2), 2 + dice.randrange(1000)))
    program, _ = launch_plan(plan, shared, kernels, cuda, folded.kinds)
    names = [buffer.name for buffer in (*program.inputs, *program.constants)]
    try:
        made = checker.run(program, {name: _flat(folded.tensors[name]) for name in names})
    except EmulatorError as error:
        return Point(seed, log, fault=error.render())
    if checker.findings:
        return Point(seed, log, fault="\n".join((checker.findings[0].message, *checker.findings[0].lines)))
    results = [made[param.name].reshape(kind.shape) for param, kind in zip(plan.outputs, plan.results, strict=True)]
    right = accepted(results, run_reference(folded, folded.tensors), captured.reference)
    return Point(seed, log, fault=None if right else "the result is wrong: outside of the gate")


def _flat(tensor: Any) -> Any:
    """A tensor without its size-1 dimensions, as kernels know it."""
    return tensor.detach().reshape([n for n in tensor.shape if n != 1] or [1])


def random_schedule(
    tools: Toolchain, program: tuple[Kernel, ...], target: Target, dice: random.Random
) -> tuple[tuple[Kernel, ...], tuple[str, ...]]:
    """A program after random choices of its passes in order, and the keys of the choices."""
    log: list[str] = []
    by_tma = target.sm >= 90 and dice.random() < 0.5
    for step in _steps(tools, by_tma):
        done: set[str] = set()
        for _ in range(REPEATED):
            found = list(
                itertools.islice(
                    choices(tools.engine, step, program, target, step.parameters, frozenset(done)), LOOKED_AT
                )
            )
            if not found or (step.label not in NEEDED and dice.random() < SKIPPED):
                break
            choice = dice.choice(found)
            made = choice.apply()
            if step.label not in (*NEEDED, "blockify_launch") and any(map(_too_large, nodes(made, Tile))):
                break
            if not any("repeat" in rule.attributes for rule in step.rules):
                done |= {choice.kernel} | ({k.name for k in made} - {k.name for k in program})
            program = made
            log.append(choice.key)
    return program, tuple(log)


def _steps(tools: Toolchain, by_tma: bool) -> Iterator[PassStep]:
    """The default order with the passes beside it; TMA or cp.async, for the first that copies leaves nothing."""
    steps = tools.pipelines["tile"]
    named = {step.name for step in steps}
    for step in steps:
        for name in BESIDE.get(step.name, ()):
            if name not in named and (by_tma or step.name != "async_copy"):
                yield tools.engine.step(name)
        yield step


def _too_large(tile: Tile) -> bool:
    return math.prod(int(axis.extent) for axis in tile.axes if axis.role != "BLOCK") > LARGEST
