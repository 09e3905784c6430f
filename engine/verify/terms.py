"""Rules on tensor: what a program means in float64, before and after; for fusion rules, what its kernels compute."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

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
from ..kernels.examples import _rebuilt, fuse_marked, settings_of, sibling_kernels
from ..kernels.fusion_pass import FusionRules, kind_of
from ..kernels.kernels import compile_graph
from ..language.rule import Rule, RuleSet, legal
from ..rewrite.terms.rewriter import TermEvidence, TermRules, mentions_mat, rewrite_graph
from ..ruleset import Toolchain
from .drawing import TermInstance
from .meaning import array, in_domain, real_places, whole_sums
from .neighbours import perturbed_term
from .outcome import ERRORS, REAL, REORDERED, Dice, Outcome, Subject, Wrong, said, unlike
from .sized import GraphChecker, check_sized, term_with_a_size


class TermChecker(GraphChecker):
    """Checks rules on tensor, one at a time; fusion rules with and without the others beside them."""

    level, kind, show = "tensor", TensorGraph, staticmethod(print_graph)

    def __init__(self, rules: RuleSet):
        self.rules = rules
        self.fusion = tuple(rule for rule in rules.at("tensor") if mentions_mat(rule))
        self._compiled: dict[Any, Any] = {}

    # ---- subjects
    def examples(self, rules: Iterable[Rule]) -> Iterator[Subject]:
        """The programs in the examples of rules."""
        for rule in rules:
            for example in rule.examples if rule.level == "tensor" else ():
                pinned = settings_of(example, rule)
                for block in (example.before, example.gives):
                    if isinstance(block, tuple) and getattr(block[0], "kind", "") == "graph":
                        yield self.subject(read_graph(block[0]), f'example "{example.title}" of `{rule.name}`', pinned)  # type: ignore[arg-type]

    def draw(self, rule: Rule, dice: Dice, own: list[Subject]) -> Subject | None:
        """Near an example, or a program made from the rule's pattern."""
        try:
            if own and dice.often(40):
                base = dice.pick(own)
                near = perturbed_term(base.value, dice)
                verify(near)
                return self.subject(near, f"near {base.origin}", base.pinned)
            graph = TermInstance(rule, dice, mentions_mat(rule)).graph()
            return self.subject(graph, f"the pattern of `{rule.name}`")
        except (DplcError, OverflowError, ValueError, TypeError, LookupError):
            return None

    # ---- checking
    def check(self, rule: Rule, subject: Subject) -> Outcome:
        """Raises Wrong."""
        outcome = Outcome()
        data = [inputs_of(subject.value, flavour, subject.seed) for flavour in FLAVOURS]
        try:
            verify(subject.value)
            wanted = [meaning.run(subject.value, given) for given in data]
        except ERRORS:
            outcome.valid = False
            return outcome
        real = real_places if "approx" in rule.attributes else _every_place
        places = [real(subject.value, given) for given in data]
        known = [one for one in zip(FLAVOURS, data, wanted, places, strict=True) if in_domain(subject.value, one[1])]
        if mentions_mat(rule):
            self._fused(rule, subject, known, outcome)
        else:
            self._rewritten(rule, subject, known, outcome)
        return outcome

    def _rules(self, rule: Rule, pinned: dict[str, Any]) -> TermRules:
        key = (rule.name, tuple(sorted(pinned.items())))
        if key not in self._compiled:
            self._compiled[key] = TermRules([rule], (rule.name,), parameters=pinned)
        return self._compiled[key]  # type: ignore[no-any-return]

    def _rewritten(self, rule: Rule, subject: Subject, known: Any, outcome: Outcome) -> None:
        """As it is, and, for what is only preferred searches do not ask, without its `prefer`s."""
        graph = subject.value
        weights = tuple(x.name for x in graph.ins if x.name.startswith("weight"))
        evidence = TermEvidence()
        made = self._made(rule, subject, weights, evidence)
        again = self._made(rule, dataclasses.replace(subject, value=made), weights, None)
        outcome.refusals.update(refusal.because for refusal in evidence.refusals)
        if evidence.firings and [out.value for out in again.outs] != [out.value for out in made.outs]:
            raise Wrong(subject, "a second pass changes the result again", _becomes(again))
        if evidence.firings:
            self._same(rule, subject, made, known)
            outcome.firings += len(evidence.firings)
            self._beside(rule, graph, weights, outcome)
            self._ends(rule, subject, weights)
            self._rewritten_at_a_size(rule, subject, weights)
        if any(guard.kind == "prefer" for guard in rule.guards):
            self._legal(legal(rule), subject, weights, known, outcome)

    def _rewritten_at_a_size(self, rule: Rule, subject: Subject, weights: tuple[str, ...]) -> None:
        """Raises Wrong."""
        evidence, rules = TermEvidence(), self._rules(rule, subject.pinned)

        def rewritten(graph: TensorGraph) -> TensorGraph | None:
            made: TensorGraph = rewrite_graph(graph, rules, None, evidence, weights=weights)
            return made if evidence.firings else None

        real = real_places if "approx" in rule.attributes else _every_place
        self._at_a_size(subject, rewritten, meaning.run, REAL if real is real_places else REORDERED, real)

    def _at_a_size(
        self, subject: Subject, fire: Callable[[TensorGraph], Any], run: Callable[[Any, Any], list[Any]],
        tolerance: float, real: Callable[[TensorGraph, Any], Any],
    ) -> None:  # fmt: skip
        """The same where an extent is known at a call only. Raises Wrong."""

        def differs(graph: TensorGraph, became: Any) -> str | None:
            return _sized_difference(graph, became, run, tolerance, real, subject.seed)

        check_sized(subject, term_with_a_size(subject.value, subject.seed), fire, differs, _lines)

    def _ends(self, rule: Rule, subject: Subject, weights: tuple[str, ...]) -> None:
        """Beside all others of its pipeline, too: rules may undo one another. Raises Wrong."""
        for algebra in self._beside_all:
            if rule in algebra.rules:
                try:
                    rewrite_graph(subject.value, algebra, weights=weights)
                except DplcError as error:
                    if any(f"`{rule.name}`" in line for line in (error.what, *error.notes)):
                        raise Wrong(subject, error.what, error.notes) from error

    @functools.cached_property
    def _beside_all(self) -> tuple[TermRules, ...]:
        tools = Toolchain(self.rules)
        return tools.algebra, tools.commuting

    def _legal(self, rule: Rule, subject: Subject, weights: tuple[str, ...], known: Any, outcome: Outcome) -> None:
        """A rule without what it prefers: it need not come to an end."""
        evidence = TermEvidence()
        try:
            made = rewrite_graph(subject.value, TermRules([rule], (rule.name,), parameters=subject.pinned), None,
                                 evidence, weights=weights)  # fmt: skip
        except DplcError:
            return
        except ERRORS as error:
            raise Wrong(subject, said(error)) from error
        if evidence.firings:
            self._same(rule, subject, made, known)
            outcome.firings += len(evidence.firings)

    def _made(
        self, rule: Rule, subject: Subject, weights: tuple[str, ...], evidence: TermEvidence | None
    ) -> TensorGraph:
        try:
            made: TensorGraph = rewrite_graph(
                subject.value, self._rules(rule, subject.pinned), None, evidence, weights=weights
            )
        except ERRORS as error:
            raise Wrong(subject, said(error)) from error
        return made

    def _same(self, rule: Rule, subject: Subject, made: TensorGraph, known: Any) -> None:
        """Raises Wrong if a result is not well formed, or does not mean what its subject means."""
        try:
            verify(made)
        except DplcError as error:
            raise Wrong(subject, "; ".join((error.what, *error.notes)), _becomes(made)) from error
        approx = "approx" in rule.attributes
        for flavour, data, wanted, places in known:
            try:
                got = meaning.run(made, data)
            except ERRORS as error:
                raise Wrong(subject, f"its result has no meaning: {said(error)}", _becomes(made)) from error
            exact = flavour == "whole" and not approx and whole_sums(subject.value, data)
            problem = _difference(made, wanted, got, REAL if approx else REORDERED, exact, places)
            if problem:
                raise Wrong(subject, f"{problem} ({flavour} inputs)", _becomes(made))

    def _beside(self, rule: Rule, graph: TensorGraph, weights: tuple[str, ...], outcome: Outcome) -> None:
        """Rules of the same file that match one of the terms that this one replaces."""
        before = {firing.before for firing in _firings(graph, self._rules(rule, {}), weights)}
        for other in self.rules.at("tensor"):
            if other.file == rule.file and other.name != rule.name and not mentions_mat(other):
                table = self._rules(other, {})
                if any(firing.before in before for firing in _firings(graph, table, weights)):
                    outcome.overlaps[other.name] += 1

    def _fused(self, rule: Rule, subject: Subject, known: Any, outcome: Outcome) -> None:
        """Kernels with the rule beside the others, and alone. It fired where a kernel is another one without it."""
        graph = _rebuilt(subject.value, lambda term, built: built, set())
        others = tuple(other for other in self.fusion if other.name != rule.name)
        machine = default_target()
        if kind_of(rule) == "siblings":
            outcome.refusals.update(sibling_kernels(rule, graph, machine, subject.pinned)[1])
        else:
            outcome.refusals.update(fuse_marked(rule, subject.value, machine, subject.pinned)[1])
        for beside in ((*others, rule), (rule,)):
            less = tuple(r for r in beside if r is not rule)
            limits = tuple(sorted(subject.pinned.items()))
            try:
                made = compile_graph(graph, self._fusion(beside, limits), machine).kernels
                without = compile_graph(graph, self._fusion(less, limits), machine).kernels
            except ERRORS as error:
                raise Wrong(subject, said(error), getattr(error, "notes", ())) from error
            if made == without:
                continue
            for flavour, data, wanted, _ in known:
                if flavour == "special":
                    continue
                self._kernels(subject, made, data, wanted, flavour)
            self._fused_at_a_size(subject, self._fusion(beside, limits), self._fusion(less, limits))
            outcome.firings += 1
            outcome.parameters |= {f"{name}={value}" for name, value in limits}

    def _fusion(self, rules: tuple[Rule, ...], limits: tuple[Any, ...]) -> FusionRules:
        key = (tuple(rule.name for rule in rules), limits)
        if key not in self._compiled:
            ordered = [r for r in self.fusion if r in rules] + [r for r in rules if r not in self.fusion]
            self._compiled[key] = FusionRules(ordered, dict(limits))
        return self._compiled[key]  # type: ignore[no-any-return]

    def _fused_at_a_size(self, subject: Subject, rules: FusionRules, without: FusionRules) -> None:
        """Raises Wrong."""
        machine = default_target()

        def kernels(graph: TensorGraph) -> Any:
            plain = _rebuilt(graph, lambda term, built: built, set())
            made, less = (compile_graph(plain, given, machine).kernels for given in (rules, without))
            return None if made == less else made

        self._at_a_size(subject, kernels, lambda made, data: _memory(made, data, subject.value), REAL, _every_place)

    def _kernels(self, subject: Subject, kernels: Any, data: Any, wanted: Any, flavour: str) -> None:
        text = _lines(kernels)
        try:
            memory = _memory(kernels, data, subject.value)
            got = [array.reshape(value.shape) for array, value in zip(memory, wanted, strict=True)]
        except ERRORS as error:
            raise Wrong(subject, said(error), ("its kernels", *text)) from error
        problem = _difference(subject.value, wanted, got, REAL)
        if problem:
            raise Wrong(subject, f"{problem} ({flavour} inputs)", ("its kernels", *text))

    # ---- smaller counterexamples
    def smaller(self, subject: Subject) -> Iterator[Subject]:
        """Programs with an output less."""
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
    """whole: small numbers, so that sums are exact; real: positive fractions; special: infinities and nan among them;
    signed, normal: normally distributed."""
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


def _memory(kernels: Any, data: Any, graph: TensorGraph) -> list[Any]:
    """The outputs of a graph as its kernels store them."""
    memory = loop.run(kernels, {name: np.atleast_1d(value) for name, value in data.items()})
    return [memory[out.name] for out in graph.outs]


SIZED_FLAVOURS = ("whole", "normal")


def _sized_difference(
    graph: TensorGraph, became: Any, run: Callable[[Any, Any], list[Any]], tolerance: float,
    real: Callable[[TensorGraph, Any], Any], seed: int,
) -> str | None:  # fmt: skip
    """What differs at a binding; None also where the program means nothing there."""
    for flavour in SIZED_FLAVOURS:
        data = inputs_of(graph, flavour, seed)
        try:
            wanted = meaning.run(graph, data)
        except ERRORS:
            return None
        if not in_domain(graph, data):
            continue
        try:
            found = zip(run(became, data), wanted, strict=True)
            got = [array.reshape(value.shape) for array, value in found]
        except ERRORS as error:
            return f"its result has no meaning: {said(error)}"
        problem = _difference(graph, wanted, got, tolerance, places=real(graph, data))
        if problem:
            return f"{problem} ({flavour} inputs)"
    return None


def _lines(made: Any) -> list[str]:
    """The lines of a graph, or of kernels."""
    if isinstance(made, TensorGraph):
        return print_graph(TensorGraph(made.name, made.ins, made.outs)).splitlines()
    return [line for kernel in made for line in print_unit(kernel).splitlines()]


def _firings(graph: TensorGraph, rules: TermRules, weights: tuple[str, ...]) -> list[Any]:
    evidence = TermEvidence()
    try:
        rewrite_graph(graph, rules, None, evidence, weights=weights)
    except DplcError:
        return []
    return evidence.firings


def _every_place(graph: TensorGraph, data: Any) -> None:
    """For rules that are exact."""


def _difference(
    graph: TensorGraph, wanted: list[Any], got: list[Any], tolerance: float, exact: bool = False,
    places: list[Any] | None = None,
) -> str | None:  # fmt: skip
    """places: where elements are compared, by output, as an equation between real numbers says nothing elsewhere;
    None means everywhere."""
    for out, want, have, where in zip(graph.outs, wanted, got, places or [True] * len(got), strict=True):
        if want.shape != have.shape or want.dtype.kind != have.dtype.kind:
            return f"`{out.name}` is {have.dtype}{list(have.shape)}, not {want.dtype}{list(want.shape)}"
        problem = unlike(out.name, want, have, 0.0 if exact else tolerance, where)
        if problem:
            return problem
    return None


def _becomes(graph: TensorGraph) -> tuple[str, ...]:
    return ("it becomes", *_lines(graph))
