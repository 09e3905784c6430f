"""What runs for arguments of some dtypes and shapes is found once; what does not fit is refused at every call."""

from __future__ import annotations

import sys

import pytest
import torch
from dynamic_checks import sized

import dplc
from dplc.engine.run.calls import MOST_KEPT
from dplc.ir.diagnostic import DplcError


def test_what_a_kind_of_arguments_runs_is_found_once() -> None:
    """A second call of a length asks no more than a static one does; what does not fit is refused after it as before."""
    program = sized(lambda x: x * 2, torch.randn(8, 8), rows=None)
    for n in (8, 12, 8):
        assert torch.equal(program(torch.ones(n, 8)), torch.full((n, 8), 2.0))
    assert len(program._calls) == 2
    with torch.no_grad():
        assert not program(torch.ones(8, 8, requires_grad=True)).requires_grad
    with pytest.raises(DplcError, match="gradients are wanted of argument `x`"):
        program(torch.ones(8, 8, requires_grad=True))


def test_the_oldest_kind_is_forgotten() -> None:
    program = sized(lambda x: x + 1, torch.randn(8, 2))
    for n in range(1, MOST_KEPT + 3):
        assert torch.equal(program(torch.zeros(n, 2)), torch.ones(n, 2))
    kept = [shape[0] for ((_, shape),) in program._calls]
    assert kept == list(range(3, MOST_KEPT + 3))


def test_an_argument_whose_memory_is_read_is_looked_at_every_time() -> None:
    program = dplc.compile(lambda x: x.as_strided((2, 4), (4, 1)) * 2, (torch.randn(4, 2),))
    x = torch.randn(4, 2)
    assert torch.equal(program(x), x.reshape(2, 4) * 2)
    with pytest.raises(DplcError, match="strides"):
        program(torch.randn(2, 4).t())


def python_calls(program: dplc.Compiled, x: torch.Tensor) -> int:
    """How many functions one call of a program enters, Python's and C's."""
    program(x)
    entered = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal entered
        entered += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        program(x)
    finally:
        sys.setprofile(None)
    return entered


def test_a_call_of_a_length_costs_the_host_what_a_static_one_does() -> None:
    """But for the few calls that look its row up."""
    x = torch.randn(64, 16)
    static = python_calls(dplc.compile(torch.nn.RMSNorm(16), (x,), db=False), x)
    for rows in ((), None):
        bound = python_calls(sized(torch.nn.RMSNorm(16), x, rows=rows, db=False), x)
        assert bound <= static + 5, (bound, static)
