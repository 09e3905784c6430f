"""Examples of fusion rules: one rule, run over a program whose open values are marked with `mat`."""

from __future__ import annotations

from typing import Any

from ...codegen.target import Target
from ...ir.facts.dataflow import topological
from ...ir.program import Kernel
from ...ir.tensor import Case, Elementwise, Fold, Mat, Output, Reduce, Remap, TensorGraph
from ..language.rule import Rule
from .decide import Fusion
from .kernels import Kernels
from .rules import FusionRules


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
        kind = term.__class__
        if kind is Mat:
            done[term] = done[term.x]
            marked.add(done[term])
            continue
        built = term
        if kind is Elementwise:
            built = Elementwise(term.fn, tuple(done[arg] for arg in term.args))
        elif kind is Reduce:
            built = Reduce(term.fn, term.over, done[term.x])
        elif kind is Fold:
            built = Fold(term.part, term.over, tuple(done[arg] for arg in term.args))
        elif kind is Remap:
            built = Remap(done[term.x], term.map)
        elif kind is Case:
            built = Case(term.cond, done[term.a], done[term.b])
        done[term] = finish(term, built)
    outs = tuple(Output(out.name, out.axes, done[out.value]) for out in graph.outs)
    return TensorGraph(graph.name, graph.ins, outs)
