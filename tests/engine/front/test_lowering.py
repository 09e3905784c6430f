"""Every op of the supported vocabulary: what lowering gives means what torch says."""

from __future__ import annotations

import pytest
from dplc.engine.front.text import capture_text
from lowering_cases import UNARY, WHOLE
from lowering_checks import check_lowering

SHAPES = ((3, 5), (2, 3, 7), (4, 1), (1,))
EXPRESSIONS = tuple(text.strip() for text in UNARY if text.strip())


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expressions_of_one_tensor(expression: str) -> None:
    for shape in SHAPES:
        check_lowering(capture_text(f"x = torch.randn{shape}\n{expression}"))


@pytest.mark.parametrize("name", WHOLE)
def test_whole_expressions(name: str) -> None:
    check_lowering(capture_text(WHOLE[name]))
