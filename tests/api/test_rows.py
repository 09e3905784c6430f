"""`rows=`: parts of a size's range that are compiled for themselves, and the table that says which serves a call."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from dynamic_checks import is_right, sized, sized_text
from torch import nn

import dplc
from dplc.ir.diagnostic import DplcError, UsageError

COPIES_BY_TMA = Path(__file__).parents[2] / "examples" / "overrides" / "copies_by_tma.rw"
WHOLE = "n = dim(s, 1..4096, hint=512)\n"
LINEAR = WHOLE + "nn.Linear(64, 48)(torch.randn(n, 64))"
SOFTMAX = WHOLE + "torch.softmax(torch.randn(5, n), -1)"


def test_the_usual_rows_serve_calls_from_end_to_end(caplog: pytest.LogCaptureFixture) -> None:
    """Each is compiled when a call first needs it, which the log says."""
    program = sized(nn.Linear(64, 48), torch.randn(37, 64), rows=None)  # the default
    with caplog.at_level("INFO", "dplc"):
        for _ in range(2):
            program(torch.randn(5, 64))
    (message,) = [record.getMessage() for record in caplog.records if record.name == "dplc"]
    assert re.fullmatch(r"compiled for s: 2\.\.8 in \d+ ms", message)
    assert len(program.rows.table) == 12 and program.rows.at({"s": 1}).sizes == {}  # a row of one number is static
    bounds = [program.rows.at({"s": n}).sizes["s"] for n in (2, 8, 9, 4096)]
    assert [(size.low, size.high, size.hint) for size in bounds] == [
        (2, 8, 8),
        (2, 8, 8),
        (9, 16, 16),
        (2049, 4096, 4096),
    ]
    assert program.at(s=5) is program.rows.at({"s": 5}).at({"s": 5}) and program.at(s=1).kernels[0].values == ()
    for said, sizes in (("`s` is 5000; compiled for 1..4096", {"s": 5000}), ("its sizes are s, not t", {"t": 5})):
        with pytest.raises(DplcError, match=re.escape(said)):
            program.at(**sizes)
    assert all(is_right(sized_text(LINEAR, rows=True), LINEAR, s=length) for length in (1, 2, 8, 9, 17, 65, 1025))
    assert dplc.compile(torch.sin, (torch.randn(3),)).rows.rows == sized(torch.sin, torch.randn(3)).rows.rows == ()


def test_rows_of_memory_as_long_as_the_size_are_read_by_vectors() -> None:
    """Lengths of whole vectors have rows of their own, at most twelve in all; the others are right, too."""
    program = sized_text(SOFTMAX, rows=True)
    assert len(program.rows.rows) == 12
    vectors = [program.rows.at({"s": n}).sizes["s"].multiple == 4 for n in (16, 20, 21, 128, 512, 4096)]
    assert vectors == [False, True, False, True, True, True]
    assert "ldg128" in program.rows.at({"s": 512}).cuda and "ldg128" not in program.rows.at({"s": 511}).cuda
    assert all(is_right(program, SOFTMAX, s=length) for length in (1, 2, 15, 17, 20, 31, 63, 132, 511, 1000))


@pytest.mark.parametrize("dim", [dplc.Dim("s", 1, 9), dplc.Dim("s", 40, 4096, multiple=8), dplc.Dim("s", 3, 4095)])
def test_the_usual_rows_lie_in_the_range(dim: dplc.Dim) -> None:
    """Of a size that is a multiple already there is nothing to add; every length is served by a row that admits it."""
    rows = sized(lambda x: torch.softmax(x, -1), torch.randn(5, dim.low), size=dim, at=1, rows=True, db=False).rows
    places = {rows.place({"s": n}) for n in range(dim.low, dim.high + 1) if dim.admits(n)}
    assert places == set(range(len(rows.rows))) and 0 < len(places) <= 12


def test_no_more_rows_than_the_policy_says(tmp_path: Path) -> None:
    """Longer lengths are served by the program for all of them."""
    few = tmp_path / "few.rw"
    few.write_text("override number most_ranges = 3\n")
    program = sized(lambda x: x * 2, torch.randn(8, 4), rows=None, rules=few)
    assert [program.rows.place({"s": n}) for n in (16, 17)] == [2, None] and len(program.rows.rows) == 3
    assert torch.equal(program(torch.ones(17, 4)), torch.full((17, 4), 2.0))


def test_kernels_that_are_equal_are_built_once() -> None:
    """Eleven rows of a norm are a few kernels: what is built and loaded goes by the text."""
    rows = sized(nn.RMSNorm(2048), torch.randn(8, 2048), rows=None, target="h200").rows
    rows.compile_all()
    texts = [kernel.text for made in (rows.whole, *rows.made.values()) for kernel in made.cuda_kernels]
    assert len(texts) == 12 and len(set(texts)) <= 5


def test_own_rows_are_compiled_when_a_call_needs_them() -> None:
    program = sized_text(LINEAR, rows=[dplc.Dim("s", 1, 8), dplc.Dim("s", 64, 512, multiple=4)])
    rows = program.rows
    assert json.loads(json.dumps(rows.table)) == [
        {"when": [{"name": "s", "low": 1, "high": 8, "multiple": 1}], "plan": 0},
        {"when": [{"name": "s", "low": 64, "high": 512, "multiple": 4}], "plan": 1},
        {"when": [], "plan": 2},
    ]
    assert rows.at({"s": 101}) is rows.whole and not rows.made
    assert rows.at({"s": 100}) is rows.at({"s": 64}) is not rows.whole and len(rows.made) == 1
    assert all(is_right(program, LINEAR, s=length) for length in (5, 100, 101)) and len(rows.made) == 2


def test_rows_of_two_sizes_are_conjunctions() -> None:
    text = "x = torch.randn(dim(s, 1..300, hint=64))\ntorch.relu(x[:, None] * torch.randn(dim(t, 1..300, hint=64)))"
    program = sized_text(text, rows=[(dplc.Dim("s", 1, 8), dplc.Dim("t", 4, 300, multiple=4))])
    for sizes, row in (({"s": 5, "t": 8}, 0), ({"s": 5, "t": 9}, None), ({"s": 9, "t": 8}, None)):
        assert is_right(program, text, **sizes) and program.rows.place(sizes) is row


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([dplc.Dim("t", 1, 8)], "rows= names `t`, no size"),
        ([dplc.Dim("s", 1, 5000)], "a row of `s` is 1..5000, outside of 1..4096"),
        ([5], "rows= is a list of Dims"),
        ("s", "rows= is a list of Dims"),
    ],
)
def test_rows_that_mean_nothing(rows: Any, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        sized(torch.sin, torch.randn(8), rows=rows)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("nn.RMSNorm(256)(torch.randn(dim(s, 1..4096, hint=4096), 256))", "rows_per_thread"),
        ("torch.randn(dim(s, 1..4096, hint=4096), 50).amax(-1)", "rows_per_block"),
        # the first copies of a multistage buffer check whether the chunk exists
        ("F.scaled_dot_product_attention(*[torch.randn(1, 24, dim(s, 1..4096, hint=512), 64) for _ in range(3)])", ""),
    ],
)
def test_rows_that_do_not_divide_share_a_thread_or_a_block(text: str, rule: str) -> None:
    program = sized_text(text, "h200")
    assert all(rule in kernel.comment for kernel in program.compilation.cuda_kernels)
    assert all(is_right(program, text, s=length) for length in (1, 7, 8, 17, 40))


def test_tensor_maps_have_the_lengths_of_a_call() -> None:
    """TMA copies boxes of scores, whose rows and columns are a size."""
    given = "torch.randn(1, 12, dim(s, 128..2048, 64, hint=2048), 64)"
    text = f"F.scaled_dot_product_attention({given}, {given}, {given})"
    program = sized_text(text, "h200", [COPIES_BY_TMA])
    for n in (128, 192):
        maps = [p for kernel in program.compilation.at({"s": n}).kernels for p in kernel.params if p.box is not None]
        assert {extent for p in maps for extent in p.shape} == {12, n, 64}
    assert is_right(program, text, s=128)
