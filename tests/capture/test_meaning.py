"""The float64 runner: torch's meaning of Torch IR."""

from __future__ import annotations

import pytest
import torch

from dplc.engine.capture.capture import capture_text
from dplc.ir.diagnostic import DplcError
from dplc.ir.expr import Var
from dplc.ir.interp.torch import call, run
from dplc.ir.program import Param, TensorType
from dplc.ir.torch import TorchGraph, TorchOp


def graph(*body: TorchOp) -> TorchGraph:
    out = body[-1]
    return TorchGraph(
        "main", (Param("x", "f32", (3,)),), (Param(out.dst, out.types[0].dtype, out.types[0].shape),), body
    )


F32 = TensorType("f32", (3,))
X = ("self", Var("x"))


def test_floats_are_computed_in_float64() -> None:
    x = torch.tensor([1.0, 1e8, -1e8])
    body = (
        TorchOp("a", "Add", (X, ("other", 1)), (F32,)),
        TorchOp("b", "Sub", (("self", Var("a")), ("other", Var("x"))), (F32,)),
    )
    (got,) = run(graph(*body), {"x": x})
    assert got.dtype is torch.float64
    assert got.tolist() == [1, 1, 1]  # in float32 the second is 0


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f64"])
def test_every_float_dtype_is_wide(dtype: str) -> None:
    (got,) = run(graph(TorchOp("a", "To", (X, ("dtype", Var(dtype))), (F32,))), {"x": torch.tensor([1 / 3, 0, 0])})
    assert got.dtype is torch.float64
    assert got[0] == torch.tensor(1 / 3).double()


def test_factories_and_integer_division_are_wide_too() -> None:
    body = (
        TorchOp("i", "Arange", (("end", 3),), (TensorType("i64", (3,)),)),
        TorchOp("third", "Div", (("self", Var("i")), ("other", 3)), (F32,)),
        TorchOp("ones", "Ones", (("size", (3,)),), (F32,)),
        TorchOp("y", "Add", (("self", Var("third")), ("other", Var("ones"))), (F32,)),
    )
    (got,) = run(graph(*body), {"x": torch.zeros(3)})
    assert got.tolist() == [1.0, 1 / 3 + 1, 2 / 3 + 1]
    assert torch.get_default_dtype() is torch.float32


def test_integers_and_booleans_are_exact() -> None:
    captured = capture_text("x = torch.arange(4) + 2**62\n(x // 3, x % 7, x > 2**62 + 1, x.to(torch.int32))")
    assert captured.reference is not None
    for got, want in zip(run(captured.graph, captured.tensors), captured.reference, strict=True):
        assert got.dtype is want.dtype
        assert torch.equal(got, want)


def test_a_missing_input_is_named() -> None:
    with pytest.raises(KeyError, match="x"):
        run(graph(TorchOp("a", "Exp", (X,), (F32,))), {})


def test_a_value_has_no_strides_that_a_view_could_miss() -> None:
    """A program without aliases may view what eager has laid out otherwise (drawn program 4740)."""
    transposed = torch.arange(6).reshape(2, 3).T
    for op in ("View", "UnsafeView"):
        assert torch.equal(call(op, {"self": transposed, "size": [6]}), transposed.reshape(6))


@pytest.mark.parametrize("given", [1, 2, 5])
def test_half_a_transform_is_of_one_place_more_or_less(given: int) -> None:
    """Of n real places n // 2 + 1 are given, so two lengths fit, and of one place given the length is 1."""
    x = torch.randn(3, given, dtype=torch.complex128)
    said = {"self": x, "dim": [1], "normalization": 0}
    for length in range(1, 2 * given + 2):
        if length // 2 + 1 == given:
            found = call("FftC2r", {**said, "last_dim_size": length})
            assert torch.allclose(found, torch.fft.irfft(x, n=length, norm="forward"))
        else:
            with pytest.raises(DplcError, match="of n places n // 2"):
                call("FftC2r", {**said, "last_dim_size": length})


@pytest.mark.parametrize("dim", [[0.5], [None], [2], [-3], [1, -1]])
def test_the_dimensions_of_a_transform_are_there_and_named_once(dim: list[object]) -> None:
    """A fraction lies between two dimensions that are there, and is none."""
    said = {"self": torch.randn(3, 4, dtype=torch.complex128), "dim": dim, "normalization": 0}
    for op, more in (("FftC2c", {"forward": True}), ("FftC2r", {"last_dim_size": 4})):
        with pytest.raises(DplcError, match="dimensions that are there and named once each"):
            call(op, {**said, **more})
