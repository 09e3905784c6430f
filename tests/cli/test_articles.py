"""The command lines that articles on dplc show, as they are typed."""

from __future__ import annotations

import re
from typing import Any

import pytest
from command_line import Command

NORM = "nn.RMSNorm(64)(torch.randn(8, 64))"
STAGES = {
    "tensor": "## level: tensor\ngraph ",
    "loop": "## level: loop\nkernel ",
    "tile": "## level: tile\nkernel ",
    "kernel": "## level: kernel\nkernel ",
    "cuda": "// rules: ",
}


def test_command_lines_of_articles_work(ok: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for stage, begins in STAGES.items():
        assert ok("compile", "-c", NORM, "--ir", stage).out.startswith(begins)
    traced = ok("compile", "-c", NORM, "--ir", "tile", "-vv")
    assert traced.out.startswith(STAGES["tile"]) and re.search(r"^>>> t:\S*tileify", traced.err, re.MULTILINE)
    assert "extern" in ok("compile", "-c", NORM, "--target", "sm_120").out
    table = ok("run", "--bench", "-c", NORM).out
    assert "against float64" in table and "predicted us" in table and "end to end" in table
    assert "occupancy" not in table and "occupancy" in ok("run", "--bench", "--profile", "-c", NORM).out
    tuned = ok("tune", "-c", NORM, "-v", "--tries", "3", "--no-db")
    assert re.match(r"try 1: [\d.]+ us by default, predicted\n", tuned.err) and "us tuned" in tuned.out

    def nothing(*arguments: Any, **options: Any) -> Any:
        raise OSError("no network")

    monkeypatch.setattr("socket.create_connection", nothing)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    model = ok("compile", "Qwen/Qwen2.5-7B", "--layers", "1")  # all 28 have the kernels of one
    assert model.out.startswith("Qwen2.5-7B: 1 layer, 32 tokens, f32")
    assert "note: the configuration of Qwen/Qwen2.5-7B comes with dplc" in model.err
