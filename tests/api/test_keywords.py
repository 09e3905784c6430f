"""Inputs by name: when compiling and when calling."""

from __future__ import annotations

import pytest
import torch

import dplc

X, Y = torch.randn(3, 4), torch.randn(3, 4)


def scaled(x: torch.Tensor, shift: torch.Tensor | None = None, *, scale: torch.Tensor, times: int = 2) -> torch.Tensor:
    return x * scale * times + (0 if shift is None else shift)


def test_tensors_by_name() -> None:
    compiled = dplc.compile(scaled, (X,), kwargs={"scale": Y}, device="emulator")
    torch.testing.assert_close(compiled(Y, scale=X), scaled(Y, scale=X))
    torch.testing.assert_close(compiled(scale=X, x=Y), scaled(Y, scale=X))
    assert compiled.compilation.captured.inputs == ("x", "scale")


def test_all_of_them_and_a_fixed_one() -> None:
    compiled = dplc.compile(scaled, (), kwargs={"x": X, "shift": Y, "scale": Y, "times": 3}, device="emulator")
    torch.testing.assert_close(compiled(Y, X, scale=X, times=3), scaled(Y, X, scale=X, times=3))
    with pytest.raises(dplc.DplcError, match="an argument was 3 when the function was captured and is 4 now"):
        compiled(Y, X, scale=X, times=4)


def test_anything_by_name() -> None:
    def function(**tensors: torch.Tensor) -> torch.Tensor:
        return tensors["a"] - tensors["b"]

    compiled = dplc.compile(function, (), kwargs={"a": X, "b": Y}, device="emulator")
    torch.testing.assert_close(compiled(b=X, a=Y), Y - X)


def test_a_call_that_does_not_fit() -> None:
    for kwargs in ({}, {"scale": Y, "scala": Y}):
        with pytest.raises(dplc.DplcError, match=r"the call does not fit: .*'scal[ae]'"):
            dplc.compile(scaled, (X,), kwargs=kwargs)


def test_a_dict_of_inputs_is_not_guessed_at() -> None:
    with pytest.raises(dplc.DplcError, match="kwargs=inputs"):
        dplc.compile(scaled, {"x": X, "scale": Y})  # type: ignore[arg-type]
    compiled = dplc.compile(lambda inputs: inputs["x"] * 2, ({"x": X},), device="emulator")
    torch.testing.assert_close(compiled({"x": Y}), Y * 2)
