"""`dplc fuse`, and `--explore` of compile and run."""

from __future__ import annotations

import json

import pytest
from command_line import Command

pytest.importorskip("egglog.bindings")
TEXT = "nn.Sequential(nn.RMSNorm(32), nn.Linear(32, 24, bias=False))(torch.randn(20, 32))"
PAIR = "x = torch.randn(8, 16)\nx.mean(1), x.var(1, unbiased=False)"


def test_candidates_side_by_side(ok: Command) -> None:
    told = ok("fuse --explore -c", PAIR)
    assert "kernels" in told.out and "the rules in their order" in told.out and "predicted" in told.out


def test_json_is_best_first(ok: Command) -> None:
    record = json.loads(ok("fuse --explore --top 3 --json -c", PAIR).out)
    assert record["basis"] == "predicted"
    times = [candidate["predicted_us"] for candidate in record["candidates"]]
    assert times == sorted(times) and {"kernels", "bytes", "predicted_us", "rules"} <= record["candidates"][0].keys()
    assert record["candidates"][0]["kernels"] == 1


def test_without_explore_it_is_what_the_rules_decide(ok: Command) -> None:
    record = json.loads(ok("fuse --json -c", PAIR).out)
    assert [candidate["label"] for candidate in record["candidates"]] == ["rules"]


@pytest.mark.parametrize("stage", ["tensor", "loop", "tile", "cuda"])
def test_a_candidate_at_any_stage(ok: Command, stage: str) -> None:
    assert ok(f"fuse --explore --candidate 1 --ir {stage} -c", PAIR).out


def test_a_candidate_is_the_one_that_was_asked_for(ok: Command) -> None:
    kernels = [one["kernels"] for one in json.loads(ok("fuse --explore --top 3 --json -c", PAIR).out)["candidates"]]
    assert kernels[0] != kernels[-1], kernels
    for number, count in enumerate(kernels, 1):
        told = ok(f"fuse --explore --top 3 --candidate {number} --ir loop -c", PAIR)
        assert sum(line.startswith("kernel ") for line in told.out.splitlines()) == count


def test_a_candidate_runs(ok: Command) -> None:
    assert ": ok" in ok("fuse --explore --run --device emulator -c", TEXT).out
    record = json.loads(ok("run --explore --json --device emulator -c", PAIR).out)
    assert record["ok"] and len(record["kernels"]) == 1
