"""Inline examples run through the same engine."""

import pytest
from trial import engine

from dplc.engine.kernels.examples import Failure, run_examples
from dplc.ir.diagnostic import DplcError

RULE = """
rule unroll(U: int in {2, 4} = 2) on tile
match
    for k in 0..n reduce:
        body..
require n > 2                           else "short"
rewrite
    for k in 0..n reduce unroll=U:
        body..
example "default"
    for k in 0..8 reduce:
        y[k] = 1.0
gives
    for k in 0..8 reduce unroll=2:
        y[k] = 1.0
example "pinned" (U=4)
    for k in 0..8 reduce:
        y[k] = 1.0
gives
    for k in 0..8 reduce unroll=%s:
        y[k] = 1.0
example "refused"
    for k in 0..2 reduce:
        y[k] = 1.0
gives no "%s"
"""


def test_examples_pass():
    assert run_examples(engine(RULE % (4, "short"))) == (3, [])


def test_a_wrong_result_shows_a_diff():
    count, failures = run_examples(engine(RULE % (2, "short")))
    assert count == 3 and len(failures) == 1
    shown = failures[0].render()
    assert 'rules/tile/001_test1.rw:16:9: error: example "pinned" of rule `unroll` gives something else' in shown
    assert "-for k in 0..8 reduce unroll=2:" in shown and "+for k in 0..8 reduce unroll=4:" in shown


def test_the_reason_of_a_refusal_must_be_the_one_that_is_written():
    (failure,) = run_examples(engine(RULE % (4, "long")))[1]
    assert 'refuses, but not with "long"' in failure.render() and 'matched, but "short"' in failure.render()


def test_a_rule_that_fires_where_it_should_not():
    (failure,) = run_examples(engine((RULE % (4, "short")).replace("0..2 reduce", "0..3 reduce")))[1]
    assert 'fires, but should refuse with "short"' in failure.render()


def test_a_rule_that_does_not_fire_says_why():
    (failure, *_) = run_examples(engine((RULE % (4, "short")).replace("n > 2 ", "n > 9 ")))[1]
    assert "did not fire" in failure.render() and 'matched, but "short" [n > 9; n=8]' in failure.render()


def test_results_are_compared_in_canonical_form():
    canonical = "@canonical\nrule sync_sync on tile\nmatch\n    Sync()\n    Sync()\nrewrite\n    Sync()\n"
    rule = (
        'rule r on tile\nmatch\n    Wait()\nrewrite\n    Sync()\n    Sync()\nexample "x"\n'
        "    Wait()\ngives\n    Sync()\n    Sync()\n    Sync()\n"
    )
    assert run_examples(engine(canonical + rule)) == (1, [])


def test_kernels_in_examples():
    rule = (
        "rule r on module\nmatch\n    kernel f(ins..) -> outs..:\n        Sync()\nrewrite\n"
        "    kernel f(ins..) -> outs..:\n        Wait()\n"
        'example "x"\n    kernel f(x: f32[4]) -> y: f32[4]:\n        Sync()\ngives\n'
        "    kernel f(x: f32[4]) -> y: f32[4]:\n        Wait()\n"
    )
    assert run_examples(engine(rule)) == (1, [])


def test_examples_of_local_rules_take_their_arguments():
    rule = (
        "@local\nrule r(t, T) on tile\nmatch\n    for k in 0..n free:\n        b..\nrewrite\n"
        "    for k in t..n by T free:\n        b..\n"
        'example "x" (t=lane, T=32)\n    for k in 0..8 free:\n        y[k] = 1.0\ngives\n'
        "    for k in lane..8 by 32 free:\n        y[k] = 1.0\n"
    )
    assert run_examples(engine(rule)) == (1, [])


def test_refusals_of_local_rules_take_their_arguments_too():
    text = """
@local
rule longer(least) on tile
match
    for k in 0..n reduce:
        body..
require n > least                       else "short"
rewrite
    for k in 0..n reduce unroll=2:
        body..
example "two turns" (least=2)
    for k in 0..2 reduce:
        y[k] = 1.0
gives no "short"
"""
    assert run_examples(engine(text)) == (1, [])
    with pytest.raises(DplcError, match="local rule `longer` takes 1 arguments, not 0"):
        run_examples(engine(text.replace(" (least=2)", "")))


def test_what_differs_and_reads_alike_is_said_so() -> None:
    """No empty diff: a template that leaves a value where a name belongs prints as the example does."""
    wrong = run_examples(engine(RULE % (2, "short")))[1][0]
    shown = Failure.different(wrong.rule, wrong.example, "y = x\n", "y = x\n").render()
    assert "gives something else" in shown and "both read alike" in shown
