"""Lengths as values: means over them, factors, places; and what random programs with lengths found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from dynamic_checks import checked, is_right, sized

import dplc
from dplc.engine.run.calls import accepted
from dplc.ir.verify import loop as loop_rules

VALUES: dict[str, Callable[[Any], Any]] = {
    "mean": lambda x: x.mean(0),
    "variance": lambda x: x.var(0),
    "first largest": lambda x: x.argmax(0),
    "RMSNorm": lambda x: F.rms_norm(x.t(), (x.shape[0],), eps=1e-5),
    "times its length": lambda x: x * x.shape[0],
    "over its length": lambda x: x / x.shape[0],
    "whole numbers stay of their dtype": lambda x: (x * 9).int() * x.shape[0] % x.shape[0],
    "twice as wide": lambda x: (x.double() * x.shape[0]).mean(0),
    "half as wide": lambda x: x.bfloat16() * x.shape[0],
    "a place modulo its length": lambda x: x[x.argmax(1) % x.shape[0]],
    "flattened with another": lambda x: (x[:, None] * x[:, :3, None]).flatten(0, 1),
    "an element that may not be there": lambda x: torch.cat([torch.cat([x, x])[1:][:1], x]),
    "the last one": lambda x: x[-1:],
    "rolled": lambda x: x.roll(3, 0),
    "every second of every second": lambda x: torch.cat([x, x, x, x])[::2][::2],
}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.sampled(4)
def test_a_length_is_a_value(name: str) -> None:
    function = VALUES[name]
    program = checked(sized(function, torch.randn(37, 5)))
    for kernel in program.compilation.plan.kernels:
        assert not list(loop_rules.problems(kernel))
    for length in (1, 2, 33, 130):
        x = torch.randn(length, 5)
        eager = function(x)
        wide = function(x.double()) if eager.is_floating_point() else eager
        assert program(x).dtype == eager.dtype and accepted([program(x)], [wide], [eager]), length


def test_places_that_a_length_says_are_added_to() -> None:
    """How many places there are is known at a call; how many rows they are places of is not."""
    n = dplc.Dim("n", 1, 2048, hint=512)

    def added(x: Any, i: Any, s: Any) -> Any:
        return x.index_add(0, i, s)

    x = torch.randn(300, 30)
    given = (x, torch.zeros(512, dtype=torch.long), torch.randn(512, 30))
    program = dplc.compile(added, given, dynamic={"i": {0: n}, "s": {0: n}}, rows=())
    for length in (1, 7, 512, 1031):
        i, s = torch.randint(0, 300, (length,)), torch.randn(length, 30)
        assert is_right(program, added, x, i, s), length
