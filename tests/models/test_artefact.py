"""Artefacts: what is written is what is read, nothing of a half remains, and what is damaged says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import dplc
from dplc.codegen.compiler import find_nvrtc
from dplc.engine.models import artefact
from dplc.engine.models.compiling import CompiledModel
from dplc.engine.models.plan_file import seal
from dplc.ir.diagnostic import DplcError, InternalError

pytestmark = pytest.mark.usefixtures("parsed_once")


def test_what_is_written_is_read(model: CompiledModel, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    artefact.save(model, folder, cubins=False)
    found = artefact.load(folder)
    assert found.program == model.program
    assert found.figures == model.figures and found.weights == model.weights
    assert found.at({}).outputs == model.at({}).outputs
    assert found.torch_graph({}) == model.compilation.captured.graph
    assert found.constants.keys() == model.constants().keys()
    assert all(torch.equal(found.constants[name], value) for name, value in model.constants().items())
    names = "constants.safetensors cuda dplc-artefact.json figures.json ir plan.json"
    assert sorted(path.name for path in folder.iterdir()) == names.split()
    assert len(list((folder / "ir").iterdir())) == 5
    artefact.save(model, folder, cubins=False)  # an artefact may be replaced
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


@pytest.mark.skipif(find_nvrtc() is None, reason="NVRTC is not here")
def test_cubins_are_for_the_target(model: CompiledModel, tmp_path: Path) -> None:
    artefact.save(model, tmp_path / "made")
    found = artefact.load(tmp_path / "made")
    images = found.images
    assert images.keys() == {(kernel.text, "sm_80") for kernel in model.program.distinct_kernels()}
    assert all(image.startswith(b"\x7fELF") for image in images.values())
    cut = next((tmp_path / "made" / "cubin").iterdir())
    cut.write_bytes(cut.read_bytes()[:-1])
    with pytest.raises(DplcError, match=f"{cut.name} has .* bytes; dplc wrote"):
        artefact.load(tmp_path / "made")


def test_an_interrupt_leaves_nothing(model: CompiledModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(artefact, "plan_of", interrupt)
    with pytest.raises(KeyboardInterrupt):
        artefact.save(model, tmp_path / "made", cubins=False)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    artefact.save(model, tmp_path / "made", cubins=False)
    before = (tmp_path / "made" / "plan.json").read_bytes()
    monkeypatch.setattr(artefact, "plan_of", interrupt)
    with pytest.raises(KeyboardInterrupt):
        artefact.save(model, tmp_path / "made", cubins=False)
    assert (tmp_path / "made" / "plan.json").read_bytes() == before


@pytest.mark.parametrize("stage", ["torch", "kernel"])
def test_dumps_that_nest_too_deep_are_told(made: Path, stage: str) -> None:
    (made / "ir" / f"{stage}.ir").write_text(
        "kernel x(a: f32[" + "(" * 9000 + "1" + ")" * 9000 + "]) -> b: f32[1]:\n    pass\n"
    )
    seal(made, "somebody")
    with pytest.raises(DplcError):
        artefact.load(made).torch_graph({})


EVIL = """
extern "C" int system(const char*);
__attribute__((constructor)) static void trip() {{ system("touch {canary}"); }}
"""


def test_cuda_of_somebody_else_is_not_run(made: Path, tmp_path: Path) -> None:
    canary, path = tmp_path / "canary", next((made / "cuda").iterdir())
    path.write_text(path.read_text() + EVIL.format(canary=canary))
    for _ in range(2):
        with pytest.raises(DplcError, match=r"is not what this dplc .* prints") as told:
            dplc.load_model(made, device="emulator")
        assert "--trust-edited-cuda" in (told.value.hint or "")
        seal(made, "somebody")
    assert not canary.exists()
    trusted = artefact.load(made, trust_edited_cuda=True)
    assert any("system" in kernel.text for kernel in trusted.program.kernels)


def test_comments_carry_no_code(made: Path) -> None:
    """The one part of a kernel's text that no IR says."""
    plan = json.loads((made / "plan.json").read_text())
    name, comment = next(iter(plan["kernels"].items()))
    path = made / "cuda" / f"{name}.cu"
    evil = 'rules: a\nextern "C" int system(const char*);'
    text = path.read_text()
    path.write_text(text.replace(f"// {comment.splitlines()[0]}", "// rules: a\n" + evil.splitlines()[1]))
    plan["kernels"][name] = evil
    (made / "plan.json").write_text(json.dumps(plan))
    seal(made, "somebody")
    with pytest.raises(DplcError, match="`comment` of kernel"):
        artefact.load(made)


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (ValueError("no such register"), "no such register"),
        (InternalError("too wide"), "too wide"),
        (KeyError(), "KeyError"),
    ],
)
def test_what_the_printer_cannot_take_is_told(
    made: Path, monkeypatch: pytest.MonkeyPatch, raised: Exception, said: str
) -> None:
    """A kernel of somebody else may pass every check and still be none that anybody would make."""

    def printed(*_: Any) -> Any:
        raise raised

    monkeypatch.setattr(artefact, "print_cuda", printed)
    with pytest.raises(DplcError, match=rf"the artefact is damaged: .*kernel `\w+`: {said}$") as told:
        artefact.load(made)
    assert told.value.exit_code == 1
