"""A tensor where a torch rule wants an index is one error, where it stands: no traceback, and no program with a tensor in an index."""

from __future__ import annotations

import pytest

from dplc.engine.kernels import examples  # noqa: F401  (they run examples on torch)
from dplc.engine.kernels.examples import run_examples
from dplc.engine.language.check import require
from dplc.engine.language.rule import RuleSet, read_rules
from dplc.engine.rewrite.statements.driver import Engine
from dplc.ir.diagnostic import DplcError, Source

RULE = """## The edge again and again.
rule pad_at_the_edge on torch
match
    y = Pad(x, [a, _], mode="replicate", value=_)
let os = axes(y)
let j = at(os, -1)
rewrite
    behind = {behind}
    y[os..] = Case({before}, x[put(os, -1, 0)..], behind)
example "around a row"
    graph f(x: f32[1, 8]) -> y: f32[1, 11]:
        y: f32[1, 11] = Pad(x, pad=(2, 1), mode="replicate")
gives
    graph f(x: f32[i:8]) -> y: f32[11]:
        behind[j:11] = Case(j < 10, x[j - 2], x[7])
        y[j] = Case(j < 2, x[0], behind)
"""
BEHIND, BEFORE = (
    "Case(j < a + at(shape(x), -1), x[put(os, -1, j - a)..], x[put(os, -1, at(shape(x), -1) - 1)..])",
    "j < a",
)
CONDITIONS = ("j < x", "x < j", "j < x + 2", "x", "-x < j", "x % 2 < j", "j // x < 1", "j < 2 and x < j", "x == j")
INDICES = ("x", "j - x", "x * j", "-x", "j % x", "x // 2", "at(shape(x), -1) - x")


def failures(behind: str = BEHIND, before: str = BEFORE) -> list[str]:
    rules = RuleSet([read_rules(Source("rules/torch/mine.rw", RULE.format(behind=behind, before=before)))])
    require(rules)
    return [failure.problem for failure in run_examples(Engine(rules, check=True))[1]]


def test_the_rule_as_it_should_be() -> None:
    assert failures() == []


@pytest.mark.parametrize(
    "changed",
    [
        *({"behind": BEHIND.replace("j < a + at(shape(x), -1)", condition)} for condition in CONDITIONS),
        *({"before": condition} for condition in CONDITIONS),
        *({"behind": BEHIND.replace("j - a", index)} for index in INDICES),
        *({"behind": f"Index({index})"} for index in INDICES),
        *({"behind": f"Reduce(add, {index}, x[put(os, -1, 0)..])"} for index in INDICES),
        {"behind": "x[0, x]"},
    ],
    ids=lambda changed: " ".join(changed.values()),
)
def test_a_tensor_is_no_index(changed: dict[str, str]) -> None:
    with pytest.raises(DplcError, match="an index is an axis or a number, not a tensor value") as told:
        failures(**changed)
    line = 8 if "behind" in changed else 9
    assert told.value.exit_code == 1 and told.value.span is not None and told.value.span.line == line
