"""The typed statements of the core: a statement of a pattern or a template, seen through the schema of its node class.

Matchers, templates and checks are made from shapes, so what a field means is said once: in the node class.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, TypeVar

from ...ir.diagnostic import DplcError
from ...ir.functions import FUNCTIONS
from ...ir.names import unused
from ...ir.program import Kernel, Param
from ...ir.text.read_statements import (
    CLOSED,
    CONSTANTS,
    READERS,
    VALUE_CLASSES,
    Shape,
    axis_shape,
    named,
    op_shape,
    owners,
)
from ...ir.text.syntax import children, rebuilt, walk
from .core import (
    Apply,
    Assign,
    AxisItem,
    CaptureStatement,
    Comprehension,
    Group,
    Guard,
    Keyword,
    LetClause,
    LetExpression,
    Member,
    NameOf,
    Nodes,
    Number,
    Parameter,
    ParamItem,
    PickClause,
    Run,
    SizeItem,
    Subscript,
    Syntax,
    Text,
    Unit,
    says_slices,
)
from .evaluate import RESERVED

T = TypeVar("T")
# Fields whose value is text in the node and a name (`Var`) in the rule language.
NAME_SORTS = frozenset(("Name", *CLOSED))


def shape_of(node: Syntax) -> Shape | None:
    """Return the shape of a statement, an axis, a parameter or a nested node; None for anything else."""
    reader = _READERS.get(type(node))
    return reader(node) if reader else None


def _unit(node: Any) -> Shape:
    if node.kind != "kernel":
        raise DplcError("rules on this level speak of kernels, not graphs", node)
    for item in node.ins:
        if isinstance(item, SizeItem):
            raise DplcError("sizes stand in the heads of programs, not of rules", item)
    if node.precision:
        raise DplcError("rules keep the precision of a kernel, and do not say it", node)
    return Shape(Kernel, {"name": named(node.name, node), "ins": node.ins, "outs": node.outs, "body": node.body}, node)


def _param(node: Any) -> Shape:
    dtype = named(node.type.dtype, node.type)
    return Shape(Param, {"name": named(node.name, node), "dtype": dtype, "shape": node.type.dims}, node)


_READERS: dict[type, Any] = {
    **READERS, AxisItem: axis_shape, Unit: _unit, ParamItem: _param,
    CaptureStatement: lambda node: replace(op_shape(node.call, owners()), place=node),
    Apply: lambda node: op_shape(node, VALUE_CLASSES) if node.fn in VALUE_CLASSES else None,
}  # fmt: skip


def names(node: object) -> Iterator[NameOf]:
    """Yield the names that an expression reads from its surroundings: not those that it binds, not names of calls."""
    stack: list[tuple[Any, frozenset[str]]] = [(node, frozenset())]
    seen = set[tuple[int, frozenset[str]]]()
    while stack:
        node, hidden = stack.pop()
        if node.__class__ is tuple:
            stack.extend([(item, hidden) for item in reversed(node)])
        elif isinstance(node, NameOf):
            if node.text not in hidden:
                yield node
        elif (id(node), hidden) in seen:  # a fact that is written out is one object, at several places
            continue
        elif isinstance(node, Comprehension):
            stack += [((node.element, node.condition), hidden | {node.variable}), (node.domain, hidden)]
        elif isinstance(node, LetExpression):
            parts = []
            for let in node.lets:
                parts.append((let.value, hidden))
                hidden = hidden | {let.name}
            stack += [(node.value, hidden), *reversed(parts)]
        elif isinstance(node, Syntax):
            seen.add((id(node), hidden))
            stack.extend([(part, hidden) for part in reversed(children(node))])


def reads(node: object) -> Iterator[str]:
    """Return the texts of these names."""
    return (found.text for found in names(node))


def mentioned(node: object) -> set[str]:
    """Return these texts, and the names of what is called, which a variable may have."""
    return {*reads(node), *(call.fn for call in calls(node))}


LEAVES = {Number, Text, bool, int, float, type(None)}
_OF_TEXTS = {Member, Keyword, Guard}  # their texts are names of fields, and reasons


def substituted(node: T, known: Mapping[str, Syntax], words: bool = True, here: bool = False) -> T:
    """Replace names by other syntax. A comprehension or a `let` does not capture a name of the inserted syntax.

    words: replace also names that are plain text, such as those of loops, axes, roles and functions. here: for a family
    of rules: replace also the names of fields, and give the inserted syntax the span of the name.
    """
    made: dict[int, Any] = {}  # by identity: what was inserted at several places is one object, and is looked at once

    def change(node: Any) -> Any:
        kind: Any = node.__class__
        if kind is str:
            given = known.get(node) if words else None
            return given.text if isinstance(given, NameOf) else node
        if kind in LEAVES:
            return node
        if id(node) not in made:
            made[id(node)] = changed(node, kind)
        return made[id(node)]

    def renamed(at: Syntax, bound: tuple[str, ...], scope: object) -> tuple[list[str], dict[str, Syntax]]:
        """Return the names that a node binds, new ones where inserted syntax reads them, and what to replace."""
        inner, read = {name: value for name, value in known.items() if name not in bound}, names_in(scope)
        taken = names_in(tuple(value for name, value in inner.items() if name in read))
        fresh = [unused(name, taken | read) if name in taken else name for name in bound]
        return fresh, inner | {a: NameOf(at.span, b) for a, b in zip(bound, fresh) if a != b}

    def changed(node: Any, kind: Any) -> Any:
        if kind is NameOf:
            given = known.get(node.text)
            return node if given is None else replace(given, span=node.span) if here else given
        if kind in _OF_TEXTS and not here:
            return rebuilt(node, lambda part: part if part.__class__ is str else change(part))
        if kind is Comprehension:
            (variable,), inner = renamed(node, (node.variable,), (node.element, node.condition))
            element, condition = substituted((node.element, node.condition), inner, words, here)
            return Comprehension(node.span, node.bracket, element, variable, change(node.domain), condition)
        if kind is LetExpression:
            bound, inner = renamed(node, tuple(let.name for let in node.lets), node)
            values = substituted((*(let.value for let in node.lets), node.value), inner, words, here)
            lets = (LetClause(*let) for let in zip((let.span for let in node.lets), bound, values))
            return LetExpression(node.span, tuple(lets), values[-1])
        return rebuilt(node, change)

    found: T = change(node)
    return found


def without_lets(node: LetExpression) -> Syntax:
    """Return the value of a `let` expression with the named values in place of their names."""
    known: dict[str, Syntax] = {}
    for let in node.lets:
        known[let.name] = substituted(let.value, known, words=False)
    return substituted(node.value, known, words=False)


def plain(node: object) -> object:
    """Return a piece of syntax without its spans, for comparison."""
    if isinstance(node, tuple | list):
        return tuple(map(plain, node))
    if isinstance(node, Syntax):
        return (type(node).__name__, *map(plain, children(node)))
    return node if isinstance(node, str) else repr(node)


def every(node: object, kind: Any) -> Iterator[Any]:
    """Return the nodes of a kind in a node or a tuple, outermost first."""
    return (found for found in walk(node) if isinstance(found, kind))


def calls(node: object) -> Iterator[Apply]:
    """Return the calls in an expression, outermost first."""
    return every(node, Apply)


def says(node: object, fn: str) -> bool:
    """Return whether some syntax calls a function, or holds an op, of this name."""
    return any(call.fn == fn for call in calls(node))


def names_in(node: object) -> set[str]:
    """Return the names that an expression mentions."""
    return {found.text for found in every(node, NameOf)}


def is_variable(name: str) -> bool:
    """Return whether a name of a rule is not reserved."""
    return name != "_" and name not in RESERVED and name not in CONSTANTS


def binders(*parts: Nodes) -> Iterator[Parameter | LetClause | PickClause]:
    """Yield the parameters, `let`s and `pick`s among some parameters and clauses."""
    return (part for part in chain.from_iterable(parts) if isinstance(part, Parameter | LetClause | PickClause))


def targets(line: Syntax) -> Nodes:
    """Return the names that a line defines: one, several as in `(a, b) = mat(v, w)`, or none."""
    if not isinstance(line, Assign) or says_slices(line):
        return ()
    target = line.target.base if isinstance(line.target, Subscript) else line.target
    return target.items if isinstance(target, Group) else (target,)


def defined_names(line: Syntax) -> list[str]:
    """Return the texts of these names."""
    return [getattr(target, "text", "") for target in targets(line)]


# ---- Subsumption: one-way matching of syntax, with the names of the general pattern as variables.


def subsumes(general: Any, special: Any, matched: dict[str, Any]) -> bool:
    """Return whether a pattern matches all that another one matches. matched: filled with what names stand for.

    A name of a value, a field or a function subsumes any; a run at the end of a list subsumes the rest of the list.
    """
    if isinstance(general, tuple):
        run = getattr(general[-1], "run", general[-1]) if general else None
        if isinstance(run, Run) and not run.role:
            special = *special[: len(general) - 1], special[len(general) - 1 :]
            general = *general[:-1], run.base
        alike = len(general) == len(special)
        return alike and all(subsumes(*two, matched) for two in zip(general, special))
    name = general.text if isinstance(general, NameOf) else general if isinstance(general, str) else ""
    one_word = isinstance(special, str) and (is_variable(special) or special in FUNCTIONS)
    if name.isidentifier() and is_variable(name) and (one_word if name is general else not isinstance(special, Run)):
        one = special.text if isinstance(special, NameOf) else special
        return plain(matched.setdefault(name, one)) == plain(one)
    if general.__class__ is not special.__class__ or _fixed(general) != _fixed(special):
        return False
    if isinstance(general, Syntax) and not isinstance(general, Text):
        return subsumes((*children(general),), (*children(special),), matched)
    return bool(plain(general) == plain(special))


def _fixed(node: Any) -> str:
    """Return the word of a node that is no variable: its op, or its field."""
    if isinstance(node, Apply):
        return node.fn if node.fn[:1].isupper() else ""
    return node.name if isinstance(node, Keyword) else ""
