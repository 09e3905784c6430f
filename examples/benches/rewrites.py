"""Rewrites a second: a chain of 1,000 nested `add(x, 0)` of an opaque x, removed by one rule given as text.

Measured here, best of some runs, every firing counted by the engine. With tinygrad in this environment, or in another
one (`rewrites.py --tinygrad /path/to/python`), its rewriter does the same in the same run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from dplc.engine.language.rule import load, read_rules
from dplc.engine.rewrite.terms.rewriter import Rewriter, TermEvidence, TermRules, mentions_mat
from dplc.engine.ruleset import toolchain
from dplc.ir.diagnostic import Source
from dplc.ir.expr import Axis
from dplc.ir.tensor import Const, Elementwise, Input, Term

LENGTH, BAR = 1000, 300_000
ONE = """rule add_zero on tensor
match
    y = add(x, 0)
rewrite
    y = x
"""
GUARDED = ONE.replace("rewrite", 'require dtype(y) == dtype(x) else "the dtype would change"\nrewrite')

TINYGRAD = f"""
import json, sys, time
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
    for _ in range(int(sys.argv[1])):
        calls[0] = 0
        start = time.perf_counter()
        assert graph_rewrite(t, rules, **options) is x
        best = min(best, time.perf_counter() - start)
    print(json.dumps(dict(name="tinygrad, " + name, rate={LENGTH} / best, firings=calls[0])))
"""


def chain(length: int) -> Term:
    """add(add(..add(x, 0).., 0), 0), of the zero that floats may lose: the negative one"""
    term: Term = Input("x", (Axis("i", 8),))
    for _ in range(length):
        term = Elementwise("add", (term, Const(-0.0)))
    return term


def rate(rules: TermRules, runs: int, evidence: Callable[[], TermEvidence | None] = lambda: None) -> tuple[float, int]:
    """(additions removed a second, firings of one run)"""
    term, best, firings = chain(LENGTH), float("inf"), 0
    for _ in range(runs):
        rewriter = Rewriter(rules, evidence=evidence())
        start = time.perf_counter()
        result = rewriter.rewrite(term)
        best = min(best, time.perf_counter() - start)
        assert isinstance(result, Input)
        firings = rewriter.firings
    return LENGTH / best, firings


def rules_of(text: str) -> TermRules:
    return TermRules(read_rules(Source("bench.rw", text)).rules)


def ours(runs: int) -> list[dict[str, Any]]:
    """Our rewriter: with one rule, traced, with a guard, with all rules on tensor."""
    toolchain()  # registers the facts
    cases = (
        ("one rule", rules_of(ONE), lambda: None),
        ("one rule, traced", rules_of(ONE), TermEvidence),
        ("one rule with a guard", rules_of(GUARDED), lambda: None),
        (
            "all our rules on tensor",
            TermRules(rule for rule in load().at("tensor") if not mentions_mat(rule)),
            lambda: None,
        ),
    )
    rows = []
    for name, rules, evidence in cases:
        speed, firings = rate(rules, runs, evidence)
        rows.append({"name": f"dplc, {name}", "rate": speed, "firings": firings})
    return rows


def theirs(python: str, runs: int) -> list[dict[str, Any]]:
    """tinygrad's rewriter, if that python has it."""
    found = subprocess.run([python, "-c", TINYGRAD, str(runs)], capture_output=True, text=True, check=False)
    return [json.loads(line) for line in found.stdout.splitlines()] if found.returncode == 0 else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--tinygrad", default=sys.executable, help="a python that has tinygrad")
    options = parser.parse_args()
    rows = ours(options.runs) + theirs(options.tinygrad, options.runs)
    if options.json:
        print(json.dumps({"length": LENGTH, "runs": options.runs, "bar": BAR, "rows": rows}, indent=2))
        return
    print(f"chain of {LENGTH} nested add(x, 0), best of {options.runs} runs, measured here; the bar is {BAR:,}")
    for row in rows:
        print(f"{row['name'] + ':':46} {row['rate']:12,.0f} a second ({row['firings']} firings)")
    if not any(row["name"].startswith("tinygrad") for row in rows):
        print("tinygrad: not in this environment (see --tinygrad)")


if __name__ == "__main__":
    main()
