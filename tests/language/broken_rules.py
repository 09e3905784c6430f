"""Sound rules, one per kind of level, and a way to break them: what the tests of the static checks share."""

from __future__ import annotations

from dplc.engine.language.check import check
from dplc.engine.language.rule import RuleSet, read_rules
from dplc.ir.diagnostic import DplcError, Source

RING = """\
## A ring of N shared tiles.
@repeat
rule ring(N: int in {2, 3, 4} = 2) on tile
match
    for k in 0..K serial:
        stages: Stage(depth=1)+
        Sync()
        rest..
        Sync()
let bufs = {s.dst for s in stages}
require K >= N else "fewer chunks than buffers"
require not writes(rest, bufs) else "the body writes a staged tile"
rewrite
    for k in 0..K serial:
        stages.. with depth=N, slot=k % N
        Sync()
        rest.. with load B[i..] => load B[k % N, i..] where B in bufs
"""

LINEAR = """\
rule linear on torch
match
    y = Linear(x, w, bias=b)
rewrite
    y[bs.., j] = add(Reduce(add, k, multiply(x[bs.., k], w[j, k])), b[j])
"""

HOIST = """\
rule hoist on tensor
match
    p = multiply(x, c)
    y = Reduce(add, k, p)
require k not in axes(c) else "the factor varies along the reduced axis"
rewrite
    t = Reduce(add, k, x)
    y = multiply(t, c)
"""

FAMILY = """\
rule unary(Op, fn) for (Exp, exp), (Tanh, tanh) on torch
match
    y = Op(x)
rewrite
    y[os..] = fn(x[os..])
"""


def change(rule: str, old: str, new: str) -> str:
    """The rule with one piece of its text replaced."""
    assert rule.count(old) == 1, f"{old!r} stands {rule.count(old)} times"
    return rule.replace(old, new)


def report(text: str, without: tuple[str, ...] = ("examples_enough",)) -> str:
    """Everything that is reported about a rule file, notes and missing examples left out."""
    try:
        findings = check(RuleSet([read_rules(Source("rule.rw", text))]))
    except DplcError as error:  # found while it was read
        return error.render()
    shown = [f for f in findings if getattr(f, "check", "") not in without and getattr(f, "severity", "") != "note"]
    return "\n".join(finding.render() for finding in shown)
