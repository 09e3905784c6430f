"""Rules on tensor: what a program means in float64, before and after; for fusion rules, what its kernels compute."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ...codegen.target import target as default_target
from ...ir.diagnostic import DplcError
from ...ir.dtypes import FLOATS
from ...ir.interp import loop
from ...ir.interp import tensor as meaning
from ...ir.program import Param
from ...ir.tensor import TensorGraph, postorder
from ...ir.text.programs import print_unit
from ...ir.text.tensor import print_graph, read_graph
from ...ir.verify.tensor import verify
from ..kernels.examples import fuse_marked, materialised, settings_of, sibling_kernels
from ..kernels.fusion_pass import FusionRules, kind_of
from ..kernels.kernels import compile_graph
from ..language import core as s
from ..language.rule import Rule, RuleSet, legal
from ..rewrite.terms.rewriter import TermEvidence, TermRules, mentions_mat, rewrite_graph
from ..rewrite.trace import RewriteStep
from ..ruleset import Toolchain
from .drawing import TermInstance
from .meaning import array, in_domain, real_places, whole_sums
from .neighbours import perturbed_term
from .outcome import ERRORS, REAL, REORDERED, Dice, Outcome, Subject, Wrong, said, unlike
from .sized import Checker, check_sized, term_with_a_size


class TermChecker(Checker):
    """Checker of rules on tensor, one at a time; fusion rules with and without the other fusion rules."""

    level, levels, kind = "tensor", ("tensor",), TensorGraph
    settings = staticmethod(settings_of)

    def __init__(self, rules: RuleSet):
        self.rules = rules
        self.fusion = tuple(rule for rule in rules.at("tensor") if mentions_mat(rule))
        self._compiled: dict[Any, Any] = {}

    # ---- subjects
    def text(self, program: Any) -> str:
        return f"## level: tensor\n{print_graph(program)}\n"

    def program(self, rule: Rule, block: s.Nodes) -> Any:
        return read_graph(block[0]) if getattr(block[0], "kind", "") == "graph" else None  # type: ignore[arg-type]

    def drawn(self, rule: Rule, dice: Dice, own: list[Subject]) -> Subject | None:
        if own and dice.often(40):
            base = dice.pick(own)
            near = perturbed_term(base.value, dice)
            verify(near)
            return self.subject(near, f"near {base.origin}", base.pinned)
        return self.subject(TermInstance(rule, dice, mentions_mat(rule)).graph(), f"the pattern of `{rule.name}`")

    # ---- checking
    def check(self, rule: Rule, subject: Subject) -> Outcome:
        """Check one rule on one subject. Raises Wrong."""
        try:
            verify(subject.value)
            known = list(references(rule, subject.value, FLAVOURS, subject.seed))
        except ERRORS:
            return Outcome(valid=False)
        outcome = Outcome()
        (self._fused if mentions_mat(rule) else self._rewritten)(rule, subject, known, outcome)
        return outcome

    def _rules(self, rule: Rule, pinned: dict[str, Any]) -> TermRules:
        key = (rule, tuple(sorted(pinned.items())))
        if key not in self._compiled:
            self._compiled[key] = TermRules([rule], (rule.name,), parameters=pinned)
        return self._compiled[key]  # type: ignore[no-any-return]

    def _rewritten(self, rule: Rule, subject: Subject, known: list[Reference], outcome: Outcome) -> None:
        """Check the rule as it is, and without its `prefer` clauses, which searches ignore. Raises Wrong."""
        graph, rules, evidence = subject.value, self._rules(rule, subject.pinned), TermEvidence()
        try:
            made = rewritten(graph, rules, evidence)
            again = rewritten(made, rules)
        except ERRORS as error:
            raise Wrong(subject, said(error)) from error
        outcome.refusals.update(refusal.because for refusal in evidence.refusals)
        if evidence.firings:
            if [out.value for out in again.outs] != [out.value for out in made.outs]:
                raise Wrong(subject, "a second pass changes the result again", _becomes(again))
            self._same(rule, subject, made, known)
            outcome.firings += len(evidence.firings)
            self._overlaps(rule, graph, outcome)
            self._ends(rule, subject)
            self._at_a_size(rule, subject, lambda sized: fired(sized, rules)[0])
        if any(guard.kind == "prefer" for guard in rule.guards):
            self._legal(legal(rule), subject, known, outcome)

    def _legal(self, rule: Rule, subject: Subject, known: list[Reference], outcome: Outcome) -> None:
        """Check a rule without its `prefer` clauses: it need not terminate. Raises Wrong."""
        try:
            found, firings = fired(subject.value, TermRules([rule], (rule.name,), parameters=subject.pinned))
        except DplcError:
            return
        except ERRORS as error:
            raise Wrong(subject, said(error)) from error
        for made in found:
            self._same(rule, subject, made, known)
        outcome.firings += len(firings)

    def _ends(self, rule: Rule, subject: Subject) -> None:
        """Check that it terminates together with the other rules of its pipeline, which may undo it. Raises Wrong."""
        for algebra in self._beside_all:
            if rule in algebra.rules:
                try:
                    rewritten(subject.value, algebra)
                except DplcError as error:
                    if any(f"`{rule.name}`" in line for line in (error.what, *error.notes)):
                        raise Wrong(subject, error.what, error.notes) from error

    @functools.cached_property
    def _beside_all(self) -> tuple[TermRules, ...]:
        tools = Toolchain(self.rules)
        return tools.algebra, tools.commuting

    def _overlaps(self, rule: Rule, graph: TensorGraph, outcome: Outcome) -> None:
        """Count other rules of the same file that match one of the terms that this one replaces."""

        def replaced(one: Rule) -> set[Any]:
            try:
                return {firing.before for firing in fired(graph, self._rules(one, {}))[1]}
            except DplcError:
                return set()

        before = replaced(rule)
        for other in self.rules.at("tensor"):
            if other.file == rule.file and other.name != rule.name and not mentions_mat(other):
                outcome.overlaps[other.name] += bool(before & replaced(other))

    def _fused(self, rule: Rule, subject: Subject, known: list[Reference], outcome: Outcome) -> None:
        """Check the kernels with the rule next to the others, and with the rule alone. Raises Wrong.

        The rule fired if a kernel differs from the one without it.
        """
        machine, limits = default_target(), tuple(sorted(subject.pinned.items()))
        graph, _ = materialised(subject.value)
        siblings = kind_of(rule) == "siblings"
        refused = (
            sibling_kernels(rule, graph, machine, subject.pinned)
            if siblings
            else fuse_marked(rule, subject.value, machine, subject.pinned)
        )
        outcome.refusals.update(refused[1])
        others = tuple(other for other in self.fusion if other.name != rule.name)
        for beside in ((*others, rule), (rule,)):
            less = tuple(r for r in beside if r is not rule)

            def kernels(program: TensorGraph, beside: Any = beside, less: Any = less) -> list[Any]:
                """Return the kernels, if they differ from those without the rule."""
                plain, _ = materialised(program)
                made, without = (compile_graph(plain, self._fusion(r, limits), machine).kernels for r in (beside, less))
                return [] if made == without else [made]

            try:
                found = kernels(graph)
            except ERRORS as error:
                raise Wrong(subject, said(error), getattr(error, "notes", ())) from error
            for made in found:
                self._same(rule, subject, made, [one for one in known if one.flavour != "special"])
                self._at_a_size(rule, subject, kernels)
                outcome.firings += 1
                outcome.parameters |= {f"{name}={value}" for name, value in limits}

    def _fusion(self, rules: tuple[Rule, ...], limits: tuple[Any, ...]) -> FusionRules:
        key = (tuple(rule.name for rule in rules), limits)
        if key not in self._compiled:
            ordered = [r for r in self.fusion if r in rules] + [r for r in rules if r not in self.fusion]
            self._compiled[key] = FusionRules(ordered, dict(limits))
        return self._compiled[key]  # type: ignore[no-any-return]

    # ---- comparing
    def _same(self, rule: Rule, subject: Subject, made: Any, known: list[Reference]) -> None:
        """Raise Wrong if a result is not well formed, or does not mean what its subject means."""
        try:
            if isinstance(made, TensorGraph):
                verify(made)
        except DplcError as error:
            raise Wrong(subject, "; ".join((error.what, *error.notes)), _becomes(made)) from error
        problem = differs(rule, subject.value, made, known)
        if problem:
            raise Wrong(subject, problem, _becomes(made))

    def _at_a_size(self, rule: Rule, subject: Subject, fire: Callable[[TensorGraph], list[Any]]) -> None:
        """Check the rule with an extent that is known only at a call. Raises Wrong."""

        def differs_there(graph: TensorGraph, became: Any) -> str | None:
            try:
                return differs(rule, graph, became, references(rule, graph, SIZED_FLAVOURS, subject.seed), exact=False)
            except ERRORS:  # the program means nothing there
                return None

        check_sized(subject, term_with_a_size(subject.value, subject.seed), fire, differs_there, _lines)

    # ---- smaller counterexamples
    def smaller(self, subject: Subject) -> Iterator[Subject]:
        """Yield programs without one of the outputs."""
        graph = subject.value
        for n in range(len(graph.outs)) if len(graph.outs) > 1 else ():
            outs = (*graph.outs[:n], *graph.outs[n + 1 :])
            yield self._lean(TensorGraph(graph.name, graph.ins, outs), subject)

    def _lean(self, graph: TensorGraph, subject: Subject) -> Subject:
        terms = set(postorder(out.value for out in graph.outs))
        lean = TensorGraph(graph.name, tuple(x for x in graph.ins if x in terms), graph.outs)
        return self.subject(lean, subject.origin, subject.pinned)


FLAVOURS = ("whole", "real", "signed", "normal", "special")


def inputs_of(graph: TensorGraph, flavour: str, seed: int) -> dict[str, Any]:
    """Return the inputs of a program.

    flavour: whole: small integers, so that sums are exact; real: positive fractions; special: infinities and nan among
    them; signed, normal: normally distributed.
    """
    data: dict[str, Any] = {}
    for x in graph.ins:
        param = Param(x.name, x.dtype, tuple(axis.extent for axis in x.axes))
        values = array(param, seed)
        if flavour != "whole" and x.dtype in FLOATS:
            if flavour in ("signed", "normal"):
                dice = np.random.default_rng([seed, len(data), FLAVOURS.index(flavour)])
                data[x.name] = dice.standard_normal(values.shape)
                continue
            values = np.abs(values) / 3.7 + 0.01
            if flavour == "special" and values.size:
                flat = values.reshape(-1)
                flat[:: max(1, flat.size // 3)] = (np.inf, -np.inf, np.nan, 0.0)[len(data) % 4]
        data[x.name] = values
    return data


class Reference(NamedTuple):
    """Meaning of a program for some inputs.

    The last field has the elements that are compared, by output; None means all.
    """

    flavour: str
    data: dict[str, Any]
    wanted: list[Any]
    places: list[Any] | None


def references(rule: Rule, graph: TensorGraph, flavours: Iterable[str], seed: int) -> Iterator[Reference]:
    """Yield the meaning of a program, for inputs of several kinds. Raises an error for a program without a meaning."""
    for flavour in flavours:
        data = inputs_of(graph, flavour, seed)
        wanted = meaning.run(graph, data)
        if in_domain(graph, data):
            yield Reference(flavour, data, wanted, real_places(graph, data) if "approx" in rule.attributes else None)


def differs(rule: Rule, graph: TensorGraph, became: Any, known: Iterable[Reference], exact: bool = True) -> str | None:
    """Return the difference between the graph and the graph, or the kernels, that a rule rewrote it to; None if equal.

    exact: for integer inputs, results must be equal if all sums are whole.
    """
    fused, approx = mentions_mat(rule), "approx" in rule.attributes
    for flavour, data, wanted, places in known:
        try:
            got = _memory(became, data, graph) if fused else meaning.run(became, data)
        except ERRORS as error:
            return f"its result has no meaning: {said(error)}"
        whole = exact and flavour == "whole" and not fused and not approx and whole_sums(graph, data)
        tolerance = 0.0 if whole else REAL if approx or fused else REORDERED
        for out, want, have, where in zip(graph.outs, wanted, got, places or [True] * len(got), strict=True):
            if want.shape != have.shape or want.dtype.kind != have.dtype.kind:
                return f"`{out.name}` is {have.dtype}{list(have.shape)}, not {want.dtype}{list(want.shape)}"
            problem = unlike(out.name, want, have, tolerance, where)
            if problem:
                return f"{problem} ({flavour} inputs)"
    return None


def rewritten(graph: TensorGraph, rules: TermRules, evidence: TermEvidence | None = None) -> TensorGraph:
    """Return a program after some rules; inputs that are called `weight..` are weights."""
    weights = tuple(x.name for x in graph.ins if x.name.startswith("weight"))
    return rewrite_graph(graph, rules, None, evidence, weights=weights)


def fired(graph: TensorGraph, rules: TermRules) -> tuple[list[TensorGraph], list[RewriteStep]]:
    """Return the program after some rules, if one fired, and the firings."""
    evidence = TermEvidence()
    made = rewritten(graph, rules, evidence)
    return [made] if evidence.firings else [], evidence.firings


def _memory(kernels: Any, data: Any, graph: TensorGraph) -> list[Any]:
    """Return the outputs of a graph as its kernels store them."""
    memory = loop.run(kernels, {name: np.atleast_1d(value) for name, value in data.items()})
    return [memory[out.name].reshape([axis.extent for axis in out.axes]) for out in graph.outs]


SIZED_FLAVOURS = ("whole", "normal")


def _lines(made: Any) -> list[str]:
    """Return the lines of a graph, or of kernels."""
    if isinstance(made, TensorGraph):
        return print_graph(TensorGraph(made.name, made.ins, made.outs)).splitlines()
    return [line for kernel in made for line in print_unit(kernel).splitlines()]


def _becomes(made: Any) -> tuple[str, ...]:
    return ("it becomes", *_lines(made))
