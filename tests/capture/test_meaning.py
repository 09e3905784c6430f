"""The float64 runner: torch's meaning of Torch IR."""

from __future__ import annotations

import pytest
import torch

from dplc.engine.capture.capture import capture_text, check_types
from dplc.ir.diagnostic import DplcError, Source
from dplc.ir.interp.torch import call, run
from dplc.ir.text.parse import parse
from dplc.ir.text.torch import read_torch_graph


def meaning(body: str, x: torch.Tensor) -> torch.Tensor:
    """What `y` is after statements on `x: f32[3]`."""
    lines = "".join(f"    {line.strip()}\n" for line in body.strip().splitlines())
    text = f"graph main(x: f32[3]) -> y: f32[3]:\n{lines}"
    (got,) = run(read_torch_graph(parse(Source("text", text))[0]), {"x": x})  # type: ignore[arg-type]
    return got


def test_floats_are_computed_in_float64() -> None:
    got = meaning("a: f32[3] = Add(x, other=1)\ny: f32[3] = Sub(a, x)", torch.tensor([1.0, 1e8, -1e8]))
    assert got.dtype is torch.float64
    assert got.tolist() == [1, 1, 1]  # in float32 the second is 0


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f64"])
def test_every_float_dtype_is_wide(dtype: str) -> None:
    got = meaning(f"y: f32[3] = To(x, dtype={dtype})", torch.tensor([1 / 3, 0, 0]))
    assert got.dtype is torch.float64
    assert got[0] == torch.tensor(1 / 3).double()


def test_factories_and_integer_division_are_wide_too() -> None:
    body = """
        i: i64[3] = Arange(end=3)
        third: f32[3] = Div(i, other=3)
        ones: f32[3] = Ones(size=(3))
        y: f32[3] = Add(third, ones)
    """
    assert meaning(body, torch.zeros(3)).tolist() == [1.0, 1 / 3 + 1, 2 / 3 + 1]
    assert torch.get_default_dtype() is torch.float32


def test_integers_and_booleans_are_exact() -> None:
    captured = capture_text("x = torch.arange(4) + 2**62\n(x // 3, x % 7, x > 2**62 + 1, x.to(torch.int32))")
    assert captured.reference is not None
    for got, want in zip(run(captured.graph, captured.tensors), captured.reference, strict=True):
        assert got.dtype is want.dtype
        assert torch.equal(got, want)


def test_a_missing_input_is_named() -> None:
    with pytest.raises(KeyError, match="x"):
        run(capture_text("torch.randn(3).exp()").graph, {})


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


PROGRAM = "graph f(x: f32[4]) -> y: {y}:\n    at: i64[3, 1] = Nonzero(x)\n    y: {y} = Neg(at)\n"


def check(text: str) -> None:
    """Compare the types of a text with torch's."""
    check_types(read_torch_graph(parse(Source("f.ir", text))[0]), "f.ir")  # type: ignore[arg-type]


def test_a_shape_that_depends_on_values_is_as_the_text_says() -> None:
    check(PROGRAM.format(y="i64[3, 1]"))


def test_what_follows_is_judged_by_what_the_text_says() -> None:
    with pytest.raises(DplcError, match=r"f\.ir: `y: i64\[4, 1\] = Neg\(at\)`: torch gives int64\[3, 1\]"):
        check(PROGRAM.format(y="i64[4, 1]"))
