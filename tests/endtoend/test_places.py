"""Places that data says, as in `table[ids]`: one that is not there stops the kernel and is the user's error, in every mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import dplc
from dplc.codegen.emulator.executor import CheckingExecutor, EmulatorExecutor
from dplc.codegen.emulator.runtime import DataError

TABLE = torch.arange(72.0).reshape(9, 8)
PICKS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "rows": lambda a, i: a[i] + 1,
    "columns": lambda a, i: a[:, i],
    "both": lambda a, i: a[i, i % 8],
    "embedding": lambda a, i: F.embedding(i, a),
    "embedding before a product": lambda a, i: F.embedding(i, a) @ a.T,
    "index_select": lambda a, i: torch.index_select(a, 1, i),
    "gather": lambda a, i: torch.gather(a, 0, i[:, None].expand(-1, 8)),
    "of a half": lambda a, i: a.to(torch.bfloat16)[i],
    "by 32-bit places": lambda a, i: F.embedding(i.to(torch.int32), a),
    "summed": lambda a, i: a[i].sum(0),
}  # fmt: skip
BAD = (-(2**62), -(2**31) - 1, -10, 9, 10, 2**31, 2**62)


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("name", PICKS)
@pytest.mark.sampled(3)
def test_a_place_that_is_not_there(name: str, checked: bool) -> None:
    good = torch.tensor([0, 3, 7, 1, 5])
    compiled = dplc.compile(PICKS[name], (TABLE, good))
    compiled.executor = EmulatorExecutor(checked=checked)
    assert torch.allclose(compiled(TABLE, good), PICKS[name](TABLE, good))
    for bad in BAD:
        if name == "by 32-bit places" and not -(2**31) <= bad < 2**31:
            continue
        places = good.clone()
        places[3] = bad
        with pytest.raises(DataError, match=r"kernel `\w+`, block .* thread \d+: place -?\d+ on an axis that has [89]"):
            compiled(TABLE, places)
    assert torch.allclose(compiled(TABLE, good), PICKS[name](TABLE, good))


def test_it_is_the_users_error_and_says_where() -> None:
    compiled = dplc.compile(PICKS["embedding"], (TABLE, torch.tensor([0, 1])))
    with pytest.raises(DataError) as caught:
        compiled(TABLE, torch.tensor([0, 9]))
    assert caught.value.exit_code == 1
    assert any("check_place(" in note for note in caught.value.notes)
    compiled.executor = CheckingExecutor()
    with pytest.raises(DataError):
        compiled(TABLE, torch.tensor([-1, 0]))


UNSELECTED: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "a piece of a concatenation": (
        lambda i: torch.cat([torch.cat([i, i])[torch.cat([i, i]) % 64], torch.cat([i, i])]), (torch.arange(64),),
    ),
    "a label that is ignored": (
        lambda x, i: F.nll_loss(x, i, ignore_index=-100, reduction="none"),
        (torch.randn(3, 5), torch.tensor([1, -100, 4])),
    ),
    "padding": (lambda a, i: F.pad(a[i], (1, 2, 3, 4)), (TABLE, torch.tensor([1, 2]))),
    "ragged rows": (lambda a, i: a[i].sum(0), (TABLE, torch.arange(999) % 9)),
}  # fmt: skip


@pytest.mark.parametrize("name", UNSELECTED)
def test_a_place_that_nobody_reads_stops_nothing(name: str) -> None:
    function, inputs = UNSELECTED[name]
    assert torch.allclose(dplc.compile(function, inputs)(*inputs), function(*inputs))


def test_what_the_ranges_prove_is_not_checked() -> None:
    for function in (lambda a: a.roll(3, 0), lambda a: a.flip(0), lambda a: a[2:, ::3], lambda a: a.repeat(2, 2)):
        assert "check_place" not in dplc.compile(function, (TABLE,)).cuda
