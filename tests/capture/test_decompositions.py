"""PyTorch's own formulas: one table, beside the rules and never in their way; ops that look at values are traced whole."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_impls import op_implementations_dict

import dplc
from dplc.engine.capture import decompositions
from dplc.engine.capture.capture import capture
from dplc.engine.capture.decompositions import (
    BY_SIZES,
    COMPOSITES,
    FILLED,
    FORMULAS,
    RECURRENT,
    RESIZES,
    by_types,
    table,
)
from dplc.engine.cli.machine import operators
from dplc.engine.ruleset import toolchain
from dplc.ir.diagnostic import DplcError
from dplc.ir.schemas import DTYPES

# with formulas of our own
ALONE = f"""
    {RECURRENT} detach_copy _grouped_mm ctc_loss _native_batch_norm_legit_no_training as_strided_scatter _transformer_encoder_layer_fwd
    _native_multi_head_attention _cdist_forward _cdist_backward _trilinear adaptive_max_pool2d_backward
    adaptive_max_pool3d_backward max_pool3d_with_indices_backward _adaptive_avg_pool2d_backward
    _adaptive_avg_pool3d_backward alias_copy _unsafe_index _unsafe_index_put _weight_norm_interface_backward
    fake_quantize_per_tensor_affine_cachemask _fake_quantize_per_tensor_affine_cachemask_tensor_qparams
    fake_quantize_per_channel_affine_cachemask _upsample_bilinear2d_aa_backward _upsample_bicubic2d_aa_backward
"""
# a rule takes most calls of these
SHARED = f"as_strided as_strided_copy avg_pool2d_backward avg_pool3d_backward pow {BY_SIZES} {FILLED}"


def test_each_op_of_the_table_is_named_once_and_is_left_by_the_rules() -> None:
    functional = (schema.name for schema in torch._C._jit_get_all_schemas() if not schema.is_mutable)
    lists = {name.removeprefix("aten::") for name in functional if name.startswith("aten::_foreach_")}
    replaced = {overload._schema.name.partition("::")[2] for overload in table()} - {"grouped_mm_fallback", "fma"}
    assert sorted(replaced) == sorted([*lists, *" ".join((*FORMULAS, *COMPOSITES, RESIZES, ALONE, SHARED)).split()])
    assert replaced & operators(toolchain().torch).keys() == set(SHARED.split())


# {rank: lengths, lengths and scales of a resize}; some scales keep a length or double it
GRIDS = {
    1: ([(1,), (2,), (3,), (7,), (40,)], (1, 2, 3, 80), (0.3, 0.75, 1.0, 1.01, 1.1, 1.3, 1.7, 2.0, 2.2, 2.3, 3.7)),
    2: ([(1, 2), (3, 5), (40, 2), (5, 200)], (2, 3), (1.01, 1.3, 2.0)),
    3: ([(1, 2, 3), (3, 1, 2)], (2, 3), (1.01, 1.3, 2.0)),
}
# places near 200 are multiples of 2**-16 in f32
GATES = {torch.float32: 1e-4, torch.float64: 1e-12, torch.bfloat16: 3e-2}


@pytest.mark.parametrize("name", RESIZES.split())
@pytest.mark.sampled(5)
def test_a_resize_gives_the_elements_of_eager(name: str) -> None:
    op, rank = getattr(torch.ops.aten, name).vec, int(name[-2])
    every, sizes, scales = GRIDS[rank]
    flags = [[]] if "nearest" in name else [[False], [True]]
    asked = [(size, None) for size in itertools.product(sizes, repeat=rank)]
    asked += [(None, by) for by in itertools.product(scales, repeat=rank)]
    for dtype, lengths, (size, by), aligned in itertools.product(GATES, every, asked, flags):
        if by and 0 in [int(n * s) for n, s in zip(lengths, by, strict=True)]:
            continue
        x = torch.randn(1, 2, *lengths, generator=torch.Generator().manual_seed(1)).to(dtype)
        wanted, got = (f(x, size, *aligned, by) for f in (op, table()[op]))
        torch.testing.assert_close(got, wanted, rtol=GATES[dtype], atol=GATES[dtype])


# A grid of 5 by 200 is resized by another kernel of PyTorch's than small ones.
@pytest.mark.parametrize("times", [1, 7, 41])  # 41 * (1/41) is less than 1 in f32
def test_repeated_elements_are_those_of_eager(times: int) -> None:
    def f(x: torch.Tensor) -> list[torch.Tensor]:
        """Both modes."""
        return [F.interpolate(x, scale_factor=float(times), mode=mode) for mode in ("nearest", "nearest-exact")]

    x = torch.randn(1, 2, 5)
    assert all(map(torch.equal, dplc.compile(f, (x,), device="emulator", db=False)(x), f(x)))


@pytest.mark.parametrize(
    ("lengths", "smooth"),
    [
        ((2,), ["linear"]),
        ((3, 5), ["bilinear", "bicubic"]),
        ((5, 200), ["bilinear", "bicubic"]),
        ((1, 2, 3), ["trilinear"]),
    ],
)
@pytest.mark.sampled(1)
def test_a_compiled_resize_agrees_with_eager_where_a_length_stays(lengths: tuple[int, ...], smooth: list[str]) -> None:
    def f(x: torch.Tensor) -> list[torch.Tensor]:
        """All modes at once."""
        return [
            *(F.interpolate(x, scale_factor=1.3, mode=mode) for mode in ("nearest", "nearest-exact", "area", *smooth)),
            *(F.interpolate(x, scale_factor=1.3, mode=mode, align_corners=True) for mode in smooth),
            F.interpolate(x, scale_factor=1.3, mode=smooth[0], recompute_scale_factor=True),
        ]

    x = torch.randn(1, 2, *lengths)
    torch.testing.assert_close(dplc.compile(f, (x,), device="emulator", db=False)(x), f(x), rtol=1e-4, atol=1e-4)


def test_a_resize_of_lengths_that_may_stay_is_refused() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, scale_factor=1.3, mode="bilinear")

    def made(low: int) -> Any:
        return dplc.compile(f, (torch.randn(1, 1, 3, 6),), dynamic={"x": {3: dplc.Dim("s", low, 64)}})

    with pytest.raises(
        DplcError, match=r"a resize by 1.3 takes places of fewer than 4 elements by the sizes"
    ) as caught:
        made(1)
    assert caught.value.hint == "declare the length from 4 on, or pass size="
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

    def graph() -> str:
        made = capture(lambda x: F.linear(x.clone().add_(1), torch.ones(2, 3)), (torch.ones(4, 3),))
        return str(made.graph)

    assert "linear" in graph() and graph() == graph()
    assert not prepared[-1]
    assert linear.py_kernels == kernels and op_implementations_dict == implementations
    monkeypatch.setitem(linear.py_kernels, torch._C.DispatchKey.XLA, linear)
    graph()
    assert prepared[-1] == {linear}


# ---- Ops that look at values while PyTorch traces them: captured by their types, refused as PyTorch refuses them.

X = torch.randn(3, 7)


@pytest.mark.parametrize(
    ("function", "args", "options"),
    [
        (torch.cov, (torch.randn(1, 2, 3),), {}),
        (torch.cov, (X > 0,), {}),
        (torch.cov, (X,), {"fweights": torch.rand(7)}),
        (torch.cov, (X,), {"fweights": torch.ones(2, 7, dtype=torch.long)}),
        (torch.cov, (X,), {"fweights": torch.ones(6, dtype=torch.long)}),
        (torch.cov, (X,), {"aweights": torch.ones(7, dtype=torch.long)}),
        (torch.cov, (X,), {"aweights": torch.rand(6)}),
        (F.gaussian_nll_loss, (X, X, torch.rand(4)), {}),
        (F.gaussian_nll_loss, (X, X, X.abs()), {"reduction": "median"}),
        (F.gaussian_nll_loss, (X, X, -1.0), {}),
        (F.gaussian_nll_loss, (X, X, torch.rand(1, 1)), {"reduction": "sum"}),
    ],
)
def test_what_torch_refuses_is_refused(function: Any, args: Any, options: dict[str, Any]) -> None:
    with pytest.raises((RuntimeError, ValueError)) as theirs:
        function(*args, **options)
    with pytest.raises(DplcError) as ours:
        capture(function, args, options)
    assert str(theirs.value).split(" but got")[0] in ours.value.what


@pytest.mark.parametrize("weights", [torch.rand(7), torch.rand(7).double(), torch.rand(7).half()])
@pytest.mark.parametrize("x", [X, torch.randint(0, 9, (3, 7)), X[:1], X[0]])
def test_the_types_are_torch_s(x: Any, weights: Any) -> None:
    want = torch.cov(x, aweights=weights)
    (out,) = capture(torch.cov, (x,), {"aweights": weights}).graph.outs
    assert (getattr(torch, DTYPES[out.dtype]), out.shape) == (want.dtype, want.shape)


def test_torch_is_left_as_it_was() -> None:
    before = dict(torch.ops.aten.cov.default.py_kernels)
    with pytest.raises(ValueError), by_types():
        raise ValueError
    capture(torch.cov, (X,), {})
    assert dict(torch.ops.aten.cov.default.py_kernels) == before


def test_among_ops_that_change_memory() -> None:
    """Made functional, the program is traced once more."""

    def function(x: Any) -> Any:
        return torch.fft.fftshift(torch.cov(x).add_(1))

    torch.testing.assert_close(dplc.compile(function, (X,))(X), function(X))
