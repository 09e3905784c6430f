"""Outputs of one thread whose windows overlap load every element once: filters without sums over channels, and pools.

One to three dimensions, strides, dilations, paddings and mirrors, odd extents, several dtypes; each program is run whole in
checked mode and compared with float64."""

from __future__ import annotations

import pytest
from drawing import draws
from hypothesis import given, settings, strategies as st
from test_transposed import compiled, is_right, run_right

from dplc.engine.facts.accesses import window_step
from dplc.ir.expr import Var, add, compare, floordiv, modulo, multiply, subtract
from dplc.ir.kernel import LoadFrom, Replicate, StoreTo
from dplc.ir.loop import Load
from dplc.ir.node import Expr, nodes
from dplc.ir.tile import RegisterTile

X = "x = torch.randn(2, {c}, {h}, {w}).to({dtype}); "
PROGRAMS = {
    "filter of each channel": X + "F.conv2d(x, torch.randn({c}, 1, {k}, 3).to({dtype}), padding={p}, groups={c})",
    "with gaps": X + "F.conv2d(x, torch.randn({c}, 1, {k}, 2).to({dtype}), dilation=(2, 1), padding={p}, groups={c})",
    "every other place": X + "F.conv2d(x, torch.randn({c}, 1, {k}, 3).to({dtype}), stride=(2, 1), padding={p}, groups={c})",
    "with what follows": X + "F.relu(F.conv2d(x, torch.randn({c}, 1, {k}, 3).to({dtype}), torch.randn({c}).to({dtype}), groups={c}))",
    "largest": X + "F.max_pool2d(x, ({k}, 1), 1)",
    "mean": X + "F.avg_pool2d(x, ({k}, 2), 1)",
    "of a mirror": X + "F.avg_pool2d(x.flip(2), ({k}, 1), 1)",
    "a filter from its end": X + "F.conv_transpose2d(x, torch.randn({c}, 1, {k}, 1).to({dtype}), groups={c})",
    "of a volume": "x = torch.randn(1, 2, 3, {h}, {w}).to({dtype}); F.conv3d(x, torch.randn(2, 1, 2, {k}, 3).to({dtype}), groups=2)",
    "of a product": X + "(x * x.roll(1, 3)).unfold(2, {k}, 1).sum(-1)",
}  # fmt: skip
DTYPES = ("torch.float32", "torch.float64", "torch.bfloat16", "torch.half")


@settings(max_examples=draws(20), deadline=None)
@given(
    st.sampled_from(sorted(PROGRAMS)), st.integers(1, 3), st.integers(9, 20), st.sampled_from([1, 5, 16, 33]),
    st.integers(2, 5), st.integers(0, 1), st.sampled_from(DTYPES), st.sampled_from([2, 4, 8]),
)  # fmt: skip
def test_windows_that_slide_are_right(name: str, c: int, h: int, w: int, k: int, p: int, dtype: str, rows: int) -> None:
    text = PROGRAMS[name].format(c=c, h=h, w=max(w, 3), k=k, p=p, dtype=dtype)
    usual = compiled(text)
    run_right(usual)
    if usual.captured.reference[0].shape[-2] % rows == 0:
        is_right(text, {"blockify_short": {"R": rows}})


LONG_ROWS = (
    "x = torch.randn(2, 3, 16, 600); F.conv2d(x, torch.randn(3, 1, 3, 3), padding=1, groups=3)",
    "x = torch.randn(1, 2, 14, 701).half(); F.max_pool2d(x, (3, 2), 1)",
    "x = torch.randn(2, 2, 8, 1100); F.conv_transpose2d(x, torch.randn(2, 1, 5, 1), groups=2)",
)


@pytest.mark.parametrize("text", LONG_ROWS)
def test_blocks_of_long_rows_are_coarsened(text: str) -> None:
    made = compiled(text, {"coarsen_rows": {"R": 4}})
    assert list(nodes(made.tile, RegisterTile))
    run_right(made)


WINDOWS = {
    "x = torch.randn(16, 64, 112, 112); F.conv2d(x, torch.randn(64, 1, 3, 3), padding=1, groups=64)": 3 + 8 - 1,
    "x = torch.randn(8, 128, 64, 64); F.conv2d(x, torch.randn(128, 1, 7, 7), padding=3, groups=128)": 7 + 8 - 1,
    "x = torch.randn(1, 64, 128, 1024); F.conv2d(x, torch.randn(64, 1, 5, 5), padding=2, groups=64)": 5 + 8 - 1,
    # blocks of 32 rows: the last one is ragged
    "x = torch.randn(8, 96, 56, 56); F.conv2d(x, torch.randn(96, 1, 7, 7), padding=3, groups=96)": 7 + 8 - 1,
}


@pytest.mark.parametrize("text", WINDOWS)
def test_a_thread_loads_a_line_once(text: str) -> None:
    (kernel,) = compiled(text).kernels
    lines = [copy for copy in nodes(kernel, Replicate) if copy.extent == WINDOWS[text]]
    assert any(nodes(tuple(lines), LoadFrom))
    rows = [copies.body for copies in nodes(kernel, Replicate) if any(nodes(copies, StoreTo))]
    assert not any(line in nodes(row, Replicate) for row in rows for line in lines)


V, K, J = map(Var, "vkj")
STEPS: list[tuple[tuple[Expr, ...], Expr, int]] = [
    ((add(V, K),), True, 1),
    ((J, add(add(multiply(V, 2), K), 5)), True, 2),
    ((subtract(V, K),), True, -1),
    ((add(V, K),), compare("<", add(V, K), 9), 1),
    ((add(V, K),), compare("<", K, 9), 0),
    ((add(V, K), add(multiply(V, 2), K)), True, 0),
    ((add(V, multiply(K, 2)),), True, 0),
    ((floordiv(add(V, K), 3), modulo(add(V, K), 3)), True, 1),
    ((V, K), True, 0),
]


@pytest.mark.parametrize("idx, when, step", STEPS)
def test_windows_advance_by_one_step_everywhere(idx: tuple[Expr, ...], when: Expr, step: int) -> None:
    assert window_step(Load("a", "x", idx, when), "v", "k") == step
