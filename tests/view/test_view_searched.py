"""What searches found, on the page: it is what the search and the e-graph say themselves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from view_programs import command, written_page

from dplc.engine.explore.saturate import available

TEXT = "torch.softmax(torch.randn(64, 512) @ torch.randn(512, 64) * 2.0, -1)"


def leaves(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node["below"]:
        yield from leaves(child)


def test_tuning_is_what_the_search_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = written_page(tmp_path, capsys, TEXT, "--target", "sm_80", "--no-db", "--tune", "30")["tuning"]
    arguments = ("--tries", "30", "--top", "1", "--predict", "--target", "sm_80", "--no-db", "--json")
    said = json.loads(command(capsys, "tune", "-c", TEXT, *arguments))
    assert run["default_us"] == pytest.approx(said["default_us"])
    assert run["tuned_us"] == pytest.approx(said["tuned_us"])
    assert [kernel["kernel"] for kernel in run["kernels"]] == [kernel["kernel"] for kernel in said["kernels"]]
    tried = run["curve"][-1][2]  # what is settled on is put together of the fastest kernels, as perhaps no try was
    assert run["tuned_us"] <= tried * (1 + 1e-9) and run["basis"] == "predicted"
    assert run["curve"] == sorted(run["curve"], key=lambda point: (point[0], -point[2]))
    tree = run["tree"]
    assert tree["tried"] == run["tries"] and tree["best"] == pytest.approx(run["default_us"] / tried, rel=1e-3)
    assert all(sum(child["tried"] for child in node["below"]) <= node["tried"] for node in leaves(tree))
    assert all(node["mean"] <= node["best"] * (1 + 1e-9) for node in leaves(tree) if node["best"])
    assert any(effect["values"] for kernel in run["kernels"] for effect in kernel["effects"])


@pytest.mark.skipif(not available(), reason="egglog is not installed: pip install 'dplc[explore]'")
def test_the_e_graph_is_that_of_the_candidates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = written_page(tmp_path, capsys, TEXT, "--target", "sm_80", "--no-db", "--explore")["egraph"]
    said = json.loads(command(capsys, "fuse", "--explore", "-c", TEXT, "--target", "sm_80", "--json"))["candidates"]
    assert [one["kernels"] for one in graph["candidates"]] == [one["kernels"] for one in said]
    (region,) = graph["regions"]
    titles = [one["title"] for one in region["classes"]]
    assert len(titles) == len(set(titles)) and {"matmul", "softmax"} <= set(titles)
    for one in region["classes"]:
        chosen = [spelling["text"] for spelling in one["spellings"] if spelling["chosen"]]
        assert len(chosen) == one["needed"], one["title"]
    assert sum(len(one["spellings"]) for one in region["classes"]) == region["enodes"]
    assert any(len(one["spellings"]) > 1 for one in region["classes"])
    assert graph["left_out"] == 0
