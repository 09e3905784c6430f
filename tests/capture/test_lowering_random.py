"""Random torch programs mean on Tensor IR what torch says, and read back from their text."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from lowering_checks import check_lowering
from torch_programs import torch_programs

from dplc.engine.capture.capture import capture


@settings(deadline=None)
@given(torch_programs())
def test_random_programs_mean_what_torch_says(program: tuple[str, list[tuple[int, ...]]]) -> None:
    source, shapes = program
    scope = {"torch": torch, "F": torch.nn.functional}
    exec(source, scope)
    torch.manual_seed(0)
    function: object = scope["program"]
    check_lowering(capture(function, tuple(torch.randn(shape) for shape in shapes)))  # type: ignore[arg-type]
