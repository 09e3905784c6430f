"""Every op of the supported vocabulary: what lowering gives means what torch says."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from drawing import draws, some
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from lowering_cases import UNARY, WHOLE
from lowering_checks import check_lowering
from torch_programs import torch_programs

from dplc.engine.capture.capture import capture, capture_text
from dplc.ir.diagnostic import DplcError

# the variance of one element is nan, and torch says so
pytestmark = pytest.mark.filterwarnings("ignore:.*degrees of freedom")

SHAPES = ((2, 3, 7), (3, 5), (4, 1), (1,))
EXPRESSIONS = tuple(text.strip() for text in UNARY if text.strip())


@pytest.mark.parametrize("expression", EXPRESSIONS)
@pytest.mark.sampled(15)
def test_expressions_of_one_tensor(expression: str) -> None:
    for shape in some(SHAPES, 2):
        check_lowering(capture_text(f"x = torch.randn{shape}\n{expression}"))


@settings(max_examples=draws(20))
@given(st.sampled_from(EXPRESSIONS), st.lists(st.sampled_from((1, 2, 3, 5, 7)), min_size=1, max_size=4))
def test_expressions_over_random_shapes(expression: str, shape: list[int]) -> None:
    try:
        captured = capture_text(f"x = torch.randn({shape})\n{expression}")
    except DplcError:  # torch itself refuses this shape
        assume(False)
    check_lowering(captured)


def test_columns_of_several_ranks() -> None:
    check_lowering(capture_text(WHOLE["columns of several ranks"]))


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.sampled(8)
def test_whole_expressions(name: str) -> None:
    check_lowering(capture_text(WHOLE[name]))


@settings(deadline=None)
@given(torch_programs())
def test_random_programs_mean_what_torch_says(program: tuple[str, list[tuple[int, ...]]]) -> None:
    source, shapes = program
    scope: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
    exec(source, scope)
    torch.manual_seed(0)
    check_lowering(capture(scope["program"], tuple(torch.randn(shape) for shape in shapes)))
