"""Sorts of expressions, reasons, defaults, attributes and examples. One seeded mistake each, the whole message."""

from __future__ import annotations

import pytest
from broken_rules import HOIST, LINEAR, RING, change, report

CASES = [
    pytest.param(
        change(RING, "K >= N", 'K >= "two"'),
        """\
rule.rw:11:14: error: rule `ring`: `>=` works on numbers and index expressions, not on a text
 11 | require K >= "two" else "fewer chunks than buffers"
    |              ^^^^^""",
        id="text for a number",
    ),
    pytest.param(
        change(RING, "K >= N", "K >= rest"),
        """\
rule.rw:11:14: error: rule `ring`: `>=` works on numbers and index expressions, not on a run of statements
 11 | require K >= rest else "fewer chunks than buffers"
    |              ^^^^""",
        id="a run for a number",
    ),
    pytest.param(
        change(RING, "K >= N else", "size(stages) else"),
        """\
rule.rw:11:9: error: rule `ring`: the condition of `require` is true or false, not an integer
 11 | require size(stages) else "fewer chunks than buffers"
    |         ^^^^^^^^^^^^""",
        id="where is not boolean",
    ),
    pytest.param(
        change(RING, "writes(rest, bufs)", "writes(N, bufs)"),
        """\
rule.rw:12:20: error: rule `ring`: argument 1 of `writes` is a run of statements, not an integer
 12 | require not writes(N, bufs) else "the body writes a staged tile"
    |                    ^""",
        id="argument of the wrong sort",
    ),
    pytest.param(
        change(RING, "with depth=N", "with depth=0.5"),
        """\
rule.rw:15:29: error: rule `ring`: `depth` is an integer, not a number
 15 |         stages.. with depth=0.5, slot=k % N
    |                             ^^^""",
        id="float for an integer field",
    ),
    pytest.param(
        change(RING, "with depth=N", "with depth=[N, N]"),
        """\
rule.rw:15:29: error: rule `ring`: `depth` is an integer, not a list (an integer each)
 15 |         stages.. with depth=[N, N], slot=k % N
    |                             ^^^^^^""",
        id="list for a scalar",
    ),
    pytest.param(
        change(RING, "serial:\n        stages.. with", 'serial unroll="all":\n        stages.. with'),
        """\
rule.rw:14:33: error: rule `ring`: `unroll` is an integer, not a text
 14 |     for k in 0..K serial unroll="all":
    |                                 ^^^^^""",
        id="unroll is a text",
    ),
    pytest.param(
        change(
            RING,
            "        stages.. with depth=N, slot=k % N",
            "        each j in 0..k:\n            stages[k := j].. with depth=N",
        ),
        """\
rule.rw:15:22: error: rule `ring`: the bound of `each` is an integer, not a name
 15 |         each j in 0..k:
    |                      ^""",
        id="each over a name",
    ),
    pytest.param(
        change(RING, "let bufs = {s.dst for s in stages}", "let bufs = [stages.dst]"),
        """\
rule.rw:10:13: error: rule `ring`: `.dst` is read from one statement, axis or record, not from a run of statements
 10 | let bufs = [stages.dst]
    |             ^^^^^^^^^^""",
        id="member of a run",
    ),
    pytest.param(
        change(RING, "= 2) on", "= 5) on"),
        """\
rule.rw:3:33: error: rule `ring`: the default 5 of `N` is not in its domain
 3 | rule ring(N: int in {2, 3, 4} = 5) on tile
   |                                 ^
  note: the domain is {2, 3, 4}""",
        id="default outside of its domain",
    ),
    pytest.param(
        change(RING, "= 2) on", "= true) on"),
        """\
rule.rw:3:33: error: rule `ring`: the default of `N` is an integer, not true or false
 3 | rule ring(N: int in {2, 3, 4} = true) on tile
   |                                 ^^^^""",
        id="default of the wrong sort",
    ),
    pytest.param(
        change(RING, '"the body writes a staged tile"', '"fewer chunks than buffers"'),
        """\
rule.rw:12:9: error: rule `ring`: two guards give the reason "fewer chunks than buffers"
 12 | require not writes(rest, bufs) else "fewer chunks than buffers"
    |         ^^^^^^^^^^^^^^^^^^^^^^
  note: the other is in line 11
  help: say what is different""",
        id="the same reason twice",
    ),
    pytest.param(
        change(RING, "@repeat", "@repeat\n@canonical"),
        """\
rule.rw:4:6: error: rule `ring`: @canonical and @repeat exclude each other
 4 | rule ring(N: int in {2, 3, 4} = 2) on tile
   |      ^^^^
rule.rw:4:11: error: rule `ring`: a @canonical rule has no parameters: nobody could choose them
 4 | rule ring(N: int in {2, 3, 4} = 2) on tile
   |           ^""",
        id="attributes",
    ),
    pytest.param(
        change(RING, "rewrite", 'decreases "K"\nrewrite'),
        """\
rule.rw:13:11: error: rule `ring`: the value of `decreases` is a number, not a text
 13 | decreases "K"
    |           ^^^""",
        id="a text that decreases",
    ),
    pytest.param(
        change(change(RING, "@repeat\n", ""), "rewrite", "decreases size(rest)\nrewrite"),
        """\
rule.rw:12:11: error: rule `ring`: `decreases` is for a @repeat rule: any other fires once
 12 | decreases size(rest)
    |           ^^^^^^^^^^""",
        id="a measure of a rule that fires once",
    ),
    pytest.param(
        RING + 'example "two" (M=2)\n    Sync()\ngives no "fewer chunks"\n',
        """\
rule.rw:18:16: error: rule `ring`: the example sets `M`, which is not a parameter of the rule
 18 | example "two" (M=2)
    |                ^^^""",
        id="example sets no parameter",
    ),
    pytest.param(
        RING + 'example "two"\n    Sync()\ngives no "fewer chucks"\n',
        """\
rule.rw:18:9: error: rule `ring`: no guard gives the reason "fewer chucks"
 18 | example "two"
    |         ^^^^^
  note: there is "fewer chunks than buffers"
  note: there is "the body writes a staged tile"\n"""[:-1],
        id="unknown refusal",
    ),
    pytest.param(
        RING + 'example "two"\n    As = Stage(A, orign=(0), box=(t:4@0))\ngives no "fewer chunks"\n',
        """\
rule.rw:19:19: error: rule `ring`: example "two": `Stage` has no field `orign`
 19 |     As = Stage(A, orign=(0), box=(t:4@0))
    |                   ^^^^^^^^^
  help: did you mean `origin`?""",
        id="broken example",
    ),
    pytest.param(
        change(LINEAR, "b[j])", "j)"),
        """\
rule.rw:3:27: error: rule `linear`: `b` is bound but never used; write `_`
 3 |     y = Linear(x, w, bias=b)
   |                           ^
rule.rw:5:69: error: rule `linear`: a value is a tensor value, not an axis
 5 |     y[bs.., j] = add(Reduce(add, k, multiply(x[bs.., k], w[j, k])), j)
   |                                                                     ^""",
        id="torch: an axis for a value",
    ),
    pytest.param(
        change(LINEAR, "w[j, k])), b", "bs..)), b"),
        """\
rule.rw:3:19: error: rule `linear`: `w` is bound but never used; write `_`
 3 |     y = Linear(x, w, bias=b)
   |                   ^
rule.rw:5:58: error: rule `linear`: `multiply` takes values, not a run of them
 5 |     y[bs.., j] = add(Reduce(add, k, multiply(x[bs.., k], bs..)), b[j])
   |                                                          ^^^^""",
        id="torch: a run for a value",
    ),
    pytest.param(
        change(LINEAR, "bias=b", "bias=b + 1"),
        """\
rule.rw:3:27: error: rule `linear`: a field of a pattern on torch is a variable, a constant or a list of them
 3 |     y = Linear(x, w, bias=b + 1)
   |                           ^^^^^""",
        id="torch: a calculation in a pattern",
    ),
    pytest.param(
        change(RING, "Stage(depth=1)+", "Stage(depth=1, via=1 + N)+"),
        """\
rule.rw:3:11: error: rule `ring`: `N` is bound twice
 3 | rule ring(N: int in {2, 3, 4} = 2) on tile
   |           ^
  note: first in line 6
rule.rw:6:36: error: rule `ring`: `via` of `Stage` is a name in a pattern
 6 |         stages: Stage(depth=1, via=1 + N)+
   |                                    ^^^^^""",
        id="no name where one is bound",
    ),
    pytest.param(
        change(HOIST, "k not in axes(c)", 'k == "k"'),
        """\
rule.rw:5:9: error: rule `hoist`: an axis is compared with a text: never equal
 5 | require k == "k" else "the factor varies along the reduced axis"
   |         ^^^^^^^^""",
        id="tensor: a comparison that never holds",
    ),
]


@pytest.mark.parametrize(("rule", "message"), CASES)
def test_the_whole_message(rule: str, message: str) -> None:
    assert report(rule) == message


@pytest.mark.parametrize("call", ["fn(x)", "exp(x)"])
def test_a_function_that_a_pattern_binds_gives_an_expression(call: str) -> None:
    rule = f"""rule sums on tile
match
    acc <- fn(acc, x)
require not writes({call}, [acc]) else "a run is asked for"
rewrite
    acc <- fn(acc, {call})
"""
    assert "argument 1 of `writes` is a run of statements, not an expression" in report(rule)
