"""A loop over a state: calls of its compile, and characters of its CUDA, are linear in the steps. Its results are right."""

from __future__ import annotations

import cProfile
import gc
import pstats
import sys
from pathlib import Path

import pytest
import torch
from drawing import some

import dplc
from dplc.codegen.target import target
from dplc.engine.compiler import compiler_with

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "benches"))
from repeated_steps import LOOPS

WARM = 4  # steps: their compile compiles the facts of rules, which happens once
STEPS = 12
GROWTH = 2.2  # of twice the steps
CALLS, TEXT = 200_000, 10_000  # of a loop whose kernels begin to share steps only after the smaller number


def compiled(name: str, steps: int) -> tuple[int, int]:
    """Return the calls of the compile of a loop, and the characters of its CUDA."""
    captured = LOOPS[name].capture(steps)
    gc.collect()
    with cProfile.Profile() as calls:
        text = compiler_with(target("sm_90a")).compile(captured).cuda
    return pstats.Stats(calls).total_calls, len(text)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", some(list(LOOPS), 4))
def test_compiles_of_loops_grow_linearly_with_steps(name: str) -> None:
    compiled(name, WARM)
    calls, text = compiled(name, STEPS)
    more_calls, more_text = compiled(name, 2 * STEPS)
    assert more_calls <= GROWTH * calls + CALLS
    assert more_text <= GROWTH * text + TEXT


@pytest.mark.parametrize("name", ["stacked rolls", "wave of two states", "layer norm"])
def test_loops_that_grew_exponentially_compile_in_few_calls(name: str) -> None:
    compiled(name, WARM)
    calls, _ = compiled(name, 10)
    assert calls <= 3_000_000


@pytest.mark.parametrize("name", some(list(LOOPS), 2))
def test_loops_of_few_steps_compute_what_eager_does(name: str) -> None:
    run, inputs = LOOPS[name].repeated(3), LOOPS[name].inputs()
    made = dplc.compile(run, inputs, device="emulator")
    torch.testing.assert_close(made(*inputs), run(*inputs), rtol=1e-4, atol=1e-4)
