"""PyTorch's own formulas: one table, beside the rules and never in their way."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_impls import op_implementations_dict

import dplc
from dplc.engine.capture import decompositions
from dplc.engine.capture.capture import capture
from dplc.engine.capture.decompositions import BY_SIZES, COMPOSITES, FORMULAS, RESIZES, table
from dplc.engine.ruleset import toolchain
from dplc.engine.verify.operators import operators
from dplc.ir.diagnostic import DplcError

# with formulas of our own
ALONE = [
    "_grouped_mm",
    "ctc_loss",
    "_native_batch_norm_legit_no_training",
    "as_strided_scatter",
    "_transformer_encoder_layer_fwd",
    "_native_multi_head_attention",
    "_cdist_forward",
    "_cdist_backward",
    "_trilinear",
    "adaptive_max_pool2d_backward",
    "adaptive_max_pool3d_backward",
    "max_pool3d_with_indices_backward",
    "_adaptive_avg_pool2d_backward",
    "_adaptive_avg_pool3d_backward",
    "alias_copy",
    "_unsafe_index",
    "_unsafe_index_put",
]
# a rule takes most calls of these
SHARED = {"as_strided", "as_strided_copy", "avg_pool2d_backward", "avg_pool3d_backward", *BY_SIZES.split()}


def named() -> list[str]:
    functional = (schema.name for schema in torch._C._jit_get_all_schemas() if not schema.is_mutable)
    lists = {name.removeprefix("aten::") for name in functional if name.startswith("aten::_foreach_")}
    return [*" ".join([*FORMULAS, *COMPOSITES, RESIZES]).split(), *lists, *ALONE]


def test_every_op_of_the_table_is_replaced() -> None:
    replaced = {overload._schema.name.partition("::")[2] for overload in table()} - {"grouped_mm_fallback", "fma"}
    assert {*named(), *SHARED} == replaced


def test_no_op_stands_there_twice() -> None:
    assert len(named()) == len(set(named()))


def test_no_rule_takes_an_op_of_the_table() -> None:
    assert set(named()).isdisjoint(operators(toolchain().torch))
    assert set(operators(toolchain().torch)).issuperset(SHARED)


SCALES = (0.3, 0.75, 1.0, 1.01, 1.1, 1.3, 1.7, 2.0, 2.2, 2.3, 3.7)
LENGTHS = {1: [(1,), (2,), (3,), (7,), (40,)], 2: [(1, 2), (3, 5), (40, 2), (5, 200)], 3: [(1, 2, 3), (3, 1, 2)]}
# places near 200 are multiples of 2**-16 in f32
GATES = {torch.float32: 1e-4, torch.float64: 1e-12, torch.bfloat16: 3e-2}
MODES = {1: "linear", 2: "bilinear", 3: "trilinear"}


def resizes(rank: int) -> Iterator[tuple[list[int] | None, list[float] | None]]:
    """Sizes, or scales, of which some keep a length or double it."""
    sizes = itertools.product((1, 2, 3, 80) if rank == 1 else (2, 3), repeat=rank)
    scales = itertools.product(SCALES if rank == 1 else SCALES[3:8:2], repeat=rank)
    return itertools.chain(((list(n), None) for n in sizes), ((None, list(s)) for s in scales))


@pytest.mark.parametrize("name", RESIZES.split())
@pytest.mark.sampled(5)
def test_a_resize_gives_the_elements_of_eager(name: str) -> None:
    op, rank = getattr(torch.ops.aten, name).vec, int(name[-2])
    flags = [] if "nearest" in name else [[False], [True]]
    for dtype, lengths, (size, scales), aligned in itertools.product(
        GATES, LENGTHS[rank], list(resizes(rank)), flags or [[]]
    ):
        x = torch.randn(1, 2, *lengths, generator=torch.Generator().manual_seed(1)).to(dtype)
        if scales and 0 in [int(n * s) for n, s in zip(lengths, scales, strict=True)]:
            continue
        wanted, got = (f(x, size, *aligned, scales) for f in (op, table()[op]))
        torch.testing.assert_close(got, wanted, rtol=GATES[dtype], atol=GATES[dtype])


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.sampled(1)
def test_a_compiled_resize_agrees_with_eager_where_a_length_stays(rank: int) -> None:
    """All modes at once. A grid of 5 by 200 is resized by another kernel of PyTorch's than small ones."""
    modes = ["nearest", "nearest-exact", "area", MODES[rank], *(["bicubic"] if rank == 2 else [])]

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        scaled = [F.interpolate(x, scale_factor=1.3, mode=mode) for mode in modes]
        again = F.interpolate(x, scale_factor=1.3, mode=MODES[rank], recompute_scale_factor=True)
        return (
            *scaled,
            again,
            *(F.interpolate(x, scale_factor=1.3, mode=mode, align_corners=True) for mode in modes[3:]),
        )

    for lengths in {LENGTHS[rank][1], LENGTHS[rank][-1]} if rank == 2 else {LENGTHS[rank][1]}:
        x = torch.randn(1, 2, *lengths)
        for got, wanted in zip(dplc.compile(f, (x,), device="emulator", db=False)(x), f(x), strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)


def test_a_resize_of_lengths_that_may_stay_is_refused() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, scale_factor=1.3, mode="bilinear")

    def made(low: int) -> Any:
        size = {"x": {3: dplc.Dim("s", low, 64)}}
        return dplc.compile(f, (torch.randn(1, 1, 3, 6),), device="emulator", db=False, dynamic=size)

    with pytest.raises(
        DplcError, match=r"a resize by 1.3 takes places of fewer than 4 elements by the sizes"
    ) as refused:
        made(1)
    assert refused.value.hint == "declare the length from 4 on, or pass size="
    compiled = made(4)
    for length in (4, 9):
        x = torch.randn(1, 1, 3, length)
        torch.testing.assert_close(compiled(x), f(x))


def test_what_pytorch_prepares_for_an_op_is_taken_again_while_its_kernels_are_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prepared: list[set[Any]] = []
    prepare = decompositions._prepare
    monkeypatch.setattr(decompositions, "_prepare", lambda ops: prepared.append(set(ops)) or prepare(ops))
    linear = torch.ops.aten.linear.default
    kernels, implementations = dict(linear.py_kernels), dict(op_implementations_dict)

    def steps(x: torch.Tensor) -> torch.Tensor:
        return F.linear(x.clone().add_(1), torch.ones(2, 3))

    first, second = (capture(steps, (torch.ones(4, 3),)) for _ in range(2))
    assert "linear" in str(first.graph) and str(first.graph) == str(second.graph)
    assert not prepared[-1]
    assert linear.py_kernels == kernels and op_implementations_dict == implementations

    monkeypatch.setitem(linear.py_kernels, torch._C.DispatchKey.XLA, linear)
    capture(steps, (torch.ones(4, 3),))
    assert prepared[-1] == {linear}
