"""Rules on torch: compare the float64 results of torch with the meaning of the rule's Tensor IR."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator
from types import NoneType
from typing import Any

import numpy as np

from ...ir.diagnostic import DplcError
from ...ir.interp import tensor as meaning
from ...ir.interp import torch as torch_meaning
from ...ir.program import Param
from ...ir.tensor import TensorGraph, axes, postorder
from ...ir.text.tensor import print_graph
from ...ir.text.torch import print_torch_graph
from ...ir.torch import TorchGraph
from ...ir.verify.tensor import verify
from ..kernels.examples import attempts, lower_with, torch_subject
from ..language import core as s
from ..language.rule import Rule, RuleSet
from ..rewrite.torch_rules.lower import TorchRule, compile_rules
from ..rewrite.torch_rules.pattern import NotApplicable
from .outcome import ERRORS, Dice, Outcome, Subject, Wrong, said, unlike
from .sized import Checker, check_sized, torch_with_a_size
from .torch_subjects import NoSubject, from_schema, perturbed, retyped, sample, ways_to_fill, with_extent, with_op

TOLERANCE = 1e-10
# PyTorch computes these to seven digits in float64: their rules refuse f64, and it judges no further.
COARSE, COARSE_TOLERANCE = frozenset(f"SpecialBessel{name}" for name in ("J0", "J1", "Y0", "Y1")), 1e-6
LARGEST = 1 << 24  # elements of one value: all pairs of a long row would not fit in memory
# To one column and several rows PyTorch 2.13 resizes wrongly (its first row is repeated): such programs are not judged.
SMOOTH = frozenset(("UpsampleBilinear2dAa", "UpsampleBicubic2dAa"))
UNWRITTEN = "Empty"  # ops whose values are undefined have it in their names


class TorchChecker(Checker):
    """Checker of rules on torch, one at a time, tried before all others."""

    level, kind = "torch", TorchGraph

    def __init__(self, rules: RuleSet):
        self.rules = rules
        self.compiled = {c.rule.name: c for group in compile_rules(rules).values() for c in group}
        self._wanted: dict[TorchGraph, Any] = {}

    # ---- subjects
    def text(self, program: Any) -> str:
        return f"## level: torch\n{print_torch_graph(program)}\n"

    def examples(self, rules: Iterable[Rule]) -> Iterator[Subject]:
        """Yield the programs in the examples of rules; for a member of a family also those of the other members.

        With the op of the rule, examples of many members are the same program: each program comes once for a rule.
        """
        for rule in rules:
            compiled, known = self.compiled.get(rule.name), set[TorchGraph]()
            for member, example in self._examples(rule) if compiled else ():
                assert compiled is not None
                graph = torch_subject(example)
                origin = f'example "{example.title}" of `{rule.name}`'
                if rule.family is None or not graph.body:
                    yield self.subject(graph, origin)
                    continue
                written = {op.op for op in graph.body}
                others = [(old, new) for old, new in zip(_ops(member), _ops(rule), strict=True) if old != new]
                if not others or not {old for old, _ in others} <= written:
                    own = next((op.op for op in graph.body if op.op == compiled.key), graph.body[0].op)
                    others = [(own, compiled.key)]
                found = [graph]
                for old, new in others:
                    found = [other for one in found for other in with_op(one, old, new, _fixed(rule))]
                for other in found:
                    if other not in known:
                        known.add(other)
                        yield self.subject(other, origin)

    def _examples(self, rule: Rule) -> list[tuple[Rule, s.Example]]:
        """Return a rule's own examples, and those of the other members of its family, each with its member."""
        family = [r for r in self.rules.rules.values() if r.family == rule.family] if rule.family else [rule]
        every = [(member, example) for member in (rule, *family) for example in member.examples]
        return list({example: (member, example) for member, example in reversed(every)}.values())[::-1]

    def drawn(self, rule: Rule, dice: Dice, own: list[Subject]) -> Subject | None:
        """Draw a program near an example, or from the schema of the pattern's op."""
        if own and not (len(rule.match) == 1 and dice.often(30)):
            base = dice.pick(own)
            return self.subject(perturbed(base.value, dice), f"near {base.origin}")
        graph = from_schema(self.compiled[rule.name].root.op, _fixed(rule), dice)
        return self.subject(graph, f"the pattern of `{rule.name}`")

    # ---- checking
    def check(self, rule: Rule, subject: Subject) -> Outcome:
        """Check one rule on one subject. Raises Wrong."""
        outcome = Outcome()
        compiled, graph = self.compiled[rule.name], subject.value
        outcome.refusals.update(self._refusals(compiled, graph))
        try:
            found = self._lowered(compiled, graph)
        except ERRORS as error:
            raise Wrong(subject, said(error)) from error
        if not found:
            return outcome
        (made,) = found
        if _too_large(made) or self.wanted(graph, subject.seed) is None:
            outcome.valid = False
            return outcome
        problem = self._problem(graph, made, subject.seed)
        if problem:
            raise Wrong(subject, problem, ("it becomes", *_lines(made)))
        outcome.firings += 1
        self._overlaps(compiled, graph, outcome)
        at_sizes = torch_with_a_size(graph, subject.seed)
        if at_sizes is not None:
            sized, each, size = at_sizes
            others = {number: there for number, there in each.items() if number != size.hint}  # there it is the subject

            check_sized(
                subject, (sized, others, size), functools.partial(self._lowered, compiled),
                lambda there, became: self._problem(there, became, subject.seed, sized=True), _lines,
            )  # fmt: skip
        return outcome

    def _lowered(self, compiled: TorchRule, graph: TorchGraph) -> list[TensorGraph]:
        """Return the Tensor IR of a program if the rule fires on it. Raises the errors of the rule."""
        try:
            made, fired = lower_with(compiled, graph, self.rules)
        except DplcError:  # refused, by it or by another
            return []
        except ERRORS:
            if any(
                not isinstance(error, (NotApplicable, DplcError, NoneType)) for error in attempts(compiled, graph, {})
            ):
                raise
            return []
        return [made] if fired else []

    def _problem(self, graph: TorchGraph, made: TensorGraph, seed: int, sized: bool = False) -> str | None:
        """Return the first difference from the results of torch, or None.

        It is None too if torch has no result, or if a value is too large. sized: an axis of 1 stays.
        """
        wanted = None if _too_large(made) else self.wanted(graph, seed)
        if wanted is None:
            return None
        tensors, results = wanted
        try:
            verify(made)
            got = meaning.run(made, {name: _array(tensor) for name, tensor in tensors.items()})
            if sized:
                got = [array.reshape(_places(out)) for out, array in zip(graph.outs, got, strict=True)]
        except ERRORS as error:
            return said(error)
        undefined = any(UNWRITTEN in statement.op for statement in graph.body)
        for out, want, have in zip(graph.outs, results, got, strict=True):
            problem = _difference(out, _array(want), have, undefined, tolerance(graph))
            if problem:
                return problem
        return None

    def wanted(self, graph: TorchGraph, seed: int) -> Any:
        """Return (tensors, the results of torch), or None if torch has no result or not always the same."""
        if graph not in self._wanted:
            found = (_run(graph, seed, limit, unit) for limit, unit in ways_to_fill(graph))
            self._wanted[graph] = next((one for one in found if one is not None), None)
        return self._wanted[graph]

    def _refusals(self, compiled: TorchRule, graph: TorchGraph) -> list[str]:
        refused = [str(error) for error in attempts(compiled, graph, {}) if isinstance(error, NotApplicable)]
        return [guard.reason for text in refused for guard in compiled.rule.guards if guard.reason in text]

    def _overlaps(self, compiled: TorchRule, graph: TorchGraph, outcome: Outcome) -> None:
        """Count other rules for the same op that would fire too."""
        every = compile_rules(self.rules)
        for other in every.get(compiled.key, ()):
            fired = 0 if other is compiled else sum(error is None for error in attempts(other, graph, every))
            if fired:
                outcome.overlaps[other.rule.name] += fired

    def smaller(self, subject: Subject) -> Iterator[Subject]:
        """Yield programs with shorter dimensions."""
        graph = subject.value
        found = sorted({n for param in graph.ins for n in param.shape}, reverse=True)
        for old in found:
            for new in (1, 2, 3):
                if new < old:
                    try:
                        yield self.subject(retyped(with_extent(graph, old, new)), subject.origin)
                    except NoSubject:
                        continue


def _too_large(graph: TensorGraph) -> bool:
    """Return whether a value of a program has too many elements to compute here."""
    terms = postorder(out.value for out in graph.outs)
    return any(math.prod(axis.extent for axis in axes(term)) > LARGEST for term in terms)


def _run(graph: TorchGraph, seed: int, limit: int, unit: bool) -> Any:
    if any(statement.op in SMOOTH and statement.types[0].shape[-1] == 1 for statement in graph.body):
        return None
    tensors = {param.name: sample(param, seed, limit, unit) for param in graph.ins}
    try:
        first, second = torch_meaning.run(graph, tensors), torch_meaning.run(graph, tensors)
    except Exception:  # torch raises whatever it likes
        return None
    if any(tuple(tensor.shape) != out.shape for tensor, out in zip(first, graph.outs, strict=True)):
        return None  # bits of one dtype read as another: not the same in float64
    undefined = any(UNWRITTEN in statement.op for statement in graph.body)
    pairs = [(_array(a), _array(b)) for a, b in zip(first, second, strict=True)]
    same = undefined or all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in pairs)
    return (tensors, first) if same else None


def _ops(rule: Rule) -> list[str]:
    """Return the ops of the statements of a pattern."""
    calls = (statement.value if isinstance(statement, s.Assign) else None for statement in rule.match)
    return [call.fn if isinstance(call, s.Apply) else "" for call in calls]


def _fixed(rule: Rule) -> dict[str, Any]:
    """Return the fields to which the pattern gives a value."""
    statement = rule.match[-1]
    call = statement.value if isinstance(statement, s.Assign) else None
    fixed: dict[str, Any] = {}
    for item in call.items if isinstance(call, s.Apply) else ():
        if isinstance(item, s.Keyword):
            if isinstance(item.value, s.Text):
                fixed[item.name] = item.value.value
            elif isinstance(item.value, s.NameOf) and item.value.text in ("true", "false"):
                fixed[item.name] = item.value.text == "true"
            elif s.constant_of(item.value) is not None:
                fixed[item.name] = s.constant_of(item.value)
    return fixed


def _array(tensor: Any) -> Any:
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    return (tensor.double() if tensor.is_floating_point() else tensor).numpy()


def _places(out: Param) -> tuple[int, ...]:
    """Return the extents of the axes of a result."""
    return tuple(n for n in out.shape if n != 1)


def tolerance(graph: TorchGraph) -> float:
    """Return the allowed difference from PyTorch's results in float64, relative to their magnitude."""
    return COARSE_TOLERANCE if any(statement.op in COARSE for statement in graph.body) else TOLERANCE


def _difference(out: Param, want: Any, got: Any, undefined: bool, near: float = TOLERANCE) -> str | None:
    shape = _places(out)
    if got.shape != shape:
        return f"`{out.name}` has the shape {list(got.shape)}, not {list(shape)}"
    kind = {"f": "f", "i": "i", "u": "i", "b": "b"}[got.dtype.kind]
    if kind != ("b" if out.dtype == "b8" else "i" if out.dtype.startswith(("i", "u")) else "f"):
        return f"`{out.name}` is {got.dtype}, not {out.dtype}"
    if undefined:
        return None
    return unlike(out.name, want.reshape(got.shape), got, near)


def _lines(made: TorchGraph | TensorGraph) -> list[str]:
    return (print_torch_graph(made) if isinstance(made, TorchGraph) else print_graph(made)).splitlines()
