"""Patterns of statements to Python: a generator function that yields every way to match, in order."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from ....ir import expr as e
from ....ir.diagnostic import DplcError
from ....ir.kernel import Element
from ....ir.node import Field, Node, contents, replace
from ....ir.program import Block, Stmt
from ....ir.substitute import substitute, substitute_affine
from ....ir.text.print_statements import print_value
from ....ir.text.read_statements import CONSTANTS, Shape
from ...language import core as s
from ...language.evaluate import RESERVED, Closure, Environment, Expressions, Value
from ...language.typed_slots import EXACT, NAMES, calls, is_variable, names, shape_of
from ..matcher import Matcher, Rest, Symbol, differs
from .site import Context, holes

# Expressions of clauses and templates: `engine/language/evaluate` with substitutions, roles, axes, nested nodes.


ANSWERS = "@answers"


def coerce(sort: str, many: bool, value: Value) -> Value:
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

    def compile(self, node: s.Syntax) -> Closure:
        """Compile an expression.

        In a comprehension, an expression that calls facts runs once for all elements that it does not depend on.
        """
        shape = shape_of(node)
        made = super().compile(node) if shape is None else self.node(shape, {})
        if not self.variables or isinstance(node, s.NameOf | s.Number | s.Text):
            return made
        mentioned = {getattr(part, field, None) for part in s.walk(node) for field in ("text", "name", "fn")}
        names = tuple(dict.fromkeys(name for name in self.variables if name in mentioned))
        if len(names) == len(set(self.variables)) or not any(call.fn in self.facts for call in calls(node)):
            return made
        return _once(made, names)

    def _subscript(self, node: s.Subscript) -> Closure:
        """Compile `x[a := e, ..]`, `x[renaming]`, an element of a list or of an array of registers."""
        base, places = self.compile(node.base), [self._place(item) for item in node.items]
        plain = not any(isinstance(item, s.Substitution | s.Run) for item in node.items)

        def apply(env: Environment) -> Value:
            value, keys = base(env), tuple([place(env) for place in places])
            if plain and dict not in map(type, keys):
                if value.__class__ is e.Var:
                    return Element(value.name, keys)
                if len(keys) == 1:
                    item = value[keys[0]]
                    return e.Var(item) if item.__class__ is str else item
            named = {}
            for key in keys:
                for left, image in key.items():
                    name = left.name if left.__class__ is e.Var else left
                    if name.__class__ is str:
                        named[name] = image
                    else:
                        value = substitute_affine(value, left, image)
            try:
                return substitute(value, named)
            except e.NotWhole as error:
                raise DplcError(str(error), node) from None

        return apply

    def _place(self, item: s.Syntax) -> Closure:
        """Compile an index, or the images of names and forms: of `a := e`, of `as.. := es..`, of a fact's renaming."""
        if not isinstance(item, s.Substitution):
            return self.compile(item)
        left, right = self.compile(item.left), self.compile(item.right)
        if isinstance(item.left, s.Run):
            return lambda env: dict(zip(left(env), right(env), strict=True))
        return lambda env: {left(env): right(env)}

    def _member(self, node: s.Member) -> Closure:
        """Compile `x.field`: a field that a node or a record declares, never one that Python adds to it."""
        get = super()._member(node)

        def look(env: Environment) -> Value:
            value = get(env)
            if callable(value):
                raise DplcError(f"there is no field `{node.field}`", node)
            return value

        return look

    def _comprehension(self, node: s.Comprehension) -> Closure:
        """Compile a comprehension.

        An outermost comprehension has a table of the results of facts, for itself and for those inside of it.
        """
        inside, collect = bool(self.variables), super()._comprehension(node)
        return collect if inside else lambda env: collect({**env, ANSWERS: {}})

    def _run(self, node: s.Run) -> Closure:
        base = self.compile(node.base)
        if node.role in (None, "_"):
            return base
        role = self.compile(s.NameOf(node.span, node.role))
        return lambda env: tuple([replace(axis, role=role(env).name) for axis in base(env)])

    def node(self, shape: Shape, known: Mapping[str, Closure]) -> Closure:
        """Return a closure that builds the node of a shape, with the known fields, the mentioned ones, and defaults."""
        cls: Any = shape.cls
        parts: list[Closure] = []
        for field in cls.fields:
            if field.name in known:
                parts.append(known[field.name])
            elif field.name in shape.fields:
                parts.append(self.field(field, shape.fields[field.name]))
            elif field.required:
                raise DplcError(f"`{cls.__name__}` needs the field `{field.name}`", shape.place)
            else:
                parts.append(lambda env, value=field.default: value)  # type: ignore[misc]
        return lambda env: cls(*[part(env) for part in parts])

    def field(self, field: Field, value: Any) -> Closure:
        """Return the closure of one field's value. A name is what the rule bound to it, or itself, as of labels."""
        sort, many = field.sort, field.many
        if isinstance(value, s.NameOf) and sort in NAMES:
            text = value.text
            return lambda env: found.name if (found := env.get(text, text)).__class__ is e.Var else found
        closure = self.compile_all(value) if isinstance(value, tuple) else self.compile(value)
        return lambda env: coerce(sort, many, closure(env))


def _once(question: Closure, names: tuple[str, ...]) -> Closure:
    """Return a closure that keeps its result for the values of some variables, during one comprehension."""
    read = itemgetter(*names) if names else None

    def answer(env: Environment) -> Value:
        known, key = env[ANSWERS], (question, read and read(env))
        try:
            if key not in known:
                known[key] = question(env)
            return known[key]
        except TypeError:  # a value that cannot be a key
            return question(env)

    return answer


def free_names(node: object, facts: Container[str] = ()) -> frozenset[str]:
    """Return the variables that an expression mentions, without reserved words, constants and facts that it calls."""
    called = (call.fn for call in calls(node) if call.fn not in facts)
    return frozenset(filter(is_variable, (*(name.text for name in names(node)), *called)))


Near = Callable[[int, s.Syntax, Node | None], None]
Match = Callable[[Block, int, Environment, Near | None], Iterator[tuple[int, Environment]]]


UNBOUND = object()  # the value of a variable of a `*` capture that is empty


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

    def everywhere(self, block: Block, fire: Callable[[Block, int], tuple[int, Block] | None]) -> Block:
        """Rewrite a block and those in it: bottom-up, one pass; results are not matched again.

        fire: returns the end of the statements that it replaces at a position, and what replaces them, or None.
        """
        whole = tuple(
            replace(statement, body=self.everywhere(statement.body, fire))  # type: ignore[attr-defined]
            if "body" in type(statement).by_name and not self.needs & ~contents(statement)
            else statement
            for statement in block
        )
        out: list[Stmt] = []
        position = 0
        while position < len(whole):
            fired = fire(whole, position) if self.root in (None, whole[position].__class__) else None
            position, made = fired or (position + 1, whole[position : position + 1])
            out += made
        return tuple(out)


def compile_pattern(statements: s.Nodes, level: str, title: str, given: Iterable[str], evidence: bool) -> Pattern:
    """Compile a pattern. given: variables that are bound before the match (the parameters of a local rule)."""
    maker = StatementMatcher(level, given, evidence)
    items = _statements(statements)
    end = maker.items(items, "block", "start", False)
    if not any(map(maker.least, items)):
        maker.put(f"if {end} == start: {maker.fail}")  # a rewrite of nothing has no location
    hidden = "".join(f", {maker.constant(key)}: ({', '.join(found)},)" for key, found in maker.sticky.items())
    maker.put(f"result = {{**env, {maker.environment(maker.symbols)}{hidden}}}")
    for name, symbol in maker.symbols.items():
        if symbol.maybe:
            maker.put(f"if {symbol.text} is UNBOUND: del result[{maker.constant(name)}]")
    maker.put(f"yield {end}, result")
    shape = shape_of(items[0]) if items and getattr(items[0], "repeat", None) != "*" else None
    root = None if shape is None else shape.cls
    return Pattern(maker.compile("match", title), root, maker.needs, tuple(maker.symbols))


class StatementMatcher(Matcher[s.Syntax]):
    """Writer of the matcher of a block."""

    def __init__(self, level: str, given: Iterable[str], evidence: bool):
        scope = {
            "Call": e.Call, "Element": Element, "holes": holes, "Context": Context, "UNBOUND": UNBOUND,
        }  # fmt: skip
        super().__init__(scope, "steps" if evidence else "")
        # `if t < 1:` has a condition, not an answer
        self.expressions = RuleExpressions(level, symbolic=True)
        self.sticky: dict[str, list[str]] = {}
        self.needs = 0  # the marks of the classes that must be there
        self.sort = ""
        self.open("def match(block, start, env, near):")
        for name in given:
            self.symbols[name] = Symbol(self.held(f"env[{self.constant(name)}]"), "value")

    # ---- items of lists
    def flexible(self, item: s.Syntax) -> bool:
        if isinstance(item, s.CaptureStatement):
            return item.repeat is not None
        return isinstance(item, s.Run | s.RunStatement | s.InsideBlock)

    def item(self, item: s.Syntax, x: str) -> Iterable[tuple[s.Syntax, str]]:
        if self.sort:
            self.value(self.sort, item, x)
        else:
            self.statement(_required_shape(item), x)
            if isinstance(item, s.CaptureStatement):
                self.bind(item.name, x)
        return ()

    def stretch(self, item: Any, whole: str, at: str, size: str, rest: Rest) -> str:
        if isinstance(item, s.CaptureStatement):
            return self.capture_run(item, whole, at, size, rest[0] if isinstance(rest, tuple) else rest)
        if isinstance(item, s.InsideBlock):
            return self.inside(item, whole, at, size, rest)
        run = item.run if isinstance(item, s.RunStatement) else item
        if not isinstance(run.base, s.NameOf) or (isinstance(item, s.RunStatement) and item.changes):
            raise DplcError("a run of a pattern reads `name..`", item)
        role = None if run.role in (None, "_") else run.role
        if role is not None and role not in RESERVED:
            raise DplcError(f"`{role}` is not a role", run)
        return self.run(item, run.base.text, role, whole, at, size, rest)

    def capture_run(self, item: s.CaptureStatement, whole: str, at: str, size: str, rest: int) -> str:
        """Match `s: Op(..)+`: as many as there are; all of them share the variables that one of them binds.

        rest: the number of statements that must follow.
        """
        test, one, end, found, shared = (self.local(letter) for letter in "exjrv")
        needs, known = self.needs, dict(self.symbols)
        with self.function(f"def {test}({one}):", "return None"):
            self.statement(_required_shape(item), one)
            bound = {name: symbol for name, symbol in self.symbols.items() if symbol is not known.get(name)}
            self.put(f"return ({''.join(f'{symbol.text}, ' for symbol in bound.values())})")
        self.put(
            f"{end}, {shared} = {at}, None",
            f"while {end} < {size}:",
            f"    {found} = {test}({whole}[{end}])",
            f"    if {found} is None or {shared} is not None and not same({found}, {shared}): break",
            f"    {end}, {shared} = {end} + 1, {found}",
        )
        if item.repeat == "+":
            there = f"{whole}[{end}] if {end} < {size} else None"
            self.reject(f"{end} == {at}", item, there)
        else:
            self.needs = needs
        for place, (name, symbol) in enumerate(bound.items()):
            otherwise = known[name].text if name in known else "UNBOUND"
            text = self.held(f"{shared}[{place}] if {shared} else {otherwise}")
            self.symbols[name] = Symbol(text, symbol.kind, maybe=item.repeat == "*")
        if rest and not self.reports:
            self.reject(f"{size} - {end} < {rest}")
        self.bind(item.name, f"{whole}[{at}:{end}]")
        return end

    def inside(self, item: s.InsideBlock, whole: str, at: str, size: str, rest: Rest) -> str:
        following = rest[1] if isinstance(rest, tuple) else item
        if following is not None:
            raise DplcError("`inside` covers the rest of its block: nothing can follow it", following)
        segment, path, block, start = (self.local(letter) for letter in "spbk")
        self.put(f"{segment} = {whole}[{at}:]")
        self.loop(f"for {path}, {block} in holes({segment}):", item)
        self.loop(f"for {start} in range(len({block})):", item)
        end = self.items(_statements(item.body), block, start, False)
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
            self.sequence("", _statements(shape.body), f"{x}.body")

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

    def field(self, field: Field, value: s.Syntax | s.Nodes, x: str) -> None:
        if isinstance(value, tuple):
            self.sequence(field.sort, value, x)
        elif field.many and isinstance(value, s.NameOf) and value.text not in RESERVED:
            self.bind(value.text, x)
        else:
            self.value(field.sort, value, x)

    def sequence(self, sort: str, items: s.Nodes, x: str) -> None:
        before, self.sort = self.sort, sort
        self.items(items, self.held(x, "t" if sort else "b"), "0")
        self.sort = before

    # ---- values
    def value(self, sort: str, node: s.Syntax, x: str) -> None:
        node = s.bare(node)
        nested = shape_of(node)
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
        elif text in RESERVED:
            self.reject(self.unlike(x, text if sort in NAMES else e.Var(text)))
        else:
            self.bind(text, x, "name" if sort in NAMES else "value")

    def negation(self, sort: str, node: s.Syntax, x: str) -> None:
        test, bound, reports = self.local("e"), dict(self.symbols), self.reports
        self.reports = ""
        with self.function(f"def {test}():", "return False"):
            self.value(sort, node, x)
            self.put("return True")
        self.symbols, self.reports = bound, reports
        self.reject(f"{test}()")

    def expression(self, sort: str, node: s.Syntax, x: str) -> None:
        names = free_names(node, self.expressions.facts)
        known = {name for name, symbol in self.symbols.items() if not symbol.maybe}
        if isinstance(node, s.Subscript) and self.register(node):
            self.reject(f"{x}.__class__ is not Element")
            self.value("Name", node.base, f"{x}.name")
            return self.sequence("Expr", node.items, f"{x}.index")
        if names <= known | {"target"} or isinstance(node, s.Member | s.Subscript | s.Comprehension):
            compute, kind = self.constant(self.expressions.compile(node)), "name" if sort in NAMES else "value"
            value = self.held(f"{compute}({{**env, {self.environment(sorted(names & known))}}})")
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
        if self.expressions.level != "kernel" or not isinstance(node.base, s.NameOf):
            return False
        known = self.symbols.get(node.base.text)
        return known is None or known.kind == "name"


def _statements(block: s.Nodes) -> s.Nodes:
    return tuple(item for item in block if not isinstance(item, s.PassStatement))


def _required_shape(item: s.Syntax) -> Shape:
    shape = shape_of(item)
    if shape is None:
        raise DplcError("this stands in templates only, or is not a statement", item)
    return shape


# The ranks of tests: cheap tests come first, then binders, then lists. Values follow those that they read.
_COSTS = {s.Number: 0, s.Text: 0, s.Prefix: 0, s.NameOf: 1, tuple: 3, s.Member: 5, s.Subscript: 5}


def _cost(value: object) -> int:
    fixed = isinstance(value, s.NameOf) and not is_variable(value.text)
    return 0 if fixed else _COSTS.get(type(value), 2)
