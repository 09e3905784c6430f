"""Rules on torch: examples that hold, what is told where no rule applies, and rules that are refused where they are wrong."""

from __future__ import annotations

from typing import Any

import pytest
from capture_checks import RULES

from dplc.engine.kernels.examples import run_examples
from dplc.engine.language.check import require
from dplc.engine.language.rule import RuleSet, built_in_files, read_rules
from dplc.engine.rewrite.statements.driver import Engine
from dplc.engine.rewrite.torch_rules.lower import compile_rules, lower_graph
from dplc.ir.diagnostic import DplcError, Source
from dplc.ir.text.programs import print_unit, read_program
from dplc.ir.text.tensor import print_lines
from dplc.ir.text.torch import print_torch_op

TORCH = RULES.at("torch")


@pytest.mark.parametrize("file", sorted({rule.file for rule in TORCH}))
def test_examples_hold(file: str) -> None:
    _, failures = run_examples(Engine(RULES), [rule for rule in TORCH if rule.file == file])
    assert [failure.render() for failure in failures] == []


RELU = "y: f32[2, 3, 4] = Relu(x)"


def program(*lines: str) -> Any:
    """The graph of statements on `x`, of which the last defines the result."""
    result = lines[-1].partition(" = ")[0]
    return read_program("\n    ".join((f"graph f(x: f32[2, 3, 4]) -> {result}:", *lines)))[1][0]


def with_relu(rewrite: str, match: str = "y = Relu(x)") -> RuleSet:
    """Our rules, and one of a user for `Relu`."""
    rule = f"override rule unary_relu on torch\nmatch\n    {match}\nrewrite\n    {rewrite}\n"
    return RuleSet((*RULES.files, read_rules(Source("mine.rw", rule))))


@pytest.mark.parametrize(
    ("lines", "rules", "says"),
    [
        (
            ["y: f32[2, 3, 4] = Dropout(x, p=0.5, train=true)"],
            RULES,
            "`dropout` in training mode draws random numbers",
        ),
        # the op, not `getitem`
        (
            ["c: (f32[2, 3, 4], i32[2, 3, 4]) = Frexp(x)", "y: f32[2, 3, 4] = Getitem(c, index=0)"],
            RULES,
            "torch op 'frexp' is not supported",
        ),
        (
            [RELU],
            with_relu("y = Dropout(x, p=0.5, train=true)"),
            r"torch op 'dropout' is not supported\n(.*\n)*  note: it is part of `relu`\n(.*\n)*  note: .*train: true is not false",
        ),
        (
            ["y: f32[] = Relu(x)"],
            with_relu("y[] = Reduce(add, k, Stacked(k, x[os..]))"),
            r"torch op 'relu' is not supported\n  note: .*`Stacked` reads a list of tensors",
        ),
        ([RELU], with_relu("y = Relu(x)"), "torch rules do not end"),
    ],
)
def test_an_op_that_no_rule_takes_is_told_with_the_reasons(lines: list[str], rules: RuleSet, says: str) -> None:
    with pytest.raises(DplcError, match=says):
        lower_graph(program(*lines), rules)


@pytest.mark.parametrize(
    ("match", "rewrite", "says"),
    [
        ("y = Relu(x)", "y[axess(x)..] = x[os..]", "unknown fact `axess`"),
        ("y = Relu(x)", "z = relu(x[os..])", "must end by defining `y`"),
        ("y = Relu(x)", "y[os..] = relu(x[os..], 1)", "`relu` takes 1 arguments, not 2"),
        ("y = Relu(x)", "y[os..] = Reduce(exp, k, x[os.., k])", "cannot reduce"),
        *(
            (match, "y[os..] = x[os..]", r"mine.rw:3:5: error: a pattern on torch is `y = Op")
            for match in ("Relu(x)", "y = x", "y[i] = Relu(x)", "x..", "Tile(i:4=THREAD):\n        body..")
        ),
    ],
)
def test_a_broken_rule_is_refused_where_it_is_broken(match: str, rewrite: str, says: str) -> None:
    with pytest.raises(DplcError, match=says):
        compile_rules(with_relu(rewrite, match))


def test_rules_of_users_override_ours_and_the_others_are_compiled_once() -> None:
    merged = with_relu("y[os..] = maximum(x[os..], 0)")
    assert "maximum(x[i, j, k], 0.0)" in print_unit(lower_graph(program(RELU), merged).graph)
    ours, theirs = compile_rules(RULES), compile_rules(merged)
    assert ours["Roll"][0] is theirs["Roll"][0] and ours["Relu"][0] is not theirs["Relu"][0]


def test_firings_tell_the_rule_and_both_texts() -> None:
    """Nothing that nobody reads is lowered."""
    lines = "a: f32[2, 3, 4] = Relu(x)", "b: f32[2, 3, 4] = Lgamma(x)", "y: f32[2, 3] = Mean(a, dim=(2))"
    lowered = lower_graph(program(*lines), RULES, trace=True)
    assert [firing.rule.name for firing in lowered.firings] == ["unary_relu", "mean"]
    mean = lowered.firings[1]
    assert print_torch_op(mean.before) == "y: f32[2, 3] = Mean(a, dim=(2))"
    after = print_lines(lowered.graph, mean.after.term, mean.operands)
    assert after == "total[i, j] = Reduce(add, k, a)\ny[i, j] = multiply(total, 0.25)"


FAMILY = """## Two ops that a rule takes for another one.
rule mine(Op) for LogSoftmax, SpecialLogSoftmax on torch
match
    y = Op(x, dim=_, dtype=_)
rewrite
    y[os..] = exp(x[os..])
example "after another op"
    graph f(a: f32[4]) -> y: f32[4]:
        b: f32[4] = Neg(a)
        y: f32[4] = {op}(b, dim=0)
gives
    graph f(a: f32[i:4]) -> y: f32[4]:
        b[i:4] = negative(a[i])
        y[i] = {gives}(b)
"""


@pytest.mark.parametrize(
    ("op", "gives", "wrong"),
    [
        ("Op", "exp", []),
        ("Op", "log", ["LogSoftmax", "SpecialLogSoftmax"]),
        ("LogSoftmax", "exp", []),
        ("LogSoftmax", "log", ["LogSoftmax"]),
    ],
)
def test_an_example_of_a_family_is_run_for_every_member_that_it_holds(op: str, gives: str, wrong: list[str]) -> None:
    """Whatever other ops stand in it."""
    mine = read_rules(Source("mine.rw", FAMILY.format(op=op, gives=gives)))
    _, failures = run_examples(Engine(RuleSet([*built_in_files(), mine])), mine.rules)
    assert [str(failure.rule.match[-1].value.fn) for failure in failures] == wrong  # type: ignore[attr-defined]


# ---- A tensor where a rule wants an index is one error, where it stands.

EDGE = """## The edge again and again.
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
BEFORE, CHOICE = "j < a", "Case({}, x[put(os, -1, {})..], x[put(os, -1, at(shape(x), -1) - 1)..])"
WITHIN, SHIFTED = "j < a + at(shape(x), -1)", "j - a"
CONDITIONS = ("j < x", "x < j", "j < x + 2", "x", "-x < j", "x % 2 < j", "j // x < 1", "j < 2 and x < j", "x == j")
INDICES = ("x", "j - x", "x * j", "-x", "j % x", "x // 2", "at(shape(x), -1) - x")


def failures(behind: str, before: str = BEFORE) -> list[str]:
    rules = RuleSet([read_rules(Source("rules/torch/mine.rw", EDGE.format(behind=behind, before=before)))])
    require(rules)
    return [failure.problem for failure in run_examples(Engine(rules, check=True))[1]]


def test_a_rule_by_indices_alone_is_right() -> None:
    assert failures(CHOICE.format(WITHIN, SHIFTED)) == []


@pytest.mark.parametrize(
    ("line", "behind", "before"),
    [
        *((8, CHOICE.format(condition, SHIFTED), BEFORE) for condition in CONDITIONS),
        *((9, CHOICE.format(WITHIN, SHIFTED), condition) for condition in CONDITIONS),
        *((8, CHOICE.format(WITHIN, index), BEFORE) for index in INDICES),
        *((8, f"Index({index})", BEFORE) for index in INDICES),
        *((8, f"Reduce(add, {index}, x[put(os, -1, 0)..])", BEFORE) for index in INDICES),
        (8, "x[0, x]", BEFORE),
    ],
)
def test_a_tensor_is_not_an_index(line: int, behind: str, before: str) -> None:
    with pytest.raises(DplcError, match="an index must be an axis or a number, and this is a tensor value") as caught:
        failures(behind, before)
    assert caught.value.exit_code == 1 and caught.value.span is not None and caught.value.span.line == line
