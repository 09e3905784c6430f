"""Every op of the supported vocabulary: what lowering gives means what torch says."""

from __future__ import annotations

import pytest
from capture_checks import check_lowering
from drawing import draws
from hypothesis import assume, given, settings, strategies as st
from lowering_cases import UNARY, WHOLE
from torch_programs import torch_programs

from dplc.engine.capture.capture import capture_text
from dplc.ir.diagnostic import DplcError

# the variance of one element is nan, and torch says so
pytestmark = pytest.mark.filterwarnings("ignore:.*degrees of freedom")

EXPRESSIONS = tuple(text.strip() for text in UNARY if text.strip())


@settings(max_examples=draws(50))
@given(st.sampled_from(EXPRESSIONS), st.lists(st.sampled_from((1, 2, 3, 5, 7)), min_size=1, max_size=4))
def test_expressions_over_random_shapes(expression: str, shape: list[int]) -> None:
    try:
        captured = capture_text(f"x = torch.randn({shape})\n{expression}")
    except DplcError:  # torch itself refuses this shape
        assume(False)
    check_lowering(captured)


@pytest.mark.parametrize("text", WHOLE)
@pytest.mark.sampled(8)
def test_whole_expressions(text: str) -> None:
    check_lowering(capture_text(text))


@settings(deadline=None)
@given(torch_programs())
def test_random_programs_mean_what_torch_says(text: str) -> None:
    check_lowering(capture_text(text))
