"""A template in which splits and joins are written out: axes and loops of parts, substitutions, guards."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from ....ir.diagnostic import DplcError, did_you_mean
from ....ir.text import equations as eq
from ....ir.text import syntax as s
from ..positions import names, parts, rebuilt, walk
from .splits import Digit, Join, RadixSplit, Splits

AXES = ("BLOCK", "THREAD", "REG", "VEC")
LOOPS = ("serial", "reduce", "free", "VEC")
WITHIN, SPLIT = "within", "split"
Held = frozenset[str]  # names that a loop of the template binds: they stand for themselves


class SplitTemplate:
    """Rewrites the template of a rule. Call `block`, then `finish`."""

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
        """What no template says: a part without a place, a split that nothing is put back under."""
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
        """What is there without the template."""
        return self.splits.given | (self.splits.sizes.keys() - self.splits.wholes.keys())

    # ---- clauses
    def clause(self, node: Any) -> Any:
        """A clause: `split(body)` is what the template puts back, `last[row := 7]` has a part at one place."""
        if isinstance(node, s.Match):
            return node
        if isinstance(node, s.Apply) and node.fn == SPLIT and len(node.items) == 1:
            return self._run(s.Run(node.span, node.items[0]), frozenset()).base
        if isinstance(node, s.Subscript):
            items = tuple(made for item in node.items for made in self._placed_part(node.base, item))
            return dataclasses.replace(node, items=items)
        return rebuilt(node, self.clause)

    def _placed_part(self, base: s.Syntax, item: s.Syntax) -> Iterator[s.Syntax]:
        """`row := 7`: the axis or loop that has the part, with 7 in the place of it."""
        left = item.left if isinstance(item, s.Substitution) else None
        if not isinstance(item, s.Substitution) or not isinstance(left, s.NameOf):
            yield item
            return
        homes = self._substituted(base, frozenset()).items()
        found = [
            (name, home) for name, home in homes if left.text in parts_of(home) and left.text not in self.splits.wholes
        ]
        for name, home in found:
            value = put(home.value(name, frozenset({left.text}), item.span), left.text, item.right)
            yield s.Substitution(item.span, s.NameOf(left.span, name), value)
        if not found:
            yield item

    # ---- statements
    def block(self, statements: tuple[s.Syntax, ...], held: Held = frozenset()) -> tuple[s.Syntax, ...]:
        """A block; runs that stand side by side share a guard."""
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
        """The axes and loops whose end a run has to respect."""
        if not isinstance(statement, s.RunStatement):
            return ()
        under = self._substituted(statement.run.base, held)
        return tuple(name for name in self.guarded if name in under)

    def _under(self, ends: tuple[str, ...], body: tuple[s.Syntax, ...], held: Held) -> s.Syntax:
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
            return dataclasses.replace(node, domain=domain, body=self.block(node.body, held | {*node.names}))
        if isinstance(node, s.IfBlock) and isinstance(node.condition, s.Apply) and node.condition.fn == WITHIN:
            body = self.block(node.body, held)
            for item in reversed(node.condition.items):
                body = (s.IfBlock(node.span, self._end(item, held), body),)
            return body[0]
        if isinstance(node, s.RunStatement):
            changes = self.node(node.changes, held)
            return dataclasses.replace(node, run=self._run(node.run, held), changes=changes)
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
        """A piece of a template with the names of what is split written out."""
        if isinstance(node, tuple):
            return tuple(self.node(item, held) for item in node)
        if isinstance(node, s.NameOf):
            return self._name(node, held)
        if isinstance(node, s.Apply):
            return self._apply(node, held)
        if isinstance(node, s.Subscript):
            items = (self._run(i, held) if isinstance(i, s.Run) else self.node(i, held) for i in node.items)
            return dataclasses.replace(node, base=self.node(node.base, held), items=tuple(items))
        if isinstance(node, s.Substitution):
            return dataclasses.replace(node, right=self.node(node.right, held))
        if isinstance(node, s.Comprehension):
            held = held | {node.variable}
        if not isinstance(node, s.Syntax):
            return node
        found: dict[str, Any] = {}
        for field in dataclasses.fields(node):
            value = getattr(node, field.name)
            if field.name == "body" and isinstance(value, tuple):
                found["body"] = self.block(value, held)
            elif field.name != "span":
                found[field.name] = self.node(value, held)
        return dataclasses.replace(node, **found)

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
            return dataclasses.replace(node, items=items)
        return dataclasses.replace(node, items=self.node(node.items, held))

    def _axes(self, op: str, item: s.Syntax, held: Held) -> Iterator[s.Syntax]:
        """An item of a tile: a part, `i..` for all parts of what is split, or what any template may say."""
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
        """A run that stood under what is split, with its digits in the place of it."""
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
        return dataclasses.replace(run, base=s.Subscript(at, inner, items)) if items else run

    def _substituted(self, base: s.Syntax, held: Held) -> dict[str, RadixSplit | Join]:
        """{axis or loop: its split} of all that a run stood under in the pattern, in the order of the clauses."""
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
        """`within(i)`: that the digits of `i` are not beyond its end."""
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
    """The names of the parts, and of the parts of these."""
    found = {digit.name for digit in home.digits}
    return found.union(*(parts_of(digit.cut) for digit in home.digits if digit.cut is not None))


def put(node: Any, name: str, value: s.Syntax) -> Any:
    """An expression with a value in the place of a name."""
    if isinstance(node, s.NameOf):
        return value if node.text == name else node
    if isinstance(node, s.Operation):
        return dataclasses.replace(node, a=put(node.a, name, value), b=put(node.b, name, value))
    return node


class Scopes:
    """under: {name of a run: the axes and loops that it stands under in the pattern}; what is made from such runs by
    `let` and `pick` stands under the same."""

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
