"""Rules on torch: compare the float64 results of torch with the meaning of the rule's Tensor IR."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator

from ...codegen.arrays import Array
from ...ir.diagnostic import DplcError
from ...ir.interp import tensor as meaning
from ...ir.interp import torch as torch_meaning
from ...ir.node import Value
from ...ir.program import Param
from ...ir.tensor import TensorGraph
from ...ir.torch import TorchGraph
from ...ir.verify.tensor import verify
from ..kernels.examples import attempts, lower_with, torch_subject
from ..language.rule import Rule, RuleSet
from ..rewrite.torch_rules.lower import compile_rules
from ..rewrite.torch_rules.pattern import NotApplicable, StatementPattern
from .outcome import ERRORS, Arrays, Dice, Outcome, Subject, Wrong, agree, said, unlike
from .sized import Checker, exceeds, faults
from .torch_subjects import (
    NoSubject,
    edited,
    exchanged,
    extents,
    fillings,
    from_schema,
    perturbed,
    retyped,
    with_op,
)  # fmt: skip

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
    near = staticmethod(perturbed)

    def __init__(self, rules: RuleSet):
        super().__init__(rules)
        self.table = compile_rules(rules)
        self.compiled = {c.rule.name: c for group in self.table.values() for c in group}

    # ---- subjects
    def examples(self, rules: Iterable[Rule]) -> Iterator[Subject]:
        """Yield the programs in the examples of rules; for a member of a family also those of the other members.

        With the op of the rule, examples of many members are the same program: each program comes once for a rule.
        """
        for compiled in [self.compiled[rule.name] for rule in rules if rule.name in self.compiled]:
            rule, known = compiled.rule, dict[TorchGraph, str]()
            family = [r for r in self.rules.rules.values() if rule.family and r.family == rule.family]
            members = {example: member for member in (*family[::-1], rule) for example in reversed(member.examples)}
            for example, member in reversed(members.items()):
                found = [torch_subject(example)]
                ops = [op.op for op in found[0].body]
                if rule.family and ops:
                    pairs = zip(map(StatementPattern, member.match), compiled.patterns, strict=True)
                    others = {old.op: new.op for old, new in pairs if old.op != new.op}
                    if not others or not others.keys() <= {*ops}:
                        others = {compiled.key if compiled.key in ops else ops[0]: compiled.key}
                    for old, new in others.items():
                        found = [made for one in found for made in with_op(one, old, new, _fixed(rule))]
                for graph in found:
                    known.setdefault(graph, f'example "{example.title}" of `{rule.name}`')
            yield from itertools.starmap(self.subject, known.items())

    def stays_near(self, rule: Rule, dice: Dice) -> bool:
        return not (len(rule.match) == 1 and dice.often(30))

    def from_pattern(self, rule: Rule, dice: Dice) -> TorchGraph:
        return from_schema(self.compiled[rule.name].root.op, _fixed(rule), dice)

    def smaller(self, subject: Subject) -> Iterator[Subject]:
        """Yield programs with shorter dimensions."""
        graph = subject.value
        for old in reversed(extents(graph)):
            for new in range(1, min(old, 4)):
                with contextlib.suppress(NoSubject):
                    yield self.subject(retyped(edited(graph, exchanged(old, new))), subject.origin)

    # ---- checking
    def check(self, rule: Rule, subject: Subject) -> Outcome:
        """Check one rule on one subject. Raises Wrong."""
        outcome, compiled, graph = Outcome(), self.compiled[rule.name], subject.value
        refused = [str(error) for error in attempts(compiled, graph, {}) if isinstance(error, NotApplicable)]
        outcome.refusals.update(guard.reason for text in refused for guard in rule.guards if guard.reason in text)

        def fire(program: TorchGraph) -> list[TensorGraph]:
            """Return the Tensor IR of a program if the rule fires on it. Raises the errors of the rule."""
            try:
                made, fired = lower_with(compiled, program, self.rules)
            except DplcError:  # refused, by it or by another
                return []
            except ERRORS:
                known = NotApplicable | DplcError | None
                if all(isinstance(error, known) for error in attempts(compiled, program, {})):
                    return []
                raise
            return [made] if fired else []

        with faults(subject):
            found = fire(graph)
        for made in found:
            try:
                problem = self._differs(rule, graph, made, subject.seed, sized=False)
            except NoSubject:
                outcome.valid = False
                return outcome
            if problem:
                raise Wrong(subject, problem, self.becomes(made))
            outcome.firings += 1
            for other in self.table[compiled.key]:
                if other is not compiled:
                    fired = sum(error is None for error in attempts(other, graph, self.table))
                    outcome.overlaps[other.rule.name] += fired
            self.check_at_a_size(rule, subject, graph, fire)
        return outcome

    def _differs(
        self, rule: Rule, program: TorchGraph, became: TensorGraph, seed: int, sized: bool = True
    ) -> str | None:
        """Return the first difference from the results of torch, or None. sized: an axis of 1 stays.

        Raises NoSubject if torch has no result, or if a value of the Tensor IR has too many elements to compute here.
        """
        wanted = None if exceeds(became, LARGEST) else self.wanted(program, seed)
        if wanted is None:
            raise NoSubject("nothing to compare with")
        tensors, results = wanted
        try:
            verify(became)
            got = meaning.run(became, {name: _array(tensor) for name, tensor in tensors.items()})
            if sized:
                got = [array.reshape(_places(out)) for out, array in zip(program.outs, got, strict=True)]
        except ERRORS as error:
            return said(error)
        near = COARSE_TOLERANCE if any(op.op in COARSE for op in program.body) else TOLERANCE
        outs = zip(program.outs, map(_array, results), got, strict=True)
        return next(filter(None, (_difference(*out, _undefined(program), near) for out in outs)), None)

    def wanted(self, graph: TorchGraph, seed: int) -> tuple[Arrays, list[Array]] | None:
        """Return (tensors, the results of torch), or None if torch has no result or not always the same."""
        judged = not any(op.op in SMOOTH and op.types[0].shape[-1] == 1 for op in graph.body)
        for tensors in fillings(graph, seed) if judged else ():
            try:
                first, second = (torch_meaning.run(graph, tensors) for _ in range(2))
            except Exception:  # torch raises whatever it likes
                continue
            # bits of one dtype read as another are not the same in float64
            fits = all(tuple(tensor.shape) == out.shape for tensor, out in zip(first, graph.outs, strict=True))
            arrays = zip(map(_array, first), map(_array, second), strict=True)
            if fits and (_undefined(graph) or all(agree(a, b, 0.0).all() for a, b in arrays)):
                return tensors, first
        return None


def _undefined(graph: TorchGraph) -> bool:
    return any(UNWRITTEN in op.op for op in graph.body)


def _fixed(rule: Rule) -> dict[str, Value]:
    """Return the fields to which the pattern gives a value."""
    keywords = StatementPattern(rule.match[-1]).keywords
    return {name: value for name, value in keywords.items() if isinstance(value, int | float | str)}


def _array(tensor: Array) -> Array:
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    return (tensor.double() if tensor.is_floating_point() else tensor).numpy()


def _places(out: Param) -> tuple[int, ...]:
    """Return the extents of the axes of a result."""
    return tuple(n for n in out.shape if n != 1)


def _difference(out: Param, want: Array, got: Array, undefined: bool, near: float = TOLERANCE) -> str | None:
    shape = _places(out)
    if got.shape != shape:
        return f"`{out.name}` has the shape {list(got.shape)}, not {list(shape)}"
    kind = "b" if out.dtype == "b8" else "i" if out.dtype.startswith(("i", "u")) else "f"
    if got.dtype.kind.replace("u", "i") != kind:
        return f"`{out.name}` is {got.dtype}, not {out.dtype}"
    return None if undefined else unlike(out.name, want.reshape(got.shape), got, near)
