"""Substitution of names by expressions in expressions and statements, capture-avoiding; and of affine forms.

What a field means to substitution is its sort: `Expr` is rewritten, a `Name` is renamed when its image is a name,
`over` (a list of axes) becomes the names of the images, labels of a Stage are its own and stay.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from .expr import Axis, Binary, Call, Not, Size, Sum, Var, add, free_names, from_linear, linear, multiply, rebuild
from .loop import For
from .node import CLASSES, Expr, Node, each_once, names_in, nodes, with_parts
from .sizes import has_sizes, hints

Images = dict[str, Expr]
V = TypeVar("V")  # a node, an expression or a tuple of them
_EXPRESSIONS = frozenset((Var, Sum, Binary, Call, Not))


def substitute(value: V, mapping: Images) -> V:
    """Return a value (an expression, a statement or a tuple) with free names replaced.

    A loop that binds a name shields it, unless the image is itself a name: then binder and uses are renamed together.
    """
    return _substituted(value, mapping) if mapping else value


def _substituted(value: Any, mapping: Images) -> Any:
    kind = value.__class__
    if kind is tuple:
        return _each(value, lambda item: _substituted(item, mapping))
    if kind in _EXPRESSIONS:
        return substitute_expr(value, mapping)
    if not issubclass(kind, Node) or mapping.keys().isdisjoint(names_in(value)):
        return value
    if kind is For and value.var in mapping and mapping[value.var].__class__ is not Var:
        mapping = {name: image for name, image in mapping.items() if name != value.var}
    return _substitute_fields(value, mapping)


def _each(items: tuple[Any, ...], change: Callable[[Any], Any]) -> tuple[Any, ...]:
    """Return items with each changed; the same tuple where nothing has changed."""
    out = tuple([change(item) for item in items])
    return items if all(map(operator.is_, out, items)) else out


def substitute_expr(value: Expr, mapping: Images) -> Expr:
    """Return an expression with free names replaced."""
    if value.__class__ is Var:
        return mapping.get(value.name, value)
    if value.__class__ not in CLASSES or not (free_names(value) & mapping.keys()):
        return value
    return _rebuilt(value, mapping)


@each_once
def _rebuilt(value: Node, mapping: Images) -> Expr:
    return rebuild(value, lambda part: substitute_expr(part, mapping))


_FIXED = frozenset(
    ("Role", "Via", "Fn", "MonoidName", "AtomName", "Dtype", "Int", "Num")
)  # sorts that hold no names of values


def _substitute_fields(node: Any, mapping: Images) -> Any:
    cls = type(node)
    labels = getattr(cls, "labels", ())
    changed = False
    out = []
    for field in cls.fields:
        old = getattr(node, field.name)
        if field.name in labels or field.sort in _FIXED:
            new = old
        elif field.sort == "Over":
            new = over_axes(old, mapping)
        elif field.sort == "Name" and not field.many:
            image = mapping.get(old) if old.__class__ is str else None
            new = image.name if type(image) is Var else old
        elif cls is Axis and field.name == "name":
            new = old
        elif field.sort == "Name" and field.many:
            images = [mapping.get(name, name) for name in old]
            new = tuple(image.name if image.__class__ is Var else name for name, image in zip(old, images, strict=True))
            new = old if new == old else new
        else:
            new = _substituted(old, mapping)
        changed = changed or new is not old
        out.append(new)
    return cls(*out) if changed else node


def over_axes(over: tuple[Any, ...], mapping: Images) -> tuple[Any, ...]:
    """Return the axes that a Combine names after a substitution.

    An axis that became `q*V + v` gives (q, v), and an axis that became a number is dropped.
    """
    images = tuple(mapping.get(axis.name, axis) for axis in over)
    return tuple(dict.fromkeys(nodes(images, Var)))  # in text order, which is a part of the meaning of a Combine


def substitute_affine(value: Any, form: Expr, image: Expr) -> Any:
    """Replace the affine form (`i*F + r`) by image inside every linear expression: `c*(i*F + r)` becomes `c*image`."""
    terms, constant = linear(form)
    if not terms:
        raise ValueError("what a substitution replaces is computed from no variable here")
    first = next(iter(terms))
    names = names_in(first)

    @each_once
    def change(e: Any) -> Any:
        if e.__class__ is tuple:
            return tuple([change(item) for item in e])
        if e.__class__ not in CLASSES or names.isdisjoint(names_in(e)):
            return e
        if e.__class__ is Var or e.__class__ is Sum:
            have, rest = linear(e)
            factor, left = divmod(have.get(first, 0), terms[first])
            if factor and not left and all(have.get(atom) == n * factor for atom, n in terms.items()):
                others = {atom: n for atom, n in have.items() if atom not in terms}
                other = from_linear(others, rest - factor * constant)
                return add(rebuild(other, change) if other.__class__ in CLASSES else other, multiply(image, factor))
            return rebuild(e, change)
        if e.__class__ in _EXPRESSIONS:
            return rebuild(e, change)
        lists = (field.name for field in type(e).fields if field.sort == "Over")
        return with_parts(e, change, {*getattr(type(e), "labels", ()), *lists})

    return change(value)


def with_sizes(value: V, sizes: Mapping[str, Expr]) -> V:
    """Return a program at a binding of its sizes, which defines the meaning of a program with sizes."""
    made = dict[Node, Any]()  # a value that many read is bound once

    def bound(part: Any) -> Any:
        if part.__class__ is tuple:
            return _each(part, bound)
        if part.__class__ not in CLASSES or not has_sizes(part):
            return part
        if part not in made:
            made[part] = at_sizes(part)
        return made[part]

    def at_sizes(node: Node) -> Any:
        if node.__class__ is Size:
            return sizes[node.name]
        if node.__class__ in _EXPRESSIONS:
            return rebuild(node, bound)
        return with_parts(node, bound)

    result: V = bound(value)
    return result


def with_hints(value: V) -> V:
    """Return a program with every size replaced by its hint, for which costs are predicted."""
    found = hints(value)
    return with_sizes(value, found) if found else value
