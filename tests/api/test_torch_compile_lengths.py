"""Lengths and floats that change between calls under torch.compile(.., backend="dplc"): one compile, or a warning why not."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from dynamo_checks import assert_same, compare, with_gradient
from torch import nn

from dplc.engine.torch_backend import LengthWarning

pytestmark = pytest.mark.usefixtures("fresh_dynamo")
CALLS = ((6, 0.5), (9, 0.3), (33, -1.7), (2, 1.0), (100, 3.0))
BLOCK = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 20), nn.GELU(), nn.Linear(20, 8)).requires_grad_(False)


def rows(n: int) -> torch.Tensor:
    return torch.randn(n, 8)


def marked(x: torch.Tensor, dimension: int = 0, **bounds: int) -> torch.Tensor:
    torch._dynamo.mark_dynamic(x, dimension, **bounds)
    return x


PROGRAMS: dict[str, Callable[[Any, float], Any]] = {
    "rows of a block": lambda x, _: BLOCK(x),
    "softmax over the length": lambda x, _: torch.softmax(x.t(), -1),
    "places of rows": lambda x, _: x + torch.arange(x.shape[0])[:, None],
    "a view, a number, another order": lambda x, _: ((x * 2).view(-1), x.shape[0] * 2, (x + 1).t()),
    "in place": lambda x, scale: x.mul_(scale) + 1,
    "strides of a length": lambda x, _: (x.t() + 1).t() * 1,
    "attention": lambda x, _: F.scaled_dot_product_attention(x[None] * 2, x[None], x[None] + 1, is_causal=True),
    "a factor and a summand": lambda x, scale: x * scale + scale,
    "a bound": lambda x, scale: torch.where(x > scale, x, scale * x).clamp(max=scale),
    "made of others": lambda x, scale: (scale - x) / (3 + scale) + scale * 2 * x,
    "of f64": lambda x, scale: x.double() * scale,
    "of bf16": lambda x, scale: x.bfloat16() * scale,
    "of a sum": lambda x, scale: x.sum() * scale,
    "of whole numbers": lambda x, scale: x.long() * scale,
    "a power, of bounds": lambda x, scale: torch.lerp(x, (x.abs() + 1) ** scale, scale),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.sampled(9)
def test_one_compile_serves_every_length_and_float(name: str, compiles: list[Any]) -> None:
    compare(PROGRAMS[name], [(rows(n), scale) for n, scale in CALLS], dynamic=True)
    assert len(compiles) == 1


NORM, LAYER, WEIGHT = nn.LayerNorm(8), nn.Conv2d(8, 6, 2, 2), torch.ones(8, requires_grad=True)


def in_strides(x: Any) -> Any:
    """Channels stand last in what a convolution makes of such: where each length is a program, too."""
    return LAYER(NORM(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2))


def padded(x: Any, by: Any) -> Any:
    """A codec pads by buffers of one number: shapes behind it are known to nobody beforehand."""
    y = F.pad(x, (by, by), mode="reflect")
    return y[..., : y.shape[-1] - 1].transpose(1, 2)


class Calls(NamedTuple):
    """Arguments of calls, and the ranges of the compiles that they need: "" for one length.

    pattern: what the file and the text of a warning match, given once; "" if there is none. dynamic: as in torch.compile.
    """

    function: Callable[..., Any]
    calls: Sequence[tuple[Any, ...]]
    ranges: list[str]
    pattern: str = ""
    dynamic: bool | None = True


FLOATS = [(rows(n), scale) for n, scale in CALLS[:3]]
NUMBERS = [(rows(n), n // 2) for n in (6, 9, 33)]
IMAGES = [(torch.randn(1, 8, n, n + 4),) for n in (8, 12, 6)]
WIDE, CHANGED = "2..4096 and 2..4096", r"(?s)lengths\.py: .*at .*lengths\.py:.*it was 0\.5, and is 0\.3"
ASKED = {
    "a marked dimension keeps its range": Calls(
        lambda x: x @ torch.ones(8, 4), [(marked(rows(n), min=2, max=200),) for n, _ in CALLS], ["2..200"], dynamic=None
    ),
    "a second shape opens the length": Calls(
        lambda x: torch.softmax(x, -1) * 2, [(rows(n),) for n in (3, 4, 5, 3)], ["", "2..4096"], dynamic=None
    ),
    "fixed lengths are no news": Calls(lambda x: x * 2 + 1, [(rows(n),) for n in (3, 4, 5)], [""] * 3, dynamic=False),
    "an open range is compiled in steps": Calls(
        lambda x: x * 2 + 1, [(torch.randn(n),) for n in (10, 4096, 5000, 60000, 7)], ["2..4096", "4097..65536"]
    ),
    "a range is narrowed to what the program asks": Calls(
        lambda x: x.reshape(-1, 4, 8).sum(1), [(marked(rows(n)),) for n in (8, 12, 20)], ["2..4096", "4..4096, a multiple of 4"], dynamic=None
    ),
    "a condition of two lengths narrows both": Calls(
        lambda x, w: F.conv1d(x, w, padding=2, stride=2), [(torch.randn(2, 3, n), torch.randn(4, 3, 5)) for n in (9, 12, 40)],
        [f"{WIDE} and {WIDE} and 2..4096 and 4..4096", f"{WIDE} and {WIDE} and 2..4096 and 4..6"],
    ),
    "torch fixes a length": Calls(
        lambda x: torch.stack([x[place] for place in range(x.shape[0])]).sum(0), [(rows(n),) for n in (3, 4, 5, 6)], ["2..4096"] * 4
    ),
    "torch computes an op without a formula for all lengths": Calls(
        lambda x: torch.linalg.det(torch.eye(x.shape[0]) + torch.relu(x) @ torch.relu(x).t()), [(rows(n),) for n in (3, 5)], [WIDE],
    ),
    "two open lengths are equal": Calls(
        F.scaled_dot_product_attention, [(torch.randn(1, 2, 4, 8), *(marked(torch.randn(1, 2, n, 8), 2) for _ in "kv")) for n in (3, 5)],
        [WIDE, "", "", ""], "must be equal in this program", dynamic=None,
    ),
    "torch computes an op without a rule": Calls(
        lambda x: (torch.special.airy_ai(torch.relu(x)) * 2, x.shape[0]), [(rows(n),) for n in (6, 9)], [WIDE]
    ),
    "strides": Calls(in_strides, IMAGES, ["4..320", "4..4096 and 4..4096"]),
    "strides in a program for each length": Calls(
        lambda x: (in_strides(x), torch.fft.rfft(x, dim=2).abs()), IMAGES, ["4..320", "4..4096 and 4..4096", "", "", ""],
        "again for every length",
    ),
    "a tensor holds a length": Calls(padded, [(torch.randn(1, 4, n), torch.tensor(3)) for n in (8, 12, 9)], [""] * 3, "is read out of a tensor"),
    "a whole number changes": Calls(lambda x, k: x * k + k, NUMBERS, [f"{WIDE} and 1..4096"]),
    "below zero": Calls(
        lambda x, k: x * k + k, [(x, -k) for x, k in NUMBERS], [WIDE] * 3, r"(?s)it was -3, and is -4.*torch\.tensor\(-4\)"
    ),
    "a tensor in its place": Calls(lambda x, k: x * k + k, [(x, torch.tensor(k)) for x, k in NUMBERS], [WIDE]),
    "a float of an op's own": Calls(lambda x, scale: F.leaky_relu(x, scale), FLOATS, [WIDE] * 3, CHANGED),
    "a float and a bf16 without dimensions": Calls(  # a tensor would make it f32
        lambda x, scale: x.bfloat16().sum() * scale, FLOATS, [WIDE] * 3, CHANGED
    ),
    "a float that torch fixes, as its own logs say": Calls(
        lambda x, scale: F.scaled_dot_product_attention(x[None], x[None], x[None], scale=scale), FLOATS, [WIDE] * 3
    ),
    "in training": Calls(lambda x, scale: torch.lerp(x, x * WEIGHT, scale), FLOATS, [f"{WIDE} and 2..4096"] * 3),
}  # fmt: skip


@pytest.mark.parametrize("name", ASKED)
def test_what_is_compiled_again_is_told_once(name: str, compiles: list[Any]) -> None:
    function, calls, ranges, pattern, dynamic = ASKED[name]
    with torch.set_grad_enabled("training" in name), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compare(function, calls, dynamic=dynamic)
    said = [warning for warning in caught if warning.category is LengthWarning]
    found = [
        " and ".join(dim.range for own in (one["dynamic"] or {}).values() for dim in own.values()) for one in compiles
    ]
    assert found == ranges and len(said) == bool(pattern)
    assert all(re.search(pattern, f"{each.filename}: {each.message}") for each in said)


@pytest.mark.filterwarnings("error")
def test_a_float_is_a_value_of_forward_and_backward(compiles: list[Any]) -> None:
    def function(weight: torch.Tensor, x: torch.Tensor, scale: float) -> torch.Tensor:
        return x * weight * (1 - scale) + scale

    compiled = torch.compile(function, backend="dplc", dynamic=True)
    for n, scale in CALLS[:3]:
        given = WEIGHT, rows(n), scale
        assert_same(with_gradient(compiled, *given), with_gradient(function, *given))
    assert len(compiles) == 2
