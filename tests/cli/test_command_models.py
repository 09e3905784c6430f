"""`dplc compile MODEL`, `dplc run DIR`, `dplc bench MODEL_OR_ARTEFACT`: output, records, and one clear line for every mistake."""

from __future__ import annotations

import json
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from command_line import Command
from safetensors.torch import save_file
from small_configs import SMALL

from dplc.engine.models import artefact
from dplc.engine.models.sources import make

CONFIG = {"model_type": "qwen2", **SMALL}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny.json"
    path.write_text(json.dumps(CONFIG))
    return path


def test_compile_run_and_bench(ok: Command, config: Path, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    done = ok(f"compile {config} --seq-len 7 --no-cubins -o {folder}")
    for said in ("tiny: all layers, 7 tokens, f32, for NVIDIA A100 (sm_80)", "in a block",
                 "planned; eager at least", "(computed;", f"artefact: {folder}"):  # fmt: skip
        assert said in done.out, done.out

    done = ok(f"run {folder} --device emulator --out {tmp_path / 'out.npz'}")
    assert "made-up weights, seed 0" in done.out and "against float64" in done.out and "ok" in done.out
    assert "they are made up" in done.err
    assert np.load(tmp_path / "out.npz")["out0"].shape == (1, 7, 50)
    record = json.loads(ok(f"run {folder} --device reference --json").out)
    assert record["ok"] and record["max_rel_err"] == 0

    done = ok(f"bench {folder} --no-assemble")
    assert "end to end" in done.out and "launches of" in done.out and "predicted us" in done.out
    assert "occupancy" not in done.out  # --profile has it
    table = tmp_path / "page.md"
    record = json.loads(ok(f"bench {config} --seq-len 7 --no-assemble --json --markdown {table}").out)
    *kernels, whole = record["cases"]
    assert whole["name"] == "end to end" and whole["measured"] is None
    assert sum(case["sizes"]["launches"] for case in kernels) == whole["sizes"]["launches"] > len(kernels)
    assert whole["predicted_us"] == pytest.approx(sum(case["predicted_us"] for case in kernels))
    assert "never measured" in table.read_text()


def test_weights_of_ones_own(ok: Command, dplc: Command, config: Path, tmp_path: Path) -> None:
    folder, given = tmp_path / "made", tmp_path / "weights"
    ok(f"compile {config} --seq-len 7 --no-cubins -o {folder}")
    wanted = artefact.load(folder).weights
    made = make(wanted, seed=3)
    given.mkdir()
    save_file({want.names[0]: made[name] for name, want in wanted.items()}, given / "model.safetensors")
    ids = ("--ids", "1 2 3 4 5 6 7")
    done = ok(f"run {folder} --weights {given} --device emulator", *ids)
    assert f"weights of {given}" in done.out and "ok" in done.out
    assert "made up" not in done.err
    ok(f"compile {config} --seq-len 7 --no-cubins -o {folder} --weights {given}")
    assert f"weights of {given}" in ok(f"run {folder} --device reference", *ids).out  # it remembers where

    short = {want.names[0]: made[name] for name, want in wanted.items() if "layers.1.mlp.up" not in want.names[0]}
    short["model.norm.weight"] = torch.ones(31)
    save_file(short, given / "model.safetensors")
    for line in (f"run {folder} --weights {given}", f"compile {config} --weights {given}"):
        done = dplc(line)
        assert done.code == 1
        assert "the weights have no tensor `model.layers.1.mlp.up_proj.weight`" in done.err
        assert "weight `model.norm.weight` is [31] in model.safetensors; the model needs [32]" in done.err


def test_stages_and_records(ok: Command, config: Path) -> None:
    out = ok(f"compile {config} --layers 1 --seq-len 4 --ir loop").out
    assert out.startswith("## level: loop\n") and "j <= " in out
    assert "f16" in ok(f"compile {config} --layers 1 --seq-len 4 --dtype float16").out
    record = json.loads(ok(f"compile {config} --layers 1 --seq-len 4 --json").out)
    assert 5 <= record["figures"]["per_block"] <= 10 and record["figures"]["seconds"].keys() == {
        "build",
        "capture",
        "compile",
    }


def test_mistakes_are_one_line_and_exit_with_1(dplc: Command, config: Path, tmp_path: Path) -> None:
    unknown = tmp_path / "unknown.json"
    unknown.write_text(json.dumps(CONFIG | {"model_type": "qwen22"}))
    for line, said in {
        "compile gone/config.json": "there is no model `gone/config.json`",
        f"compile {tmp_path}": "has no config.json",
        f"compile {unknown}": "`qwen22` is not an architecture that transformers knows",
        f"compile {config} --layers 9": "--layers 9: tiny has 2 layers",
        f"compile {config} --weights {tmp_path}/no": "there is no such folder",
        f"run {tmp_path}/no": "is not there",
        f"run {tmp_path}": "is not an artefact",
    }.items():
        done = dplc(line)
        assert done.code == 1, done.err
        assert len([line for line in done.err.splitlines() if not line.startswith("  ")]) == 1, done.err
        assert said in done.err, done.err
    assert [path.name for path in tmp_path.iterdir()] == ["unknown.json"]


def test_options_that_do_not_go_together(dplc: Command, config: Path, tmp_path: Path) -> None:
    for line, said in {
        f"compile {config} -c 3": "`dplc compile` takes one program: `-c` and `MODEL` were given",
        f"compile {config} --dtype f8": "there is no float dtype `f8`",
        f"compile {config} --seq-len 0": "at least one token",
        f"run {tmp_path} -c 3": "`dplc run` takes one program: `-c` and `DIR` were given",
        f"bench {config} --only linear": "it applies to a suite (SUITE.json)",
    }.items():
        done = dplc(line)
        assert done.code == 2 and said in done.err, done.err


def test_tokens(ok: Command, dplc: Command, config: Path, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    ok(f"compile {config} --layers 1 --seq-len 3 --no-cubins -o {folder}")
    for ids, said in {
        "1 2": "compiled for 3",
        "1 2 99": "numbers from 0 to 49",
        "a b c": "numbers from 0 to 49",
    }.items():
        done = dplc(f"run {folder} --device reference --ids", ids)
        assert done.code == 2 and said in done.err


def test_a_shipped_configuration_compiles_without_a_network(
    ok: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("socket.create_connection", Mock(side_effect=OSError("no network")))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    model = ok("compile Qwen/Qwen2.5-7B --layers 1")  # all 28 have the kernels of one
    assert model.out.startswith("Qwen2.5-7B: 1 layer, 32 tokens, f32")
    assert "note: the configuration of Qwen/Qwen2.5-7B comes with dplc" in model.err
