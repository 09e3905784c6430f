"""Artefacts that tests read and damage, each compiled once."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from architectures import compiled, source

from dplc.codegen.target import target
from dplc.engine.capture.dynamic_shapes import Dim
from dplc.engine.cli.app import main
from dplc.engine.compiler import compiler_with
from dplc.engine.models import artefact
from dplc.engine.models.compiling import CompiledModel, ModelShape, compile_model

READ = artefact.read_program
PARSED = functools.lru_cache(64)(lambda text: READ(text, "an artefact", None))
LINEAR = "m = nn.Linear(16, 24)\nm(torch.relu(torch.randn(dim(s, 1..64), 16)))"


@pytest.fixture(scope="session")
def models() -> dict[str, CompiledModel]:
    """One for numbers; one for ranges of lengths and batches, with rows."""
    rows = [Dim("s", 1, 1), (Dim("s", 2, 16), Dim("b", 1, 1)), Dim("s", 4, 64, multiple=4)]
    shape = ModelShape(Dim("s", 1, 64, hint=32), Dim("b", 1, 3, hint=2))
    sized = compile_model(source("llama"), shape, compiler_with(target("sm_80")), rows)
    return {"model": compiled("llama"), "sized": sized}


@pytest.fixture(scope="session")
def artefacts(models: dict[str, CompiledModel], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of a model, of one with sizes, and of a text with rows."""
    folder = tmp_path_factory.mktemp("artefacts")
    for kind, model in models.items():
        artefact.save(model, folder / kind, cubins=False)
    with pytest.raises(SystemExit):
        main(["compile", "-c", LINEAR, "--rows", "1,16", "-o", str(folder / "text"), "--no-cubins"])
    return {kind: folder / kind for kind in (*models, "text")}


@pytest.fixture
def parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same text is the same program: only what a test changes is parsed again."""
    monkeypatch.setattr(
        artefact, "read_program", lambda text, name, at: PARSED(text) if at is None else READ(text, name, at)
    )
