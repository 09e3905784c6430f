"""The scope of a rule, for its checks: every position of an expression or a name, and the names in scope there.

The positions follow from the node classes (on torch from the ATen schemas), so the checks of scopes and sorts know no
op by name. An unknown op, or a field that an op does not have, is reported on the way.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Iterator, MutableMapping
from functools import cached_property
from itertools import chain, repeat, zip_longest
from typing import Any, NamedTuple

from ...ir import loop, schemas
from ...ir.diagnostic import DplcError, did_you_mean
from ...ir.functions import FUNCTIONS
from ...ir.monoid_texts import PARTS
from ...ir.node import Field
from ...ir.text.read_statements import CONSTANTS, Shape, listed, load_fields, named, owners
from ...ir.text.syntax import children
from .core import (
    DECREASES,
    OPERATIONS,
    AccumulateInto,
    Apply,
    Arm,
    Assign,
    AxisItem,
    Between,
    CaptureStatement,
    CaseTerm,
    CastTerm,
    DropStatement,
    EachBlock,
    EitherTerm,
    FoldTerm,
    ForLoop,
    FunctionTerm,
    Group,
    Guard,
    IfBlock,
    IndexTerm,
    InsideBlock,
    Keyword,
    LetClause,
    LoadOf,
    MappedTerm,
    MatTerm,
    Member,
    NameOf,
    NameTerm,
    Nodes,
    Number,
    Parameter,
    PassStatement,
    PickClause,
    PlaceTerm,
    Prefix,
    ReadTerm,
    ReduceTerm,
    Run,
    RunStatement,
    RunTerm,
    StackedTerm,
    Statement,
    Subscript,
    Syntax,
    Text,
    UseRule,
    ValueTerm,
    says_slices,
    term_of,
)
from .evaluate import SORTS, facts_of
from .rule import Rule, RuleSet, in_order
from .sorts import (
    ANY,
    AXES,
    AXIS,
    BOOL,
    CONTEXT,
    DTYPE,
    EXPR,
    FN,
    INDEX,
    INT,
    LIST,
    NAME,
    NUM,
    PARAMETER_SORTS,
    RUN,
    SLOTS,
    SPLICE,
    TARGET,
    TERM,
    TERMS,
    Complaining,
    Finding,
    Inference,
    Scope,
    Slot,
    Sort,
    field_sort,
    sort_of,
)
from .typed_slots import binders, is_variable, mentioned, names, names_in, shape_of, targets


class Position(NamedTuple):
    """Expression or name at a position that requires the sort `want`.

    what: the position in words. makes: a new name at this position in a template is defined here. scope: the names in
    scope; a pattern binds names, and reads none.
    """

    node: Syntax
    want: Sort
    what: str
    makes: bool = False
    scope: Scope = {}

    @property
    def name(self) -> str:
        """The text of a name, empty for any other expression."""
        return self.node.text if isinstance(self.node, NameOf) else ""


OTHER_FIELDS = "the other fields"  # `rest..` on torch, which opens a pattern
VALUE = "a value"  # what a function of values is given, and a statement that computes or stores


class Positions(Complaining):
    """Walker of the statements of a pattern or a template. `found` is its result, in text order.

    On torch and tensor a statement defines a value, `y[bs.., j] = Reduce(add, k, multiply(x[bs.., k], w[j, k]))`, and
    brackets name axes. scope: the names in scope where a template begins; None for a pattern. axes: those that a
    template on torch makes, with their sorts. complaints: what could not be placed.
    """

    def __init__(self, level: str, scope: MutableMapping[str, Sort] | None = None):
        self.level, self.pattern = level, scope is None
        self.scope: MutableMapping[str, Sort] = {} if scope is None else scope
        self.found: list[Position] = []
        self.complaints = []
        self.axes: dict[str, Sort] = {}

    def add(self, node: Syntax | None, want: Sort, what: str, makes: bool = False) -> None:
        if node is not None:
            self.found.append(Position(node, want, what, makes, self.scope))

    def _misplaced(self, error: DplcError, parts: object) -> None:
        self.report(error.what, error, error.hint, error.notes)
        for name in names(parts):
            if is_variable(name.text):
                self.add(name, ANY, "a field", makes=True)

    def visit(self, *nodes: Syntax) -> None:
        """Visit statements, or changes of a run of statements."""
        for node in nodes:
            outer, dataflow = self.scope, self.level in ("torch", "tensor")
            match node:
                case PassStatement():
                    pass
                case DropStatement():
                    self.add(node.run.base, ANY, "what is dropped")
                case RunStatement():
                    self.add(node.run.base, RUN if self.pattern else SPLICE, "a run of statements")
                    self.visit(*node.changes)
                case UseRule():
                    for item in node.call.items:
                        self.add(item, ANY, "an argument")
                case Keyword(name=name):
                    field = next((cls.by_name[name] for cls in owners().values() if name in cls.by_name), None)
                    if field is None:
                        self.add(node.value, ANY, f"`{name}`")
                    else:
                        self._field(field, listed(field, node.value), f"`{name}`", field_sort(field))
                case Arm():
                    self.add(node.domain, LIST, "the domain of `for`")
                    new = dict.fromkeys(filter(is_variable, names_in(node.pattern) - outer.keys()), ANY)
                    if node.variable is not None:
                        new[node.variable] = self._element(node.domain)
                    self.scope = ChainMap(new, outer)
                    for side in (node.pattern, node.template):
                        if isinstance(side, LoadOf) and isinstance(side.access, Subscript):
                            self._shape(Shape(loop.Load, load_fields(side), side))
                        else:
                            self.report("`=>` rewrites a load: `load B[i..] => load C[i..]`", side)
                    self.add(node.condition, BOOL, "the condition of `require`")
                case InsideBlock():
                    self.add(named(node.name, node), CONTEXT, "a context")
                    self.visit(*node.body)
                case EachBlock():
                    if isinstance(node.domain, Between):
                        for bound in (node.domain.a, node.domain.b):
                            self.add(bound, INT, "the bound of `each`")
                    else:
                        self.add(node.domain, LIST, "the domain of `each`")
                    self.scope = ChainMap({node.variable: self._element(node.domain)}, outer)
                    self.visit(*node.body)
                case Assign() if dataflow:
                    self._value(node)
                case Statement() | ForLoop() | IfBlock() | AccumulateInto() if dataflow:
                    self.report(f"a statement on {self.level} is `y = value`", node, "name a value, as `y = exp(x)`")
                case CaptureStatement(call=call):
                    sort = Sort("stmt", node.repeat is not None, call.fn if call.fn in owners() else None)
                    self.add(named(node.name, node), sort, "a captured statement")
                    self._typed(node)
                case AccumulateInto(value=Apply(items=items)) if not isinstance(node.target, Group):
                    self._typed(node)
                    self._items(items[:1], NAME, "an accumulator")  # it is written twice
                case _:
                    self._typed(node)
            self.scope = outer

    def _element(self, domain: Syntax | None) -> Sort:
        return Inference(facts_of(self.level), self.scope).element(domain)

    # ---- statements of Loop, Tile and Kernel IR, by the schemas of their classes
    def _typed(self, node: Syntax) -> None:
        try:
            shape = shape_of(node)
        except DplcError as error:
            body = getattr(node, "body", None) or ()
            self._misplaced(error, tuple(part for part in children(node) if part is not body))
            self.visit(*body)
            return
        if shape is None:
            self.report("this is not a statement", node, "`dplc rules nodes` lists the statements")
        else:
            self._shape(shape)

    def _shape(self, shape: Shape) -> None:
        """Visit the fields of a node that are written, and its block."""
        slots = SLOTS.get(shape.cls.__name__, {})
        for field in shape.cls.fields:
            if field.name in shape.fields and field.sort != "Block":
                slot = slots.get(field.name) or Slot(f"`{field.name}` of `{shape.cls.__name__}`")
                want = sort_of(slot.sort) if slot.sort else field_sort(field)
                self._field(field, shape.fields[field.name], slot.words, want, slot.makes or field.name == "dst")
        self.visit(*shape.body or ())

    def _field(self, field: Field, value: Any, what: str, want: Sort, makes: bool = False) -> None:
        if isinstance(value, Prefix) and value.op == "not" and self.pattern:
            value = value.a  # `via=not TMA`
        if isinstance(value, tuple):
            self._items(value, want.one, what, makes)
        elif what == VALUE and isinstance(value, Apply) and (value.fn in FUNCTIONS or self.pattern):
            self.add(named(value.fn, value), FN, "what is applied")
            self._items(value.items, EXPR, f"an argument of `{value.fn}`")
        elif field.many and not self.pattern:
            self._items((value,), ANY, what)  # a name alone: the list, or its one element
        else:
            self._items((value,), want, what, makes)

    def _items(self, items: Nodes, want: Sort, what: str, makes: bool = False) -> None:
        """Visit elements of a list, or runs of them; a node within a node."""
        for item in items:
            if (nested := shape_of(item)) is not None:
                self._shape(nested)
            elif isinstance(item, Run):
                self.add(item.base, want.listed, what)
                if item.role is not None:
                    self.add(named(item.role, item), Sort("role"), "a role")
            else:
                self.add(item, want, what, makes)

    # ---- values of torch and tensor
    def _value(self, node: Assign) -> None:
        if says_slices(node):  # `Stacked(j, xs[os..]) = y[os..]`: both sides are read
            self._term(node.target)
        elif isinstance(node.target, Subscript):
            self.add(node.target.base, NAME, VALUE, makes=True)
            self._bracket(node.target.items)
        else:
            for target in targets(node):
                self.add(target, NAME, VALUE, makes=True)
        for declared in node.types:  # `v: t[shape(y)..] = Var(x)`: a torch op of the template
            self.add(named(declared.dtype, declared), DTYPE, "a dtype")
            self._items(declared.dims, EXPR, "an extent")
        value = node.value
        if isinstance(value, LoadOf):
            self.report(
                f"`load` is not a part of level {self.level}", value, "name the value itself, which has no loads"
            )
        elif self.level == "torch" and (self.pattern or node.types) and isinstance(value, Apply):
            self._aten(value)
        else:
            self._term(value)

    def _term(self, node: Syntax) -> None:
        torch = self.level == "torch"
        match node:
            case Apply(fn=op) if torch and op[:1].isupper() and op not in OPERATIONS:
                self._aten(node)
            case Apply(fn="mat", items=(_, _, *_)):  # `(a, b) = mat(v, w)`
                for item in node.items:
                    self._term(item)
            case _:
                try:
                    self._operands(term_of(node, torch))
                except DplcError as error:
                    self._misplaced(error, node)

    def _operands(self, *terms: ValueTerm) -> None:
        for term in terms:
            node: Any = term.node
            match term:
                case ReadTerm(x=NameTerm()) | MappedTerm(x=NameTerm()):
                    self.add(node.base, TERM, "a tensor")
                    self._bracket(node.items)
                case ReduceTerm():
                    self.add(node.items[0], FN, "the function of `Reduce`")
                    self._bracket(node.items[1:-1])
                    self._operands(term.x)
                case FoldTerm():
                    if term.part not in PARTS:
                        self.add(node.items[0], FN, "the part of `Fold`")
                    self._bracket(node.items[1:-1])
                    self._operands(*term.args)
                case StackedTerm():
                    self.add(term.place, AXIS, "the axis of `Stacked`")
                    self.add(term.x.x.node, TERMS, "a list of tensors")
                    self._bracket(term.x.places)
                case RunTerm():
                    self.add(node.base, ANY, "a run of values")
                case FunctionTerm() if term.known or term.fn not in facts_of(self.level):
                    self.add(named(term.fn, node), FN, "what is applied")  # in a pattern also a variable, or `_`
                    for operand in term.operands:
                        if self.level == "torch" and term.known and isinstance(operand, RunTerm):
                            self.report(f"`{term.fn}` takes values, not a run of them", operand.node, "leave `..` out")
                        else:
                            self._operands(operand)
                case EitherTerm() | CaseTerm() | IndexTerm() | CastTerm() | PlaceTerm() | MatTerm():
                    for name in type(term).__slots__:
                        part = getattr(term, name)
                        if slot := SLOTS["Term"].get(name):
                            self.add(part, sort_of(slot.sort), slot.words)
                        else:
                            self._operands(part)
                case _:
                    self.add(node, TERM, VALUE)

    def _bracket(self, items: Nodes) -> None:
        makes = self.level == "torch" and not self.pattern
        for item in items:
            base, sort = (item.base, AXES) if isinstance(item, Run) else (item, AXIS)
            if makes and isinstance(base, NameOf) and is_variable(base.text):  # inside arithmetic it is only read
                self.axes.setdefault(base.text, sort)
            match item:
                case Run():
                    self.add(base, AXES, "a run of axes")
                case AxisItem():
                    if makes:
                        self.axes[item.name] = AXIS
                    else:
                        self.add(named(item.name, item), AXIS, "an axis")
                    self.add(item.extent, EXPR, "an extent")
                case Subscript():
                    self._term(item)  # a gather
                case Apply(fn=fn) if fn in FUNCTIONS or fn == "place":
                    self._term(item)
                case NameOf():
                    self.add(item, AXIS if self.pattern else INDEX, "an index")
                case Group():
                    self._bracket(item.items)
                case _:
                    self.add(item, EXPR, "an index")

    # ---- torch
    def _aten(self, call: Apply) -> None:
        """Visit `Op(tensors.., field=value)` by the ATen schemas. Without `rest..`, a pattern is closed."""
        if call.fn == "_":
            return
        known, fields = schemas.overloads(call.fn), schemas.fields(call.fn)
        if not known:
            self.report(
                f"torch has no op `{call.fn}`",
                call,
                did_you_mean(call.fn, schemas.names()) or "`dplc rules nodes --level torch` lists the ops",
            )
        given = {item.name for item in call.items if isinstance(item, Keyword)}
        number = sum(not isinstance(item, Run) for item in call.items)
        free = [  # of each form that has the fields with a name: the others, which go by position
            [argument for argument in form.arguments if argument.name not in given]
            for form in known
            if given <= {argument.name for argument in form.arguments}
        ]
        places = chain(zip_longest(*free), repeat(()))
        for item in call.items:
            if isinstance(item, Run):
                self.add(item.base, LIST, OTHER_FIELDS)
            elif not isinstance(item, Keyword):
                self._attribute(item, _one_kind(next(places)), "a field")
            elif item.name in fields or not known:
                named_so = (one for form in known for one in form.arguments if one.name == item.name)
                self._attribute(item.value, _one_kind(named_so), f"`{item.name}` of `{call.fn}`")
            else:
                self.report(f"`{call.fn}` has no field `{item.name}`", item, did_you_mean(item.name, fields))
        if known and given.issubset(fields):
            loose = number - len(given)
            if number > max(len(form.arguments) for form in known):
                self.report(
                    f"no form of `{call.fn}` has {number} fields", call, f"`dplc rules nodes {call.fn}` shows its forms"
                )
            elif (
                self.pattern
                and number == len(call.items)
                and not any(
                    loose <= len(left) and not any(argument.required for argument in left[loose:]) for left in free
                )
            ):
                self.report(
                    f"no form of `{call.fn}` has exactly these fields",
                    call,
                    "`rest..` leaves the others open",
                    [f"{form.name}({', '.join(map(_shown, form.arguments))})" for form in known[:6]],
                )

    def _attribute(self, node: Syntax, want: Sort, what: str) -> None:
        match node:
            case Prefix(a=NameOf(text="inf") as infinity):
                node = infinity
        if self.pattern and not isinstance(node, NameOf | Number | Text | Group):
            what = "a field of a pattern on torch is a variable, a constant or a list of them"
            self.report(what, node, "bind it to a variable, and compare that in a `require`")
        if isinstance(node, Group):
            inner = want.one if want.many else ANY
            for item in node.items:
                base = item.base if isinstance(item, Run) else item
                self._attribute(base, inner if base is item else inner.listed, what)
        elif isinstance(node, NameOf) and (node.text in CONSTANTS or want == TERMS):
            self.add(node, ANY, what)  # where tensors are listed, an op that gives several has one name for them
        else:
            self.add(node, want, what)


def _shown(argument: schemas.Argument) -> str:
    return argument.name if argument.required else f"{argument.name}?"


def _one_kind(arguments: Iterable[schemas.Argument | None]) -> Sort:
    """Return the sort of a field if it is the same in every form that has it; anything otherwise."""
    kinds = {argument.kind for argument in arguments if argument is not None}
    return sort_of(SORTS["aten"].get(kinds.pop(), "any")) if len(kinds) == 1 else ANY


class CheckedRule:
    """One rule, its rule set, and everything the checks share. `complaints`: what could not even be placed."""

    def __init__(self, rule: Rule, rules: RuleSet):
        self.rule, self.rules = rule, rules
        self.facts = facts_of(rule.level)
        self.dataflow = rule.level in ("torch", "tensor")
        self.local = "local" in rule.attributes
        self.given = [parameter.name for parameter in rule.parameters]
        pattern = Positions(rule.level)
        pattern.visit(*rule.match)
        self.pattern = pattern.found
        self.scope = dict(self.bound)
        self.expressions: list[Position] = []
        self.lets: dict[str, Syntax] = {}
        if rule.level != "torch":  # what an op means is the same on all devices
            self.scope["target"] = TARGET
        self._clauses()
        template = Positions(rule.level, self.scope)
        template.visit(*rule.rewrite)
        self.complaints = pattern.complaints + template.complaints
        self.template, self.axes = template.found, template.axes
        self.scope |= {name: sort for name, sort in self.axes.items() if name not in self.scope}
        made = {one.name: one.want for one in self.template if one.makes and is_variable(one.name)}
        self.made = {name: sort for name, sort in made.items() if name not in self.scope}  # fresh names
        self.scope |= self.made
        self.expressions += self.template

    def findings(self) -> Iterator[Finding]:
        """Yield what the checks of its class find, in their order: each is a method."""
        rule = self.rule
        for name, check in vars(type(self)).items():
            for one in check(self) if not name.startswith("_") else ():
                yield one.of(f"rule `{rule.name}`", name, rule.family or rule.name)

    # ---- what the pattern binds
    @cached_property
    def occurrences(self) -> list[tuple[NameOf, Sort]]:
        """Each occurrence of a variable in the pattern, with the sort of its position."""
        return [
            (name, one.want if name is one.node else ANY)
            for one in self.pattern
            if not isinstance(one.node, Member)  # `x.field` is a value: it binds nothing
            for name in names(one.node)
            if is_variable(name.text)
        ]

    @cached_property
    def bound(self) -> dict[str, Sort]:
        """Variables of the pattern. The most specific occurrence determines the sort."""
        sorts: dict[str, Sort] = {}
        for name, sort in self.occurrences:
            before = sorts.get(name.text)
            if before is None or (before.kind in ("any", "expr", "value") and sort.kind not in ("any", "value")):
                sorts[name.text] = sort
        return sorts

    def _clauses(self) -> None:
        """Add the expressions of the clauses and the names that they bind, in order."""
        scope, inference = self.scope, Inference(self.facts, self.scope)

        def add(node: Syntax | None, want: Sort, what: str) -> None:
            if node is not None:
                self.expressions.append(Position(node, want, what, scope=dict(scope)))

        for clause in in_order(self.rule):
            match clause:
                case Parameter(name=name, domain=domain, default=default):
                    add(domain, LIST, f"the domain of `{name}`")
                    sort = PARAMETER_SORTS.get(clause.sort or "any", ANY)
                    sort = inference.element(domain) if sort == ANY else sort
                    add(default, sort, f"the default of `{name}`")
                    scope[name] = sort
                case Guard(kind=kind, condition=condition):
                    add(condition, BOOL, f"the condition of `{kind}`")
                case LetClause(name=name, value=value):
                    self.lets[name] = value
                    scope[name] = sort = inference.sort(value)
                    if name == DECREASES:
                        add(value, LIST if sort.many else NUM, "the value of `decreases`")
                    else:
                        add(value, ANY, "a value")
                case PickClause(name=name, domain=domain):
                    add(domain, LIST, "the domain of `pick`")
                    scope[name] = inference.element(domain)

    @cached_property
    def used(self) -> set[str]:
        """Every name that a clause, a domain, a default or the template reads or writes again."""
        return mentioned(tuple(one.node for one in self.expressions))

    @cached_property
    def binders(self) -> list[Parameter | LetClause | PickClause]:
        """Parameters, `let`s and `pick`s, in order."""
        return [*binders(self.rule.parameters, self.rule.clauses)]

    @cached_property
    def parts(self) -> Nodes:
        """Everything the rule says, but its examples."""
        return (*self.rule.parameters, *self.rule.match, *self.rule.clauses, *self.rule.rewrite)
