"""Templates of torch rules: syntax to the parts of template.py."""

from __future__ import annotations

from ....ir.diagnostic import DplcError, did_you_mean
from ....ir.functions import FUNCTIONS
from ....ir.text import syntax as s
from ...language.evaluate import CONSTANTS, Closure, Expressions
from . import template as t

ARITIES = {"Index": 1, "Case": 3, "cast": 2, "place": 3}


class Numbers(Expressions):
    """Lets, guards and conditions: calculation with numbers, lists and unnamed axes."""

    def __init__(self, symbolic: bool = False) -> None:
        super().__init__("torch", symbolic)

    def apply(self, node: s.Apply) -> Closure:
        raise DplcError(f"unknown fact `{node.fn}`", node.span, (), did_you_mean(node.fn, self.facts))


class TemplateCompiler:
    """Compiles the right sides of one template. locals: the values that it defines."""

    def __init__(self, locals_: frozenset[str]):
        self.locals = locals_
        self.numbers, self.symbolic = Numbers(), Numbers(symbolic=True)

    def part(self, node: s.Syntax, short: bool = False) -> t.Part:
        """short: an operand of a Case, which may be shorter than the axis that indexes it."""
        if isinstance(node, s.Group) and node.bracket == "(" and len(node.items) == 1:
            return self.part(node.items[0], short)
        if isinstance(node, s.Subscript):
            if not isinstance(node.base, s.NameOf):
                raise DplcError("a tensor is read as `name[..]`", node.span)
            return t.IndexedRead(node.base.text, self.bracket(node.items), short)
        if isinstance(node, s.Choice):
            return t.Decide(self.numbers.compile(node.condition), self.part(node.a, short), self.part(node.b, short))
        if isinstance(node, s.NameOf):
            name = None if node.text in CONSTANTS else node.text
            return t.Value(name, self.numbers.compile(node), node)
        return self._call(node, short) if isinstance(node, s.Apply) else t.Value(None, self.numbers.compile(node), node)

    def _call(self, node: s.Apply, short: bool) -> t.Part:
        name, items = node.fn, node.items
        if name in ARITIES and len(items) != ARITIES[name]:
            raise DplcError(f"`{name}` takes {ARITIES[name]} arguments, not {len(items)}", node.span)
        if name == "Reduce":
            return self._reduction(node, short)
        if name == "Index":
            return t.IndexOf(self.symbolic.compile(items[0]))
        if name == "Case":
            return t.Select(self.symbolic.compile(items[0]), self.part(items[1], True), self.part(items[2], True))
        if name == "cast":
            return t.Cast(self.part(items[0], short), self.numbers.compile(items[1]))
        if name == "place":
            low, end = map(self.numbers.compile, items[1:])
            return t.PlaceOf(self.part(items[0], short), low, end)
        if name not in FUNCTIONS:
            return t.Value(None, self.numbers.compile(node), node)
        if len(items) != FUNCTIONS[name].arity:
            raise DplcError(f"`{name}` takes {FUNCTIONS[name].arity} arguments, not {len(items)}", node.span)
        return t.FunctionPart(name, tuple(self.part(item, short) for item in items))

    def _reduction(self, node: s.Apply, short: bool) -> t.Part:
        if len(node.items) < 3 or not isinstance(node.items[0], s.NameOf):
            raise DplcError("a reduction reads `Reduce(function, axes.., value)`", node.span)
        fn = node.items[0].text
        if fn not in FUNCTIONS or FUNCTIONS[fn].identity is None:
            options = [name for name, f in FUNCTIONS.items() if f.identity is not None]
            raise DplcError(
                f"`{fn}` cannot reduce: it has no identity", node.items[0].span, (), did_you_mean(fn, options)
            )
        return t.Reduction(fn, self.bracket(node.items[1:-1]), self.part(node.items[-1], short))

    def bracket(self, items: tuple[s.Syntax, ...]) -> t.Bracket:
        return t.Bracket(tuple(map(self._item, items)))

    def _item(self, item: s.Syntax) -> t.Item:
        inner = item.base if isinstance(item, s.Run) else item
        closure = self.symbolic.compile(inner) if not _is_term(inner) else (lambda env: ())
        if isinstance(item, s.Run):
            return t.Item(inner.text if isinstance(inner, s.NameOf) else None, True, closure)
        if _is_term(item) or (isinstance(item, s.NameOf) and item.text in self.locals):
            return t.Item(None, False, closure, self.part(item))
        return t.Item(item.text if isinstance(item, s.NameOf) else None, False, closure)


def _is_term(item: s.Syntax) -> bool:
    """Whether an item of a bracket is a value that was read: a gather."""
    return isinstance(item, s.Subscript) or (isinstance(item, s.Apply) and (item.fn in FUNCTIONS or item.fn == "place"))
