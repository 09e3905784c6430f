"""Templates of torch rules: syntax to the parts of template.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ....ir.diagnostic import DplcError, did_you_mean
from ....ir.expr import Axis, Binary, Sum
from ....ir.functions import FUNCTIONS
from ....ir.node import Node, nodes, walk
from ...language import core as s
from ...language import positions
from ...language.evaluate import Expressions
from ...language.questions import MISTAKES, Closure, Environment, mistaken
from . import template as t
from .values import View


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

    def part(self, node: s.Syntax) -> t.Part:
        """The part of a value as it is written."""
        return self.of(s.term_of(node, torch=True))

    def of(self, term: s.ValueTerm, short: bool = False) -> t.Part:
        """short: an operand of a Case, which may be shorter than the axis that indexes it."""
        match term:
            case s.ReadTerm(x=s.NameTerm(name=name)):
                return t.IndexedRead(name, self.bracket(term.places), short)
            case s.EitherTerm():
                return t.Decide(self.numbers.compile(term.condition), self.of(term.a, short), self.of(term.b, short))
            case s.NameTerm():
                return t.Value(term.name, self.numbers.compile(term.node), term.node)
            case s.ReduceTerm():
                return self._reduction(term, short)
            case s.FoldTerm():
                operands = tuple(self.of(operand, short) for operand in term.operands)
                return t.TupleReduction(term.part, self._over(term.node), operands)
            case s.StackedTerm(x=s.ReadTerm(x=s.NameTerm(name=name))):
                return t.StackedRead(name, self.index(term.place), self.bracket(term.x.places))
            case s.IndexTerm():
                return t.IndexOf(self.index(term.e))
            case s.CaseTerm():
                return t.Select(self.index(term.condition), self.of(term.a, True), self.of(term.b, True))
            case s.CastTerm():
                return t.Cast(self.of(term.x, short), self.numbers.compile(term.dtype), term.dtype.span)
            case s.PlaceTerm():
                low, end = map(self.numbers.compile, (term.low, term.end))
                return t.PlaceOf(self.of(term.x, short), low, end)
            case s.FunctionTerm(known=True):
                arity = FUNCTIONS[term.fn].arity
                if len(term.operands) != arity:
                    what = f"`{term.fn}` takes {arity} arguments, not {len(term.operands)}"
                    raise DplcError(what, term.span)
                return t.FunctionPart(term.fn, tuple(self.of(operand, short) for operand in term.operands))
        return t.Value(None, self.numbers.compile(term.node), term.node)

    def _reduction(self, term: s.ReduceTerm, short: bool) -> t.Part:
        if term.fn not in FUNCTIONS or FUNCTIONS[term.fn].identity is None:
            options = [name for name, f in FUNCTIONS.items() if f.identity is not None]
            raise DplcError(
                f"`{term.fn}` cannot reduce: it has no identity", term.span, (), did_you_mean(term.fn, options)
            )
        return t.Reduction(term.fn, self._over(term.node), self.of(term.x, short))

    def _over(self, node: s.Syntax) -> t.FoldedAxes:
        """What stands between the function of a fold and its operands."""
        items = node.items[1:-1]  # type: ignore[attr-defined]
        return t.FoldedAxes(tuple(map(self._item, items)), tuple(item.span for item in items))

    def index(self, node: s.Syntax) -> Closure:
        """An index, a list of them or a condition of them: of axes and numbers, never of tensors."""
        compute = self.symbolic.compile(node)
        names = tuple({part.text for part in positions.walk(node) if isinstance(part, s.NameOf)})

        def refused() -> DplcError:
            return DplcError("an index is an axis or a number, not a tensor value", node.span)

        def index(env: Environment) -> Any:
            try:
                found = compute(env)
            except MISTAKES as error:
                if any(env.get(name).__class__ is View for name in names):
                    raise refused() from None
                raise mistaken(node, error) from error
            if found.__class__ not in (Axis, int):
                if any(part.__class__ is View for part in walk(found)):
                    raise refused()
                if not all(isinstance(part, Node | int | float) for part in _operands(found)):
                    raise DplcError("an index is calculated of axes and numbers, not of lists or `none`", node.span)
            return found

        return index

    def bracket(self, items: tuple[s.Syntax, ...]) -> t.Bracket:
        return t.Bracket(tuple(map(self._item, items)))

    def _item(self, item: s.Syntax) -> t.Item:
        inner = item.base if isinstance(item, s.Run) else item
        closure = self.index(inner) if not _is_term(inner) else (lambda env: ())
        if isinstance(item, s.Run):
            return t.Item(inner.text if isinstance(inner, s.NameOf) else None, True, closure)
        if _is_term(item) or (isinstance(item, s.NameOf) and item.text in self.locals):
            return t.Item(None, False, closure, self.part(item))
        return t.Item(item.text if isinstance(item, s.NameOf) else None, False, closure)


def _operands(found: Any) -> Iterator[Any]:
    """What an index, or a condition of them, calculates with."""
    for pair in nodes(found, Binary):
        yield from (pair.a, pair.b)
    for total in nodes(found, Sum):
        yield from (atom for atom, _ in total.terms)


def _is_term(item: s.Syntax) -> bool:
    """Whether an item of a bracket is a value that was read: a gather."""
    return isinstance(item, s.Subscript) or (isinstance(item, s.Apply) and (item.fn in FUNCTIONS or item.fn == "place"))
