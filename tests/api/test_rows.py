"""`rows=`: parts of a size's range that are compiled for themselves, and the table that says which serves a call."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from dynamic_checks import checked, is_right, sized
from torch import nn

import dplc
from dplc.ir.diagnostic import DplcError, UsageError

COPIES_BY_TMA = Path(__file__).parents[2] / "examples" / "overrides" / "copies_by_tma.rw"


def linear(rows: Any) -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    layer = nn.Linear(64, 48)
    return layer, sized(layer, torch.randn(37, 64), rows=rows)


def softmax(x: Any) -> Any:
    return torch.softmax(x, -1)


def attention(q: Any, k: Any, v: Any) -> Any:
    return F.scaled_dot_product_attention(q, k, v)


def test_the_usual_rows_are_right_at_their_ends() -> None:
    layer, program = linear(None)  # the default
    assert len(program.rows.table) == 12 and program.rows.at({"s": 1}).sizes == {}  # a row of one number is static
    for length in (1, 2, 8, 9, 17, 65, 1025):
        assert is_right(program, layer, torch.randn(length, 64)), length
    bounds = [program.rows.at({"s": n}).sizes["s"] for n in (2, 8, 9, 4096)]
    assert [(size.low, size.high) for size in bounds] == [(2, 8), (2, 8), (9, 16), (2049, 4096)]
    assert all(size.hint == size.high for size in bounds)


def test_rows_of_memory_as_long_as_the_size_are_read_by_vectors() -> None:
    """Lengths of whole vectors have rows of their own, at most twelve in all; the others are right, too."""
    program = sized(softmax, torch.randn(5, 512), at=1, rows=True)
    assert len(program.rows.rows) == 12
    vectors = [program.rows.at({"s": n}).sizes["s"].multiple == 4 for n in (16, 20, 21, 128, 512, 4096)]
    assert vectors == [False, True, False, True, True, True]
    assert "ldg128" in program.rows.at({"s": 512}).cuda and "ldg128" not in program.rows.at({"s": 511}).cuda
    for length in (1, 2, 15, 17, 20, 31, 63, 132, 511, 1000):
        assert is_right(program, softmax, torch.randn(5, length)), length


@pytest.mark.parametrize("dim", [dplc.Dim("s", 1, 9), dplc.Dim("s", 40, 4096, multiple=8), dplc.Dim("s", 3, 4095)])
def test_the_usual_rows_lie_in_the_range(dim: dplc.Dim) -> None:
    """Of a size that is a multiple already there is nothing to add; every length is served by a row that admits it."""
    program = sized(softmax, torch.randn(5, dim.low), size=dim, at=1, rows=True, db=False)
    assert 0 < len(program.rows.rows) <= 12
    every = [n for n in range(dim.low, dim.high + 1) if dim.admits(n)]
    places = [program.rows.place({"s": n}) for n in every]
    assert None not in places and set(places) == set(range(len(program.rows.rows)))


def test_no_more_rows_than_the_policy_says(tmp_path: Path) -> None:
    """Longer lengths are served by the program for all of them."""
    few = tmp_path / "few.rw"
    few.write_text("override number most_ranges = 3\n")
    program = sized(lambda x: x * 2, torch.randn(8, 4), rows=None, rules=few)
    assert len(program.rows.rows) == 3
    assert program.rows.place({"s": 16}) == 2 and program.rows.place({"s": 17}) is None
    assert torch.equal(program(torch.ones(17, 4)), torch.full((17, 4), 2.0))


def test_a_row_that_is_compiled_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    layer, program = linear(None)
    with caplog.at_level("INFO", "dplc"):
        for _ in range(2):
            program(torch.randn(5, 64))
    told = [record.getMessage() for record in caplog.records if record.name == "dplc"]
    assert len(told) == 1 and re.fullmatch(r"compiled for s: 2\.\.8 in \d+ ms", told[0])
    assert linear(())[1].rows.rows == dplc.compile(layer, (torch.randn(3, 64),)).rows.rows == ()


def test_the_launches_of_a_length() -> None:
    _, program = linear(None)
    assert program.at(s=5) is program.rows.at({"s": 5}).at({"s": 5}) and program.at(s=1).kernels[0].values == ()
    for said, sizes in (("`s` is 5000; compiled for 1..4096", {"s": 5000}), ("its sizes are s, not t", {"t": 5})):
        with pytest.raises(DplcError, match=re.escape(said)):
            program.at(**sizes)


def test_kernels_that_are_equal_are_built_once() -> None:
    """Eleven rows of a norm are a few kernels: what is built and loaded goes by the text."""
    norm = sized(nn.RMSNorm(2048), torch.randn(8, 2048), rows=None, target="h200")
    norm.rows.compile_all()
    texts = [kernel.text for made in (norm.compilation, *norm.rows.made.values()) for kernel in made.cuda_kernels]
    assert len(texts) == 12 and len(set(texts)) <= 5


def test_a_row_is_compiled_when_a_call_needs_it() -> None:
    layer, program = linear([dplc.Dim("s", 1, 8), dplc.Dim("s", 64, 512, multiple=4)])
    made: list[Any] = list(program.rows.made)
    assert made == []
    assert program.rows.at({"s": 100}) is program.rows.at({"s": 64}) is not program.compilation
    assert program.rows.at({"s": 101}) is program.compilation and len(list(program.rows.made)) == 1
    for length in (5, 100, 101):
        assert is_right(program, layer, torch.randn(length, 64)), length
    program.rows.compile_all()
    assert len(list(program.rows.made)) == 2


def test_the_table_is_data() -> None:
    _, program = linear([dplc.Dim("s", 1, 8), dplc.Dim("s", 64, 512, multiple=4)])
    assert json.loads(json.dumps(program.rows.table)) == [
        {"when": [{"name": "s", "low": 1, "high": 8, "multiple": 1}], "plan": 0},
        {"when": [{"name": "s", "low": 64, "high": 512, "multiple": 4}], "plan": 1},
        {"when": [], "plan": 2},
    ]


def test_rows_of_two_sizes_are_conjunctions() -> None:
    s, t = dplc.Dim("s", 1, 300, hint=64), dplc.Dim("t", 1, 300, hint=64)
    rows = [(dplc.Dim("s", 1, 8), dplc.Dim("t", 4, 300, multiple=4))]

    def products(x: Any, y: Any) -> Any:
        return torch.relu(x[:, None] * y)

    program = dplc.compile(products, (torch.randn(8), torch.randn(9)), dynamic=({0: s}, {0: t}), rows=rows)
    for n, m, row in ((5, 8, True), (5, 9, False), (9, 8, False)):
        assert is_right(program, products, torch.randn(n), torch.randn(m))
        assert (program.rows.at({"s": n, "t": m}) is not program.compilation) is row


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
        linear(rows)


RAGGED: dict[str, tuple[Callable[..., Any], int, str]] = {
    "rows of a thread": (nn.RMSNorm(256), 256, "rows_per_thread"),
    "rows of a block": (lambda x: x.amax(-1), 50, "rows_per_block"),
}


@pytest.mark.parametrize("name", RAGGED)
def test_rows_that_do_not_divide_share_a_thread_or_a_block(name: str) -> None:
    function, width, rule = RAGGED[name]
    program = sized(function, torch.randn(8, width), size=dplc.Dim("s", 1, 4096, hint=4096), target="h200")
    assert program.trace is not None and rule in {firing.rule for firing in program.trace.firings}
    for length in (1, 7, 8, 9, 33):
        assert is_right(checked(program), function, torch.randn(length, width)), length


def test_tensor_maps_have_the_lengths_of_a_call() -> None:
    """TMA copies boxes of scores, whose rows and columns are a size."""
    size, given = dplc.Dim("s", 128, 2048, multiple=64, hint=2048), [torch.empty(1, 12, 2048, 64)] * 3
    program = sized(attention, *given, size=size, at=2, target="h200", rules=COPIES_BY_TMA)
    for n in (128, 192):
        maps = [p for kernel in program.compilation.at({"s": n}).kernels for p in kernel.params if p.box is not None]
        assert {extent for p in maps for extent in p.shape} == {12, n, 64}
    assert is_right(program, attention, *torch.randn(3, 1, 12, 128, 64))


@pytest.mark.parametrize("n", [1, 17, 40, 200])
@pytest.mark.sampled(2)
def test_a_ring_may_have_fewer_chunks_than_slots(n: int) -> None:
    """One program for 1..4096: its first copies ask whether the chunk exists, and what is computed of its end is zero."""
    program = sized(attention, *[torch.empty(1, 24, 512, 64)] * 3, at=2, target="h200")
    torch.manual_seed(0)
    assert is_right(checked(program), attention, *torch.randn(3, 1, 24, n, 64))
