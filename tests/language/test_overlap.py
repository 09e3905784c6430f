"""Which rules leave nothing for others, and which match what they have made: pairs of patterns, and what is said of them."""

from __future__ import annotations

import pytest
from broken_rules import report

REPEATED = """\
@repeat
rule again{parameters} on tile
match
{match}
{clauses}rewrite
{rewrite}
"""
NEVER, SAID = "can never fire", "the template can match its own pattern"


def indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


# pattern, template, and whether the pattern may match what the template makes
AGAIN = {
    "the same": ("Wait(keep=n)", "Wait(keep=n + 1)", True),
    "another statement": ("Wait(keep=n)", "Sync()", False),
    "another number": ("Wait(keep=1)", "Wait(keep=2)", False),
    "the same number": ("Wait(keep=1)", "Sync()\nWait(keep=1)", True),
    "the default, unsaid": ("Wait(keep=0)", "Wait()", True),
    "not the default": ("Wait(keep=1)", "Wait()", False),
    "a second statement that differs": ("Wait(keep=n)\nSync()", "Wait(keep=n)\nWait(keep=n + 1)", False),
    "a second statement that is there": ("Wait(keep=n)\nSync()", "Wait(keep=n + 1)\nSync()", True),
    "only the second is there": ("Wait(keep=1)\nSync()", "Wait(keep=2)\nSync()", False),
    "as many of a kind, of which one differs": ("Wait(keep=1)\nWait(keep=2)", "Wait(keep=1)\nWait(keep=3)", False),
    "any map where none is said": (
        "a = Stage(b, origin=o, slab=(s..), xor=x)", "a = Stage(b, origin=o, slab=(s..))", True,
    ),
    "too few": ("Wait(keep=n)\nSync()\nSync()\nrest..", "Wait(keep=n)\nSync()\nWait()\nrest..", False),
    "a deeper ring": ("a = Stage(b, origin=o, slab=(s..), depth=2, slot=t)",
                      "a = Stage(b, origin=o, slab=(s..), depth=3, slot=t)", False),
    "a slab with axes, where none is said": ("a = Stage(b, origin=o, slab=(s..), xor=(_, x..))",
                                             "a = Stage(b, origin=o, slab=(s..))", False),
    "a run where none is said": ("a = Stage(b, origin=o, slab=(s..), xor=(x..))", "a = Stage(b, origin=o, slab=(s..))", True),
    "what is denied": ("a = Stage(b, origin=o, slab=(s..), via=not TMA)",
                       "a = Stage(b, origin=o, slab=(s..), via=TMA)", False),
    "not what is denied": ("a = Stage(b, origin=o, slab=(s..), via=not TMA)",
                           "a = Stage(b, origin=o, slab=(s..), via=ASYNC)", True),
    "the default is denied": ("a = Stage(b, origin=o, slab=(s..), via=not SYNC)", "a = Stage(b, origin=o, slab=(s..))", False),
    "another is denied": ("a = Stage(b, origin=o, slab=(s..), via=not TMA)", "a = Stage(b, origin=o, slab=(s..))", True),
    "a loop": ("for k in 0..K serial:\n    body..", "for k in 0..K serial:\n    Sync()\n    body..", True),
    "another role": ("for k in 0..K serial:\n    body..", "for k in 0..K reduce:\n    Sync()\n    body..", False),
    "another start": ("for k in 0..K serial:\n    body..", "for k in 1..K serial:\n    Sync()\n    body..", False),
    "a step": ("for k in 0..K serial:\n    body..", "for k in 0..K by 2 serial:\n    Sync()\n    body..", False),
    "unrolled": ("for k in 0..K serial:\n    body..", "for k in 0..K serial unroll=2:\n    Sync()\n    body..", False),
    "inside of a loop": ("Wait(keep=n)", "for k in 0..4 serial:\n    Wait(keep=n)", True),
    "copies that go by another way": (
        "for k in 0..K serial:\n    stages: Stage(via=SYNC)+\n    rest..",
        "for k in 0..K serial:\n    stages.. with via=ASYNC\n    rest..", False,
    ),
    "copies of which another field changes": (
        "for k in 0..K serial:\n    stages: Stage(via=SYNC)+\n    rest..",
        "for k in 0..K serial:\n    stages.. with pad=1\n    rest..", True,
    ),
    "copies of which one field stays out": (
        "for k in 0..K serial:\n    stages: Stage(via=SYNC, pad=0)+\n    rest..",
        "for k in 0..K serial:\n    stages.. with via=SYNC, pad=1\n    rest..", False,
    ),
    "a copy that has a name": ("a: Stage(depth=1)", "b = Stage(A, origin=(0), slab=(i:4@0), depth=2, slot=0)", False),
    "a copy as the named one": ("a: Stage(depth=1)", "b = Stage(A, origin=(0), slab=(i:4@0), pad=1)", True),
    "another sum": ("c <- maximum(c, e)", "c <- add(c, e)", False),
    "the same sum": ("c <- add(c, e)", "c <- add(c, e)", True),
    "any sum": ("c <- fn(c, e)", "c <- add(c, e)", True),
    "one statement less": ("Wait(keep=n)\nWait(keep=m)", "Wait(keep=m)", False),
    "one loop less": ("for k in 0..K serial:\n    for j in 0..J serial:\n        body..", "for k in 0..K*J serial:\n    body..", False),
}  # fmt: skip


@pytest.mark.parametrize("name", AGAIN)
def test_what_a_rule_may_match_of_its_own(name: str) -> None:
    match, rewrite, said = AGAIN[name]
    text = REPEATED.format(parameters="", clauses="", match=indented(match), rewrite=indented(rewrite))
    assert (SAID in report(text)) is said, report(text)


# the first pattern, the second, and whether the first leaves the second nothing
COVERS = {
    "the same": ("Wait(keep=n)", "Wait(keep=n)", True),
    "a number": ("Wait(keep=n)", "Wait(keep=1)", True),
    "a number before any": ("Wait(keep=1)", "Wait(keep=n)", False),
    "another number": ("Wait(keep=1)", "Wait(keep=2)", False),
    "a field that the second leaves open": ("Wait(keep=n)", "Wait()", False),
    "longer": ("Wait(keep=n)\nSync()", "Wait(keep=n)", False),
    "a beginning": ("Wait(keep=n)", "Wait(keep=n)\nSync()", True),
    "another second": ("Wait(keep=n)\nSync()", "Wait(keep=n)\nWait(keep=m)", False),
    "twice the same name": ("Wait(keep=n)\nWait(keep=n)", "Wait(keep=a)\nWait(keep=b)", False),
    "twice the same in both": ("Wait(keep=n)\nWait(keep=n)", "Wait(keep=a)\nWait(keep=a)", True),
    "a loop with anything": ("for k in 0..K serial:\n    body..", "for k in 0..K serial:\n    Sync()\n    rest..", True),
    "a loop with something": ("for k in 0..K serial:\n    Sync()\n    body..", "for k in 0..K serial:\n    rest..", False),
    "another role": ("for k in 0..K reduce:\n    body..", "for k in 0..K serial:\n    body..", False),
    "a start that is said": ("for k in 0..K serial:\n    body..", "for k in a..K serial:\n    body..", False),
    "any sum": ("c <- fn(c, e)", "s <- add(s, x)", True),
    "one sum": ("c <- add(c, e)", "s <- fn(s, x)", False),
    "anything that is not looked at": ("_ <- add(_, _)", "s <- add(s, x)", True),
    "a copy that has a name": ("a: Stage(depth=2)", "b: Stage(depth=2)", False),
    "a run that is not last": ("xs..\nSync()", "Sync()", False),
    "a copy is no value": ("a = x", "a = load B[i..]", False),
    "a copy is a copy": ("a = load B[i..]", "b = load C[j..]", True),
    "another statement": ("Wait(keep=n)", "Sync()", False),
    "another statement of the same fields": ("Sync()", "Wait()", False),
}  # fmt: skip
PAIR = "rule one on tile\nmatch\n{one}\nrewrite\n    Sync()\n\nrule two{more} on tile\nmatch\n{two}\n{clauses}rewrite\n    Sync()\n"


def pair(one: str, two: str, more: str = "", clauses: str = "") -> str:
    return report(PAIR.format(one=indented(one), two=indented(two), more=more, clauses=clauses))


@pytest.mark.parametrize("name", COVERS)
def test_what_a_rule_leaves_nothing(name: str) -> None:
    one, two, said = COVERS[name]
    assert (NEVER in pair(one, two)) is said, pair(one, two)


def test_the_later_rule_is_the_one_that_cannot_fire() -> None:
    assert "rule `two`: can never fire: `one` matches" in pair("Wait(keep=n)", "Wait(keep=1)")
    assert "rule `two`: can never fire" in pair("Wait(keep=n)", "Wait(keep=n)", clauses='where n > 3 because "few"\n')


@pytest.mark.parametrize("first", [
    'rule one on tile\nmatch\n    Wait(keep=n)\nwhere n > 1 because "few"\nrewrite\n    Sync()\n',
    "rule one(N: int in {1, 2} = 1) on tile\nmatch\n    Wait(keep=n)\nrewrite\n    Wait(keep=N)\n",
    "@local\nrule one on tile\nmatch\n    Wait(keep=n)\nrewrite\n    Sync()\n",
    "@canonical\nrule one on tile\nmatch\n    Wait(keep=n)\nrewrite\n    Sync()\n",
])  # fmt: skip
def test_a_rule_that_does_not_always_fire_leaves_something(first: str) -> None:
    second = "rule two on tile\nmatch\n    Wait(keep=1)\nrewrite\n    Sync()\n"
    assert NEVER not in report(f"{first}\n{second}")


@pytest.mark.parametrize(("attributes", "said"), [
    (("", ""), True), (("@canonical\n", "@canonical\n"), True), (("@canonical\n", ""), False), (("", "@canonical\n"), False),
    (("@local\n", "@local\n"), False), (("@unstable\n", "@unstable\n"), False), (("", "@local\n"), False),
])  # fmt: skip
def test_rules_that_are_not_tried_together_leave_each_other_everything(attributes: tuple[str, str], said: bool) -> None:
    bodies = (
        "rule {} on tile\nmatch\n    Wait(keep={})\nrewrite\n    Sync()\n".format(*p)
        for p in (("one", "n"), ("two", "1"))
    )
    found = report("\n".join(a + body for a, body in zip(attributes, bodies, strict=True)))
    assert (NEVER in found) is said, found


TENSOR = "rule one on tensor\nmatch\n    y = {one}\nrewrite\n    y = tanh(x)\n\nrule two on tensor\nmatch\n    y = {two}\nrewrite\n    y = tanh(x)\n"


@pytest.mark.parametrize(("one", "two", "said"), [
    ("fn(x)", "exp(x)", True), ("exp(x)", "fn(x)", False), ("exp(x)", "exp(add(x, 1.0))", True), ("exp(x)", "tanh(x)", False),
    ("add(x, x)", "add(x, a)", False), ("add(x, a)", "add(x, x)", True),
])  # fmt: skip
def test_on_tensor_a_name_may_be_any_function(one: str, two: str, said: bool) -> None:
    found = report(TENSOR.format(one=one, two=two))
    assert (NEVER in found) is said, found


TORCH = "rule one on torch\nmatch\n    {one}\nrewrite\n    y[is..] = negative(x[is..])\n\n" + (
    "rule two on torch\nmatch\n    {two}\nrewrite\n    y[is..] = negative(x[is..])\n"
)


@pytest.mark.parametrize(("one", "two", "said"), [
    ("y = Add(x, o)", "y = Add(x, o)", True),
    ("y = Add(x, o)", "y = Add(x, o, alpha=2)", False),
    ("y = Add(x, o, rest..)", "y = Add(x, o, alpha=a)", True),
        ("y = Add(x, o)", "y = Add(x, o, rest..)", False),
    ("y = Add(x, o, alpha=a)", "y = Add(x, o, alpha=2)", True),
    ("y = Add(x, o)", "y = Sub(x, o)", False),
])  # fmt: skip
def test_on_torch_a_field_that_is_not_said_is_at_its_default(one: str, two: str, said: bool) -> None:
    found = report(TORCH.format(one=one, two=two))
    assert (NEVER in found) is said, found
