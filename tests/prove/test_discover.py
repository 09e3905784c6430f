"""`dplc rules discover`: rules from operators alone, coincidences, rules that were left out, and the command."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from command_line import Command

from dplc.engine.kernels.examples import alone, rewritten
from dplc.engine.prove.discover import CandidateText, Discovery, FoundRule, TermSearch, World, equal, reduction
from dplc.engine.ruleset import toolchain
from dplc.engine.verify.run import CheckOptions
from dplc.ir.tensor import Const, Elementwise, Reduce, Term
from dplc.ir.text.tensor import read_graph

TOOLS = toolchain()
WIDE, NARROW = {"x": "ik"}, {"x": "ik", "c": "i"}


def discovery(leaves: dict[str, str], ops: str, without: tuple[str, ...] = (), alone: bool = True) -> Discovery:
    force = [] if alone else [rule for rule in TOOLS.equations if rule.name not in without]
    return Discovery(TermSearch(leaves, ops.split()), TOOLS.rules, force, CheckOptions(4, more=0))


def found(search: Discovery, size: int) -> list[FoundRule]:
    return [rule for _ in range(size) for rule in search.step()]


@pytest.mark.parametrize(
    ("leaves", "ops", "size", "template"),
    [
        (NARROW, "multiply Reduce.add", 2, "multiply(c, Reduce(add, ks.., x))"),
        (NARROW, "add Reduce.maximum", 2, "add(c, Reduce(maximum, ks.., x))"),
        (WIDE, "exp Reduce.maximum", 2, "exp(Reduce(maximum, ks.., x))"),
        pytest.param(NARROW, "exp log subtract Reduce.add", 4, "subtract(log(Reduce(add, ks.., exp(x))), c)", marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_operators_alone_give_rule(leaves: dict[str, str], ops: str, size: int, template: str) -> None:
    rules = [rule for rule in found(discovery(leaves, ops), size) if f"y = {template}\n" in rule.text]
    assert len(rules) == 1 and rules[0].label == "proved for all ranks and sizes" and rules[0].saved > 0


def planted() -> list[tuple[str, Term, Term]]:
    search = TermSearch({"x": "ik", "0.5": ""}, ["abs"])
    x, half = search.first.leaves
    k = search.first.axis("k")
    mean = Elementwise("multiply", (half, reduction("add", [k], [x])))
    return [
        ("small integers", Elementwise("floor", (x,)), x),
        ("positive values", Elementwise("abs", (x,)), x),
        ("positive values", Elementwise("relu", (x,)), x),
        (
            "extent 2",
            Reduce("add", (k,), Elementwise("subtract", (x, mean))),
            Elementwise("multiply", (mean, Const(0.0))),
        ),
    ]


@pytest.mark.parametrize(("where", "pattern", "template"), planted())
def test_coincidence_is_refuted(where: str, pattern: Term, template: Term) -> None:
    search = discovery({"x": "ik", "0.5": "", "0.0": ""}, "abs")
    assert not equal(search.search.worlds, pattern, template, partly=True), where
    assert list(search.accepted(CandidateText(search, (pattern, template), search.search.leaves))) == []
    assert len(search.refuted) == 1


def test_most_rules_that_are_left_out_come_back() -> None:
    names = [
        "hoist_factor",
        "hoist_divisor_of_sum",
        "add_negative",
        "subtract_negative",
        "double_negation",
        "relu_relu",
    ]
    out = tuple(random.Random(0).sample(names, 2))
    search = discovery(NARROW | {"z": "ik"}, "multiply divide add subtract negative relu Reduce.add", out, alone=False)
    found(search, 2)
    back = [name for name in out if covered(search, name)]
    assert 2 * len(back) > len(out), f"of {out}, {back} came back"


def covered(search: Discovery, name: str) -> bool:
    """Return whether the rules in force bring the first example of a rule to the cost of what the rule gives."""
    example = TOOLS.rules.rule(name).examples[0]
    before, after = (read_graph(block[0]) for block in (example.before, example.gives))
    world = World({x.name: "".join(axis.name for axis in x.axes) for x in before.ins}, turned=True)
    for rule in search.force:
        before = rewritten(before, alone(rule))
    return world.cost(before.outs[0].value) <= world.cost(after.outs[0].value)


def test_command_writes_file_that_passes_every_check(dplc: Command, tmp_path: Path) -> None:
    path = tmp_path / "found.rw"
    typed = f"rules discover --ops add,Reduce.maximum --leaf x:ik --leaf c:i --examples 4 -o {path}"
    program = "(torch.randn(64, 1, 1) + torch.randn(64, 64)).amax(-1)"
    dplc(typed, "-c", program).shows("proved for all ranks and sizes, saves", "of the predicted time of the program")
    for check in ("fmt --check", "lint", "test"):
        dplc(f"rules {check} {path}")
    dplc("rules discover --leaf x[i,k]", code=2).shows("not an unknown")
    dplc("rules discover --ops addd", code=2).shows("add")
