"""Inline examples of rules on tensor: whole graphs, before and after. An input called `weight..` is one.

An example of a fusion rule marks the values in question with `mat`; its result keeps the `mat`s that the rule did not
drop.
"""

from __future__ import annotations

from typing import Any

from ...codegen.target import Target
from ...ir.compose import rebuilt
from ...ir.diagnostic import DplcError
from ...ir.expr import Var
from ...ir.facts.dataflow import topological
from ...ir.program import Kernel
from ...ir.tensor import Mat, Output, TensorGraph
from ...ir.text.programs import print_unit, read_unit
from ...ir.text.tensor import print_graph, read_graph
from ..language import core as s
from ..language.rule import Rule
from ..rewrite.examples import Failure, arguments, awaited, runs
from ..rewrite.terms.rewriter import TermEvidence, TermRules, mentions_mat, rewrite_graph
from .fusion_pass import Fusion, FusionRules, kind_of
from .kernels import Kernels
from .sharing import key

# ---- Examples of fusion rules: one rule, run over a program whose open values are marked with `mat`.


def sibling_kernels(
    rule: Rule, graph: TensorGraph, target: Target, parameters: dict[str, Any]
) -> tuple[list[Kernel], list[str]]:
    """The kernels of a program in which nothing else is in question, and why two of them were kept apart."""
    rules = FusionRules([rule], parameters)
    builder = Kernels(graph, Fusion(graph, rules, target, frozenset()).decide(), rules, target, {})
    kernels = builder.build()
    return kernels, [refusal.because for refusal in builder.refusals]


def fuse_marked(
    rule: Rule, graph: TensorGraph, target: Target, parameters: dict[str, Any]
) -> tuple[TensorGraph, list[str]]:
    """The program with the `mat`s that are left, and why."""
    marked: set[Any] = set()
    plain = _rebuilt(graph, lambda term, built: built, marked)
    rules = FusionRules([rule], parameters)
    fusion = Fusion(plain, rules, target, frozenset(marked))
    decisions = fusion.decide()
    stored = decisions.stored - {out.value for out in plain.outs}
    result = _rebuilt(plain, lambda term, built: Mat(built) if term in stored else built, set())
    return result, [refusal.because for refusal in fusion.refusals.values()]


def _rebuilt(graph: TensorGraph, finish: Any, marked: set[Any]) -> TensorGraph:
    """The program without its `mat`s (their operands go to `marked`), every term passed through `finish`."""
    done: dict[Any, Any] = {}
    for term in topological(out.value for out in graph.outs):
        if term.__class__ is Mat:
            done[term] = done[term.x]
            marked.add(done[term])
            continue
        built = rebuilt(term, done.__getitem__)
        done[term] = finish(term, built)
    outs = tuple(Output(out.name, out.axes, done[out.value]) for out in graph.outs)
    return TensorGraph(graph.name, graph.ins, outs)


@runs("tensor")
def run_term_example(engine: Any, rule: Rule, example: s.Example, target: Target) -> Failure | None:
    """One example of a rule on tensor."""
    before = _graph(example.before, example)
    parameters = settings_of(example, rule)
    if mentions_mat(rule):
        if kind_of(rule) == "siblings":
            return _sibling_example(rule, example, sibling_kernels(rule, before, target, parameters))
        got, refusals = fuse_marked(rule, before, target, parameters)
    else:
        evidence = TermEvidence()
        weights = tuple(x.name for x in before.ins if x.name.startswith("weight"))
        got = rewrite_graph(
            before, TermRules([rule], (rule.name,), parameters=parameters), target, evidence, weights=weights
        )
        refusals = [refusal.because for refusal in evidence.refusals]
    fired = [out.value for out in got.outs] != [out.value for out in before.outs]
    if isinstance(example.gives, str):
        return Failure.of_refusal(rule, example, fired, refusals)
    if not fired:
        return Failure(rule, example, "did not fire", tuple(dict.fromkeys(refusals)))
    if awaited(example):
        return Failure.different(rule, example, "", print_graph(TensorGraph(got.name, got.ins, got.outs)))
    wanted = _graph(example.gives, example)
    if [(out.name, out.axes, out.value) for out in got.outs] == [
        (out.name, out.axes, out.value) for out in wanted.outs
    ]:
        return None
    return Failure.different(rule, example, *(print_graph(TensorGraph(g.name, g.ins, g.outs)) for g in (wanted, got)))


def _sibling_example(rule: Rule, example: s.Example, outcome: tuple[list[Kernel], list[str]]) -> Failure | None:
    """The result of a rule of two kernels is one kernel of Loop IR."""
    kernels, refusals = outcome
    if isinstance(example.gives, str):
        return Failure.of_refusal(rule, example, len(kernels) == 1, refusals)
    if len(kernels) != 1:
        return Failure(rule, example, "did not fire", tuple(dict.fromkeys(refusals)))
    if awaited(example):
        return Failure.different(rule, example, "", print_unit(kernels[0]))
    wanted: Any = read_unit(example.gives[0])
    if key(wanted) == key(kernels[0]):
        return None
    return Failure.different(rule, example, print_unit(wanted), print_unit(kernels[0]))


def _graph(block: tuple[s.Syntax, ...], example: s.Example) -> TensorGraph:
    if len(block) != 1 or not isinstance(block[0], s.Unit):
        raise DplcError("an example of a rule on tensor is one `graph`", example.span)
    return read_graph(block[0])


def settings_of(example: s.Example, rule: Rule) -> dict[str, Any]:
    """The values in the parentheses of an example, by RULE.PARAMETER; a bare name is its text."""
    values = arguments(example, rule)
    return {f"{rule.name}.{name}": value.name if isinstance(value, Var) else value for name, value in values.items()}
