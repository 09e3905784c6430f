"""A dump, pasted whole, is a pattern that matches where it came from: on torch and tensor."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from dplc.codegen.target import target
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import compiler_with
from dplc.engine.language.check import check, errors
from dplc.engine.language.rule import RuleSet, read_rules
from dplc.engine.rewrite.terms.rewriter import TermEvidence, TermRules, rewrite_graph
from dplc.engine.rewrite.torch_rules.lower import TorchLowering, TorchRule, compile_rules
from dplc.engine.ruleset import toolchain
from dplc.ir.diagnostic import Source
from dplc.ir.tensor import TensorGraph
from dplc.ir.text.parse import parse
from dplc.ir.text.tensor import print_graph, read_graph
from dplc.ir.text.torch import print_torch_graph
from dplc.ir.torch import TorchGraph

sys.path.insert(0, str(Path(__file__).parents[2] / "endtoend"))
from expressions import EXPRESSIONS

SAMPLE = (
    "F.layer_norm(torch.randn(5, 33), (33,))",
    "torch.randn(33, 70) @ torch.randn(70, 65)",
    "torch.randn(6, 5, 7).roll((1, 2), (0, 2))",  # places with a condition
    "torch.randn(7, 5).expand(3, 7, 5)",  # stored along an axis that the value does not have
    "F.embedding(torch.randint(0, 11, (3, 5)), torch.randn(11, 7))",  # read at places that are read
    "torch.randn(4, 6, 7).max(-1).values",  # an op with several results
    "torch.randn(5, 9).flip(1)[:, ::2].exp()",  # an index that descends in steps
    "torch.view_as_real(torch.polar(torch.rand(5, 1), torch.randn(4)))",  # values of a dtype that only torch has
    "F.scaled_dot_product_attention(*[torch.randn(1, 2, 33, 64)] * 3, is_causal=True)",
    "nn.Linear(33, 17)(F.gelu(torch.randn(2, 5, 33)).half().float())",
    "(lambda x: x + F.silu(nn.Linear(8, 8)(nn.LayerNorm(8)(x))) * F.gelu(nn.Linear(8, 8)(nn.RMSNorm(8)(x))))(torch.randn(5, 8))",
)  # the last has more choices than one function of Python nests loops
EVERY = [text for texts in EXPRESSIONS.values() for text in texts]
SLOW = [pytest.param(text, marks=pytest.mark.slow, id=f"{n}") for n, text in enumerate(EVERY)]
TEMPLATES = {"torch": "{}[os..] = 0.0", "tensor": "{} = 0.0"}


def pasted(level: str, dump: str) -> tuple[RuleSet, list[Any]]:
    """A rule whose pattern is a dump, and what is wrong with it beside names that nothing reads."""
    lines = dump.splitlines()[1:]
    root = lines[-1].split("[")[0].split(":")[0].split(" = ")[0].strip()
    text = "\n".join([f"rule pasted on {level}", "match", *lines, "rewrite", f"    {TEMPLATES[level].format(root)}\n"])
    rules = RuleSet([read_rules(Source("pasted.rw", text))])
    return rules, [e for e in errors(check(rules)) if getattr(e, "check", "") != "unused"]


def matches_tensor(rules: RuleSet, graph: TensorGraph) -> bool:
    evidence = TermEvidence()
    rewrite_graph(graph, TermRules(rules.at("tensor")), target(), evidence)
    return bool(evidence.firings)


def matches_torch(rules: RuleSet, graph: TorchGraph) -> bool:
    rule = TorchRule(rules.rules["pasted"])
    known = compile_rules(toolchain().torch)
    lowering = TorchLowering(graph, {**known, rule.key: (rule, *known.get(rule.key, ()))}, {}, trace=True)
    lowering.run()
    return any(fired.rule.name == "pasted" for fired in lowering.fired)


def several(broken: list[Any], outs: int) -> bool:
    """Whether what is wrong is that a pattern is one value, and the program gives several: said once, at its place."""
    assert not broken or (outs > 1 and len(broken) == 1 and "is not computed from" in broken[0].what), broken[
        0
    ].render()
    return bool(broken)


@pytest.mark.parametrize("text", [*SAMPLE, *SLOW])
def test_pasted_values_match_themselves(text: str) -> None:
    found = compiler_with(target()).values(capture_text(text))
    for graph in (found.lowered, found.graph):
        dump = print_graph(graph)
        rules, broken = pasted("tensor", dump)
        assert several(broken, len(graph.outs)) or matches_tensor(rules, graph), dump
    program = found.captured.graph
    if program.body:
        dump = print_torch_graph(program)
        rules, broken = pasted("torch", dump)
        assert several(broken, len(program.outs)) or matches_torch(rules, program), dump


PROGRAM = """\
graph f(x: f32[4, 8], ids: i64[4]) -> y: f32[4]:
    s[i:4, k:8] = multiply(x[i, k], x[ids[i], 7 - k])
    t[i] = Reduce(add, k, s)
    y[i] = Case(i*2 < 5, t, t[3 - i])
"""


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("k:8", "k:9"),
        ("i:4", "i:3"),
        ("s[i:4, k:8]", "s[i:4]"),
        ("ids[i]", "ids[k]"),
        ("ids[i], 7 - k", "ids[i], 6 - k"),
        ("ids[i], 7 - k", "ids[i], k"),
        ("x[i, k],", "x[k, i],"),
        ("i*2 < 5", "i*2 < 6"),
        ("t, t[3 - i]", "t, t[2 - i]"),
        ("t, t[3 - i]", "t[3 - i], t"),
        ("Reduce(add, k, s)", "Reduce(add, i, s)"),
    ],
)
def test_what_stands_in_a_pasted_value_is_what_matches(written: str, instead: str) -> None:
    graph = read_graph(parse(Source("f.ir", PROGRAM))[0])  # type: ignore[arg-type]
    for text, fires in ((PROGRAM, True), (PROGRAM.replace(written, instead), False)):
        rules, broken = pasted("tensor", text)
        assert not broken
        assert matches_tensor(rules, graph) == fires, text


def test_names_for_axes_extents_and_values() -> None:
    """The same axes under other names, extents as variables, sums of places in another order."""
    graph = read_graph(parse(Source("f.ir", PROGRAM))[0])  # type: ignore[arg-type]
    text = PROGRAM.replace("i:4, k:8", "r:n, c:_").replace("[i", "[r").replace("k", "c").replace(" i", " r")
    rules, broken = pasted("tensor", text.replace("7 - c", "-c + 7").replace("(i*2", "(2*r"))
    assert not broken
    assert matches_tensor(rules, graph)


@pytest.mark.parametrize(
    ("level", "lines", "what", "place"),
    [
        ("tensor", ("s[bs..] = exp(x)", "y = log(s)"), "on the left an axis is `k` or `k:8`", 3),
        ("tensor", ("s[i:n + 1] = exp(x)", "y = log(s)"), "an extent in a pattern is a number or a variable", 3),
        ("tensor", ("y[i] = exp(x[i, js..])",), "write `x[is..]`", 3),
        ("tensor", ("y[i] = exp(x[i if i else 0])",), "an index in a pattern is arithmetic over axes and values", 3),
        ("tensor", ("s[i:4] = exp(x)", "y[i:4] = log(x)"), "`y` is not computed from `s`", 3),
        ("torch", ("s: f32[4] = Exp(x)", "y: f32[4] = Log(x)"), "`y` is not computed from `s`", 3),
        ("torch", ("y: f32[as.., 4] = Exp(x)",), "a pattern on torch holds variables, constants and lists", 3),
    ],
)
def test_a_form_without_a_meaning_is_an_error_at_its_place(
    level: str, lines: tuple[str, ...], what: str, place: int
) -> None:
    from dplc.ir.diagnostic import DplcError

    rules, broken = pasted(level, "\n".join(["graph", *(f"    {line}" for line in lines)]))
    if not broken:
        with pytest.raises(DplcError) as found:
            TermRules(rules.at("tensor")).table(False) if level == "tensor" else TorchRule(rules.rules["pasted"])
        broken = [found.value]
    assert len(broken) == 1
    assert what in broken[0].render()
    assert f"pasted.rw:{place}:" in broken[0].render()
    assert "^" in broken[0].render()


@pytest.mark.parametrize(
    ("lines", "fires"),
    [
        ("a: f32[4, 8] = Relu(x)\n    y: f32[4, 8] = Neg(a)", True),
        ("a: f32[n, m] = Relu(x)\n    y: t[n, ms..] = Neg(a)", True),
        ("a = Relu(_)\n    y = Neg(a)", True),
        ("a: f32[n, n] = Relu(x)\n    y = Neg(a)", False),
        ("a: f32[4, 8] = Exp(x)\n    y: f32[4, 8] = Neg(a)", False),
        ("a: f16[4, 8] = Relu(x)\n    y: f32[4, 8] = Neg(a)", False),
        ("a = Relu(x)\n    y: f32[4, 9] = Neg(a)", False),
    ],
)
def test_types_and_the_ops_before_on_torch(lines: str, fires: bool) -> None:
    program = capture_text("torch.neg(torch.relu(torch.randn(4, 8)))").graph
    rules, broken = pasted("torch", f"graph\n    {lines}")
    assert not broken, broken[0].render()
    assert matches_torch(rules, program) == fires
