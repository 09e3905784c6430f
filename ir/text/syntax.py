"""The syntax tree of a text: nodes with their location in the text, without meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter, is_not
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, dataclass_transform

from ..diagnostic import Span
from ..expr import Size

NodeClass = TypeVar("NodeClass")


@dataclass_transform(frozen_default=True)
def syntax_node(cls: type[NodeClass]) -> type[NodeClass]:
    """Make a class of syntax nodes: immutable, compared by value."""
    return dataclass(frozen=True, slots=True)(cls)


# ---- expressions and items between brackets


@syntax_node
class Syntax:
    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, Any]]

    span: Span


Nodes = tuple[Syntax, ...]  # the items between brackets, the statements of a block

# ---- expressions


@syntax_node
class NameOf(Syntax):
    text: str


@syntax_node
class Number(Syntax):
    value: int | float


@syntax_node
class SizeOf(Syntax):
    """The use of a name that the head of the unit declares as a size."""

    size: Size


@syntax_node
class Text(Syntax):
    value: str


@syntax_node
class Apply(Syntax):
    """`fn(items..)`: an op, a scalar function, a fact."""

    fn: str
    items: Nodes


@syntax_node
class Subscript(Syntax):
    """`base[items..]`: an access, a list element, a substitution."""

    base: Syntax
    items: Nodes


@syntax_node
class Member(Syntax):
    """Field access `base.field`."""

    base: Syntax
    field: str


@syntax_node
class Operation(Syntax):
    """`a op b`: arithmetic, comparison, `and`, `or`, `in`, `not in`."""

    op: str
    a: Syntax
    b: Syntax


@syntax_node
class Prefix(Syntax):
    """Prefix operator: `-a`, `not a`."""

    op: str
    a: Syntax


@syntax_node
class Choice(Syntax):
    """Conditional expression `a if condition else b`."""

    a: Syntax
    condition: Syntax
    b: Syntax


@syntax_node
class Group(Syntax):
    """`(a, b)`, `[a, b]` or `{a, b}`; `(a)` alone is `a` unless its sort is a list."""

    bracket: str
    items: Nodes


@syntax_node
class Comprehension(Syntax):
    """`[element for variable in domain if condition]`, or with braces."""

    bracket: str
    element: Syntax
    variable: str
    domain: Syntax
    condition: Syntax | None


@syntax_node
class Chosen(Syntax):
    """`choose n in domain if condition minimising cost`: the element of least cost, the first of several such.

    costs: cost of each element, as a comprehension. most: whether it is `maximising`, which chooses the greatest cost.
    """

    costs: Comprehension
    most: bool

    @property
    def word(self) -> str:
        return "maximising" if self.most else "minimising"


@syntax_node
class LetExpression(Syntax):
    """Expression that reads named values: each is computed once, in order, and may read those before it."""

    lets: tuple[LetClause, ...]
    value: Syntax


@syntax_node
class Between(Syntax):
    """Half-open range `a..b`."""

    a: Syntax
    b: Syntax


# ---- items


@syntax_node
class Keyword(Syntax):
    """Keyword argument `name=value`."""

    name: str
    value: Syntax


@syntax_node
class Run(Syntax):
    """Sequence variable `base..`, followed by `=ROLE` for axes."""

    base: Syntax
    role: str | None = None


@syntax_node
class AxisItem(Syntax):
    """Axis `name:extent=ROLE@dim by stride`."""

    name: str
    extent: Syntax
    role: str | None
    dim: Syntax | None
    stride: Syntax | None


@syntax_node
class Substitution(Syntax):
    """Substitution `left := right`."""

    left: Syntax
    right: Syntax


# ---- statements


@syntax_node
class TypeOf(Syntax):
    """Tensor type `f32[32, 2048]`."""

    dtype: str
    dims: Nodes


@syntax_node
class ParamItem(Syntax):
    """Parameter with its type, `x: f32[4]`."""

    name: str
    type: TypeOf


@syntax_node
class SizeItem(Syntax):
    """`s: 1..4096 by 16 hint 512`, in the head of a unit: a number that is known at launch."""

    name: str
    low: int
    high: int
    multiple: int
    hint: int | None


@syntax_node
class Unit(Syntax):
    """`kernel f(ins) -> outs:` or `graph`. ins, outs: ParamItem, SizeItem or Run. precision: as in `outs in tf32:`."""

    kind: str
    name: str
    ins: Nodes
    outs: Nodes
    body: Nodes
    precision: str | None = None


@syntax_node
class Assign(Syntax):
    """`target = value`, with types on Torch IR and a block for an op that has one."""

    target: Syntax
    value: Syntax
    types: tuple[TypeOf, ...] = ()
    body: Nodes | None = None


@syntax_node
class LoadOf(Syntax):
    """Load `load access if condition else other`."""

    access: Syntax
    condition: Syntax | None
    other: Syntax | None


@syntax_node
class Statement(Syntax):
    """`Op(items..)` alone on its line, or with a block."""

    call: Syntax
    body: Nodes | None = None


@syntax_node
class AccumulateInto(Syntax):
    """Accumulation `target <- value`."""

    target: Syntax
    value: Syntax


@syntax_node
class ForLoop(Syntax):
    var: str
    start: Syntax
    stop: Syntax
    step: Syntax | None
    attributes: Nodes  # NameOf (the role) and Keyword
    body: Nodes


@syntax_node
class IfBlock(Syntax):
    condition: Syntax
    body: Nodes


# ---- statements of patterns and templates only


@syntax_node
class RunStatement(Syntax):
    """Statement sequence with changes, `xs.. with change, ...`."""

    run: Run
    changes: Nodes


@syntax_node
class CaptureStatement(Syntax):
    """Captured statement `s: Stage(depth=1)+`."""

    name: str
    call: Apply
    repeat: str | None


@syntax_node
class InsideBlock(Syntax):
    name: str
    body: Nodes


@syntax_node
class EachBlock(Syntax):
    variable: str
    domain: Syntax
    body: Nodes


@syntax_node
class PassStatement(Syntax):
    pass


@syntax_node
class DropStatement(Syntax):
    """`drop rest..`: a captured run that the template leaves out on purpose."""

    run: Run


@syntax_node
class Arm(Syntax):
    """Arm `pattern => template for variable in domain where condition`."""

    pattern: Syntax
    template: Syntax
    variable: str | None
    domain: Syntax | None
    condition: Syntax | None


@syntax_node
class UseRule(Syntax):
    """Use of a rule, `rule local_rule(args)`."""

    call: Apply


# ---- rules and pipelines


@syntax_node
class Parameter(Syntax):
    """Parameter of a rule, `N: int in domain = default`."""

    name: str
    sort: str | None
    domain: Syntax | None = None
    default: Syntax | None = None


@syntax_node
class Match(Syntax):
    body: Nodes


@syntax_node
class Rewrite(Syntax):
    body: Nodes


DECREASES = "decreases"  # the name of a `let` that every firing makes smaller


@syntax_node
class LetClause(Syntax):
    name: str
    value: Syntax


@syntax_node
class PickClause(Syntax):
    name: str
    domain: Syntax


@syntax_node
class Guard(Syntax):
    """Guard of a rule. kind: where or prefer."""

    kind: str
    condition: Syntax
    reason: str


@syntax_node
class Example(Syntax):
    """Example of a rule. gives: the block after the rewrite, or the text that the refusal must contain."""

    title: str
    arguments: tuple[Keyword, ...]
    before: Nodes
    gives: Any


@syntax_node
class Cover(Syntax):
    """The condition that a split implies: its parts cover all values, and no more if they `divide` the size.

    what: the name that messages use. parts: number of values of each part.
    """

    what: str
    size: Syntax
    parts: Nodes
    divide: bool


@syntax_node
class Rule(Syntax):
    """A rule, or a family of rules.

    rows: for a family, the values of the parameters, one tuple a member. words: names that may be those of numbers
    (`NumberOf`), outside of the pattern and the examples. written: clauses as the file has them, if they were
    elaborated.
    covers: conditions that the splits imply. device: the only device for which the rule applies.
    """

    docs: tuple[str, ...]
    attributes: tuple[NameOf, ...]
    override: bool
    name: str
    parameters: tuple[Parameter, ...]
    rows: Nodes
    level: str
    clauses: Nodes
    examples: Sequence[Example] = ()
    words: tuple[str, ...] = ()
    written: Sequence[Syntax] = ()
    covers: tuple[Cover, ...] = ()
    device: NameOf | None = None


@syntax_node
class NumberOf(Syntax):
    """`number few_warps = 8 because ".."`: a named constant on which choices depend. Rules refer to it by name.

    device: the only device for which it holds, `override number few_warps = 4 for h200`.
    """

    docs: tuple[str, ...]
    override: bool
    name: str
    value: Syntax
    reason: str | None
    device: NameOf | None = None


@syntax_node
class FactOf(Syntax):
    """`fact split_tiles(axes: [axis]) -> int = expression`: expanded where a rule uses it.

    value: an expression, or a `LetExpression` for a fact of several lines.

    device: the only device for which it holds.
    """

    docs: tuple[str, ...]
    override: bool
    name: str
    parameters: tuple[Parameter, ...]
    result: str
    value: Syntax
    device: NameOf | None = None


@syntax_node
class ExamplesOf(Syntax):
    """Further examples of a rule, in a file next to it. Some of them are edits of other examples."""

    rule: str
    examples: Sequence[Any]


@syntax_node
class PassEntry(Syntax):
    """An entry of a pipeline.

    rule: name with its number, if it has one: `007_stage_inputs`. The list of (kind, name) orders the entry, with kind
    after, before, first or last.
    """

    rule: str
    arguments: tuple[Keyword, ...]
    alias: str | None
    places: tuple[tuple[str, str | None], ...]
    reason: str | None


@syntax_node
class OneOf(Syntax):
    names: tuple[str, ...]
    reason: str | None


@syntax_node
class Pipeline(Syntax):
    docs: tuple[str, ...]
    name: str
    entries: Nodes


@syntax_node
class Without(Syntax):
    """`without NAME`: a user's file drops a pass, from a single pipeline if the clause is inside of that pipeline."""

    name: str
    reason: str | None = None
    pipeline: str | None = None


# ---- all of a tree


_CHILDREN: dict[type, Callable[[Any], tuple[Any, ...]]] = {}


def parts(cls: type) -> tuple[str, ...]:
    """Return the fields of a class of syntax, except its span."""
    return tuple(field.name for field in fields(cls) if field.name != "span")


def children(node: Syntax) -> tuple[Any, ...]:
    """Return the values of all fields of a node, except its span."""
    read = _CHILDREN.get(node.__class__)
    if read is None:  # of two names or more, it returns a tuple
        read = _CHILDREN[node.__class__] = attrgetter("span", "span", *parts(node.__class__))
    return read(node)[2:]


def walk(value: object) -> Iterator[Any]:
    """Yield each syntax node below a node or a tuple once, itself first, in text order."""
    stack, seen = [value], set[int]()
    while stack:
        node = stack.pop()
        if node.__class__ is tuple:
            stack.extend(reversed(node))
        elif isinstance(node, Syntax) and id(node) not in seen:
            seen.add(id(node))
            yield node
            stack.extend(reversed(children(node)))


def rebuilt(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a tuple or a node with every part of it changed; itself where nothing has changed."""
    if value.__class__ is tuple:
        items = [change(item) for item in value]
        return tuple(items) if any(map(is_not, items, value)) else value
    if not isinstance(value, Syntax):
        return value
    before = children(value)
    after = [change(part) for part in before]
    cls: Any = value.__class__
    return cls(value.span, *after) if any(map(is_not, after, before)) else value


def words_in(value: object) -> tuple[str, ...]:
    """Return the names of several words that some syntax uses as expressions or calls, sorted."""
    named = (node for node in walk(value) if isinstance(node, Apply | NameOf))
    words = {node.fn if isinstance(node, Apply) else node.text for node in named}
    return tuple(sorted(word for word in words if "_" in word[1:]))
