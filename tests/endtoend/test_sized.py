"""Sixty programs of the suites with one or two lengths, each compiled once: right at the ends, the hint and beside it.

Run on the emulator with every access checked, and held against float64. All of them: `make test-long`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
import torch
from sized import ALONG, ATTENTION, ELEMENTS, PLACES, PRODUCTS, PROGRAMS, RANGES, ROWS

from dplc.codegen.emulator.executor import EmulatorExecutor
from dplc.codegen.judge import judge
from dplc.codegen.target import target
from dplc.engine.api import Compiled
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import Compiler
from dplc.engine.ruleset import toolchain
from dplc.engine.run.calls import run_reference

LENGTHS: tuple[Mapping[str, int], ...] = (
    {"s": 1, "t": 1}, {"s": 144, "t": 96}, {"s": 64, "t": 32}, {"s": 65, "t": 31}, {"s": 127, "t": 1},
)  # fmt: skip
SAMPLE = (ELEMENTS[2], ROWS[8], ALONG[7], PRODUCTS[1], ATTENTION[4], PLACES[0])


def written(program: str) -> str:
    return re.sub(r"\b[ST]\b", lambda found: RANGES[found[0]], program)


def check(program: str) -> None:
    text, tools = written(program), toolchain()
    made = Compiler(tools, tools.on(target("sm_80"))).compile(capture_text(text))
    run = Compiled(made, "emulator")
    run.__dict__["executor"] = EmulatorExecutor(checked=True)
    assert made.sizes, "nothing of it is a length"
    for lengths in LENGTHS:
        there = capture_text(text, sizes={name: lengths[name] for name in made.sizes})
        tensors = {**made.captured.tensors, **there.tensors}
        judged = judge(run.run(tensors), run_reference(made.captured, tensors), there.reference)
        assert judged.ok, f"{lengths}: {judged.verdict}, {judged.relative:.1e} of the largest value"


@pytest.mark.parametrize("program", SAMPLE)
@pytest.mark.sampled(2)
def test_a_sample_is_right_at_every_length(program: str) -> None:
    check(program)


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_sixty_programs_are_right_at_every_length(program: str) -> None:
    check(program)


def test_they_are_sixty() -> None:
    assert len(set(PROGRAMS)) == len(PROGRAMS) == 60 and torch.is_grad_enabled()
    assert sum("T" in re.findall(r"\b[ST]\b", program) for program in PROGRAMS) >= 12
