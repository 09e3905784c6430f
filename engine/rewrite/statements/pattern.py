"""Patterns of statements to Python: a generator function that yields every way to match, in order; their templates."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Any

from ....ir import expr as e
from ....ir.diagnostic import DplcError, Span, did_you_mean
from ....ir.kernel import Element
from ....ir.loop import If, Let, Load
from ....ir.node import Field, Node, contents, immutable, names_in, replace
from ....ir.program import Block, Stmt
from ....ir.substitute import substitute, substitute_affine
from ....ir.text.print_statements import print_value
from ....ir.text.read_statements import CONSTANTS, Shape, load_fields
from ...language.core import (
    Apply,
    Arm,
    Assign,
    CaptureStatement,
    Comprehension,
    DropStatement,
    EachBlock,
    ForLoop,
    IfBlock,
    InsideBlock,
    Keyword,
    LoadOf,
    Member,
    NameOf,
    Nodes,
    Number,
    PassStatement,
    Prefix,
    Run,
    RunStatement,
    Subscript,
    Substitution,
    Syntax,
    Text,
    UseRule,
    bare,
    walk,
)
from ...language.evaluate import RESERVED, Closure, Environment, Expressions, Value, holds
from ...language.sorts import SLOTS
from ...language.typed_slots import NAME_SORTS, calls, is_variable, reads, shape_of
from ..matcher import Matcher, Rest, Symbol, differs
from .site import NAMES, Context, Names, Site, holes

# Expressions of clauses and templates: `engine/language/evaluate` with substitutions, roles, axes, nested nodes.


ANSWERS = "@answers"


def coerce(sort: str, many: bool, value: Value) -> Value:
    """Convert a value of the rule language to the value of a field.

    Names become text. A single item becomes a list if the field is a list.
    """
    if not many:
        return value.name if sort in NAME_SORTS and value.__class__ is e.Var else value
    listed = value if value.__class__ is tuple else (value,)
    for item in listed if sort == "Axis" else ():
        if item.__class__ is not e.Axis:
            raise TypeError(f"`{print_value(item)}` stands where an axis does, and is none")
    return tuple([coerce(sort, False, item) for item in listed]) if sort in NAME_SORTS else listed


class RuleExpressions(Expressions):
    """Compiler of expressions of one level. `symbolic`: comparisons of index expressions are index expressions."""

    def compile(self, node: Syntax) -> Closure:
        """Compile an expression.

        In a comprehension, an expression that calls facts runs once for all elements that it does not depend on.
        """
        shape = shape_of(node)
        made = super().compile(node) if shape is None else self.node(shape, {})
        if not self.variables or isinstance(node, NameOf | Number | Text):
            return made
        mentioned = {getattr(part, field, None) for part in walk(node) for field in ("text", "name", "fn")}
        names = tuple(dict.fromkeys(name for name in self.variables if name in mentioned))
        if len(names) == len(set(self.variables)) or not any(call.fn in self.facts for call in calls(node)):
            return made
        return _once(made, names)

    def _subscript(self, node: Subscript) -> Closure:
        """Compile `x[a := e, ..]`, `x[renaming]`, an element of a list or of an array of registers."""
        base, places = self.compile(node.base), [self._place(item) for item in node.items]
        plain = not any(isinstance(item, Substitution | Run) for item in node.items)

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

    def _place(self, item: Syntax) -> Closure:
        """Compile an index, or the images of names and forms: of `a := e`, of `as.. := es..`, of a fact's renaming."""
        if not isinstance(item, Substitution):
            return self.compile(item)
        left, right = self.compile(item.left), self.compile(item.right)
        if isinstance(item.left, Run):
            return lambda env: dict(zip(left(env), right(env), strict=True))
        return lambda env: {left(env): right(env)}

    def _member(self, node: Member) -> Closure:
        """Compile `x.field`: a field that a node or a record declares, never one that Python adds to it."""
        get = super()._member(node)

        def look(env: Environment) -> Value:
            value = get(env)
            if callable(value):
                raise DplcError(f"there is no field `{node.field}`", node)
            return value

        return look

    def _comprehension(self, node: Comprehension) -> Closure:
        """Compile a comprehension.

        An outermost comprehension has a table of the results of facts, for itself and for those inside of it.
        """
        inside, collect = bool(self.variables), super()._comprehension(node)
        return collect if inside else lambda env: collect({**env, ANSWERS: {}})

    def _run(self, node: Run) -> Closure:
        base = self.compile(node.base)
        if node.role in (None, "_"):
            return base
        role = self.compile(NameOf(node.span, node.role))
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
        if isinstance(value, NameOf) and sort in NAME_SORTS:
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
    return frozenset(filter(is_variable, (*reads(node), *called)))


Near = Callable[[int, Syntax, Node | None], None]
Match = Callable[[Block, int, Environment, Near | None], Iterator[tuple[int, Environment]]]


UNBOUND = object()  # the value of a variable of a `*` capture that is empty


def sticky(cls: type[Node]) -> str:
    """Return the name in the environment for the matched statements of a class with sticky fields."""
    return f"@{cls.__name__}"


@immutable
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


def compile_pattern(statements: Nodes, level: str, title: str, given: Iterable[str], evidence: bool) -> Pattern:
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


class StatementMatcher(Matcher[Syntax]):
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
    def flexible(self, item: Syntax) -> bool:
        if isinstance(item, CaptureStatement):
            return item.repeat is not None
        return isinstance(item, Run | RunStatement | InsideBlock)

    def item(self, item: Syntax, x: str) -> Iterable[tuple[Syntax, str]]:
        if self.sort:
            self.value(self.sort, item, x)
        else:
            self.statement(_required_shape(item), x)
            if isinstance(item, CaptureStatement):
                self.bind(item.name, x)
        return ()

    def stretch(self, item: Any, whole: str, at: str, size: str, rest: Rest) -> str:
        if isinstance(item, CaptureStatement):
            return self.capture_run(item, whole, at, size, rest[0] if isinstance(rest, tuple) else rest)
        if isinstance(item, InsideBlock):
            return self.inside(item, whole, at, size, rest)
        run = item.run if isinstance(item, RunStatement) else item
        if not isinstance(run.base, NameOf) or (isinstance(item, RunStatement) and item.changes):
            raise DplcError("a run of a pattern reads `name..`", item)
        role = None if run.role in (None, "_") else run.role
        if role is not None and role not in RESERVED:
            raise DplcError(f"`{role}` is not a role", run)
        return self.run(item, run.base.text, role, whole, at, size, rest)

    def capture_run(self, item: CaptureStatement, whole: str, at: str, size: str, rest: int) -> str:
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

    def inside(self, item: InsideBlock, whole: str, at: str, size: str, rest: Rest) -> str:
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
        for name, slot in SLOTS.get(cls.__name__, {}).items():
            if slot.exact and name not in shape.fields:
                tests.append(self.unlike(f"{x}.{name}", cls.by_name[name].default))
        self.reject(" or ".join(tests))
        mentioned = [(field, shape.fields[field.name]) for field in cls.fields if field.name in shape.fields]
        for field, value in sorted(mentioned, key=lambda pair: _cost(pair[1])):
            if field.sort != "Block":
                self.field(field, value, f"{x}.{field.name}")

    def field(self, field: Field, value: Syntax | Nodes, x: str) -> None:
        if isinstance(value, tuple):
            self.sequence(field.sort, value, x)
        elif field.many and isinstance(value, NameOf) and value.text not in RESERVED:
            self.bind(value.text, x)
        else:
            self.value(field.sort, value, x)

    def sequence(self, sort: str, items: Nodes, x: str) -> None:
        before, self.sort = self.sort, sort
        self.items(items, self.held(x, "t" if sort else "b"), "0")
        self.sort = before

    # ---- values
    def value(self, sort: str, node: Syntax, x: str) -> None:
        node = bare(node)
        nested = shape_of(node)
        if nested is not None:
            self.node(nested, x)
        elif isinstance(node, NameOf):
            self.name(sort, node.text, x)
        elif isinstance(node, Number | Text):
            self.reject(self.unlike(x, node.value))
        elif isinstance(node, Prefix) and node.op == "not":
            self.negation(sort, node.a, x)
        else:
            self.expression(sort, node, x)

    def name(self, sort: str, text: str, x: str) -> None:
        if text in CONSTANTS:
            self.reject(self.unlike(x, CONSTANTS[text]))
        elif text in RESERVED:
            self.reject(self.unlike(x, text if sort in NAME_SORTS else e.Var(text)))
        else:
            self.bind(text, x, "name" if sort in NAME_SORTS else "value")

    def negation(self, sort: str, node: Syntax, x: str) -> None:
        test, bound, reports = self.local("e"), dict(self.symbols), self.reports
        self.reports = ""
        with self.function(f"def {test}():", "return False"):
            self.value(sort, node, x)
            self.put("return True")
        self.symbols, self.reports = bound, reports
        self.reject(f"{test}()")

    def expression(self, sort: str, node: Syntax, x: str) -> None:
        names = free_names(node, self.expressions.facts)
        known = {name for name, symbol in self.symbols.items() if not symbol.maybe}
        if isinstance(node, Subscript) and self.register(node):
            self.reject(f"{x}.__class__ is not Element")
            self.value("Name", node.base, f"{x}.name")
            return self.sequence("Expr", node.items, f"{x}.index")
        if names <= known | {"target"} or isinstance(node, Member | Subscript | Comprehension):
            compute, kind = self.constant(self.expressions.compile(node)), "name" if sort in NAME_SORTS else "value"
            value = self.held(f"{compute}({{**env, {self.environment(sorted(names & known))}}})")
            return self.reject(differs(Symbol(value, "value"), x, kind))
        if isinstance(node, Apply):
            self.reject(f"{x}.__class__ is not Call")
            self.name("Fn", node.fn, f"{x}.fn")
            return self.sequence("Expr", node.items, f"{x}.args")
        return self.computed(node, x)

    def operand(self, node: Syntax, x: str) -> None:
        self.value("Expr", node, x)

    def register(self, node: Subscript) -> bool:
        """Return whether `acc[i]` is an element of a register array, and not of a list that the pattern binds."""
        if self.expressions.level != "kernel" or not isinstance(node.base, NameOf):
            return False
        known = self.symbols.get(node.base.text)
        return known is None or known.kind == "name"


def _statements(block: Nodes) -> Nodes:
    return tuple(item for item in block if not isinstance(item, PassStatement))


def _required_shape(item: Syntax) -> Shape:
    shape = shape_of(item)
    if shape is None:
        raise DplcError("this stands in templates only, or is not a statement", item)
    return shape


# The ranks of tests: cheap tests come first, then binders, then lists. Values follow those that they read.
_COSTS = {Number: 0, Text: 0, Prefix: 0, NameOf: 1, tuple: 3, Member: 5, Subscript: 5}


def _cost(value: object) -> int:
    fixed = isinstance(value, NameOf) and not is_variable(value.text)
    return 0 if fixed else _COSTS.get(type(value), 2)


# Templates to closures that build statements.
#
# A field that is not mentioned has its default, a sticky field what the matched statement has. A name that the template
# defines and the match does not bind is fresh, with its spelling as a hint; copies made by `each` after the first, and
# runs of another block of the pattern, define new names where they clash, for a block defines a value once.


Change = Callable[[Block, Environment], Block]
# Finds a local rule by its name and location: a function from (block, arguments, environment) to a block.
Locals = Callable[[str, Span], Callable[[Block, tuple[Value, ...], Environment], Block]]
Families = Mapping[str, frozenset[str]]
FIELDS_OF_LOAD = "@load"  # in the environment of an arm: the load that it rewrites


class Template(RuleExpressions):
    """Compiler of templates. known: the names bound at build time; `locals_` finds the rules of `with rule r(..)`."""

    def __init__(self, level: str, known: frozenset[str], locals_: Locals, runs: Families):
        super().__init__(level, symbolic=True)
        self.known, self.locals, self.families = known, locals_, runs
        self._sticky_seen = Counter[str]()

    def block(self, statements: Nodes) -> Closure:
        """Return the closure of a block: a tuple of statements.

        Of runs of several blocks of the pattern, each defines names of its own.
        """
        parts = [(self.statement(node), self.family(node)) for node in statements]
        several = len({family for _, family in parts} - {None}) > 1

        def build(env: Environment) -> Value:
            out: list[Node] = []
            for part, family in parts:
                made = part(env)
                again = sorted(defined_in(made) & defined_in(out)) if several and family else ()
                if again:
                    new = {name: env[NAMES].fresh(name) for name in again}
                    env = {**env, **{name: substitute(env[name], new) for name in family or () if name in env}}
                    made = part(env)
                out += made
            return tuple(out)

        return build

    def family(self, node: Syntax) -> frozenset[str] | None:
        """Return the variables that are renamed with a run; None if it is not a run of the pattern."""
        base = node.run.base if isinstance(node, RunStatement) else None
        while isinstance(base, Subscript):  # a run with substitutions
            base = base.base
        return self.families.get(base.text) if isinstance(base, NameOf) else None

    def statement(self, node: Syntax) -> Closure:
        """Return a closure that returns a tuple of statements: none for `pass` and `drop`."""
        if isinstance(node, PassStatement | DropStatement):
            return lambda env: ()
        if isinstance(node, RunStatement):
            return self.spliced(node)
        if isinstance(node, EachBlock):
            return self.each(node)
        if isinstance(node, InsideBlock):
            name, body = node.name, self.block(node.body)
            return lambda env: env[name].plug(body(env))
        if isinstance(node, IfBlock):
            return self.guard(node)
        shape = shape_of(node)
        if shape is None or isinstance(node, CaptureStatement):
            raise DplcError("this stands in patterns only, or is not a statement", node)
        known = self.kept(shape)
        if shape.body is not None:
            known["body"] = self.block(shape.body)
        build = self.node(shape, known)
        return lambda env: (build(env),)

    def kept(self, shape: Shape) -> dict[str, Closure]:
        """Return the sticky fields that a statement does not mention: those of the statement that was matched."""
        fields = [name for name in getattr(shape.cls, "sticky", ()) if name not in shape.fields]
        key = sticky(shape.cls)
        position = self._sticky_seen[key]
        self._sticky_seen[key] += bool(fields)
        return {name: _kept(key, position, name, shape.cls.by_name[name].default) for name in fields}

    def guard(self, node: IfBlock) -> Closure:
        """Compile `if c:`; a guard that is constant, or that guards nothing, leaves no trace."""
        condition, body = self.compile(node.condition), self.block(node.body)

        def build(env: Environment) -> Value:
            holds = condition(env)
            inner = body(env) if holds is not False else ()
            return inner if holds is True or not inner else (If(holds, inner),)

        return build

    def each(self, node: EachBlock) -> Closure:
        name, domain, known = node.variable, self.compile(node.domain), self.known
        self.known = known | {name}
        body = self.block(node.body)
        self.known = known

        def build(env: Environment) -> Value:
            out: list[Node] = []
            seen: set[str] = set()
            for value in domain(env):
                part = body({**env, name: value})
                again = sorted(seen.intersection(defined_in(part)))
                seen |= defined_in(part)
                out += substitute(part, {name: env[NAMES].fresh(name) for name in again})
            return tuple(out)

        return build

    # ---- `xs.. with change, ...`: the only ways for a template to change a captured run
    def spliced(self, node: RunStatement) -> Closure:
        base, changes = self.compile(node.run), [self.change(change) for change in node.changes]

        def build(env: Environment) -> Value:
            run = base(env)
            if run.__class__ is not tuple:
                if not isinstance(run, Node):
                    raise DplcError("only statements can be spliced here", node)
                run = (run,)
            for change in changes:
                run = change(run, env)
            return run

        return build

    def change(self, node: Syntax) -> Change:
        if isinstance(node, Keyword):
            return self.assigned(node)
        if isinstance(node, Arm):
            return self.arm(node)
        if isinstance(node, UseRule):
            arguments, rule = self.compile_all(node.call.items), self.locals(node.call.fn, node.call.span)
            return lambda run, env: rule(run, arguments(env), env)
        raise DplcError("a change reads `field=value`, `load .. => load ..` or `rule r(..)`", node)

    def assigned(self, change: Keyword) -> Change:
        """Compile `field=value`, on the statements of the run themselves."""
        name, value = change.name, self.compile(change.value)

        def apply(run: Block, env: Environment) -> Block:
            new, out = value(env), []
            for statement in run:
                field = type(statement).by_name.get(name)
                if field is None:
                    raise DplcError(
                        f"`{type(statement).__name__}` has no field `{name}`",
                        change,
                        did_you_mean(name, type(statement).by_name),
                    )
                out.append(replace(statement, **{name: coerce(field.sort, field.many, new)}))
            return tuple(out)

        return apply

    def arm(self, arm: Arm) -> Change:
        """Compile `load B[i..] => load C[e..] for x in d where g`, on every load below.

        The first element that fits rewrites a load, once. An arm that does not mention a guard keeps it.
        """
        left, right, variable = arm.pattern, arm.template, arm.variable
        if not isinstance(left, LoadOf) or not isinstance(right, LoadOf):
            raise DplcError("an arm rewrites loads: `load B[i..] => load C[e..]`", arm)
        guard, given = left.condition, sorted(free_names(left) & (self.known | {variable}))
        anything = NameOf(arm.span, "_")
        if guard is None:
            left = dataclasses.replace(left, condition=anything, other=anything)
        line = (Assign(arm.span, anything, left),)
        pattern = compile_pattern(line, self.level, f"load of {arm.span.location}", given, False)
        fields, same = load_fields(right), ("dst",) if guard is not None else ("dst", "when", "other")
        kept = {name: _kept(FIELDS_OF_LOAD, 0, name, None) for name in same if name not in fields}
        build = self.node(Shape(Load, fields, right), kept)
        domain, condition = (None if node is None else self.compile(node) for node in (arm.domain, arm.condition))

        def apply(run: Block, env: Environment) -> Block:
            choices = [env] if domain is None else [{**env, variable: value} for value in domain(env)]

            def fire(block: Block, start: int) -> tuple[int, Block] | None:
                for choice in choices:
                    for end, found in pattern.match(block, start, choice, None):
                        if condition is None or holds(condition, found):
                            return end, (build({**found, FIELDS_OF_LOAD: block[start:end]}),)
                return None

            return pattern.everywhere(run, fire)

        return apply


def _kept(key: str, position: int, field: str, default: Value) -> Closure:
    """Return the closure of a field of a statement that the environment holds: of the last one if there are fewer."""

    def keep(env: Environment) -> Value:
        matched = env.get(key)
        return getattr(matched[min(position, len(matched) - 1)], field) if matched else default

    return keep


# Runs of sibling blocks that a template puts into one block: later names are renamed, so each value has one definition.


def families(pattern: Nodes) -> Families:
    """Return, for each run of a pattern, the variables of its block: they see the same values.

    A variable that occurs outside of the block, too, is not among them: its value is the one outside.
    """
    variables: dict[str, frozenset[str]] = {}
    everywhere = _mentioned(pattern)
    for block in (pattern, *(node.body for node in walk(pattern) if isinstance(getattr(node, "body", None), tuple))):
        own = frozenset(name for name, count in _mentioned(block).items() if count == everywhere[name])
        runs = (item.run.base for item in block if isinstance(item, RunStatement))
        variables |= {base.text: own for base in runs if isinstance(base, NameOf)}
    return variables


def _mentioned(block: Nodes) -> Counter[str]:
    """Return the variables that some statements of a pattern mention, and how often."""
    keys = {NameOf: "text", CaptureStatement: "name", InsideBlock: "name", ForLoop: "var"}
    return Counter(getattr(node, keys[type(node)]) for node in walk(block) if type(node) in keys)


def apart(made: Any, beside: Iterable[object], site: Site) -> Any:
    """Rename the values that a rule defines under the name of an adjacent value.

    A value that was inside of a block, and hid the other, may be in the same block now.
    """
    again = sorted(defined_in(made) & defined_in(beside))
    if not again:
        return made
    names = Names(site, {})
    names.used.update(*map(names_in, made))
    return substitute(made, {name: names.fresh(name) for name in again})


def defined_in(block: Iterable[object]) -> set[str]:
    """Return the values that a block defines."""
    return {x.dst for x in block if isinstance(x, Let | Load)}


def defined(statements: Iterable[Syntax], given: frozenset[str]) -> tuple[str, ...]:
    """Return the names that a template defines itself, in text order: they are fresh in every rewrite."""
    return tuple(name for name in dict.fromkeys(_definitions(statements)) if name not in given and name not in RESERVED)


def _definitions(statements: Iterable[Syntax]) -> Iterator[str]:
    for node in statements:
        shape = shape_of(node)
        fields = shape.fields if shape is not None else {}
        for name in ("name", "var", "dst", "acc"):
            if isinstance(value := fields.get(name), NameOf):
                yield value.text
        hidden = node.variable if isinstance(node, EachBlock) else None
        # the axes of a Tile; those of a shared tile are labels
        for below in (*map(fields.get, ("ins", "outs", "axes")), getattr(node, "body", None)):
            if isinstance(below, tuple):
                yield from (name for name in _definitions(below) if name != hidden)
