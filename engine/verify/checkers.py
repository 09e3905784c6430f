"""The checkers of rules, one a level: each reads, draws, fires and compares the programs of its level."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any

import numpy as np

from ...codegen.arrays import Array
from ...codegen.materialise import materialise
from ...codegen.target import Target, devices, load_device, target
from ...ir.diagnostic import DplcError
from ...ir.dtypes import FLOATS
from ...ir.expr import extents_of
from ...ir.interp import loop, tensor, torch as torch_meaning
from ...ir.monoids import of_part
from ...ir.node import Value, replace
from ...ir.program import Block, Kernel, Module, Param
from ...ir.tensor import Fold, Reduce, TensorGraph, Term, operands, postorder
from ...ir.text.programs import print_program, read_program
from ...ir.text.tensor import read_graph
from ...ir.torch import TorchGraph
from ...ir.verify.kernel import problems
from ...ir.verify.tensor import verify
from ..kernels.examples import (
    alone,
    arguments,
    attempts,
    fired,
    fused_alone,
    lower_with,
    materialised,
    read_subject,
    rewritten,
    settings_of,
    torch_subject,
)
from ..kernels.fusion_pass import FusionRules
from ..kernels.kernels import compile_graph
from ..language import core as s
from ..language.evaluate import Environment
from ..language.rule import Rule, RuleSet, legal, pass_name
from ..language.typed_slots import every
from ..rewrite.statements.compiled import Match
from ..rewrite.statements.driver import Engine, wellformed
from ..rewrite.terms.rewriter import mentions_mat
from ..rewrite.torch_rules.lower import compile_rules
from ..rewrite.torch_rules.pattern import NotApplicable, StatementPattern
from ..rewrite.trace import Evidence, show, smaller
from ..ruleset import Toolchain
from .drawing import Instance, TermInstance, guarded_kernel, perturbed, perturbed_term, renumbered, smaller_programs
from .outcome import ERRORS, REAL, REORDERED, Arrays, Dice, Outcome, PlainDice, Subject, Wrong, agree, said, unlike
from .sized import NO_PROGRAM, Checker, Program, WithSize, at_numbers, exceeds, faults, with_a_size
from .torch_subjects import (
    NoSubject,
    accepted,
    edited,
    exchanged,
    extents,
    fillings,
    from_schema,
    perturbed_torch,
    retyped,
    with_op,
)
from .whole_programs import (
    COUNT,
    TooLarge,
    array,
    baseline,
    compare,
    completed,
    scoped,
    work,
)

# ---- Rules on tensor: what a program means in float64, before and after; for fusion rules, what its kernels compute.


FLAVOURS = ("whole", "real", "signed", "normal", "special")
SIZED_FLAVOURS = ("whole", "normal")
Values = dict[Term, tensor.TermValue]
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

    def fewer(self, graph: TensorGraph) -> Iterator[TensorGraph]:
        """Yield programs without one of the outputs."""
        fewer = list(itertools.combinations(graph.outs, len(graph.outs) - 1))
        for outs in filter(None, reversed(fewer)):
            terms = set(postorder(out.value for out in outs))
            yield TensorGraph(graph.name, tuple(x for x in graph.ins if x in terms), outs)

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
            if again.roots != made.roots:
                raise Wrong(subject, "a second pass changes the result again", self.becomes(again))
            self._same(rule, subject, made, known)
            outcome.firings += len(evidence.firings)
            replaced = {firing.before for firing in evidence.firings}
            for other in self.beside(rule):
                with suppress(DplcError):
                    beside = () if mentions_mat(other) else fired(graph, alone(other))[1].firings
                    outcome.overlaps[other.name] += any(firing.before in replaced for firing in beside)
            for algebra in self.algebras:
                if rule in algebra.rules:
                    with faults(subject, of=rule):
                        rewritten(graph, algebra)
            self.check_at_a_size(rule, subject, graph, lambda sized: [rewritten(sized, rules)])
        if any(guard.kind == "prefer" for guard in rule.guards):  # without them it need not terminate
            with faults(subject), suppress(DplcError):
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
        values = array(Param(x.name, x.dtype, extents_of(x.axes)), seed)
        if flavour != "whole" and x.dtype in FLOATS:
            if flavour in ("signed", "normal"):
                values = np.random.default_rng([seed, n, FLAVOURS.index(flavour)]).standard_normal(values.shape)
            else:
                values = np.abs(values) / 3.7 + 0.01
            if flavour == "special":
                values.reshape(-1)[:: max(1, values.size // 3)] = (np.inf, -np.inf, np.nan, 0.0)[n % 4]
        data[x.name] = values
    return data


def finite_masks(graph: TensorGraph, data: Arrays) -> list[Array]:
    """Return a mask for every output: True where no value on the way to an element is infinite or NaN.

    An equation between real numbers holds for these elements only: division by zero has no real value.
    """
    values = tensor.values(graph, data, real=True)
    masks = ((out, values[out.value].bad) for out in graph.outs)
    return [True if bad is None else ~tensor.stored(bad, out) for out, bad in masks]


def in_domain(values: Values) -> bool:
    """Return whether the counts of partial results are 0 or at least 1. Other counts do not form a monoid."""
    folds = (x for x in values if isinstance(x, Fold) and of_part(x.part)[0].operands[0] == COUNT)
    counts = (values[fold.args[0]].data for fold in folds)
    return all(((count == 0) | (count >= 1)).all() for count in counts)


def has_integer_summands(values: Values) -> bool:
    """Return whether all summands of a program are whole, so that the order of its sums changes nothing."""
    summed = (values[y].data for x in values if isinstance(x, Reduce | Fold) for y in operands(x))
    return all((value == np.round(value)).all() for value in summed)


def references(rule: Rule, graph: TensorGraph, flavours: Iterable[str], seed: int) -> Iterator[Reference]:
    """Yield the meaning of a program, for inputs of several kinds. Raises an error for a program without a meaning."""
    for flavour in flavours:
        data = inputs_of(graph, flavour, seed)
        wanted = tensor.run(graph, data)
        if in_domain(tensor.values(graph, data)):
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
        whole = exact and flavour == "whole" and not fused and not approx
        whole = whole and has_integer_summands(tensor.values(graph, data))
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
    return [memory[out.name].reshape(extents_of(out.axes)) for out in graph.outs]


# ---- Rules on torch: the float64 results of torch are compared with the meaning of the rule's Tensor IR.


TOLERANCE = 1e-10
# PyTorch computes these to seven digits in float64: their rules refuse f64, and it judges no further.
COARSE, COARSE_TOLERANCE = frozenset(f"SpecialBessel{name}" for name in ("J0", "J1", "Y0", "Y1")), 1e-6
LARGEST = 1 << 25  # elements of one value: all pairs of a long row would not fit in memory
# To one column and several rows PyTorch 2.13 resizes wrongly (its first row is repeated): such programs are not judged.
SMOOTH = frozenset(("UpsampleBilinear2dAa", "UpsampleBicubic2dAa"))
UNWRITTEN = "Empty"  # ops whose values are undefined have it in their names


class TorchChecker(Checker):
    """Checker of rules on torch, one at a time, tried before all others."""

    level, kind = "torch", TorchGraph
    near = staticmethod(perturbed_torch)

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

    def fewer(self, graph: TorchGraph) -> Iterator[TorchGraph]:
        """Yield programs with shorter dimensions."""
        for old in reversed(extents(graph)):
            for new in range(1, min(old, 4)):
                with suppress(NoSubject):
                    yield retyped(edited(graph, exchanged(old, new)))

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
        if exceeds(became, LARGEST):
            raise NoSubject("too large to compare")
        tensors, results = self.wanted(program, seed)
        try:
            verify(became)
            got = tensor.run(became, {name: _array(value) for name, value in tensors.items()})
            if sized:
                got = [array.reshape(_places(out)) for out, array in zip(program.outs, got, strict=True)]
        except ERRORS as error:
            return said(error)
        near = COARSE_TOLERANCE if any(op.op in COARSE for op in program.body) else TOLERANCE
        outs = zip(program.outs, map(_array, results), got, strict=True)
        return next(filter(None, (_difference(*out, _undefined(program), near) for out in outs)), None)

    def wanted(self, graph: TorchGraph, seed: int) -> tuple[Arrays, list[Array]]:
        """Return (tensors, the results of torch). Raises NoSubject if it has no result, or not always the same."""
        if any(op.op in SMOOTH and op.types[0].shape[-1] == 1 for op in graph.body):
            raise NoSubject("PyTorch resizes wrongly")

        def run(tensors: Arrays) -> tuple[Arrays, list[Array]]:
            first, second = (torch_meaning.run(graph, tensors) for _ in range(2))
            # bits of one dtype read as another are not the same in float64
            fits = all(tuple(tensor.shape) == out.shape for tensor, out in zip(first, graph.outs, strict=True))
            arrays = zip(map(_array, first), map(_array, second), strict=True)
            if not (fits and (_undefined(graph) or all(agree(a, b, 0.0).all() for a, b in arrays))):
                raise NoSubject("the results vary")
            return tensors, first

        return accepted(fillings(graph, seed), run)


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


# ---- Rules on module, loop and tile: every way to fire on a subject, each compared under adversarial threads.


LEVELS: tuple[str, ...] = ("module", "loop", "tile")
FIRINGS = 6  # compared per subject; parameters and sites are spread over them
SIZED_FIRINGS = 2  # compared per program with a size
SEEN = 400  # ways to fire that are looked at
STARTS = 100  # of matches that get the numbers of a proof
BESIDE = 20  # of another rule of the pass
ORDERS = range(3)  # thread orders that a result is compared under
MACHINES: tuple[str, ...] = ("h200", "sm_80")
TRIES = 60  # programs drawn from the pattern with the numbers of a proof


class StatementChecker(Checker):
    """Checker of the rules of one rule set on whole kernels."""

    level, levels, machines = "tile", LEVELS, MACHINES
    share, strict = 50, True
    settings, near, scope = staticmethod(arguments), staticmethod(perturbed), staticmethod(scoped)
    fewer = staticmethod(smaller_programs)

    def __init__(self, rules: RuleSet):
        super().__init__(rules)
        self.engine, self.machine = Engine(rules, check=True), target(self.machines[0])

    @functools.cached_property
    def known(self) -> list[Subject]:
        """The subjects in the examples of all rules."""
        return list(self.examples(self.rules.at(*LEVELS)))

    # ---- subjects
    def read(self, text: str, origin: str) -> Subject:
        return self.subject(completed(read_program(text, origin)[1]), origin)  # type: ignore[arg-type]

    def program(self, rule: Rule, block: s.Nodes) -> Module | None:
        """Return the whole kernels of a block of an example."""
        with suppress(*NO_PROGRAM):
            return completed(read_subject(block), rule.level == "tile")
        return None

    def from_pattern(self, rule: Rule, dice: Dice, numbers: Mapping[str, int] = {}) -> Module:
        instance = Instance(rule, dice)
        instance.values.update(numbers)
        made = completed(instance.program(), rule.level == "tile", dice.often(20))
        return made if numbers or not dice.often(30) else perturbed(made, dice)

    def refuting(self, rule: Rule, numbers: Mapping[str, int], own: Iterable[Subject]) -> Iterator[Subject]:
        """Yield examples and programs of the pattern, with the numbers of a proof."""
        pinned = {p.name: numbers[p.name] for p in rule.parameters if p.name in numbers}
        for subject in own:
            with suppress(*NO_PROGRAM):
                for made in self._renumbered(rule, numbers, subject.value):
                    yield self.subject(made, f"{subject.origin}, refuted", pinned)
        free = {name: n for name, n in numbers.items() if name not in pinned}
        for n in range(TRIES):
            with suppress(*NO_PROGRAM):
                made = self.from_pattern(rule, PlainDice((rule.name, n)), free)
                yield self.subject(made, f"the pattern of `{rule.name}`, refuted", pinned)

    def _renumbered(self, rule: Rule, numbers: Mapping[str, int], program: Module) -> Iterator[Module]:
        """Yield a program with the extents of a proof instead of its own, and with undeclared buffers."""
        compiled, seen = self.engine.rule(rule), set[Module]()
        starts = compiled.starts(program, range(len(program)), True)
        for path, block, start in islice(starts, STARTS):
            site = (program, path, self.machine)
            for match in compiled.matches_at(site, block, start):
                change = {match.env[n]: v for n, v in numbers.items() if type(match.env.get(n)) is int}
                made = tuple(Kernel(k.name, (), (), _changed(k.body, change)) for k in program)
                if change and made not in seen:
                    seen.add(made)
                    yield completed(made)

    # ---- checking
    def check(self, rule: Rule, subject: Subject) -> Outcome:
        """Compare several ways to fire, on the first machine where there are any. Raises Wrong."""
        outcome = Outcome(valid="local" not in rule.attributes)
        for name in (*self.machines, *_asked_for(rule)) if outcome.valid else ():
            machine, program, fault = target(name), subject.value, None
            try:
                if "canonical" not in rule.attributes:
                    program = self.engine.normal(program, machine, self.level)
                found = self._ways(rule, program, machine, subject.pinned, outcome)
            except ERRORS as error:
                found, fault = [], error
            if found or fault:
                outcome.valid = baseline(subject.value, subject.seed) is not None
                if outcome.valid and fault:
                    raise Wrong(subject, f"matching raises {said(fault)}") from fault
                if outcome.valid:
                    self._check_all(rule, subject, program, machine, found, outcome)
                break
        return outcome

    def _ways(self, rule: Rule, program: Module, machine: Target, given: Environment, outcome: Outcome) -> list[Match]:
        """Return some of the ways to fire, with as many parameter values among them as possible."""
        sites, evidence = functools.partial(self.engine.sites, rule, program, machine), Evidence(rule)
        found = list(islice(sites(search=True), SEEN))
        pinned = {p.name: given[p.name] for p in rule.parameters if p.name in given}
        for known in ({}, pinned) if pinned else ({},):
            list(islice(sites(known, evidence), SEEN))
        outcome.refusals.update(refusal.because for refusal in evidence.refusals if refusal.because)
        if len(found) <= FIRINGS:
            return found
        named = sites(pinned, search=True) if pinned else ()
        return [*islice(named, 1), *(found[n * len(found) // FIRINGS] for n in range(FIRINGS))]

    def _check_all(
        self, rule: Rule, subject: Subject, program: Module, machine: Target, found: list[Match], outcome: Outcome
    ) -> None:
        """Check some ways to fire, the whole pass, and a program with a size; count rules that match as well."""
        places, beside = {(match.path, match.start) for match in found}, self.beside(rule)
        for other in beside:
            matches = islice(self.engine.sites(other, program, machine), BESIDE)
            outcome.overlaps[other.name] += any((match.path, match.start) in places for match in matches)
        canonical, compiled = "canonical" in rule.attributes, self.engine.rule(rule)

        def fire(match: Match) -> Module:
            """Return the program after one firing, canonical again unless the rule itself is canonical."""
            if canonical:
                return compiled.rewrite(match)
            return self.engine.rewrite(rule, match)[0]

        for match in found:
            texts = {f"{name}={show(match.env[name])}" for name in compiled.parameters if name in match.env}
            values = f" with {', '.join(sorted(texts))}" if texts else ""
            where = f"at {match.where}{values} for {machine.name}"
            before = self._changed_by_locals()
            with faults(subject, f" ({where})"):
                made = fire(match)
                for problem in filter(None, map(wellformed, made)):
                    raise DplcError(f"gives a program that is not well formed: {problem}")
            if made != program and self._same(subject, made, where, program):
                outcome.firings += 1
                outcome.parameters |= texts
                outcome.locals |= {name for name, _ in self._changed_by_locals() - before}
                last = compiled.measure(match.env)
                for again in islice(self.engine.sites(rule, made, machine), 0 if last is None else BESIDE):
                    value = compiled.measure(again.env)
                    if not smaller(value, last) and fire(again) != made:
                        what = f"`{s.DECREASES}` is {show(last)}, and {show(value)} at {again.where} after a firing"
                        raise Wrong(subject, f"{what} ({where})", self.becomes(made))
        with faults(subject, " (as a pass)"):
            if canonical:
                made = self.engine.normal(program, machine, self.level)
            else:
                made = self.engine.fire(rule.name, program, machine)
        if canonical or "repeat" in rule.attributes:
            self._same(subject, made, "after the whole pass", program)
        if beside and not canonical:
            with faults(subject, " (beside the others of its pass)", rule):
                self.engine.fire(pass_name(rule.file), program, machine)

        def fire_some(sized: Module) -> list[Module]:
            matches = islice(self.engine.sites(rule, sized, machine, search=True), SIZED_FIRINGS)
            return [*map(fire, matches)]

        self.check_at_a_size(rule, subject, program, fire_some, f"(with a size, for {machine.name})")

    def _changed_by_locals(self) -> set[tuple[str, int]]:
        """Return the local rules, each with the number of runs that it has changed so far."""
        return {(rule.name, self.engine.rule(rule).changed) for rule in self.rules.locals}

    def _same(self, subject: Subject, made: Module, where: str, program: Module) -> bool:
        """Raise Wrong if a program does not mean what its subject means. Returns False if it is too large to run."""
        known: Any = baseline(subject.value, subject.seed)
        try:
            for kernel in made:
                self.scope(kernel)
            problem = compare(made, known, ORDERS)
        except TooLarge:
            return False
        except ERRORS as error:
            problem = said(error)
        text = print_program(made, self.level)
        if problem is None and read_program(text)[1] != made:
            problem = "the result does not read back as it was printed"
        if problem is None:
            return True
        if program is not subject.value and compare(program, known, ORDERS) is not None:
            return False  # a canonical rule broke it before: its own check says so
        raise Wrong(subject, f"{problem} ({where})", ("it becomes", *text.splitlines()))

    def _differs(self, rule: Rule, program: Module, became: Module, seed: int) -> str | None:
        known = baseline(program, seed)
        return None if known is None else compare(became, known, ORDERS[:1])


def _asked_for(rule: Rule) -> list[str]:
    """Return the devices that a rule is for, or that its clauses name as texts: on others it may not fire."""
    texts = {node.value for node in every(rule.clauses, s.Text)}
    named = [name for name in devices() if texts & {load_device(name).name, load_device(name).arch}]
    return named if rule.device is None else [rule.device.text, *named]


def _changed(body: Block, change: Mapping[int, int]) -> Block:
    return renumbered(body, lambda n: change.get(n, n))


def _verified(kernel: Kernel) -> None:
    """Raise DplcError for a kernel of Kernel IR that is not legal."""
    for problem in problems(kernel):
        raise DplcError(problem)


class KernelChecker(StatementChecker):
    """Checker of rules on kernel: their programs are the materialised Tile programs of examples and neighbours."""

    level, levels, machines = "kernel", ("kernel",), MACHINES[:1]
    scope = staticmethod(_verified)

    def __init__(self, rules: RuleSet):
        super().__init__(rules)
        self._tile_program: dict[Module, Module] = {}  # {Kernel IR: the Tile IR that it was lowered from}

    def read(self, text: str, origin: str) -> Subject:
        return self.subject(read_program(text, origin)[1], origin)

    @functools.cached_property
    def sources(self) -> list[Subject]:
        """The Tile programs of all examples."""
        return StatementChecker(self.rules).known

    def examples(self, rules: Iterable[Rule]) -> Iterator[Subject]:
        """Yield the Tile programs of all examples, materialised, where a rule could match."""
        chosen = [self.engine.rule(rule) for rule in rules]
        for source in self.sources:
            with suppress(*NO_PROGRAM):
                made = self._lowered(source.value, source.origin)
                if any(rule.possible(kernel) for rule in chosen for kernel in made.value):
                    yield made

    def drawn(self, rule: Rule, dice: Dice, own: list[Subject]) -> Subject:
        """Return a program of an example or its neighbour, materialised, with guards that it did not have."""
        if own and dice.often(85):
            made = dice.pick(own)
        else:
            base = dice.pick(self.sources)
            made = self._lowered(perturbed(base.value, dice), f"near {base.origin}, materialised")
        program = tuple(guarded_kernel(kernel, dice) for kernel in made.value) if dice.often(80) else made.value
        return made if program == made.value else self.subject(program, f"{made.origin}, guarded")

    @staticmethod
    def fewer(program: Module) -> Iterator[Module]:
        """Yield the kernels of a program of several."""
        return ((kernel,) for kernel in program if len(program) > 1)

    def _lowered(self, program: Module, origin: str) -> Subject:
        """Return a Tile program, materialised. Raises TooLarge, also for a program that does nothing."""
        if work(program) == 0:
            raise TooLarge
        made = self._materialised(program)
        self._tile_program[made] = program
        return self.subject(made, origin)

    def _materialised(self, program: Module) -> Module:
        return tuple(materialise(kernel, self.machine) for kernel in program)

    def with_a_size(self, program: Module, seed: int) -> WithSize | None:
        """Return the program materialised again from Tile IR with a size."""
        found = with_a_size(self._tile_program.get(program, ()), seed)
        if found is None:
            return None
        made, size = self._materialised(found[0]), found[2]
        return made, at_numbers(made, size), size
