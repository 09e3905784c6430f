"""Writing to a place out of range: an error that names it, before a run on the emulator. PyTorch raises one, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.functional import one_hot

import dplc
from dplc.engine.capture.capture import capture_text
from dplc.engine.rewrite.torch_rules.lower import lower
from dplc.engine.ruleset import toolchain

Function = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
ROWS = torch.arange(16.0).reshape(4, 4)


def _assigned(x: torch.Tensor, places: Any) -> torch.Tensor:
    x = x.clone()
    x[places] = 5.0
    return x


# {op: (a function of rows and places, places that are right, places that are not, the one that is named)}
CASES: dict[str, tuple[Function, list[int], list[int], int]] = {
    "scatter_add": (lambda x, i: x.scatter_add(1, i[:, None], torch.ones(4, 1)), [0, 1, 2, 3], [0, 1, 2, 4], 4),
    "index_add": (lambda x, i: x.index_add(0, i + 1, torch.ones(4, 4)), [-1, 0, 2, 0], [-2, 0, 0, 0], -1),
    "one_hot": (lambda x, i: one_hot(i, 4) * x, [0, 1, 2, 3], [0, 1, 2, 4], 4),
    "index_put, rows": (lambda x, i: x.index_put((i,), x[0]), [0, -4, 2, 3], [0, 1, 2, 4], 4),
    "index_put, before the first": (lambda x, i: x.index_put((i,), x[0]), [0, -4, 2, 3], [0, -5, 2, 3], -1),
    "index_put, added": (lambda x, i: x.index_put((i,), x[0], accumulate=True), [3, 3, -1, 0], [9, 0, 0, 0], 9),
    "index_put, columns": (lambda x, i: _assigned(x, (slice(None), i)), [0, -4, 2, 3], [0, 1, 2, 4], 4),
    "index_put, far from the first row": (lambda x, i: _assigned(x, (i, i % 4)), [-4, 3, 1, 2], [-5, 3, 1, 2], 16),
    "index_put, far from the first column": (lambda x, i: _assigned(x, (i % 4, i)), [-4, 3, 1, 2], [0, 3, 4, 2], 16),
    "index_put, among three": (lambda x, i: _assigned(x.reshape(2, 2, 4), (i % 2, i % 2, i)), [0, -4, 1, 3], [0, 4, 1, 3], 16),
    "put": (lambda x, i: x.put(i * 4, x[0]), [0, -4, 2, 3], [0, 4, 1, 2], 16),
    "index_put, of one": (lambda x, i: torch.select_scatter(x, x[0], 0, i[1]), [0, -4, 2, 3], [0, 7, 2, 3], 7),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.sampled(6)
def test_places(name: str) -> None:
    function, right, wrong, worst = CASES[name]
    compiled = dplc.compile(function, (ROWS, torch.zeros(4, dtype=torch.int64)), device="emulator")
    torch.testing.assert_close(compiled(ROWS, torch.tensor(right)), function(ROWS, torch.tensor(right)))
    with pytest.raises((IndexError, RuntimeError)):
        function(ROWS, torch.tensor(wrong))
    with pytest.raises(dplc.DplcError, match=f"place {worst} is out of range") as error:
        compiled(ROWS, torch.tensor(wrong))
    assert f"`{name.split(',')[0]}` takes" in str(error.value)
    assert (error.value.exit_code, error.value.notes) == (1, ("it is computed from `i`",))


def test_places_that_wrap_around() -> None:
    places = torch.tensor([[-5], [7], [-1], [3]])
    function = lambda x, i: torch.take_along_dim(x, i, 1)  # noqa: E731
    compiled = dplc.compile(function, (ROWS, places), device="emulator")
    assert torch.equal(compiled(ROWS, places), function(ROWS, places))


def bounds(text: str) -> Any:
    return lower(capture_text(text), toolchain().rules).bounds


def test_only_places_that_cost_little_are_looked_at_beforehand() -> None:
    assert [b.end for b in bounds("F.one_hot(torch.randint(0, 4, (3,)) // 2 + 1, 4)")] == [4]
    assert bounds("F.one_hot(torch.randn(3, 4).argmax(1), 4)") == ()  # a reduction would be calculated twice
    assert bounds("F.one_hot((torch.rand(3) * 4).long(), 4)") == ()  # so would floats, and not as the kernel does
