"""Patterns of statements to Python: a generator function that yields every way to match, in order."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from ....ir import expr as e
from ....ir.diagnostic import DplcError
from ....ir.kernel import Element
from ....ir.node import Field, Node, replace
from ....ir.substitute import substitute, substitute_affine
from ....ir.text.print_statements import print_value
from ....ir.text.read_statements import VALUE_CLASSES, Shape, op_shape
from ...language import core as s
from ...language.evaluate import CONSTANTS, RESERVED, Closure, Environment, Expressions
from ...language.typed_slots import EXACT, NAMES, calls, is_variable, names, shape_of, walk
from ..matcher import Matcher, Symbol, differs
from .site import Context, holes

# Expressions of clauses and templates: `engine/language/evaluate` with substitutions, roles, axes, nested nodes.


ANSWERS = "@answers"


def coerce(sort: str, many: bool, value: Any) -> Any:
    """Convert a value of the rule language to the value of a field.

    Names become text. A single item becomes a list if the field is a list.
    """
    if not many:
        return value.name if sort in NAMES and value.__class__ is e.Var else value
    listed = value if value.__class__ is tuple else (value,)
    for item in listed if sort == "Axis" else ():
        if item.__class__ is not e.Axis:
            raise TypeError(f"`{print_value(item)}` stands where an axis does, and is none")
    return tuple([coerce(sort, False, item) for item in listed]) if sort in NAMES else listed


class RuleExpressions(Expressions):
    """Compiler of expressions of one level. `symbolic`: comparisons of index expressions are index expressions."""

    def __init__(self, level: str, symbolic: bool = False):
        super().__init__(level, symbolic)
        self.questions: dict[s.Syntax, int] = {}  # of comprehensions, numbered: equal ones are evaluated once
        self.depends: tuple[str, ...] | None = None  # the variables of the question that is compiled

    def compile(self, node: s.Syntax) -> Closure:
        """Compile an expression.

        In a comprehension, an expression that calls facts runs once for all elements that it does not depend on.
        """
        if not self.variables or isinstance(node, s.NameOf | s.Number | s.Text):
            return super().compile(node)
        mentioned = {getattr(part, field, None) for part in walk(node) for field in ("text", "name", "fn")}
        names = tuple(dict.fromkeys(name for name in self.variables if name in mentioned))
        asks = any(call.fn in self.facts for call in calls(node))
        if not asks or names == self.depends or set(names) == set(self.variables):
            return super().compile(node)
        before, self.depends = self.depends, names
        question = super().compile(node)
        self.depends = before
        return _once(question, self.questions.setdefault(node, len(self.questions)), names)

    def _subscript(self, node: s.Subscript) -> Closure:
        """Compile `x[a := e, ..]`, `x[renaming]`, an element of a list or of an array of registers."""
        base = self.compile(node.base)
        plain = not any(isinstance(item, s.Substitution | s.Run) for item in node.items)
        places = [self.compile(item) for item in node.items] if plain else []
        changes = [self._change(item) for item in node.items]

        def apply(env: Environment) -> Any:
            value = base(env)
            if plain:
                keys = tuple([place(env) for place in places])
                if value.__class__ is e.Var and dict not in map(type, keys):
                    return Element(value.name, keys)
                if len(keys) == 1:
                    if keys[0].__class__ is dict:
                        return substitute(value, keys[0])
                    item = value[keys[0]]
                    return e.Var(item) if item.__class__ is str else item
            pairs = [pair for change in changes for pair in change(env)]
            for left, right in pairs:
                if left.__class__ is not e.Var:
                    value = substitute_affine(value, left, right)
            try:
                return substitute(value, {left.name: right for left, right in pairs if left.__class__ is e.Var})
            except e.NotWhole as error:
                raise DplcError(str(error), node.span) from None

        return apply

    def _change(self, item: s.Syntax) -> Closure:
        """Return a closure that returns (left, right) pairs: of `a := e`, `as.. := es..`, or a fact's renaming."""
        if not isinstance(item, s.Substitution):
            renaming = self.compile(item.base if isinstance(item, s.Run) else item)
            return lambda env: [(e.Var(name), image) for name, image in renaming(env).items()]
        left, right = self.compile(item.left), self.compile(item.right)
        if isinstance(item.left, s.Run):
            return lambda env: zip(left(env), right(env), strict=True)
        return lambda env: ((left(env), right(env)),)

    def _member(self, node: s.Member) -> Closure:
        """Compile `x.field`: a field that a node or a record declares, never one that Python adds to it."""
        get = super()._member(node)

        def look(env: Environment) -> Any:
            value = get(env)
            if callable(value):
                raise DplcError(f"there is no field `{node.field}`", node.span)
            return value

        return look

    def _comprehension(self, node: s.Comprehension) -> Closure:
        """Compile a comprehension.

        An outermost comprehension has a table of the results of facts, for itself and for those inside of it.
        """
        depends, self.depends = self.depends, None
        inside, collect = bool(self.variables), super()._comprehension(node)
        self.depends = depends
        return collect if inside else lambda env: collect({**env, ANSWERS: {}})

    def _run(self, node: s.Run) -> Closure:
        base = self.compile(node.base)
        if node.role in (None, "_"):
            return base
        role = self.compile(s.NameOf(node.span, node.role))
        return lambda env: tuple([replace(axis, role=role(env).name) for axis in base(env)])

    def _axisitem(self, node: s.Syntax) -> Closure:
        return self.node(_required_shape(node))

    _paramitem = _axisitem

    def apply(self, node: s.Apply) -> Closure:
        if node.fn in VALUE_CLASSES:
            return self.node(op_shape(node, VALUE_CLASSES))
        return super().apply(node)

    def node(self, shape: Shape, defaults: dict[str, Closure] | None = None) -> Closure:
        """Return a closure that builds the node of a shape; fields that it does not mention have their defaults."""
        cls: Any = shape.cls
        parts: list[Closure] = []
        for field in cls.fields:
            if field.name in shape.fields:
                parts.append(self.field(field, shape.fields[field.name]))
            elif defaults and field.name in defaults:
                parts.append(defaults[field.name])
            elif field.required:
                raise DplcError(f"`{cls.__name__}` needs the field `{field.name}`", shape.place.span)
            else:
                parts.append(lambda env, value=field.default: value)  # type: ignore[misc]
        return lambda env: cls(*[part(env) for part in parts])

    def field(self, field: Field, value: Any) -> Closure:
        """Return the closure of one field's value. A name is what the rule bound to it, or itself, as of labels."""
        if field.sort == "Block":
            return self.block(value)
        sort, many = field.sort, field.many
        if isinstance(value, s.NameOf) and sort in NAMES:
            text = value.text
            return lambda env: found.name if (found := env.get(text, text)).__class__ is e.Var else found
        closure = self.compile_all(value) if isinstance(value, tuple) else self.compile(value)
        return lambda env: coerce(sort, many, closure(env))

    def block(self, statements: s.Nodes) -> Closure:
        """Raise DplcError for a block: only templates contain blocks, guards do not."""
        raise DplcError("statements stand in patterns and templates only", statements[0].span)


def _once(question: Closure, number: int, names: tuple[str, ...]) -> Closure:
    """Return a closure that keeps its result for the values of some variables, during one comprehension."""
    read = itemgetter(*names) if names else None

    def answer(env: Environment) -> Any:
        known = env[ANSWERS]
        key = number if read is None else (number, read(env))
        try:
            if key in known:
                return known[key]
        except TypeError:  # a value that cannot be a key
            return question(env)
        known[key] = question(env)
        return known[key]

    return answer


def free_names(node: Any, facts: Container[str] = ()) -> frozenset[str]:
    """Return the variables that an expression mentions, without reserved words, constants and facts that it calls."""
    called = (call.fn for call in calls(node) if call.fn not in facts)
    return frozenset(filter(is_variable, (*(name.text for name in names(node)), *called)))


Near = Callable[[int, s.Syntax, Any], None]
Match = Callable[[Any, int, dict[str, Any], Near | None], Iterator[tuple[int, dict[str, Any]]]]


UNBOUND = object()  # the value of a variable of a `*` capture that is empty
_indexed: dict[tuple[type[Node], str], tuple[tuple[Any, ...], dict[Any, list[int]]]] = {}


def _statements_with(
    block: tuple[Any, ...], start: int, stop: int, cls: type[Node], field: str, value: Any
) -> Iterator[int]:
    """Yield the indices of statements of a class with a value in a field.

    The last block is cached, because a pattern is tried at each of its statements.
    """
    known = _indexed.get((cls, field))
    if known is None or known[0] is not block:
        places: dict[Any, list[int]] = {}
        for place, statement in enumerate(block):
            if statement.__class__ is cls:
                places.setdefault(_alike(getattr(statement, field)), []).append(place)
        known = _indexed[cls, field] = block, places
    return (place for place in known[1].get(_alike(value), ()) if start <= place < stop)


def _alike(value: Any) -> Any:
    """Return one key for all values that are `same`."""
    return (value.constant, frozenset(value.terms)) if value.__class__ is e.Sum else value


def sticky(cls: type[Node]) -> str:
    """Return the name in the environment for the matched statements of a class with sticky fields."""
    return f"@{cls.__name__}"


@dataclass(frozen=True)
class Pattern:
    """Compiled pattern.

    root: the class of the first statement, None if that is a run. needs: the marks of classes that must be there.
    """

    match: Match
    root: type[Node] | None
    needs: int
    names: tuple[str, ...]


def compile_pattern(
    statements: s.Nodes, expressions: RuleExpressions, title: str, given: Iterable[str], evidence: bool
) -> Pattern:
    """Compile a pattern. given: variables that are bound before the match (the parameters of a local rule)."""
    maker = StatementMatcher(expressions, given, evidence)
    items = _statements(statements)
    end = maker.items(items, "block", "start", False, True)
    if not any(map(maker.least, items)):
        maker.put(f"if {end} == start: {maker.fail}")  # a rewrite of nothing has no location
    maker.finish(end)
    shape = shape_of(items[0]) if items and getattr(items[0], "repeat", None) != "*" else None
    root = None if shape is None else shape.cls
    return Pattern(maker.compile("match", title), root, maker.needs, tuple(maker.symbols))


class StatementMatcher(Matcher):
    """Writer of the matcher of a block."""

    def __init__(self, expressions: RuleExpressions, given: Iterable[str], evidence: bool):
        scope = {
            "Call": e.Call, "Element": Element, "holes": holes, "Context": Context, "UNBOUND": UNBOUND,
            "statements_with": _statements_with,
        }  # fmt: skip
        super().__init__(scope, "steps" if evidence else "")
        self.expressions = expressions
        self.symbolic = RuleExpressions(expressions.level, symbolic=True)  # `if t < 1:` has a condition, not an answer
        self.sticky: dict[str, list[str]] = {}
        self.needs = 0  # the marks of the classes that must be there
        self.sort = ""  # of the values of the list that is matched; none of statements
        self.open("def match(block, start, env, near):")
        for name in given:
            self.symbols[name] = Symbol(self.held(f"env[{self.constant(name)}]"), "value")

    def finish(self, end: str) -> None:
        hidden = "".join(f", {self.constant(key)}: ({', '.join(found)},)" for key, found in self.sticky.items())
        self.put(f"result = {self.environment(self.symbols)[:-1]}{hidden}}}")
        for name, symbol in self.symbols.items():
            if symbol.maybe:
                self.put(f"if {symbol.text} is UNBOUND: del result[{self.constant(name)}]")
        self.put(f"yield {end}, result")

    # ---- items of lists
    def flexible(self, item: Any) -> bool:
        if isinstance(item, s.CaptureStatement):
            return item.repeat is not None
        return isinstance(item, s.Run | s.RunStatement | s.InsideBlock)

    def item(self, item: Any, x: str) -> Iterable[tuple[Any, str]]:
        if self.sort:
            self.value(self.sort, item, x)
        else:
            self.statement(_required_shape(item), x)
            if isinstance(item, s.CaptureStatement):
                self.bind(item.name, x)
        return ()

    def stretch(self, item: Any, whole: str, at: str, size: str, rest: Any, block: bool, ahead: str | None) -> str:
        if isinstance(item, s.CaptureStatement):
            return self.capture_run(item, whole, at, size)
        if isinstance(item, s.InsideBlock):
            return self.inside(item, whole, at, size, rest)
        run = item.run if isinstance(item, s.RunStatement) else item
        if not isinstance(run.base, s.NameOf) or (isinstance(item, s.RunStatement) and item.changes):
            raise DplcError("a run of a pattern reads `name..`", item.span)
        role = None if run.role in (None, "_") else run.role
        if role is not None and role not in RESERVED:
            raise DplcError(f"`{role}` is not a role", run.span)
        return self.run(item, run.base.text, role, whole, at, size, rest, block, ahead)

    def ahead(self, following: Any) -> str | None:
        """Return the class of a statement, and a field of it that an earlier statement has bound, with its value."""
        shape = None if self.flexible(following) else shape_of(following)
        if shape is None:
            return None
        for name, value in shape.fields.items():
            symbol = self.symbols.get(value.text) if isinstance(value, s.NameOf) else None
            if symbol and symbol.kind == "value" and not symbol.maybe and shape.cls.by_name[name].sort not in NAMES:
                return f"{self.constant(shape.cls)}, {self.constant(name)}, {symbol.text}"
        return None

    def capture_run(self, item: s.CaptureStatement, whole: str, at: str, size: str) -> str:
        """Match `s: Op(..)+`: as many as there are; all of them share the variables that one of them binds."""
        shape = _required_shape(item)
        names = self.scout(shape)
        for name, kind in names.items():
            self.symbols[name] = Symbol(self.held("(UNBOUND)"), kind, maybe=True)
        shared = "".join(f"{self.symbols[name].text}, " for name in names)
        test, one, end, result = self.local("e"), self.local("x"), self.local("j"), self.local("r")
        needs = self.needs
        with self.function(f"def {test}({one}, {shared}):", "return None"):
            self.statement(shape, one)
            self.put(f"return ({shared})")
        self.put(
            f"{end} = {at}",
            f"while {end} < {size}:",
            f"    {result} = {test}({whole}[{end}], {shared})",
            f"    if {result} is None: break",
            *([f"    {shared}= {result}"] if names else ()),
            f"    {end} += 1",
        )
        if item.repeat == "+":
            there = f"{whole}[{end}] if {end} < {size} else None"
            self.reject(f"{end} == {at}", item if self.told else None, there)
            for name in names:
                self.symbols[name].maybe = False
        else:
            self.needs = needs
        self.bind(item.name, f"{whole}[{at}:{end}]")
        return end

    def scout(self, shape: Shape) -> dict[str, str]:
        """Return the variables that a statement pattern would bind, with their kinds."""
        scout = StatementMatcher(self.expressions, (), False)
        scout.symbols = {name: Symbol(symbol.text, symbol.kind) for name, symbol in self.symbols.items()}
        scout.statement(shape, "x")
        return {name: symbol.kind for name, symbol in scout.symbols.items() if name not in self.symbols}

    def inside(self, item: s.InsideBlock, whole: str, at: str, size: str, rest: Any) -> str:
        following = rest[1] if rest.__class__ is tuple else item
        if following is not None:
            raise DplcError("`inside` covers the rest of its block: nothing can follow it", following.span)
        segment, path, block, start = (self.local(letter) for letter in "spbk")
        self.put(f"{segment} = {whole}[{at}:]")
        self.loop(f"for {path}, {block} in holes({segment}):", item)
        self.loop(f"for {start} in range(len({block})):", item)
        end = self.items(_statements(item.body), block, start, False, True)
        self.bind(item.name, f"Context({segment}, {path}, {start}, {end})")
        return size

    # ---- statements, nodes and fields
    def statement(self, shape: Shape, x: str) -> None:
        self.needs |= shape.cls.mark
        self.here = (shape.place, x)
        self.node(shape, x)
        if getattr(shape.cls, "sticky", ()):
            self.sticky.setdefault(sticky(shape.cls), []).append(x)
        self.matched += 1
        if shape.body is not None:
            self.sequence("", _statements(shape.body), f"{x}.body", True)

    def node(self, shape: Shape, x: str) -> None:
        cls, x = shape.cls, self.held(x)
        tests = [f"{x}.__class__ is not {self.constant(cls)}"]
        for name in EXACT.get(cls, ()):
            if name not in shape.fields:
                tests.append(self.unlike(f"{x}.{name}", cls.by_name[name].default))
        self.reject(" or ".join(tests))
        mentioned = [(field, shape.fields[field.name]) for field in cls.fields if field.name in shape.fields]
        for field, value in sorted(mentioned, key=lambda pair: _cost(pair[1])):
            if field.sort != "Block":
                self.field(field, value, f"{x}.{field.name}")

    def field(self, field: Any, value: Any, x: str) -> None:
        if isinstance(value, tuple):
            self.sequence(field.sort, value, x)
        elif field.many and isinstance(value, s.NameOf) and value.text not in RESERVED:
            self.bind(value.text, x)
        else:
            self.value(field.sort, value, x)

    def sequence(self, sort: str, items: tuple[Any, ...], x: str, block: bool = False) -> None:
        before, self.sort = self.sort, sort
        whole = self.local("b" if block else "t")
        self.put(f"{whole} = {x}")
        self.items(items, whole, "0", True, block)
        self.sort = before

    # ---- values
    def value(self, sort: str, node: Any, x: str) -> None:
        node = s.bare(node)
        nested = shape_of(node) if isinstance(node, s.AxisItem | s.ParamItem | s.Apply) else None
        if nested is not None:
            self.node(nested, x)
        elif isinstance(node, s.NameOf):
            self.name(sort, node.text, x)
        elif isinstance(node, s.Number | s.Text):
            self.reject(self.unlike(x, node.value))
        elif isinstance(node, s.Prefix) and node.op == "not":
            self.negation(sort, node.a, x)
        else:
            self.expression(sort, node, x)

    def name(self, sort: str, text: str, x: str) -> None:
        if text in CONSTANTS:
            self.reject(self.unlike(x, CONSTANTS[text]))
        elif text in RESERVED and text != "_":
            self.reject(self.unlike(x, text if sort in NAMES else e.Var(text)))
        else:
            self.bind(text, x, "name" if sort in NAMES else "value")

    def negation(self, sort: str, node: s.Syntax, x: str) -> None:
        test, bound, told = self.local("e"), dict(self.symbols), self.told
        self.told = ""
        with self.function(f"def {test}():", "return False"):
            self.value(sort, node, x)
            self.put("return True")
        self.symbols, self.told = bound, told
        self.reject(f"{test}()")

    def expression(self, sort: str, node: Any, x: str) -> None:
        names = free_names(node, self.expressions.facts)
        known = {name for name, symbol in self.symbols.items() if not symbol.maybe}
        if isinstance(node, s.Subscript) and self.register(node):
            self.reject(f"{x}.__class__ is not Element")
            self.value("Name", node.base, f"{x}.name")
            return self.sequence("Expr", node.items, f"{x}.index")
        if names <= known | {"target"} or isinstance(node, s.Member | s.Subscript | s.Comprehension):
            compute, kind = self.constant(self.symbolic.compile(node)), "name" if sort in NAMES else "value"
            value = self.held(f"{compute}({self.environment(sorted(names & known))})")
            return self.reject(differs(Symbol(value, "value"), x, kind))
        if isinstance(node, s.Apply):
            self.reject(f"{x}.__class__ is not Call")
            self.name("Fn", node.fn, f"{x}.fn")
            return self.sequence("Expr", node.items, f"{x}.args")
        return self.computed(node, x)

    def operand(self, node: s.Syntax, x: str) -> None:
        self.value("Expr", node, x)

    def register(self, node: s.Subscript) -> bool:
        """Return whether `acc[i]` is an element of a register array, and not of a list that the pattern binds."""
        base = node.base
        if self.expressions.level != "kernel" or not isinstance(base, s.NameOf):
            return False
        return base.text not in self.symbols or self.symbols[base.text].kind == "name"


def _statements(block: s.Nodes) -> s.Nodes:
    return tuple(item for item in block if not isinstance(item, s.PassStatement))


def _required_shape(item: Any) -> Shape:
    shape = shape_of(item)
    if shape is None:
        raise DplcError("this stands in templates only, or is not a statement", item.span)
    return shape


# The ranks of tests: cheap tests come first, then binders, then lists. Values follow those that they read.
_COSTS = {s.Number: 0, s.Text: 0, s.Prefix: 0, s.NameOf: 1, tuple: 3, s.Member: 5, s.Subscript: 5}


def _cost(value: Any) -> int:
    fixed = isinstance(value, s.NameOf) and (value.text in RESERVED or value.text in CONSTANTS)
    return 0 if fixed else _COSTS.get(type(value), 2)
