"""Convolutions of any window: kernel, stride, padding, dilation, groups and channels are drawn, most of them ragged.

Each is run whole in checked mode and compared with float64."""

from __future__ import annotations

from typing import NamedTuple

from drawing import draws
from hypothesis import HealthCheck, event, given, settings, strategies as st
from test_transposed import compiled, is_right

from dplc.ir.facts.structure import summary

CHANNELS = (1, 3, 7, 8, 12, 17, 32)


class Window(NamedTuple):
    """A convolution of one, two or three dimensions; of each dimension its extent, window, stride, gap and padding."""

    images: int
    groups: int
    channels: int
    filters: int
    sides: tuple[tuple[int, int, int, int, int], ...]
    dtype: str

    @property
    def text(self) -> str:
        extents, windows, strides, gaps, pads = (", ".join(map(str, each)) for each in zip(*self.sides, strict=True))
        image = f"torch.randn({self.images}, {self.groups * self.channels}, {extents}{self.dtype})"
        filters = f"torch.randn({self.groups * self.filters}, {self.channels}, {windows}{self.dtype})"
        given = f"stride=({strides},), padding=({pads},), dilation=({gaps},), groups={self.groups}"
        return f"F.conv{len(self.sides)}d({image}, {filters}, {given})"


@st.composite
def sides(draw: st.DrawFn, longest: int) -> tuple[int, int, int, int, int]:
    """One dimension, of which at least one window fits."""
    window, stride, gap = draw(st.integers(1, 5)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    reach = (window - 1) * gap + 1
    pad = draw(st.integers(0, reach // 2))
    return draw(st.integers(max(1, reach - 2 * pad), longest)), window, stride, gap, pad


@st.composite
def convolutions(draw: st.DrawFn, groups: st.SearchStrategy[int]) -> Window:
    """Of one dimension to three, small enough for the emulator."""
    rank = draw(st.integers(1, 3))
    drawn = tuple(draw(sides((40, 17, 9)[rank - 1])) for _ in range(rank))
    channels, filters = draw(st.sampled_from(CHANNELS)), draw(st.sampled_from((1, 5, 16, 33)))
    return Window(draw(st.integers(1, 3)), draw(groups), channels, filters, drawn, draw(st.sampled_from(("", HALVES))))


HALVES = ", dtype=torch.bfloat16"
FEW = settings(max_examples=draws(3), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def check(window: Window) -> None:
    gathered = any(stage.gathered for kernel in compiled(window.text).tile for stage in summary(kernel.body).stages)
    event("gathered" if gathered else "not gathered")
    is_right(window.text)


@FEW
@given(convolutions(st.just(1)))
def test_a_drawn_convolution_is_right(window: Window) -> None:
    check(window)


@FEW
@given(convolutions(st.sampled_from((2, 3, 4))))
def test_a_drawn_convolution_in_groups_is_right(window: Window) -> None:
    check(window)
