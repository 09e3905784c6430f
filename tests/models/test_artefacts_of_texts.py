"""An artefact of a `-c` text: its sizes, rows and weights, run at any length without the text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import dplc
from dplc.engine.models import artefact
from dplc.engine.run.calls import accepted
from dplc.ir.diagnostic import DplcError

LOOKED_UP = "F.embedding(torch.randint(0, 9, (dim(b, 1..4), dim(s, 1..32, hint=8))), torch.randn(9, 8)).log_softmax(-1)"
CASES = {  # a text, options to run it with, and how many runs these are
    "m = nn.Linear(16, 24)\nm(torch.relu(torch.randn(dim(s, 1..64), 16)))": ("--size s=1,7,16,17,64", 5),
    LOOKED_UP: ("--size s=1,9 --size b=1,4", 4),
    "torch.log(torch.rand(dim(s, 4..64, by=4), 1, 8)).sum(0)": ("--size s=4,60", 2),
    "torch.softmax(torch.randn(8, 32), -1)": ("", 1),
    "torch.where(torch.rand(dim(s, 1..9)) > 0.5, 1, 2)": ("--size s=5", 1),
    "torch.randn(dim(s, 1..32), 32, dtype=torch.bfloat16).mean(0)": ("--size s=1,31", 2),
}


@pytest.fixture
def written(artefacts: dict[str, Path]) -> Path:
    return artefacts["text"]


@pytest.mark.parametrize("text", CASES)
@pytest.mark.sampled(3)
def test_one_folder_serves_every_length(text: str, tmp_path: Path, told: Callable[..., str]) -> None:
    folder, (sizes, runs) = tmp_path / "made", CASES[text]
    rows = "" if "Linear" in text else "--rows none"
    assert told(f"compile -o {folder} --no-cubins {rows} -c", text).startswith("0 ")
    said = told(f"run {folder} {sizes}")
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


def test_inputs_are_drawn_where_those_of_the_text_were(tmp_path: Path, told: Callable[..., str]) -> None:
    folder = tmp_path / "made"
    told(f"compile -o {folder} --no-cubins -c", LOOKED_UP)
    (words, table) = artefact.load(folder).plan.examples
    assert (words.dtype, words.shape, words.low, words.high) == ("i64", ("b", "s"), 0, 8)
    drawn = artefact.drawn([words, table], {"b": 4, "s": 32}, 3)
    assert drawn[words.name].shape == (4, 32) and set(drawn[words.name].unique().tolist()) == set(range(9))
    assert table.low <= drawn[table.name].min() and drawn[table.name].max() <= table.high


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("run {} --size s=65", "1 error: `s` is 65, which is not in 1..64"),
        ("run {} --ids 1,2", "takes x"),
        ("bench {}", "is of a text"),
        ("compile -c nn.Linear(4,4).weight*2 -o {}", "1 error: the text has no inputs"),
        ("compile -c torch.randn(4) -o {} --rows 2", "2 error: --rows goes with one range"),
    ],
)
def test_what_does_not_fit_is_told(line: str, said: str, written: Path, told: Callable[..., str]) -> None:
    assert said in told(line.format(written))
