"""Spaces that tests search."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

from dplc.codegen.target import target
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import compiler_with
from dplc.engine.ruleset import Toolchain, toolchain
from dplc.engine.schedule.space import FusionVariant, ProgramSpace, Space
from dplc.engine.store.store import Evaluator
from dplc.engine.tune.search import SEARCHES, Budget, SearchOptions, SearchRun
from dplc.ir.program import Kernel

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "benches"))
SHIPPED = tuple(SEARCHES)

from exhaustive import tokens  # noqa: E402  (importing it adds the search `exhaustive`)

__all__ = [
    "MACHINE",
    "MATMUL",
    "RULES",
    "SHIPPED",
    "SOFTMAX",
    "SUM",
    "TINY",
    "alone",
    "kernels",
    "search",
    "space",
    "tokens",
]

MACHINE = target("sm_90a")
MATMUL = "torch.randn(64, 64) @ torch.randn(64, 64)"
SOFTMAX = "torch.softmax(torch.randn(32, 1024), -1)"
SUM = "torch.randn(8, 4096).sum(-1)"
TINY = {
    "model_type": "llama", "hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 1, "vocab_size": 20, "max_position_embeddings": 32,
}  # fmt: skip
RULES = Path(__file__).parent / "rules"


@functools.cache
def kernels(text: str) -> tuple[Kernel, ...]:
    """The Loop IR of an expression."""
    return compiler_with(MACHINE).cut(capture_text(text, 0))[1].kernels


def space(text: str, *free: str, tools: Toolchain | None = None) -> Space:
    """The space of the first kernel of an expression; free: the passes that are decided, none for all."""
    return Space(tools or toolchain(), kernels(text)[:1], MACHINE, frozenset(free) or None)


def alone(space: Space) -> ProgramSpace:
    """The decisions of a program of one kernel."""
    return ProgramSpace(space.tools, [FusionVariant("", lambda: space.loops)], MACHINE, space.free)


def search(
    space: Space | ProgramSpace, evaluator: Evaluator, name: str, seed: int, budget: Budget, **more: Any
) -> SearchRun:
    """A search of the schedules of a kernel or a program, at its end."""
    decisions = alone(space) if isinstance(space, Space) else space
    return SearchRun(decisions, evaluator, SearchOptions(name, seed, budget, check=False), **more).run()
