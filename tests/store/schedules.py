"""Schedules for tests: first legal choices, and choices by dice, written down as a search would."""

from __future__ import annotations

import itertools
import random
from typing import Any

import torch
from choices import choices

from dplc.codegen.target import Target, target
from dplc.engine.capture.capture import capture
from dplc.engine.compiler import Compiler
from dplc.engine.ruleset import Toolchain
from dplc.engine.schedule.scheduling import decision, numbers_of, refusal, untiled
from dplc.engine.schedule.space import Space
from dplc.engine.store.store import Decision, Schedule
from dplc.ir.program import Kernel

H200 = target("h200")


def loops(tools: Toolchain, function: Any, *shapes: tuple[int, ...], machine: Target = H200) -> tuple[Kernel, ...]:
    """The kernels of a function in Loop IR."""
    captured = capture(function, [torch.randn(shape) for shape in shapes])
    return Compiler(tools, machine).cut(captured)[1].kernels


def written_down(
    tools: Toolchain, kernel: Kernel, seed: int | None = None, machine: Target = H200
) -> tuple[Schedule, tuple[Kernel, ...]]:
    """A schedule and what it makes: the first legal choice of most passes; with a seed, any choice of some of them that
    can be launched."""
    schedule, program = _drawn(tools, kernel, seed, machine)
    while seed is not None and refusal(program, machine):
        seed += 1000
        schedule, program = _drawn(tools, kernel, seed, machine)
    return schedule, program


def _drawn(tools: Toolchain, kernel: Kernel, seed: int | None, machine: Target) -> tuple[Schedule, tuple[Kernel, ...]]:
    dice = random.Random(seed)
    program: tuple[Kernel, ...] = (kernel,)
    numbers = numbers_of(program)
    out: list[Decision] = []
    for step in tools.pipelines["tile"]:
        if untiled(program):
            program = tools.engine.fire(step, program, machine)
        if step.label in ("split_matmul_k", "slice_matmul_k") and seed is None:
            continue
        found = list(itertools.islice(choices(tools.engine, step, program, machine), 12))
        if not found or (seed is not None and dice.random() < 0.3):
            continue
        choice = found[0] if seed is None else dice.choice(found)
        made = choice.apply()
        if made != program:
            out.append(decision(step, choice, numbers))
            program = made
    return tuple(out), program


def default_schedule(tools: Toolchain, kernel: Kernel, machine: Target = H200) -> tuple[Schedule, tuple[Kernel, ...]]:
    """The default order, firing by firing."""
    candidate = Space(tools, (kernel,), machine).default()
    return candidate.schedule, candidate.tile
