"""Tensors without elements fold away: as inputs, on the way, and as results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils import _pytree as pytree

import dplc

NONE, SOME, VECTOR, PLACES = torch.randn(0, 4), torch.randn(3, 4), torch.zeros(0), torch.zeros(0, dtype=torch.long)
LEFT, RIGHT = torch.randn(3, 0), torch.randn(0, 5)

REDUCTIONS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: x.sum(0), "all of it": lambda x: x.sum(), "mean": lambda x: x.mean(0), "prod": lambda x: x.prod(0),
    "all": lambda x: (x > 0).all(), "any": lambda x: (x > 0).any(), "logsumexp": lambda x: x.logsumexp(0),
    "norm": lambda x: x.norm(), "amax of a row": lambda x: x.amax(1), "argmax of a row": lambda x: x.argmax(1),
    "softmax": lambda x: x.softmax(0), "cumsum": lambda x: x.cumsum(0), "mse": lambda x: F.mse_loss(x, x),
}  # fmt: skip
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "a vector that cat skips": (lambda x: torch.cat([torch.tensor([]), x], -2), (torch.randn(1, 2, 3, 4),)),
    "of another dtype": (lambda x: torch.cat([torch.tensor([]), x]), (SOME.half(),)),
    "of integers": (lambda x: torch.cat([torch.zeros(0, 4, dtype=torch.long), x]), (SOME.half(),)),
    "in the middle": (lambda x: torch.cat([x, x[:0], x]), (SOME,)),
    "all of them": (lambda x: torch.cat([x[:0], x[:0]]), (SOME,)),
    "partial rotation": (lambda x: torch.cat([x[:, :4].sin(), x[:, 4:]], -1), (SOME,)),
    "split": (lambda x: [y * 2 for y in torch.split(x, [1, 0, 2])], (SOME,)),
    "split at once": (lambda x: torch.split(x, [0, 3]), (SOME,)),
    "stack": (lambda x: torch.stack([x, x]), (NONE,)),
    "slice": (lambda x: x[:, 4:], (SOME,)),
    "slice_scatter": (lambda x, y: torch.slice_scatter(x, y, 0, 2, 2), (SOME, NONE)),
    "pad": (lambda x: F.pad(x, (0, 0, 1, 2), value=3.0), (NONE,)),
    "repeat": (lambda x: x.repeat(0, 1), (SOME,)),
    "identity": (lambda x: x, (NONE,)),
    "one of two": (lambda x, y: {"none": x + 1, "some": y + 1}, (NONE, SOME)),
    "broadcast": (lambda x, y: x + y, (NONE, SOME[:1])),
    "matmul over nothing": (lambda x, y: x @ y, (LEFT, RIGHT)),
    "matmul of no rows": (lambda x, y: x @ y, (NONE, torch.randn(4, 5))),
    "linear over nothing": (F.linear, (LEFT, torch.randn(5, 0), torch.randn(5))),
    "addmm": (lambda b, x, y: torch.addmm(b, x, y, beta=0.5), (torch.randn(3, 5), LEFT, RIGHT)),
    "baddbmm": (torch.baddbmm, (torch.randn(2, 3, 5), torch.randn(2, 3, 0), torch.randn(2, 0, 5))),
    "einsum": (lambda x, y: torch.einsum("ik,kj->ij", x, y), (LEFT, RIGHT)),
    "gather": (lambda x, i: x[i], (SOME, PLACES)),
    "embedding": (lambda i, w: torch.cat([F.embedding(i, w), w]), (PLACES, SOME)),
    "index_add": (lambda x, i, y: x.index_add(0, i, y), (SOME, PLACES, NONE)),
    "scatter_add": (lambda x, i, y: x.scatter_add(0, i, y), (SOME, PLACES.reshape(0, 4), NONE)),
    "a sum and more": (lambda x, y: x.sum(0) * y + x.prod(), (NONE, SOME)),
    "half a sum": (lambda x: x.sum(0) + 1, (NONE.bfloat16(),)),
    "no keys": (F.scaled_dot_product_attention, (torch.randn(2, 3, 4), torch.randn(2, 0, 4), torch.randn(2, 0, 4))),
    "no width": (F.scaled_dot_product_attention, (torch.randn(2, 3, 0), torch.randn(2, 3, 0), torch.randn(2, 3, 4))),
    "module": (nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 5)), (NONE,)),
    "module without inputs": (nn.Linear(0, 5), (LEFT,)),
    "module without outputs": (nn.Linear(4, 0), (SOME,)),
}


def check(function: Callable[..., Any], inputs: tuple[Any, ...]) -> None:
    with torch.no_grad():
        want = function(*inputs)
    for device in ("emulator", "reference"):
        got = dplc.compile(function, inputs, device=device, db=False, trace=False)(*inputs)
        for one, other in zip(pytree.tree_leaves(got), pytree.tree_leaves(want), strict=True):
            torch.testing.assert_close(one, other, equal_nan=True)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_of_nothing(name: str) -> None:
    check(REDUCTIONS[name], (NONE,))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.sampled(17)
def test_pieces_without_elements_and_what_reads_them(name: str) -> None:
    check(*CASES[name])


def test_an_empty_result_is_new_at_every_call() -> None:
    compiled = dplc.compile(lambda x: x[3:], (SOME,), device="emulator")
    first, second = compiled(SOME), compiled(SOME)
    assert first.shape == (0, 4) and first is not second
    assert not compiled.program.kernels


def test_a_cache_before_its_first_token_costs_nothing() -> None:
    plain = dplc.compile(lambda x: x * 2, (SOME,), device="emulator")
    cached = dplc.compile(lambda x: torch.cat([torch.tensor([]), x * 2]), (SOME,), device="emulator")
    assert len(cached.program.kernels) == len(plain.program.kernels) == 1


def test_nothing_of_every_size() -> None:
    """A part of a row that is empty whatever the number of rows: it is left out; as a result it is refused."""
    size = {"x": {0: dplc.Dim("s", 1, 64)}}
    kept = dplc.compile(lambda x: torch.cat([x[..., :4] * 2, x[..., 4:]], -1), (SOME,), dynamic=size)
    for rows in (1, 3, 17):
        x = torch.randn(rows, 4)
        assert torch.equal(kept(x), x * 2)
    with pytest.raises(dplc.DplcError, match="has no elements, whatever its sizes are"):
        dplc.compile(lambda x: x[..., 4:], (SOME,), dynamic=size)
