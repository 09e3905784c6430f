"""`--seq-len A..B` and `--batch A..B`: one compile of a model for all lengths and batches of a range."""

from __future__ import annotations

from typing import Any

import pytest

from dplc.engine.capture.dynamic_shapes import Dim
from dplc.engine.cli.models import extent
from dplc.engine.models.benching import of_compiled
from dplc.engine.models.compiling import CompiledModel, ModelShape
from dplc.engine.run.calls import at_binding
from dplc.ir.diagnostic import DplcError, UsageError

SHAPE = ModelShape(Dim("s", 1, 64), Dim("b", 1, 8))


def test_a_binding_is_a_model_like_any_other(sized_model: CompiledModel) -> None:
    short = at_binding(sized_model.compilation, {"s": 9, "b": 1}).program.arena
    assert short is not None and sized_model.figures.planned_bytes >= short.bytes
    assert SHAPE.described == "1..64 tokens, 1..8 sequences" and SHAPE.at({"s": 9, "b": 3}).numbers == (9, 3)
    with pytest.raises(DplcError, match=r"this needs numbers, not 1\.\.64 tokens"):
        of_compiled(sized_model)


@pytest.mark.parametrize(
    ("text", "found"),
    [("32", 32), ("1..64", Dim("s", 1, 64, hint=64)), ("1..64:8", Dim("s", 1, 64, hint=8)), (" 4 ", 4)],
)
def test_what_the_option_says(text: str, found: Any) -> None:
    assert extent("--seq-len", text, "s") == found


@pytest.mark.parametrize("text", ["", "0", "4..", "1..64:", "x", "0..5", "5..4", "1..64:65"])
def test_what_it_cannot_say(text: str) -> None:
    with pytest.raises(UsageError):
        extent("--seq-len", text, "s")
