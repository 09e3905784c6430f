"""LANGUAGE sections 6 and 10: guards, parameters, choices, and the reasons of a refusal."""

import pytest
from choices import choices, key, pinned
from trial import TARGET, block, engine, fire, plain, refusal, text

from dplc.engine.language.evaluate import FACTS, fact
from dplc.ir.diagnostic import DplcError

ASKED: list[str] = []


@pytest.fixture(autouse=True)
def some_facts():
    before = dict(FACTS)
    fact("test_max([int]) -> int")(lambda site, xs: max(xs))
    fact("test_say(text, any) -> any")(lambda site, word, value: (ASKED.append(word), value)[1])
    ASKED.clear()
    yield
    FACTS.clear()
    FACTS.update(before)


LOOP = "for k in 0..8 serial:\n    y[k] = 1.0"


def chunk(parameters="", clauses="", result="for k in 0..n serial unroll=VALUE:\n        b.."):
    return (
        f"rule r{parameters} on tile\nmatch\n    for k in 0..n serial:\n        b..\n{clauses}rewrite\n    {result}\n"
    )


def unroll(parameters, clauses="", value="U"):
    return chunk(parameters, clauses).replace("VALUE", str(value))


def test_a_parameter_has_its_default():
    assert fire(unroll("(U: int in {2, 4} = 4)"), LOOP).startswith("for k in 0..8 serial unroll=4")


def test_without_a_default_it_is_the_first_of_its_domain():
    assert fire(unroll("(U: int in {2, 4})"), LOOP).startswith("for k in 0..8 serial unroll=2")


def test_a_pinned_value():
    assert fire(unroll("(U: int in {2, 4} = 4)"), LOOP, U=2).startswith("for k in 0..8 serial unroll=2")
    made = engine(unroll("(U: int in {2, 4} = 4)"), pins={"r": {"U": 2}})
    step = pinned(made.step("r"), {"U": 4})
    assert text(made.fire(step, block(LOOP), TARGET)).startswith("for k in 0..8 serial unroll=2")


def test_a_pin_of_something_unknown_is_an_error():
    with pytest.raises(DplcError, match="no parameter `V`"):
        engine(unroll("(U: int in {2, 4} = 4)"), pins={"r": {"V": 2}})
    with pytest.raises(DplcError, match="no rule `rr`"):
        engine(unroll("(U: int in {2, 4} = 4)"), pins={"rr": {"U": 2}})


def test_what_does_not_depend_on_the_variable_of_a_list_is_asked_once():
    domain = "[d for d in (2, 3, 4) if d <= test_say(`most`, n - 4) and test_say(`own`, d) > 2]".replace("`", '"')
    assert fire(unroll(f"(U: int in {domain})"), LOOP).startswith("for k in 0..8 serial unroll=3")
    assert ASKED == ["most", "own", "own", "own"]


def test_a_list_in_a_list_asks_again_for_what_depends_on_the_outer_variable():
    inner = "[b for b in (1, 2) if b <= test_say(`most`, a)]".replace("`", '"')
    found = f'let most = [test_max({inner}) for a in (1, 2, 3)]\nrequire most == (1, 2, 2) else "no"\n'
    assert fire(unroll("(U: int in {2})", found), LOOP).startswith("for k in 0..8 serial unroll=2")
    assert ASKED == ["most"] * 3


def test_domain_and_default_may_use_the_match_and_lets():
    rules = unroll("(U: int in [d for d in (2, 3, 5) if m % d == 0] = m // 5)", "let m = n + 2\n")
    assert fire(rules, LOOP).startswith("for k in 0..8 serial unroll=2")


def test_a_value_outside_of_its_domain_is_a_refusal_and_never_clamped():
    rules = unroll("(U: int in {2, 4} = 4)")
    assert fire(rules, LOOP, U=3) == LOOP
    assert refusal(rules, LOOP, U=3) == ["rules/tile/001_test1.rw:1: r: matched, but U=3 is not in its domain {2, 4}"]
    twelve = ", ".join(map(str, range(2, 14)))
    for domain, more in ((f"{{{twelve}}}", ""), (f"{{{twelve}, 14}}", ", ...")):
        assert refusal(unroll(f"(U: int in {domain} = 4)"), LOOP, U=1)[0].endswith(f"{{{twelve}{more}}}")
    assert "the default U=5 is not in its domain {2, 4}" in refusal(unroll("(U: int in {2, 4} = 5)"), LOOP)[0]


def test_a_default_that_does_not_exist_is_a_refusal():
    rules = unroll("(U: int in {2, 4} = test_max([d for d in (2, 3) if n % (d*100) == 0]))")
    assert "matched, but U has no default here" in refusal(rules, LOOP)[0]


def test_a_parameter_is_bound_before_the_first_clause_that_mentions_it():
    clauses = 'require n > 100  else "small"\nrequire U > 1     else "one"\n'
    assert "small" in refusal(unroll("(U: int in {2} = 7)", clauses), LOOP)[0]
    clauses = 'require U > 1   else "one"\nrequire n > 100    else "small"\n'
    assert "the default U=7" in refusal(unroll("(U: int in {2} = 7)", clauses), LOOP)[0]


def test_a_parameter_that_another_ones_domain_reads_comes_first():
    rules = unroll("(U: int in {V} = V, V: int in {4} = 4)", 'require U > 1  else "one"\n')
    assert fire(rules, LOOP).startswith("for k in 0..8 serial unroll=4")


def test_a_failed_guard_says_why_with_the_values():
    reasons = refusal(unroll("", 'let m = n*2\nrequire m > 100 else "too short"\n', 2), LOOP)
    assert reasons == ['rules/tile/001_test1.rw:6: r: matched, but "too short" [m > 100; m=16]']


def test_profitability_is_said_to_be_that():
    rules = unroll("", 'prefer n > 100 else "too short"\n', 2)
    assert refusal(rules, LOOP)[0].endswith('not preferred: matched, but "too short" [n > 100; n=8]')
    assert [key(c) for c in choices(engine(rules), "r", block(LOOP), TARGET)] == ["r@0/0()"]


def test_an_undecidable_comparison_does_not_hold():
    symbolic = "for k in 0..m serial:\n    y[k] = 1.0"
    assert "positive" in refusal(unroll("", 'require n > 0 else "positive"\n', 2), symbolic)[0]
    undecided = refusal(unroll("", 'let x = n > 0\nrequire x else "positive"\n', 2), symbolic)[0]
    assert "`x` is undecided: m > 0" in undecided


def test_a_guard_that_is_no_condition_is_a_located_error():
    with pytest.raises(DplcError, match="neither true nor false"):
        refusal(unroll("", 'require n + 1 else "x"\n', 2), LOOP)


def test_a_clause_that_cannot_be_evaluated_is_a_located_error():
    with pytest.raises(DplcError) as caught:
        refusal(unroll("", 'let x = b[7]\nrequire x == 1 else "x"\n', 2), LOOP)
    assert "cannot be evaluated" in caught.value.what and caught.value.span.line == 5


def test_the_deepest_guard_wins():
    rules = unroll("", 'require n > 4 else "first"\nrequire n > 100 else "second"\n', 2)
    made = engine(rules)
    program = block(LOOP + "\nfor l in 0..2 serial:\n    y[l] = 1.0")
    reasons = [(r.depth, "first" in r.render()) for r in made.why_not("r", program, TARGET)]
    assert reasons == [(1, False), (0, True)]


def test_the_nearest_miss_of_a_pattern():
    rules = (
        "rule r on tile\nmatch\n    for k in 0..n serial:\n        s: Stage(depth=2)\n"
        "        Sync()\nrewrite\n    pass\n"
    )
    program = "for k in 0..4 serial:\n    As = Stage(A, origin=(0), box=(t:4@0), depth={})\n    {}"
    assert refusal(rules, program.format(2, "Wait()")) == [
        "rules/tile/001_test1.rw:5: r: the pattern matches nowhere; nearest miss after 2 statements: "
        "expected `Sync()`, found `Wait()`"
    ]
    assert (
        "after 1 statement: expected `s: Stage(depth=2)`, found `As = Stage(A"
        in refusal(rules, program.format(3, "Sync()"))[0]
    )
    assert "expected the end of the block, found `Wait()`" in refusal(rules, program.format(2, "Sync()\n    Wait()"))[0]
    short = "for k in 0..4 serial:\n    As = Stage(A, origin=(0), box=(t:4@0), depth=2)"
    assert "expected `Sync()`, found the end of the block" in refusal(rules, short)[0]
    other = refusal(rules, "for j in 0..4 reduce:\n    Sync()")[0]
    assert "after 0 statements: expected `for k in 0..n serial:`, found `for j in 0..4 reduce:`" in other
    assert "nothing here is like its first statement `for k in 0..n serial:`" in refusal(rules, "Sync()")[0]


def test_evidence_of_a_run_that_does_not_fit():
    rules = (
        "rule r on tile\nmatch\n    for k in 0..n serial:\n        s: Stage()+\n"
        "        Sync()\n        rest..\n        Sync()\nrewrite\n    pass\n"
    )
    program = "for k in 0..4 serial:\n    As = Stage(A, origin=(0), box=(t:4@0))\n    Sync()\n    {}"
    assert (
        "after 3 statements: expected `Sync()`, found `y[0] = 1.0`" in refusal(rules, program.format("y[0] = 1.0"))[0]
    )


# ---- cost: what is asked, and how often


def test_a_let_that_no_guard_reads_runs_only_when_the_rule_rewrites():
    rules = unroll(
        "(U: int in {2, 4} = 4)",
        'let late = test_say("late", 1)\nlet early = test_say("early", 2)\nrequire early > U - 9 else "x"\n',
        "late + U",
    )
    found = list(choices(engine(rules), "r", block(LOOP), TARGET))
    assert len(found) == 2 and ASKED == ["early"]
    assert text(found[0].apply()).startswith("for k in 0..8 serial unroll=3")
    assert ASKED == ["early", "late"]


def test_what_only_a_preference_reads_costs_a_search_nothing():
    rules = unroll("", 'let x = test_say("x", 1)\nprefer x > 2 else "y"\n', 2)
    assert len(list(choices(engine(rules), "r", block(LOOP), TARGET))) == 1 and ASKED == []
    assert fire(rules, LOOP) == LOOP and ASKED == ["x"]
    ASKED.clear()
    assert fire(rules.replace("x > 2", "x < 2"), LOOP) != LOOP and ASKED == ["x"]  # and not again when it rewrites


def test_lets_run_behind_the_guards_that_do_not_read_them():
    rules = unroll("", 'let x = test_say("x", 1)\nrequire n > 100 else "short"\nrequire x > 2 else "y"\n', 2)
    assert "short" in refusal(rules, LOOP)[0] and ASKED == []


# ---- choices


def test_every_legal_rule_site_and_parameter_is_a_choice():
    rules = unroll("(U: int in {2, 4, 16} = 4)", 'require U <= n else "x"\n')
    program = block(LOOP + "\nfor l in 0..4 serial:\n    y[l] = 1.0")
    made = engine(rules)
    found = list(choices(made, "r", program, TARGET))
    assert [key(c) for c in found] == ["r@0/0(U=2)", "r@0/0(U=4)", "r@0/1(U=2)", "r@0/1(U=4)"]
    assert [key(c) for c in choices(made, "r", program, TARGET, {"U": 4})] == ["r@0/0(U=4)", "r@0/1(U=4)"]
    assert list(choices(made, "r", program, TARGET, without=frozenset(["example"]))) == []
    assert found[2].kernel == "example" and found[2].parameters == {"U": 2}
    again = {key(c): c for c in choices(made, "r", program, TARGET)}
    assert again[key(found[2])].apply() == found[2].apply() != found[1].apply()
    assert "r@0/9(U=2)" not in again


def test_choices_are_lazy():
    found = choices(
        engine(unroll("(U: int in {2, 4} = 4)", 'let x = test_say("x", n)\nrequire x > 0 else "x"\n')),
        "r",
        block("\n".join(LOOP.replace("k", f"k{n}") for n in range(9))),
        TARGET,
    )
    next(found)
    assert ASKED == ["x"]


def test_pick_tries_every_element():
    rules = unroll("", 'pick u in (2, 4)\nrequire u > 2 else "small"\n', "u")
    assert fire(rules, LOOP).startswith("for k in 0..8 serial unroll=4")
    assert [key(c) for c in choices(engine(rules), "r", block(LOOP), TARGET)] == ["r@0/0(u=4)"]


def test_every_way_to_match_is_a_site():
    rules = "rule r on tile\nmatch\n    for k in 0..n serial:\n        a..\n        b..\nrewrite\n    a..\n"
    found = [
        key(c) for c in choices(engine(rules), "r", block("for k in 0..4 serial:\n    Sync()\n    Wait()"), TARGET)
    ]
    assert found == ["r@0/0()", "r@0/0#1()", "r@0/0#2()"]


def test_a_variable_of_the_match_can_be_pinned():
    from dplc.ir.expr import Var

    rules = (
        "rule r on tile\nmatch\n    Tile(pre.., x:n=REG, post..):\n        b..\nrewrite\n"
        "    Tile(pre.., x:n=VEC, post..):\n        b..\n"
    )
    program = "Tile(i:4=REG, j:4=REG):\n    y[i, j] = 1.0"
    assert fire(rules, program, x=Var("j")) == plain("Tile(i:4=REG, j:4=VEC):\n    y[i, j] = 1.0")
    assert "x is pinned" in refusal(rules, program, x=Var("q"))[0]


def test_in_lists_of_lists_a_question_is_asked_once_for_what_it_depends_on():
    inner = "max([test_say(`inner`, i) * test_say(`both`, i + d) + test_say(`none`, n) for i in (1, 2)])"
    domain = f"[d for d in (2, 4) if {inner} + test_say(`outer`, d) > 0]".replace("`", '"')
    assert fire(unroll(f"(U: int in {domain})"), LOOP).startswith("for k in 0..8 serial unroll=2")
    assert {word: ASKED.count(word) for word in ASKED} == {"inner": 2, "both": 4, "none": 1, "outer": 2}


def test_what_only_a_default_reads_is_not_asked_where_the_parameter_is_pinned():
    said = unroll("(U: int in {2, 4} = usual)", 'let usual = test_say("usual", 4)\nrequire U < n else "long"\n')
    assert fire(said, LOOP, U=2).startswith("for k in 0..8 serial unroll=2") and ASKED == []
    assert fire(said, LOOP).startswith("for k in 0..8 serial unroll=4") and ASKED == ["usual"]


def test_a_let_waits_behind_a_choice_of_one_value():
    clauses = 'let late = test_say("late", 4)\nrequire U > n else "short"\nprefer late > U else "late"\n'
    assert fire(unroll("(U: int in {2, 4} = 4)", clauses), LOOP).startswith("for k in 0..8 serial:") and ASKED == []
