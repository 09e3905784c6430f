"""Pools over several axes as pools over one axis at a time, and rows shorter than a block that share one.

Each program is split whatever it saves, run whole in checked mode and compared with float64."""

from __future__ import annotations

import math

import pytest
from drawing import draws
from hypothesis import given, settings, strategies as st
from test_transposed import compiled, is_right, run_right

from dplc.codegen.target import target
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import Compilation, Compiler
from dplc.engine.ruleset import Toolchain, toolchain
from dplc.ir.node import nodes
from dplc.ir.tensor import Reduce, postorder
from dplc.ir.tile import Tile

INPUT = "x = torch.randn({n}, 2, {h}, {w}); "
VOLUME = "x = torch.randn({n}, 2, {h}, {w}, 9); "
WINDOW = "{size}, {stride}, {pad}"
PROGRAMS = {
    "maximum": INPUT + "F.max_pool2d(x, " + WINDOW + ", ceil_mode={up})",
    "maximum, positions": INPUT + "F.max_pool2d(x, " + WINDOW + ", ceil_mode={up}, return_indices=True)",
    "maximum of NaN": INPUT + "F.max_pool2d(torch.where(x > 1, math.nan, x), " + WINDOW + ")",
    "maximum of halves": INPUT + "F.max_pool2d(x.half(), " + WINDOW + ")",
    "maximum, two apart": INPUT + "F.max_pool2d(F.pad(x, (4, 4, 4, 4)), " + WINDOW + ", (2, 1))",
    "maximum of a volume": VOLUME + "F.max_pool3d(x, 3, {stride}, 1, ceil_mode={up})",
    "mean": INPUT + "F.avg_pool2d(x, " + WINDOW + ", ceil_mode={up})",
    "mean within the input": INPUT + "F.avg_pool2d(x, " + WINDOW + ", ceil_mode={up}, count_include_pad=False)",
    "mean of halves": INPUT + "F.avg_pool2d(x.half(), " + WINDOW + ")",
    "mean of a volume": VOLUME + "F.avg_pool3d(x, (2, 3, 2), {stride}, 1, ceil_mode={up}, count_include_pad=False)",
    "sum of means": INPUT + "F.avg_pool2d(x.exp(), " + WINDOW + ").sum((2, 3))",
}


@pytest.fixture(scope="module")
def always(tmp_path_factory: pytest.TempPathFactory) -> Toolchain:
    """The rules, with kernels that are launched in no time."""
    path = tmp_path_factory.mktemp("rules") / "always.rw"
    path.write_text("override number accesses_of_launch = -1000000000\n")
    return toolchain([path])


def split(tools: Toolchain, text: str) -> Compilation:
    return Compiler(tools, target("h200")).compile(capture_text(text))


@settings(max_examples=draws(10), deadline=None)
@given(
    st.sampled_from(sorted(PROGRAMS)), st.sampled_from([1, 3]), st.sampled_from([7, 12]), st.sampled_from([6, 13, 33]),
    st.sampled_from([(2, 2), (3, 3), (4, 3), (3, 5)]), st.sampled_from([1, 2, 3]), st.sampled_from([0, 1]), st.booleans(),
)  # fmt: skip
def test_pools_by_axes_are_right(
    always: Toolchain, name: str, n: int, h: int, w: int, size: tuple[int, int], stride: int, pad: int, up: bool
) -> None:
    text = PROGRAMS[name].format(n=n, h=h, w=w, size=size, stride=stride, pad=pad, up=up)
    run_right(split(always, text))


@pytest.mark.parametrize("name, reductions", [("maximum", 2), ("maximum of a volume", 3), ("mean", 2)])
def test_a_pool_over_several_axes_is_a_pool_over_each(always: Toolchain, name: str, reductions: int) -> None:
    text = PROGRAMS[name].format(n=1, h=7, w=6, size=3, stride=1, pad=1, up=False)
    values = postorder(out.value for out in split(always, text).tensor.outs)
    assert [len(value.over) for value in values if value.__class__ is Reduce] == [1] * reductions


@settings(max_examples=draws(4), deadline=None)
@given(st.sampled_from([1, 3, 17]), st.sampled_from([5, 28, 31]), st.sampled_from([4, 7, 14, 28, 100]))
def test_windows_in_short_rows_are_right(n: int, h: int, w: int) -> None:
    is_right(f"F.max_pool2d(torch.randn({n}, 3, {h}, {w}), 3, 1, 1)")
    is_right(f"F.avg_pool2d(torch.randn({n}, 3, {h}, {w}), 2)")


def test_short_rows_of_windows_share_blocks() -> None:
    """A block has several rows of 28, not 28 threads."""
    (tile,) = nodes(compiled("F.max_pool2d(torch.randn(64, 32, 28, 28), 3, 2, 1)").tile, Tile)
    assert math.prod(axis.extent for axis in tile.axes if axis.role == "THREAD") >= 112
