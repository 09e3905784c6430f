"""Expressions of clauses and templates: `engine/language/evaluate` with substitutions, roles, axes, nested nodes."""

from __future__ import annotations

from typing import Any

from ....ir import expr as e
from ....ir.diagnostic import DplcError
from ....ir.kernel import Element
from ....ir.node import Node, replace
from ....ir.substitute import substitute, substitute_affine
from ....ir.text.print_statements import print_value
from ....ir.text.read_statements import VALUE_CLASSES, Shape, op_shape
from ...language import core as s
from ...language.evaluate import Closure, Environment, Expressions
from ...language.typed_slots import NAMES, shape_of, walk

ANSWERS = "@answers"


def coerce(sort: str, many: bool, value: Any) -> Any:
    """Convert a value of the rule language to the value of a field.

    Names become text. A single item becomes a list if the field is a list.
    """
    if many:
        listed = value if value.__class__ is tuple else (value,)
        if sort == "Axis":
            for item in listed:
                if item.__class__ is not e.Axis:
                    raise TypeError(f"`{print_value(item)}` stands where an axis does, and is none")
        return tuple([coerce(sort, False, item) for item in listed]) if sort in NAMES else listed
    if sort in NAMES and value.__class__ is e.Var:
        return value.name
    return value


class RuleExpressions(Expressions):
    """Compiler of expressions of one level. `symbolic`: comparisons of index expressions are index expressions."""

    def __init__(self, level: str, symbolic: bool = False):
        super().__init__(level, symbolic)
        self.questions: dict[s.Syntax, int] = {}  # of comprehensions, numbered: the same one twice is asked once
        self.depends: tuple[str, ...] | None = None  # the variables of the question that is compiled

    def compile(self, node: s.Syntax) -> Closure:
        """Compile an expression.

        In a comprehension, an expression that calls facts runs once for all elements that it does not depend on.
        """
        if not self.variables or isinstance(node, s.NameOf | s.Number | s.Text):
            return super().compile(node)
        parts = tuple(walk(node))
        mentioned = {getattr(part, field, None) for part in parts for field in ("text", "name", "fn")}
        names = tuple(dict.fromkeys(name for name in self.variables if name in mentioned))
        asks = any(isinstance(part, s.Apply) and part.fn in self.facts for part in parts)
        if not asks or names == self.depends or set(names) == set(self.variables):
            return super().compile(node)
        before, self.depends = self.depends, names
        question = super().compile(node)
        self.depends = before
        return _once(question, self.questions.setdefault(node, len(self.questions)), names)

    def subscript(self, node: s.Subscript) -> Closure:
        base = self.compile(node.base)
        if len(node.items) == 1 and not isinstance(node.items[0], s.Substitution):
            return self._element_or_map(base, self.compile(node.items[0]))
        plain = not any(isinstance(item, s.Substitution | s.Run) for item in node.items)
        places = [self.compile(item) for item in node.items] if plain else []
        changes = [self._change(item) for item in node.items]

        def apply(env: Environment) -> Any:
            value, simple = base(env), {}
            if plain and value.__class__ is e.Var:  # an array of registers
                return Element(value.name, tuple(place(env) for place in places))
            forms = []
            for change in changes:
                for left, right in change(env):
                    if left.__class__ is e.Var:
                        simple[left.name] = right
                    else:
                        forms.append((left, right))
            for left, right in forms:
                value = substitute_affine(value, left, right)
            try:
                return substitute(value, simple)
            except e.NotWhole as error:
                raise DplcError(str(error), node.span) from None

        return apply

    def _element_or_map(self, base: Closure, index: Closure) -> Closure:
        def look(env: Environment) -> Any:
            owner, key = base(env), index(env)
            if key.__class__ is dict:
                return substitute(owner, key)
            if owner.__class__ is e.Var:  # an array of registers
                return Element(owner.name, (key,))
            item = owner[key]
            return e.Var(item) if item.__class__ is str else item

        return look

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
        if node.role is None or node.role == "_":
            return base
        role = self.compile(s.NameOf(node.span, node.role))

        def change(env: Environment) -> Any:
            name = role(env).name
            return tuple([replace(axis, role=name) for axis in base(env)])

        return change

    def _axisitem(self, node: s.AxisItem) -> Closure:
        shape = shape_of(node)
        assert shape is not None
        return self.node(shape)

    def _paramitem(self, node: s.ParamItem) -> Closure:
        return self._axisitem(node)  # type: ignore[arg-type]

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
                parts.append(_constant(field.default))

        def build(env: Environment) -> Node:
            return cls(*[part(env) for part in parts])  # type: ignore[no-any-return]

        return build

    def field(self, field: Any, value: Any) -> Closure:
        """Return the closure of one field's value."""
        if field.sort == "Block":
            return self.block(value)
        if isinstance(value, tuple):
            items, sort = self.compile_all(value), field.sort
            return lambda env: coerce(sort, True, items(env))
        if field.sort in NAMES and isinstance(value, s.NameOf):
            return self.name(value)
        closure, sort, many = self.compile(value), field.sort, field.many
        return lambda env: coerce(sort, many, closure(env))

    def name(self, node: s.NameOf) -> Closure:
        """Return a name in a field of names: what the rule bound to it, or its own spelling (labels of a slab, say)."""
        text = node.text

        def look(env: Environment) -> Any:
            value = env.get(text, text)
            return value.name if value.__class__ is e.Var else value

        return look

    def block(self, statements: s.Nodes) -> Closure:
        """Raise DplcError for a block: only templates contain blocks, guards do not."""
        raise DplcError("statements stand in patterns and templates only", statements[0].span)


def _once(question: Closure, number: int, names: tuple[str, ...]) -> Closure:
    """Return a closure that keeps its result for the values of some variables, during one comprehension."""
    only = names[0] if len(names) == 1 else None

    def answer(env: Environment) -> Any:
        known = env[ANSWERS]
        key = (number, env[only]) if only else (number, *[env[name] for name in names]) if names else number
        try:
            if key in known:
                return known[key]
        except TypeError:  # a value that cannot be a key
            return question(env)
        known[key] = question(env)
        return known[key]

    return answer


def _constant(value: Any) -> Closure:
    return lambda env: value
