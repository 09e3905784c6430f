"""Nodes of all IRs: immutable and interned (identity is equality), with declared, sorted, defaulted fields.

A node class is written like a dataclass; the text of an annotation is the *sort* of the field, which the printer, the
parser, the matcher, substitution and the rule checker all read from here:

    class For(Stmt):
        var: Name
        start: Expr
        stop: Expr
        body: Block
        role: Role = "serial"

Interning gives equality and hashing in O(1) and lets an analysis be remembered on the node itself (`memoised`). The
table is weak, so a node lives as long as it is referenced. Keys distinguish `1`, `1.0` and `True`, and `0.0` from
`-0.0`.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
import re
import threading
import weakref
from _weakref import _remove_dead_weakref  # type: ignore[attr-defined]  # what a WeakValueDictionary forgets with
from collections.abc import Callable, Container, Iterator
from typing import Any, ClassVar, NamedTuple, TypeVar, dataclass_transform, overload

# Aliases whose *names* are the sorts of the rule language; their meaning for the type checker is on the right.
Name = str  # a binder or a use of a name
Buffer = str  # a Name, that of memory; the first list of expressions after it has one for each dimension
Role = str  # BLOCK THREAD REG VEC serial reduce free
Via = str  # SYNC ASYNC TMA
Fn = str  # the name of a scalar function
MonoidName = str  # the name of a monoid over tuples (ir/monoids.py)
AtomName = str  # the name of an atom (ir/atoms.py)
Dtype = str  # f32 f16 bf16 i32 i64 b8
Value = Any  # a Torch attribute: number, bool, text, none, or a tuple of these
Expr = Any  # an index or scalar expression: int, float, bool or a node of ir.expr
Int = int
FieldNames = tuple[str, ...]
Num = Any  # int or float


class Required:
    """The default of a field that must be given."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = Required()


class Field(NamedTuple):
    """One declared field. `sort` is an alias above or the name of a node class; `many` says it is a tuple of them.

    memory: it is the Name of memory (`Buffer`).
    """

    name: str
    sort: str
    many: bool
    default: Any
    memory: bool = False

    @property
    def required(self) -> bool:
        return self.default is REQUIRED


_ODD = frozenset((float, bool, tuple))


def _key(value: Any) -> Any:
    """Return a dictionary key that distinguishes equal values of different meaning."""
    kind = value.__class__
    if kind is float:
        return (float, repr(value))
    if kind is bool:
        return (bool, value)
    if kind is tuple:
        return tuple(map(_key, value))
    return value


def _keys(values: tuple[Any, ...]) -> tuple[Any, ...]:
    for value in values:
        if value.__class__ in _ODD:
            return tuple(map(_key, values))
    return values


_lock = threading.Lock()


class _Entry(weakref.ref["Node"]):
    """A weak reference that knows its key in its table."""

    __slots__ = ("key",)
    key: Any


def _forgetting(table: dict[Any, Any]) -> Callable[[Any], None]:
    """Return a callback that removes the entry of a dead node from its table, atomically for other threads."""

    def forget(entry: Any, remove: Callable[..., None] = _remove_dead_weakref) -> None:  # at exit globals are None
        remove(table, entry.key)

    return forget


def _enter(entry: Any, table: dict[Any, Any]) -> Any:
    """Return the node of a key after another thread was faster, or after the node of the existing entry has died."""
    with _lock:
        known = table.get(entry.key)
        other = known() if known is not None else None
        if other is not None:
            return other
        table[entry.key] = entry
        return entry()


def _parse_sort(annotation: str) -> tuple[str, bool]:
    match = re.fullmatch(r"tuple\[(\w+), \.\.\.\]", annotation)
    if match:
        return match[1], True
    if annotation == "Block":
        return "Block", True
    return annotation.removesuffix(" | None"), False


# Fields of these sorts can hold numbers, so their keys must tell 1 from 1.0 from True.
_NUMERIC = frozenset(("Expr", "Num", "Value", "Over"))


def _constructor(cls: type, fields: tuple[Field, ...]) -> Callable[..., Any]:
    """Return `__new__(cls, a, b=default)`, generated once per class as in dataclasses: it is the hottest function."""
    table: dict[Any, Any] = {}
    scope: dict[str, Any] = {"odd": _ODD, "one": _key, "all_": _keys, "enter": _enter, "new": object.__new__}
    scope |= {"table": table, "put_memo": _put_memo, "put_contents": _put_contents}
    scope |= {"known": table.get, "claim": table.setdefault, "Entry": _Entry, "forget": _forgetting(table)}
    parameters, keys, puts = [], [], []
    for index, field in enumerate(fields):
        if not field.required:
            scope[f"default{index}"] = field.default
        scope[f"put{index}"] = getattr(cls, field.name).__set__
        puts.append(f"    put{index}(node, {field.name})\n")
        parameters.append(field.name if field.required else f"{field.name}=default{index}")
        if field.sort not in _NUMERIC:
            keys.append(field.name)
        elif field.many:
            keys.append(f"all_({field.name})")
        else:
            keys.append(f"{field.name} if {field.name}.__class__ not in odd else one({field.name})")
    source = (
        f"def __new__(cls, {', '.join(parameters)}):\n"
        f"    key = ({', '.join(keys)}{',' if keys else ''})\n"
        "    entry = known(key)\n"
        "    if entry is not None:\n"
        "        node = entry()\n"
        "        if node is not None:\n"
        "            return node\n"
        "    node = new(cls)\n"
        f"{''.join(puts)}"
        "    put_memo(node, None)\n"
        "    put_contents(node, 0)\n"
        "    entry = Entry(node, forget)\n"
        "    entry.key = key\n"
        "    return node if claim(key, entry) is entry else enter(entry, table)\n"
    )
    exec(source, scope)  # our own field names only: no text of a rule or a program reaches this
    create: Callable[..., Any] = scope["__new__"]
    return create


def _getter(names: tuple[str, ...]) -> Any:
    """Return a static method that reads some fields of a node in one call."""
    if len(names) > 1:
        return staticmethod(operator.attrgetter(*names))
    scope: dict[str, Any] = {}
    exec(f"def read(node): return ({''.join(f'node.{name},' for name in names)})", scope)  # our own field names, too
    return staticmethod(scope["read"])


def _memory_of(fields: tuple[Field, ...]) -> tuple[tuple[str, str | None], ...]:
    """Return the fields that name memory, each with the first list of expressions after it."""
    return tuple(
        (field.name, next((f.name for f in fields[place:] if f.many and f.sort == "Expr"), None))
        for place, field in enumerate(fields)
        if field.memory
    )


# Fields of these sorts hold no nodes.
_PLAIN = frozenset(("Name", "Role", "Via", "Fn", "MonoidName", "AtomName", "Dtype", "Int", "Num"))
WEIGHT = 255  # what `contents` counts up to: the bits below those of classes
_marks = itertools.count(WEIGHT.bit_length())
CLASSES: set[Any] = set()  # of nodes: asking whether a class is in it is faster than isinstance


R = TypeVar("R")


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def immutable(cls: type[R]) -> type[R]:
    """Make a class of records that are not nodes: a dataclass whose fields are never assigned again."""
    return dataclasses.dataclass(frozen=True)(cls)


@dataclass_transform(frozen_default=True, eq_default=False)
class NodeType(type):
    """Metaclass that converts annotations to slots, sorts, defaults and an interning constructor.

    mark: a bit of its own for every class; marks: that and those of its subclasses. Sets of classes are numbers.
    """

    fields: tuple[Field, ...]
    by_name: dict[str, Field]
    places: dict[str, int]  # of the fields
    positional: FieldNames  # the fields that an instruction prints without their names
    inner: tuple[str, ...]  # the fields that may hold nodes
    named: tuple[str, ...]  # the fields that hold names
    memory: tuple[tuple[str, str | None], ...]  # the fields that name memory, each with the one of its indices
    read_all: Callable[[Any], tuple[Any, ...]]  # what the fields of a node hold; read_inner: those that may hold nodes
    read_inner: Callable[[Any], tuple[Any, ...]]
    mark: int
    marks: int

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> NodeType:
        declared = namespace.get("__annotations__", {})
        own = []
        for field, annotation in declared.items():
            if annotation.startswith("ClassVar"):
                continue
            sort, many = ("Name", False) if annotation == "Buffer" else _parse_sort(annotation)
            own.append(Field(field, sort, many, namespace.pop(field, REQUIRED), annotation == "Buffer"))
        slots = () if bases else ("_memo", "_contents", "__weakref__")
        namespace["__slots__"] = tuple(field.name for field in own) + slots
        cls = super().__new__(mcs, name, bases, namespace)
        inherited = tuple(field for base in bases for field in getattr(base, "fields", ()))
        cls.fields = inherited + tuple(own)
        cls.by_name = {field.name: field for field in cls.fields}
        cls.places = {field.name: place for place, field in enumerate(cls.fields)}
        type.__setattr__(cls, "__match_args__", tuple(cls.places))  # `case Var(name)`: fields in declared order
        cls.inner = tuple(field.name for field in cls.fields if field.sort not in _PLAIN)
        cls.named = tuple(field.name for field in cls.fields if field.sort == "Name")
        cls.memory = _memory_of(cls.fields)
        if own and "positional" not in namespace and hasattr(cls, "positional"):
            operands = (field.name for field in cls.fields if field.required and field.sort != "Block")
            cls.positional = tuple(name for name in operands if name != "dst")
        cls.read_all, cls.read_inner = _getter(tuple(cls.places)), _getter(cls.inner)
        cls.mark, cls.marks = 1 << next(_marks), 0
        line: Any = cls.__mro__[:-1]
        for above in line:
            above.marks |= cls.mark
        CLASSES.add(cls)
        if bases:
            type.__setattr__(cls, "__new__", _constructor(cls, cls.fields))
        return cls


class Node(metaclass=NodeType):
    """The base of all nodes. Never constructed itself."""

    _memo: ClassVar[Any]  # slots of the instance; ClassVar tells the type checker that they are not fields
    _contents: ClassVar[int]
    mark: ClassVar[int]

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable; use replace({self!r}, {name}=...)")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), values(self)  # unpickling and copying go through the constructor, hence re-intern

    def __deepcopy__(self, memo: Any) -> Node:
        return self

    def __copy__(self) -> Node:
        return self

    def __repr__(self) -> str:
        shown = (f"{f.name}={getattr(self, f.name)!r}" for f in type(self).fields if getattr(self, f.name) != f.default)
        return f"{type(self).__name__}({', '.join(shown)})"


_put_memo: Callable[[Any, Any], None] = Node.__dict__["_memo"].__set__
_put_contents: Callable[[Any, int], None] = Node.__dict__["_contents"].__set__

N = TypeVar("N", bound=Node)
M = TypeVar("M", bound=Node)
L = TypeVar("L", bound=Node)


def values(node: Node) -> tuple[Any, ...]:
    """Return the field values of a node, in declared order."""
    return type(node).read_all(node)


def replace(node: N, **changes: Any) -> N:
    """Return the node with some fields changed. Raises TypeError for a field that its class does not declare."""
    cls = type(node)
    made, places = [*cls.read_all(node)], cls.places
    for name in changes:
        if name not in places:
            raise TypeError(f"{cls.__name__} has no field {name!r}")
        made[places[name]] = changes[name]
    return cls(*made)


def with_parts(node: N, change: Callable[[Any], Any], without: Container[str] = ()) -> N:
    """Return the node with each field changed that may hold nodes. without: fields that stay."""
    return replace(node, **{name: change(getattr(node, name)) for name in type(node).inner if name not in without})


def walk(value: Any) -> Iterator[Any]:
    """Yield every node and leaf below a node or a tuple, itself first, in text order."""
    yield value
    if value.__class__ is tuple:
        for item in value:
            yield from walk(item)
    elif isinstance(value, Node):
        for item in type(value).read_all(value):
            yield from walk(item)


def contents(node: Any) -> int:
    """Return the marks of the classes of all nodes in a node, itself included. Walks use them to skip nodes.

    The bits of WEIGHT count the nodes, a shared one for each reader, up to WEIGHT.
    """
    found: int = node._contents
    if not found:
        cls = type(node)
        found = _contents_of(cls.read_inner(node), cls.mark, 1)
        _put_contents(node, found)
    return found


def _contents_of(items: tuple[Any, ...], found: int = 0, weight: int = 0) -> int:
    """Return the contents of some items, added to marks and a weight."""
    for item in items:
        kind = item.__class__
        if kind is tuple:
            below = _contents_of(item)
        elif kind in CLASSES:
            below = item._contents or contents(item)
        else:
            continue
        found |= below
        weight += below & WEIGHT
    return found | WEIGHT if weight > WEIGHT else found & ~WEIGHT | weight


def marks_of(*kinds: type[Node]) -> int:
    """Return the marks of some classes and their subclasses."""
    found = 0
    for kind in kinds:
        found |= kind.marks
    return found


def contains(value: Any, *kinds: type[Node]) -> bool:
    """Return whether a value is a node of the given classes or has one. Nodes remember it: shared ones cost nothing."""
    return isinstance(value, Node) and contents(value) & marks_of(*kinds) != 0


@overload
def nodes(value: Any, kind: type[N], other: type[M], /) -> Iterator[N | M]: ...
@overload
def nodes(value: Any, kind: type[N], other: type[M], third: type[L], /) -> Iterator[N | M | L]: ...
@overload
def nodes(value: Any, *kinds: type[N]) -> Iterator[N]: ...
def nodes(value: Any, *kinds: type[Node]) -> Iterator[Node]:
    """Yield the nodes of the given classes below a node or a tuple of nodes, in text order (pre-order).

    A node that many others share is visited for each: `contains` asks whether there is one.
    """
    found: list[Node] = []
    _find((value,), marks_of(*kinds), found)
    return iter(found)


def _find(items: tuple[Any, ...], wanted: int, found: list[Any]) -> None:
    for item in items:
        cls = item.__class__
        if cls is tuple:
            _find(item, wanted, found)
        elif cls in CLASSES and (item._contents or contents(item)) & wanted:
            if cls.mark & wanted:
                found.append(item)
            _find(cls.read_inner(item), wanted, found)


def distinct(value: Any, *kinds: type[N]) -> Iterator[N]:
    """Yield the nodes of the given classes below a node or a tuple, each once, in text order."""
    if value.__class__ in CLASSES and (value._contents or contents(value)) & WEIGHT < WEIGHT:
        return iter(dict.fromkeys(nodes(value, *kinds)))
    seen: dict[Any, None] = {}
    pending, wanted = [value], marks_of(*kinds)
    while pending:
        item = pending.pop()
        cls = item.__class__
        if cls is tuple:
            pending += reversed(item)
        elif cls in CLASSES and item not in seen and (item._contents or contents(item)) & wanted:
            seen[item] = None
            pending += reversed(cls.read_inner(item))
    return iter([item for item in seen if item.__class__.mark & wanted])


F = TypeVar("F", bound=Callable[..., Any])


def each_once(function: F) -> F:
    """Let a recursive function of a node and further arguments compute each node once, however many others share it.

    All results are kept for as long as the outermost call of such a function runs, which changes none of the arguments.
    Small nodes are computed again, which is faster.
    """

    @functools.wraps(function)
    def asked(node: Any, *more: Any) -> Any:
        if node.__class__ not in CLASSES or (node._contents or contents(node)) & WEIGHT < WEIGHT:
            return function(node, *more)
        known = getattr(_running, "known", None)
        if known is None:
            _running.known = {}
            try:
                return asked(node, *more)
            finally:
                _running.known = None
        key = function, node, *[each if callable(each) else id(each) for each in more]
        if key not in known:
            known[key] = function(node, *more), more  # which live as long as their identities are keys
        return known[key][0]

    return asked  # type: ignore[return-value]


_running = threading.local()  # known: the results of the outermost call, or None


def memoised(function: Callable[[Any], R]) -> Callable[[Any], R]:
    """Remember a pure function of one node on the node itself, for as long as the node lives."""

    @functools.wraps(function)
    def remembered(node: Any) -> R:
        memo: dict[object, R] | None = node._memo
        if memo is None:
            memo = {}
            _put_memo(node, memo)
        elif function in memo:
            return memo[function]
        result = memo[function] = function(node)
        return result

    return remembered


def remember(node: Any, function: Callable[[Any], Any], result: Any) -> None:
    """Store a result of a function on a node, as `memoised` would."""
    if node._memo is None:
        _put_memo(node, {})
    node._memo[function] = result


@memoised
def names_in(node: Any) -> frozenset[str]:
    """Return every name that a node mentions, in any role: values, buffers, axes, loops, a kernel's own."""
    cls = type(node)
    found: set[str] = set()
    for field in cls.named:
        name = getattr(node, field)
        if name.__class__ is str:
            found.add(name)
        elif name.__class__ is tuple:
            found.update(name)  # the accumulators of a merge
    return frozenset(found | names_below(cls.read_inner(node), names_in))


def names_below(items: tuple[Any, ...], names_of: Callable[[Any], frozenset[str]]) -> set[str]:
    """Return the names of all nodes among some items, which may be tuples of nodes."""
    found: set[str] = set()
    for item in items:
        if item.__class__ is tuple:
            found |= names_below(item, names_of)
        elif item.__class__ in CLASSES:
            found |= names_of(item)
    return found
