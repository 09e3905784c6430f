"""`--exact`: no rule that reorders floating point fires, on any level, and what comes out is right."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from command_line import SOFTMAX, Command

import dplc as package
from dplc.engine.ruleset import exactly, toolchain

PROGRAMS = [
    SOFTMAX,
    "torch.randn(4, 4096).sum(-1)",
    "torch.randn(128, 512) @ torch.randn(512, 64)",
    "F.rms_norm(torch.randn(32, 64), (64,))",
]


def approximate() -> set[str]:
    return {rule.name for rule in toolchain().rules.rules.values() if "approx" in rule.attributes}


@pytest.mark.parametrize("program", PROGRAMS)
def test_nothing_approximate_fires(ok: Command, program: str) -> None:
    approx = approximate()

    def fired(*options: str) -> set[str]:
        trace = json.loads(ok("compile --json -v", *options, "-c", program).out)["trace"]
        return {event["rule"] for event in trace if event["event"] == "fired"}

    assert fired() & approx
    assert fired("--exact") and not fired("--exact") & approx
    assert ": ok" in ok("run --exact --device emulator -c", program).out


def test_every_command_that_compiles_takes_it(ok: Command) -> None:
    for command in ("compile", "run", "fuse", "rewrite", "tune", "bench", "view", "generate"):
        assert "--exact" in ok(f"{command} --help").out, command
    assert "cooperative_reduce" not in ok("rewrite --trace --exact -c", PROGRAMS[1]).out


def test_the_exact_rules_are_made_once() -> None:
    rules = toolchain().rules
    assert exactly(rules) is exactly(rules) and exactly(rules).digest != rules.digest


def test_python_takes_it() -> None:
    x = torch.randint(-8, 8, (4, 4096)).float()  # whose sums are exact in any order
    approx = approximate()
    fired = {
        exact: {event.rule for event in package.compile(total, (x,), device="emulator", exact=exact).trace.firings}
        for exact in (False, True)
    }
    assert fired[False] & approx and fired[True] and not fired[True] & approx
    compiled = torch.compile(total, backend="dplc", options={"exact": True, "device": "emulator"})
    assert torch.equal(compiled(x), x.sum(-1))


def total(x: torch.Tensor) -> torch.Tensor:
    return x.sum(-1)


def test_a_model_that_is_exact_has_none_of_their_rules() -> None:
    config = Path(__file__).resolve().parents[2] / "examples" / "models" / "tinyllama-1.1b.json"
    approx = approximate()
    words = {
        exact: set(re.findall(r"\w+", package.compile_model(config, layers=1, seq_len=4, exact=exact).cuda))
        for exact in (False, True)
    }
    assert words[False] & approx and not words[True] & approx  # each kernel names the rules that shaped it
