"""The trace of a compile: firings, refusals with the values of their guards, and rules that undo one another."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import itertools
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar

from ...ir import expr as e
from ...ir.compose import Folded
from ...ir.diagnostic import DplcError, Span
from ...ir.expr import Axis, Undecided
from ...ir.facts.dataflow import structure_of
from ...ir.node import Node, contains, immutable
from ...ir.program import Kernel
from ...ir.sizes import at_the_hints, has_sizes
from ...ir.tensor import (
    Case,
    Const,
    Elementwise,
    Fold,
    Index,
    Input,
    Mat,
    Reduce,
    Remap,
    TensorGraph,
    Term,
    operands,
    postorder,
)
from ...ir.text.print_statements import print_expr, print_statement, print_value
from ...ir.text.programs import print_program, print_unit
from ...ir.text.sizes import print_condition
from ..language.core import (
    DECREASES,
    Comprehension,
    Group,
    Guard,
    LetClause,
    NameOf,
    Number,
    Operation,
    Parameter,
    PassStatement,
    Prefix,
    Syntax,
    Text,
    bare,
    walk,
)
from ..language.definitions import line_of
from ..language.evaluate import MISTAKES, UNDECIDED, Environment, Expressions, Value
from ..language.rule import Rule
from ..language.typed_slots import names_in, shape_of
from .statements.pattern import RuleExpressions

RECENT = 64  # firings that are remembered
STEPS = 2  # of a loop that are shown
DEPTH = 4  # of a term that is shown
LINES = 4  # of a step on statements
COLUMNS = 100  # of such a line


@dataclass(slots=True)
class RewriteStep:
    """A rule made one program, or one term, of another; on torch a value of an op."""

    rule: Rule
    before: Any
    after: Any
    bound: Mapping[str, Value] = field(default_factory=dict)  # by the pattern, in a trace
    folded: tuple[Folded, ...] = ()  # of its template, in a trace
    operands: tuple[Any, ...] = ()  # of a torch op: the values of its tensors
    origin: str = ""  # of a torch op that a template made: the user's op
    cleaned: tuple[str, ...] = ()  # canonical rules on statements that ran after it


def endless(what: str, fired: Sequence[RewriteStep]) -> DplcError:
    """Return the error for firings that do not terminate. fired: the last of them, in order."""
    loop = around(fired)
    steps = [*{step.rule.name: step for step in reversed(loop)}.values()][::-1]  # the first of each rule
    *others, last = (f"`{step.rule.name}`" for step in steps)
    rule = steps[-1].rule
    if others:
        said, hint = (
            f"{', '.join(others)} and {last} undo one another",
            "a condition must fail on what another rule made",
        )
    else:
        said, hint = f"{last} fires on what it made", "add a condition that fails on what the rule made"
    if "repeat" in rule.attributes:
        hint += f", or `{DECREASES} N`: a number N that every firing makes smaller"
    return DplcError(f"{what}: {said}", rule, hint, shown_steps(steps[:STEPS]))


STRICT = "DPLC_STRICT"  # in the environment: a failure that a compile survives is an error, as our tests want it


def is_strict() -> bool:
    return os.environ.get(STRICT, "0") not in ("", "0")


def not_smaller(step: RewriteStep, kernel: str, last: Value, value: Value) -> DplcError:
    """Return the error for a firing of a rule that does not make smaller what it `decreases`."""
    place = next(c for c in step.rule.clauses if isinstance(c, LetClause) and c.name == DECREASES)
    what = f"rule `{step.rule.name}` does not decrease `{written(place.value)}` in kernel {kernel}"
    what += f": it was {show(last)} at one firing and is {show(value)} at the next"
    return DplcError(
        what,
        place.value,
        "add a condition that fails on what the rule made, or count something that every firing makes smaller",
        shown_steps([step]),
    )


def smaller(value: Value, last: Value) -> bool:
    """Return whether a measure decreases: numbers from 0, or lists of such, which compare element by element."""
    numbers = [n for one in (value, last) for n in (one if isinstance(one, tuple) else (one,))]
    return type(value) is type(last) and all(isinstance(n, int) and n >= 0 for n in numbers) and value < last


def shown_steps(steps: Iterable[RewriteStep]) -> list[str]:
    """Return the lines that say where some rules are, and what each of them changed."""
    return [line for step in steps for line in (f"`{step.rule.name}` at {step.rule.location} changes", *_shown(step))]


def around(fired: Sequence[RewriteStep]) -> Sequence[RewriteStep]:
    """Return the firings of one cycle: from the program that the last firing returned to.

    If no program recurs because each firing enlarges it, return one firing of each rule that fires repeatedly.
    """
    at = last = fired[-1].after
    begin = max((place for place, step in enumerate(fired) if step.before == last), default=None)
    if begin is None:
        recent = fired[-RECENT:]
        often = Counter(step.rule.name for step in recent)
        return [*{step.rule.name: step for step in recent if often[step.rule.name] > 1}.values()] or fired[-1:]
    linked = []  # the firings that lead from one to the next, if they reach the end
    for step in fired[begin:]:
        if step.before == at:
            linked.append(step)
            at = step.after
    return linked if at == last else fired[begin:]


def _shown(step: RewriteStep) -> list[str]:
    if not isinstance(step.before, tuple):
        before, after = term_text(step.before), term_text(step.after)
        if before == after:  # they differ below what is shown: their common operands are left out
            common = frozenset(operands(step.before))
            before, after = term_text(step.before, hidden=common), term_text(step.after, hidden=common)
        return [f"  {before}  =>  {after}"]
    before, after = ("\n".join(map(print_unit, units)) for units in (step.before, step.after))
    changed = [line for line in difference(before, after, 0) if not line.startswith("@@")]
    lines = [f"  {line if len(line) <= COLUMNS else f'{line[:COLUMNS]}..'}" for line in changed[:LINES]]
    return lines + ["  .."] * (len(changed) > LINES)


def difference(before: str, after: str, context: int) -> Iterator[str]:
    """Return the lines of a unified diff, without file headers."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=context)
    return itertools.islice(lines, 2, None)


def term_text(term: Term, depth: int = DEPTH, hidden: Collection[Term] = ()) -> str:
    """Return a term on one line. hidden: terms that are left out."""

    def inner(*terms: Term) -> str:
        return ", ".join(term_text(x, depth - 1, hidden) for x in terms)

    match term:
        case Input():
            return term.name
        case Const():
            return str(term.value).lower()
        case _ if depth == 0 or term in hidden:
            return ".."
        case Elementwise():
            return f"{term.fn}({inner(*term.args)})"
        case Fold():
            return f"Fold({term.part})({inner(*term.args)})"
        case Reduce():
            return f"Reduce({term.fn}, {', '.join(axis.name for axis in term.over)}, {inner(term.x)})"
        case Remap():
            return f"{inner(term.x)}[..]"
        case Case():
            return f"Case(.., {inner(term.a, term.b)})"
        case Mat():
            return f"mat({inner(term.x)})"
    return "Index(..)"


# The values of a failed guard: its text, the names in it, the facts that it compares, numbers of the policy.


CHANGES_NOTHING = "it changes nothing: what it gives is what stands there"
DIGITS = 4  # of a number that was computed
BOUND = 240  # characters of what a pattern bound
LENGTH = 60  # characters of a value; what is longer is left out
Called = Mapping[Term, str]  # what values are called in the program
NAMELESS: Called = MappingProxyType({})
_ALONE = (NameOf, Number, Text, Group, Comprehension)  # whose value its text or its names tell


def what_it_saw(guard: Guard, env: Environment, expressions: Expressions, called: Called = NAMELESS) -> str:
    """Return `[size(axes) <= most; most=4, size(axes)=7]`, and the condition that sizes leave open."""
    condition = guard.condition
    seen = {name: env[name] for name in sorted(names_in(condition)) if name in env}
    entries = {name: show(x) for name, x in seen.items() if isinstance(x, int | float | str | e.Var | None)}
    entries |= {name: called[value] for name, value in seen.items() if isinstance(value, Term) and value in called}
    entries |= _policy_in(condition)
    with at_the_hints() if guard.kind == "prefer" else contextlib.nullcontext():
        entries = entries | _compared(condition, env, expressions) | entries
    values = f"; {assigned(entries)}" if entries else ""
    open_ = f"; undecided: {print_condition(env[UNDECIDED])}" if UNDECIDED in env else ""
    return f"[{written(condition)}{values}{open_}]"


def held(rule: Rule, env: Environment, expressions: Expressions, called: Called = NAMELESS) -> tuple[str, ...]:
    """Return the guards of a rule that fired, with their values: `where size(axes) <= most; most=4, size(axes)=3`."""
    return tuple(f"{g.kind} {what_it_saw(g, env, expressions, called)[1:-1]}" for g in rule.guards)


def _compared(condition: Syntax, env: Environment, expressions: Expressions) -> dict[str, str]:
    """Return the sides of comparisons with their values; a side without a value is left out."""
    sides = dict[str, str]()
    for side in _sides(condition):
        if isinstance(side, _ALONE):
            continue
        try:
            value = expressions.compile(side)(dict(env))
            text = show(float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value)
        except (Undecided, DplcError, *MISTAKES):
            continue
        if len(text) <= LENGTH:
            sides[written(side)] = text
    return sides


def _sides(node: Syntax, among: bool = False) -> tuple[Syntax, ...]:
    """Return the operands of the comparisons in a condition, and the calls that `and` or `or` combines."""
    match bare(node):
        case Prefix(op="not", a=a):
            return _sides(a, among)
        case Operation(op="and" | "or", a=a, b=b):
            return _sides(a, True) + _sides(b, True)
        case Operation(op=op, a=a, b=b) if op in (*e.COMPARISONS, "in", "not in"):
            return a, b
        case other:
            return (other,) * among


def written(node: Syntax) -> str:
    """Return the text of a piece of a rule, on one line."""
    span = node.span
    lines = [span.source.line(number) for number in range(span.line, span.end_line + 1)]
    lines[-1] = lines[-1][: span.end_column]
    lines[0] = lines[0][span.column :]
    return " ".join(line.strip() for line in lines)


def _policy_in(node: Syntax) -> dict[str, str]:
    """Return the policy numbers of a condition: nodes that hold a value where the text has a name."""
    return {
        written(x): show(x.value if isinstance(x, Number) else tuple(getattr(part, "value", part) for part in x.items))
        for x in walk(node)
        if isinstance(x, Number | Group) and written(x).isidentifier()
    }


def first_line(node: Node) -> str:
    """Return a statement or a kernel as one line."""
    text = print_unit(node) if isinstance(node, Kernel) else print_statement(node)
    return text.split("\n")[0].strip()


def bound(env: Mapping[str, Value], parameters: Collection[str]) -> dict[str, str]:
    """Return the values that a pattern and its `let`s bound, as texts: `KO=64`, `body=(a = load x[i], ..)`.

    Parameters are left out, because the trace shows them separately.
    """
    hidden = *parameters, "target"
    texts = {name: show(value) for name, value in env.items() if name.isidentifier() and name not in hidden}
    return {
        name: text if len(text) <= BOUND else f"{text[: BOUND - 2]}.."
        for name, text in texts.items()
        if "?" not in text  # indices of a torch rule have no names
    }


def folds(folded: Iterable[Folded]) -> list[str]:
    """Return the simplifications of canonical forms: `multiply(2, 3) to 6`, each once."""
    lines = (f"{one.fn}({', '.join(map(_term, one.args))}) to {_term(one.result)}" for one in folded)
    return list(dict.fromkeys(lines))


def _term(value: object) -> str:
    if isinstance(value, Index):
        return f"Index({print_expr(value.expr)})" if not contains(value.expr, Term) else "Index(..)"
    return term_text(value) if isinstance(value, Term) else show(value)


def show(value: object) -> str:
    """Return a value of a rule as text: numbers, names, lists, statements."""
    if isinstance(value, tuple):
        return "(" + ", ".join(map(show, value)) + ")"
    if isinstance(value, Node) and ("body" in type(value).by_name or hasattr(value, "dst")):
        return first_line(value)
    if isinstance(value, Node | int | float | str | None):
        return print_value(value)
    return str(getattr(value, "name", None) or getattr(value, "buf", None) or type(value).__name__)


def assigned(values: Mapping[str, object]) -> str:
    """Return values with their names as text: `N=2, K=none`."""
    return ", ".join(f"{name}={show(value)}" for name, value in values.items())


# The trace: every firing, and every refusal with its reason. One record type for all levels.
#
# `-v` prints a line for each firing; `-vv` a diff between `>>> t:007_stage_inputs` and `<<< t:007_stage_inputs`, and
# `--- t:003_split_matmul_k skipped at NAME: reason` for a refusal. The letter is the level: d torch to tensor,
# a algebra, f fusion, l loop, t tile, k kernel.


PREFIXES = {
    "torch": "d", "tensor": "a", "fusion": "f", "loop": "l", "module": "t", "tile": "t", "kernel": "k",
}  # fmt: skip


ALTERNATIVES = 6  # alternatives of a line


@immutable
class WeighedChoice:
    """One `choose`.

    name: of the parameter or `let`; cost: its text; set: the value that the user set instead; alternatives: each value
    with its cost, the winner first. `--json` has the same fields.
    """

    name: str
    cost: str
    maximising: bool
    set: str | None
    alternatives: tuple[dict[str, str], ...]

    def line(self) -> str:
        """Return the line of the trace: `N = 4 costs 12, 2 costs 14 (minimising stall(n))`."""
        says = "is worth" if self.maximising else "costs"
        listed = [f"{one['value']} {says} {one['cost']}" for one in self.alternatives[:ALTERNATIVES]]
        if len(self.alternatives) > ALTERNATIVES:
            listed.append(f"{len(self.alternatives) - ALTERNATIVES} more")
        weighed = ", ".join(listed) or "nothing to choose from"
        instead = f"; set to {self.set}" if self.set is not None else ""
        return f"{self.name} = {weighed} ({'maximising' if self.maximising else 'minimising'} {self.cost}){instead}"


@immutable
class Refusal:
    """A rule that did not fire, and why.

    Args:
        text: makes the reason, given the names of values.
        depth: how many clauses were passed; -1 where the pattern itself does not match.
        outside: a value that the user set is not in the domain of its parameter here.
        because: the reason of the guard that did not hold.
        term: the value that a rule on tensor matched.
    """

    rule: Rule
    span: Span
    text: Callable[[Called], str]
    depth: int = 0
    outside: bool = False
    because: str = ""
    term: Any = None

    @property
    def location(self) -> str:
        return line_of(self.span)

    def render(self, called: Called = NAMELESS) -> str:
        """Return the text `file:line: rule: reason`."""
        return f"{self.location}: {self.rule.name}: {self.text(called)}"

    def __str__(self) -> str:
        return self.render()


def failed_guard(rule: Rule, guard: Guard, env: Environment, depth: int = 0, term: Term | None = None) -> Refusal:
    """Return the refusal of a guard that did not hold in an environment."""
    seen = dict(env)  # the values of now: later clauses bind more

    def text(called: Called) -> str:
        preferred = "not preferred: " if guard.kind == "prefer" else ""
        saw = what_it_saw(guard, seen, RuleExpressions(rule.level), called)
        return f'{preferred}matched, but "{guard.reason}" {saw}'

    return Refusal(rule, guard.span, text, depth, because=guard.reason, term=term)


@immutable
class _Event:
    """Something in a trace. prefix: the letter of the level; label: of the pass; recorded: further texts."""

    prefix: str
    label: str
    event: ClassVar[str]
    recorded: ClassVar[tuple[str, ...]] = ()

    @property
    def marker(self) -> str:
        return f"{self.prefix}:{self.label}"

    def record(self) -> dict[str, Any]:
        """Return the record for `--json`."""
        said = {name: str(getattr(self, name)) for name in self.recorded}
        return {"event": self.event, "level": self.prefix, "pass": self.label} | said


@immutable
class Firing(_Event):
    """Rule that fired.

    before, after: what it changed (anything that prints); cleaned: canonical rules after it; weighed: the alternatives
    of each `choose` of the rule; bound: the values of its pattern's names and `let`s; folded: the expressions of its
    template that canonical forms of values simplified; held: its guards, with the values that they saw.
    """

    event = "fired"
    rule: str
    location: str
    unit: str
    where: str
    parameters: Environment
    before: tuple[Any, ...]
    after: tuple[Any, ...]
    cleaned: tuple[str, ...] = ()
    weighed: tuple[WeighedChoice, ...] = ()
    bound: Mapping[str, Value] = field(default_factory=dict, compare=False)
    folded: tuple[Folded, ...] = field(default=(), compare=False)
    held: Callable[[], tuple[str, ...]] = field(default=tuple, compare=False)

    def line(self) -> str:
        """Return the line `t:007_stage_inputs stage_inputs at mm 0/0/1 (N=2) rules/tile/memory/stage_inputs.rw:3`."""
        shown = f" ({assigned(self.parameters)})" if self.parameters else ""
        return f"{self.marker} {self.rule} at {self.unit} {self.where}{shown} {self.location}"

    def diff(self) -> Iterator[str]:
        """Yield the lines of a unified diff, without file headers."""
        return difference(_text(self.before), _text(self.after), 2)

    def record(self) -> dict[str, Any]:
        """Return the record for `--json`."""

        return super().record() | {
            "rule": self.rule, "location": self.location, "unit": self.unit, "site": self.where,
            "canonical": list(self.cleaned),
            "parameters": {name: show(value) for name, value in self.parameters.items()},
            "bound": bound(self.bound, self.parameters),
            "weighed": [*map(vars, self.weighed)],
            "folded": folds(self.folded),
            "diff": "\n".join(self.diff()),
        }  # fmt: skip


@immutable
class Skip(_Event):
    """A pass that found nothing to do in a unit, and why."""

    event, recorded = "skipped", ("rule", "unit", "reason")
    rule: str
    unit: str
    reason: Refusal | str

    def line(self) -> str:
        return f"--- {self.marker} skipped at {self.unit}: {self.reason}"


@immutable
class Remark(_Event):
    """Decision that was not made by a rule: a schedule out of the store."""

    event, recorded = "remark", ("unit", "text")
    unit: str
    text: str
    rule = where = ""

    def line(self) -> str:
        return f"{self.marker}{self.where} {self.unit}: {self.text}"


@immutable
class LeftOpen(Remark):
    """A condition of a rule that sizes leave undecided, so that the rule did not fire; with numbers it might have."""

    event = "left open"
    where = " left open by a size at"


Event = Firing | Skip | Remark


EACH = "each"  # of `--why-not`: all rules
SHOWN = 100  # lines of a trace that is printed


@dataclass(repr=False)
class Trace:
    """Events in the order they happened. No trace at all (None) is what costs nothing.

    Printed, it is a line for each of the first SHOWN firings; `render` gives all of it.
    """

    prefix: str = "t"
    events: list[Event] = field(default_factory=list)
    asked: frozenset[str] = frozenset()  # rules whose refusals are reported, whatever else happened in their pass

    def at(self, stage: str) -> Trace:
        """Label all following events with this stage (torch, tensor, fusion, loop, tile, kernel)."""
        self.prefix = PREFIXES.get(stage, stage)
        return self

    def add(self, event: Event) -> None:
        self.events.append(event)

    @property
    def firings(self) -> tuple[Firing, ...]:
        return tuple(event for event in self.events if isinstance(event, Firing))

    @property
    def skips(self) -> tuple[Skip, ...]:
        return tuple(event for event in self.events if isinstance(event, Skip))

    @property
    def left_open(self) -> tuple[LeftOpen, ...]:
        """The conditions that sizes left undecided."""
        return tuple(event for event in self.events if isinstance(event, LeftOpen))

    def __repr__(self) -> str:
        open_ = f", {len(self.left_open)} left open by sizes" if self.left_open else ""
        return f"<dplc.Trace: {len(self.firings)} firings, {len(self.skips)} refusals{open_}>"

    def __str__(self) -> str:
        lines = [event.line() for event in self.events if not isinstance(event, Skip)]
        if len(lines) > SHOWN:
            lines[SHOWN:] = [f".. and {len(lines) - SHOWN} more: .render(1) is all of it"]
        all_ = "what every rule changed: .render(2); and why others did not match: .render(2, ['each'])"
        return "\n".join((*lines, all_))

    def render(self, verbosity: int = 2, why_not: Collection[str] | None = None) -> str:
        """Return the text of `-v` (1) or `-vv` (2), ending in a newline if there is any.

        Args:
            why_not: the rules whose refusals are printed with their reasons, `each` for all; `-vv` counts the others.
                None: the rules that the trace was created for.
        """
        why_not = self.asked if why_not is None else why_not
        printed = [e for e in self.events if not isinstance(e, Skip) or not {EACH, e.rule, e.label}.isdisjoint(why_not)]
        if verbosity < 2:
            last = sorted(printed, key=lambda event: isinstance(event, Skip))
            lines = [event.line() for event in last if verbosity or isinstance(event, Skip)]
        else:
            lines = list(lines_of(printed))
            if hidden := len(self.events) - len(printed):
                lines.append(f"{hidden} rules did not match: --why-not each says why, --why-not RULE for one of them")
        return "".join(f"{line}\n" for line in lines)


def lines_of(events: Iterable[Event], diffs: bool = True) -> Iterator[str]:
    """Yield the lines of `-vv`; without diffs a firing has the guards that held instead."""
    for event in events:
        if not isinstance(event, Firing):
            yield event.line()
        else:  # the canonical rules that fired after it, the alternatives, the simplifications
            head = event.line() + (f"; then {', '.join(event.cleaned)}" if event.cleaned else "")
            beside = [f"choose {choice.line()}" for choice in event.weighed]
            beside += [f"folded {line}" for line in folds(event.folded)]
            if diffs:
                comments = (f"# {line}" for line in (head, *beside))
                yield from (f">>> {event.marker}", *comments, *event.diff(), f"<<< {event.marker}")
            else:
                yield from (head, *(f"    {line}" for line in (*beside, *event.held())))


def _text(units: tuple[object, ...]) -> str:
    return "\n".join(print_program(unit) if isinstance(unit, Node) else str(unit) for unit in units)


# The structural key of a program of values: equal for programs that differ in names only.


def program_key(graph: TensorGraph, known: Collection[str]) -> str:
    """Return a hash of a program: its terms in order, sizes and dtypes, and the inputs known at load time."""
    places: dict[Term, int] = {}
    axes: dict[Axis, int] = {}

    def stand_in(value: Any) -> object:
        if value.__class__ is Axis:
            return "axis", axes.setdefault(value, len(axes)), str(value.extent)
        return ("term", places[value]) if value in places else None

    written: list[object] = []
    for term in (*graph.ins, *postorder(graph.roots)):
        if term not in places:
            own = (term.name in known, term.dtype, term.axes) if isinstance(term, Input) else term
            written.append(structure_of(own, stand_in))
            places[term] = len(places)
    written += [structure_of((out.value, out.axes), stand_in) for out in graph.outs]
    return hashlib.sha256(repr(written).encode()).hexdigest()[:16]


# Why a rule did not fire: the matcher's own evidence. The deepest wins.
#
# A failed guard or a parameter outside of its domain says that the pattern matched; else the nearest miss of the
# pattern; else there is nothing like its first statement. Texts are made only when they are printed.


class Evidence:
    """Evidence of one attempt at a rule: its refusals, and the furthest point that the pattern reached."""

    def __init__(self, rule: Rule):
        self.rule = rule
        self.refusals: list[Refusal] = []
        self.nearest: tuple[int, bool, Syntax | None, Node | None] = 0, False, None, None
        self.left_open: dict[str, None] = {}  # `rule: condition`, of sizes

    # ---- the matcher reports
    def near(self, matched: int, expected: Syntax, found: Node | None) -> None:
        """Note that after `matched` statements the pattern expects `expected` instead of `found` (None: block end)."""
        if (matched, True) > self.nearest[:2]:  # else it is no nearer, however alike
            alike = type(found) is getattr(shape_of(expected), "cls", None)
            if (matched, alike) > self.nearest[:2]:
                self.nearest = matched, alike, expected, found

    def guard(self, guard: Guard, depth: int, env: Environment) -> None:
        self.note_open(env.get(UNDECIDED))
        self.refusals.append(failed_guard(self.rule, guard, env, depth))

    def domain(self, place: Parameter, depth: int, which: str, value: Value, domain: tuple[Value, ...]) -> None:
        def text(called: Called) -> str:
            off = " (no value of it would pay here)" if which else ""
            shown = ", ".join((*map(show, domain[:12]), *["..."] * (len(domain) > 12)))
            return f"matched, but {which}{place.name}={show(value)} is not in its domain {{{shown}}}{off}"

        self.refusals.append(Refusal(self.rule, place.span, text, depth, not which))

    def refuse(self, depth: int, span: Span, text: str) -> None:
        self.refusals.append(Refusal(self.rule, span, lambda _: f"matched, but {text}", depth))

    def undecided(self, span: Span, name: str, condition: Value, depth: int = 0) -> None:
        """Note a let, a domain or a default without a value, because sizes leave it open."""
        self.note_open(condition)
        self.refuse(depth, span, f"`{name}` is undecided: {print_condition(condition)}")

    def note_open(self, condition: Value) -> None:
        """Note a refusal that concrete numbers might avoid."""
        if condition.__class__ is str or has_sizes(condition):
            self.left_open.setdefault(f"{self.rule.name}: {print_condition(condition)}")

    # ---- what people read
    def all(self) -> tuple[Refusal, ...]:
        """Return every refusal; the nearest miss if the pattern never matched."""
        return tuple(self.refusals) or (self._miss(),)

    def best(self) -> Refusal:
        return max(self.all(), key=lambda refusal: refusal.depth)

    def _miss(self) -> Refusal:
        rule = self.rule
        matched, _, expected, found = self.nearest
        if expected is None:
            head = f"nothing here is like its first statement `{written_head(rule.match[0])}`"
            return Refusal(rule, rule.span, lambda _: head, -2)

        def text(called: Called) -> str:
            end = "the end of the block"
            place = end if found is None else f"`{first_line(found)}`"
            wanted = end if isinstance(expected, PassStatement) else f"`{written_head(expected)}`"
            near = f"nearest miss after {matched} statement{'' if matched == 1 else 's'}"
            return f"the pattern matches nowhere; {near}: expected {wanted}, found {place}"

        return Refusal(rule, expected.span, text, -1)


def written_head(node: Syntax) -> str:
    """Return the first line of a statement of a rule, as written."""
    return node.span.source.line(node.span.line).split("#")[0].strip()
