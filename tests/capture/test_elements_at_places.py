"""A tensor of no dimensions as an index: PyTorch reads the number out of it, dplc indexes by the tensor."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from drawing import draws
from dynamo_checks import ALL_COMPILED, compare, with_gradient
from hypothesis import given, settings
from hypothesis import strategies as st

import dplc


def _written(v: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    v = v.clone()
    v[i].add_(1)
    return v


INDEXED = {
    "a row": lambda v, i: v[i],
    "a row, then a number": lambda v, i: v[i, 1],
    "the last axis": lambda v, i: v[..., i],
    "a slice, then a column": lambda v, i: v[1:, i],
    "a new axis": lambda v, i: v[:, i, None],
    "the same twice": lambda v, i: v[i, i],
    "one after another": lambda v, i: v[i][i],
    "item": lambda v, i: v[i.item()],
    "select": lambda v, i: v.select(-2, i),
    "computed": lambda v, i: v[v[0, 0].argmax(), i - 1],
    "from the end": lambda v, i: v[i] @ v[-i].T,
    "added to in place": _written,
    "written": lambda v, i: torch.select_scatter(v, v[:, 0], 1, i.item()),
}


@pytest.mark.parametrize("what", INDEXED)
@pytest.mark.sampled(7)
def test_an_element_at_a_place_that_is_computed(what: str) -> None:
    function, v = INDEXED[what], torch.randn(6, 3, 4)
    compiled = dplc.compile(function, (v, torch.tensor(2)))
    for place in (2, 1, -1):
        at = torch.tensor(place)
        torch.testing.assert_close(compiled(v, at), function(v, at))


@settings(max_examples=draws(2), deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.data())
def test_any_axis_of_any_shape_by_any_integer(shape: list[int], data: st.DataObject) -> None:
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    kind = data.draw(st.sampled_from((torch.int64, torch.int32, torch.int16, torch.int8)))
    at = torch.tensor(data.draw(st.integers(-shape[dim], shape[dim] - 1)), dtype=kind)
    v = torch.randint(-9, 9, shape)
    assert torch.equal(dplc.compile(lambda v, i: v.select(dim, i) * 2, (v, at))(v, at), v.select(dim, at) * 2)


@pytest.mark.parametrize(
    "function",
    (lambda v, i: v[:i], lambda v, i: v * i.item(), lambda v, i: v.repeat(i, 1), lambda v, i: torch.arange(i.item())),
)
def test_what_else_a_number_out_of_a_tensor_decides_is_refused_at_its_line(function: object) -> None:
    with pytest.raises(dplc.DplcError, match=r"depends on the values of a tensor") as raised:
        dplc.compile(function, (torch.randn(6, 3), torch.tensor(2)))
    assert raised.value.span is not None and raised.value.span.source.name.endswith("test_elements_at_places.py")


def test_a_byte_may_be_a_mask_and_is_refused() -> None:
    """In eager mode `v[i]` of a byte is one more axis; a trace shows it as the number."""
    with pytest.raises(dplc.DplcError, match=r"torch op 'select' depends on the values of a tensor"):
        dplc.compile(lambda v, i: v[i], (torch.randn(6, 3), torch.tensor(1, dtype=torch.uint8)))


def test_under_torch_compile() -> None:
    compare(lambda v, i: v[i + 1].relu(), [(torch.randn(6, 3), torch.tensor(place)) for place in (2, 0, -1)])


WRITTEN = {
    "a row": lambda v, i, x: _set(v, i, x),
    "a column": lambda v, i, x: _set(v, (slice(None), i), x[:, 0]),
    "the last axis": lambda v, i, x: _set(v, (..., i), x[:, 1]),
    "two axes": lambda v, i, x: _set(v, (slice(1, None), i, ..., i, None), x[0, 0]),
    "a number, then a place": lambda v, i, x: _set(v, (0, i), 3),
    "what has more in front": lambda v, i, x: _set(v, (slice(None), i), x[None, None, :, 1]),
    "another dtype": lambda v, i, x: _set(v, i, (x * 10).int()),
    "what is read beside it": lambda v, i, x: _set(v, (0, i), v[i, 1] * 2),
    "added to": lambda v, i, x: _added(v, i, x),
}


def _set(v: torch.Tensor, index: object, given: object) -> torch.Tensor:
    v = v.clone()
    v[index] = given
    return v * 2


def _added(v: torch.Tensor, i: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    v = v.clone()
    v[:, i] += x
    return v * 2


@pytest.mark.parametrize("way", ("compile", "torch.compile", "gradients"))
@pytest.mark.parametrize("what", WRITTEN)
@pytest.mark.sampled(3)
def test_elements_are_written_where_a_tensor_says(what: str, way: str) -> None:
    function, v = WRITTEN[what], torch.randn(3, 3, 3)
    x, at = torch.randn(3, 3, requires_grad=way == "gradients"), torch.tensor(0)
    whole = torch.compile(function, backend="dplc", fullgraph=True)
    compiled = dplc.compile(function, (v, at, x)) if way == "compile" else whole
    for place in (2, 0, -1):
        at = torch.tensor(place)
        if way == "gradients" and function(v, at, x).requires_grad:
            ours, eager = (with_gradient(lambda x, f=f, at=at: f(v, at, x), x) for f in (compiled, function))
            torch.testing.assert_close(ours, eager)
        else:
            torch.testing.assert_close(compiled(v, at, x), function(v, at, x))


@ALL_COMPILED
@pytest.mark.parametrize("function", (lambda x, v, i: v[i] * x, lambda x, v, i: (v * 1).add_(1)[:, i] * x))
def test_elements_read_in_a_graph_with_gradients_are_compiled(function: Callable[..., torch.Tensor]) -> None:
    x, *rest = torch.randn(3, 3, requires_grad=True), torch.randn(3, 3, 3), torch.tensor(1)
    compiled = torch.compile(function, backend="dplc", fullgraph=True)
    torch.testing.assert_close(with_gradient(compiled, x, *rest), with_gradient(function, x, *rest))


def test_a_buffer_is_written_where_a_tensor_says() -> None:
    """As caches are, from call to call."""

    def step(cache: torch.Tensor, at: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        cache[:, at] = x
        return cache.sum(1)

    cache, mirror = torch.zeros(2, 5, 4), torch.zeros(2, 5, 4)
    compiled = torch.compile(step, backend="dplc", fullgraph=True)
    for place in range(5):
        x = torch.randn(2, 4)
        torch.testing.assert_close(compiled(cache, torch.tensor(place), x), step(mirror, torch.tensor(place), x))
    assert torch.equal(cache, mirror)


def test_a_view_that_is_changed_stays_a_view() -> None:
    """torch cannot trace it under a compile and breaks the graph there; a copy in its place would lose the change."""

    def change(v: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        row = v[i].view(-1)
        row.add_(1)
        row[0] = 7
        return v * 2

    compare(change, [(torch.randn(3, 4), torch.tensor(1))])
