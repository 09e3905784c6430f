"""`dplc fuse`, and `--explore` of compile and run."""

from __future__ import annotations

import json

import pytest
from command_line import Command

pytest.importorskip("egglog.bindings")
TEXT = "nn.Sequential(nn.RMSNorm(32), nn.Linear(32, 24, bias=False))(torch.randn(20, 32))"
PAIR = "x = torch.randn(8, 16)\nx.mean(1), x.var(1, unbiased=False)"


def test_candidates_side_by_side(dplc: Command) -> None:
    told = dplc("fuse", "-c", PAIR, "--explore")
    assert told.code == 0
    assert "kernels" in told.out and "the rules in their order" in told.out and "predicted" in told.out


def test_json_is_best_first(dplc: Command) -> None:
    told = dplc("fuse", "-c", PAIR, "--explore", "--top", "3", "--json")
    record = json.loads(told.out)
    assert record["basis"] == "predicted"
    times = [candidate["predicted_us"] for candidate in record["candidates"]]
    assert times == sorted(times) and {"kernels", "bytes", "predicted_us", "rules"} <= record["candidates"][0].keys()
    assert record["candidates"][0]["kernels"] == 1


def test_without_explore_it_is_what_the_rules_decide(dplc: Command) -> None:
    record = json.loads(dplc("fuse", "-c", PAIR, "--json").out)
    assert [candidate["label"] for candidate in record["candidates"]] == ["rules"]


@pytest.mark.parametrize("stage", ["tensor", "loop", "tile", "cuda"])
def test_a_candidate_at_any_stage(dplc: Command, stage: str) -> None:
    told = dplc("fuse", "-c", PAIR, "--explore", "--candidate", "1", "--ir", stage)
    assert told.code == 0 and told.out


def test_a_candidate_is_the_one_that_was_asked_for(dplc: Command) -> None:
    asked = ("fuse", "-c", PAIR, "--explore", "--top", "3")
    kernels = [candidate["kernels"] for candidate in json.loads(dplc(*asked, "--json").out)["candidates"]]
    assert kernels[0] != kernels[-1], kernels
    for number, count in enumerate(kernels, 1):
        told = dplc(*asked, "--candidate", str(number), "--ir", "loop")
        assert sum(line.startswith("kernel ") for line in told.out.splitlines()) == count


def test_a_candidate_runs(dplc: Command) -> None:
    told = dplc("fuse", "-c", TEXT, "--explore", "--run", "--device", "emulator")
    assert told.code == 0 and ": ok" in told.out
    told = dplc("run", "-c", PAIR, "--explore", "--json", "--device", "emulator")
    record = json.loads(told.out)
    assert record["ok"] and len(record["kernels"]) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("fuse", "-c", PAIR, "--candidate", "9", "--ir", "tensor"), 2, "--candidate 9: there are 1"),
        (("fuse", "-c", PAIR, "--ir", "tensr"), 2, "there is no such stage"),
        (("fuse", "-c", PAIR, "--top", "0"), 2, "top"),
        (("fuse",), 2, "a program is needed"),
    ],
)
def test_errors(dplc: Command, arguments: tuple[str, ...], code: int, said: str) -> None:
    told = dplc(*arguments)
    assert told.code == code and said in told.err
