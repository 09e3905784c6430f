"""What a value of a rule is, resolved once for all who read rules."""

from __future__ import annotations

import pytest

from dplc.engine.language import core
from dplc.engine.language.check import load_facts
from dplc.engine.language.rule import RuleSet, read_rules
from dplc.engine.language.spelling import expression
from dplc.engine.language.typed_slots import substituted
from dplc.ir.diagnostic import DplcError, Source
from dplc.ir.text.parse import parse


def rule(pattern: str, template: str = "y = x", level: str = "tensor") -> core.Rule:
    text = f"rule r on {level}\nmatch\n    {pattern}\nrewrite\n    {template}\n"
    return RuleSet([read_rules(Source("r.rw", text))]).rule("r")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("x", core.NameTerm), ("(x)", core.NameTerm), ("-2.5", core.NumberTerm), ("-inf", core.NumberTerm),
        ("nan", core.NumberTerm), ("add(x, 1)", core.FunctionTerm), ("f(xs..)", core.FunctionTerm),
        ("Reduce(add, k, x)", core.ReduceTerm), ("Fold(online.s, ks.., (x, v))", core.FoldTerm),
        ("Case(c, x, z)", core.CaseTerm), ("Index(i + 1)", core.IndexTerm), ("mat(x)", core.MatTerm),
        ("cast(x, f16)", core.CastTerm), ("x[is..]", core.MappedTerm), ("x[i, k + 1]", core.ReadTerm),
    ],
)  # fmt: skip
def test_what_a_value_is(text: str, kind: type[core.ValueTerm]) -> None:
    (found,) = rule(f"y = {text}").left.values()
    assert type(found) is kind


def test_the_parts_of_a_value() -> None:
    left = rule("y = Reduce(add, k:8, ks.., multiply(x, 2.0))").left["y"]
    assert isinstance(left, core.ReduceTerm) and left.fn == "add"
    axis, run = left.over
    assert isinstance(axis, core.AxisTerm) and (axis.name, axis.extent) == ("k", 8)
    assert isinstance(run, core.RunTerm) and run.name == "ks"
    assert [term.name for term in core.terms(left, core.NameTerm)] == ["x"]
    assert [term.value for term in core.terms(left, core.NumberTerm)] == [2.0]


def test_values_are_resolved_once() -> None:
    one = rule("y = add(x, 0)")
    assert one.left is one.left and one.right is one.right
    assert list(rule("v = exp(x)").left_axes) == [] and list(rule("v[i, j:4] = exp(x)").left_axes) == ["v"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Reduce(add, x)", "a reduction reads `Reduce(function, axis.., value)`"),
        ("Case(c, x)", "write `Case(condition, a, b)`"), ("mat(x, z)", "write `mat(x)`"),
        ("Fold(online.q, k, (x, v))", "there is no `online.q` to fold"), ("Redcue(add, k, x)", "no operation `Redcue`"),
        ("add(x)", "`add` takes 2 operands"), ("x[i, js..]", "write `x[is..]`"), ("f(1..)", "a run is a variable"),
    ],
)  # fmt: skip
def test_what_is_written_otherwise_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(DplcError) as refused:
        rule(f"y = {text}").left  # noqa: B018
    assert refused.value.what.startswith("rule `r`: ") and said in refused.value.render()
    assert refused.value.span is not None and refused.value.span.line == 3


def test_templates_on_torch_are_the_same_terms() -> None:
    load_facts()
    (statement,) = rule("y = Relu(x)", "y[bs..] = maximum(x[bs..], 0) if p else place(x[bs..], 0, n)", "torch").rewrite
    found = core.term_of(statement.value, torch=True)
    assert isinstance(found, core.EitherTerm) and isinstance(found.a, core.FunctionTerm)
    assert isinstance(found.b, core.PlaceTerm) and isinstance(found.b.x, core.ReadTerm)
    asked = core.term_of(rule("y = Relu(x)", "y[bs..] = rank(x)", "torch").rewrite[0].value, torch=True)
    assert isinstance(asked, core.ComputedTerm)  # a fact


def test_comprehension_does_not_capture_a_name_put_into_statements() -> None:
    (declared,) = parse(Source("r.rw", "fact sums_of(xs: [int], y: int) -> [int] = [x + y for x in xs]\n"))
    (made,) = substituted((declared.value,), {"y": core.NameOf(declared.span, "x")})
    assert expression(made) == "[x1 + x for x1 in xs]"
