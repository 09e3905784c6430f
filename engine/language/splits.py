"""Splits and joins of loops and axes, written out in the template of a rule."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ...ir.diagnostic import DplcError, Span, did_you_mean
from ...ir.text import equations as eq
from ...ir.text import syntax as s
from ...ir.text.read_statements import ROLES
from .spelling import expression
from .typed_slots import names, parts, rebuilt, substituted, walk

# `split i:M => i_o:ceildiv(M, BM)=BLOCK, i:BM=THREAD`: an axis or loop as digits of a mixed radix, outermost first.
#
# Where a template puts back statements that read `i`, they read i_o*BM + i. A rule may split a digit again, the last
# one in the same clause: `=> i_o=BLOCK, row:BM => ri:FM=REG, i:BM // FM=THREAD`. `join k, l => n` is the inverse. A
# `//` among the sizes says that the digits divide the extent. Otherwise a guard (`< M`) marks the end.


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
    """Split of axes or loops into digits, the outermost first.

    what: the names, or the sum, that are split. size: None if it is not given.
    """

    span: Span
    what: s.Nodes
    size: s.Syntax | None
    digits: list[Digit] = field(default_factory=list)

    @property
    def guarded(self) -> bool:
        """Return whether the digits may run beyond the split index."""
        return self.size is not None and not any(
            isinstance(node, s.Operation) and node.op == "//" for d in self.digits if d.size for node in walk(d.size)
        )

    def size_of(self, digit: Digit) -> s.Syntax:
        """Return the number of values of a digit. Without a size, the outermost digit covers what the others leave."""
        if digit.size is not None:
            return digit.size
        assert self.size is not None
        rest = [d.size for d in self.digits[1:] if d.size is not None]
        return s.Apply(digit.span, "ceildiv", (self.size, product(rest))) if rest else self.size

    def terms(self, held: frozenset[str], at: Span) -> Iterator[s.Syntax]:
        """Yield the summands of the split index, in its digits. held: digits that are not split further here."""
        for n, digit in enumerate(self.digits):
            sizes = [d.size for d in self.digits[n + 1 :] if d.size is not None]
            if digit.cut is None or digit.name in held:
                value: s.Nodes = (s.NameOf(at, digit.name),)
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
    """One digit that replaces several axes or loops, the first outermost."""

    span: Span
    names: tuple[str, ...]
    sizes: s.Nodes
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
        """Return whether a name is a digit that is not split further."""
        return name in self.digits and self.digits[name].cut is None

    def fresh_names(self, clause: eq.SplitClause | eq.JoinClause) -> Iterator[s.LetClause]:
        """Yield lets that name a part such as `i_o` after the name of `i` in the program."""
        parts = clause.parts if isinstance(clause, eq.SplitClause) else (clause.part,)
        said = {node.text for node in walk(self._what(clause)) if isinstance(node, s.NameOf)}
        for part in parts:
            base, _, suffix = part.name.rpartition("_")
            if base in said & self.sizes.keys() and suffix and part.name not in self.given | self.fresh:
                self.fresh.add(part.name)
                call = s.Apply(part.span, "fresh", (s.NameOf(part.span, base), s.Text(part.span, suffix)))
                yield s.LetClause(part.span, part.name, call)

    @staticmethod
    def _what(clause: eq.SplitClause | eq.JoinClause) -> s.Nodes:
        return clause.what if isinstance(clause, eq.SplitClause) else clause.names

    def covers(self) -> Iterator[s.Cover]:
        """Yield the conditions on the parts of each split that their sizes do not show."""
        for split in self.all:
            if isinstance(split, RadixSplit) and split.size is not None:
                parts = tuple(split.size_of(digit) for digit in split.digits)
                outermost = Digit("", split.span, None, None)
                rounded = replace(split, digits=[outermost, *split.digits[1:]]).size_of(outermost)
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
        """Record the split of an axis or a loop of the pattern."""
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
        """Return a part that two splits share: what they say of it is the same."""
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
    """Raise DplcError for a literal size that is not a positive whole number."""
    size = part.size
    if size is None:
        return
    written = size.value if isinstance(size, s.Number) else None
    if isinstance(size, s.Text | s.Group | s.Prefix) or (written is not None and (written < 1 or written % 1)):
        what = f"the part `{part.name}` has {expression(size)} values"
        raise DplcError(what, size.span, (), "its size is a whole number of 1 or more")


def steps(clause: s.Syntax) -> Iterator[s.Syntax]:
    """Yield a split whose last part is split again, one after the other."""
    if not isinstance(clause, eq.SplitClause):
        yield clause
        return
    yield replace(clause, further=())
    last = clause.parts[-1]
    for following in clause.further:
        yield eq.SplitClause(clause.span, (s.NameOf(last.span, last.name),), None, following)
        last = following[-1]


def axes_and_loops(statements: s.Nodes) -> Iterator[tuple[str, s.Syntax]]:
    """Yield the axes of tiles and the loops of a pattern, with their sizes."""
    for node in walk(statements):
        if isinstance(node, s.Apply) and node.fn == "Tile":
            yield from ((item.name, item.extent) for item in node.items if isinstance(item, s.AxisItem))
        elif isinstance(node, s.ForLoop):
            yield node.var, node.stop


def bound(clauses: s.Nodes) -> set[str]:
    return {clause.name for clause in clauses if isinstance(clause, s.LetClause | s.PickClause)}


# Templates with their splits and joins written out: axes and loops of parts, substitutions, guards.


AXES = ("BLOCK", "THREAD", "REG", "VEC")
LOOPS = ("serial", "reduce", "free", "VEC")
WITHIN, SPLIT = "within", "split"
Held = frozenset[str]  # names that a loop of the template binds: they stand for themselves


class SplitTemplate:
    """Rewriter of the template of a rule. Call `block`, then `finish`."""

    def __init__(self, splits: Splits):
        self.splits = splits
        self.scopes = Scopes(splits.rule)
        self.placed: set[str] = set()
        self.used: set[int] = set()
        asked = {
            name.text
            for clause in splits.rule.clauses
            if isinstance(clause, s.Rewrite)
            for call in walk(clause.body)
            if isinstance(call, s.Apply) and call.fn == WITHIN
            for name in names(call.items)
        }
        self.guarded = [w for w in splits.wholes if splits.wholes[w].guarded and w not in asked]

    def finish(self) -> None:
        """Raise DplcError for a part that is neither an axis nor a loop, or a split that the template does not use."""
        for split in self.splits.all:
            for digit in split.digits:
                known = digit.cut is not None or digit.name in self.placed or digit.name in self._bound
                if not known:
                    hint = f"name it in the template: `Tile(.., {digit.name})`, or `for {digit.name}:`"
                    raise DplcError(f"the part `{digit.name}` is neither an axis nor a loop", digit.span, (), hint)
            if id(split) not in self.used:
                raise DplcError("the template puts nothing back that this splits", split.span)

    @property
    def _bound(self) -> set[str]:
        """Names that are defined without the template."""
        return self.splits.given | (self.splits.sizes.keys() - self.splits.wholes.keys())

    # ---- clauses
    def clause(self, node: Any) -> Any:
        """Rewrite a clause: `split(body)` is the body as the template emits it, `last[row := 7]` fixes one part."""
        if isinstance(node, s.Match):
            return node
        if isinstance(node, s.Apply) and node.fn == SPLIT and len(node.items) == 1:
            return self._run(s.Run(node.span, node.items[0]), frozenset()).base
        if isinstance(node, s.Subscript):
            items = tuple(made for item in node.items for made in self._placed_part(node.base, item))
            return replace(node, items=items)
        return rebuilt(node, self.clause)

    def _placed_part(self, base: s.Syntax, item: s.Syntax) -> Iterator[s.Syntax]:
        """Rewrite `row := 7` to a substitution of the axis or loop that contains the part, with 7 for the part."""
        left = item.left if isinstance(item, s.Substitution) else None
        if not isinstance(item, s.Substitution) or not isinstance(left, s.NameOf):
            yield item
            return
        homes = self._substituted(base, frozenset()).items()
        found = [
            (name, home) for name, home in homes if left.text in parts_of(home) and left.text not in self.splits.wholes
        ]
        for name, home in found:
            whole = home.value(name, frozenset({left.text}), item.span)
            value = substituted(whole, {left.text: item.right}, words=False)
            yield s.Substitution(item.span, s.NameOf(left.span, name), value)
        if not found:
            yield item

    # ---- statements
    def block(self, statements: s.Nodes, held: Held = frozenset()) -> s.Nodes:
        """Rewrite the statements of a block; adjacent runs share a guard."""
        found: list[s.Syntax] = []
        waiting: list[s.Syntax] = []
        last: tuple[str, ...] = ()
        for statement in statements:
            ends = self._ends(statement, held)
            if waiting and ends != last:
                found.append(self._under(last, tuple(waiting), held))
                waiting = []
            done = self.statement(statement, held)
            if ends:
                waiting, last = [*waiting, done], ends
            else:
                found.append(done)
        return (*found, self._under(last, tuple(waiting), held)) if waiting else tuple(found)

    def _ends(self, statement: s.Syntax, held: Held) -> tuple[str, ...]:
        """Return the axes and loops whose end a run must respect."""
        if not isinstance(statement, s.RunStatement):
            return ()
        under = self._substituted(statement.run.base, held)
        return tuple(name for name in self.guarded if name in under)

    def _under(self, ends: tuple[str, ...], body: s.Nodes, held: Held) -> s.Syntax:
        for name in reversed(ends):
            body = (s.IfBlock(body[0].span, self._end(s.NameOf(body[0].span, name), held), body),)
        return body[0]

    def statement(self, node: s.Syntax, held: Held) -> s.Syntax:
        if isinstance(node, eq.PartLoop):
            return self._loop(node, held)
        if isinstance(node, s.ForLoop):
            self.placed.add(node.var)
            inner = held | {node.var}
            start, stop, step, attributes = self.node((node.start, node.stop, node.step, node.attributes), held)
            return s.ForLoop(node.span, node.var, start, stop, step, attributes, self.block(node.body, inner))
        if isinstance(node, s.EachBlock):
            domain = self.node(node.domain, held)
            return replace(node, domain=domain, body=self.block(node.body, held | {*node.names}))
        if isinstance(node, s.IfBlock) and isinstance(node.condition, s.Apply) and node.condition.fn == WITHIN:
            body = self.block(node.body, held)
            for item in reversed(node.condition.items):
                body = (s.IfBlock(node.span, self._end(item, held), body),)
            return body[0]
        if isinstance(node, s.RunStatement):
            changes = self.node(node.changes, held)
            return replace(node, run=self._run(node.run, held), changes=changes)
        return self.node(node, held)  # type: ignore[no-any-return]

    def _loop(self, node: eq.PartLoop, held: Held) -> s.ForLoop:
        digit = self.splits.digits.get(node.var)
        if digit is None:
            hint = did_you_mean(node.var, self.splits.digits) or f"write its bounds: `for {node.var} in 0..N:`"
            raise DplcError(f"no split has a part `{node.var}`", node.span, (), hint)
        if digit.role not in LOOPS:
            what = (
                f"`{node.var}` is no loop" if digit.role is None else f"`{node.var}` is an axis, {digit.role}, no loop"
            )
            hint = f"say what loop it is where it is split: `{node.var}:N=serial`; loops are {', '.join(LOOPS)}"
            raise DplcError(what, node.span, (), hint)
        self.placed.add(node.var)
        stop = self.node(self.splits.home(digit).size_of(digit), held)
        attributes = (s.NameOf(digit.span, digit.role), *self.node(node.attributes, held))
        body = self.block(node.body, held | {node.var})
        return s.ForLoop(node.span, node.var, s.Number(node.span, 0), stop, None, attributes, body)

    # ---- expressions
    def node(self, node: Any, held: Held) -> Any:
        """Return a piece of a template with the split names written out."""
        if isinstance(node, tuple):
            return tuple(self.node(item, held) for item in node)
        if isinstance(node, s.NameOf):
            return self._name(node, held)
        if isinstance(node, s.Apply):
            return self._apply(node, held)
        if isinstance(node, s.Subscript):
            items = (self._run(i, held) if isinstance(i, s.Run) else self.node(i, held) for i in node.items)
            return replace(node, base=self.node(node.base, held), items=tuple(items))
        if isinstance(node, s.Substitution):
            return replace(node, right=self.node(node.right, held))
        if isinstance(node, s.Comprehension):
            held = held | {node.variable}
        if not isinstance(node, s.Syntax):
            return node
        found: dict[str, Any] = {}
        for part in fields(node):
            value = getattr(node, part.name)
            if part.name == "body" and isinstance(value, tuple):
                found["body"] = self.block(value, held)
            elif part.name != "span":
                found[part.name] = self.node(value, held)
        return replace(node, **found)

    def _name(self, node: s.NameOf, held: Held) -> s.Syntax:
        name = node.text
        if name in held or self.splits.final(name):
            return node
        digit = self.splits.digits.get(name)
        home = digit.cut if digit is not None else self.splits.wholes.get(name)
        if home is None:
            return node
        self._use(home)
        return home.value(name, held, node.span)

    def _use(self, home: RadixSplit | Join) -> None:
        self.used.add(id(home))
        for digit in home.digits:
            if digit.cut is not None:
                self._use(digit.cut)

    def _apply(self, node: s.Apply, held: Held) -> s.Syntax:
        if node.fn == WITHIN and node.items:
            conditions = [self._end(item, held) for item in node.items]
            found = conditions[0]
            for condition in conditions[1:]:
                found = s.Operation(node.span, "and", found, condition)
            return found
        if node.fn in ("Tile", "Slab"):
            items = tuple(made for item in node.items for made in self._axes(node.fn, item, held))
            return replace(node, items=items)
        return replace(node, items=self.node(node.items, held))

    def _axes(self, op: str, item: s.Syntax, held: Held) -> Iterator[s.Syntax]:
        """Yield an item of a tile: a part, `i..` for all parts of what is split, or what any template may say."""
        base = item.base if isinstance(item, s.Run) else item
        if not isinstance(base, s.NameOf) or (isinstance(item, s.Run) and base.text not in self.splits.wholes):
            if isinstance(item, s.AxisItem):
                self.placed.add(item.name)
            yield self.node(item, held) if not isinstance(item, s.Run) else item
        elif isinstance(item, s.Run):
            for digit in self._leaves(self.splits.wholes[base.text]):
                yield self._axis(op, digit, base, held)
        elif base.text in self.splits.digits:
            yield self._axis(op, self.splits.digits[base.text], base, held)
        else:
            yield item

    def _leaves(self, home: RadixSplit | Join) -> Iterator[Digit]:
        for digit in home.digits:
            yield from self._leaves(digit.cut) if digit.cut is not None else (digit,)

    def _axis(self, op: str, digit: Digit, at: s.NameOf, held: Held) -> s.AxisItem:
        size = self.node(self.splits.home(digit).size_of(digit), held)
        if op == "Slab":  # its axes are labels
            return s.AxisItem(at.span, digit.name, size, None, None, None)
        if digit.role not in AXES:
            what = (
                f"`{digit.name}` is no axis"
                if digit.role is None
                else f"`{digit.name}` is a loop, {digit.role}, no axis"
            )
            hint = f"say what axis it is where it is split: `{digit.name}:N=THREAD`; axes are {', '.join(AXES)}"
            raise DplcError(what, at.span, (), hint)
        self.placed.add(digit.name)
        return s.AxisItem(at.span, digit.name, size, digit.role, None, None)

    # ---- runs and guards
    def _run(self, run: s.Run, held: Held) -> s.Run:
        """Rewrite a run from inside of a split loop or axis, with the digits as its index."""
        said = run.base.items if isinstance(run.base, s.Subscript) else ()
        inner = run.base.base if isinstance(run.base, s.Subscript) else run.base
        own = {item.left.text for item in said if isinstance(item, s.Substitution) and isinstance(item.left, s.NameOf)}
        items = tuple(self.node(item, held) for item in said)
        at = run.base.span
        for name, home in self._substituted(run.base, held).items():
            if name not in own:
                self._use(home)
                items += (s.Substitution(at, s.NameOf(at, name), home.value(name, held, at)),)
        for split in self.splits.sums if isinstance(inner, s.NameOf) and inner.text in self.scopes.under else ():
            self._use(split)
            items += (s.Substitution(at, split.what[0], split.value("", held, at)),)
        return replace(run, base=s.Subscript(at, inner, items)) if items else run

    def _substituted(self, base: s.Syntax, held: Held) -> dict[str, RadixSplit | Join]:
        """Return {axis or loop: its split} of all that enclosed a run in the pattern, in the order of the clauses."""
        root = base
        while isinstance(root, s.Subscript | s.Member):
            root = root.base
        under = self.scopes.under.get(root.text, frozenset()) if isinstance(root, s.NameOf) else frozenset()
        return {
            name: home
            for name, home in self.splits.wholes.items()
            if name in under and (name not in held or name in self.splits.digits)
        }

    def _end(self, item: s.Syntax, held: Held) -> s.Syntax:
        """Return the condition of `within(i)`: the digits of `i` are not beyond its end."""
        name = item.text if isinstance(item, s.NameOf) else ""
        home = self.splits.wholes.get(name)
        if not isinstance(home, RadixSplit):
            hint = did_you_mean(name, self.splits.wholes)
            raise DplcError("`within` asks of an axis or loop that this rule splits", item.span, (), hint)
        if not home.guarded or home.size is None:
            notes = ("a `//` among the sizes of its parts says that they divide it",)
            raise DplcError(f"`{name}` has no ragged end", item.span, notes)
        self._use(home)
        return s.Operation(item.span, "<", home.value(name, held, item.span), home.size)


def parts_of(home: RadixSplit | Join) -> set[str]:
    """Return the names of the parts, and of the parts of these."""
    found = {digit.name for digit in home.digits}
    return found.union(*(parts_of(digit.cut) for digit in home.digits if digit.cut is not None))


class Scopes:
    """Axes and loops that enclose each run of the pattern, by the name of the run: `under`.

    The same axes and loops enclose the values that `let` and `pick` compute from such runs.
    """

    def __init__(self, rule: s.Rule):
        self.under: dict[str, frozenset[str]] = {}
        for clause in rule.clauses:
            if isinstance(clause, s.Match):
                self._walk(clause.body, frozenset())
            elif isinstance(clause, s.LetClause | s.PickClause):
                value = clause.value if isinstance(clause, s.LetClause) else clause.domain
                found = [self.under[name.text] for name in names(value) if name.text in self.under]
                if found and not any(isinstance(call, s.Apply) and call.fn == SPLIT for call in walk(value)):
                    self.under[clause.name] = frozenset().union(*found)

    def _walk(self, node: Any, above: frozenset[str]) -> None:
        if isinstance(node, tuple):
            for item in node:
                self._walk(item, above)
        elif isinstance(node, s.Run) and isinstance(node.base, s.NameOf):
            self.under[node.base.text] = above
        elif isinstance(node, s.CaptureStatement | s.InsideBlock):
            self.under[node.name] = above
        if isinstance(node, s.Statement) and isinstance(node.call, s.Apply) and node.body is not None:
            self._walk(node.body, above | {i.name for i in node.call.items if isinstance(i, s.AxisItem)})
        elif isinstance(node, s.ForLoop):
            self._walk(node.body, above | {node.var})
        elif isinstance(node, s.Syntax):
            for part in parts(type(node)):
                self._walk(getattr(node, part), above)
