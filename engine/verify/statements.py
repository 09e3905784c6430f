"""Rules on module, loop and tile: every way to fire on a subject, each compared under adversarial threads."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator
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
from ..rewrite.trace import show
from ..rewrite.why_not import Evidence
from .drawing import Instance
from .meaning import Meaning, baseline, compare, work
from .neighbours import guarded_kernel, perturbed, smaller_programs
from .outcome import ERRORS, Dice, Outcome, Subject, Wrong, said
from .sized import SizedCheck, machines_way, with_a_size
from .whole_programs import TooLarge, completed, runnable, scoped

Program = tuple[Kernel, ...]
LEVELS = ("module", "loop", "tile")
FIRINGS = 6  # compared per subject; parameters and sites are spread over them
SEEN = 400  # ways to fire that are looked at
ORDERS = 3  # thread orders that a result is compared under
MACHINES = ("h200", "sm_80")


class StatementChecker:
    """Checks the rules of one rule set on whole kernels. known: what programs mean, from earlier; added to."""

    level: str = "tile"
    levels: tuple[str, ...] = LEVELS
    machines: tuple[str, ...] = MACHINES

    def __init__(self, rules: RuleSet, known: dict[Any, Any] | None = None):
        self.rules, self.orders = rules, range(ORDERS)
        self.engine = Engine(rules, check=True)
        self._neighbours: dict[str, tuple[Rule, ...]] = {}
        self._sized = SizedCheck(self.orders)
        self._baselines: dict[Program, Any] = {} if known is None else known

    # ---- subjects
    def subject(self, program: Program, origin: str, pinned: dict[str, Any] | None = None) -> Subject:
        """Whole kernels as a subject."""
        return Subject(self.level, print_program(program, self.level), program, origin, pinned or {})

    def read(self, text: str, origin: str) -> Subject:
        """The subject in a file."""
        return self.subject(completed(read_program(text, origin)[1]), origin)  # type: ignore[arg-type]

    def examples(self, rules: Iterable[Rule]) -> Iterator[Subject]:
        """The programs in the examples of rules, whole; what the examples give too."""
        for rule in rules:
            for example in rule.examples if rule.level in LEVELS else ():
                for block in (example.before, example.gives):
                    if isinstance(block, tuple):
                        yield from self._example(rule, example, block)

    def _example(self, rule: Rule, example: s.Example, block: Any) -> Iterator[Subject]:
        try:
            whole = completed(read_subject(block), rule.level == "tile")
        except (*ERRORS, TooLarge):
            return
        if runnable(whole):
            yield self.subject(whole, f'example "{example.title}" of `{rule.name}`', arguments(example, rule))

    def draw(self, rule: Rule, dice: Dice, own: list[Subject]) -> Subject | None:
        """Near an example, or a program made from the rule's pattern."""
        try:
            if own and dice.often(50):
                base = dice.pick(own)
                return self.subject(perturbed(base.value, dice), f"near {base.origin}", base.pinned)
            made = completed(Instance(rule, dice).program(), rule.level == "tile", dice.often(20))
            if dice.often(30):
                made = perturbed(made, dice)
            return self.subject(made, f"the pattern of `{rule.name}`") if runnable(made) else None
        except (*ERRORS, TooLarge):
            return None

    def smaller(self, subject: Subject) -> Iterator[Subject]:
        """Subjects that are a little smaller."""
        return (self.subject(program, subject.origin) for program in smaller_programs(subject.value))

    def possible(self, rule: Rule, subject: Subject) -> bool:
        """Whether a subject has the statements that the rule's pattern needs."""
        compiled = self.engine.rule(rule)
        return "local" not in rule.attributes and any(map(compiled.possible, subject.value))

    # ---- checking
    def check(self, rule: Rule, subject: Subject) -> Outcome:
        """Every way to fire. Raises Wrong."""
        outcome = Outcome()
        if "local" in rule.attributes:
            outcome.valid = False
            return outcome
        compiled = self.engine.rule(rule)
        canonical = "canonical" in rule.attributes
        for machine in (*self.machines, *_asked_for(rule)):
            machine_target = target_named(machine)
            try:
                program = subject.value if canonical else self.engine.normal(subject.value, machine_target, self.level)
                found = self._ways(compiled, program, machine_target, subject.pinned, outcome)
            except ERRORS as error:
                if self._baseline(subject) is None:
                    outcome.valid = False
                    return outcome
                raise Wrong(subject, f"matching raises {said(error)}") from error
            if not found:
                continue
            start = self._baseline(subject)
            if start is None:
                outcome.valid = False
                return outcome
            self._overlaps(rule, program, machine_target, found, outcome)
            for match in found:
                self._fire(compiled, program, match, machine_target, (subject, *start), outcome)
            self._ends(rule, program, machine_target, (subject, *start))
            self._at_a_size(compiled, program, machine_target, subject)
            return outcome
        return outcome

    def _baseline(self, subject: Subject) -> Any:
        if subject.value not in self._baselines:
            self._baselines[subject.value] = baseline(subject.value, self.orders[:2], subject.seed)
        return self._baselines[subject.value]

    def _ways(
        self, rule: CompiledRule, program: Program, machine: Target, given: dict[str, Any], outcome: Outcome
    ) -> list[Match]:
        """Some of the ways to fire, every value of every parameter among them as far as they go."""
        evidence = Evidence()
        every = list(itertools.islice(rule.matches(program, range(len(program)), machine, {}, None, True), SEEN))
        pinned = {name: value for name, value in given.items() if name in rule.parameters}
        for known in ({}, pinned) if pinned else ({},):
            list(itertools.islice(rule.matches(program, range(len(program)), machine, known, evidence, False), SEEN))
        for refusal in evidence.refusals:
            outcome.refusals.update(g.reason for g in rule.rule.guards if f'"{g.reason}"' in refusal.text())
        if len(every) <= FIRINGS:
            return every
        step = len(every) / FIRINGS
        named = rule.matches(program, range(len(program)), machine, pinned, None, True) if pinned else ()
        return [*itertools.islice(named, 1), *(every[int(n * step)] for n in range(FIRINGS))]

    def _fire(
        self, rule: CompiledRule, program: Program, match: Match, machine: Target, known: Any, outcome: Outcome
    ) -> None:
        subject, inputs, wanted = known
        chosen = {name: match.env[name] for name in rule.parameters if name in match.env}
        texts = {f"{name}={show(value)}" for name, value in chosen.items()}
        where = f"at {match.where}" + (f" with {', '.join(sorted(texts))}" if texts else "") + f" for {machine.name}"
        before = self._changed_by_locals()
        canonical = "canonical" in rule.rule.attributes
        try:
            if canonical:
                made = rule.rewrite(program, match)
                self._formed(made)
            else:
                made = self.engine.rewrite(rule.rule, program, match, machine)[0]
        except ERRORS as error:
            raise Wrong(subject, f"{said(error)} ({where})", getattr(error, "notes", ())) from error
        if made == program:
            return
        if not self._same(subject, made, inputs, wanted, where, program):
            return
        outcome.firings += 1
        outcome.parameters |= texts
        outcome.locals.update(name for name, n in self._changed_by_locals().items() if n > before[name])

    def _changed_by_locals(self) -> dict[str, int]:
        """How many runs each local rule has changed so far."""
        return {rule.name: self.engine.rule(rule).changed for rule in self.rules.locals}

    def _scoped(self, program: Program) -> None:
        """Raises DplcError for a program in which a name is used outside of its scope."""
        for kernel in program:
            scoped(kernel)

    def _formed(self, program: Program) -> None:
        for kernel in program:
            problem = wellformed(kernel)
            if problem:
                raise DplcError(f"gives a program that is not well formed: {problem}")

    def _same(
        self, subject: Subject, made: Program, inputs: Any, wanted: Meaning, where: str, program: Program
    ) -> bool:
        """Raises Wrong if a program does not mean what its subject means; False if it is too large to run."""
        try:
            self._scoped(made)
            problem = compare(made, inputs, wanted, self.orders)
        except TooLarge:
            return False
        except ERRORS as error:
            problem = said(error)
        text = print_program(made, self.level)
        if problem is None and read_program(text)[1] != made:
            problem = "the result does not read back as it was printed"
        if problem is None:
            return True
        if program is not subject.value and compare(program, inputs, wanted, self.orders) is not None:
            return False  # a canonical rule broke it before: its own check says so
        raise Wrong(subject, f"{problem} ({where})", ("it becomes", *text.splitlines()))

    def _ends(self, rule: Rule, program: Program, machine: Target, known: Any) -> None:
        """A pass of the rule alone comes to an end, canonical rules too, and still means the same."""
        subject, inputs, wanted = known
        try:
            made = self.engine.normal(program, machine, self.level)
            if "canonical" not in rule.attributes:
                made = self.engine.fire(self.engine.step(rule.name), made, machine)
        except ERRORS as error:
            raise Wrong(subject, f"{said(error)} (as a pass)", getattr(error, "notes", ())) from error
        if "repeat" in rule.attributes or "canonical" in rule.attributes:
            self._same(subject, made, inputs, wanted, "after the whole pass", program)
        if "canonical" not in rule.attributes and self._beside(rule):
            try:
                self.engine.fire(self.engine.step(pass_name(rule.file)), program, machine)
            except ERRORS as error:
                told = (said(error), *getattr(error, "notes", ()))
                if any(f"`{rule.name}`" in line for line in told):
                    raise Wrong(subject, f"{told[0]} (beside the others of its pass)", told[1:]) from error

    def _at_a_size(self, rule: CompiledRule, program: Program, machine: Target, subject: Subject) -> None:
        """Raises Wrong where the rule fires on the program with a size, and another program comes out at a number."""

        def matches(sized: Program) -> Iterator[Match]:
            return rule.matches(sized, range(len(sized)), machine, {}, None, True)

        found = self._sized.problem(self._with_sizes(program, subject.seed), subject.seed, matches,
                                    machines_way(self.engine, rule, machine))  # fmt: skip
        if found is not None:
            problem, before, after = found
            texts = (print_program(made, self.level).splitlines() for made in (before, after))
            raise Wrong(
                subject, f"{problem} (with a size, for {machine.name})", ("of", *next(texts), "it makes", *next(texts))
            )

    def _with_sizes(self, program: Program, seed: int) -> tuple[Program, Size] | None:
        """The program with a size in the place of a number, and the size."""
        made = with_a_size(program, seed)
        return None if made is None or any(wellformed(kernel) is not None for kernel in made[0]) else made

    def _overlaps(self, rule: Rule, program: Program, machine: Target, found: list[Match], outcome: Outcome) -> None:
        """Other rules of the same pass that match at the same place."""
        sites = {(match.path, match.start) for match in found}
        for other in self._beside(rule):
            matches = self.engine.sites(other, program, machine)
            if any((m.path, m.start) in sites for m in itertools.islice(matches, 20)):
                outcome.overlaps[other.name] += 1

    def _beside(self, rule: Rule) -> tuple[Rule, ...]:
        if rule.name not in self._neighbours:
            same = (r for r in self.rules.rules.values() if r.file == rule.file and r.level in self.levels)
            kind = rule.attributes & {"canonical", "local"}
            self._neighbours[rule.name] = tuple(
                r for r in same if r.name != rule.name and r.attributes & {"canonical", "local"} == kind
            )
        return self._neighbours[rule.name]


@functools.lru_cache(maxsize=64)
def _asked_for(rule: Rule) -> tuple[str, ...]:
    """The devices that a rule is for, or that its clauses name as texts: on others it may not fire."""
    texts = {node.value for node in walk(rule.clauses) if isinstance(node, s.Text)}
    named = [name for name in devices() if texts & {load_device(name).name, load_device(name).arch}]
    return tuple(named if rule.device is None else [rule.device.text, *named])


class KernelChecker(StatementChecker):
    """Checks rules on kernel: their programs are the Tile programs of examples and their neighbours, materialised.

    tiles: the checker that knows the Tile programs.
    """

    level, levels, machines = "kernel", ("kernel",), MACHINES[:1]

    def __init__(self, rules: RuleSet, tiles: StatementChecker):
        super().__init__(rules)
        self.tiles, self.machine = tiles, target_named(MACHINES[0])
        self._tile_program: dict[Program, Program] = {}  # {Kernel IR: the Tile IR that it was made of}

    def read(self, text: str, origin: str) -> Subject:
        """The subject in a file."""
        return self.subject(read_program(text, origin)[1], origin)  # type: ignore[arg-type]

    @functools.cached_property
    def sources(self) -> list[Subject]:
        """The Tile programs of all examples."""
        return list(self.tiles.examples(self.rules.rules.values()))

    def examples(self, rules: Iterable[Rule]) -> Iterator[Subject]:
        """The Tile programs of all examples, materialised, where a rule could match."""
        chosen = [self.engine.rule(rule) for rule in rules if rule.level == "kernel"]
        for source in self.sources:
            made = self._lowered(source.value, source.origin)
            if made is not None and any(rule.possible(kernel) for rule in chosen for kernel in made.value):
                yield made

    def draw(self, rule: Rule, dice: Dice, own: list[Subject]) -> Subject | None:
        """A program of an example or its neighbour, materialised, with guards that it did not have."""
        if own and dice.often(85):
            made: Subject | None = dice.pick(own)
        else:
            base = dice.pick(self.sources)
            try:
                made = self._lowered(perturbed(base.value, dice), f"near {base.origin}, materialised")
            except (*ERRORS, TooLarge):
                return None
        if made is None or not dice.often(80):
            return made
        program = tuple(guarded_kernel(kernel, dice) for kernel in made.value)
        return made if program == made.value else self.subject(program, f"{made.origin}, guarded")

    def smaller(self, subject: Subject) -> Iterator[Subject]:
        """One kernel of several."""
        return (self.subject((kernel,), subject.origin) for kernel in subject.value if len(subject.value) > 1)

    def _lowered(self, program: Program, origin: str) -> Subject | None:
        try:
            if work(program) == 0:
                return None
            made = self._materialised(program)
            self._tile_program[made] = program
            return self.subject(made, origin)
        except (*ERRORS, TooLarge):
            return None

    def _materialised(self, program: Program) -> Program:
        return tuple(materialise(kernel, self.machine) for kernel in program)

    def _scoped(self, program: Program) -> None:
        for problem in (problem for kernel in program for problem in problems(kernel)):
            raise DplcError(problem)

    def _with_sizes(self, program: Program, seed: int) -> tuple[Program, Size] | None:
        """The program materialised again from Tile IR with a size."""
        tile = self._tile_program.get(program)
        found = None if tile is None else super()._with_sizes(tile, seed)
        return None if found is None else (self._materialised(found[0]), found[1])
