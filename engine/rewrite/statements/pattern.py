"""Patterns to Python: a generator function that yields every way to match, in order, with as few steps as possible.

A run of statements becomes nested `for` loops over its split points and straight-line tests in between; `continue` is
backtracking. What a variable stands for is a piece of text (`s3.start`, `b2[0:j5]`) until the pattern has matched as a
whole; only then is the environment built. Two variants are generated: the second one reports every near miss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ....ir.diagnostic import DplcError
from ....ir.node import Node
from ...language import core as s
from ...language.evaluate import RESERVED
from ...language.statements import NAMES, Shape, op_shape, shape_of
from .expressions import RuleExpressions
from .values import Symbol, ValueWriter

Near = Callable[[int, s.Syntax, Any], None]
Match = Callable[[Any, int, dict[str, Any], Near | None], Iterator[tuple[int, dict[str, Any]]]]


def sticky(cls: type[Node]) -> str:
    """Where the matched statements of a class with sticky fields stand in the environment."""
    return f"@{cls.__name__}"


@dataclass(frozen=True)
class Pattern:
    """root: the class of the first statement, None if that is a run; needs: the marks of classes that must be there."""

    match: Match
    root: type[Node] | None
    needs: int
    names: tuple[str, ...]


def compile_pattern(
    statements: tuple[s.Syntax, ...], expressions: RuleExpressions, title: str, given: Iterable[str], evidence: bool
) -> Pattern:
    """given: variables that are bound before the match (the parameters of a local rule)."""
    maker = _start(expressions, given, evidence)
    items = tuple(item for item in statements if not isinstance(item, s.PassStatement))
    end = maker.items("block", "start", items, False, maker.one_statement)
    maker.put(f"if {end} == start: {maker.fail}")  # a rewrite of nothing has no place
    maker.finish(end)
    root = _root(items[0]) if items else None
    return Pattern(maker.compile("match", title), root, sum(cls.mark for cls in maker.needs), tuple(maker.symbols))


def compile_statement(shape: Shape, expressions: RuleExpressions, title: str, given: Iterable[str]) -> Match:
    """A matcher of one statement: the first of the block that it is given."""
    maker = _start(expressions, given, False)
    maker.put("x = block[start]")
    maker.statement(shape, "x")
    maker.finish("start + 1")
    return maker.compile("match", title)  # type: ignore[no-any-return]


def _start(expressions: RuleExpressions, given: Iterable[str], evidence: bool) -> _Maker:
    maker = _Maker(expressions, evidence)
    maker.open("def match(block, start, env, near):")
    for name in given:
        variable = maker.local("v")
        maker.put(f"{variable} = env[{maker.constant(name)}]")
        maker.symbols[name] = Symbol(variable, "value")
    return maker


def _root(item: s.Syntax) -> type[Node] | None:
    if isinstance(item, s.CaptureStatement) and item.repeat == "*":
        return None
    shape = shape_of(item)
    return None if shape is None else shape.cls


class _Maker(ValueWriter):
    """Writes one matcher. Code is put down in the order in which a match proceeds; loops stay open to the end."""

    def __init__(self, expressions: RuleExpressions, evidence: bool):
        super().__init__(expressions, evidence)
        self.sticky: dict[str, list[str]] = {}
        self.needs: set[type[Node]] = set()

    def finish(self, end: str) -> None:
        hidden = "".join(f", {self.constant(key)}: ({', '.join(found)},)" for key, found in self.sticky.items())
        bound = self.environment(self.symbols)
        self.put(f"result = {bound[:-1]}{hidden}}}")
        for name, symbol in self.symbols.items():
            if symbol.maybe:
                self.put(f"if {symbol.text} is UNBOUND: del result[{self.constant(name)}]")
        self.put(f"yield {end}, result")

    # ---- lists of items: statements, axes, parameters, indices
    def items(
        self, whole: str, base: str, items: tuple[Any, ...], closed: bool, one: Callable[[Any, str], None]
    ) -> str:
        """Match the items against `whole[base:]`; `closed`: they must reach its end. Gives the end as text."""
        size = self.local("n")
        self.put(f"{size} = len({whole})")
        least = [_least(item) for item in items]
        flexible = [not _single(item) for item in items]
        in_block = one == self.one_statement
        if not (self.evidence and in_block):
            fixed = closed and not any(flexible)
            self.reject(f"{size} != {sum(least)}" if fixed else f"{size} - {base} < {sum(least)}")
            closed = closed and not fixed
        offset = 0
        for position, item in enumerate(items):
            rest, open_rest = sum(least[position + 1 :]), any(flexible[position + 1 :])
            at = _sum(base, offset)
            if flexible[position]:
                following = items[position + 1] if position + 1 < len(items) else None
                if following is not None and isinstance(item, s.InsideBlock):
                    raise DplcError("`inside` covers the rest of its block: nothing can follow it", following.span)
                last = not open_rest and (closed or following is None)
                ahead = self.bound_field(following) if in_block and not self.evidence else None
                base, offset = self.stretch(item, whole, at, size, (rest, following) if last else rest, ahead), 0
                closed = closed and not (last and not isinstance(item, s.CaptureStatement))
                continue
            if self.evidence and in_block:
                self.reject(f"{at} >= {size}", item)
            variable = self.local("x")
            self.put(f"{variable} = {whole}[{at}]")
            one(item, variable)
            offset += 1
        end = _sum(base, offset)
        if closed:
            found = f"{whole}[{end}] if {end} < {size} else None"
            self.reject(f"{end} != {size}", _the_end(items) if in_block else None, found)
        return end

    def stretch(self, item: Any, whole: str, at: str, size: str, rest: Any, ahead: str | None) -> str:
        """An item that takes a varying number of places, before `rest` more; a pair says that the rest is fixed.

        ahead: of the statement that follows, what `statements_with` finds it by.
        """
        if isinstance(item, s.CaptureStatement):
            return self.capture_run(item, whole, at, size)
        if isinstance(item, s.InsideBlock):
            return self.inside(item, whole, at, size)
        run = item.run if isinstance(item, s.RunStatement) else item
        if not isinstance(run.base, s.NameOf) or (isinstance(item, s.RunStatement) and item.changes):
            raise DplcError("a run of a pattern reads `name..`", item.span)
        end = self.local("j")
        role = None if run.role in (None, "_") else self.role(run)
        if rest.__class__ is tuple:  # the run ends where the fixed items after it begin
            self.put(f"{end} = {size} - {rest[0]}")
            self.reject(f"{end} < {at}", rest[1] if isinstance(item, s.RunStatement) else None)
            if role:
                self.reject(f"role_end({whole}, {at}, {role}) < {end}")
        else:
            stop = f"{size} + {1 - rest}"
            stop = f"min({stop}, role_end({whole}, {at}, {role}) + 1)" if role else stop
            ends = f"range({at}, {stop})" if ahead is None else f"statements_with({whole}, {at}, {stop}, {ahead})"
            self.loop(f"for {end} in {ends}:", item)
        self.bind(run.base.text, f"{whole}[{at}:{end}]", "value")
        return end

    def bound_field(self, following: Any) -> str | None:
        """The class of a statement, and a field of it whose value an earlier statement has bound, with that value."""
        shape = shape_of(following) if following is not None and _single(following) else None
        if shape is None:
            return None
        for name, value in shape.fields.items():
            symbol = self.symbols.get(value.text) if isinstance(value, s.NameOf) else None
            if symbol is None or symbol.kind != "value" or symbol.maybe or shape.cls.by_name[name].sort in NAMES:
                continue
            return f"{self.constant(shape.cls)}, {self.constant(name)}, {symbol.text}"
        return None

    def role(self, run: s.Run) -> str:
        if run.role not in RESERVED:
            raise DplcError(f"`{run.role}` is not a role", run.span)
        return self.constant(run.role)

    def capture_run(self, item: s.CaptureStatement, whole: str, at: str, size: str) -> str:
        """`s: Op(..)+`: as many as there are; what one of them binds, all of them share."""
        shape = _required_shape(item)
        names = self.scout(shape)
        for name, kind in names.items():
            variable = self.local("v")
            self.put(f"{variable} = UNBOUND")
            self.symbols[name] = Symbol(variable, kind, maybe=True)
        shared = "".join(f"{self.symbols[name].text}, " for name in names)
        test, one, end, result = self.local("e"), self.local("x"), self.local("j"), self.local("r")
        depth, fail, needs = self.depth, self.fail, set(self.needs)
        self.open(f"def {test}({one}, {shared}):", "return None")
        self.statement(shape, one)
        self.put(f"return ({shared})")
        self.depth, self.fail = depth, fail
        self.put(f"{end} = {at}")
        self.put(f"while {end} < {size}:")
        self.put(f"    {result} = {test}({whole}[{end}], {shared})")
        self.put(f"    if {result} is None: break")
        if names:
            self.put(f"    {shared}= {result}")
        self.put(f"    {end} += 1")
        if item.repeat == "+":
            self.reject(
                f"{end} == {at}", item if self.evidence else None, f"{whole}[{end}] if {end} < {size} else None"
            )
            for name in names:
                self.symbols[name].maybe = False
        else:
            self.needs = needs
        self.bind(item.name, f"{whole}[{at}:{end}]", "value")
        return end

    def scout(self, shape: Shape) -> dict[str, str]:
        """The variables that a statement pattern would bind, with their kinds."""
        scout = _Maker(self.expressions, False)
        scout.symbols = {name: Symbol(symbol.text, symbol.kind) for name, symbol in self.symbols.items()}
        scout.statement(shape, "x")
        return {name: symbol.kind for name, symbol in scout.symbols.items() if name not in self.symbols}

    def inside(self, item: s.InsideBlock, whole: str, at: str, size: str) -> str:
        segment, path, block, start = (self.local(letter) for letter in "spbk")
        self.put(f"{segment} = {whole}[{at}:]")
        self.loop(f"for {path}, {block} in holes({segment}):", item)
        self.loop(f"for {start} in range(len({block})):", item)
        body = tuple(inner for inner in item.body if not isinstance(inner, s.PassStatement))
        end = self.items(block, start, body, False, self.one_statement)
        self.bind(item.name, f"Context({segment}, {path}, {start}, {end})", "value")
        return size

    # ---- statements and nodes
    def one_statement(self, item: Any, x: str) -> None:
        self.statement(_required_shape(item), x)
        if isinstance(item, s.CaptureStatement):
            self.bind(item.name, x, "value")

    def statement(self, shape: Shape, x: str) -> None:
        self.needs.add(shape.cls)
        self.here = (shape.place, x)
        self.node(shape, x)
        if getattr(shape.cls, "sticky", ()):
            self.sticky.setdefault(sticky(shape.cls), []).append(x)
        self.matched += 1
        if shape.body is not None:
            block = self.local("b")
            self.put(f"{block} = {x}.body")
            body = tuple(inner for inner in shape.body if not isinstance(inner, s.PassStatement))
            self.items(block, "0", body, True, self.one_statement)


def _sum(base: str, offset: int) -> str:
    if base == "0":
        return str(offset)
    return f"{base} + {offset}" if offset else base


def _single(item: Any) -> bool:
    if isinstance(item, s.CaptureStatement):
        return item.repeat is None
    return not isinstance(item, s.Run | s.RunStatement | s.InsideBlock)


def _least(item: Any) -> int:
    return 1 if _single(item) or getattr(item, "repeat", None) == "+" else 0


def _required_shape(item: Any) -> Shape:
    if isinstance(item, s.CaptureStatement):
        return Shape(op_shape(item.call).cls, op_shape(item.call).fields, item)
    shape = shape_of(item)
    if shape is None:
        raise DplcError("this stands in templates only, or is not a statement", item.span)
    return shape


def _the_end(items: tuple[Any, ...]) -> Any:
    """Stands for the end of a block in reports."""
    return s.PassStatement(items[-1].span) if items else None
