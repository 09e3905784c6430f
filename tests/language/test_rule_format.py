"""`parse(format(rule))` is the rule, for everything we have and for everything the grammar can say."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from broken_rules import HOIST, LINEAR, RING
from drawing import some

from dplc.engine.language.format import expression, format_file, format_rule
from dplc.engine.language.rule import BUILT_IN, Rule, read_rules
from dplc.engine.language.rule_files import rule_paths
from dplc.engine.language.typed_slots import substituted
from dplc.ir.diagnostic import Source
from dplc.ir.text import syntax as s
from dplc.ir.text.parse import parse

EVERYTHING = """\
## First line.
##
## Third line.
@approx
@repeat
override rule every(T, N: int in {1, 2} = 1, M in 0..4) for (Exp, exp, 0), Tanh, ("a b", -1, [x..]) on tile
match
    kernel f(ins.., x: f32[4, n]) -> outs..:
        Tile(axes..=BLOCK, j:N*2 - 1=THREAD, k:4@0 by 2, resident=B):
            inside site:
                for i in 0..N + 1 by s reduce unroll=4:
                    s: Stage(depth=1, via=not TMA)+
                    t: Sync()*
                    a = load A[i, k // 2] if i >= n else 0.0
                    x[i] = where(a < b and not c, -inf, 1e-05)
                    acc <- add(acc, a*-2)
                if not (a in {1, 2}) or b not in [x, y..]:
                    pass
let q = body[k := e, is.. := es.., map]
pick p in [v for v in (1, 2, 4) if K % (T*v) == 0]
require a if b else c if d else e            else "one"
prefer {x.field.other for x in xs}[0] ^ 3 == -(y)            else "two"
rewrite
    y: f32[4] = Relu(x)
    u: (f32[4], i32[2, 3]) = Two(x)
    each f in a..b + 1:
        f.smem = Stage(f.buf, origin=f.origin)
    xs.. with depth=2, load B[i..] => load C[e..] for f in fs where B in bufs, rule local(a, b)
    dst = Op(x):
        Sync()
    drop rest..
example "title" (N=2, M=[1, 2])
    Sync()
gives no "reason"
example "other"
    Sync()
gives
    pass

## Order.
pipeline tile
    pass a(V=1) as b after c before d first last because "so"
    one of a, b, c because "either"
    one of x, y

without gone
"""


def bare(node: Any) -> Any:
    """Syntax without its places."""
    if isinstance(node, tuple):
        return tuple(map(bare, node))
    if isinstance(node, s.Syntax):
        return type(node), tuple(bare(getattr(node, f.name)) for f in dataclasses.fields(node) if f.name != "span")
    return node


def texts() -> list[Any]:
    ours = [pytest.param(path.read_text(), id=path.stem) for path in sorted(BUILT_IN.rglob("*.rw"))]
    return [
        *ours,
        *(pytest.param(text, id=text.split()[1]) for text in (RING, LINEAR, HOIST)),
        pytest.param(EVERYTHING, id="everything"),
    ]


@pytest.mark.parametrize("text", texts())
@pytest.mark.sampled(8)
def test_the_text_of_a_file_reads_back(text: str) -> None:
    declarations = parse(Source("given.rw", text))
    once = format_file(declarations)
    again = parse(Source("formatted.rw", once))
    assert bare(again) == bare(declarations)
    assert format_file(again) == once


def test_rules_of_a_rule_set_read_back() -> None:
    for path in some(list(rule_paths(BUILT_IN)), 10):
        rules = read_rules(Source(path.name, path.read_text())).rules
        again = read_rules(Source(path.name, "\n".join(map(format_rule, rules)))).rules
        assert list(map(contents, again)) == list(map(contents, rules))


def contents(rule: Rule) -> Any:
    parts = (rule.parameters, rule.match, rule.clauses, rule.rewrite, tuple(rule.examples))
    return rule.name, rule.level, rule.docs, rule.attributes, bare(parts)


def test_canonical_text() -> None:
    (rule,) = read_rules(Source("rule.rw", RING)).rules
    aligned = (
        f"{line.split(' else')[0]:48} else{line.split(' else')[1]}" if " else" in line else line
        for line in RING.splitlines()
    )
    assert format_rule(rule) == "\n".join(aligned) + "\n"


def test_what_a_family_puts_in_is_bracketed_where_it_must_be() -> None:
    def parsed(text: str) -> s.Syntax:
        clause = parse(Source("x", f"rule r on tile\nmatch\n    pass\nlet n = {text}\nrewrite\n    pass\n"))[0].clauses[
            1
        ]  # type: ignore[attr-defined]
        return clause.value  # type: ignore[no-any-return]

    for text, wanted in {
        "x*T": "x*(a + b)",
        "T.f": "(a + b).f",
        "x - T": "x - (a + b)",
        "T - x": "a + b - x",
        "not T": "not a + b",
    }.items():
        assert expression(substituted(parsed(text), {"T": parsed("a + b")}, here=True)) == wanted
