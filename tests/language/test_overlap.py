"""Which rules leave nothing for others: pairs of patterns, and the finding."""

from __future__ import annotations

import pytest
from broken_rules import report

NEVER = "can never fire"


def indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


# the first pattern, the second, and whether the first leaves the second nothing
COVERS = {
    "the same": ("Wait(keep=n)", "Wait(keep=n)", True),
    "other names": ("for k in 0..K serial:\n    body..", "for i in 0..N serial:\n    rest..", True),
    "a number": ("Wait(keep=n)", "Wait(keep=1)", True),
    "a number first": ("Wait(keep=1)", "Wait(keep=n)", False),
    "another number": ("Wait(keep=1)", "Wait(keep=2)", False),
    "a field that the second leaves open": ("Wait(keep=n)", "Wait()", False),
    "longer": ("Wait(keep=n)\nSync()", "Wait(keep=n)", False),
    "shorter": ("Wait(keep=n)", "Wait(keep=n)\nSync()", True),
    "the end": ("Sync()", "Wait(keep=n)\nSync()", False),
    "twice the same name": ("Wait(keep=n)\nWait(keep=n)", "Wait(keep=a)\nWait(keep=b)", False),
    "twice the same name later": ("Wait(keep=a)\nWait(keep=b)", "Wait(keep=n)\nWait(keep=n)", True),
    "twice the same in both": ("Wait(keep=n)\nWait(keep=n)", "Wait(keep=a)\nWait(keep=a)", True),
    "another role": ("for k in 0..K reduce:\n    body..", "for k in 0..K serial:\n    body..", False),
    "any sum": ("c <- fn(c, e)", "s <- add(s, x)", True),
    "one sum": ("s <- add(s, x)", "c <- fn(c, e)", False),
    "any body": ("for k in 0..K serial:\n    body..", "for k in 0..K serial:\n    Sync()\n    rest..", True),
    "one body": ("for k in 0..K serial:\n    Sync()\n    rest..", "for k in 0..K serial:\n    body..", False),
    "a length": ("for k in 0..K serial:\n    body..", "for k in 0..8 serial:\n    body..", True),
    "a copy is a copy": ("a = load B[i..]", "b = load C[j..]", True),
    "another statement of the same fields": ("Sync()", "Wait()", False),
    "another comparison": ("if a < n:\n    body..", "if a <= n:\n    body..", False),
}
PAIR = "rule one on tile\nmatch\n{one}\nrewrite\n    Sync()\n\nrule two{more} on tile\nmatch\n{two}\n{clauses}rewrite\n    Sync()\n"


def pair(one: str, two: str, more: str = "", clauses: str = "") -> str:
    return report(PAIR.format(one=indented(one), two=indented(two), more=more, clauses=clauses))


@pytest.mark.parametrize("name", COVERS)
def test_what_a_rule_leaves_nothing(name: str) -> None:
    one, two, said = COVERS[name]
    assert (NEVER in pair(one, two)) is said, pair(one, two)


def test_the_later_rule_is_the_one_that_cannot_fire() -> None:
    assert "rule `two`: can never fire: `one` fires wherever it matches" in pair("Wait(keep=n)", "Wait(keep=n)")
    assert "rule `two`: can never fire" in pair("Wait(keep=n)", "Wait(keep=n)", clauses='require n > 3 else "few"\n')


GUARDED = "rule {} on tile\nmatch\n    Wait(keep={})\n{}rewrite\n    Sync()\n\n"


@pytest.mark.parametrize(("one", "two", "said"), [
    (("n", ["n > 1"]), ("m", ["m > 1", "m < 9"]), True), (("n", ["n > 1"]), ("m", ["m < 9"]), False),
    (("n", ["n > 1", "n < 9"]), ("m", ["m > 1"]), False),
])  # fmt: skip
def test_a_rule_with_fewer_conditions_leaves_nothing(
    one: tuple[str, list[str]], two: tuple[str, list[str]], said: bool
) -> None:
    rules = [
        GUARDED.format(name, field, "".join(f'require {guard} else "not {guard}"\n' for guard in guards))
        for name, (field, guards) in {"one": one, "two": two}.items()
    ]
    assert (NEVER in report("".join(rules))) is said


@pytest.mark.parametrize("first", [
    'rule one on tile\nmatch\n    Wait(keep=n)\nrequire n > 1 else "few"\nrewrite\n    Sync()\n',
    "rule one(N: int in {1, 2} = 1) on tile\nmatch\n    Wait(keep=n)\nrewrite\n    Wait(keep=N)\n",
    "@local\nrule one on tile\nmatch\n    Wait(keep=n)\nrewrite\n    Sync()\n",
    "@canonical\nrule one on tile\nmatch\n    Wait(keep=n)\nrewrite\n    Sync()\n",
])  # fmt: skip
def test_a_rule_that_does_not_always_fire_leaves_something(first: str) -> None:
    second = "rule two on tile\nmatch\n    Wait(keep=n)\nrewrite\n    Sync()\n"
    assert NEVER not in report(f"{first}\n{second}")


@pytest.mark.parametrize(("attributes", "said"), [
    (("", ""), True), (("@canonical\n", "@canonical\n"), True), (("@canonical\n", ""), False), (("", "@canonical\n"), False),
    (("@local\n", "@local\n"), False), (("@off\n", "@off\n"), False), (("", "@local\n"), False),
])  # fmt: skip
def test_rules_that_are_not_tried_together_leave_each_other_everything(attributes: tuple[str, str], said: bool) -> None:
    bodies = (
        "rule {} on tile\nmatch\n    Wait(keep={})\nrewrite\n    Sync()\n".format(*p)
        for p in (("one", "n"), ("two", "m"))
    )
    found = report("\n".join(a + body for a, body in zip(attributes, bodies, strict=True)))
    assert (NEVER in found) is said, found


TENSOR = "rule {} on tensor\nmatch\n    y = {}\nrewrite\n    y = tanh(x)\n\n"


@pytest.mark.parametrize(("one", "two", "said"), [
    ("fn(x)", "fn(a)", True), ("exp(x)", "exp(a)", True), ("exp(x)", "tanh(x)", False), ("add(x, a)", "add(a, x)", True),
    ("add(x, x)", "add(x, a)", False), ("add(x, a)", "add(x, x)", True), ("exp(x)", "exp(log(x))", True),
    ("exp(log(x))", "exp(x)", False), ("fn(x)", "exp(x)", True), ("exp(x)", "fn(x)", False), ("multiply(x, a)", "multiply(x, 2.0)", True),
    ("add(fn(x), a)", "add(exp(x), exp(a))", True), ("add(fn(x), fn(a))", "add(exp(x), log(a))", False),
])  # fmt: skip
def test_on_tensor_the_names_of_a_pattern_are_free(one: str, two: str, said: bool) -> None:
    found = report(TENSOR.format("one", one) + TENSOR.format("two", two))
    assert (NEVER in found) is said, found


def test_on_torch_ops_and_fields_differ() -> None:
    rule = "rule {} on torch\nmatch\n    y = {}\nrewrite\n    y[is..] = negative(x[is..])\n\n"
    for two, said in {
        "Add(x, o)": True,
        "Add(x, o, alpha=2)": False,
        "Sub(x, o)": False,
        "Add(x, 2)": False,
    }.items():
        found = report(rule.format("one", "Add(x, o)") + rule.format("two", two))
        assert (NEVER in found) is said, found
