"""Words that do not exist, arguments that are too many: one seeded mistake each, the whole message."""

from __future__ import annotations

import pytest
from broken_rules import FAMILY, HOIST, LINEAR, RING, change, report

CASES = [
    pytest.param(
        change(RING, "Stage(depth=1)+", "Stag(depth=1)+"),
        """\
rule.rw:6:17: error: rule `ring`: unknown op `Stag`
 6 |         stages: Stag(depth=1)+
   |                 ^^^^^^^^^^^^^
  help: did you mean `Stage`?""",
        id="unknown op",
    ),
    pytest.param(
        change(RING, "Stage(depth=1)+", "Stage(dept=1)+"),
        """\
rule.rw:6:23: error: rule `ring`: `Stage` has no field `dept`
 6 |         stages: Stage(dept=1)+
   |                       ^^^^^^
  help: did you mean `depth`?""",
        id="unknown field",
    ),
    pytest.param(
        change(RING, "with depth=N", "with dept=N"),
        """\
rule.rw:15:23: error: rule `ring`: `Stage` has no field `dept`
 15 |         stages.. with dept=N, slot=k % N
    |                       ^^^^^^
  help: did you mean `depth`?""",
        id="unknown field of a change",
    ),
    pytest.param(
        change(RING, "0..K serial:\n        stages:", "0..K serial unrol=2:\n        stages:"),
        """\
rule.rw:5:26: error: rule `ring`: a loop has no attribute `unrol`
 5 |     for k in 0..K serial unrol=2:
   |                          ^^^^^^^
  help: did you mean `unroll`?""",
        id="unknown attribute of a loop",
    ),
    pytest.param(
        change(RING, "serial:\n        stages:", "serail:\n        stages:"),
        """\
rule.rw:5:19: error: rule `ring`: unknown role `serail`
 5 |     for k in 0..K serail:
   |                   ^^^^^^
  help: did you mean `serial`?""",
        id="unknown role",
    ),
    pytest.param(
        change(RING, "Stage(depth=1)+", "Stage(depth=1, via=ASINC)+"),
        """\
rule.rw:6:36: error: rule `ring`: unknown transport `ASINC`
 6 |         stages: Stage(depth=1, via=ASINC)+
   |                                    ^^^^^
  help: did you mean `ASYNC`?""",
        id="unknown transport",
    ),
    pytest.param(
        change(RING, "not writes(", "not writs("),
        """\
rule.rw:12:13: error: rule `ring`: unknown fact or function `writs`
 12 | require not writs(rest, bufs) else "the body writes a staged tile"
    |             ^^^^^^^^^^^^^^^^^
  help: did you mean `writes`?""",
        id="unknown fact",
    ),
    pytest.param(
        change(RING, "not writes(rest, bufs)", "rank(rest) > 1"),
        """\
rule.rw:12:9: error: rule `ring`: unknown fact or function `rank`
 12 | require rank(rest) > 1 else "the body writes a staged tile"
    |         ^^^^^^^^^^
  note: `rank` is a fact on level torch""",
        id="fact of another level",
    ),
    pytest.param(
        change(RING, "writes(rest, bufs)", "writes(rest, bufs, N)"),
        """\
rule.rw:12:13: error: rule `ring`: `writes` takes 2 arguments, not 3
 12 | require not writes(rest, bufs, N) else "the body writes a staged tile"
    |             ^^^^^^^^^^^^^^^^^^^^^
  note: writes(run, [name]) -> bool""",
        id="too many arguments",
    ),
    pytest.param(
        change(RING, "not writes(rest, bufs)", "smem_left(rest) > 0"),
        """\
rule.rw:12:9: error: rule `ring`: `smem_left` takes 0 arguments, not 1
 12 | require smem_left(rest) > 0 else "the body writes a staged tile"
    |         ^^^^^^^^^^^^^^^
  note: smem_left() -> int""",
        id="arguments where there are none",
    ),
    pytest.param(
        change(RING, "{s.dst for", "{s.dts for"),
        """\
rule.rw:10:13: error: rule `ring`: `Stage` has no field `dts`
 10 | let bufs = {s.dts for s in stages}
    |             ^^^^^
  help: did you mean `dst`?""",
        id="unknown member",
    ),
    pytest.param(
        change(RING, "K >= N", "N <= target.smen"),
        """\
rule.rw:11:14: error: rule `ring`: a target has no field `smen`
 11 | require N <= target.smen else "fewer chunks than buffers"
    |              ^^^^^^^^^^^
  help: did you mean `smem`?""",
        id="unknown field of the target",
    ),
    pytest.param(
        change(RING, "N: int in", "N: itn in"),
        """\
rule.rw:3:11: error: rule `ring`: unknown sort `itn` of `N`
 3 | rule ring(N: itn in {2, 3, 4} = 2) on tile
   |           ^
  note: sorts are int, num, bool, name, expr, axis, text, role, via, fn, monoid, atom, dtype, any, set, list
  help: did you mean `int`?""",
        id="unknown sort",
    ),
    pytest.param(
        change(RING, "rest.. with load B[i..] => load B[k % N, i..] where B in bufs", "rest.. with rule guard(bufs)"),
        """\
rule.rw:17:21: error: rule `ring`: there is no @local rule `guard`
 17 |         rest.. with rule guard(bufs)
    |                     ^^^^^^^^^^^^^^^^""",
        id="no such local rule",
    ),
    pytest.param(
        change(LINEAR, "Linear(", "Liner("),
        """\
rule.rw:3:9: error: rule `linear`: torch has no op `Liner`
 3 |     y = Liner(x, w, bias=b)
   |         ^^^^^^^^^^^^^^^^^^^
  help: did you mean `Linear`?""",
        id="torch: unknown op",
    ),
    pytest.param(
        change(LINEAR, "bias=b", "bais=b"),
        """\
rule.rw:3:22: error: rule `linear`: `Linear` has no field `bais`
 3 |     y = Linear(x, w, bais=b)
   |                      ^^^^^^
  note: its fields are input, weight, bias
  help: did you mean `bias`?
rule.rw:5:69: error: rule `linear`: unbound variable `b`
 5 |     y[bs.., j] = add(Reduce(add, k, multiply(x[bs.., k], w[j, k])), b[j])
   |                                                                     ^
  help: did you mean `bs`?""",
        id="torch: unknown field",
    ),
    pytest.param(
        change(LINEAR, "Linear(x, w, bias=b)", "Linear(x, bias=b)"),
        """\
rule.rw:3:9: error: rule `linear`: no form of `Linear` has exactly these fields
 3 |     y = Linear(x, bias=b)
   |         ^^^^^^^^^^^^^^^^^
  note: linear(input, weight, bias?)
  help: `rest..` leaves the others open
rule.rw:5:58: error: rule `linear`: unbound variable `w`
 5 |     y[bs.., j] = add(Reduce(add, k, multiply(x[bs.., k], w[j, k])), b[j])
   |                                                          ^""",
        id="torch: no such form",
    ),
    pytest.param(
        change(LINEAR, "multiply(x", "multipy(x"),
        """\
rule.rw:5:37: error: rule `linear`: unknown function `multipy`
 5 |     y[bs.., j] = add(Reduce(add, k, multipy(x[bs.., k], w[j, k])), b[j])
   |                                     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  help: did you mean `multiply`?""",
        id="torch: unknown function",
    ),
    pytest.param(
        change(LINEAR, "multiply(x[bs.., k], w[j, k])", "multiply(x[bs.., k], w[j, k], 2)"),
        """\
rule.rw:5:37: error: rule `linear`: `multiply` takes 2 arguments, not 3
 5 |     y[bs.., j] = add(Reduce(add, k, multiply(x[bs.., k], w[j, k], 2)), b[j])
   |                                     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^""",
        id="torch: arity",
    ),
    pytest.param(
        """\
rule soft on torch
match
    y = Softmax(x, dim=d, dtype=_)
let os = axes(x)
let k = at(os, d)
rewrite
    e = exp(x[os..])
    y[os..] = divide(e, Reduce(add, k, e))
""",
        """\
rule.rw:3:27: warning: rule `soft`: `dtype=_` ignores what the user asked for
 3 |     y = Softmax(x, dim=d, dtype=_)
   |                           ^^^^^^^
  help: bind it and use it, or leave it out to match its default only""",
        id="torch: ignored dtype",
    ),
    pytest.param(
        change(HOIST, "    t = Reduce(add, k, x)", "    t = Reduce(add, x)"),
        """\
rule.rw:7:9: error: rule `hoist`: a reduction reads `Reduce(function, axis.., value)`
 7 |     t = Reduce(add, x)
   |         ^^^^^^^^^^^^^^""",
        id="tensor: form of Reduce, which still reads its names",
    ),
    pytest.param(
        change(HOIST, "    t = Reduce(add, k, x)", "    t = Reduce(c, q, x)"),
        """\
rule.rw:7:16: error: rule `hoist`: the function of `Reduce` is a function, not a tensor value
 7 |     t = Reduce(c, q, x)
   |                ^
rule.rw:7:19: error: rule `hoist`: unbound variable `q`
 7 |     t = Reduce(c, q, x)
   |                   ^""",
        id="tensor: a value for the function of Reduce, an axis that nothing binds",
    ),
    pytest.param(
        change(HOIST, "    t = Reduce(add, k, x)", "    t = Reduce(exp, k, x)"),
        """\
rule.rw:7:16: error: rule `hoist`: `exp` cannot reduce: it has no identity
 7 |     t = Reduce(exp, k, x)
   |                ^^^""",
        id="tensor: a function that cannot reduce",
    ),
    pytest.param(
        change(HOIST, "    y = multiply(t, c)", "    y = Stacked(k, t[is..])"),
        """\
rule.rw:8:9: error: rule `hoist`: no operation `Stacked` on tensor
 8 |     y = Stacked(k, t[is..])
   |         ^^^^^^^^^^^^^^^^^^^""",
        id="an operation of torch on tensor",
    ),
    pytest.param(
        change(HOIST, "    y = multiply(t, c)", "    y = place(multiply(t, c), 0, 3)"),
        """\
rule.rw:8:9: error: rule `hoist`: unknown function `place`
 8 |     y = place(multiply(t, c), 0, 3)
   |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^
  help: did you mean `places`?""",
        id="a function of torch on tensor",
    ),
    pytest.param(
        change(HOIST, "    t = Reduce(add, k, x)", "    t = load x[k]"),
        """\
rule.rw:3:18: error: rule `hoist`: `x` is bound but never used; write `_`
 3 |     p = multiply(x, c)
   |                  ^
rule.rw:7:9: error: rule `hoist`: `load` is not a part of level tensor
 7 |     t = load x[k]
   |         ^^^^^^^^^""",
        id="tensor: a statement of another level",
    ),
    pytest.param(
        change(HOIST, "Reduce(add, k, p)", "Reduce(ad, k, p)"),
        """\
rule.rw:4:16: error: rule `hoist`: unknown function `ad`
 4 |     y = Reduce(ad, k, p)
   |                ^^
  help: did you mean `add`?""",
        id="tensor: unknown function",
    ),
    pytest.param(
        change(RING, "@repeat", "@repaet"),
        """\
rule.rw:2:1: error: rule `ring`: unknown attribute `@repaet`
 2 | @repaet
   | ^^^^^^^
  help: did you mean `@repeat`?""",
        id="unknown attribute",
    ),
    pytest.param(
        change(RING, "on tile", "on tiel"),
        """\
rule.rw:3:39: error: rule `ring`: unknown level `tiel`
 3 | rule ring(N: int in {2, 3, 4} = 2) on tiel
   |                                       ^^^^
  note: levels are torch, tensor, module, loop, tile, kernel
  help: did you mean `tile`?""",
        id="unknown level",
    ),
    pytest.param(
        RING.split("rewrite")[0],
        """\
rule.rw:3:6: error: rule `ring` has no `rewrite`
 3 | rule ring(N: int in {2, 3, 4} = 2) on tile
   |      ^^^^
  help: write `rewrite` and, indented below it, what it becomes""",
        id="a rule without a template",
    ),
    pytest.param(
        change(RING, "rule ring", "override rule ring"),
        """\
rule.rw:3:15: error: `override rule ring`, but there is no rule `ring`
 3 | override rule ring(N: int in {2, 3, 4} = 2) on tile
   |               ^^^^""",
        id="override of nothing",
    ),
    pytest.param(
        RING + RING,
        """\
rule.rw:20:6: error: rule `ring` is declared twice
 20 | rule ring(N: int in {2, 3, 4} = 2) on tile
    |      ^^^^
  note: first at rule.rw:3
  help: write `override rule ring` to replace it""",
        id="declared twice",
    ),
    pytest.param(
        change(FAMILY, "(Tanh, tanh)", "(Tanh)"),
        """\
rule.rw:1:36: error: family `unary` has 2 parameters, this row has 1 values
 1 | rule unary(Op, fn) for (Exp, exp), (Tanh) on torch
   |                                    ^^^^^^""",
        id="family: a short row",
    ),
    pytest.param(
        change(FAMILY, "(Tanh, tanh)", "(Tahn, tanh)"),
        """\
rule.rw:3:9: error: rule `unary_tahn`: torch has no op `Tahn`
 3 |     y = Op(x)
   |         ^^^^^
  help: did you mean `Tan`?""",
        id="family: unknown op in one member",
    ),
    pytest.param(
        change(FAMILY, "x[os..]", "z[os..]"),
        """\
rule.rw:3:12: error: rule `unary_exp`: `x` is bound but never used; write `_`
 3 |     y = Op(x)
   |            ^
rule.rw:5:18: error: rule `unary_exp`: unbound variable `z`
 5 |     y[os..] = fn(z[os..])
   |                  ^""",
        id="family: one mistake, reported once",
    ),
    pytest.param(
        change(RING, "require K >= N else", "require K >= N esle"),
        """\
rule.rw:11:16: error: unexpected `esle`
 11 | require K >= N esle "fewer chunks than buffers"
    |                ^
  note: expected the end of the line or `else`
  help: did you mean `else`?""",
        id="syntax",
    ),
]


@pytest.mark.parametrize(("rule", "message"), CASES)
def test_the_whole_message(rule: str, message: str) -> None:
    assert report(rule) == message
