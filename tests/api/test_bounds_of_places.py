"""Places out of range: an error that names the place before a run on the emulator; PyTorch raises one, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy, embedding, one_hot

import dplc
from dplc.engine.front.lower import lower
from dplc.engine.front.text import capture_text
from dplc.engine.toolchain import toolchain

Function = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
ROWS = torch.arange(16.0).reshape(4, 4)

# {op: (a function of rows and places, places that are right, places that are not, the one that is named)}
CASES: dict[str, tuple[Function, list[int], list[int], int]] = {
    "gather": (lambda x, i: torch.gather(x, 1, i[:, None]), [0, 3, 1, 2], [0, 3, 1, 4], 4),
    "index": (lambda x, i: x[i], [0, -4, 3, 1], [-5, 0, 0, 0], -5),
    "index, the second dimension": (lambda x, i: x[:, i], [0, -4, 3, 1], [0, 0, 0, 4], 4),
    "index, both": (lambda x, i: x[i, i], [0, -4, 3, 1], [0, 0, 0, 4], 4),
    "index_select": (lambda x, i: torch.index_select(x, 1, i), [0, 1, 2, 3], [0, -1, 0, 0], -1),
    "embedding": (lambda x, i: embedding(i, x), [0, 1, 2, 3], [0, -1, 0, 0], -1),
    "take": (lambda x, i: torch.take(x, i), [0, -16, 15, 3], [0, -17, 0, 0], -17),
    "scatter_add": (lambda x, i: x.scatter_add(1, i[:, None], torch.ones(4, 1)), [0, 1, 2, 3], [0, 1, 2, 4], 4),
    "index_add": (lambda x, i: x.index_add(0, i + 1, torch.ones(4, 4)), [-1, 0, 2, 0], [-2, 0, 0, 0], -1),
    "one_hot": (lambda x, i: one_hot(i, 4) * x, [0, 1, 2, 3], [0, 1, 2, 4], 4),
    "cross_entropy_loss": (lambda x, i: cross_entropy(x, i), [0, 1, -100, 3], [0, 1, -100, 4], 4),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
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
    assert [b.end for b in bounds("torch.randn(4, 8)[torch.randint(0, 4, (3,)) // 2 + 1]")] == [4]
    assert bounds("torch.randn(4, 8)[torch.randn(3, 4).argmax(1)]") == ()  # a reduction would be calculated twice
    assert bounds("torch.randn(4, 8)[(torch.rand(3) * 4).long()]") == ()  # so would floats, and not as the kernel does
