"""A tensor of no dimensions as an index: PyTorch reads the number out of it, dplc indexes by the tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from drawing import draws
from dynamo_checks import ALL_COMPILED, compare, with_gradient
from hypothesis import given, settings
from hypothesis import strategies as st

import dplc

pytestmark = pytest.mark.usefixtures("fresh_dynamo")
Function = Callable[..., torch.Tensor]


def written(v: torch.Tensor, index: object, given: object) -> torch.Tensor:
    v = v.clone()
    v[index] = given
    return v * 2


def added(v: torch.Tensor, i: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    v = v.clone()
    v[:, i] += x
    return v * 2


# The place i of v is read, or x is written there.
READ: tuple[Function, ...] = (
    lambda x, v, i: v[i, 1],
    lambda x, v, i: v[..., i],
    lambda x, v, i: v[1:, i, None],
    lambda x, v, i: v[i, i],
    lambda x, v, i: v[i][i],
    lambda x, v, i: (v * 1).add_(1)[:, i],
)
WRITTEN: tuple[Function, ...] = (
    lambda x, v, i: written(v, (slice(1, None), i, ..., i, None), x[0, 0]),
    lambda x, v, i: written(v, (0, i), 3),
    lambda x, v, i: written(v, (slice(None), i), x[None, None, :, 1]),  # what has more in front
    lambda x, v, i: written(v, i, (x * 10).int()),
    lambda x, v, i: written(v, (0, i), v[i, 1] * 2),
    lambda x, v, i: added(v, i, x),
)
# These break the graph of torch.compile.
BROKEN: tuple[Function, ...] = (
    lambda x, v, i: v[v[0, 0].argmax(), i - 1],
    lambda x, v, i: v[i] @ v[-i].T,
    lambda x, v, i: v.clone()[i].add_(1),
    lambda x, v, i: torch.select_scatter(v, v[:, 0], 1, i.item()),
)


@ALL_COMPILED
@pytest.mark.parametrize(
    ("function", "way"),
    [
        *((function, way) for way in ("compile", "torch.compile", "gradients") for function in (*READ, *WRITTEN)),
        *((function, "compile") for function in BROKEN),
    ],
)
@pytest.mark.sampled(15)
def test_elements_are_where_a_tensor_says(function: Function, way: str) -> None:
    def program(x: torch.Tensor, v: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return function(x, v, i) * x[0]

    x, v = torch.randn(3, 3, requires_grad=way == "gradients"), torch.randn(3, 3, 3)
    if way == "compile":
        compiled: Any = dplc.compile(program, (x, v, torch.tensor(0)))
    else:
        compiled = torch.compile(program, backend="dplc", fullgraph=True)
    for place in (1, 0, -1):
        args = x, v, torch.tensor(place)
        calls = (compiled, *args), (program, *args)
        ours, eager = (with_gradient(*call) if way == "gradients" else call[0](*call[1:]) for call in calls)
        torch.testing.assert_close(ours, eager)


@settings(max_examples=draws(2), deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.data())
def test_any_axis_of_any_shape_by_any_integer(shape: list[int], data: st.DataObject) -> None:
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    kind = data.draw(st.sampled_from((torch.int64, torch.int32, torch.int16, torch.int8)))
    at = torch.tensor(data.draw(st.integers(-shape[dim], shape[dim] - 1)), dtype=kind)
    v = torch.randint(-9, 9, shape)
    assert torch.equal(dplc.compile(lambda v, i: v.select(dim, i) * 2, (v, at))(v, at), v.select(dim, at) * 2)


@pytest.mark.parametrize(
    ("function", "dtype"),
    [
        (lambda v, i: v[:i], torch.long),
        (lambda v, i: v * i.item(), torch.long),
        (lambda v, i: v.repeat(i, 1), torch.long),
        (lambda v, i: torch.arange(i.item()), torch.long),
        # in eager mode `v[i]` of a byte, which may be a mask, is one more axis; a trace shows it as the number
        (lambda v, i: v[i], torch.uint8),
    ],
)
def test_what_else_a_number_out_of_a_tensor_decides_is_refused_at_its_line(
    function: Function, dtype: torch.dtype
) -> None:
    with pytest.raises(dplc.DplcError, match=r"depends on the values of a tensor") as raised:
        dplc.compile(function, (torch.randn(6, 3), torch.tensor(2, dtype=dtype)))
    assert raised.value.span is not None and raised.value.span.source.name.endswith("test_elements_at_places.py")


def test_a_buffer_is_written_where_a_tensor_says() -> None:
    """As caches are, from call to call."""

    def step(cache: torch.Tensor, at: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        cache[:, at] = x
        return cache.sum(1)

    cache, mirror = torch.zeros(2, 5, 4), torch.zeros(2, 5, 4)
    compiled = torch.compile(step, backend="dplc", fullgraph=True)
    for place in range(5):
        at, x = torch.tensor(place), torch.randn(2, 4)
        torch.testing.assert_close((compiled(cache, at, x), cache), (step(mirror, at, x), mirror))


def changed(v: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    """A copy in place of the view would lose the change."""
    row = v[i].view(-1)
    row.add_(1)
    row[0] = 7
    return v * 2


@pytest.mark.parametrize("function", [changed, lambda v, i: v[i + 1].relu()])
def test_where_torch_breaks_the_graph_values_are_right(function: Function) -> None:
    compare(function, [(torch.randn(3, 4), torch.tensor(place)) for place in (1, 0, -1)])
