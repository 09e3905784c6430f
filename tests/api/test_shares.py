"""How much of a program dplc runs under torch.compile, counted."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import dplc
from dplc.codegen.target import target
from dplc.engine.torch_backend import EagerOps, EagerWarning

pytestmark = pytest.mark.usefixtures("fresh_dynamo")
X = torch.linspace(-1.0, 1.0, 16).reshape(4, 4)  # sin(x) + 1 stays away from 0


def program(x: torch.Tensor) -> torch.Tensor:
    return torch.linalg.svdvals(x.sin() + 1).cos() * 2


def shares(function: Any, *args: Any, runs: bool = True) -> tuple[dplc.Shares, Any]:
    found = dplc.Shares(runs=runs)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", EagerWarning)
        return found, torch.compile(function, backend="dplc", options={"shares": found})(*args)


def test_all_of_it() -> None:
    found, got = shares(lambda x: x.sin() + 1, X)
    assert torch.allclose(got, X.sin() + 1)
    assert (found.ops, found.all_ops, found.eager) == (2, 2, {}) and found.seconds == found.all_seconds > 1e-6
    assert str(found).startswith("dplc runs 2 of 2 ops (100%), 100% of the ")


def test_one_op_in_eager() -> None:
    found, got = shares(program, X)
    assert torch.allclose(got, program(X))
    (cause,) = found.eager.values()
    assert (found.ops, found.all_ops, cause.ops) == (4, 5, 1)
    assert "svdvals" in str(cause.place) and "test_shares.py" in str(cause.place)
    launch = target("sm_80").launch_seconds
    assert cause.seconds == pytest.approx(launch + 4 * (16 + 4) / target("sm_80").dram_bytes_per_second)
    text = str(found)
    assert "dplc runs 4 of 5 ops (80.0%)" in text and f"in eager 1, 2.0 us: {cause.why}" in text


def test_what_is_compiled_and_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dplc.engine.api.Compiled.__call__", lambda *_: pytest.fail("it ran"))
    found, got = shares(program, X, runs=False)
    assert torch.equal(got, program(X)) and (found.ops, found.all_ops) == (4, 5)


def test_shares_of_open_lengths_are_predicted_for_their_example() -> None:
    seconds = []
    for rows in (1000, 4000):
        torch._dynamo.reset()
        x = torch.randn(rows, 64)
        torch._dynamo.mark_dynamic(x, 0)
        found, _ = shares(lambda x: x.sin() + 1, x, runs=False)
        assert not found.eager
        seconds.append(found.seconds)
    assert seconds[0] < seconds[1]


def test_almost_all_is_not_all() -> None:
    found = dplc.Shares(ops=9999, seconds=1.0, eager={"x": EagerOps("x", None, None, 1, 1e-9)})
    assert "(99.9%), 99.9% of" in str(found)
    assert str(dplc.Shares()) == "nothing was compiled, and nothing left to eager"


def test_no_shares() -> None:
    with pytest.raises(Exception, match=r"the option `shares` is not a dplc\.Shares"):
        torch.compile(program, backend="dplc", options={"shares": True})(X)
