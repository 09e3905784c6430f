"""Schedules for a part of a range of lengths: searched at its hint, checked at its ends, taken by that row alone."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import dplc
from dplc.engine.capture.dynamic_shapes import Dim
from dplc.engine.cli.app import main
from dplc.engine.ruleset import toolchain
from dplc.engine.run.calls import accepted
from dplc.engine.schedule.space import ScheduleCandidate, Space
from dplc.engine.store.store import SqliteStore, Tuned, key_of
from dplc.engine.tune.evaluators import PredictingEvaluator, verdict
from dplc.engine.tune.search import random_token
from dplc.ir.program import Kernel
from dplc.ir.sizes import sizes_in
from dplc.ir.substitute import with_hints
from tests.tune.subjects import MACHINE, TINY

WIDTH = 96
TEXT = f"F.silu(torch.randn(dim(s, 1..512), {WIDTH})).sum(-1)"
ROWS = [Dim("s", 1, 8), Dim("s", 9, 64), Dim("s", 65, 512)]


def rows_of_silu(x: Any) -> Any:
    return torch.nn.functional.silu(x).sum(-1)


def compiled(db: Path | bool, rows: Any = ROWS, hint: int = 512) -> Any:
    return dplc.compile(
        rows_of_silu, (torch.randn(33, WIDTH),), dynamic={"x": {0: Dim("s", 1, 512, hint=hint)}}, rows=rows,
        target="sm_90a", device="emulator", db=db,
    )  # fmt: skip


def kernel_of(row: Dim) -> Kernel:
    (kernel,) = compiled(False, [row]).rows.at({"s": row.high}).plan.kernels
    return kernel  # type: ignore[no-any-return]


def candidate_of(row: Dim) -> ScheduleCandidate:
    return Space(toolchain(), (kernel_of(row),), MACHINE).default()


def another(space: Space, slower: float) -> tuple[ScheduleCandidate, float]:
    """A schedule that is right, and slower than the default one by the model."""
    judge, default = PredictingEvaluator(), space.default()
    least = judge(default).seconds
    for seed in range(60):
        dice = random.Random(seed)
        found = space.walk(lambda space, state, slot, dice=dice: random_token(space, state, dice))  # type: ignore[misc]
        seconds = judge(found).seconds
        if seconds is not None and least is not None and seconds > slower * least and verdict(found).right:
            return found, seconds
    raise AssertionError("no draw is another schedule")


def test_a_stored_schedule_changes_the_kernels_of_its_row_only(tmp_path: Path) -> None:
    """Whatever the hint of the range is that the row is a part of."""
    db, rows = tmp_path / "store.sqlite", (8, 64, 512)
    kernel, rules = kernel_of(ROWS[1]), toolchain().rules
    chosen, seconds = another(Space(toolchain(), (kernel,), MACHINE), 1.2)
    with SqliteStore(db, rules) as store:
        key = key_of(kernel, MACHINE, rules)
        assert store.put(key, Tuned(chosen.schedule, seconds, "predicted", seconds, "random", 0, 1, "emulator"))
    plain, tuned = compiled(False), compiled(db)
    same = {n: plain.rows.at({"s": n}).cuda == tuned.rows.at({"s": n}).cuda for n in rows}
    assert same == {8: True, 64: False, 512: True}
    origins = {n: tuned.rows.at({"s": n}).origins[0].source for n in rows}
    assert origins == {8: "default", 64: "store", 512: "default"} and plain.cuda == tuned.cuda
    for n in (1, 9, 63, 64, 65):
        x = torch.randn(n, WIDTH)
        assert accepted([tuned(x)], [rows_of_silu(x.double())]), n


def kept(db: Path, row: Dim, gain: float) -> None:
    """A row of SiLU in the store under another schedule than the default one: by figures that are made up."""
    kernel, rules = kernel_of(row), toolchain().rules
    chosen, seconds = another(Space(toolchain(), (kernel,), MACHINE), 1.1)
    with SqliteStore(db, rules) as store:
        found = Tuned(chosen.schedule, seconds, "predicted", gain * seconds, "random", 0, 1, "emulator")
        assert store.put(key_of(kernel, MACHINE, rules), found)


def ends(program: Any) -> list[tuple[int, int, int]]:
    return [(dim.low, dim.high, dim.multiple) for (dim,) in program.rows.rows]


def test_rows_are_chosen_by_the_store(tmp_path: Path) -> None:
    """Ranges that were tuned, a length too, are rows unasked; the usual rows give way to them."""
    db = tmp_path / "store.sqlite"
    usual = [(1, 1), (2, 8), (9, 16), (17, 32), (33, 64), (65, 128), (129, 256), (257, 512)]
    assert [(low, high) for low, high, _ in ends(compiled(db, rows=None))] == usual
    for row in (Dim("s", 12, 64), Dim("s", 100, 100), Dim("s", 132, 512, 4, hint=200)):
        kept(db, row, gain=1.5)
    kept(db, Dim("s", 65, 70), gain=1)  # no faster than the default order
    for rows in (None, True):
        program = compiled(db, rows=rows)
        stored, others = ends(program)[:3], ends(program)[3:]
        assert stored == [(100, 100, 1), (12, 64, 1), (132, 512, 4)]
        assert others == [(*part, 1) for part in ((1, 1), (2, 8), (9, 11), *usual[5:])]
    hints = {dim.low: dim.hint for (dim,) in program.rows.rows}
    assert hints[132] == 200 and hints[9] == 11  # where the store judged it; the greatest of a usual row
    origins = {n: program.rows.at({"s": n}).origins[0].source for n in (64, 100, 132, 512)}
    assert origins == dict.fromkeys((64, 100, 132, 512), "store")
    assert program.rows.at({"s": 511}).origins[0].source != "store" and program.rows.at({"s": 100}).sizes == {}
    for n in (1, 11, 12, 64, 100, 131, 132, 133, 512):
        x = torch.randn(n, WIDTH)
        assert accepted([program(x)], [rows_of_silu(x.double())]), n
    assert ends(compiled(db, rows=[Dim("s", 1, 8)])) == [(1, 8, 1)] and compiled(db, rows=()).rows.rows == ()


def test_the_store_of_another_program_chooses_no_rows(tmp_path: Path) -> None:
    """Nor does a part that is not a part of the range, or of its multiples."""
    db = tmp_path / "store.sqlite"
    kept(db, Dim("s", 12, 64), gain=1.5)

    def first(function: Any, dim: Dim) -> tuple[int, int, int]:
        made = dplc.compile(function, (torch.randn(36, WIDTH),), dynamic={"x": {0: dim}}, target="sm_90a", db=db)
        return ends(made)[0]

    assert first(rows_of_silu, Dim("s", 1, 100)) == (12, 64, 1)
    for dim in (Dim("s", 16, 100), Dim("s", 1, 63), Dim("s", 2, 100, 2)):
        assert first(rows_of_silu, dim) != (12, 64, 1), dim
    assert first(lambda x: torch.nn.functional.gelu(x).sum(-1), Dim("s", 1, 100)) == (1, 1, 1)


def test_an_artefact_has_the_rows_of_the_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And the list of the store says what ranges its entries are of."""
    db, folder = tmp_path / "store.sqlite", tmp_path / "made"
    kept(db, Dim("s", 12, 64, 4), gain=1.5)
    for asked in (
        ["compile", "-c", TEXT, "-o", str(folder), "--target", "sm_90a", "--db", str(db), "--no-cubins"],
        ["db", "list", "--db", str(db)],
    ):
        with pytest.raises(SystemExit) as stop:
            main(asked)
        assert not stop.value.code
    seen = capsys.readouterr()
    assert "64x96 for 12..64 by 4" in seen.out and "row `s` 12..64" in seen.err
    first, *others = (row[0] for row in json.loads((folder / "plan.json").read_text())["rows"])
    assert first == {"name": "s", "low": 12, "high": 64, "multiple": 4, "hint": None}
    assert [(row["low"], row["high"]) for row in others][:4] == [(1, 1), (2, 8), (9, 16), (17, 32)]


def test_keys_are_of_ranges() -> None:
    rules = toolchain().rules
    usual, later, wider = (
        kernel_of(replace(ROWS[1], high=high, hint=hint)) for high, hint in ((64, 64), (64, 9), (65, 64))
    )
    assert usual != later
    keys = [key_of(kernel, MACHINE, rules) for kernel in (usual, later, wider)]
    assert keys[0].kernel == keys[1].kernel != keys[2].kernel
    assert keys[0].family == keys[1].family == keys[2].family and keys[0].extents != keys[1].extents
    renamed = dplc.compile(
        rows_of_silu, (torch.randn(33, WIDTH),), dynamic={"x": {0: Dim("length", 9, 64)}}, target="sm_90a", db=False
    ).compilation.plan.kernels[0]  # fmt: skip
    assert key_of(renamed, MACHINE, rules).kernel == keys[0].kernel


def test_times_are_those_of_the_hint() -> None:
    row = candidate_of(ROWS[1])
    assert sizes_in(row.loops)["s"].hint == 64
    judge = PredictingEvaluator()
    assert judge(row).seconds == judge(replace(row, tile=with_hints(row.tile))).seconds
    assert [kernel.grid for kernel in row.as_a_rule.cuda] == [kernel.grid for kernel in row.at({"s": 64}).cuda]
    assert row.at({"s": 9}).cuda[0].values == (9,) and row.at({"s": 9}).cuda[0].text == row.cuda[0].text


def test_a_candidate_is_run_at_the_ends_and_beside_the_hint() -> None:
    row = candidate_of(ROWS[1])
    assert verdict(row).how == "emulator, whole, at s=9 and s=64 and s=63"
    (cuda,) = row.cuda
    for length in (9, 63, 64):
        broken = replace(row)
        text = cuda.text.replace(") {\n", f") {{\n  if (s == {length}) return;\n", 1)
        broken.__dict__["cuda"] = (replace(cuda, text=text),)
        found = verdict(broken)
        assert not found.right and found.finding.endswith(f"where s={length}"), found


def tuned_by_command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(["tune", "--target", "sm_90a", *arguments])
    seen = capsys.readouterr()
    return int(stop.value.code or 0), seen.out, seen.err


def test_a_row_of_a_text_is_tuned_and_its_compile_finds_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    db = tmp_path / "store.sqlite"
    asked = ["-c", TEXT, "--row", "9..64", "--tries", "12", "--db", str(db), "--json"]
    code, out, err = tuned_by_command(capsys, *asked)
    (kernel,) = json.loads(out)["kernels"]
    assert code == 0 and "`s` is 9..64; times are those of 64" in err
    assert kernel["kept"] and kernel["checked"] == "emulator, whole, at s=9 and s=64 and s=63"
    program = compiled(db)
    assert [program.rows.at({"s": n}).origins[0].source == "store" for n in (8, 9, 64, 65)] == [
        False,
        True,
        True,
        False,
    ]
    folder = tmp_path / "made"
    with pytest.raises(SystemExit):
        main(
            [
                "compile",
                "-c",
                TEXT,
                "--rows",
                "8,64",
                "-o",
                str(folder),
                "--target",
                "sm_90a",
                "--db",
                str(db),
                "--no-cubins",
            ]
        )
    assert "row `s` 9..64: 1 of 1 schedules are from the store" in capsys.readouterr().err and folder.is_dir()


def test_a_row_of_one_number_is_a_static_kernel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    db = tmp_path / "store.sqlite"
    code, out, err = tuned_by_command(
        capsys, "-c", TEXT, "--row", "s=1..1", "--tries", "2", "--top", "1", "--db", str(db)
    )
    assert code == 0 and "times are those of" not in err and "checked: emulator, whole; kept" in out
    assert compiled(db, [Dim("s", 1, 1)]).rows.at({"s": 1}).origins[0].source == "store"


def test_a_whole_range_is_tuned_too(capsys: pytest.CaptureFixture[str]) -> None:
    text = f"torch.relu(torch.randn(dim(s, 4..64, 4, 32), dim(t, 1..9), {WIDTH}))"
    code, out, err = tuned_by_command(capsys, "-c", text, "--tries", "3", "--no-db", "--jobs", "2")
    assert code == 0 and "`s` is 4..64, a multiple of 4; times are those of 32" in err and "failed" not in out, out


@pytest.mark.usefixtures("captured_once")
def test_a_row_of_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, db = tmp_path / "tiny.json", tmp_path / "store.sqlite"
    model.write_text(json.dumps(TINY))
    asked = [str(model), "--seq-len", "1..16", "--row", "5..16:8", "--tries", "1", "--db", str(db)]
    code, out, err = tuned_by_command(capsys, *asked)
    assert code == 0 and "`s` is 5..16; times are those of 8" in err and "failed" not in out
    made = dplc.compile_model(
        model, seq_len=Dim("s", 1, 16), rows=[Dim("s", 1, 4), Dim("s", 5, 16)], target="sm_90a", device="emulator", db=db
    )  # fmt: skip
    rows = made.compiled.rows  # type: ignore[union-attr]
    assert rows is not None
    assert {origin.source for origin in rows.at({"s": 7}).origins} == {"store"}
    assert "store" not in {origin.source for origin in rows.at({"s": 3}).origins}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-c", TEXT, "--row", "8"), ""),
        (("-c", TEXT, "--row", "8-64"), "--row 8-64: write A..B"),
        (("-c", TEXT, "--row", "9..600"), "`s` is 1..512, and a row is a part of that"),
        (("-c", TEXT, "--row", "64..9"), "a row is a part of that"),
        (("-c", TEXT, "--row", "t=9..64"), "there is no size `t`"),
        (("-c", TEXT, "--row", "9..64", "--row", "s=1..8"), "`s` has its row already"),
        (("-c", TEXT, "--row", "9..64:65"), "the hint of `s` is 65, which is not in 9..64"),
        (("-c", "torch.relu(torch.randn(dim(s, 1..9), dim(t, 1..9)))", "--row", "1..4"), "its sizes are s, t"),
        (("-c", "torch.relu(torch.randn(9))", "--row", "1..4"), "nothing in it is a size"),
    ],
)
def test_rows_that_mean_nothing_are_told(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = tuned_by_command(capsys, *arguments, "--no-db", "--tries", "1")
    assert (code == 2 and said in err) if said else code == 0
