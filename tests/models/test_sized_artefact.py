"""An artefact of a model with sizes: one folder for every length, with the table of rows that says what serves a call."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from drawing import some
from tiny_models import of_transformers, source

import dplc
from dplc.engine.capture.dynamic_shapes import Dim
from dplc.engine.models import artefact
from dplc.engine.models.compiling import CompiledModel
from dplc.engine.models.plan_file import extent_at
from dplc.engine.models.sources import make
from dplc.engine.run.calls import accepted, row_for
from dplc.ir.diagnostic import DplcError

pytestmark = pytest.mark.usefixtures("parsed_once")


@pytest.fixture
def written(artefacts: dict[str, Path]) -> Path:
    return artefacts["sized"]


def test_one_folder_serves_every_length(sized_model: CompiledModel, written: Path) -> None:
    loaded = dplc.load_model(written, device="emulator")
    weights = make(sized_model.weights)
    for batch, length in some(((1, 1), (2, 9), (3, 64), (1, 16), (1, 9), (1, 63), (2, 1)), 3):
        ids = torch.randint(0, 50, (batch, length))
        want, own = (
            of_transformers("llama", weights, sized_model.weights, ids, kind) for kind in (torch.double, torch.float)
        )
        got = loaded(ids)
        assert got.shape == (batch, length, 50)
        assert accepted([got], [want], [own]), (batch, length)


def test_what_is_read_launches_what_was_compiled(sized_model: CompiledModel, written: Path) -> None:
    found = artefact.load(written)
    places = {(1, 1): 0, (9, 1): 1, (9, 2): None, (64, 3): 2, (63, 1): None, (16, 2): 2}
    for (length, batch), place in places.items():
        sizes = {"s": length, "b": batch}
        got, want = found.at(sizes), sized_model.at(sizes)
        served = found if place is None else found.rows[place]
        assert row_for(found.plan.rows, sizes) == sized_model.rows.place(sizes) == place
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


def test_run_takes_sizes_and_tokens(written: Path, told: Callable[..., str]) -> None:
    said = told(f"run {written} --size s=1,17 --size b=2")
    assert said.startswith("0 b=2, s=1:\n") and "b=2, s=17:\n" in said and said.count(": ok") == 2
    for options, wanted in {
        "--ids 1,2,3": "float32[1, 3, 50]",
        "--size b=2 --size s=3 --ids 1,2,3,4,5,6": "float32[2, 3, 50]",
        "--size s=65 --size b=1": "1 error: `s` is 65, which is not in 1..64",
        "--size t=1": "2 error: there is no size `t`",
    }.items():
        assert wanted in told(f"run {written} {options}")


@pytest.mark.parametrize(
    ("text", "number"), [("s", 7), ("s*2048", 14336), ("-(-s // 4)", 2), ("s*b + 3", 17), ("s % 4", 3), (5, 5)]
)
def test_extents_of_sizes(text: Any, number: int) -> None:
    assert extent_at(text, {"s": 7, "b": 2}) == number


@pytest.mark.parametrize("text", ["+s", "+-s", "~s", "not s", "t", "s.b", "s if b else 2", "1.5", "True"])
def test_what_is_no_extent(text: str) -> None:
    with pytest.raises(DplcError, match="is not an extent"):
        extent_at(text, {"s": 7, "b": 2})
