"""An artefact of a model with sizes: one folder for every length, with the table of rows that says what serves a call."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from drawing import some
from tiny_models import of_transformers, source

import dplc
from dplc.codegen.target import target
from dplc.engine.capture.dynamic_shapes import Dim
from dplc.engine.cli.app import main
from dplc.engine.compiler import compiler_with
from dplc.engine.models import artefact
from dplc.engine.models.compiling import CompiledModel, ModelShape, compile_model
from dplc.engine.models.plan_file import extent_at, seal
from dplc.engine.models.sources import make
from dplc.engine.run.calls import accepted, row_for
from dplc.ir.diagnostic import DplcError

SHAPE = ModelShape(Dim("s", 1, 64, hint=32), Dim("b", 1, 3, hint=2))
ROWS = [Dim("s", 1, 1), (Dim("s", 2, 16), Dim("b", 1, 1)), Dim("s", 4, 64, multiple=4)]
READ = artefact.read_program
PARSED = functools.lru_cache(64)(READ)


def _read(text: str, name: str, sizes: dict[str, int] | None) -> Any:
    return READ(text, name, sizes) if sizes is not None else PARSED(text, name, None)


@pytest.fixture(autouse=True)
def _parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same text is the same program: only what a test changes is parsed anew."""
    monkeypatch.setattr(artefact, "read_program", _read)


@pytest.fixture(scope="module")
def model() -> CompiledModel:
    return compile_model(source("llama"), SHAPE, compiler_with(target("sm_80")), ROWS)


@pytest.fixture(scope="module")
def written(model: CompiledModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("artefacts") / "whole"
    artefact.save(model, folder, cubins=False)
    return folder


@pytest.fixture
def made(written: Path, tmp_path: Path) -> Path:
    shutil.copytree(written, tmp_path / "made")
    return tmp_path / "made"


def test_one_folder_serves_every_length(model: CompiledModel, written: Path) -> None:
    loaded = dplc.load_model(written, device="emulator")
    weights = make(model.weights)
    for batch, length in some(((1, 1), (2, 9), (3, 64), (1, 16), (1, 9), (1, 63), (2, 1)), 3):
        ids = torch.randint(0, 50, (batch, length))
        want, own = (
            of_transformers("llama", weights, model.weights, ids, kind) for kind in (torch.double, torch.float)
        )
        got = loaded(ids)
        assert got.shape == (batch, length, 50)
        assert accepted([got], [want], [own]), (batch, length)


def test_what_is_read_launches_what_was_compiled(model: CompiledModel, written: Path) -> None:
    found = artefact.load(written)
    places = {(1, 1): 0, (9, 1): 1, (9, 2): None, (64, 3): 2, (63, 1): None, (16, 2): 2}
    for (length, batch), place in places.items():
        sizes = {"s": length, "b": batch}
        got, want = found.at(sizes), model.at(sizes)
        served = found if place is None else found.rows[place]
        assert row_for(found.plan.rows, sizes) == model.rows.place(sizes) == place
        assert got.program == served.at(sizes).program and got.constants is served.constants
        assert got.program == want.program and got.outputs == want.outputs
    assert found.plan.length == "s" and found.rows[0].plan.length == 1
    assert sorted(path.name for path in (written / "rows").iterdir()) == ["0", "1", "2"]


def test_a_model_in_python_takes_ranges(tmp_path: Path) -> None:
    (tmp_path / "tiny.json").write_text(json.dumps(source("llama").config))
    made = dplc.compile_model(
        tmp_path / "tiny.json", seq_len=Dim("s", 1, 32, hint=8), layers=1, device="emulator", rows=[Dim("s", 1, 4)]
    )
    assert [made(torch.randint(0, 50, (1, n))).shape[1] for n in (3, 32, 5)] == [3, 32, 5]
    assert isinstance(made.compiled, CompiledModel)
    assert len(list(made.compiled.rows.made)) == 1
    with pytest.raises(DplcError, match=r"`s` is 33 \(dimension 1 of `input_ids`\); compiled for 1\.\.32"):
        made(torch.randint(0, 50, (1, 33)))


def test_run_takes_sizes_and_tokens(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*options: str) -> str:
        with pytest.raises(SystemExit) as stop:
            main(["run", str(written), *options])
        out, said = capsys.readouterr()
        return f"{stop.value.code} {out}{said}"

    told = run("--size", "s=1,17", "--size", "b=2")
    assert told.startswith("0 b=2, s=1:\n") and "b=2, s=17:\n" in told and told.count(": ok") == 2
    assert "float32[1, 3, 50]" in run("--ids", "1,2,3")
    assert "float32[2, 3, 50]" in run("--ids", "1 2 3 4 5 6", "--size", "b=2", "--size", "s=3")
    assert "1 error: `s` is 65, which is not in 1..64" in run("--size", "s=65", "--size", "b=1")
    assert "2 error: --size t=1" in run("--size", "t=1")


def _edit(change: Callable[[dict[str, Any]], Any], where: str = "plan.json") -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        plan = json.loads((folder / where).read_text())
        change(plan)
        (folder / where).write_text(json.dumps(plan))

    return damage


def _weight(plan: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(iter(plan["weights"].values()))
    return found


def _size(plan: dict[str, Any], name: str = "s") -> dict[str, Any]:
    return next(size for size in plan["sizes"] if size["name"] == name)


DAMAGES: list[tuple[Callable[[Path], Any], str]] = [
    (_edit(lambda p: _size(p).update(high=65)), "`s` has another range in kernel"),
    (_edit(lambda p: _size(p).update(low=0)), "sizes.*low"),
    (_edit(lambda p: _size(p).update(low=90)), "damaged.*goes from|damaged.*`s`"),
    (_edit(lambda p: p["sizes"].pop()), "`s` is not an extent made of b"),
    (_edit(lambda p: p["sizes"].append(_size(p))), "a name is there twice"),
    (_edit(lambda p: p["sizes"].extend([_size(p)] * 9)), "sizes"),
    (_edit(lambda p: p.update(length="t")), "`t` is not an extent made of b, s"),
    (_edit(lambda p: p.update(length="b")), "tokens"),
    (_edit(lambda p: p.update(length="__import__('os')")), "does not fit its schema"),
    (_edit(lambda p: p["inputs"][0].update(shape=["s*2", "b"])), "contradicts|damaged"),
    (_edit(lambda p: p["inputs"][0].update(shape=["b", "s**9"])), r"`s\*\*9` is not an extent"),
    (_edit(lambda p: p["inputs"][0].update(shape=["b", "s // (s - s)"])), "is not an extent"),
    (_edit(lambda p: p["inputs"][0].update(shape=["b", "s(1)"])), "is not an extent"),
    (_edit(lambda p: p["results"][0].update(shape=["b", 32, 50])), "`results`: f32"),
    (_edit(lambda p: p["temporaries"][0].update(shape=["s*s*s"])), "contradicts itself"),
    (_edit(lambda p: p["constants"][0].update(shape=["s"])), "depends on a size|contradicts itself"),
    (_edit(lambda p: p.update(aliases={"out": "x"})), "of a plan with sizes there are none|contradicts itself"),
    (_edit(lambda p: p["rows"].pop(0)), "row 0: "),
    (_edit(lambda p: p["rows"].append(p["rows"][0])), r"does not list rows/3/plan\.json"),
    (_edit(lambda p: p["rows"][0][0].update(high=2)), "row 0: `s` is a number in its plan"),
    (_edit(lambda p: p["rows"][0][0].update(low=2, high=2)), "row 0: "),
    (_edit(lambda p: p["rows"][2][0].update(high=65)), "row 2: `s` is 4..65, which is not a part of its range"),
    (_edit(lambda p: p["rows"][2][0].update(multiple=2)), "row 2: `s` is 4..64 in its plan"),
    (_edit(lambda p: p["rows"][2][0].update(low=61, high=63)), r"no number of 61\.\.63 is a multiple of 4"),
    (_edit(lambda p: p["rows"][1].pop()), "row 1: `b` is a number in its plan"),
    (_edit(lambda p: p["rows"][1][1].update(name="t")), "row 1: .*that the whole has not"),
    (_edit(lambda p: p["rows"][1].clear()), "rows"),
    (_edit(lambda p: p.update(arch="sm_90a"), "rows/0/plan.json"), "row 0: it is of another model"),
    (_edit(lambda p: _weight(p).update(names=["x"]), "rows/0/plan.json"), "row 0: `weights`"),
    (_edit(lambda p: p["inputs"][0].update(name="other"), "rows/2/plan.json"), "row 2|contradicts"),
    (lambda at: (at / "rows" / "1" / "plan.json").unlink(), r"does not list rows/1/plan\.json"),
    (lambda at: shutil.rmtree(at / "rows" / "1"), "does not list rows/1"),
]


@pytest.mark.parametrize(("damage", "said"), DAMAGES)
@pytest.mark.sampled(4)
def test_damage_is_told(made: Path, damage: Callable[[Path], Any], said: str) -> None:
    """Though somebody made the digests fit."""
    damage(made)
    seal(made, "somebody")
    with pytest.raises(DplcError, match=said) as told:
        artefact.load(made)
    assert told.value.exit_code == 1


@pytest.mark.parametrize(
    ("text", "number"), [("s", 7), ("s*2048", 14336), ("-(-s // 4)", 2), ("s*b + 3", 17), ("s % 4", 3), (5, 5)]
)
def test_extents_of_sizes(text: Any, number: int) -> None:
    assert extent_at(text, {"s": 7, "b": 2}) == number


@pytest.mark.parametrize("text", ["+s", "+-s", "~s", "not s", "t", "s.b", "s if b else 2", "1.5", "True"])
def test_what_is_no_extent(text: str) -> None:
    with pytest.raises(DplcError, match="is not an extent"):
        extent_at(text, {"s": 7, "b": 2})
