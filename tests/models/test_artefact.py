"""Artefacts: what is written is what is read, nothing of a half remains, and what is damaged says so."""

from __future__ import annotations

import functools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import compiled

import dplc
from dplc.codegen.compiler import find_nvrtc
from dplc.engine.models import artefact
from dplc.engine.models.compiling import CompiledModel
from dplc.engine.models.plan_file import seal
from dplc.ir.diagnostic import DplcError, InternalError


@pytest.fixture(scope="module")
def model() -> CompiledModel:
    return compiled("llama")


@pytest.fixture(autouse=True)
def _parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same text is the same program: only what a test changes is parsed anew."""
    monkeypatch.setattr(artefact, "read_program", _read)


READ = artefact.read_program
PARSED = functools.lru_cache(64)(READ)


def _read(text: str, name: str, sizes: dict[str, int] | None) -> Any:
    return READ(text, name, sizes) if sizes is not None else PARSED(text, name, None)


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
    assert sorted(path.name for path in folder.iterdir()) == [
        "constants.safetensors",
        "cuda",
        "dplc-artefact.json",
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


def _edited(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    plan = json.loads(path.read_text())
    change(plan)
    path.write_text(json.dumps(plan))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda at: shutil.rmtree(at), "is not there"),
        (lambda at: (at / "dplc-artefact.json").unlink(), "is not an artefact"),
        (lambda at: (at / "plan.json").unlink(), "does not list plan.json"),
        (lambda at: (at / "plan.json").write_text("{"), "does not fit its schema"),
        (lambda at: _edited(at / "dplc-artefact.json", lambda p: p.update(format=99)), "is of format 99"),
        (lambda at: _edited(at / "plan.json", lambda p: p.pop("launches")), "does not fit its schema"),
        (lambda at: _edited(at / "plan.json", lambda p: p["launches"][0].update(kernel="gone")), "contradicts itself"),
        (lambda at: _edited(at / "plan.json", lambda p: p["launches"][0]["buffers"].reverse()), "contradicts itself"),
        (lambda at: _edited(at / "plan.json", lambda p: p["kernels"].update({"../x": ""})), "kernels"),
        (lambda at: _edited(at / "plan.json", lambda p: p["kernels"].update(x="")), "`x` is not in ir/kernel.ir"),
        (lambda at: _edited(at / "plan.json", lambda p: _weight(p).update(dtype="zz")), "weights.*dtype"),
        (lambda at: _edited(at / "plan.json", lambda p: _weight(p).update(shape=[3])), "`weights`: f32"),
        (lambda at: _edited(at / "plan.json", lambda p: p["results"][0].update(shape=[3])), "`results`: f32"),
        (lambda at: _edited(at / "plan.json", lambda p: p["results"].clear()), "`results` has 0"),
        (lambda at: _edited(at / "plan.json", lambda p: p.update(arena_bytes=16)), "does not fit its schema"),
        (lambda at: _edited(at / "plan.json", lambda p: p["temporaries"].pop()), "contradicts itself"),
        (lambda at: _edited(at / "plan.json", _an_unused_temporary), "contradicts itself"),
        (lambda at: _edited(at / "plan.json", lambda p: p.update(dtype="f8")), "dtype"),
        (lambda at: _edited(at / "plan.json", lambda p: p.update(arch="sm_1")), "sm_1"),
        (lambda at: _edited(at / "plan.json", lambda p: p.update(batch=3)), "tokens"),
        (lambda at: _edited(at / "plan.json", lambda p: p["config"].update(vocab_size="many")), "vocab_size is 'many'"),
        (lambda at: _edited(at / "plan.json", lambda p: p["config"].update(vocab_size=0)), "vocab_size is 0"),
        (lambda at: _edited(at / "dplc-artefact.json", lambda p: p["files"].update({"../x": _FILE})), "lists `../x`"),
        (lambda at: _bomb(at / "plan.json"), "does not fit its schema"),
        (lambda at: _bomb(at / "dplc-artefact.json"), "does not fit its schema"),
        (lambda at: _text_of(at).write_bytes(b"\xff\xfe"), "is not UTF-8: invalid start byte at byte 0"),
        (lambda at: _pipe(_text_of(at)), "is not a plain file"),
        (lambda at: _folder(_text_of(at)), "is not a plain file"),
        (lambda at: _pipe(at / "plan.json"), "does not list plan.json"),
        (lambda at: _link(at / "plan.json"), "does not list plan.json"),
        (
            lambda at: (at / "ir" / "kernel.ir").write_text("kernel x(a: f32[1]) -> b: f32[1]:\n    pass\n"),
            "is not one Launch",
        ),
        (lambda at: (at / "ir" / "kernel.ir").write_text("("), "unexpected `\\("),
        (lambda at: (at / "figures.json").unlink(), "the artefact is damaged"),
        (lambda at: next((at / "cuda").iterdir()).unlink(), "the artefact is damaged"),
        (lambda at: (at / "constants.safetensors").write_bytes(b""), "the artefact is damaged"),
    ],
)
@pytest.mark.sampled(4)
def test_damage_is_told(model: CompiledModel, tmp_path: Path, damage: Callable[[Path], Any], said: str) -> None:
    """Whether the digests are as they were, or somebody made them fit."""
    made = tmp_path / "made"
    artefact.save(model, made, cubins=False)
    whole = (made / "dplc-artefact.json").read_bytes()
    damage(made)
    if (made / "dplc-artefact.json").is_file() and (made / "dplc-artefact.json").read_bytes() == whole:
        with pytest.raises(DplcError, match=r"the artefact is damaged|is not what this dplc"):
            artefact.load(made)
        seal(made, "somebody")
    with pytest.raises(DplcError, match=said) as told:
        artefact.load(made)
    assert told.value.exit_code == 1


@pytest.mark.parametrize("stage", ["torch", "kernel"])
def test_dumps_that_nest_too_deep_are_told(model: CompiledModel, tmp_path: Path, stage: str) -> None:
    made = tmp_path / "made"
    artefact.save(model, made, cubins=False)
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


def test_cuda_of_somebody_else_is_not_run(model: CompiledModel, tmp_path: Path) -> None:
    made, canary = tmp_path / "made", tmp_path / "canary"
    artefact.save(model, made, cubins=False)
    path = _text_of(made)
    path.write_text(path.read_text() + EVIL.format(canary=canary))
    for _ in range(2):
        with pytest.raises(DplcError, match=r"is not what this dplc .* prints") as told:
            dplc.load_model(made, device="emulator")
        assert "--trust-edited-cuda" in (told.value.hint or "")
        seal(made, "somebody")
    assert not canary.exists()
    trusted = artefact.load(made, trust_edited_cuda=True)
    assert any("system" in kernel.text for kernel in trusted.program.kernels)


def test_comments_carry_no_code(model: CompiledModel, tmp_path: Path) -> None:
    """The one part of a kernel's text that no IR says."""
    made = tmp_path / "made"
    artefact.save(model, made, cubins=False)
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


_FILE = {"size": 0, "sha256": ""}


def _weight(plan: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(iter(plan["weights"].values()))
    return found


def _an_unused_temporary(plan: dict[str, Any]) -> None:
    plan["temporaries"].append({**plan["temporaries"][0], "name": "unused"})


def _text_of(folder: Path) -> Path:
    return sorted((folder / "cuda").iterdir())[0]


def _bomb(path: Path) -> None:
    path.write_text('{"format": 3, "config": ' + "[" * 100_000 + "]" * 100_000 + "}")


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _link(path: Path) -> None:
    path.rename(path.with_suffix(".moved"))
    path.symlink_to(path.with_suffix(".moved"))


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (ValueError("no such register"), "no such register"),
        (DplcError("too wide"), "too wide"),
        (KeyError(), "KeyError"),
    ],
)
def test_what_the_printer_cannot_take_is_told(
    model: CompiledModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: Exception, said: str
) -> None:
    """A kernel of somebody else may pass every check and still be none that anybody would make."""
    folder = tmp_path / "made"
    artefact.save(model, folder, cubins=False)

    def printed(*_: Any) -> Any:
        raise raised if not isinstance(raised, DplcError) else InternalError(raised.what)

    monkeypatch.setattr(artefact, "print_cuda", printed)
    with pytest.raises(DplcError, match=rf"the artefact is damaged: .*kernel `\w+`: {said}$") as told:
        artefact.load(folder)
    assert told.value.exit_code == 1
