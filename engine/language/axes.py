"""The check of axes on torch: what a value runs over is in the bracket of the result, or folded on the way there."""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.text import syntax as s
from .core import says_slices
from .dataflow import targets
from .findings import Finding
from .positions import names
from .subject import CheckedRule

Axes = dict[str, s.Syntax]  # free axes, and a place where each stands


def dangling_axes(subject: CheckedRule) -> Iterator[Finding]:
    """`y[i, j] = Reduce(add, k, multiply(x[i, k], w[j, kk]))`: kk is neither an axis of y nor folded."""
    if subject.rule.level != "torch":
        return
    free = subject.axes.keys() - subject.bound.keys() - subject.lets.keys()
    made: dict[str, Axes] = {}
    for statement in subject.rule.rewrite:
        if not isinstance(statement, s.Assign) or says_slices(statement):
            continue
        left = _result_axes(statement.target)
        found = {name: place for name, place in _axes(statement.value, made).items() if name in free}
        if isinstance(statement.target, s.NameOf):
            made[statement.target.text] = found
            continue
        dangling = found.keys() - left if left is not None else set()
        for name in (name for name in found if name in dangling):
            result = next(iter(targets(statement)))
            what = f"axis `{name}` is neither in the bracket of `{getattr(result, 'text', 'the result')}` nor folded"
            yield subject.finding(what, found[name].span)


def _result_axes(target: s.Syntax) -> set[str] | None:
    """The names in the bracket of a result; None if a fact makes some of them."""
    items = target.items if isinstance(target, s.Subscript) else ()
    plain = [item.base if isinstance(item, s.Run) else item for item in items]
    return (
        {item.text for item in plain if isinstance(item, s.NameOf)}
        if all(isinstance(x, s.NameOf) for x in plain)
        else None
    )


def _axes(node: s.Syntax | None, made: dict[str, Axes]) -> Axes:
    """The axes that a value runs over: those of its brackets, less those it folds."""
    if isinstance(node, s.NameOf):
        return dict(made.get(node.text, {}))
    if isinstance(node, s.Subscript):
        return _bracket(node.items, made)
    if isinstance(node, s.Apply) and node.fn == "Reduce" and len(node.items) > 1:
        folded = {name.text for item in node.items[1:-1] for name in names(item)}
        return {name: place for name, place in _axes(node.items[-1], made).items() if name not in folded}
    if isinstance(node, s.Apply) and node.fn == "Fold" and len(node.items) > 1:
        folded = {name.text for item in node.items[1:-1] for name in names(item)}
        found = {name: place for item in node.items[-1].items for name, place in _axes(item, made).items()}  # type: ignore[attr-defined]
        return {name: place for name, place in found.items() if name not in folded}
    if isinstance(node, s.Apply) and node.fn == "Index":
        return {name.text: name for name in names(node.items)}
    if isinstance(node, s.Choice):
        return _axes(node.a, made) | _axes(node.b, made)
    if isinstance(node, s.Apply):
        return {name: place for item in node.items for name, place in _axes(item, made).items()}
    return {}


def _bracket(items: tuple[s.Syntax, ...], made: dict[str, Axes]) -> Axes:
    found: Axes = {}
    for item in items:
        base = item.base if isinstance(item, s.Run) else item
        if isinstance(base, s.NameOf) and base.text in made:
            found |= made[base.text]  # a gather: a value of integers says where
        elif isinstance(base, s.NameOf):
            found[base.text] = base
        elif isinstance(base, s.Subscript):
            found |= _bracket(base.items, made)
    return found


def whole_axes(subject: CheckedRule) -> Iterator[Finding]:
    """`Tile(outer.., i):` where i is the name of an axis: a Tile that is made says extents and roles."""
    for node, want, what, scope, _ in subject.expressions if not subject.dataflow else ():
        if want.kind != "axis":
            continue
        have = subject.sort_at(node.base if isinstance(node, s.Run) else node, scope)
        if have.kind not in ("axis", "any", "value"):
            shown = node.text if isinstance(node, s.NameOf) else "i"
            hint = f"write `{shown}:M=THREAD`: its name, its extent and its role"
            yield subject.finding(f"{what} are axes, and this is {have}", node.span, (), hint)
