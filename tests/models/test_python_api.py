"""Models from Python."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tiny_models import CONFIGS, of_transformers, tokens

import dplc
from dplc.engine.models.sources import make
from dplc.engine.run.calls import error


def test_compile_save_load_and_call(tmp_path: Path) -> None:
    path, ids = tmp_path / "tiny.json", tokens()
    path.write_text(json.dumps(CONFIGS["llama"]))
    model = dplc.compile_model(path, seq_len=7, device="emulator")
    launches, kernels = model.figures.launches, model.figures.kernels
    assert repr(model) == f"<dplc.Model for emulator: {launches} launches of {kernels} kernels>"
    assert model.cuda.count("__global__") == kernels < launches and model.ir("tile").startswith("## level: tile")
    weights = make(model.compiled.weights)
    want = of_transformers("llama", weights, model.compiled.weights, ids)
    assert error(model(ids), want)[1] <= 1e-4  # weights made up
    model.save(tmp_path / "made", cubins=False)
    again = dplc.load_model(tmp_path / "made", device="emulator")
    assert again.cuda == model.cuda and again.figures == model.figures
    assert torch.equal(again(ids), model(ids))
    changed = {want.names[0]: weights[name] * 2 for name, want in model.compiled.weights.items()}
    (tmp_path / "weights").mkdir()
    save_file(changed, tmp_path / "weights" / "model.safetensors")
    assert not torch.equal(again.load_weights(tmp_path / "weights")(ids), model(ids))
    with pytest.raises(dplc.DplcError, match="copy its folder"):
        again.save(tmp_path / "other")
    with pytest.raises(dplc.DplcError, match=r"no CUDA device|no GPU 9999|needs pycuda"):
        dplc.load_model(tmp_path / "made", device="cuda:9999")(ids)
    with pytest.raises(dplc.DplcError, match=r"input `input_ids` must be i64\[7\]; it is int64\[1, 6\]"):
        model(tokens(6))


def test_mistakes(tmp_path: Path) -> None:
    with pytest.raises(dplc.DplcError, match="no dtype `f99`"):
        dplc.compile_model(tmp_path, dtype="f99")
    with pytest.raises(dplc.DplcError, match="has no config"):
        dplc.compile_model(tmp_path, device="emulator")
    with pytest.raises(dplc.DplcError, match="models run on cuda and on the emulator"):
        dplc.load_model(tmp_path, device="reference")
