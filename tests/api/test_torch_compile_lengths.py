"""`torch.compile(.., backend="dplc", dynamic=True)` and `mark_dynamic`: one compile for every length, or a warning why not."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from dynamo_checks import assert_same, compare
from torch import nn

import dplc
from dplc.engine.torch_backend import EagerWarning, LengthWarning

pytestmark = pytest.mark.usefixtures("fresh_dynamo")
LENGTHS = (6, 9, 33, 2, 100)


def block() -> nn.Module:
    return nn.Sequential(nn.LayerNorm(12), nn.Linear(12, 20), nn.GELU(), nn.Linear(20, 12)).eval()


def rows(n: int) -> torch.Tensor:
    return torch.randn(n, 8)


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[int], Any]]] = {
    "rows of a block": (block(), lambda n: torch.randn(n, 12)),
    "softmax over the length": (lambda x: torch.softmax(x, -1), lambda n: torch.randn(3, n)),
    "places of rows": (lambda x: x + torch.arange(x.shape[0])[:, None], rows),
    "a view, a number, another order": (lambda x: ((x * 2).view(-1), x.shape[0] * 2, (x + 1).t()), rows),
    "in place": (lambda x: x.add_(1) * 2, rows),
    "strides of a length": (lambda x: (x.t() + 1).t() * 1, rows),
    "attention": (lambda x: F.scaled_dot_product_attention(x[None] * 2, x[None], x[None] + 1, is_causal=True), rows),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.sampled(4)
def test_one_compile_serves_every_length(name: str, compiles: list[Any]) -> None:
    function, given = PROGRAMS[name]
    with torch.no_grad():
        compare(function, [(given(n),) for n in LENGTHS], dynamic=True)
    assert len(compiles) == 1


def marked(n: int, **bounds: int) -> torch.Tensor:
    x = rows(n)
    torch._dynamo.mark_dynamic(x, 0, **bounds)
    return x


def dims(compiles: list[dict[str, Any]]) -> list[dplc.Dim]:
    """The ranges of all lengths that were compiled for."""
    return [own[0] for one in compiles for own in (one["dynamic"] or {}).values()]


def test_a_marked_dimension_keeps_its_range(compiles: list[Any]) -> None:
    with torch.no_grad():
        compare(nn.Linear(8, 4), [(marked(n, min=2, max=200),) for n in LENGTHS])
    (dim,) = dims(compiles)
    assert len(compiles) == 1 and (dim.low, dim.high, dim.hint) == (2, 200, LENGTHS[0])


def test_a_second_shape_opens_the_length(compiles: list[Any]) -> None:
    compare(lambda x: torch.softmax(x, -1) * 2, [(rows(n),) for n in (*LENGTHS, LENGTHS[0])])
    assert [bool(one["dynamic"]) for one in compiles] == [False, True]


def test_an_open_range_is_compiled_in_steps(compiles: list[Any]) -> None:
    """Where torch knows no upper end, lengths above 4096 are another range."""
    compare(lambda x: x * 2 + 1, [(torch.randn(n),) for n in (10, 4096, 5000, 60000, 7)], dynamic=True)
    assert [(dim.low, dim.high) for dim in dims(compiles)] == [(2, 4096), (4097, 65536)]


def test_a_range_is_narrowed_to_what_the_program_asks(compiles: list[Any]) -> None:
    compare(lambda x: x.reshape(-1, 4, 8).sum(1), [(marked(n),) for n in (8, 12, 20)])
    assert [dim.multiple for dim in dims(compiles)] == [1, 4]


def test_what_cannot_be_for_all_lengths_is_said_once(compiles: list[Any]) -> None:
    def function(x: Any) -> Any:
        return torch.linalg.det(torch.eye(x.shape[0]) + torch.relu(x) @ torch.relu(x).t())

    said = r"(?s)again for every length: .*linalg_det.*at .*lengths.py:\d+.*undecided"
    with pytest.warns(LengthWarning, match=said) as told:
        compiled = torch.compile(function, backend="dplc", dynamic=True)
        for n in (3, 5):
            assert_same(compiled(x := rows(n)), function(x))
    assert [w.filename for w in told if w.category is LengthWarning] == [__file__]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("open_", [True, False], ids=["one program", "a program for each"])
def test_strides_of_a_length_are_those_of_the_call(open_: bool, compiles: list[Any]) -> None:
    """Channels stand last in what a convolution makes of such: where each length is a program, too."""
    norm, layer = nn.LayerNorm(8), nn.Conv2d(8, 6, 2, 2)

    def function(x: Any) -> Any:
        made = layer(norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2))
        return made if open_ else (made, torch.fft.rfft(x, dim=2).abs())

    with torch.no_grad():
        compare(function, [(torch.randn(1, 8, n, n + 4),) for n in (8, 12, 6)], dynamic=True)
    assert all(one["dynamic"] for one in compiles) == open_


class Segmenter(nn.Module):
    """What its parts keep for the derivative are views by lengths of tensors that no caller sees."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.norm, self.out = nn.Conv2d(3, 8, 3, 2, 1), nn.GroupNorm(2, 8), nn.Conv2d(8, 4, 1)

    def forward(self, x: Any) -> Any:
        return F.interpolate(self.out(F.silu(self.norm(self.into(x)))), size=x.shape[2:], mode="bilinear")


class Listener(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into, self.norm = nn.Conv1d(1, 8, 10, 5), nn.GroupNorm(8, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.layer(F.gelu(self.norm(self.into(x))).transpose(1, 2)).mean(1)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("module", "given"),
    [(Segmenter, lambda n: torch.randn(1, 3, n, n + 4)), (Listener, lambda n: torch.randn(2, 1, 5 * n))],
)
@pytest.mark.sampled(1)
def test_parts_of_a_network_are_trained_at_every_length(module: Callable[[], Any], given: Callable[[int], Any]) -> None:
    model = module()
    compiled = torch.compile(model, backend="dplc", dynamic=True)
    for n in (16, 17):
        x = given(n)
        wanted, got = model(x), compiled(x)
        weights = torch.randn_like(wanted)
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)
        each = [torch.autograd.grad((y * weights).sum(), list(model.parameters())) for y in (got, wanted)]
        for found, eager in zip(*each, strict=True):
            assert torch.allclose(found, eager, rtol=1e-3, atol=1e-3 * max(1.0, eager.abs().max().item()))


@pytest.mark.filterwarnings("ignore")
def test_a_length_that_a_tensor_holds_is_left_to_torch() -> None:
    """A codec pads by buffers of one number: shapes behind it are known to nobody beforehand."""
    by = torch.tensor(3)

    def function(x: Any, by: Any) -> Any:
        padded = F.pad(x, (by, by), mode="reflect")
        return padded[..., : padded.shape[-1] - 1].transpose(1, 2)

    compare(function, [(torch.randn(1, 4, n), by) for n in (8, 12, 9)], dynamic=True)


def test_an_op_without_a_rule_is_cut_out_of_an_open_length(compiles: list[Any]) -> None:
    def function(x: Any) -> Any:
        return torch.special.airy_ai(torch.relu(x)) * 2, x.shape[0]

    with pytest.warns(EagerWarning, match="special_airy_ai") as told:
        compare(function, [(rows(n),) for n in LENGTHS], dynamic=True)
    assert not any(w.category is LengthWarning for w in told)
    assert len(compiles) == 4  # the whole for a range, for one length, then two pieces


def test_a_number_that_changes_is_told_once(compiles: list[Any]) -> None:
    """It is fixed in what is compiled, unless it is a length; in the place of a number a tensor may stand."""

    def served(x: Any, k: Any) -> Any:
        return x * k + k

    calls = [(rows(n), k) for n, k in ((6, 3), (9, 4), (33, 5))]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        compare(served, calls, dynamic=True)
    (said,) = [str(w.message) for w in told if w.category is LengthWarning]
    assert "it was 3, and is 4" in said and "torch.tensor(4)" in said
    compiles.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error", LengthWarning)
        compare(served, [(x, torch.tensor(k)) for x, k in calls], dynamic=True)
        compare(lambda x: x * x.shape[0], [(x,) for x, _ in calls], dynamic=True)
    assert len(compiles) <= 3
