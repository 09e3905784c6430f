"""Rules on module, loop and tile: every way to fire on a subject, each compared under adversarial threads."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from ...codegen.materialise import materialise
from ...codegen.target import Target, devices, load_device
from ...codegen.target import target as target_named
from ...ir.diagnostic import DplcError
from ...ir.expr import Size
from ...ir.program import Kernel
from ...ir.text.programs import print_program, read_program
from ...ir.verify.kernel import problems
from ..kernels.examples import arguments, read_subject
from ..language import core as s
from ..language.rule import Rule, RuleSet, pass_name
from ..language.typed_slots import walk
from ..rewrite.statements.compiled import CompiledRule, Match
from ..rewrite.statements.driver import Engine, wellformed
from ..rewrite.trace import Evidence, show
from .drawing import Instance
from .meaning import baseline, compare, work
from .neighbours import guarded_kernel, perturbed, smaller_programs
from .outcome import ERRORS, Dice, Outcome, Subject, Wrong, said
from .sized import REFUSALS, Checker, at_numbers, check_sized, with_a_size
from .whole_programs import TooLarge, completed, runnable, scoped

Program = tuple[Kernel, ...]
LEVELS = ("module", "loop", "tile")
FIRINGS = 6  # compared per subject; parameters and sites are spread over them
SIZED_FIRINGS = 2  # compared per program with a size
SEEN = 400  # ways to fire that are looked at
ORDERS = range(3)  # thread orders that a result is compared under
MACHINES = ("h200", "sm_80")


class StatementChecker(Checker):
    """Checker of the rules of one rule set on whole kernels. known: meanings of earlier programs; added to."""

    level: str = "tile"
    levels: tuple[str, ...] = LEVELS
    machines: tuple[str, ...] = MACHINES
    settings = staticmethod(arguments)

    def __init__(self, rules: RuleSet, known: dict[Any, Any] | None = None):
        self.rules, self.engine = rules, Engine(rules, check=True)
        self._neighbours: dict[str, tuple[Rule, ...]] = {}
        self._baselines: dict[Program, Any] = {} if known is None else known

    # ---- subjects
    def read(self, text: str, origin: str) -> Subject:
        return self.subject(completed(read_program(text, origin)[1]), origin)  # type: ignore[arg-type]

    def program(self, rule: Rule, block: s.Nodes) -> Program | None:
        """Return the whole kernels of a block of an example."""
        try:
            whole = completed(read_subject(block), rule.level == "tile")
        except (*ERRORS, TooLarge):
            return None
        return whole if runnable(whole) else None

    def drawn(self, rule: Rule, dice: Dice, own: list[Subject]) -> Subject | None:
        if own and dice.often(50):
            base = dice.pick(own)
            return self.subject(perturbed(base.value, dice), f"near {base.origin}", base.pinned)
        made = completed(Instance(rule, dice).program(), rule.level == "tile", dice.often(20))
        if dice.often(30):
            made = perturbed(made, dice)
        return self.subject(made, f"the pattern of `{rule.name}`") if runnable(made) else None

    def smaller(self, subject: Subject) -> Iterator[Subject]:
        """Return subjects that are a little smaller."""
        return (self.subject(program, subject.origin) for program in smaller_programs(subject.value))

    def possible(self, rule: Rule, subject: Subject) -> bool:
        """Return whether a subject has the statements that the rule's pattern needs."""
        compiled = self.engine.rule(rule)
        return "local" not in rule.attributes and any(map(compiled.possible, subject.value))

    # ---- checking
    def check(self, rule: Rule, subject: Subject) -> Outcome:
        """Compare several ways to fire, on the first machine where there are any. Raises Wrong."""
        if "local" in rule.attributes:
            return Outcome(valid=False)
        compiled, outcome = self.engine.rule(rule), Outcome()
        for machine in map(target_named, (*self.machines, *_asked_for(rule))):
            try:
                canonical = "canonical" in rule.attributes
                program = subject.value if canonical else self.engine.normal(subject.value, machine, self.level)
                found = self._ways(compiled, program, machine, subject.pinned, outcome)
            except ERRORS as error:
                outcome.valid = self._baseline(subject.value, subject.seed) is not None
                if not outcome.valid:
                    return outcome
                raise Wrong(subject, f"matching raises {said(error)}") from error
            if not found:
                continue
            outcome.valid = self._baseline(subject.value, subject.seed) is not None
            if outcome.valid:
                self._overlaps(rule, program, machine, found, outcome)
                for match in found:
                    self._fire(compiled, program, match, machine, subject, outcome)
                self._ends(rule, program, machine, subject)
                self._at_a_size(compiled, program, machine, subject)
            break
        return outcome

    def _baseline(self, program: Program, seed: int) -> Any:
        """Return inputs and the meaning of a program, None for a program without a single meaning."""
        if program not in self._baselines:
            self._baselines[program] = baseline(program, ORDERS[:2], seed)
        return self._baselines[program]

    def _ways(
        self, rule: CompiledRule, program: Program, machine: Target, given: dict[str, Any], outcome: Outcome
    ) -> list[Match]:
        """Return some of the ways to fire, with as many parameter values among them as possible."""
        evidence, kernels = Evidence(), range(len(program))
        every = list(islice(rule.matches(program, kernels, machine, {}, None, True), SEEN))
        pinned = {name: value for name, value in given.items() if name in rule.parameters}
        for known in ({}, pinned) if pinned else ({},):
            list(islice(rule.matches(program, kernels, machine, known, evidence, False), SEEN))
        outcome.refusals.update(refusal.because for refusal in evidence.refusals if refusal.because)
        if len(every) <= FIRINGS:
            return every
        step = len(every) / FIRINGS
        named = rule.matches(program, kernels, machine, pinned, None, True) if pinned else ()
        return [*islice(named, 1), *(every[int(n * step)] for n in range(FIRINGS))]

    def _made(self, rule: CompiledRule, program: Program, match: Match, machine: Target) -> Program:
        """Return the program after one firing, canonical again unless the rule itself is canonical."""
        if "canonical" in rule.rule.attributes:
            return rule.rewrite(program, match)
        return self.engine.rewrite(rule.rule, program, match, machine)[0]

    def _fire(
        self, rule: CompiledRule, program: Program, match: Match, machine: Target, subject: Subject, outcome: Outcome
    ) -> None:
        texts = {f"{name}={show(match.env[name])}" for name in rule.parameters if name in match.env}
        where = f"at {match.where}" + (f" with {', '.join(sorted(texts))}" if texts else "") + f" for {machine.name}"
        before = self._changed_by_locals()
        try:
            made = self._made(rule, program, match, machine)
            for problem in map(wellformed, made):
                if problem:
                    raise DplcError(f"gives a program that is not well formed: {problem}")
        except ERRORS as error:
            raise Wrong(subject, f"{said(error)} ({where})", getattr(error, "notes", ())) from error
        if made != program and self._same(subject, made, where, program):
            outcome.firings += 1
            outcome.parameters |= texts
            outcome.locals.update(name for name, n in self._changed_by_locals().items() if n > before[name])

    def _changed_by_locals(self) -> dict[str, int]:
        """Return the number of runs that each local rule has changed so far."""
        return {rule.name: self.engine.rule(rule).changed for rule in self.rules.locals}

    def _scoped(self, program: Program) -> None:
        """Raise DplcError for a program in which a name is used outside of its scope."""
        for kernel in program:
            scoped(kernel)

    def _same(self, subject: Subject, made: Program, where: str, program: Program) -> bool:
        """Raise Wrong if a program does not mean what its subject means. Returns False if it is too large to run."""
        known = self._baseline(subject.value, subject.seed)
        try:
            self._scoped(made)
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

    def _ends(self, rule: Rule, program: Program, machine: Target, subject: Subject) -> None:
        """Check that a pass of the rule, or a canonical rule, terminates and keeps the meaning. Raises Wrong."""
        canonical = "canonical" in rule.attributes
        try:
            made = self.engine.normal(program, machine, self.level)
            if not canonical:
                made = self.engine.fire(self.engine.step(rule.name), made, machine)
        except ERRORS as error:
            raise Wrong(subject, f"{said(error)} (as a pass)", getattr(error, "notes", ())) from error
        if "repeat" in rule.attributes or canonical:
            self._same(subject, made, "after the whole pass", program)
        if not canonical and self._beside(rule):
            try:
                self.engine.fire(self.engine.step(pass_name(rule.file)), program, machine)
            except ERRORS as error:
                told = (said(error), *getattr(error, "notes", ()))
                if any(f"`{rule.name}`" in line for line in told):
                    raise Wrong(subject, f"{told[0]} (beside the others of its pass)", told[1:]) from error

    def _at_a_size(self, rule: CompiledRule, program: Program, machine: Target, subject: Subject) -> None:
        """Raise Wrong if the rule fires on the program with a size, and the result differs at a number."""
        found = self._with_sizes(program, subject.seed)
        if found is None:
            return
        sized, size = found
        told = f"(with a size, for {machine.name})"
        try:
            matches = rule.matches(sized, range(len(sized)), machine, {}, None, True)
            made = [self._made(rule, sized, match, machine) for match in islice(matches, SIZED_FIRINGS)]
        except (*ERRORS, *REFUSALS) as error:
            if isinstance(error, REFUSALS) or not isinstance(error, DplcError):
                return
            raise Wrong(subject, f"it ends in an error: {error.what} {told}", ("of", *_lines(sized))) from error
        each = at_numbers(sized, size) if made else {}
        differs = functools.partial(self._differs, seed=subject.seed)
        check_sized(subject, (sized, each, size), lambda _: made, differs, _lines, told)

    def _differs(self, program: Program, became: Program, seed: int) -> str | None:
        """Return the first difference of a rewritten program, or None; also None for a program without a meaning."""
        try:
            known = self._baseline(program, seed)
            return None if known is None else compare(became, known, ORDERS[:1])
        except (*ERRORS, *REFUSALS):
            return None

    def _with_sizes(self, program: Program, seed: int) -> tuple[Program, Size] | None:
        """Return the program with a size for one of its numbers, and the size; None if that is not possible."""
        made = with_a_size(program, seed)
        return None if made is None or any(wellformed(kernel) is not None for kernel in made[0]) else made

    def _overlaps(self, rule: Rule, program: Program, machine: Target, found: list[Match], outcome: Outcome) -> None:
        """Count other rules of the same pass that match at the same location."""
        sites = {(match.path, match.start) for match in found}
        for other in self._beside(rule):
            matches = self.engine.sites(other, program, machine)
            if any((m.path, m.start) in sites for m in islice(matches, 20)):
                outcome.overlaps[other.name] += 1

    def _beside(self, rule: Rule) -> tuple[Rule, ...]:
        if rule.name not in self._neighbours:
            same = (r for r in self.rules.rules.values() if r.file == rule.file and r.level in self.levels)
            kind = rule.attributes & {"canonical", "local"}
            self._neighbours[rule.name] = tuple(
                r for r in same if r.name != rule.name and r.attributes & {"canonical", "local"} == kind
            )
        return self._neighbours[rule.name]


def _lines(program: Program) -> list[str]:
    return print_program(program).splitlines()


@functools.lru_cache(maxsize=64)
def _asked_for(rule: Rule) -> tuple[str, ...]:
    """Return the devices that a rule is for, or that its clauses name as texts: on others it may not fire."""
    texts = {node.value for node in walk(rule.clauses) if isinstance(node, s.Text)}
    named = [name for name in devices() if texts & {load_device(name).name, load_device(name).arch}]
    return tuple(named if rule.device is None else [rule.device.text, *named])


class KernelChecker(StatementChecker):
    """Checker of rules on kernel: their programs are the materialised Tile programs of examples and neighbours.

    tiles: the checker that knows the Tile programs.
    """

    level, levels, machines = "kernel", ("kernel",), MACHINES[:1]

    def __init__(self, rules: RuleSet, tiles: StatementChecker):
        super().__init__(rules)
        self.tiles, self.machine = tiles, target_named(MACHINES[0])
        self._tile_program: dict[Program, Program] = {}  # {Kernel IR: the Tile IR that it was lowered from}

    def read(self, text: str, origin: str) -> Subject:
        return self.subject(read_program(text, origin)[1], origin)

    @functools.cached_property
    def sources(self) -> list[Subject]:
        """The Tile programs of all examples."""
        return list(self.tiles.examples(self.rules.rules.values()))

    def examples(self, rules: Iterable[Rule]) -> Iterator[Subject]:
        """Yield the Tile programs of all examples, materialised, where a rule could match."""
        chosen = [self.engine.rule(rule) for rule in rules if rule.level == "kernel"]
        for source in self.sources:
            try:
                made = self._lowered(source.value, source.origin)
            except (*ERRORS, TooLarge):
                continue
            if made is not None and any(rule.possible(kernel) for rule in chosen for kernel in made.value):
                yield made

    def drawn(self, rule: Rule, dice: Dice, own: list[Subject]) -> Subject | None:
        """Return a program of an example or its neighbour, materialised, with guards that it did not have."""
        if own and dice.often(85):
            made: Subject | None = dice.pick(own)
        else:
            base = dice.pick(self.sources)
            made = self._lowered(perturbed(base.value, dice), f"near {base.origin}, materialised")
        if made is None or not dice.often(80):
            return made
        program = tuple(guarded_kernel(kernel, dice) for kernel in made.value)
        return made if program == made.value else self.subject(program, f"{made.origin}, guarded")

    def smaller(self, subject: Subject) -> Iterator[Subject]:
        """Return subjects with one kernel of several."""
        return (self.subject((kernel,), subject.origin) for kernel in subject.value if len(subject.value) > 1)

    def _lowered(self, program: Program, origin: str) -> Subject | None:
        if work(program) == 0:
            return None
        made = self._materialised(program)
        self._tile_program[made] = program
        return self.subject(made, origin)

    def _materialised(self, program: Program) -> Program:
        return tuple(materialise(kernel, self.machine) for kernel in program)

    def _scoped(self, program: Program) -> None:
        for problem in (problem for kernel in program for problem in problems(kernel)):
            raise DplcError(problem)

    def _with_sizes(self, program: Program, seed: int) -> tuple[Program, Size] | None:
        """Return the program materialised again from Tile IR with a size."""
        tile = self._tile_program.get(program)
        found = None if tile is None else super()._with_sizes(tile, seed)
        return None if found is None else (self._materialised(found[0]), found[1])
