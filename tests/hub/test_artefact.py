"""Artefacts: what is written is what is read, nothing of a half remains, and what is damaged says so."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import compiled

from dplc.codegen.nvrtc import find_nvrtc
from dplc.engine.hub import artefact
from dplc.engine.hub.compiling import CompiledModel
from dplc.ir.diagnostic import DplcError


@pytest.fixture(scope="module")
def model() -> CompiledModel:
    return compiled("llama")


def test_what_is_written_is_read(model: CompiledModel, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    artefact.save(model, folder, cubins=False)
    found = artefact.load(folder)
    assert found.program == model.program
    assert found.figures == model.figures and found.outputs == model.outputs and found.weights == model.weights
    assert found.torch_graph() == model.compilation.captured.graph
    assert found.constants.keys() == model.constants().keys()
    assert all(torch.equal(found.constants[name], value) for name, value in model.constants().items())
    assert sorted(path.name for path in folder.iterdir()) == [
        "constants.safetensors",
        "cuda",
        "figures.json",
        "ir",
        "plan.json",
    ]
    assert len(list((folder / "ir").iterdir())) == 5
    artefact.save(model, folder, cubins=False)  # an artefact may be replaced
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


@pytest.mark.skipif(find_nvrtc() is None, reason="NVRTC is not here")
def test_cubins_are_for_the_target(model: CompiledModel, tmp_path: Path) -> None:
    artefact.save(model, tmp_path / "made")
    found = artefact.load(tmp_path / "made")
    images = found.images()
    assert images.keys() == {(kernel.text, "sm_80") for kernel in model.program.distinct_kernels()}
    assert all(image.startswith(b"\x7fELF") for image in images.values())
    edited = found.folder / "cuda" / f"{found.plan.kernels[0].name}.cu"
    edited.write_text(edited.read_text() + "// edited\n")
    with_edit = artefact.load(tmp_path / "made")
    assert found.program.kernels[0].text != with_edit.program.kernels[0].text


def test_an_interrupt_leaves_nothing(model: CompiledModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(artefact, "_save_constants", interrupt)
    with pytest.raises(KeyboardInterrupt):
        artefact.save(model, tmp_path / "made", cubins=False)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    artefact.save(model, tmp_path / "made", cubins=False)
    before = (tmp_path / "made" / "plan.json").read_bytes()
    monkeypatch.setattr(artefact, "_save_constants", interrupt)
    with pytest.raises(KeyboardInterrupt):
        artefact.save(model, tmp_path / "made", cubins=False)
    assert (tmp_path / "made" / "plan.json").read_bytes() == before


def test_other_peoples_folders_are_left_alone(model: CompiledModel, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years")
    with pytest.raises(DplcError, match="is there and is no artefact"):
        artefact.save(model, tmp_path / "mine", cubins=False)
    (tmp_path / "file").write_text("")
    with pytest.raises(DplcError, match="is there and is no artefact"):
        artefact.save(model, tmp_path / "file", cubins=False)
    with pytest.raises(DplcError, match="cannot write"):
        artefact.save(model, tmp_path / "file" / "inside", cubins=False)


def _edited(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    plan = json.loads(path.read_text())
    change(plan)
    path.write_text(json.dumps(plan))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda at: shutil.rmtree(at), "is not there"),
        (lambda at: (at / "plan.json").unlink(), "is no artefact"),
        (lambda at: (at / "plan.json").write_text("{"), "does not fit its schema"),
        (lambda at: _edited(at / "plan.json", lambda p: p.update(format=99)), "is of format 99"),
        (lambda at: _edited(at / "plan.json", lambda p: p.pop("launches")), "does not fit its schema"),
        (lambda at: _edited(at / "plan.json", lambda p: p["launches"][0].update(kernel=99)), "contradicts itself"),
        (lambda at: _edited(at / "plan.json", lambda p: p["launches"][0]["buffers"].reverse()), "contradicts itself"),
        (lambda at: _edited(at / "plan.json", lambda p: p["kernels"][0].update(name="../x")), "cannot be called"),
        (lambda at: (at / "figures.json").unlink(), "the artefact is damaged"),
        (lambda at: next((at / "cuda").iterdir()).unlink(), "the artefact is damaged"),
        (lambda at: (at / "constants.safetensors").write_bytes(b""), "the artefact is damaged"),
    ],
)
def test_damage_is_told(model: CompiledModel, tmp_path: Path, damage: Callable[[Path], Any], said: str) -> None:
    artefact.save(model, tmp_path / "made", cubins=False)
    damage(tmp_path / "made")
    with pytest.raises(DplcError, match=said):
        artefact.load(tmp_path / "made")
