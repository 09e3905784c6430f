"""Splits of loops and axes, written out in the template of a rule."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from ...ir.diagnostic import DplcError, Span, did_you_mean
from ...ir.loop import LOOP_ROLES
from ...ir.text import equations as eq
from ...ir.text import syntax as s
from ...ir.text.read_statements import ROLES
from ...ir.text.syntax import children, rebuilt, walk
from ...ir.tile import AXIS_ROLES
from .spelling import expression
from .typed_slots import calls, every, names, names_in, substituted

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
    size: s.Syntax | None
    role: str | None
    home: MixedRadix
    cut: MixedRadix | None = None

    @property
    def count(self) -> s.Syntax:
        """The number of its values. Without a size, the outermost digit covers what the others leave."""
        return self.home.outermost(self.span) if self.size is None else self.size


@dataclass(eq=False)
class MixedRadix:
    """Axes or loops replaced by digits, the outermost first.

    what: their names. size: the number of values of each. used: whether the template reads it.
    """

    what: tuple[s.NameOf, ...]
    size: s.Syntax = field(init=False)
    digits: list[Digit] = field(default_factory=list)
    used: bool = False

    @property
    def span(self) -> Span:
        return self.what[0].span

    @property
    def ragged(self) -> s.Syntax | None:
        """The end of the split index, if the digits may run beyond it."""
        sizes = tuple(digit.size for digit in self.digits)
        return None if any(node.op == "//" for node in every(sizes, s.Operation)) else self.size

    def outermost(self, at: Span) -> s.Syntax:
        """Return the number of values that the digits after the first one leave to it."""
        rest = self.sizes_from(1)
        return s.Apply(at, "ceildiv", (self.size, product(rest))) if rest else self.size

    def sizes_from(self, place: int) -> s.Nodes:
        """Return the numbers of values of the digits from a place on."""
        return tuple(digit.count for digit in self.digits[place:])

    def terms(self, held: Held, at: Span) -> Iterator[s.Syntax]:
        """Yield the summands of the index over all values. held: digits that are not split further here."""
        for place, digit in enumerate(self.digits, 1):
            cut, sizes = digit.cut, self.sizes_from(place)
            value = [s.NameOf(at, digit.name)] if cut is None or digit.name in held else cut.terms(held, at)
            yield from (s.Operation(at, "*", total(value), product(sizes)),) if sizes else value

    def value(self, held: Held, at: Span) -> s.Syntax:
        """Return what an old axis or loop is, computed from the digits."""
        return total(self.terms(held, at))

    def all_digits(self) -> Iterator[Digit]:
        """Yield the digits, and the digits of those that are split further."""
        for digit in self.digits:
            yield digit
            yield from digit.cut.all_digits() if digit.cut is not None else ()


def total(terms: Iterable[s.Syntax], op: str = "+") -> s.Syntax:
    return functools.reduce(lambda a, b: s.Operation(a.span, op, a, b), terms)


def product(sizes: Iterable[s.Syntax]) -> s.Syntax:
    return total(sizes, "*")


class Splits:
    """All splits of a rule. Pass the clauses to `clause`, the template to `block`, then call `finish`.

    sizes: of the axes and loops of the pattern. under: those that enclose each run of the pattern, and the values that
    `let` and `pick` compute from such runs. wholes: by the axis or loop of the pattern; digits: by name, the last of
    each.
    """

    def __init__(self, rule: s.Rule):
        pattern = tuple(clause.body for clause in rule.clauses if isinstance(clause, s.Match))
        self.sizes = dict(axes_and_loops(pattern))
        self.under = dict(scopes(pattern))
        bound = (*rule.parameters, *rule.clauses)
        self.given = {one.name for one in bound if isinstance(one, s.Parameter | s.LetClause | s.PickClause)}
        self.fresh: set[str] = set()  # parts that are called after what is split
        self.wholes: dict[str, MixedRadix] = {}
        self.digits: dict[str, Digit] = {}
        self.all: list[MixedRadix] = []
        self.placed: set[str] = set()
        for clause in rule.clauses:
            match clause:
                case eq.SplitClause():
                    self._split(clause)
                case s.LetClause() | s.PickClause():
                    if found := [self.under[name.text] for name in names(clause) if name.text in self.under]:
                        self.under[clause.name] = frozenset().union(*found)
        asked = {name.text for call in calls(rule.clauses) if call.fn == WITHIN for name in names(call.items)}
        self.guarded = [name for name, whole in self.wholes.items() if whole.ragged and name not in asked]

    def fresh_names(self, clause: eq.SplitClause) -> Iterator[s.LetClause]:
        """Yield lets that name a part such as `i_o` after the name of `i` in the program."""
        said = names_in(clause.what) & self.sizes.keys()
        for part in clause.parts:
            base, _, suffix = part.name.rpartition("_")
            if base in said and suffix and part.name not in self.given | self.fresh:
                self.fresh.add(part.name)
                call = s.Apply(part.span, "fresh", (s.NameOf(part.span, base), s.Text(part.span, suffix)))
                yield s.LetClause(part.span, part.name, call)

    def covers(self) -> Iterator[s.Cover]:
        """Yield the conditions on the parts of each split that their sizes do not show."""
        for split in self.all:
            counts, divide = split.sizes_from(0), split.ragged is None
            if divide or expression(counts[0]) != expression(split.outermost(split.span)):
                yield s.Cover(split.span, ", ".join(map(expression, split.what)), split.size, counts, divide)

    # ---- splits
    @property
    def uncut(self) -> dict[str, Digit]:
        """The digits that are not split further, by name."""
        return {name: digit for name, digit in self.digits.items() if digit.cut is None}

    def _split(self, clause: eq.SplitClause) -> None:
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

    def _whole(self, node: s.NameOf, split: MixedRadix) -> s.Syntax:
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

    def _parts(self, parts: tuple[eq.SplitPart, ...], split: MixedRadix) -> Iterator[Digit]:
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
            written = size.value if isinstance(size, s.Number) else 1
            if size is not None and (isinstance(size, s.Text | s.Group | s.Prefix) or written < 1 or written % 1):
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
            case s.Match():
                return node
            case s.Subscript(base=base, items=items):
                return replace(node, items=tuple(made for item in items for made in self._placed_part(base, item)))
        return rebuilt(node, self.clause)

    def _placed_part(self, base: s.Syntax, item: s.Syntax) -> s.Nodes:
        """Rewrite `row := 7` to substitutions of the axes or loops that contain the part, with 7 for the part."""
        match item:
            case s.Substitution(span=at, left=s.NameOf(text=part), right=right) if part not in self.wholes:
                made = tuple(
                    s.Substitution(
                        at,
                        s.NameOf(item.left.span, name),
                        substituted(home.value(frozenset({part}), at), {part: right}, words=False),
                    )
                    for name, home in self._substituted(base).items()
                    if any(part == digit.name for digit in home.all_digits())
                )
                return made or (item,)
        return (item,)

    # ---- statements
    def block(self, statements: s.Nodes, held: Held = frozenset()) -> s.Nodes:
        """Rewrite the statements of a block; adjacent runs share a guard."""
        written: list[s.Syntax] = []
        for ends, group in itertools.groupby(statements, lambda statement: self._ends(statement, held)):
            body = tuple(self.node(statement, held) for statement in group)
            written += self._within([s.NameOf(body[0].span, name) for name in ends], body, body[0].span, held)
        return tuple(written)

    def _ends(self, statement: s.Syntax, held: Held) -> list[str]:
        """Return the axes and loops whose end a run must respect."""
        under = self._substituted(statement.run.base, held) if isinstance(statement, s.RunStatement) else {}
        return [name for name in self.guarded if name in under]

    def _within(self, items: Iterable[s.Syntax], body: s.Nodes, at: Span, held: Held) -> s.Nodes:
        """Put statements under the guards that digits are not beyond the end of some axes and loops."""
        for item in reversed([*items]):
            body = (s.IfBlock(at, self._end(item, held), body),)
        return body

    def node(self, node: Any, held: Held) -> Any:
        """Return a piece of a template with the split names written out."""
        bound: Iterable[str] = ()
        match node:
            case s.NameOf(text=name):
                digit = self.digits.get(name)
                home = digit.cut if digit is not None else self.wholes.get(name)
                if name in held or home is None:
                    return node
                home.used = True
                return home.value(held, node.span)
            case s.Apply(fn=fn, items=(_, *_) as items) if fn == WITHIN:
                conditions = [self._end(item, held) for item in items]
                return functools.reduce(lambda a, b: s.Operation(node.span, "and", a, b), conditions)
            case s.Apply(fn="Tile" | "SharedTile" | "RegisterTile" as op):
                return replace(node, items=tuple(one for item in node.items for one in self._axes(op, item, held)))
            case s.Subscript():
                inner = (self._run(i, held) if isinstance(i, s.Run) else self.node(i, held) for i in node.items)
                return replace(node, base=self.node(node.base, held), items=tuple(inner))
            case s.Substitution():
                return replace(node, right=self.node(node.right, held))
            case eq.PartLoop():
                return self._loop(node, held)
            case s.IfBlock(condition=s.Apply(fn=fn, items=items)) if fn == WITHIN:
                return self._within(items, self.block(node.body, held), node.span, held)[0]
            case s.RunStatement():
                return replace(node, run=self._run(node.run, held), changes=self.node(node.changes, held))
            case s.Comprehension():
                held |= {node.variable}
            case s.AxisItem():
                self.placed.add(node.name)
            case s.ForLoop():
                self.placed.add(node.var)
                bound = {node.var}
            case s.EachBlock():
                bound = {node.variable}
        body = getattr(node, "body", None)

        def part(value: Any) -> Any:
            return self.block(value, held.union(bound)) if body and value is body else self.node(value, held)

        return rebuilt(node, part)

    def _loop(self, node: eq.PartLoop, held: Held) -> s.ForLoop:
        name, at = node.var, node.span
        digit = self.digits.get(name)
        if digit is None:
            raise DplcError(
                f"no split has a part `{name}`",
                at,
                did_you_mean(name, self.digits) or f"write its bounds: `for {name} in 0..N:`",
            )
        role = s.NameOf(digit.span, self._place(digit, at, "a loop"))
        stop = self.node(digit.count, held)
        attributes = (role, *self.node(node.attributes, held))
        return s.ForLoop(at, name, s.Number(at, 0), stop, None, attributes, self.block(node.body, held | {name}))

    def _axes(self, op: str, item: s.Syntax, held: Held) -> s.Nodes:
        """Return an item of a tile: a part, `i..` for all parts of what is split, or what any template may say."""
        match item:
            case s.Run(base=s.NameOf(text=name) as base) if name in self.wholes:
                digits = [digit for digit in self.wholes[name].all_digits() if digit.cut is None]
            case s.NameOf(text=name) as base if name in self.digits:
                digits = [self.digits[name]]
            case s.Run() | s.NameOf():
                return (item,)
            case _:
                return (self.node(item, held),)
        axes = []
        for digit in digits:
            size = self.node(digit.count, held)
            role = self._place(digit, base.span, "an axis") if op == "Tile" else None  # the axes of others are labels
            axes.append(s.AxisItem(base.span, digit.name, size, role, None, None))
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
    def _run(self, run: s.Run, held: Held) -> s.Run:
        """Rewrite a run from inside of a split loop or axis, with the digits as its index."""
        base, at = run.base, run.base.span
        said, inner = (base.items, base.base) if isinstance(base, s.Subscript) else ((), base)
        own = {expression(item.left) for item in said if isinstance(item, s.Substitution)}
        items = tuple(self.node(item, held) for item in said)
        for name, home in self._substituted(base, held).items():
            if name not in own:
                home.used = True
                items += (s.Substitution(at, s.NameOf(at, name), home.value(held, at)),)
        return replace(run, base=s.Subscript(at, inner, items)) if items else run

    def _substituted(self, base: s.Syntax, held: Held = frozenset()) -> dict[str, MixedRadix]:
        """Return {axis or loop: its split} of all that enclosed a run in the pattern, in the order of the clauses."""
        while isinstance(base, s.Subscript | s.Member):
            base = base.base
        under = self.under.get(base.text, ()) if isinstance(base, s.NameOf) else ()
        return {
            name: home
            for name, home in self.wholes.items()
            if name in under and (name not in held or name in self.digits)
        }

    def _end(self, item: s.Syntax, held: Held) -> s.Syntax:
        """Return the condition of `within(i)`: the digits of `i` are not beyond its end."""
        name = item.text if isinstance(item, s.NameOf) else ""
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
        return s.Operation(item.span, "<", home.value(held, item.span), home.ragged)


def _refuse_another(digit: Digit, part: eq.SplitPart) -> None:
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


def steps(clause: s.Syntax) -> Iterator[s.Syntax]:
    """Yield a split whose last part is split again, one after the other."""
    if not isinstance(clause, eq.SplitClause):
        yield clause
        return
    yield replace(clause, further=())
    for (*_, last), following in itertools.pairwise((clause.parts, *clause.further)):
        yield eq.SplitClause(clause.span, (s.NameOf(last.span, last.name),), None, following)


def axes_and_loops(statements: object) -> Iterator[tuple[str, s.Syntax]]:
    """Yield the axes of tiles and the loops of a pattern, with their sizes."""
    for node in walk(statements):
        if isinstance(node, s.Apply) and node.fn == "Tile":
            yield from ((item.name, item.extent) for item in node.items if isinstance(item, s.AxisItem))
        elif isinstance(node, s.ForLoop):
            yield node.var, node.stop


def scopes(node: object, above: Held = frozenset()) -> Iterator[tuple[str, Held]]:
    """Yield the runs and the captured statements of a pattern, each with the axes and loops that enclose it."""
    match node:
        case s.Run(base=s.NameOf(text=name)) | s.CaptureStatement(name=name) | s.InsideBlock(name=name):
            yield name, above
        case s.Statement(body=tuple(body)) | s.ForLoop(body=body):
            above |= dict(axes_and_loops(replace(node, body=()))).keys()
            node = body
    for part in node if isinstance(node, tuple) else children(node) if isinstance(node, s.Syntax) else ():
        yield from scopes(part, above)
