"""Convolutions with channels last: threads enough for every scheduler, filters that lanes read without conflicts.

Ragged; each is run whole, checked, and compared with float64."""

from __future__ import annotations

import pytest
from test_transposed import compiled, is_right

from dplc.engine.cost.instruction_counts import instruction_counts
from dplc.ir.expr import free_names
from dplc.ir.facts.structure import summary
from dplc.ir.kernel import LoadFrom, Loop, Multiply, Replicate
from dplc.ir.node import nodes
from dplc.ir.tile import Mma

LAST = "F.conv2d(torch.randn({b},{y},{x},{c}).permute(0,3,1,2),torch.randn({o},{c},{k},{k}),padding={p},stride={s}).permute(0,2,3,1).contiguous()"
FILTERS_TOO = LAST.replace("torch.randn({o},{c},{k},{k})", "torch.randn({o},{k},{k},{c}).permute(0,3,1,2)")
SIZES = (
    {"b": 1, "y": 13, "x": 14, "c": 32, "o": 67, "k": 3, "p": 1, "s": 1},
    {"b": 2, "y": 7, "x": 7, "c": 40, "o": 128, "k": 3, "p": 1, "s": 1},
    {"b": 1, "y": 15, "x": 28, "c": 16, "o": 64, "k": 3, "p": 0, "s": 2},
    {"b": 1, "y": 12, "x": 31, "c": 8, "o": 33, "k": 5, "p": 2, "s": 1},
)


@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: "x".join(map(str, sizes.values())))
@pytest.mark.parametrize("text", [LAST, FILTERS_TOO], ids=["input", "filters too"])
@pytest.mark.sampled(3)
def test_channels_last_are_right(text: str, sizes: dict[str, int]) -> None:
    is_right(text.format(**sizes))


def test_tensor_cores_multiply_channels_last() -> None:
    made = compiled(FILTERS_TOO.format(b=8, y=28, x=28, c=64, o=64, k=3, p=1, s=1), dtype="bf16")
    assert list(nodes(made.tile, Mma))
    counts = instruction_counts(made.kernels[0])  # neighbouring lanes gather neighbouring elements
    assert counts.lines < counts.ideal_sectors / 2


RESIZED = (
    "F.conv2d(F.interpolate(torch.randn({b},{c},{y},{x}),scale_factor={times}.0),torch.randn({o},{c},3,3),padding=1)"
)


@pytest.mark.parametrize("times", [2, 3])
def test_tensor_cores_multiply_repeated_places(times: int) -> None:
    is_right(RESIZED.format(b=1, c=5, y=7, x=9, o=12, times=times))
    made = compiled(RESIZED.format(b=4, c=64, y=16, x=16, o=64, times=times), dtype="bf16")
    assert len(made.launched) == 1 and list(nodes(made.tile, Mma))


POOLED = "F.max_pool2d(F.conv2d(torch.randn({b},{c},{y},{x}),torch.randn({o},{c},3,3),padding=1),2)"


def test_a_pool_runs_along_what_a_filter_stores() -> None:
    is_right(POOLED.format(b=1, c=5, y=13, x=22, o=12))
    counts = instruction_counts(compiled(POOLED.format(b=8, c=32, y=56, x=56, o=64)).kernels[-1])
    assert counts.sectors - counts.hits <= 1.1 * counts.ideal_sectors


def test_a_filter_stores_along_the_places_that_the_next_one_gathers() -> None:
    filters = "F.conv2d(F.relu(F.conv2d(torch.randn(8,32,30,28),torch.randn(64,32,3,3))),torch.randn(16,64,3,3))"
    assert compiled(filters).tile[0].outs[0].shape == (8, 64, 28, 26)
    filters = "F.conv1d(F.gelu(F.conv1d(torch.randn(8,1,4000),torch.randn(64,1,10),stride=5)),torch.randn(32,64,3))"
    assert compiled(filters).tile[0].outs[0].shape == (8, 64, 799)


@pytest.mark.parametrize("side, channels", [(14, 256), (7, 512), (28, 128), (56, 64)])
def test_a_window_has_a_warp_for_every_scheduler(side: int, channels: int) -> None:
    text = LAST.format(b=8, y=side, x=side, c=channels, o=channels, k=3, p=1, s=1)
    kernel = compiled(text).kernels[0]  # a second may add parts of sums
    assert kernel.body[0].block >= 128


GATHERED = (
    "F.conv2d(torch.randn(2,17,13,7{d}),torch.randn(19,17,3,5{d}),padding=(1,2),stride=(2,1))",
    "F.conv2d(torch.randn(2,16,15,15{d}),torch.randn(24,16,3,3{d}),padding=2,dilation=2)",
    "F.conv2d(torch.randn(1,3,37,37{d}),torch.randn(64,3,7,7{d}),padding=3,stride=2)",
    "F.conv1d(torch.randn(2,32,50{d}),torch.randn(40,32,3{d}),padding=1)",
    "F.conv3d(torch.randn(2,8,5,6,7{d}),torch.randn(16,8,3,3,3{d}),padding=1)",
)


@pytest.mark.parametrize("dtype", ["", ", dtype=torch.bfloat16"], ids=["f32", "bf16"])
@pytest.mark.parametrize("text", GATHERED)
@pytest.mark.sampled(3)
def test_windows_are_gathered_and_right(text: str, dtype: str) -> None:
    made = text.format(d=dtype)
    stages = [stage for kernel in compiled(made).tile for stage in summary(kernel.body).stages]
    gathered = [stage for stage in stages if stage.gathered]
    assert gathered
    # all places are one axis and the whole sum is another; filters, in order in memory, are boxes
    assert {len(stage.box) for stage in gathered} == {2}
    assert len({str(stage.src) for stage in gathered}) == 1
    is_right(made)


LONG = "F.conv2d(torch.randn({b},{c},{y},{x}),torch.randn({o},{c},{k},{w}),padding=2,stride={s},dilation=(1,2))"


@pytest.mark.parametrize(
    "sizes",
    [
        {"b": 1, "c": 32, "y": 11, "x": 31, "o": 33, "k": 3, "w": 9, "s": 1},
        {"b": 2, "c": 32, "y": 7, "x": 40, "o": 16, "k": 1, "w": 11, "s": 2},
    ],
)
def test_channels_are_the_last_digit_of_long_windows(sizes: dict[str, int]) -> None:
    """A chunk holds no row of such a window, but it holds channels: one condition and one address serve all of them."""
    is_right(LONG.format(**sizes))
    made = compiled(LONG.format(**{**sizes, "b": 8, "c": 64, "y": 16, "x": 32, "o": 64}), dtype="bf16")
    (loop,) = (loop for loop in nodes(made.kernels[-1], Loop) if list(nodes(loop, Multiply)))
    loads = [
        (part.var, load) for part in nodes(loop, Replicate) for load in nodes(part, LoadFrom) if load.when is not True
    ]
    assert loads and all(var not in free_names(load.when) for var, load in loads)


def test_groups_and_bias_of_long_windows() -> None:
    is_right("F.conv1d(torch.randn(2,64,29),torch.randn(6,32,10),torch.randn(6),padding='same',groups=2)")
