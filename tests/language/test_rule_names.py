"""Names are bound before they are read and read after they are bound: one seeded mistake each, the whole message."""

from __future__ import annotations

import pytest
from broken_rules import LINEAR, RING, change, report

CASES = [
    pytest.param(
        change(RING, "(rest, bufs)", "(rest, bufz)"),
        """\
rule.rw:12:26: error: rule `ring`: unbound variable `bufz`
 12 | require not writes(rest, bufz) else "the body writes a staged tile"
    |                          ^^^^
  help: did you mean `bufs`?""",
        id="unbound variable in a guard",
    ),
    pytest.param(
        change(RING, "where B in bufs", "where B in bufz"),
        """\
rule.rw:17:66: error: rule `ring`: unbound variable `bufz`
 17 |         rest.. with load B[i..] => load B[k % N, i..] where B in bufz
    |                                                                  ^^^^
  help: did you mean `bufs`?""",
        id="unbound variable in a template",
    ),
    pytest.param(
        change(
            RING,
            "{s.dst for s in stages}\nrequire K >= N",
            "{s.dst for s in later}\nlet later = stages\nrequire K >= N",
        ),
        """\
rule.rw:10:28: error: rule `ring`: unbound variable `later`
 10 | let bufs = {s.dst for s in later}
    |                            ^^^^^
  note: it is bound later, in line 11""",
        id="unbound before its let",
    ),
    pytest.param(
        change(RING, "slot=k % N", "slot=_"),
        """\
rule.rw:15:37: error: rule `ring`: `_` matches anything and binds nothing: there is no value to read
 15 |         stages.. with depth=N, slot=_
    |                                     ^
  help: give it a name in the pattern""",
        id="wildcard in the template",
    ),
    pytest.param(
        change(RING, "Stage(depth=1)+", "Stage(depth=1, pad=P)+"),
        """\
rule.rw:6:36: error: rule `ring`: `P` is bound but never used; write `_`
 6 |         stages: Stage(depth=1, pad=P)+
   |                                    ^""",
        id="bound but never used",
    ),
    pytest.param(
        change(RING, "let bufs", "let other = size(stages)\nlet bufs"),
        """\
rule.rw:10:5: error: rule `ring`: `let other` is never used
 10 | let other = size(stages)
    |     ^^^^^""",
        id="let never used",
    ),
    pytest.param(
        change(RING, "= 2) on", "= 2, M: int = 3) on"),
        """\
rule.rw:3:36: error: rule `ring`: parameter `M` is never used
 3 | rule ring(N: int in {2, 3, 4} = 2, M: int = 3) on tile
   |                                    ^""",
        id="parameter never used",
    ),
    pytest.param(
        change(RING, "let bufs = {", "let K = size(stages)\nlet bufs = {"),
        """\
rule.rw:10:5: error: rule `ring`: `K` is bound twice
 10 | let K = size(stages)
    |     ^
  note: first in line 5""",
        id="bound twice",
    ),
    pytest.param(
        change(RING, "        rest.. with load B[i..] => load B[k % N, i..] where B in bufs\n", ""),
        """\
rule.rw:8:9: error: rule `ring`: the template drops `rest..`, with the accumulators and stores in it
 8 |         rest..
   |         ^^^^^^
  help: write `drop rest..` in the template if that is meant""",
        id="dropped run",
    ),
    pytest.param(
        change(RING, "        rest..\n        Sync()\nlet", "        rest..\n        Sync()\n        _..\nlet"),
        """\
rule.rw:10:9: error: rule `ring`: `_..` takes statements that the template cannot put back; give it a name
 10 |         _..
    |         ^^^""",
        id="anonymous run",
    ),
    pytest.param(
        """\
rule slot on tile
match
    a = Stage(src, origin=o, box=s)
    Sync()
rewrite
    a = Stage(src, origin=o, box=s, via=ASYNC)
    Wait()
    Sync()
""",
        """\
rule.rw:6:9: error: rule `slot`: the template resets `depth`, `slot`, `pad`, `swizzle`, `xor`, `lanes`, `when` of \
`Stage`, which the pattern left open
 6 |     a = Stage(src, origin=o, box=s, via=ASYNC)
   |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  help: name it in the pattern, or capture the statement and use `with`""",
        id="reset field",
    ),
    pytest.param(
        change(LINEAR, "w[j, k]", "v[j, k]"),
        """\
rule.rw:3:19: error: rule `linear`: `w` is bound but never used; write `_`
 3 |     y = Linear(x, w, bias=b)
   |                   ^
rule.rw:5:58: error: rule `linear`: unbound variable `v`
 5 |     y[bs.., j] = add(Reduce(add, k, multiply(x[bs.., k], v[j, k])), b[j])
   |                                                          ^""",
        id="torch: unbound tensor",
    ),
    pytest.param(
        change(LINEAR, "    y[bs.., j] =", "    z[bs.., j] ="),
        """\
rule.rw:3:5: error: rule `linear`: the template does not define `y`, the root of the pattern
 3 |     y = Linear(x, w, bias=b)
   |     ^""",
        id="torch: result not defined",
    ),
    pytest.param(
        change(LINEAR, "w[j, k]", "w[j, kk]"),
        """\
rule.rw:5:63: error: rule `linear`: axis `kk` is neither in the bracket of `y` nor folded
 5 |     y[bs.., j] = add(Reduce(add, k, multiply(x[bs.., k], w[j, kk])), b[j])
   |                                                               ^^""",
        id="torch: dangling axis",
    ),
    pytest.param(
        change(
            LINEAR, "Reduce(add, k, multiply(x[bs.., k], w[j, k]))", "multiply(Reduce(add, k, x[bs.., k]), w[j, 2*k])"
        ),
        """\
rule.rw:5:66: error: rule `linear`: axis `k` is neither in the bracket of `y` nor folded
 5 |     y[bs.., j] = add(multiply(Reduce(add, k, x[bs.., k]), w[j, 2*k]), b[j])
   |                                                                  ^""",
        id="torch: dangling axis in arithmetic",
    ),
    pytest.param(
        """\
rule drop_pair on tile
match
    Sync()
    xs..
rewrite
    xs..

rule two on tile
match
    Sync()
    ys..
rewrite
    Wait()
    ys..
""",
        """\
rule.rw:8:6: error: rule `two`: can never fire: `drop_pair` matches everything it matches, without a guard
 8 | rule two on tile
   |      ^^^
  note: `drop_pair` is at rule.rw:1
  help: put the special rule first""",
        id="shadowed",
    ),
    pytest.param(
        change(LINEAR, "w[j, k]", "w"),
        """\
rule.rw:5:58: error: rule `linear`: a tensor is read with brackets: `w[..]`
 5 |     y[bs.., j] = add(Reduce(add, k, multiply(x[bs.., k], w)), b[j])
   |                                                          ^""",
        id="torch: a tensor without brackets",
    ),
    pytest.param(
        change(LINEAR, "b[j])", "y[bs.., j])"),
        """\
rule.rw:3:27: error: rule `linear`: `b` is bound but never used; write `_`
 3 |     y = Linear(x, w, bias=b)
   |                           ^
rule.rw:5:69: error: rule `linear`: the template reads `y`, which it defines
 5 |     y[bs.., j] = add(Reduce(add, k, multiply(x[bs.., k], w[j, k])), y[bs.., j])
   |                                                                     ^""",
        id="torch: the result is read",
    ),
]


@pytest.mark.parametrize(("rule", "message"), CASES)
def test_the_whole_message(rule: str, message: str) -> None:
    assert report(rule) == message
