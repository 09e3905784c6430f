"""Rewrites a second: a chain of 1,000 nested `add(x, 0)` of an opaque x, removed by one rule given as text.

Measured here, best of some runs, every firing counted by the engine. With tinygrad in this environment, or in another
one (`rewrites.py --tinygrad /path/to/python`), its rewriter does the same in the same run.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable

from dplc.engine.match.terms import Evidence, Rewriter, TermRules
from dplc.engine.rw.rule import load, read_rules
from dplc.engine.toolchain import toolchain
from dplc.ir.diagnostic import Source
from dplc.ir.expr import Axis
from dplc.ir.tensor import Const, Elementwise, Input, Term

LENGTH, RUNS = 1000, 50
ONE = """rule add_zero on tensor
match
    y = add(x, 0)
rewrite
    y = x
"""
GUARDED = ONE.replace("rewrite", 'where dtype(y) == dtype(x) because "the dtype would change"\nrewrite')

TINYGRAD = f"""
import time
from tinygrad.uop.ops import UOp, Ops, UPat, PatternMatcher, graph_rewrite
x = UOp.variable("x", 0, 100)
zero, t, calls = x.const_like(0), x, [0]
def removed(x):
    calls[0] += 1
    return x
rules = PatternMatcher([(UPat(Ops.ADD, src=[UPat.var("x"), UPat(Ops.CONST, arg=0)]), removed)])
for _ in range({LENGTH}): t = UOp(Ops.ADD, x.dtype, (t, zero))
for name, options in (("its default (operands first)", dict()), ("bottom_up=True (root first)", dict(bottom_up=True))):
    best = 1e9
    for _ in range({RUNS}):
        calls[0] = 0
        start = time.perf_counter()
        assert graph_rewrite(t, rules, **options) is x
        best = min(best, time.perf_counter() - start)
    print(f"tinygrad, {{name + ':':36}} {{{LENGTH} / best:12,.0f}} a second ({{calls[0]}} calls of the rule)")
"""


def chain(length: int) -> Term:
    """add(add(..add(x, 0).., 0), 0)"""
    term: Term = Input("x", (Axis("i", 8),))
    for _ in range(length):
        term = Elementwise("add", (term, Const(0.0)))
    return term


def rate(rules: TermRules, evidence: Callable[[], Evidence | None] = lambda: None) -> tuple[float, int]:
    """(additions removed a second, firings of one run)"""
    term, best, firings = chain(LENGTH), float("inf"), 0
    for _ in range(RUNS):
        rewriter = Rewriter(rules, evidence=evidence())
        start = time.perf_counter()
        result = rewriter.rewrite(term)
        best = min(best, time.perf_counter() - start)
        assert isinstance(result, Input)
        firings = rewriter.firings
    return LENGTH / best, firings


def rules_of(text: str) -> TermRules:
    return TermRules(read_rules(Source("bench.rw", text)).rules)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tinygrad", default=sys.executable, help="a python that has tinygrad")
    other = parser.parse_args().tinygrad
    toolchain()  # registers the facts
    print(f"chain of {LENGTH} nested add(x, 0), best of {RUNS} runs, measured on this machine")
    cases = (
        ("one rule", rules_of(ONE), lambda: None),
        ("one rule, traced", rules_of(ONE), Evidence),
        ("one rule with a guard", rules_of(GUARDED), lambda: None),
        ("all our rules on tensor", TermRules.of(load()), lambda: None),
    )
    for name, rules, evidence in cases:
        speed, firings = rate(rules, evidence)
        print(f"dplc, {name + ':':40} {speed:12,.0f} a second ({firings} firings)")
    found = subprocess.run([other, "-c", TINYGRAD], capture_output=True, text=True, check=False)
    print(found.stdout.rstrip() if found.returncode == 0 else "tinygrad: not in this environment (see --tinygrad)")


if __name__ == "__main__":
    main()
