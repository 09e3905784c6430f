"""Rules on kernel: what Kernel IR computes, before and after, with every access checked.

A kernel rule sees what materialisation leaves, so its subjects are made the same way: the Tile programs of the rules'
examples and their neighbours, materialised, and brought where the rule stands by firing it wherever it matches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ...codegen.materialise import materialise
from ...codegen.target import target as target_named
from ...ir.diagnostic import DplcError
from ...ir.expr import Undecided
from ...ir.interp import kernel as meaning
from ...ir.interp.scalar import ScheduleError
from ...ir.sizes import numbers
from ...ir.substitute import with_sizes
from ...ir.text.programs import print_program, read_program
from ...ir.verify.kernel import problems
from ..language.rule import Rule, RuleSet
from ..rewrite.statements.compiled import CompiledRule, Match
from ..rewrite.why_not import Evidence
from .kernel_subjects import changes_for, guarded
from .meaning import Meaning, difference, inputs_of, work
from .neighbours import perturbed
from .outcome import Dice, Outcome, Subject, Wrong
from .sized import NAME, with_a_size
from .statements import CountingEngine, Program, StatementChecker
from .whole_programs import TooLarge

MACHINE = "h200"
FIRINGS = 8  # compared per subject
SEEDS = (0, 1)  # which copies land late
TRIES = 4  # programs that are looked at for a place for a change
UNRUNNABLE = (DplcError, TooLarge, ValueError, TypeError, LookupError, ArithmeticError, AttributeError)


class KernelChecker:
    """Checks kernel rules. tiles: where Tile programs come from."""

    def __init__(self, rules: RuleSet, tiles: StatementChecker):
        self.rules, self.tiles, self.machine = rules, tiles, target_named(MACHINE)
        self.engine = CountingEngine(rules)
        self._sources: list[Subject] | None = None
        self._baselines: dict[Program, Any] = {}
        self._tiles: dict[Program, Program] = {}  # {what was materialised: of what}

    # ---- subjects
    def subject(self, program: Program, origin: str) -> Subject:
        """Kernel IR as a subject."""
        return Subject("kernel", print_program(program, "kernel"), program, origin)

    def read(self, text: str, origin: str) -> Subject:
        """The subject in a file."""
        return self.subject(read_program(text, origin)[1], origin)  # type: ignore[arg-type]

    def sources(self) -> list[Subject]:
        """The Tile programs of all examples."""
        if self._sources is None:
            self._sources = list(self.tiles.examples(self.rules.rules.values()))
        return self._sources

    def examples(self, rules: Iterable[Rule]) -> Iterator[Subject]:
        """What the Tile programs of the examples become, where a rule could match."""
        chosen = [self.engine.rule(rule) for rule in rules if rule.level == "kernel"]
        for source in self.sources():
            made = self._lowered(source.value, source.origin)
            if made is not None and any(rule.possible(kernel) for rule in chosen for kernel in made.value):
                yield made

    def _lowered(self, program: Program, origin: str) -> Subject | None:
        try:
            if work(program) == 0:
                return None
            made = self._materialised(program)
            self._tiles[made] = program
            return self.subject(made, origin)
        except UNRUNNABLE:
            return None

    def _materialised(self, program: Program) -> Program:
        return tuple(materialise(kernel, self.machine) for kernel in program)

    def draw(self, rule: Rule, dice: Dice, own: list[Subject]) -> Subject | None:
        """A program of an example or its neighbour, materialised, with guards that it did not have."""
        if own and dice.often(85):
            made: Subject | None = dice.pick(own)
        else:
            base = dice.pick(self.sources())
            try:
                made = self._lowered(perturbed(base.value, dice), f"near {base.origin}, materialised")
            except UNRUNNABLE:
                return None
        if made is None or not dice.often(80):
            return made
        change = dice.pick(changes_for(rule))
        for _ in range(TRIES):
            try:
                program = tuple(change(kernel, dice) for kernel in made.value)
                if change is guarded or dice.often(30):
                    program = tuple(guarded(kernel, dice) for kernel in program)
            except UNRUNNABLE:
                program = made.value
            if program != made.value:
                return self.subject(program, f"{made.origin}, {change.__name__}")
            made = dice.pick(own) if own else made  # the change has no place there
        return made

    def smaller(self, subject: Subject) -> Iterator[Subject]:
        """One kernel of several."""
        for kernel in subject.value if len(subject.value) > 1 else ():
            yield self.subject((kernel,), subject.origin)

    # ---- checking
    def check(self, rule: Rule, subject: Subject) -> Outcome:
        """Fire where the rule matches, again and again, and compare. Raises Wrong."""
        outcome = Outcome()
        compiled, program = self.engine.rule(rule), subject.value
        for _ in range(FIRINGS):
            evidence = Evidence()
            match = next(iter(compiled.matches(program, range(len(program)), self.machine, {}, evidence, True)), None)
            for refusal in evidence.refusals:
                outcome.refusals.update(g.reason for g in rule.guards if f'"{g.reason}"' in refusal.text())
            if match is None:
                return outcome
            known = self._baseline(subject)
            if known is None:
                outcome.valid = False
                return outcome
            program = self._fired(compiled, program, match, subject, known)
            outcome.firings += 1
            if outcome.firings == 1:
                self._at_a_size(compiled, subject)
        return outcome

    def _at_a_size(self, rule: CompiledRule, subject: Subject) -> None:
        """The same of a kernel that is launched at many lengths. Raises Wrong."""
        tile = self._tiles.get(subject.value)
        found = None if tile is None else with_a_size(tile, subject.seed)
        if found is None:
            return
        try:
            before = self._materialised(found[0])
            match = next(iter(rule.matches(before, range(len(before)), self.machine, {}, None, True)), None)
            made: Program = before if match is None else rule.rewrite(before, match)
        except (*UNRUNNABLE, Undecided):
            return
        size = found[1]
        others = [n for n in numbers(size) if n != size.hint]  # there it is the subject
        for number in others if made != before else ():
            one, other = (with_sizes(program, {NAME: number}) for program in (before, made))
            problem = self._sized_difference(one, other, subject)
            if problem:
                where = f"where `{NAME}` is {number} of {size.low}..{size.high}"
                texts = (print_program(program, "kernel").splitlines() for program in (before, made))
                raise Wrong(subject, f"{problem} {where}", ("of", *next(texts), "it makes", *next(texts)))

    def _sized_difference(self, before: Program, made: Program, subject: Subject) -> str | None:
        """What differs at a number; None also where the program means nothing there."""
        try:
            inputs = inputs_of(before, subject.seed)
            wanted = self._run(before, inputs, SEEDS[0])
        except UNRUNNABLE:
            return None
        try:
            return difference(wanted, self._run(made, inputs, SEEDS[0]))
        except ScheduleError as error:
            return "; ".join((error.what, *error.notes))

    def _baseline(self, subject: Subject) -> Any:
        """Inputs and what they become under each seed; None for a subject without a meaning."""
        if subject.value not in self._baselines:
            inputs = inputs_of(subject.value, subject.seed)
            try:
                found = tuple(self._run(subject.value, inputs, seed) for seed in SEEDS)
            except UNRUNNABLE:
                found = ()
            self._baselines[subject.value] = (inputs, found) if found else None
        return self._baselines[subject.value]

    def _run(self, program: Program, inputs: Any, seed: int) -> Meaning:
        memory = meaning.run(program, inputs, seed)
        outs = {param.name: memory[param.name] for kernel in program for param in kernel.outs}
        return Meaning(outs, {name: (values == values).astype(int) for name, values in outs.items()})

    def _fired(self, rule: Any, program: Program, match: Match, subject: Subject, known: Any) -> Program:
        where = f"at {match.where} for {self.machine.name}"
        made: Program = rule.rewrite(program, match)
        found = [problem for kernel in made for problem in problems(kernel)]
        text = print_program(made, "kernel")
        shown = ("it becomes", *text.splitlines())
        if made == program:
            raise Wrong(subject, f"it fires and changes nothing ({where})", shown)
        if not found and read_program(text)[1] != made:
            found = ["the result does not read back as it was printed"]
        for seed, wanted in zip(SEEDS, known[1], strict=True):
            if not found:
                try:
                    problem = difference(wanted, self._run(made, known[0], seed))
                except ScheduleError as error:
                    problem = "; ".join((error.what, *error.notes))
                found = [problem] if problem else []
        if found:
            raise Wrong(subject, f"{found[0]} ({where})", shown)
        return made
