"""An artefact of a `-c` text: its sizes, rows and weights, run at any length without the text."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import dplc
from dplc.engine.cli.app import main
from dplc.engine.models import artefact
from dplc.engine.models.plan_file import seal
from dplc.engine.run.calls import accepted
from dplc.ir.diagnostic import DplcError

LINEAR = "m = nn.Linear(16, 24)\nm(torch.relu(torch.randn(dim(s, 1..64), 16)))"
LOOKED_UP = "F.embedding(torch.randint(0, 9, (dim(b, 1..4), dim(s, 1..32, hint=8))), torch.randn(9, 8)).log_softmax(-1)"
CASES = {
    LINEAR: (("--size", "s=1,7,16,17,64"), 5),
    LOOKED_UP: (("--size", "s=1,9", "--size", "b=1,4"), 4),
    "torch.log(torch.rand(dim(s, 4..64, by=4), 1, 8)).sum(0)": (("--size", "s=4,60"), 2),
    "torch.softmax(torch.randn(8, 32), -1)": ((), 1),
    "torch.where(torch.rand(dim(s, 1..9)) > 0.5, 1, 2)": (("--size", "s=5"), 1),
    "torch.randn(dim(s, 1..32), 32, dtype=torch.bfloat16).mean(0)": (("--size", "s=1,31"), 2),
}


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The exit code and all that was said."""
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    out, said = capsys.readouterr()
    return f"{stop.value.code} {out}{said}"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("artefacts") / "linear"
    with pytest.raises(SystemExit):
        main(["compile", "-c", LINEAR, "--rows", "1,16", "-o", str(folder), "--no-cubins"])
    return folder


@pytest.mark.parametrize("text", CASES)
@pytest.mark.sampled(3)
def test_one_folder_serves_every_length(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, (sizes, runs) = str(tmp_path / "made"), CASES[text]
    rows = () if text == LINEAR else ("--rows", "none")
    assert told(capsys, "compile", "-c", text, "-o", folder, "--no-cubins", *rows).startswith("0 ")
    said = told(capsys, "run", folder, *sizes)
    assert said.startswith("0 ") and said.count(": ok") == runs, said
    assert "made up" not in said


def test_rows_and_weights_are_those_of_the_text(written: Path) -> None:
    found = artefact.load(written)
    assert [[(c.low, c.high) for c in row] for row in found.plan.rows] == [[(1, 1)], [(2, 16)]]
    for length, served in ((1, found.rows[0]), (2, found.rows[1]), (16, found.rows[1]), (17, found), (64, found)):
        assert found.at({"s": length}).constants is served.constants
    assert not found.weights and not found.plan.config
    loaded = dplc.load_model(written, device="emulator")
    torch.manual_seed(0)  # that of the text
    module = torch.nn.Linear(16, 24)
    for length in (1, 9, 40):
        x = torch.randn(length, 16)
        own = module(x.relu())
        assert accepted([loaded(x)], [module.double()(x.double().relu())], [own])
        module.float()
    with pytest.raises(DplcError, match=r"`s` is 65 \(dimension 0 of `x`\); compiled for 1\.\.64"):
        loaded(torch.randn(65, 16))


def test_inputs_are_drawn_where_those_of_the_text_were(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "made"
    told(capsys, "compile", "-c", LOOKED_UP, "-o", str(folder), "--no-cubins")
    (words, table) = artefact.load(folder).plan.examples
    assert (words.dtype, words.shape, words.low, words.high) == ("i64", ("b", "s"), 0, 8)
    drawn = artefact.drawn([words, table], {"b": 4, "s": 32}, 3)
    assert drawn[words.name].shape == (4, 32) and set(drawn[words.name].unique().tolist()) == set(range(9))
    assert table.low <= drawn[table.name].min() and drawn[table.name].max() <= table.high


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "FOLDER", "--size", "s=65"), "1 error: `s` is 65, which is not in 1..64"),
        (("run", "FOLDER", "--ids", "1,2"), "takes x"),
        (("bench", "FOLDER"), "is of a text"),
        (("compile", "-c", "nn.Linear(4, 4).weight * 2", "-o", "FOLDER"), "1 error: the text has no inputs"),
        (("compile", "-c", "torch.randn(4)", "-o", "FOLDER", "--rows", "2"), "2 error: --rows goes with one range"),
        (("compile", "-c", "torch.randn(4)", "--rows", "2"), "2 error: `--rows` goes with `--out`"),
    ],
)
def test_what_does_not_fit_is_told(
    arguments: tuple[str, ...], said: str, written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in told(capsys, *(str(written) if part == "FOLDER" else part for part in arguments))


def _examples(change: Callable[[list[dict[str, Any]]], Any]) -> Callable[[dict[str, Any]], Any]:
    return lambda plan: change(plan["examples"])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_examples(lambda e: e.clear()), "`x` is not there"),
        (_examples(lambda e: e[0].update(low=3.0, high=2.0)), "its ends are not a range"),
        (_examples(lambda e: e[0].update(high=1e30)), "its ends are not a range"),
        (_examples(lambda e: e[0].update(shape=["s", 8])), "has other elements"),
        (_examples(lambda e: e[0].update(shape=["s*16"])), "no input tells `s`"),
        (_examples(lambda e: e.append(e[0])), "is there twice"),
        (_examples(lambda e: e[0].update(shape=["t", 16])), "`t` is not an extent"),
    ],
)
@pytest.mark.sampled(3)
def test_damage_is_told(change: Callable[[dict[str, Any]], Any], said: str, written: Path, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    shutil.copytree(written, folder)
    plan = json.loads((folder / "plan.json").read_text())
    change(plan)
    (folder / "plan.json").write_text(json.dumps(plan))
    seal(folder, "0")
    with pytest.raises(DplcError, match="damaged") as caught:
        artefact.load(folder)
    assert said in caught.value.what
