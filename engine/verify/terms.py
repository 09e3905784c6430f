"""Rules on tensor: what a program means in float64, before and after; for fusion rules, what its kernels compute."""

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
from ...ir.node import replace
from ...ir.program import Param
from ...ir.tensor import TensorGraph, postorder
from ...ir.text.programs import print_program
from ...ir.text.tensor import read_graph
from ...ir.verify.tensor import verify
from ..kernels.examples import alone, fired, fused_alone, materialised, rewritten, settings_of
from ..kernels.fusion_pass import FusionRules
from ..kernels.kernels import compile_graph
from ..language import core as s
from ..language.rule import Rule, RuleSet, legal
from ..rewrite.terms.rewriter import mentions_mat
from ..ruleset import Toolchain
from .drawing import TermInstance
from .meaning import array, finite_masks, has_integer_summands, in_domain
from .neighbours import perturbed_term
from .outcome import ERRORS, REAL, REORDERED, Arrays, Dice, Outcome, Subject, Wrong, said, unlike
from .sized import Checker, Program, faults

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
