"""Rules on module, loop and tile: every way to fire on a subject, each compared under adversarial threads."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from ...codegen.materialise import materialise
from ...codegen.target import Target, devices, load_device, target
from ...ir.diagnostic import DplcError
from ...ir.program import Block, Kernel, Module
from ...ir.text.programs import print_program, read_program
from ...ir.verify.kernel import problems
from ..kernels.examples import arguments, read_subject
from ..language import core as s
from ..language.evaluate import Environment
from ..language.rule import Rule, RuleSet, pass_name
from ..language.typed_slots import every
from ..rewrite.statements.compiled import Match
from ..rewrite.statements.driver import Engine, wellformed
from ..rewrite.trace import Evidence, show, smaller
from .drawing import Instance, guarded_kernel, perturbed, renumbered, smaller_programs
from .outcome import ERRORS, Dice, Outcome, PlainDice, Subject, Wrong, said
from .sized import NO_PROGRAM, Checker, WithSize, at_numbers, faults, with_a_size
from .whole_programs import TooLarge, baseline, compare, completed, scoped, work

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
        with contextlib.suppress(*NO_PROGRAM):
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
            with contextlib.suppress(*NO_PROGRAM):
                for made in self._renumbered(rule, numbers, subject.value):
                    yield self.subject(made, f"{subject.origin}, refuted", pinned)
        free = {name: n for name, n in numbers.items() if name not in pinned}
        for n in range(TRIES):
            with contextlib.suppress(*NO_PROGRAM):
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

    def smaller(self, subject: Subject) -> Iterator[Subject]:
        """Return subjects that are a little smaller."""
        return (self.subject(made, subject.origin, subject.pinned) for made in smaller_programs(subject.value))

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
                        raise Wrong(subject, f"{what} ({where})", ("it becomes", *print_program(made).splitlines()))
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
            with contextlib.suppress(*NO_PROGRAM):
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

    def smaller(self, subject: Subject) -> Iterator[Subject]:
        """Return subjects with one kernel of several."""
        return (self.subject((kernel,), subject.origin) for kernel in subject.value if len(subject.value) > 1)

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
