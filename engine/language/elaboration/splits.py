"""`split i:M => i_o:ceildiv(M, BM)=BLOCK, i:BM=THREAD`: an axis or a loop as digits of a mixed radix, outermost first.

What the pattern calls `i` becomes i_o*BM + i wherever a template puts back what stood under it; a digit may be split
again, the last one in the same clause: `=> i_o=BLOCK, row:BM => ri:FM=REG, i:BM // FM=THREAD`. `join k, l => n` is the
way back. A `//` among the sizes says that the digits divide what is split; else a guard (`< M`) says where it ends.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ....ir.diagnostic import DplcError, Span, did_you_mean
from ....ir.text import equations as eq
from ....ir.text import syntax as s
from ....ir.text.read_statements import ROLES
from ..positions import walk
from ..spelling import expression


@dataclass(eq=False)
class Digit:
    """A part of a split or join, or what is split again."""

    name: str
    span: Span
    size: s.Syntax | None
    role: str | None
    cut: RadixSplit | None = None  # the split of this digit


@dataclass(eq=False)
class RadixSplit:
    """digits are outermost first. what: the names, or the sum, that are split; size None: nobody says it."""

    span: Span
    what: tuple[s.Syntax, ...]
    size: s.Syntax | None
    digits: list[Digit] = field(default_factory=list)

    @property
    def guarded(self) -> bool:
        """Whether the digits may run beyond what is split."""
        return self.size is not None and not any(
            isinstance(node, s.Operation) and node.op == "//" for d in self.digits if d.size for node in walk(d.size)
        )

    def size_of(self, digit: Digit) -> s.Syntax:
        """How many values a digit takes: the outermost may leave it to the others."""
        if digit.size is not None:
            return digit.size
        assert self.size is not None
        rest = [d.size for d in self.digits[1:] if d.size is not None]
        return s.Apply(digit.span, "ceildiv", (self.size, product(rest))) if rest else self.size

    def terms(self, held: frozenset[str], at: Span) -> Iterator[s.Syntax]:
        """The summands of what is split, in its digits. held: digits that are not split further here."""
        for n, digit in enumerate(self.digits):
            sizes = [d.size for d in self.digits[n + 1 :] if d.size is not None]
            if digit.cut is None or digit.name in held:
                value: tuple[s.Syntax, ...] = (s.NameOf(at, digit.name),)
            else:
                value = tuple(digit.cut.terms(held, at))
            if sizes:
                yield s.Operation(at, "*", total(value), product(sizes))
            else:
                yield from value

    def value(self, name: str, held: frozenset[str], at: Span) -> s.Syntax:
        return total(self.terms(held, at))


@dataclass(eq=False)
class Join:
    """One digit in the place of several axes or loops, the first outermost."""

    span: Span
    names: tuple[str, ...]
    sizes: tuple[s.Syntax, ...]
    digit: Digit
    guarded: bool = False

    @property
    def digits(self) -> list[Digit]:
        return [self.digit]

    def size_of(self, digit: Digit) -> s.Syntax:
        return digit.size or product(self.sizes)

    def value(self, name: str, held: frozenset[str], at: Span) -> s.Syntax:
        place = self.names.index(name)
        found: s.Syntax = s.NameOf(at, self.digit.name)
        if self.sizes[place + 1 :]:
            found = s.Operation(at, "//", found, product(self.sizes[place + 1 :]))
        return s.Operation(at, "%", found, self.sizes[place]) if place else found


def total(terms: Iterable[s.Syntax]) -> s.Syntax:
    return functools.reduce(lambda a, b: s.Operation(a.span, "+", a, b), terms)


def product(sizes: Iterable[s.Syntax]) -> s.Syntax:
    return functools.reduce(lambda a, b: s.Operation(a.span, "*", a, b), sizes)


class Splits:
    """All splits and joins of a rule. wholes: by the axis or loop of the pattern; digits: by name, the last of each."""

    def __init__(self, rule: s.Rule):
        self.rule = rule
        self.match = next((clause.body for clause in rule.clauses if isinstance(clause, s.Match)), ())
        self.sizes = dict(axes_and_loops(self.match))
        self.given = {parameter.name for parameter in rule.parameters} | bound(rule.clauses)
        self.fresh: set[str] = set()  # parts that are called after what is split
        self.wholes: dict[str, RadixSplit | Join] = {}
        self.sums: list[RadixSplit] = []  # of what has no name: `split j*F + r => ..`
        self.digits: dict[str, Digit] = {}
        self.homes: dict[int, RadixSplit | Join] = {}  # what a digit is of, by its identity
        self.all: list[RadixSplit | Join] = []
        for clause in rule.clauses:
            if isinstance(clause, eq.SplitClause):
                self._split(clause)
            elif isinstance(clause, eq.JoinClause):
                self._join(clause)

    def home(self, digit: Digit) -> RadixSplit | Join:
        return self.homes[id(digit)]

    def final(self, name: str) -> bool:
        """Whether a name is a digit that is not split further: it stands for itself."""
        return name in self.digits and self.digits[name].cut is None

    def fresh_names(self, clause: eq.SplitClause | eq.JoinClause) -> Iterator[s.LetClause]:
        """`i_o` is called after what `i` is called in the program."""
        parts = clause.parts if isinstance(clause, eq.SplitClause) else (clause.part,)
        said = {node.text for node in walk(self._what(clause)) if isinstance(node, s.NameOf)}
        for part in parts:
            base, _, suffix = part.name.rpartition("_")
            if base in said & self.sizes.keys() and suffix and part.name not in self.given | self.fresh:
                self.fresh.add(part.name)
                call = s.Apply(part.span, "fresh", (s.NameOf(part.span, base), s.Text(part.span, suffix)))
                yield s.LetClause(part.span, part.name, call)

    @staticmethod
    def _what(clause: eq.SplitClause | eq.JoinClause) -> tuple[s.Syntax, ...]:
        return clause.what if isinstance(clause, eq.SplitClause) else clause.names

    def covers(self) -> Iterator[s.Cover]:
        """What the parts of each split have to be, where their sizes do not show it."""
        for split in self.all:
            if isinstance(split, RadixSplit) and split.size is not None:
                parts = tuple(split.size_of(digit) for digit in split.digits)
                outermost = Digit("", split.span, None, None)
                rounded = dataclasses.replace(split, digits=[outermost, *split.digits[1:]]).size_of(outermost)
                if not split.guarded or expression(parts[0]) != expression(rounded):
                    named = ", ".join(expression(node) for node in split.what)
                    yield s.Cover(split.span, named, split.size, parts, not split.guarded)

    # ---- splits
    def _split(self, clause: eq.SplitClause) -> None:
        named = [node for node in clause.what if isinstance(node, s.NameOf)]
        if len(named) != len(clause.what) and len(clause.what) > 1:
            odd = next(node for node in clause.what if not isinstance(node, s.NameOf))
            raise DplcError("several names are split at once, or one sum", odd.span)
        cut = [self.digits[n.text] for n in named if n.text in self.digits and self.digits[n.text].cut is None]
        split = RadixSplit(clause.what[0].span, clause.what, clause.size)
        for node in named:
            if not cut:
                self._whole(node, split, clause.size)
        if len(cut) > 1 or (cut and len(named) > 1):
            raise DplcError("one part is split further at a time", clause.what[0].span)
        for digit in cut:
            split.size = self._agreed(clause.size, self.home(digit).size_of(digit), digit.name)
        split.digits += self._parts(clause.parts, split)
        for digit in cut:
            digit.cut = split
        for digit in split.digits:
            self.digits[digit.name] = digit
            self.homes.setdefault(id(digit), split)
        if not named:
            self.sums.append(split)
        self.all.append(split)

    def _whole(self, node: s.NameOf, split: RadixSplit | Join, size: s.Syntax | None) -> None:
        """An axis or a loop of the pattern."""
        if node.text in self.wholes:
            line = self.wholes[node.text].span.line
            raise DplcError(f"`{node.text}` is split twice", node.span, (f"first in line {line}",))
        if node.text not in self.sizes:
            known = [*self.sizes, *(name for name, digit in self.digits.items() if digit.cut is None)]
            what = f"the pattern binds no axis or loop `{node.text}`"
            raise DplcError(what, node.span, (), did_you_mean(node.text, known))
        if isinstance(split, RadixSplit):
            split.size = self._agreed(size, self.sizes[node.text], node.text)
        self.wholes[node.text] = split

    @staticmethod
    def _agreed(said: s.Syntax | None, known: s.Syntax, name: str) -> s.Syntax:
        if said is not None and expression(said) != expression(known):
            raise DplcError(f"`{name}` has {expression(known)} values, not {expression(said)}", said.span)
        return said or known

    def _parts(self, parts: tuple[eq.SplitPart, ...], split: RadixSplit) -> Iterator[Digit]:
        seen: set[str] = set()
        own = {node.text for node in walk(split.what) if isinstance(node, s.NameOf)}
        for n, part in enumerate(parts):
            if part.name in seen:
                raise DplcError(f"the part `{part.name}` stands twice in one split", part.span)
            seen.add(part.name)
            digit = self.digits.get(part.name)
            if digit is not None and digit.cut is None and part.name not in own:
                yield self._shared(digit, part)
                continue
            if part.size is None and n:
                what = f"the part `{part.name}` has no size: only the outermost may leave it out"
                raise DplcError(what, part.span, (), f"write `{part.name}:SIZE`")
            if part.size is None and split.size is None:
                raise DplcError(f"the part `{part.name}` has no size, and nobody says that of what is split", part.span)
            if part.role is not None and part.name in self.sizes.keys() - self.wholes.keys() - own:
                what = f"`{part.name}` is an axis or loop of the pattern: it has its role"
                raise DplcError(what, part.span)
            if part.role is not None and part.role not in ROLES:
                raise DplcError(f"`{part.role}` is not a role", part.span, (), did_you_mean(part.role, ROLES))
            _counts(part)
            yield Digit(part.name, part.span, part.size, part.role)

    def _shared(self, digit: Digit, part: eq.SplitPart) -> Digit:
        """A part that two splits share: what they say of it is the same."""
        if part.size is not None:
            known = self.home(digit).size_of(digit)
            if expression(part.size) != expression(known):
                notes = (f"it has {expression(known)} values in line {digit.span.line}",)
                raise DplcError(f"the part `{part.name}` of two splits has two sizes", part.span, notes)
        if part.role is not None and part.role != digit.role:
            notes = (f"it is {digit.role or 'without a role'} in line {digit.span.line}",)
            raise DplcError(f"the part `{part.name}` of two splits has two roles", part.span, notes)
        return digit

    # ---- joins
    def _join(self, clause: eq.JoinClause) -> None:
        if len(clause.names) < 2:
            raise DplcError("a join is of two axes or loops, or more", clause.names[0].span)
        part = clause.part
        digit = Digit(part.name, part.span, part.size, part.role)
        sizes = tuple(self.sizes.get(name.text, name) for name in clause.names)
        join = Join(clause.names[0].span, tuple(name.text for name in clause.names), sizes, digit)
        for name in clause.names:
            self._whole(name, join, None)
        self.digits[part.name], self.homes[id(digit)] = digit, join
        self.all.append(join)


def _counts(part: eq.SplitPart) -> None:
    """Raises DplcError for a size that is no number of values, where it is written out."""
    size = part.size
    if size is None:
        return
    written = size.value if isinstance(size, s.Number) else None
    if isinstance(size, s.Text | s.Group | s.Prefix) or (written is not None and (written < 1 or written % 1)):
        what = f"the part `{part.name}` has {expression(size)} values"
        raise DplcError(what, size.span, (), "its size is a whole number of 1 or more")


def steps(clause: s.Syntax) -> Iterator[s.Syntax]:
    """A split whose last part is split again, one after the other."""
    if not isinstance(clause, eq.SplitClause):
        yield clause
        return
    yield dataclasses.replace(clause, further=())
    last = clause.parts[-1]
    for parts in clause.further:
        yield eq.SplitClause(clause.span, (s.NameOf(last.span, last.name),), None, parts)
        last = parts[-1]


def axes_and_loops(statements: tuple[s.Syntax, ...]) -> Iterator[tuple[str, s.Syntax]]:
    """The axes of tiles and the loops of a pattern, with their sizes."""
    for node in walk(statements):
        if isinstance(node, s.Apply) and node.fn == "Tile":
            yield from ((item.name, item.extent) for item in node.items if isinstance(item, s.AxisItem))
        elif isinstance(node, s.ForLoop):
            yield node.var, node.stop


def bound(clauses: tuple[s.Syntax, ...]) -> set[str]:
    return {clause.name for clause in clauses if isinstance(clause, s.LetClause | s.PickClause)}
