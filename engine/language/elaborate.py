"""Elaboration: dplc rewrites the conveniences of a rule into the core language once, when it reads the file.

These are `split`, `let` in a template, `guards` and `form`s. No later reader of a rule (matchers,
proofs, static checks, mutants) meets them, so all see one meaning. New nodes have the span of the user's text, so every
message points there. `rules show` prints the original text.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from ...ir.diagnostic import DplcError, Span, did_you_mean
from ...ir.loop import LOOP_ROLES
from ...ir.text.equations import (
    GuardGroup,
    LetStatement,
    PartLoop,
    SplitClause,
    SplitPart,
    StatementForm,
    UseForm,
    UseGuards,
)
from ...ir.text.read_statements import ROLES
from ...ir.text.syntax import (
    Apply,
    Arm,
    AxisItem,
    CaptureStatement,
    Comprehension,
    Cover,
    EachBlock,
    FactOf,
    ForLoop,
    Group,
    Guard,
    IfBlock,
    InsideBlock,
    Keyword,
    LetClause,
    Match,
    Member,
    NameOf,
    Nodes,
    Number,
    Operation,
    Parameter,
    PickClause,
    Prefix,
    Rewrite,
    Rule,
    Run,
    RunStatement,
    Statement,
    Subscript,
    Substitution,
    Syntax,
    Text,
    children,
    rebuilt,
    walk,
    words_in,
)
from ...ir.tile import AXIS_ROLES
from .sorts import KINDS_OF_WORDS, word_taken
from .spelling import expression
from .typed_slots import binders, calls, every, names, names_in, reads, substituted

# Names that a rule gives. None may be a word of the language: some readers of the rule would take such a name for a
# function, dtype or role, others for a variable.


T = TypeVar("T")
Block = Callable[[Nodes], Iterable[Syntax]]


def block_changed(node: Syntax, change: Block) -> Syntax:
    """Return a statement with the block in it, if it has one, changed."""
    body: Any = getattr(node, "body", None)
    return replace(node, body=tuple(change(body))) if body else node  # type: ignore[call-arg]


Declared = GuardGroup | StatementForm  # what the rules of a file share


def refuse_words(declared: Syntax) -> None:
    """Raise DplcError at the first name of a declaration that is a word of the language.

    Examples are programs with names of their own.
    """
    giving = declared if isinstance(declared, FactOf | Declared) else ()
    for node in walk((declared.parameters, declared.clauses) if isinstance(declared, Rule) else giving):
        for name, span in _given(node):
            if name in KINDS_OF_WORDS:
                taken = word_taken(name, span)
                raise taken.of(f"rule `{declared.name}`") if isinstance(declared, Rule) else taken


def _given(node: Syntax) -> Iterator[tuple[str, Span]]:
    """Yield the names that one node defines, each with its span."""
    match node:
        case (
            Parameter() | LetClause() | PickClause() | CaptureStatement() | InsideBlock()
            | LetStatement() | SplitPart()
        ):  # fmt: skip
            yield node.name, node.span
        case Comprehension(variable=str(name)) | Arm(variable=str(name)) | EachBlock(variable=name):
            yield name, _word(name, node.span, r"(?:(?<=\bfor )|(?<=\bchoose )|(?<=\beach ))")
        case GuardGroup() | StatementForm():
            yield from ((item.text, item.span) for item in node.parameters if isinstance(item, NameOf))


def _word(name: str, span: Span, behind: str = r"\b") -> Span:
    """Return the span of a word in a piece of text; the whole piece if it does not contain the word."""
    for line in range(span.line, span.end_line + 1):
        text = span.source.line(line)
        match = re.compile(rf"{behind}{re.escape(name)}\b").search(text, span.column if line == span.line else 0)
        if match:
            return Span(span.source, line, match.start(), line, match.end())
    return span


def located(value: T, place: Callable[[Span], Span]) -> T:
    """Return syntax with the span of each part changed."""

    def moved(value: Any) -> Any:
        if value.__class__ is tuple:
            return tuple([moved(item) for item in value])
        if not isinstance(value, Syntax):
            return value
        return value.__class__(place(value.span), *[moved(part) for part in children(value)])

    found: T = moved(value)
    return found


# Declarations with parameters that rules of one file share.
#
# `form NAME(parameters):` once in a file, `form NAME(arguments)` in the patterns and templates of its rules.
# `guards NAME(parameters):` once in a file, `guards NAME(arguments)` in its rules: conditions and their reasons.
# A name that is not a parameter belongs to the rule: the rule reads it as if it contained the statements or clauses.


_WORDS: dict[type, str] = {
    StatementForm: "form", UseForm: "form", GuardGroup: "guards", UseGuards: "guards",
}  # fmt: skip


_READ = {NameOf, Member, Keyword, Guard, Text}  # their texts are values, or names of fields


class Shared:
    """The forms and the groups of guards of one file. A form may hold those above it. unused: by no rule so far."""

    def __init__(self, declared: Iterable[Declared]):
        self.known: dict[tuple[str, str], Declared] = {}
        self.unused: dict[tuple[str, str], Syntax] = {}
        for one in declared:
            key = word, _ = _WORDS[type(one)], one.name
            if key in self.known:
                first = f"first in line {self.known[key].span.line}"
                raise DplcError(f"`{word} {one.name}` is declared twice", one, "choose another name", (first,))
            said = [item.text for item in one.parameters if isinstance(item, NameOf)]
            for item in one.parameters:
                if not isinstance(item, NameOf) or said.count(item.text) > 1:
                    raise DplcError(
                        f"the parameters of `{word}` are names, each once",
                        item,
                        "choose a name that no other parameter has",
                    )
            one = replace(one, body=self.written_out(one.body))
            self.known[key] = self.unused[key] = one
            _check_shared(one)

    def written_out(self, nodes: Nodes) -> Nodes:
        """Return clauses or statements with what a form or a group says in the place of its name."""
        statements: list[Syntax] = []
        for node in nodes:
            if isinstance(node, UseForm | UseGuards):
                statements += self._asked(_WORDS[type(node)], node.call)
            else:
                statements.append(block_changed(node, self.written_out))
        return tuple(statements)

    def _asked(self, word: str, call: Apply) -> Nodes:
        """Return the body of the declaration that a call names, with its arguments."""
        declared = self.known.get((word, call.fn))
        if declared is None:
            raise DplcError(
                f"this file declares no `{word} {call.fn}`",
                call,
                did_you_mean(call.fn, [name for of, name in self.known if of == word]),
            )
        wanted = [*reads(declared.parameters)]
        if len(call.items) != len(wanted):
            counted = f"{len(wanted)} argument{'s' * (len(wanted) > 1)}, {', '.join(wanted)}"
            raise DplcError(
                f"`{word} {declared.name}` takes {counted if wanted else 'no arguments'}; here are {len(call.items)}",
                call,
                "give each parameter a value",
            )
        given = dict(zip(wanted, call.items, strict=True))
        texts = {part for node in walk(declared.body) if type(node) not in _READ for part in children(node)}
        for name, item in given.items():
            if name in texts and not isinstance(item, NameOf):
                what = f"`{word} {declared.name}` says `{name}` where only a name can be"
                raise DplcError(what, item, f"name it first, as `let {name} = {expression(item)}`")
        self.unused.pop((word, call.fn), None)
        return substituted(declared.body, given)


def _check_shared(declared: Declared) -> None:
    """Raise DplcError for a parameter that nothing reads."""
    if isinstance(declared, StatementForm):
        read = {part for node in walk(declared.body) for part in children(node) if isinstance(part, str)}
        unread = f"no statement of `form {declared.name}` says"
    else:
        read = {*reads(declared.body)}
        unread = f"no guard of `{declared.name}` reads"
    for item in names(declared.parameters):
        if item.text not in read:
            raise DplcError(f"{unread} `{item.text}`", item, "use it, or take it out")


# `let row = ri*TM + i` in a template: the value is substituted in the statements that follow it in its block.


MOST = 1 << 11  # uses of names in a `let` with those it reads written out; our own rules have 40


def refuse_doubling(rule: Rule) -> None:
    """Raise DplcError for a `let` that, with those above it written out, uses names MOST times or more.

    Each may read the preceding one twice: after forty, no memory holds the value.
    """
    uses: dict[str, int] = {}
    for let in every(rule.clauses, LetClause | LetStatement):
        uses[let.name] = sum(uses.get(name.text, 1) for name in every(let.value, NameOf))
        if uses[let.name] >= MOST:
            raise DplcError(
                f"rule `{rule.name}`: `{let.name}`, written out, is too long: every `let` before it doubles it",
                let,
                "read a `let` once, or take fewer of them",
            )


def without_lets(rule: Rule, body: Nodes) -> Nodes:
    """Return the template of a rule with its `let`s written out."""
    taken: dict[str, Span] = {}
    for name in names(tuple(clause for clause in rule.clauses if isinstance(clause, Match))):
        taken.setdefault(name.text, name.span)
    taken |= {binder.name: binder.span for binder in binders(rule.parameters, rule.clauses)}

    def block(bound: dict[str, Span], statements: Nodes) -> Iterator[Syntax]:
        taken = dict(bound)
        while statements:
            node, statements = statements[0], statements[1:]
            if not isinstance(node, LetStatement):
                yield block_changed(node, partial(block, taken))
                continue
            if node.name in taken:
                raise DplcError(
                    f"`{node.name}` is bound twice",
                    node,
                    "choose another name",
                    (f"first in line {taken[node.name].line}",),
                )
            taken[node.name] = node.span
            behind = substituted(statements, {node.name: node.value}, words=False)
            if behind is statements:
                raise DplcError(
                    f"`let {node.name}` is never used", node, "it holds for the statements behind it in its block"
                )
            statements = behind

    return tuple(block(taken, body))


SUGAR = (SplitClause, LetStatement, PartLoop, UseGuards, UseForm)
LEVELS = ("module", "loop", "tile")


def elaborated(declarations: Nodes) -> Nodes:
    """Return the declarations of a file with their rules written out. Raises DplcError at the first mistake."""
    for one in declarations:
        refuse_words(one)
        if isinstance(one, Rule):
            refuse_doubling(one)
    shared = Shared(one for one in declarations if isinstance(one, Declared))
    kept = (one for one in declarations if not isinstance(one, Declared))
    written = tuple(_written_out(one, shared) if isinstance(one, Rule) else one for one in kept)
    for (word, name), declared in shared.unused.items():
        raise DplcError(f"no rule of this file has `{word} {name}(..)`", declared, "use it in a rule, or take it out")
    return written


@contextmanager
def in_rule(name: str) -> Iterator[None]:
    """Name the rule in an error that is raised inside."""
    try:
        yield
    except DplcError as error:
        raise type(error)(f"rule `{name}`: {error.what}", error, error.hint, error.notes) from None


_PATTERNS_HAVE_NO: dict[type, str] = {
    LetStatement: "a pattern defines nothing: `let` is a clause, or stands in a template",
    PartLoop: "a loop of a pattern has bounds: `for {0.var} in 0..K reduce:`",
}


def _written_out(rule: Rule, shared: Shared) -> Rule:
    """Return a rule with its clauses written out, and the conditions of the splits among them on their parts."""
    if not any(isinstance(node, SUGAR) for node in walk(rule.clauses)):
        return rule
    with in_rule(rule.name):
        written = shared.written_out(rule.clauses)
        for clause in written:
            if isinstance(clause, SplitClause) and rule.level not in LEVELS:
                raise DplcError(
                    f"loops and axes are split on {', '.join(LEVELS)}; this rule is on {rule.level}",
                    clause,
                    "write it on those levels, or take the clause out",
                )
            for node in walk(clause if not isinstance(clause, Rewrite) else ()):
                if type(node) in _PATTERNS_HAVE_NO:
                    raise DplcError(
                        _PATTERNS_HAVE_NO[type(node)].format(node),
                        node,
                        "write the statement as `dplc compile --ir tile` prints it",
                    )
        words = {*rule.words, *words_in(tuple(c for c in written if not isinstance(c, Match)))}
        rule = replace(rule, clauses=tuple(one for clause in written for one in steps(clause)))
        write = partial(without_lets, rule)
        clauses = (block_changed(one, write) if isinstance(one, Rewrite) else one for one in rule.clauses)
        rule = replace(rule, clauses=tuple(clauses))
        splits, core = Splits(rule), list[Syntax]()
        for clause in rule.clauses:
            if isinstance(clause, SplitClause):
                core += splits.fresh_names(clause)
            elif isinstance(clause, Rewrite):
                core.append(block_changed(clause, splits.block))
            else:
                core.append(splits.clause(clause) if splits.all else clause)
        splits.finish()
        covers = tuple(splits.covers())
    return replace(rule, clauses=tuple(core), written=written, words=tuple(sorted(words)), covers=covers)


# Splits of loops and axes, written out in the template of a rule.


# `split i:M => i_o:ceildiv(M, BM)=BLOCK, i:BM=THREAD`: an axis or loop as digits of a mixed radix, outermost first.
#
# Where a template puts back statements that read `i`, they read i_o*BM + i. A rule may split a digit again, the last
# one in the same clause: `=> i_o=BLOCK, row:BM => ri:FM=REG, i:BM // FM=THREAD`. A `//` among the sizes says that the
# digits divide the extent. Otherwise a guard (`< M`) marks the end.


WITHIN = "within"
# How a part is placed: what else it may be, its usual role, and all of its roles.
PLACES = {
    "an axis": ("a loop", "THREAD", "axes", AXIS_ROLES),
    "a loop": ("an axis", "serial", "loops", (*LOOP_ROLES, "VEC")),
}
Held = frozenset[str]  # names that a loop of the template binds: they are not replaced


@dataclass(eq=False)
class Digit:
    """A part of a split, or what is split again. cut: the split of this digit."""

    name: str
    span: Span
    size: Syntax | None
    role: str | None
    home: MixedRadix
    cut: MixedRadix | None = None

    @property
    def count(self) -> Syntax:
        """The number of its values. Without a size, the outermost digit covers what the others leave."""
        return self.home.outermost(self.span) if self.size is None else self.size


@dataclass(eq=False)
class MixedRadix:
    """Axes or loops replaced by digits, the outermost first.

    what: their names. size: the number of values of each. used: whether the template reads it.
    """

    what: tuple[NameOf, ...]
    size: Syntax = field(init=False)
    digits: list[Digit] = field(default_factory=list)
    used: bool = False

    @property
    def span(self) -> Span:
        return self.what[0].span

    @property
    def ragged(self) -> Syntax | None:
        """The end of the split index, if the digits may run beyond it."""
        sizes = tuple(digit.size for digit in self.digits)
        return None if any(node.op == "//" for node in every(sizes, Operation)) else self.size

    def outermost(self, at: Span) -> Syntax:
        """Return the number of values that the digits after the first one leave to it."""
        rest = self.sizes_from(1)
        return Apply(at, "ceildiv", (self.size, product(rest))) if rest else self.size

    def sizes_from(self, place: int) -> Nodes:
        """Return the numbers of values of the digits from a place on."""
        return tuple(digit.count for digit in self.digits[place:])

    def terms(self, held: Held, at: Span) -> Iterator[Syntax]:
        """Yield the summands of the index over all values. held: digits that are not split further here."""
        for place, digit in enumerate(self.digits, 1):
            cut, sizes = digit.cut, self.sizes_from(place)
            value = [NameOf(at, digit.name)] if cut is None or digit.name in held else cut.terms(held, at)
            yield from (Operation(at, "*", total(value), product(sizes)),) if sizes else value

    def value(self, held: Held, at: Span) -> Syntax:
        """Return what an old axis or loop is, computed from the digits."""
        return total(self.terms(held, at))

    def all_digits(self) -> Iterator[Digit]:
        """Yield the digits, and the digits of those that are split further."""
        for digit in self.digits:
            yield digit
            yield from digit.cut.all_digits() if digit.cut is not None else ()


def total(terms: Iterable[Syntax], op: str = "+") -> Syntax:
    return functools.reduce(lambda a, b: Operation(a.span, op, a, b), terms)


def product(sizes: Iterable[Syntax]) -> Syntax:
    return total(sizes, "*")


class Splits:
    """All splits of a rule. Pass the clauses to `clause`, the template to `block`, then call `finish`.

    sizes: of the axes and loops of the pattern. under: those that enclose each run of the pattern, and the values that
    `let` and `pick` compute from such runs. wholes: by the axis or loop of the pattern; digits: by name, the last of
    each.
    """

    def __init__(self, rule: Rule):
        pattern = tuple(clause.body for clause in rule.clauses if isinstance(clause, Match))
        self.sizes = dict(axes_and_loops(pattern))
        self.under = dict(scopes(pattern))
        self.given = {binder.name for binder in binders(rule.parameters, rule.clauses)}
        self.fresh: set[str] = set()  # parts that are called after what is split
        self.wholes: dict[str, MixedRadix] = {}
        self.digits: dict[str, Digit] = {}
        self.all: list[MixedRadix] = []
        self.placed: set[str] = set()
        for clause in rule.clauses:
            match clause:
                case SplitClause():
                    self._split(clause)
                case LetClause() | PickClause():
                    if found := [self.under[name] for name in reads(clause) if name in self.under]:
                        self.under[clause.name] = frozenset().union(*found)
        asked = {name for call in calls(rule.clauses) if call.fn == WITHIN for name in reads(call.items)}
        self.guarded = [name for name, whole in self.wholes.items() if whole.ragged and name not in asked]

    def fresh_names(self, clause: SplitClause) -> Iterator[LetClause]:
        """Yield lets that name a part such as `i_o` after the name of `i` in the program."""
        said = names_in(clause.what) & self.sizes.keys()
        for part in clause.parts:
            base, _, suffix = part.name.rpartition("_")
            if base in said and suffix and part.name not in self.given | self.fresh:
                self.fresh.add(part.name)
                call = Apply(part.span, "fresh", (NameOf(part.span, base), Text(part.span, suffix)))
                yield LetClause(part.span, part.name, call)

    def covers(self) -> Iterator[Cover]:
        """Yield the conditions on the parts of each split that their sizes do not show."""
        for split in self.all:
            counts, divide = split.sizes_from(0), split.ragged is None
            if divide or expression(counts[0]) != expression(split.outermost(split.span)):
                yield Cover(split.span, ", ".join(map(expression, split.what)), split.size, counts, divide)

    # ---- splits
    @property
    def uncut(self) -> dict[str, Digit]:
        """The digits that are not split further, by name."""
        return {name: digit for name, digit in self.digits.items() if digit.cut is None}

    def _split(self, clause: SplitClause) -> None:
        what, size, uncut = clause.what, clause.size, self.uncut
        if len(what) > 1 and names_in(what) & uncut.keys():
            raise DplcError("one part is split further at a time", what[0], "write a `split` for each")
        split = MixedRadix(what)
        for node in what:
            if digit := uncut.get(node.text):
                digit.cut, known = split, digit.count
            else:
                known = self._whole(node, split)
            if size is not None and expression(size) != expression(known):
                problem = f"`{node.text}` has {expression(known)} values, not {expression(size)}"
                raise DplcError(problem, size, f"write `{node.text}:{expression(known)}`, or leave the size out")
            split.size = size or known
        split.digits += self._parts(clause.parts, split)
        self.digits |= {digit.name: digit for digit in split.digits}
        self.all.append(split)

    def _whole(self, node: NameOf, split: MixedRadix) -> Syntax:
        """Record the split of an axis or a loop of the pattern, and return its size."""
        if node.text in self.wholes:
            line = self.wholes[node.text].span.line
            raise DplcError(
                f"`{node.text}` is split twice", node, "split a part further: `=> .. => ..`", (f"first in line {line}",)
            )
        if node.text not in self.sizes:
            raise DplcError(
                f"the pattern binds no axis or loop `{node.text}`",
                node,
                did_you_mean(node.text, (*self.sizes, *self.uncut)),
            )
        self.wholes[node.text] = split
        return self.sizes[node.text]

    def _parts(self, parts: tuple[SplitPart, ...], split: MixedRadix) -> Iterator[Digit]:
        own = names_in(split.what)
        known = self.uncut
        for n, part in enumerate(parts):
            name, size = part.name, part.size
            if any(name == other.name for other in parts[:n]):
                raise DplcError(f"the part `{name}` stands twice in one split", part, "choose another name")
            if name in known and name not in own:
                _refuse_another(known[name], part)
                yield known[name]
                continue
            if size is None and n:
                raise DplcError(
                    f"the part `{name}` has no size: only the outermost may leave it out", part, f"write `{name}:SIZE`"
                )
            if part.role is not None and name in self.sizes.keys() - self.wholes.keys() - own:
                raise DplcError(
                    f"`{name}` is an axis or loop of the pattern: it has its role",
                    part,
                    "choose another name for the part",
                )
            if part.role is not None and part.role not in ROLES:
                raise DplcError(f"`{part.role}` is not a role", part, did_you_mean(part.role, ROLES))
            written = size.value if isinstance(size, Number) else 1
            if size is not None and (isinstance(size, Text | Group | Prefix) or written < 1 or written % 1):
                raise DplcError(
                    f"the part `{name}` has {expression(size)} values", size, "its size is a whole number of 1 or more"
                )
            yield Digit(name, part.span, size, part.role, split)

    # ---- the template with splits written out: axes and loops of parts, substitutions, guards
    def finish(self) -> None:
        """Raise DplcError for a part that is neither an axis nor a loop, or a split that the template does not use."""
        bound = self.given | (self.sizes.keys() - self.wholes.keys()) | self.placed
        for split in self.all:
            for digit in split.digits:
                if digit.cut is not None:  # it stands below in the list
                    digit.cut.used |= split.used
                elif digit.name not in bound:
                    raise DplcError(
                        f"the part `{digit.name}` is neither an axis nor a loop",
                        digit,
                        f"name it in the template: `Tile(.., {digit.name})`, or `for {digit.name}:`",
                    )
            if not split.used:
                raise DplcError(
                    "the template puts nothing back that this splits",
                    split,
                    "write its parts in the template, or take the `split` out",
                )

    # ---- clauses
    def clause(self, node: Any) -> Any:
        """Rewrite a clause: `last[row := 7]` fixes one part."""
        match node:
            case Match():
                return node
            case Subscript(base=base, items=items):
                return replace(node, items=tuple(made for item in items for made in self._placed_part(base, item)))
        return rebuilt(node, self.clause)

    def _placed_part(self, base: Syntax, item: Syntax) -> Nodes:
        """Rewrite `row := 7` to substitutions of the axes or loops that contain the part, with 7 for the part."""
        match item:
            case Substitution(span=at, left=NameOf(text=part), right=right) if part not in self.wholes:
                made = tuple(
                    Substitution(
                        at,
                        NameOf(item.left.span, name),
                        substituted(home.value(frozenset({part}), at), {part: right}, words=False),
                    )
                    for name, home in self._substituted(base).items()
                    if any(part == digit.name for digit in home.all_digits())
                )
                return made or (item,)
        return (item,)

    # ---- statements
    def block(self, statements: Nodes, held: Held = frozenset()) -> Nodes:
        """Rewrite the statements of a block; adjacent runs share a guard."""
        written: list[Syntax] = []
        for ends, group in itertools.groupby(statements, lambda statement: self._ends(statement, held)):
            body = tuple(self.node(statement, held) for statement in group)
            written += self._within([NameOf(body[0].span, name) for name in ends], body, body[0].span, held)
        return tuple(written)

    def _ends(self, statement: Syntax, held: Held) -> list[str]:
        """Return the axes and loops whose end a run must respect."""
        under = self._substituted(statement.run.base, held) if isinstance(statement, RunStatement) else {}
        return [name for name in self.guarded if name in under]

    def _within(self, items: Iterable[Syntax], body: Nodes, at: Span, held: Held) -> Nodes:
        """Put statements under the guards that digits are not beyond the end of some axes and loops."""
        for item in reversed([*items]):
            body = (IfBlock(at, self._end(item, held), body),)
        return body

    def node(self, node: Any, held: Held) -> Any:
        """Return a piece of a template with the split names written out."""
        bound: Iterable[str] = ()
        match node:
            case NameOf(text=name):
                digit = self.digits.get(name)
                home = digit.cut if digit is not None else self.wholes.get(name)
                if name in held or home is None:
                    return node
                home.used = True
                return home.value(held, node.span)
            case Apply(fn=fn, items=(_, *_) as items) if fn == WITHIN:
                conditions = [self._end(item, held) for item in items]
                return functools.reduce(lambda a, b: Operation(node.span, "and", a, b), conditions)
            case Apply(fn="Tile" | "SharedTile" | "RegisterTile" as op):
                return replace(node, items=tuple(one for item in node.items for one in self._axes(op, item, held)))
            case Subscript():
                inner = (self._run(i, held) if isinstance(i, Run) else self.node(i, held) for i in node.items)
                return replace(node, base=self.node(node.base, held), items=tuple(inner))
            case Substitution():
                return replace(node, right=self.node(node.right, held))
            case PartLoop():
                return self._loop(node, held)
            case IfBlock(condition=Apply(fn=fn, items=items)) if fn == WITHIN:
                return self._within(items, self.block(node.body, held), node.span, held)[0]
            case RunStatement():
                return replace(node, run=self._run(node.run, held), changes=self.node(node.changes, held))
            case Comprehension():
                held |= {node.variable}
            case AxisItem():
                self.placed.add(node.name)
            case ForLoop():
                self.placed.add(node.var)
                bound = {node.var}
            case EachBlock():
                bound = {node.variable}
        body = getattr(node, "body", None)

        def part(value: Any) -> Any:
            return self.block(value, held.union(bound)) if body and value is body else self.node(value, held)

        return rebuilt(node, part)

    def _loop(self, node: PartLoop, held: Held) -> ForLoop:
        name, at = node.var, node.span
        digit = self.digits.get(name)
        if digit is None:
            raise DplcError(
                f"no split has a part `{name}`",
                at,
                did_you_mean(name, self.digits) or f"write its bounds: `for {name} in 0..N:`",
            )
        role = NameOf(digit.span, self._place(digit, at, "a loop"))
        stop = self.node(digit.count, held)
        attributes = (role, *self.node(node.attributes, held))
        return ForLoop(at, name, Number(at, 0), stop, None, attributes, self.block(node.body, held | {name}))

    def _axes(self, op: str, item: Syntax, held: Held) -> Nodes:
        """Return an item of a tile: a part, `i..` for all parts of what is split, or what any template may say."""
        match item:
            case Run(base=NameOf(text=name) as base) if name in self.wholes:
                digits = [digit for digit in self.wholes[name].all_digits() if digit.cut is None]
            case NameOf(text=name) as base if name in self.digits:
                digits = [self.digits[name]]
            case Run() | NameOf():
                return (item,)
            case _:
                return (self.node(item, held),)
        axes = []
        for digit in digits:
            size = self.node(digit.count, held)
            role = self._place(digit, base.span, "an axis") if op == "Tile" else None  # the axes of others are labels
            axes.append(AxisItem(base.span, digit.name, size, role, None, None))
        return tuple(axes)

    def _place(self, digit: Digit, at: Span, kind: str) -> str:
        """Note that a part is a loop or an axis, and return its role. Raises DplcError if it is neither."""
        other, usual, those, roles = PLACES[kind]
        if digit.role is None or digit.role not in roles:
            role = "" if digit.role is None else f"{other}, {digit.role}, "
            raise DplcError(
                f"`{digit.name}` is {role}not {kind}",
                at,
                f"give it a role where it is split: `{digit.name}={usual}`; {those} are {', '.join(roles)}",
            )
        self.placed.add(digit.name)
        return digit.role

    # ---- runs and guards
    def _run(self, run: Run, held: Held) -> Run:
        """Rewrite a run from inside of a split loop or axis, with the digits as its index."""
        base, at = run.base, run.base.span
        said, inner = (base.items, base.base) if isinstance(base, Subscript) else ((), base)
        own = {expression(item.left) for item in said if isinstance(item, Substitution)}
        items = tuple(self.node(item, held) for item in said)
        for name, home in self._substituted(base, held).items():
            if name not in own:
                home.used = True
                items += (Substitution(at, NameOf(at, name), home.value(held, at)),)
        return replace(run, base=Subscript(at, inner, items)) if items else run

    def _substituted(self, base: Syntax, held: Held = frozenset()) -> dict[str, MixedRadix]:
        """Return {axis or loop: its split} of all that enclosed a run in the pattern, in the order of the clauses."""
        while isinstance(base, Subscript | Member):
            base = base.base
        under = self.under.get(base.text, ()) if isinstance(base, NameOf) else ()
        return {
            name: home
            for name, home in self.wholes.items()
            if name in under and (name not in held or name in self.digits)
        }

    def _end(self, item: Syntax, held: Held) -> Syntax:
        """Return the condition of `within(i)`: the digits of `i` are not beyond its end."""
        name = item.text if isinstance(item, NameOf) else ""
        home = self.wholes.get(name)
        if home is None:
            raise DplcError(
                "`within` asks of an axis or loop that this rule splits", item, did_you_mean(name, self.wholes)
            )
        if home.ragged is None:
            raise DplcError(
                f"`{name}` has no ragged end",
                item,
                "leave the `if` out, or write `ceildiv(..)` for the `//`",
                ("a `//` among the sizes of its parts says that they divide it",),
            )
        home.used = True
        return Operation(item.span, "<", home.value(held, item.span), home.ragged)


def _refuse_another(digit: Digit, part: SplitPart) -> None:
    """Raise DplcError if two splits that share a part disagree about it."""
    count = expression(digit.count)
    for kind, given, known, has in (
        ("sizes", part.size and expression(part.size), count, f"has {count} values"),
        ("roles", part.role, digit.role, f"is {digit.role or 'without a role'}"),
    ):
        if given is not None and given != known:
            raise DplcError(
                f"the part `{part.name}` of two splits has two {kind}",
                part,
                "write it once, and leave it out in the other split",
                (f"it {has} in line {digit.span.line}",),
            )


def steps(clause: Syntax) -> Iterator[Syntax]:
    """Yield a split whose last part is split again, one after the other."""
    if not isinstance(clause, SplitClause):
        yield clause
        return
    yield replace(clause, further=())
    for (*_, last), following in itertools.pairwise((clause.parts, *clause.further)):
        yield SplitClause(clause.span, (NameOf(last.span, last.name),), None, following)


def axes_and_loops(statements: object) -> Iterator[tuple[str, Syntax]]:
    """Yield the axes of tiles and the loops of a pattern, with their sizes."""
    for node in walk(statements):
        if isinstance(node, Apply) and node.fn == "Tile":
            yield from ((item.name, item.extent) for item in node.items if isinstance(item, AxisItem))
        elif isinstance(node, ForLoop):
            yield node.var, node.stop


def scopes(node: object, above: Held = frozenset()) -> Iterator[tuple[str, Held]]:
    """Yield the runs and the captured statements of a pattern, each with the axes and loops that enclose it."""
    match node:
        case Run(base=NameOf(text=name)) | CaptureStatement(name=name) | InsideBlock(name=name):
            yield name, above
        case Statement(body=tuple(body)) | ForLoop(body=body):
            above |= dict(axes_and_loops(replace(node, body=()))).keys()
            node = body
    for part in node if isinstance(node, tuple) else children(node) if isinstance(node, Syntax) else ():
        yield from scopes(part, above)
