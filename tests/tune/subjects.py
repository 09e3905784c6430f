"""Programs as texts, their kernels, and the spaces that tests search."""

from __future__ import annotations

import functools
import itertools
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import small_configs

from dplc.codegen.judge import judge
from dplc.codegen.target import target
from dplc.engine.api import Compiled
from dplc.engine.capture.capture import capture_text
from dplc.engine.capture.signature import Capture
from dplc.engine.compiler import Compilation, compiler_with
from dplc.engine.ruleset import Toolchain, toolchain
from dplc.engine.run.calls import run_reference
from dplc.engine.schedule.scheduling import refusal
from dplc.engine.schedule.space import FusionVariant, ProgramSpace, ScheduleCandidate, Space
from dplc.engine.store.store import Evaluator
from dplc.engine.tune.search import SEARCHES, Budget, SearchOptions, SearchRun, random_token
from dplc.ir.program import Kernel

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "benches"))
SHIPPED = tuple(SEARCHES)

from exhaustive import tokens as tokens  # noqa: E402  (importing it adds the search `exhaustive`)

MACHINE = target("sm_90a")
MATMUL = "torch.randn(64, 64) @ torch.randn(64, 64)"
SOFTMAX = "torch.softmax(torch.randn(32, 1024), -1)"
SUM = "torch.randn(8, 4096).sum(-1)"
TINY = {"model_type": "llama", **small_configs.TINY}


@functools.cache
def captured(text: str) -> Capture:
    return capture_text(text, 0)


@functools.cache
def kernels(text: str) -> tuple[Kernel, ...]:
    """The Loop IR of an expression."""
    return compiler_with(MACHINE).cut(captured(text))[1].kernels


def right(text: str, compilation: Compilation) -> bool:
    """What a compile of an expression computes is what float64 gives."""
    results = Compiled(compilation, "emulator").run({})
    return judge(results, run_reference(compilation.captured, captured(text).tensors)).ok


def space(text: str, *free: str, tools: Toolchain | None = None) -> Space:
    """The space of the first kernel of an expression; free: the passes that are decided, none for all."""
    return Space(tools or toolchain(), kernels(text)[:1], MACHINE, frozenset(free) or None)


def drawn(found: Space, seed: int = 0) -> Iterator[ScheduleCandidate]:
    """Schedules by dice that can be launched."""
    for number in itertools.count(seed):
        dice = random.Random(number)
        made = found.walk(lambda space, state, slot, dice=dice: random_token(space, state, dice))  # type: ignore[misc]
        if refusal(made.tile, found.target) is None:
            yield made


def alone(space: Space) -> ProgramSpace:
    """The decisions of a program of one kernel."""
    return ProgramSpace(space.tools, [FusionVariant("", lambda: space.loops)], MACHINE, space.free)


def search(
    space: Space | ProgramSpace, evaluator: Evaluator, name: str, seed: int, budget: Budget, **more: Any
) -> SearchRun:
    """A search of the schedules of a kernel or a program, at its end."""
    decisions = alone(space) if isinstance(space, Space) else space
    return SearchRun(decisions, evaluator, SearchOptions(name, seed, budget, check=False, **more)).run()
