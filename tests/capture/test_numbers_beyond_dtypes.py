"""Numbers that the dtype of a tensor does not hold: dplc converts each as eager does, or refuses it where eager does."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from dplc.codegen.target import target
from dplc.engine.capture.capture import capture
from dplc.engine.compiler import compiler_with
from dplc.ir.diagnostic import DplcError
from dplc.ir.interp import tensor as meaning

# `x` is the tensor, `n` the number, `c` a mask and `i` two indices.
OPS = (
    "torch.where(c, x, n)", "torch.where(c, n, x)", "x.masked_fill(c, n)", "x.clamp(min=n)", "x.clamp(max=n)", "x.clamp(0, n)",
    "F.hardtanh(x, 0, n)", "F.threshold(x, 2, n)", "torch.full_like(x, n)", "x.new_full((3,), n) + x[:3]", "torch.fill(x, n)",
    "x.clone().fill_(n)", "F.pad(x, (1, 1), value=n)", "F.pad(x, (-3, 1), value=n)",
    "x.index_fill(0, i, n)", "x.scatter(0, i, n)",
    "torch.add(x, x, alpha=n)", "torch.sub(x, x, alpha=n)", "torch.addcmul(x, x, x, value=n)", "x.index_add(0, i, x[:2], alpha=n)",
    "x + n", "n - x", "x * n", "x ** n", "n ** x", "x / n", "x == n", "x < n", "n <= x", "x & n", "n | x", "x ^ n",
)  # fmt: skip
NUMBERS: dict[str, tuple[float, ...]] = {
    "uint8": (300, 256, -1, 255, 2.5, 2**40), "int8": (300, -129, 127, 2**40), "int16": (40_000, 2.5, 2**40),
    "int32": (2**31, -(2**31) - 1, 2**40), "int64": (2**63 - 1, 2.5, math.inf), "bool": (2, -1, 2**40),
    "float16": (70_000, 65_504.0, -1e9, math.inf), "bfloat16": (1e39, -(2**40), -math.inf), "float32": (1e39, 2**130, math.nan),
}  # fmt: skip
FACTOR = "x.index_add(0, i, x[:2], alpha=n)"
MASK, PLACES = torch.tensor([True, False, True, False]), torch.tensor([0, 2])


def function(op: str, number: float) -> Callable[..., Any]:
    scope = {"torch": torch, "F": F, "n": number}
    made: Callable[..., Any] = eval(f"lambda x, c, i: {op}", scope)
    return made


def eager(op: str, number: float, given: tuple[torch.Tensor, ...]) -> torch.Tensor | None:
    try:
        return function(op, number)(*given)  # type: ignore[no-any-return]
    except (RuntimeError, ValueError, OverflowError):
        return None


@pytest.mark.parametrize(
    ("dtype", "number"), [(dtype, number) for dtype, numbers in NUMBERS.items() for number in numbers]
)
@pytest.mark.sampled(9)
def test_a_number_is_converted_or_refused_as_eager_does(dtype: str, number: float) -> None:
    x = torch.tensor([1, 2, 3, 5]).to(getattr(torch, dtype))
    given, wanted = (x, MASK, PLACES), dict[str, torch.Tensor]()
    for op in OPS:
        if eager(op, type(number)(1), given) is None:
            continue  # whatever the number
        found = eager(op, number, given)
        if found is None:
            with pytest.raises(DplcError):
                capture(function(op, number), given)
        else:
            wanted[op] = found
    if dtype.startswith("int") or dtype == "uint8":
        wanted.pop(FACTOR if isinstance(number, float) else "", None)  # dplc refuses the fraction, eager cuts it off
    if not wanted:
        return
    captured = capture(lambda *tensors: [function(op, number)(*tensors) for op in wanted], given)
    made = compiler_with(target()).compile(captured)
    values = {
        name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in made.captured.tensors.items()
    }
    results = meaning.run(made.tensor, {param.name: values[param.name].numpy() for param in made.captured.graph.ins})
    for (op, want), result in zip(wanted.items(), results, strict=True):
        got = torch.as_tensor(result.copy()).reshape(want.shape).to(want.dtype)
        assert torch.allclose(got, want, 1e-2, 1e-30, equal_nan=True), f"{op}: {got} for {want}"


@pytest.mark.parametrize(("op", "number"), [("x + n", 2**40), ("x == n", 2**40), ("F.pad(x, (-3, 1), value=n)", 1)])
def test_numbers_of_long_tensors_are_checked_in_little_memory(op: str, number: float) -> None:
    """PyTorch cannot allocate so many elements."""
    x = torch.zeros((), dtype=torch.int32).expand(2**15, 2**14, 2**14)
    assert capture(function(op, number), (x, MASK, PLACES)).graph.outs


def test_a_number_beyond_the_dtype_of_a_long_tensor_is_refused() -> None:
    x = torch.zeros((), dtype=torch.uint8).expand(2**15, 2**14, 2**14)
    with pytest.raises(DplcError, match="cannot be converted to type uint8"):
        capture(lambda x: torch.where(x > 0, x, 300), (x,))
