"""Schedules for a part of a range of lengths: searched at its hint, checked at its ends, taken by that row alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import Command

import dplc as package
from dplc.codegen.judge import judge
from dplc.engine.capture.dynamic_shapes import Dim
from dplc.engine.ruleset import toolchain
from dplc.engine.schedule.space import ScheduleCandidate, Space
from dplc.engine.store.store import SqliteStore, Tuned, key_of
from dplc.engine.tune.evaluators import PredictingEvaluator, verdict
from dplc.ir.program import Kernel
from dplc.ir.sizes import sizes_in
from dplc.ir.substitute import with_hints
from tests.tune.subjects import MACHINE, TINY, drawn

WIDTH = 96
TEXT = f"F.silu(torch.randn(dim(s, 1..512), {WIDTH})).sum(-1)"
WHOLE = Dim("s", 1, 512, hint=512)
ROW = Dim("s", 9, 64)
FOR_ROWS = "--target sm_90a --db"


def rows_of_silu(x: Any) -> Any:
    return torch.nn.functional.silu(x).sum(-1)


def compiled(db: Path | bool, rows: Any, dim: Dim = WHOLE, function: Any = None) -> Any:
    return package.compile(
        function or rows_of_silu, (torch.randn(36, WIDTH),), dynamic={"x": {0: dim}}, rows=rows, target="sm_90a",
        device="emulator", db=db,
    )  # fmt: skip


def sources(program: Any, *lengths: int) -> dict[int, str]:
    return {n: program.rows.at({"s": n}).origins[0].source for n in lengths}


def ends(program: Any) -> list[tuple[int, int, int]]:
    return [(dim.low, dim.high, dim.multiple) for (dim,) in program.rows.rows]


def is_right(program: Any, *lengths: int) -> bool:
    inputs = [torch.randn(n, WIDTH) for n in lengths]
    return judge([program(x) for x in inputs], [rows_of_silu(x.double()) for x in inputs]).ok


def kernel_of(row: Dim) -> Kernel:
    (kernel,) = compiled(False, [row]).rows.at({"s": row.high}).plan.kernels
    return kernel  # type: ignore[no-any-return]


def kept(db: Path, row: Dim, gain: float) -> None:
    """A row of SiLU in the store under another schedule than the default one: by figures that are made up."""
    kernel, rules, evaluate = kernel_of(row), toolchain().rules, PredictingEvaluator()
    space = Space(toolchain(), (kernel,), MACHINE)
    least = evaluate(space.default()).seconds or 0.0
    scored = ((made, evaluate(made).seconds or 0.0) for made in drawn(space))
    chosen, seconds = next((made, found) for made, found in scored if found > 1.1 * least and verdict(made).right)
    with SqliteStore(db, rules) as store:
        found = Tuned(chosen.schedule, seconds, "predicted", gain * seconds, "random", 0, 1, "emulator")
        assert store.put(key_of(kernel, MACHINE, rules), found)


# ---- rows of a store


def test_rows_are_chosen_by_the_store(path: Path) -> None:
    """Ranges that were tuned, a length too, are rows unasked; the usual rows give way to them."""
    usual = [(1, 1), (2, 8), (9, 16), (17, 32), (33, 64), (65, 128), (129, 256), (257, 512)]
    assert ends(compiled(path, None)) == [(*part, 1) for part in usual]
    for row in (Dim("s", 12, 64), Dim("s", 100, 100), Dim("s", 132, 512, 4, hint=200)):
        kept(path, row, gain=1.5)
    kept(path, Dim("s", 65, 70), gain=1)  # no faster than the default order
    stored, others = [(100, 100, 1), (12, 64, 1), (132, 512, 4)], [(1, 1), (2, 8), (9, 11), *usual[5:]]
    for rows in (None, True):
        program = compiled(path, rows)
        assert ends(program) == [*stored, *((*part, 1) for part in others)]
    plain = compiled(False, None)
    same = {n: plain.rows.at({"s": n}).cuda == program.rows.at({"s": n}).cuda for n in (1, 64, 512, 257)}
    assert same == {1: True, 64: False, 512: False, 257: True} and plain.cuda == program.cuda
    hints = {dim.low: dim.hint for (dim,) in program.rows.rows}
    assert hints[132] == 200 and hints[9] == 11  # where the store judged it; the greatest of a usual row
    assert set(sources(program, 64, 100, 132, 512).values()) == {"store"}
    assert sources(program, 511) != {511: "store"} and program.rows.at({"s": 100}).sizes == {}
    assert is_right(program, 1, 11, 12, 64, 100, 131, 132, 133, 512)
    assert ends(compiled(path, [ROW])) == [(9, 64, 1)] and compiled(path, ()).rows.rows == ()


def test_the_store_of_another_program_chooses_no_rows(tmp_path: Path) -> None:
    """Nor does a part that is not a part of the range, or of its multiples."""
    db, stored = tmp_path / "store.sqlite", (12, 64, 1)
    kept(db, Dim("s", 12, 64), gain=1.5)
    assert ends(compiled(db, None, Dim("s", 1, 100)))[0] == stored
    for dim in (Dim("s", 16, 100), Dim("s", 1, 63), Dim("s", 2, 100, 2)):
        assert ends(compiled(db, None, dim))[0] != stored, dim
    other = compiled(db, None, Dim("s", 1, 100), lambda x: torch.nn.functional.gelu(x).sum(-1))
    assert ends(other)[0] == (1, 1, 1)


def test_an_artefact_has_the_rows_of_the_store(tmp_path: Path, dplc: Command) -> None:
    """And the list of the store says what ranges its entries are of."""
    db, folder = tmp_path / "store.sqlite", tmp_path / "made"
    kept(db, Dim("s", 12, 64, 4), gain=1.5)
    err = dplc("compile --no-cubins -o", folder, *FOR_ROWS.split(), db, "-c", TEXT).err
    assert "row `s` 12..64" in err and "64x96 for 12..64 by 4" in dplc("db list --db", db).out
    first, *others = (row[0] for row in json.loads((folder / "plan.json").read_text())["rows"])
    assert first == {"name": "s", "low": 12, "high": 64, "multiple": 4, "hint": None}
    assert [(row["low"], row["high"]) for row in others][:4] == [(1, 1), (2, 8), (9, 16), (17, 32)]


def test_keys_are_of_ranges() -> None:
    """A hint changes the extents of a key; another range the key, but not its family; a name nothing."""
    rules = toolchain().rules
    (renamed,) = compiled(False, (), Dim("length", 9, 64)).compilation.plan.kernels
    rows = (kernel_of(row) for row in (ROW, replace(ROW, hint=9), replace(ROW, high=65, hint=64)))
    usual, later, wider, other = (key_of(kernel, MACHINE, rules) for kernel in (*rows, renamed))
    assert usual.kernel == later.kernel == other.kernel != wider.kernel
    assert usual.family == later.family == wider.family and usual.extents != later.extents


# ---- candidates with lengths


@pytest.fixture
def row() -> ScheduleCandidate:
    return Space(toolchain(), (kernel_of(ROW),), MACHINE).default()


def test_times_are_those_of_the_hint(row: ScheduleCandidate) -> None:
    evaluate = PredictingEvaluator()
    assert sizes_in(row.loops)["s"].hint == 64
    assert evaluate(row).seconds == evaluate(replace(row, tile=with_hints(row.tile))).seconds
    assert [kernel.grid for kernel in row.as_a_rule.cuda] == [kernel.grid for kernel in row.at({"s": 64}).cuda]
    assert row.at({"s": 9}).cuda[0].values == (9,) and row.at({"s": 9}).cuda[0].text == row.cuda[0].text


def test_a_candidate_is_run_at_the_ends_and_beside_the_hint(row: ScheduleCandidate) -> None:
    assert verdict(row).how == "emulator, whole, at s=9 and s=64 and s=63"
    (cuda,) = row.cuda
    for length in (9, 63, 64):
        broken = replace(row)
        text = cuda.text.replace(") {\n", f") {{\n  if (s == {length}) return;\n", 1)
        broken.__dict__["cuda"] = (replace(cuda, text=text),)
        assert verdict(broken).finding.endswith(f"where s={length}")


# ---- the command


def test_rows_of_a_text_are_tuned_and_its_compile_finds_them(path: Path, dplc: Command) -> None:
    """A row of one number is a static kernel."""
    out, err = dplc("tune --row 9..64 --tries 12 --json", *FOR_ROWS.split(), path, "-c", TEXT)
    (kernel,) = json.loads(out)["kernels"]
    assert kernel["kept"] and "`s` is 9..64; times are those of 64" in err
    out, err = dplc("tune --row 1 --tries 2 --top 1", *FOR_ROWS.split(), path, "-c", TEXT)
    assert "times are those of" not in err and "checked: emulator, whole; kept" in out
    program = compiled(path, [Dim("s", 1, 1), Dim("s", 2, 8), ROW, Dim("s", 65, 512)])
    assert sources(program, 1, 8, 9, 64, 65) == {1: "store", 8: "default", 9: "store", 64: "store", 65: "default"}


def test_a_whole_range_is_tuned_too(dplc: Command) -> None:
    text = f"torch.relu(torch.randn(dim(s, 4..64, 4, 32), dim(t, 1..9), {WIDTH}))"
    out, err = dplc("tune --tries 3 --no-db --jobs 2 --target sm_90a -c", text)
    assert "`s` is 4..64, a multiple of 4; times are those of 32" in err and "failed" not in out, out


@pytest.mark.usefixtures("captured_once")
def test_a_row_of_a_model(tmp_path: Path, dplc: Command) -> None:
    model, db = tmp_path / "tiny.json", tmp_path / "store.sqlite"
    model.write_text(json.dumps(TINY))
    out, err = dplc("tune --seq-len 1..16 --row 5..16:8 --tries 1", *FOR_ROWS.split(), db, model)
    assert "`s` is 5..16; times are those of 8" in err and "failed" not in out
    made: Any = package.compile_model(
        model, seq_len=Dim("s", 1, 16), rows=[Dim("s", 1, 4), Dim("s", 5, 16)], target="sm_90a", device="emulator", db=db
    )  # fmt: skip
    stored, default = ({one.source for one in made.compiled.rows.at({"s": n}).origins} for n in (7, 3))
    assert stored == {"store"} and "store" not in default


TWO = "torch.relu(torch.randn(dim(s, 1..9), dim(t, 1..9)))"


@pytest.mark.parametrize(
    ("text", "rows", "said"),
    [
        (TEXT, "--row 8-64", "--row 8-64: write A..B"),
        (TEXT, "--row 9..600", "`s` is 1..512, and a row is a part of that"),
        (TEXT, "--row 64..9", "a row is a part of that"),
        (TEXT, "--row t=9..64", "there is no size `t`"),
        (TEXT, "--row 9..64 --row s=1..8", "`s` has its row already"),
        (TEXT, "--row 9..64:65", "the hint of `s` is 65, which is not in 9..64"),
        (TWO, "--row 1..4", "its sizes are s, t"),
    ],
)
def test_rows_that_mean_nothing_are_told(text: str, rows: str, said: str, dplc: Command) -> None:
    err = dplc(f"tune {rows} --target sm_90a --no-db --tries 1 -c", text, code=2).err
    assert said in err
