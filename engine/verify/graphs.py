"""Rules on tensor and torch: what a program means in float64, before and after; for fusion rules, what its kernels do.

A rule on torch is compared with the results of torch.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterable, Iterator

import numpy as np

from ...codegen.arrays import Array
from ...codegen.target import target
from ...ir.diagnostic import DplcError
from ...ir.dtypes import FLOATS
from ...ir.interp import loop, tensor
from ...ir.interp import tensor as meaning
from ...ir.interp import torch as torch_meaning
from ...ir.node import Value, replace
from ...ir.program import Param
from ...ir.tensor import TensorGraph, postorder
from ...ir.text.programs import print_program
from ...ir.text.tensor import read_graph
from ...ir.torch import TorchGraph
from ...ir.verify.tensor import verify
from ..kernels.examples import (
    alone,
    attempts,
    fired,
    fused_alone,
    lower_with,
    materialised,
    rewritten,
    settings_of,
    torch_subject,
)
from ..kernels.fusion_pass import FusionRules
from ..kernels.kernels import compile_graph
from ..language import core as s
from ..language.rule import Rule, RuleSet, legal
from ..rewrite.terms.rewriter import mentions_mat
from ..rewrite.torch_rules.lower import compile_rules
from ..rewrite.torch_rules.pattern import NotApplicable, StatementPattern
from ..ruleset import Toolchain
from .drawing import TermInstance, perturbed_term
from .outcome import ERRORS, REAL, REORDERED, Arrays, Dice, Outcome, Subject, Wrong, agree, said, unlike
from .sized import Checker, Program, exceeds, faults
from .torch_subjects import NoSubject, edited, exchanged, extents, fillings, from_schema, perturbed, retyped, with_op
from .whole_programs import array, finite_masks, has_integer_summands, in_domain

FLAVOURS = ("whole", "real", "signed", "normal", "special")
SIZED_FLAVOURS = ("whole", "normal")
# Meaning of a program: a flavour of inputs, the inputs, the outputs, and the elements of each that are compared.
Reference = tuple[str, Arrays, list[Array], list[Array]]


class TermChecker(Checker):
    """Checker of rules on tensor, one at a time; fusion rules with and without the other fusion rules."""

    level, levels, kind, share = "tensor", ("tensor",), TensorGraph, 40
    settings = staticmethod(settings_of)

    def __init__(self, rules: RuleSet):
        super().__init__(rules)
        self.fusion = tuple(rule for rule in rules.at("tensor") if mentions_mat(rule))
        self._fusing = functools.cache(lambda rules, pinned: FusionRules(rules, dict(pinned)))
        tools = Toolchain(rules)  # the pipelines that rules run in: others may undo what one of them does
        self.algebras = tools.algebra, tools.commuting

    # ---- subjects
    def program(self, rule: Rule, block: s.Nodes) -> TensorGraph | None:
        return read_graph(block[0]) if getattr(block[0], "kind", "") == "graph" else None  # type: ignore[arg-type]

    def near(self, program: TensorGraph, dice: Dice) -> TensorGraph:
        made = perturbed_term(program, dice)
        verify(made)
        return made

    def from_pattern(self, rule: Rule, dice: Dice) -> TensorGraph:
        return TermInstance(rule, dice).graph()

    def smaller(self, subject: Subject) -> Iterator[Subject]:
        """Yield programs without one of the outputs."""
        graph = subject.value
        fewer = list(itertools.combinations(graph.outs, len(graph.outs) - 1))
        for outs in filter(None, reversed(fewer)):
            terms = set(postorder(out.value for out in outs))
            lean = TensorGraph(graph.name, tuple(x for x in graph.ins if x in terms), outs)
            yield self.subject(lean, subject.origin, subject.pinned)

    # ---- checking
    def check(self, rule: Rule, subject: Subject) -> Outcome:
        """Check one rule on one subject. Raises Wrong."""
        fused, outcome = mentions_mat(rule), Outcome()
        try:
            verify(subject.value)
            known = list(references(rule, subject.value, FLAVOURS[:-1] if fused else FLAVOURS, subject.seed))
        except ERRORS:
            outcome.valid = False
        else:
            (self._fused if fused else self._rewritten)(rule, subject, known, outcome)
        return outcome

    def _rewritten(self, rule: Rule, subject: Subject, known: list[Reference], outcome: Outcome) -> None:
        """Check the rule as it is, and without its `prefer` clauses, which searches ignore. Raises Wrong."""
        graph, rules = subject.value, alone(rule, subject.pinned)
        with faults(subject):
            made, evidence = fired(graph, rules)
            again = rewritten(made, rules)
        outcome.refusals.update(refusal.because for refusal in evidence.refusals)
        if evidence.firings:
            if [out.value for out in again.outs] != [out.value for out in made.outs]:
                raise Wrong(subject, "a second pass changes the result again", self.becomes(again))
            self._same(rule, subject, made, known)
            outcome.firings += len(evidence.firings)
            replaced = {firing.before for firing in evidence.firings}
            for other in self.beside(rule):
                with contextlib.suppress(DplcError):
                    beside = () if mentions_mat(other) else fired(graph, alone(other))[1].firings
                    outcome.overlaps[other.name] += any(firing.before in replaced for firing in beside)
            for algebra in self.algebras:
                if rule in algebra.rules:
                    with faults(subject, of=rule):
                        rewritten(graph, algebra)
            self.check_at_a_size(rule, subject, graph, lambda sized: [rewritten(sized, rules)])
        if any(guard.kind == "prefer" for guard in rule.guards):  # without them it need not terminate
            with faults(subject), contextlib.suppress(DplcError):
                made, evidence = fired(graph, alone(legal(rule), subject.pinned))
                if evidence.firings:
                    self._same(rule, subject, made, known)
                    outcome.firings += len(evidence.firings)

    def _fused(self, rule: Rule, subject: Subject, known: list[Reference], outcome: Outcome) -> None:
        """Check the kernels with the rule next to the others, and with the rule alone. Raises Wrong.

        The rule fired if a kernel differs from the one without it.
        """
        machine, graph, pinned = target(), subject.value, tuple(sorted(subject.pinned.items()))
        outcome.refusals.update(fused_alone(rule, graph, machine, subject.pinned)[1])
        others = tuple(other for other in self.fusion if other.name != rule.name)
        for sets in ((self.fusion, others), ((rule,), ())):

            def kernels(program: TensorGraph, sets: tuple[tuple[Rule, ...], ...] = sets) -> list[Program]:
                """Return the kernels, if they differ from those without the rule."""
                plain, _ = materialised(program)
                made, without = (compile_graph(plain, self._fusing(r, pinned), machine).kernels for r in sets)
                return [] if made == without else [made]

            with faults(subject):
                found = kernels(graph)
            for made in found:
                self._same(rule, subject, made, known)
                self.check_at_a_size(rule, subject, graph, kernels)
                outcome.firings += 1
                outcome.parameters |= {f"{name}={value}" for name, value in pinned}

    # ---- comparing
    def _same(self, rule: Rule, subject: Subject, made: Program, known: list[Reference]) -> None:
        """Raise Wrong if a result is not well formed, or does not mean what its subject means."""
        try:
            if isinstance(made, TensorGraph):
                verify(made)
            problem = differs(rule, subject.value, made, known)
        except DplcError as error:
            problem = "; ".join((error.what, *error.notes))
        if problem:
            raise Wrong(subject, problem, self.becomes(made))

    def _differs(self, rule: Rule, program: TensorGraph, became: Program, seed: int) -> str | None:
        return differs(rule, program, became, references(rule, program, SIZED_FLAVOURS, seed), exact=False)

    def lines(self, program: Program) -> list[str]:
        """Return the lines of a graph without the names of its values, or of kernels."""
        unnamed = replace(program, names=()) if isinstance(program, TensorGraph) else program
        return [line for line in print_program(unnamed).splitlines() if line]


def inputs_of(graph: TensorGraph, flavour: str, seed: int) -> Arrays:
    """Return the inputs of a program.

    flavour: whole: small integers, so that sums are exact; real: positive fractions; special: infinities and nan among
    them; signed, normal: normally distributed.
    """
    data: Arrays = {}
    for n, x in enumerate(graph.ins):
        values = array(Param(x.name, x.dtype, tuple(axis.extent for axis in x.axes)), seed)
        if flavour != "whole" and x.dtype in FLOATS:
            if flavour in ("signed", "normal"):
                values = np.random.default_rng([seed, n, FLAVOURS.index(flavour)]).standard_normal(values.shape)
            else:
                values = np.abs(values) / 3.7 + 0.01
            if flavour == "special":
                values.reshape(-1)[:: max(1, values.size // 3)] = (np.inf, -np.inf, np.nan, 0.0)[n % 4]
        data[x.name] = values
    return data


def references(rule: Rule, graph: TensorGraph, flavours: Iterable[str], seed: int) -> Iterator[Reference]:
    """Yield the meaning of a program, for inputs of several kinds. Raises an error for a program without a meaning."""
    for flavour in flavours:
        data = inputs_of(graph, flavour, seed)
        wanted = tensor.run(graph, data)
        if in_domain(graph, data):
            every = [True] * len(wanted)
            yield flavour, data, wanted, finite_masks(graph, data) if "approx" in rule.attributes else every


def differs(
    rule: Rule, graph: TensorGraph, became: Program, known: Iterable[Reference], exact: bool = True
) -> str | None:
    """Return the difference between the graph and the graph, or the kernels, that a rule rewrote it to; None if equal.

    exact: for integer inputs, results must be equal if all sums are whole.
    """
    fused, approx = mentions_mat(rule), "approx" in rule.attributes
    for flavour, data, wanted, places in known:
        try:
            got = _memory(became, data, graph) if fused else tensor.run(became, data)
        except ERRORS as error:
            return f"its result has no meaning: {said(error)}"
        whole = exact and flavour == "whole" and not fused and not approx and has_integer_summands(graph, data)
        tolerance = 0.0 if whole else REAL if approx or fused else REORDERED
        for out, want, have, where in zip(graph.outs, wanted, got, places, strict=True):
            if want.shape != have.shape or want.dtype.kind != have.dtype.kind:
                return f"`{out.name}` is {have.dtype}{list(have.shape)}, not {want.dtype}{list(want.shape)}"
            if problem := unlike(out.name, want, have, tolerance, where):
                return f"{problem} ({flavour} inputs)"
    return None


def _memory(kernels: Program, data: Arrays, graph: TensorGraph) -> list[Array]:
    """Return the outputs of a graph as its kernels store them."""
    memory = loop.run(kernels, {name: np.atleast_1d(value) for name, value in data.items()})
    return [memory[out.name].reshape([axis.extent for axis in out.axes]) for out in graph.outs]


# ---- Rules on torch: the float64 results of torch are compared with the meaning of the rule's Tensor IR.


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
