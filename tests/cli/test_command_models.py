"""`dplc compile MODEL`, `dplc run DIR`, `dplc bench MODEL_OR_ARTEFACT`: output, records, and one clear line for every mistake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import Command
from safetensors.torch import save_file

from dplc.engine.models import artefact
from dplc.engine.models.sources import make

CONFIG: dict[str, Any] = {
    "model_type": "qwen2", "hidden_size": 32, "intermediate_size": 44, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 50, "max_position_embeddings": 64,
}  # fmt: skip


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny.json"
    path.write_text(json.dumps(CONFIG))
    return path


def test_compile_run_and_bench(ok: Command, config: Path, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    done = ok("compile", str(config), "--seq-len", "7", "--no-cubins", "-o", str(folder))
    for said in ("tiny: all layers, 7 tokens, f32, for NVIDIA A100 (sm_80)", "in a block",
                 "planned; eager at least", "(computed;", f"artefact: {folder}"):  # fmt: skip
        assert said in done.out, done.out

    done = ok("run", str(folder), "--device", "emulator", "--out", str(tmp_path / "out.npz"))
    assert "made-up weights, seed 0" in done.out and "against float64" in done.out and "ok" in done.out
    assert "they are made up" in done.err
    assert np.load(tmp_path / "out.npz")["out0"].shape == (1, 7, 50)
    record = json.loads(ok("run", str(folder), "--device", "reference", "--json").out)
    assert record["ok"] and record["max_rel_err"] == 0

    done = ok("bench", str(folder), "--no-assemble")
    assert "end to end" in done.out and "launches of" in done.out and "predicted us" in done.out
    table = tmp_path / "page.md"
    record = json.loads(
        ok(
            "bench",
            str(config),
            "--seq-len",
            "7",
            "--no-assemble",
            "--json",
            "--markdown",
            str(table),
        ).out
    )
    *kernels, whole = record["cases"]
    assert whole["name"] == "end to end" and whole["measured"] is None
    assert sum(case["sizes"]["launches"] for case in kernels) == whole["sizes"]["launches"] > len(kernels)
    assert whole["predicted_us"] == pytest.approx(sum(case["predicted_us"] for case in kernels))
    assert "never measured" in table.read_text()


def test_weights_of_ones_own(ok: Command, dplc: Command, config: Path, tmp_path: Path) -> None:
    folder, given = tmp_path / "made", tmp_path / "weights"
    ok("compile", str(config), "--seq-len", "7", "--no-cubins", "-o", str(folder))
    wanted = artefact.load(folder).weights
    made = make(wanted, seed=3)
    given.mkdir()
    save_file({want.names[0]: made[name] for name, want in wanted.items()}, given / "model.safetensors")
    ids = ("--ids", "1 2 3 4 5 6 7")
    done = ok("run", str(folder), "--weights", str(given), "--device", "emulator", *ids)
    assert f"weights of {given}" in done.out and "ok" in done.out
    assert "made up" not in done.err
    ok("compile", str(config), "--seq-len", "7", "--no-cubins", "-o", str(folder), "--weights", str(given))
    assert f"weights of {given}" in ok("run", str(folder), "--device", "reference", *ids).out  # it remembers where

    short = {want.names[0]: made[name] for name, want in wanted.items() if "layers.1.mlp.up" not in want.names[0]}
    short["model.norm.weight"] = torch.ones(31)
    save_file(short, given / "model.safetensors")
    for arguments in (
        ("run", str(folder), "--weights", str(given)),
        ("compile", str(config), "--weights", str(given)),
    ):
        done = dplc(*arguments)
        assert done.code == 1
        assert "the weights have no tensor `model.layers.1.mlp.up_proj.weight`" in done.err
        assert "weight `model.norm.weight` is [31] in model.safetensors; the model needs [32]" in done.err


def test_stages_and_records(ok: Command, config: Path) -> None:
    out = ok("compile", str(config), "--layers", "1", "--seq-len", "4", "--ir", "loop").out
    assert out.startswith("## level: loop\n") and "j <= " in out
    record = json.loads(ok("compile", str(config), "--layers", "1", "--seq-len", "4", "--json").out)
    assert 5 <= record["figures"]["per_block"] <= 10 and record["figures"]["seconds"].keys() == {
        "build",
        "capture",
        "compile",
    }


def test_mistakes_are_one_line_and_exit_with_1(dplc: Command, config: Path, tmp_path: Path) -> None:
    unknown = tmp_path / "unknown.json"
    unknown.write_text(json.dumps(CONFIG | {"model_type": "qwen22"}))
    for arguments, said in {
        ("compile", "gone/config.json"): "there is no model `gone/config.json`",
        ("compile", str(tmp_path)): "has no config.json",
        ("compile", str(unknown)): "`qwen22` is not an architecture that transformers knows",
        ("compile", str(config), "--layers", "9"): "--layers 9: tiny has 2 layers",
        ("compile", str(config), "--weights", str(tmp_path / "no")): "there is no such folder",
        ("run", str(tmp_path / "no")): "is not there",
        ("run", str(tmp_path)): "is not an artefact",
    }.items():
        done = dplc(*arguments)
        assert done.code == 1, done.err
        assert len([line for line in done.err.splitlines() if not line.startswith("  ")]) == 1, done.err
        assert said in done.err, done.err
    assert [path.name for path in tmp_path.iterdir()] == ["unknown.json"]


def test_options_that_do_not_go_together(dplc: Command, config: Path, tmp_path: Path) -> None:
    for arguments, said in {
        (
            "compile",
            str(config),
            "-c",
            "torch.randn(3)",
        ): "`dplc compile` takes one program: `-c` and `MODEL` were given",
        ("compile", "-c", "torch.randn(3)", "--layers", "1"): "`--layers` does not apply to an expression",
        ("compile", "-c", "torch.randn(3)", "--rows", "1"): "`--rows` goes with `--out`",
        ("compile", str(config), "--dtype", "f8"): "--dtype f8",
        ("compile", str(config), "--seq-len", "0"): "at least one token",
        ("run", str(tmp_path), "-c", "torch.randn(3)"): "`dplc run` takes one program: `-c` and `DIR` were given",
        ("run", "-c", "torch.randn(3)", "--ids", "1"): "it applies to an artefact",
        ("bench", str(config), "--only", "linear"): "it applies to a suite (SUITE.json)",
    }.items():
        done = dplc(*arguments)
        assert done.code == 2 and said in done.err, done.err


def test_tokens(ok: Command, dplc: Command, config: Path, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    ok("compile", str(config), "--layers", "1", "--seq-len", "3", "--no-cubins", "-o", str(folder))
    for ids, said in {
        "1 2": "compiled for 3",
        "1 2 99": "numbers from 0 to 49",
        "a b c": "numbers from 0 to 49",
    }.items():
        done = dplc("run", str(folder), "--device", "reference", "--ids", ids)
        assert done.code == 2 and said in done.err
