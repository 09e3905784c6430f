"""Writing to a place out of range: an error that names it, before a run on the emulator. PyTorch raises one, too."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from dynamic_checks import is_right, sized_text

import dplc
from dplc.engine.capture.capture import capture_text
from dplc.engine.rewrite.torch_rules.lower import lower
from dplc.engine.ruleset import toolchain

# a result of rows x and places i, its op, places that are right, places that are not, the one that is named
CASES = [
    ("x.scatter_add(1, i[:, None], torch.ones(4, 1))", "scatter_add", [0, 1, 2, 3], [0, 1, 2, 4], 4),
    ("x.index_add(0, i + 1, torch.ones(4, 4))", "index_add", [-1, 0, 2, 0], [-2, 0, 0, 0], -1),
    ("F.one_hot(i, 4) * x", "one_hot", [0, 1, 2, 3], [0, 1, 2, 4], 4),
    ("x.index_put((i,), x[0])", "index_put", [0, -4, 2, 3], [0, 1, 2, 4], 4),
    ("x.index_put((i,), x[0])", "index_put", [0, -4, 2, 3], [0, -5, 2, 3], -1),
    ("x.index_put((i,), x[0], accumulate=True)", "index_put", [3, 3, -1, 0], [9, 0, 0, 0], 9),
    ("y = x.clone(); y[:, i] = 5.0; y", "index_put", [0, -4, 2, 3], [0, 1, 2, 4], 4),
    ("y = x.clone(); y[i, i % 4] = 5.0; y", "index_put", [-4, 3, 1, 2], [-5, 3, 1, 2], 16),
    ("y = x.clone(); y[i % 4, i] = 5.0; y", "index_put", [-4, 3, 1, 2], [0, 3, 4, 2], 16),
    ("y = x.reshape(2, 2, 4).clone(); y[i % 2, i % 2, i] = 5.0; y", "index_put", [0, -4, 1, 3], [0, 4, 1, 3], 16),
    ("x.put(i * 4, x[0])", "put", [0, -4, 2, 3], [0, 4, 1, 2], 16),
    ("torch.select_scatter(x, x[0], 0, i[1])", "index_put", [0, -4, 2, 3], [0, 7, 2, 3], 7),
    ("torch.take_along_dim(x, i[:, None], 1)", "", [-5, 7, -1, 3], [], 0),  # which wrap around
]


@pytest.mark.parametrize(("result", "op", "right", "wrong", "worst"), CASES)
@pytest.mark.sampled(7)
def test_places(result: str, op: str, right: list[int], wrong: list[int], worst: int) -> None:
    text = "x = torch.arange(16.0).reshape(4, 4)\ni = torch.tensor({})\n" + result
    program = sized_text(text.format(right))
    assert is_right(program, text.format(right))
    if wrong:
        with pytest.raises(dplc.DplcError, match="-c:3:"):
            capture_text(text.format(wrong))
        with pytest.raises(dplc.DplcError, match=f"place {worst} is out of range: `{op}` takes") as error:
            program.run({"i": torch.tensor(wrong)})
        assert (error.value.exit_code, error.value.notes) == (1, ("it is computed from `i`",))


def bounds(text: str) -> Any:
    return lower(capture_text(text), toolchain().rules).bounds


def test_only_places_that_cost_little_are_looked_at_beforehand() -> None:
    assert [b.end for b in bounds("F.one_hot(torch.randint(0, 4, (3,)) // 2 + 1, 4)")] == [4]
    assert bounds("F.one_hot(torch.randn(3, 4).argmax(1), 4)") == ()  # a reduction would be calculated twice
    assert bounds("F.one_hot((torch.rand(3) * 4).long(), 4)") == ()  # so would floats, and not as the kernel does
