"""What a compiled function changes in place or assigns has eager's values after each call: arguments and module state."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

import dplc


class Hidden(nn.Module):
    """A recurrent cell that keeps its state, and counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("hidden", torch.zeros(2, 4))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(1)
        self.hidden.copy_(torch.tanh(self.linear(x) + self.hidden))
        return self.hidden * self.count


class Assigned(nn.Module):
    """Assigns a buffer that it reads, and an attribute for others to read."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.last: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        self.last = x - self.mean
        return self.last.exp()


class Plain(nn.Module):
    """Keeps its state in an attribute that is not a buffer."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.linear, self.kind = nn.Linear(4, 4), kind
        self.hidden = torch.zeros(2, 4)
        self.scale = torch.full((4,), 0.5)
        self.said: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "plain assigned":
            self.hidden = torch.tanh(self.linear(x) + self.hidden * self.scale)
        elif self.kind == "plain in place":
            self.hidden.mul_(self.scale).add_(self.linear(x))
        elif self.kind == "plain both":
            self.hidden.copy_(x)
            self.hidden = torch.tanh(self.linear(self.hidden) + self.hidden)
        elif self.kind == "plain new":
            self.said = x * 2
        return self.hidden + x


KINDS = ("plain assigned", "plain in place", "plain both", "plain new")


class Average(nn.Module):
    """Keeps an exponential average of its weight, and normalises the weight in place."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))
        self.register_buffer("slow", torch.zeros(4, 4))

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        self.weight.div_(self.weight.norm())
        self.slow.lerp_(self.weight, 0.1)
        return x @ self.slow


def written(cache: Tensor, x: Tensor) -> Tensor:
    cache[1:3] = x[:2]
    return cache.sum(0)


def swapped(x: Tensor, y: Tensor) -> Tensor:
    old = x.clone()
    x.copy_(y)
    y.copy_(old)
    return x - y


def turned(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """Each has the value of the next one."""
    old = x.clone()
    x.copy_(y)
    y.copy_(z)
    z.copy_(old)
    return x + z


def through_a_view(x: Tensor) -> Tensor:
    x.t()[0].mul_(3)
    return x + 1


def into_out(x: Tensor, y: Tensor) -> Tensor:
    return torch.add(x, 1, out=y).relu()


def of_complex(x: Tensor) -> Tensor:
    z = torch.view_as_complex(x)
    z.mul_(1j)
    return x.abs()


def drawn(*shapes: tuple[int, ...]) -> list[Tensor]:
    return [torch.randn(shape) for shape in shapes]


SUBJECTS: dict[str, tuple[Callable[[], Any], list[tuple[int, ...]]]] = {
    "hidden": (Hidden, [(2, 4)]),
    "assigned": (Assigned, [(3, 4)]),
    "average": (Average, [(3, 4)]),
    **{kind: (lambda kind=kind: Plain(kind), [(2, 4)]) for kind in KINDS},
    "batch norm": (lambda: nn.BatchNorm2d(3), [(4, 3, 5, 5)]),
    "in a module": (lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU()), [(6, 4)]),
    "functional": (lambda: lambda x, m, v: F.batch_norm(x, m, v.abs_(), training=True), [(6, 4), (4,), (4,)]),
    "written": (lambda: written, [(4, 3), (2, 3)]),
    "swapped": (lambda: swapped, [(3,), (3,)]),
    "turned": (lambda: turned, [(3,), (3,), (3,)]),
    "through a view": (lambda: through_a_view, [(3, 3)]),
    "into out": (lambda: into_out, [(3,), (3,)]),
    "complex": (lambda: of_complex, [(3, 2)]),
}


@pytest.mark.parametrize("device", ["emulator", "reference"])
@pytest.mark.parametrize("name", SUBJECTS)
@pytest.mark.sampled(20)
def test_three_calls_leave_what_eager_leaves(name: str, device: str) -> None:
    made, shapes = SUBJECTS[name]
    ours = made()
    theirs = copy.deepcopy(ours)
    compiled = dplc.compile(ours, drawn(*shapes), device=device)
    for _ in range(3):
        given = drawn(*shapes)
        expected = [x.clone() for x in given]
        with torch.no_grad():
            assert_close(compiled(*given), theirs(*expected), rtol=1e-5, atol=1e-5)
        assert_close(given, expected, rtol=1e-5, atol=1e-5)
        if isinstance(ours, nn.Module):
            assert_close(ours.state_dict(), theirs.state_dict(), rtol=1e-5, atol=1e-5)
        if isinstance(ours, Plain):
            assert_close((ours.hidden, ours.said), (theirs.hidden, theirs.said), rtol=1e-5, atol=1e-5)
        if isinstance(ours, Assigned):
            assert_close(ours.last, theirs.last, rtol=1e-5, atol=1e-5)


def test_the_compile_changes_nothing() -> None:
    module, x = Hidden(), torch.randn(2, 4)
    before = copy.deepcopy(module.state_dict())
    dplc.compile(module, (x,))
    dplc.compile(lambda x: x.add_(1), (x.clone(),))
    assert_close(module.state_dict(), before)
    for kind in KINDS:
        plain = Plain(kind)
        before_it = {**vars(plain)}
        dplc.compile(plain, (x,))
        assert vars(plain).keys() == before_it.keys() and not plain._buffers
        assert plain.hidden is before_it["hidden"] and torch.equal(plain.hidden, torch.zeros(2, 4))


def test_only_what_changes_is_read_at_every_call() -> None:
    """A mask that stays is a constant, which may become a formula."""
    x = torch.randn(2, 4)
    for kind, found in (("plain assigned", {"input", "parameter", "buffer"}), ("plain new", {"input", "constant"})):
        assert set(dplc.compile(Plain(kind), (x,)).compilation.captured.kinds.values()) == found


def test_a_result_is_the_tensor_that_was_changed() -> None:
    """In eager, a change of the result changes the argument or the buffer: it is one tensor."""

    def grown(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return y.add_(1), x.mul_(2), x * y

    x, y = drawn((3,), (3,))
    two, one, product = dplc.compile(grown, (x, y))(x, y)
    assert two is y and one is x and product is not x
    module = Assigned()
    dplc.compile(module, (torch.ones(3, 4),))(torch.ones(3, 4))
    assert module.last is not None and "mean" in module._buffers


def test_lengths_that_are_known_at_a_call() -> None:
    compiled = dplc.compile(lambda x: x.mul_(2) + 1, (torch.ones(5, 3),), dynamic={"x": {0: dplc.Dim("s", 1, 64)}})
    for length in (1, 5, 33):
        x = torch.randn(length, 3)
        want = 2 * x
        assert_close(compiled(x), want + 1)
        assert_close(x, want)


class Weight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        self.weight = nn.Parameter(x * 2)
        return x * self.weight


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (lambda x: x.add_(1)[1:], drawn((3,)), r"a result is a view of `x`.*help: return a copy: `\.clone\(\)`"),
        (Weight(), (torch.ones(3),), "assigns `weight`, which is a parameter"),
    ],
)
def test_what_cannot_be_as_in_eager_is_refused(function: Any, arguments: Any, message: str) -> None:
    with pytest.raises(dplc.DplcError, match=f"(?s){message}"):
        dplc.compile(function, arguments)
