"""Patterns of torch rules, compiled. They are closed: a field that the rule does not mention must be at its default."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....ir.diagnostic import DplcError
from ....ir.expr import Var
from ....ir.functions import DTYPES
from ....ir.program import TensorType
from ....ir.schemas import Overload
from ....ir.text.print_statements import print_value
from ...language import core as s
from ...language.evaluate import CONSTANTS, RESERVED
from ...language.questions import Environment
from .values import View

Bind = Callable[[Any, Environment], str | None]  # None, or why the value does not fit


def show(value: Any) -> str:
    """A field's value as the text of a rule has it."""
    if isinstance(value, View):
        return value.name
    if isinstance(value, tuple):
        return f"({', '.join(map(show, value))})"
    return f'"{value}"' if isinstance(value, str) else print_value(value)


def same(a: Any, b: Any) -> bool:
    """Equality that tells numbers and truth values apart; nan is nan."""
    if a.__class__ is float and a != a:
        return b.__class__ is float and b != b
    return a is b or (isinstance(a, bool) is isinstance(b, bool) and type(a) is not View and a == b)


def _constant(value: Any) -> Bind:
    return lambda found, env: None if same(found, value) else f"{show(found)} is not {show(value)}"


def _variable(name: str) -> Bind:
    def bind(found: Any, env: Environment) -> str | None:
        if name not in env:
            env[name] = found
            return None
        return None if same(env[name], found) else f"two values for `{name}`"

    return bind


def _list(items: tuple[s.Syntax, ...]) -> Bind:
    rest = items[-1] if items and isinstance(items[-1], s.Run) else None
    binds = tuple(map(compile_value, items[:-1] if rest else items))
    tail = compile_value(rest.base) if rest else None
    many = len(binds)

    def bind(found: Any, env: Environment) -> str | None:
        if not isinstance(found, tuple):
            return f"{show(found)} is no list"
        if len(found) < many or (tail is None and len(found) > many):
            return f"a list of {len(found)}, not of {many}{' or more' if tail else ''}"
        for part, value in zip(binds, found, strict=False):
            if (reason := part(value, env)) is not None:
                return reason
        return tail(found[many:], env) if tail else None

    return bind


def compile_value(node: s.Syntax) -> Bind:
    """The test and binding of one field's value."""
    if isinstance(node, s.NameOf):
        if node.text == "_":
            return lambda found, env: None
        if node.text in CONSTANTS:
            return _constant(CONSTANTS[node.text])
        if node.text == "nan":
            return _constant(float("nan"))
        return _constant(Var(node.text)) if node.text in RESERVED else _variable(node.text)
    if isinstance(node, s.Prefix) and node.op == "-" and isinstance(node.a, s.NameOf) and node.a.text == "inf":
        return _constant(-CONSTANTS["inf"])
    if isinstance(node, (s.Number, s.Text)):
        return _constant(node.value)
    if isinstance(node, s.Group):
        return _list(node.items)
    raise DplcError("a pattern on torch holds variables, constants and lists", node.span)


class TypePattern:
    """`f32[4, n, rest..]`, of one result."""

    def __init__(self, node: s.TypeOf):
        dtype = _constant(Var(node.dtype)) if node.dtype in DTYPES else compile_value(s.NameOf(node.span, node.dtype))
        self.dtype, self.dims = dtype, _list(node.dims)

    def match(self, found: TensorType, env: Environment) -> str | None:
        """Bind the variables of the type; or say why it does not fit."""
        return self.dtype(Var(found.dtype), env) or self.dims(tuple(found.shape), env)


class StatementPattern:
    """`dst = Op(positional.., field=pattern, rest..)`, with types or without: `dst: f32[4, n] = ..`"""

    def __init__(self, statement: s.Syntax):
        if (
            not isinstance(statement, s.Assign)
            or not isinstance(statement.target, s.NameOf)
            or not isinstance(statement.value, s.Apply)
        ):
            raise DplcError("a pattern on torch is `y = Op(field, ..)`", statement.span)
        items = statement.value.items
        self.types = tuple(map(TypePattern, statement.types))
        self.dst, self.op = statement.target.text, statement.value.fn
        given = (item.value if isinstance(item, s.Keyword) else item for item in items)
        self.reads = {value.text for value in given if isinstance(value, s.NameOf)}
        self.open = any(isinstance(item, s.Run) for item in items)
        self.keywords = {item.name: compile_value(item.value) for item in items if isinstance(item, s.Keyword)}
        self.positional = tuple(compile_value(item) for item in items if not isinstance(item, (s.Keyword, s.Run)))
        self._plans: dict[str, str | tuple[tuple[tuple[str, Any, Bind], ...], frozenset[str]]] = {}

    def typed(self, types: tuple[TensorType, ...], env: Environment) -> str | None:
        """Why the types of the results do not fit, if the pattern says any."""
        if not self.types:
            return None
        if len(types) != len(self.types):
            return f"{len(types)} results, not {len(self.types)}"
        reasons = (pattern.match(found, env) for pattern, found in zip(self.types, types, strict=True))
        return next((f"type of the result: {reason}" for reason in reasons if reason is not None), None)

    def match(self, overload: Overload, given: dict[str, Any], env: Environment) -> str | None:
        """Bind the pattern's variables to the fields; or say why the op does not fit."""
        plan = self._plans.get(overload.name)
        if plan is None:
            plan = self._plans[overload.name] = self._plan(overload)
        if isinstance(plan, str):
            return plan
        fields, known = plan
        for name, default, bind in fields:
            if (reason := bind(given.get(name, default), env)) is not None:
                return f"{name}: {reason}"
        if not self.open:
            for name, value in given.items():
                if name not in known:
                    return f"the rule says nothing about {name}={show(value)}"
        return None

    def _plan(self, overload: Overload) -> str | tuple[tuple[tuple[str, Any, Bind], ...], frozenset[str]]:
        """Which pattern each field of an overload meets, or why there is none."""
        arguments = {argument.name: argument for argument in overload.arguments}
        for name in self.keywords:
            if name not in arguments:
                return f"{overload.name} has no field `{name}`"
        free = [name for name in arguments if name not in self.keywords]
        if len(free) < len(self.positional):
            return f"{overload.name} has {len(free)} fields for {len(self.positional)} positions"
        binds = dict(zip(free, self.positional, strict=False)) | self.keywords
        fields = tuple((name, a.default, binds[name]) for name, a in arguments.items() if name in binds)
        return fields, frozenset(binds)
