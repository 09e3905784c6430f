"""Splits and joins of loops and axes, written out in the template of a rule."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from ...ir.diagnostic import DplcError, Span, did_you_mean
from ...ir.text import equations as eq
from ...ir.text import syntax as s
from ...ir.text.read_statements import ROLES
from .spelling import expression
from .typed_slots import children, names, names_in, rebuilt, substituted, walk

# `split i:M => i_o:ceildiv(M, BM)=BLOCK, i:BM=THREAD`: an axis or loop as digits of a mixed radix, outermost first.
#
# Where a template puts back statements that read `i`, they read i_o*BM + i. A rule may split a digit again, the last
# one in the same clause: `=> i_o=BLOCK, row:BM => ri:FM=REG, i:BM // FM=THREAD`. `join k, l => n` is the inverse. A
# `//` among the sizes says that the digits divide the extent. Otherwise a guard (`< M`) marks the end.


AXES = ("BLOCK", "THREAD", "REG", "VEC")
LOOPS = ("serial", "reduce", "free", "VEC")
WITHIN, SPLIT = "within", "split"
Held = frozenset[str]  # names that a loop of the template binds: they are not replaced


@dataclass(eq=False)
class Digit:
    """A part of a split or join, or what is split again. cut: the split of this digit."""

    name: str
    span: Span
    size: s.Syntax | None
    role: str | None
    home: MixedRadix
    cut: MixedRadix | None = None

    @property
    def count(self) -> s.Syntax:
        """The number of its values. Without a size, the outermost digit covers what the others leave."""
        if self.size is not None:
            return self.size
        assert self.home.size is not None
        rest = [d.size for d in self.home.digits[1:] if d.size is not None]
        return s.Apply(self.span, "ceildiv", (self.home.size, product(rest))) if rest else self.home.size


@dataclass(eq=False)
class MixedRadix:
    """Axes or loops, or one sum, replaced by digits, the outermost first.

    what: the names, or the sum. size: the number of values of the whole, None if it is not given. joined: for a join,
    the sizes of the names, of which the first is the outermost. used: whether the template reads it.
    """

    span: Span
    what: s.Nodes
    size: s.Syntax | None
    joined: s.Nodes = ()
    digits: list[Digit] = field(default_factory=list)
    used: bool = False

    @property
    def guarded(self) -> bool:
        """Return whether the digits may run beyond the split index."""
        sizes = [digit.size for digit in self.digits if digit.size]
        divides = any(isinstance(node, s.Operation) and node.op == "//" for size in sizes for node in walk(size))
        return self.size is not None and not self.joined and not divides

    def terms(self, held: Held, at: Span) -> Iterator[s.Syntax]:
        """Yield the summands of the index over all values. held: digits that are not split further here."""
        for n, digit in enumerate(self.digits):
            sizes = [d.size for d in self.digits[n + 1 :] if d.size is not None]
            whole = digit.cut is None or digit.name in held
            value = (s.NameOf(at, digit.name),) if whole else tuple(digit.cut.terms(held, at))  # type: ignore[union-attr]
            yield from (s.Operation(at, "*", total(value), product(sizes)),) if sizes else value

    def value(self, name: str, held: Held, at: Span) -> s.Syntax:
        """Return what an old axis or loop is, computed from the digits."""
        found = total(self.terms(held, at))
        if self.joined:
            place = [node.text for node in self.what].index(name)  # type: ignore[attr-defined]
            if self.joined[place + 1 :]:
                found = s.Operation(at, "//", found, product(self.joined[place + 1 :]))
            found = s.Operation(at, "%", found, self.joined[place]) if place else found
        return found

    def every(self) -> Iterator[Digit]:
        """Yield the digits, and the digits of those that are split further."""
        for digit in self.digits:
            yield digit
            yield from digit.cut.every() if digit.cut is not None else ()

    def use(self) -> None:
        """Note that the template reads it."""
        self.used = True
        for digit in self.every():
            if digit.cut is not None:
                digit.cut.used = True


def total(terms: Iterable[s.Syntax], op: str = "+") -> s.Syntax:
    return functools.reduce(lambda a, b: s.Operation(a.span, op, a, b), terms)


def product(sizes: Iterable[s.Syntax]) -> s.Syntax:
    return total(sizes, "*")


class Splits:
    """All splits and joins of a rule. Pass the clauses to `clause`, the template to `block`, then call `finish`.

    wholes: by the axis or loop of the pattern; digits: by name, the last of each.
    """

    def __init__(self, rule: s.Rule):
        self.sizes = dict(axes_and_loops(next((c.body for c in rule.clauses if isinstance(c, s.Match)), ())))
        bound = {clause.name for clause in rule.clauses if isinstance(clause, s.LetClause | s.PickClause)}
        self.given = {parameter.name for parameter in rule.parameters} | bound
        self.fresh: set[str] = set()  # parts that are called after what is split
        self.wholes: dict[str, MixedRadix] = {}
        self.digits: dict[str, Digit] = {}
        self.all: list[MixedRadix] = []
        self.under = scopes(rule)
        self.placed: set[str] = set()
        asked: set[str] = set()
        for clause in rule.clauses:
            if isinstance(clause, eq.SplitClause):
                self._split(clause)
            elif isinstance(clause, eq.JoinClause):
                self._join(clause)
            for call in walk(clause if isinstance(clause, s.Rewrite) else ()):
                if isinstance(call, s.Apply) and call.fn == WITHIN:
                    asked |= {name.text for name in names(call.items)}
        self.guarded = [name for name, whole in self.wholes.items() if whole.guarded and name not in asked]

    def fresh_names(self, clause: eq.SplitClause | eq.JoinClause) -> Iterator[s.LetClause]:
        """Yield lets that name a part such as `i_o` after the name of `i` in the program."""
        said = names_in(clause.what)
        for part in clause.parts:
            base, _, suffix = part.name.rpartition("_")
            if base in said & self.sizes.keys() and suffix and part.name not in self.given | self.fresh:
                self.fresh.add(part.name)
                call = s.Apply(part.span, "fresh", (s.NameOf(part.span, base), s.Text(part.span, suffix)))
                yield s.LetClause(part.span, part.name, call)

    def covers(self) -> Iterator[s.Cover]:
        """Yield the conditions on the parts of each split that their sizes do not show."""
        for split in self.all:
            if not split.joined and split.size is not None:
                counts = tuple(digit.count for digit in split.digits)
                rounded = Digit("", split.span, None, None, split).count
                if not split.guarded or expression(counts[0]) != expression(rounded):
                    named = ", ".join(map(expression, split.what))
                    yield s.Cover(split.span, named, split.size, counts, not split.guarded)

    # ---- splits
    def _split(self, clause: eq.SplitClause) -> None:
        named = [node for node in clause.what if isinstance(node, s.NameOf)]
        odd = next((node for node in clause.what if not isinstance(node, s.NameOf)), None)
        if odd is not None and len(clause.what) > 1:
            raise DplcError("several names are split at once, or one sum", odd.span)
        cut = [digit for n in named if (digit := self.digits.get(n.text)) is not None and digit.cut is None]
        if cut and len(named) > 1:
            raise DplcError("one part is split further at a time", clause.what[0].span)
        split = MixedRadix(clause.what[0].span, clause.what, clause.size)
        for node in named:
            if not cut:
                self._whole(node, split)
            known = cut[0].count if cut else self.sizes[node.text]
            if clause.size is not None and expression(clause.size) != expression(known):
                what = f"`{node.text}` has {expression(known)} values, not {expression(clause.size)}"
                raise DplcError(what, clause.size.span)
            split.size = clause.size or known
        split.digits += self._parts(clause.parts, split)
        for digit in cut:
            digit.cut = split
        self.digits |= {digit.name: digit for digit in split.digits}
        self.all.append(split)

    def _whole(self, node: s.NameOf, split: MixedRadix) -> None:
        """Record the split of an axis or a loop of the pattern."""
        if node.text in self.wholes:
            line = self.wholes[node.text].span.line
            raise DplcError(f"`{node.text}` is split twice", node.span, (f"first in line {line}",))
        if node.text not in self.sizes:
            known = [*self.sizes, *(name for name, digit in self.digits.items() if digit.cut is None)]
            what = f"the pattern binds no axis or loop `{node.text}`"
            raise DplcError(what, node.span, (), did_you_mean(node.text, known))
        self.wholes[node.text] = split

    def _parts(self, parts: tuple[eq.SplitPart, ...], split: MixedRadix) -> Iterator[Digit]:
        seen: set[str] = set()
        own = names_in(split.what)
        for n, part in enumerate(parts):
            if part.name in seen:
                raise DplcError(f"the part `{part.name}` stands twice in one split", part.span)
            seen.add(part.name)
            digit = self.digits.get(part.name)
            if digit is not None and digit.cut is None and part.name not in own:
                _refuse_another(digit, part)
                yield digit
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
            size = part.size
            written = size.value if isinstance(size, s.Number) else 1
            if size is not None and (isinstance(size, s.Text | s.Group | s.Prefix) or written < 1 or written % 1):
                what = f"the part `{part.name}` has {expression(size)} values"
                raise DplcError(what, size.span, (), "its size is a whole number of 1 or more")
            yield Digit(part.name, part.span, size, part.role, split)

    # ---- joins
    def _join(self, clause: eq.JoinClause) -> None:
        at = clause.what[0].span
        if len(clause.what) < 2:
            raise DplcError("a join is of two axes or loops, or more", at)
        sizes, (part,) = tuple(self.sizes.get(name.text, name) for name in clause.what), clause.parts
        join = MixedRadix(at, clause.what, product(sizes), sizes)
        for name in clause.what:
            self._whole(name, join)
        join.digits.append(Digit(part.name, part.span, part.size, part.role, join))
        self.digits[part.name] = join.digits[0]
        self.all.append(join)

    # ---- the template with splits and joins written out: axes and loops of parts, substitutions, guards
    def finish(self) -> None:
        """Raise DplcError for a part that is neither an axis nor a loop, or a split that the template does not use."""
        bound = self.given | (self.sizes.keys() - self.wholes.keys())  # without the template
        for split in self.all:
            for digit in split.digits:
                if digit.cut is None and digit.name not in self.placed | bound:
                    hint = f"name it in the template: `Tile(.., {digit.name})`, or `for {digit.name}:`"
                    raise DplcError(f"the part `{digit.name}` is neither an axis nor a loop", digit.span, (), hint)
            if not split.used:
                raise DplcError("the template puts nothing back that this splits", split.span)

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
        part = item.left.text if isinstance(item, s.Substitution) and isinstance(item.left, s.NameOf) else ""
        homes = self._substituted(base, frozenset()) if part and part not in self.wholes else {}
        found = [(name, home) for name, home in homes.items() if any(part == digit.name for digit in home.every())]
        for name, home in found:
            whole = home.value(name, frozenset({part}), item.span)
            value = substituted(whole, {part: item.right}, words=False)  # type: ignore[attr-defined]
            yield s.Substitution(item.span, s.NameOf(item.left.span, name), value)  # type: ignore[attr-defined]
        if not found:
            yield item

    # ---- statements
    def block(self, statements: s.Nodes, held: Held = frozenset()) -> s.Nodes:
        """Rewrite the statements of a block; adjacent runs share a guard."""
        found: list[s.Syntax] = []
        for ends, group in itertools.groupby(statements, lambda statement: self._ends(statement, held)):
            body = tuple(self.node(statement, held) for statement in group)
            found += self._within([s.NameOf(body[0].span, name) for name in ends], body, body[0].span, held)
        return tuple(found)

    def _ends(self, statement: s.Syntax, held: Held) -> tuple[str, ...]:
        """Return the axes and loops whose end a run must respect."""
        under = self._substituted(statement.run.base, held) if isinstance(statement, s.RunStatement) else {}
        return tuple(name for name in self.guarded if name in under)

    def _within(self, items: Iterable[s.Syntax], body: s.Nodes, at: Span, held: Held) -> s.Nodes:
        """Put statements under the guards that digits are not beyond the end of some axes and loops."""
        for item in reversed([*items]):
            body = (s.IfBlock(at, self._end(item, held), body),)
        return body

    def _loop(self, node: eq.PartLoop, held: Held) -> s.ForLoop:
        digit = self.digits.get(node.var)
        if digit is None:
            hint = did_you_mean(node.var, self.digits) or f"write its bounds: `for {node.var} in 0..N:`"
            raise DplcError(f"no split has a part `{node.var}`", node.span, (), hint)
        if digit.role not in LOOPS:
            raise _no_such_role(digit, node.span, "a loop", "an axis", f"serial`; loops are {', '.join(LOOPS)}")
        self.placed.add(node.var)
        stop = self.node(digit.count, held)
        attributes = (s.NameOf(digit.span, digit.role), *self.node(node.attributes, held))
        body = self.block(node.body, held | {node.var})
        return s.ForLoop(node.span, node.var, s.Number(node.span, 0), stop, None, attributes, body)

    def node(self, node: Any, held: Held) -> Any:
        """Return a piece of a template with the split names written out."""
        match node:
            case tuple():
                return tuple(self.node(item, held) for item in node)
            case s.NameOf():
                digit = self.digits.get(node.text)
                home = digit.cut if digit is not None else self.wholes.get(node.text)
                if node.text in held or home is None:
                    return node
                home.use()
                return home.value(node.text, held, node.span)
            case s.Apply() if node.fn == WITHIN and node.items:
                conditions = [self._end(item, held) for item in node.items]
                return functools.reduce(lambda a, b: s.Operation(node.span, "and", a, b), conditions)
            case s.Apply(fn="Tile" | "SharedTile"):
                return replace(node, items=tuple(one for item in node.items for one in self._axes(node.fn, item, held)))
            case s.Subscript():
                items = (self._run(i, held) if isinstance(i, s.Run) else self.node(i, held) for i in node.items)
                return replace(node, base=self.node(node.base, held), items=tuple(items))
            case s.Substitution():
                return replace(node, right=self.node(node.right, held))
            case eq.PartLoop():
                return self._loop(node, held)
            case s.IfBlock(condition=s.Apply() as asked) if asked.fn == WITHIN:
                return self._within(asked.items, self.block(node.body, held), node.span, held)[0]
            case s.RunStatement():
                return replace(node, run=self._run(node.run, held), changes=self.node(node.changes, held))
            case s.Comprehension():
                held = held | {node.variable}
            case s.ForLoop():
                self.placed.add(node.var)
        if not isinstance(node, s.Syntax):
            return node
        bound = {node.var} if isinstance(node, s.ForLoop) else node.names if isinstance(node, s.EachBlock) else ()
        body: Any = getattr(node, "body", None)
        made = rebuilt(replace(node, body=None) if body else node, lambda part: self.node(part, held))  # type: ignore[call-arg]
        return replace(made, body=self.block(body, held | {*bound})) if body else made

    def _axes(self, op: str, item: s.Syntax, held: Held) -> Iterator[s.Syntax]:
        """Yield an item of a tile: a part, `i..` for all parts of what is split, or what any template may say."""
        base = item.base if isinstance(item, s.Run) else item
        known: Any = self.wholes if isinstance(item, s.Run) else self.digits
        home = known.get(base.text) if isinstance(base, s.NameOf) else None
        if isinstance(item, s.AxisItem):
            self.placed.add(item.name)
        if home is not None:
            for digit in home.every() if isinstance(item, s.Run) else (home,):
                if digit.cut is None or digit is home:
                    yield self._axis(op, digit, base, held)
        else:
            yield item if isinstance(item, s.Run | s.NameOf) else self.node(item, held)

    def _axis(self, op: str, digit: Digit, at: s.Syntax, held: Held) -> s.AxisItem:
        size = self.node(digit.count, held)
        if op == "SharedTile":  # its axes are labels
            return s.AxisItem(at.span, digit.name, size, None, None, None)
        if digit.role not in AXES:
            raise _no_such_role(digit, at.span, "an axis", "a loop", f"THREAD`; axes are {', '.join(AXES)}")
        self.placed.add(digit.name)
        return s.AxisItem(at.span, digit.name, size, digit.role, None, None)

    # ---- runs and guards
    def _run(self, run: s.Run, held: Held) -> s.Run:
        """Rewrite a run from inside of a split loop or axis, with the digits as its index."""
        said, inner = (run.base.items, run.base.base) if isinstance(run.base, s.Subscript) else ((), run.base)
        own = {item.left.text for item in said if isinstance(item, s.Substitution) and isinstance(item.left, s.NameOf)}
        items = tuple(self.node(item, held) for item in said)
        at = run.base.span
        moved = [
            (home, name, s.NameOf(at, name))
            for name, home in self._substituted(run.base, held).items()
            if name not in own
        ]
        if isinstance(inner, s.NameOf) and inner.text in self.under:
            sums = (split for split in self.all if not isinstance(split.what[0], s.NameOf))  # `split j*F + r => ..`
            moved += [(split, "", split.what[0]) for split in sums]  # type: ignore[misc]
        for home, name, left in moved:
            home.use()
            items += (s.Substitution(at, left, home.value(name, held, at)),)
        return replace(run, base=s.Subscript(at, inner, items)) if items else run

    def _substituted(self, base: s.Syntax, held: Held) -> dict[str, MixedRadix]:
        """Return {axis or loop: its split} of all that enclosed a run in the pattern, in the order of the clauses."""
        while isinstance(base, s.Subscript | s.Member):
            base = base.base
        under = self.under.get(base.text, frozenset()) if isinstance(base, s.NameOf) else frozenset()
        return {
            name: home
            for name, home in self.wholes.items()
            if name in under and (name not in held or name in self.digits)
        }

    def _end(self, item: s.Syntax, held: Held) -> s.Syntax:
        """Return the condition of `within(i)`: the digits of `i` are not beyond its end."""
        name = item.text if isinstance(item, s.NameOf) else ""
        home = self.wholes.get(name)
        if home is None or home.joined:
            hint = did_you_mean(name, self.wholes)
            raise DplcError("`within` asks of an axis or loop that this rule splits", item.span, (), hint)
        if not home.guarded or home.size is None:
            notes = ("a `//` among the sizes of its parts says that they divide it",)
            raise DplcError(f"`{name}` has no ragged end", item.span, notes)
        home.use()
        return s.Operation(item.span, "<", home.value(name, held, item.span), home.size)


def _refuse_another(digit: Digit, part: eq.SplitPart) -> None:
    """Raise DplcError if two splits that share a part disagree about it."""
    line = f"in line {digit.span.line}"
    if part.size is not None and expression(part.size) != expression(digit.count):
        notes = (f"it has {expression(digit.count)} values {line}",)
        raise DplcError(f"the part `{part.name}` of two splits has two sizes", part.span, notes)
    if part.role is not None and part.role != digit.role:
        notes = (f"it is {digit.role or 'without a role'} {line}",)
        raise DplcError(f"the part `{part.name}` of two splits has two roles", part.span, notes)


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


def axes_and_loops(statements: s.Nodes | s.Syntax) -> Iterator[tuple[str, s.Syntax]]:
    """Yield the axes of tiles and the loops of a pattern, with their sizes."""
    for node in walk(statements):
        if isinstance(node, s.Apply) and node.fn == "Tile":
            yield from ((item.name, item.extent) for item in node.items if isinstance(item, s.AxisItem))
        elif isinstance(node, s.ForLoop):
            yield node.var, node.stop


def _no_such_role(digit: Digit, at: Span, kind: str, other: str, options: str) -> DplcError:
    """Return the error for a part that is placed as a loop or an axis, and is the other or neither."""
    role = "" if digit.role is None else f"{other}, {digit.role}, "
    hint = f"give it a role where it is split: `{digit.name}:N={options}"
    return DplcError(f"`{digit.name}` is {role}not {kind}", at, (), hint)


def scopes(rule: s.Rule) -> dict[str, frozenset[str]]:
    """Return the axes and loops that enclose each run of the pattern, by the name of the run.

    The same axes and loops enclose the values that `let` and `pick` compute from such runs.
    """
    under: dict[str, frozenset[str]] = {}

    def visit(node: Any, above: frozenset[str]) -> None:
        for item in node if isinstance(node, tuple) else ():
            visit(item, above)
        if isinstance(node, s.Run) and isinstance(node.base, s.NameOf):
            under[node.base.text] = above
        elif isinstance(node, s.CaptureStatement | s.InsideBlock):
            under[node.name] = above
        if isinstance(node, s.Statement | s.ForLoop) and node.body is not None:
            visit(node.body, above | dict(axes_and_loops(replace(node, body=()))).keys())
        elif isinstance(node, s.Syntax):
            visit(children(node), above)

    for clause in rule.clauses:
        if isinstance(clause, s.Match):
            visit(clause.body, frozenset())
        elif isinstance(clause, s.LetClause | s.PickClause):
            found = [under[name.text] for name in names(clause) if name.text in under]
            if found and not any(isinstance(call, s.Apply) and call.fn == SPLIT for call in walk(clause)):
                under[clause.name] = frozenset().union(*found)
    return under
