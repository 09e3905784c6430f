"""Dimensions that are known at a call: how a caller declares them, and what torch.export finds out about them.

A dimension is declared once, by name, wherever it occurs. torch.export traces with symbols for it and reports what the
program requires of them; its symbols become sizes of our IRs, and its requirements become one message.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any

import sympy
import torch
from msgspec import Meta
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.printers import PythonPrinter
from torch.utils._sympy.reference import PythonReferenceAnalysis

from ...ir import node
from ...ir.diagnostic import DplcError, Span, UsageError, did_you_mean
from ...ir.expr import Binary, Size, add, floordiv, modulo, multiply
from ...ir.node import Expr
from ...ir.ranges import Narrower, around_hint, ranges_around_hints, where_decided
from ...ir.sizes import at_hint, decide_sizes, size_ends, sizes_in
from ...ir.text.parse import LARGEST_EXTENT
from ...ir.text.print_statements import print_expr
from .places import SourcePlaces

MOST = 2**31 - 1  # of a size: a kernel takes an int
MOST_TRIED = 1 << 16  # numbers of a length for which a float is compared with a quotient
MOST_PARTS = 1 << 12  # of such a quotient
LOOKED_AT = 64  # lengths that tell a common divisor


Identifier = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,254}\Z")]
Length = Annotated[int, Meta(ge=1, le=MOST)]


@dataclass(frozen=True)
class Dim:
    """A dimension whose length is known at a call: low..high, both included, a multiple of `multiple`.

    hint: the length that it has as a rule; schedules are chosen for it. By default the length of the example.
    """

    name: Identifier
    low: Length
    high: Length
    multiple: Length = 1
    hint: Length | None = None

    def __post_init__(self) -> None:
        numbers = [n for n in (self.low, self.high, self.multiple, self.hint) if n is not None]
        if not self.name.isidentifier() or any(n.__class__ is not int for n in numbers):
            raise UsageError(f"a Dim has a name and whole numbers, not {self!r}", hint='Dim("s", 1, 4096, hint=512)')
        if not 1 <= self.low <= self.high <= min(MOST, LARGEST_EXTENT) or self.multiple < 1:
            raise UsageError(f"`{self.name}` goes from 1 or more up to 2^31 - 1 at most, not {self.low}..{self.high}")
        if self.high // self.multiple * self.multiple < self.low:
            raise UsageError(f"no number of {self.low}..{self.high} is a multiple of {self.multiple}")
        if self.hint is not None and not self.admits(self.hint):
            raise UsageError(f"the hint of `{self.name}` is {self.hint}, which is not in {self.range}")

    @classmethod
    def of(cls, size: Size) -> Dim:
        """Return the declaration of a size of the IRs."""
        return cls(size.name, size.low, size.high, size.multiple, size.hint)

    def size(self, example: int | None = None) -> Size:
        """Return the size of the IRs. example: its hint, if the declaration has none and the range has the number."""
        hint = example if self.hint is None and example is not None and self.admits(example) else self.hint
        return Size(self.name, self.low, self.high, self.multiple, hint or self.high // self.multiple * self.multiple)

    def number(self) -> Size | int:
        """Return the size of the IRs, or the number that it is where the range has one number."""
        return self.low if self.low == self.high else self.size()

    def admits(self, n: int) -> bool:
        return self.low <= n <= self.high and n % self.multiple == 0

    @property
    def range(self) -> str:
        return range_of(self)


def range_of(size: Dim | Size) -> str:
    """Return the text of a range: `4..512, a multiple of 4`."""
    step = f", a multiple of {size.multiple}" if size.multiple > 1 else ""
    return f"{size.low}..{size.high}{step}"


def declaration(size: Size) -> str:
    """Return a dimension as a caller writes it: `Dim("s", 6, 97)`."""
    step = f", multiple={size.multiple}" if size.multiple > 1 else ""
    return f'Dim("{size.name}", {size.low}, {size.high}{step})'


class Extent(int):
    """Integer of `dim(s, 1..4096)` in a text: factories of tensors accept it, and it remembers its size."""

    size: Size

    def __new__(cls, number: int, size: Size) -> Extent:
        made = super().__new__(cls, number)
        made.size = size
        return made

    def _fixed(self, *_: Any) -> Any:
        what = f"arithmetic on `{self.size.name}` would fix it to {int(self)}"
        raise DplcError(what, hint="compute with the shape of a tensor, `x.shape[0]`")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = __rfloordiv__ = __mod__ = _fixed
    __rmod__ = __truediv__ = __rtruediv__ = __pow__ = __neg__ = __lt__ = __le__ = __gt__ = __ge__ = _fixed


def sizes_of_factory(args: Any, shape: Sequence[int]) -> dict[int, Size]:
    """Return {dimension: size} of a factory's result, by the arguments for its shape."""
    for given in (args, *(x for x in args if isinstance(x, (tuple, list)))):
        numbers = [int(x) if isinstance(x, int) else None for x in given]
        if len(given) >= len(shape) and all(a is b or a == b for a, b in zip(numbers, shape, strict=False)):
            found = {d: n.size for d, n in enumerate(given[: len(shape)]) if isinstance(n, Extent)}
            if found:
                return found
    return {}


Dynamic = Mapping[str, Mapping[int, Size]]  # {input: {dimension: its size}}


def declared(dynamic: Any, names: Sequence[str], tensors: Sequence[Any]) -> Dynamic:
    """Return the dimensions that `dynamic=` declares: {input: {dimension: size}}.

    dynamic: {input: {dimension: Dim}}, or a list with a Dim or None for each dimension; a list or tuple of these for
    the inputs in order; Dims of torch.export as well, so that its `dynamic_shapes` are accepted unchanged. Raises
    UsageError for an invalid declaration, DplcError for an example that is outside of it.
    """
    if isinstance(dynamic, (list, tuple)):
        if len(dynamic) != len(names):
            notes = (f"its inputs are {', '.join(names)}",)
            raise UsageError(f"dynamic= says it for {len(dynamic)} inputs; there are {len(names)}", notes=notes)
        dynamic = dict(zip(names, dynamic, strict=True))
    if not isinstance(dynamic, Mapping):
        raise UsageError(f"dynamic= is {{input: {{dimension: Dim}}}}, not {type(dynamic).__name__}")
    examples = dict(zip(names, tensors, strict=True))
    dims: dict[str, dict[int, Dim]] = {}
    for name, given in dynamic.items():
        if name not in examples:
            notes = (f"its inputs are {', '.join(names)}",)
            hint = did_you_mean(str(name), list(names))
            raise UsageError(f"dynamic= names `{name}`, which is not an input", notes=notes, hint=hint)
        rank = examples[name].dim()
        given = {} if given is None else dict(enumerate(given)) if isinstance(given, (list, tuple)) else given
        if not isinstance(given, Mapping):
            raise UsageError(f"dynamic={{{name!r}: ..}} is {{dimension: Dim}}, not {type(given).__name__}")
        dims[name] = {}
        for place, dim in given.items():
            if place.__class__ is not int or not -rank <= place < rank:
                raise UsageError(f"dynamic= names dimension {place} of `{name}`, which has {rank}")
            if dim is not None:
                dims[name][place % rank] = dim if isinstance(dim, Dim) else _of_torch(dim)
    found: dict[str, tuple[Dim, Size]] = {}
    settled: dict[str, dict[int, Size]] = {}
    for name, own in dims.items():
        for place, dim in own.items():
            length = examples[name].shape[place]
            known, size = found.setdefault(dim.name, (dim, dim.size(length)))
            if known != dim:
                raise UsageError(f"`{dim.name}` is declared twice: {known.range} and {dim.range}")
            if not dim.admits(length):
                what = f"`{dim.name}` is {length} in the example (dimension {place} of `{name}`); declared {dim.range}"
                raise DplcError(what, hint="an example within the range, or a range that has it")
            settled.setdefault(name, {})[place] = size
    return settled


def _of_torch(dim: Any) -> Dim:
    """Convert a Dim of torch.export: the Dim itself, or a multiple of one."""
    root, fn, name = getattr(dim, "root", None), getattr(dim, "fn", None), getattr(dim, "__name__", str(dim))
    plain = root if root is not None else dim
    low, high = getattr(plain, "min", None), getattr(plain, "max", None)
    if low.__class__ is not int or high.__class__ is not int or high > MOST:
        hint = 'dplc.Dim("s", 1, 4096, hint=512), or torch.export.Dim("s", min=1, max=4096)'
        raise UsageError(f"`{name}` is not a dimension with a range", hint=hint)
    if root is None or fn is None:
        return Dim(name, max(low, 1), high)
    step = fn(1)
    if step < 1 or fn(2) != 2 * step:
        raise UsageError(
            f"`{name}` is not a multiple of a dimension", hint=f'dplc.Dim("{root.__name__}", .., multiple=4)'
        )
    return Dim(f"{root.__name__}_{step}", max(low, 1) * step, high * step, step)


def stand_ins(tensors: Sequence[Any], names: Sequence[str], dynamic: Dynamic) -> list[Any]:
    """Return tensors to trace with: torch specialises an extent of 1, so a size of 1 has another extent there."""
    out = []
    for tensor, name in zip(tensors, names, strict=True):
        shape = list(tensor.shape)
        for place, size in dynamic.get(name, {}).items():
            shape[place] = max(shape[place], min(size.high, 2 * size.multiple))
        out.append(tensor if shape == list(tensor.shape) else tensor.new_zeros(shape))
    return out


def exported_shapes(dynamic: Dynamic, names: Sequence[str]) -> Any:
    """Return declared dimensions in the form of torch.export's `dynamic_shapes`."""
    dims: dict[str, Any] = {}
    for size in (size for own in dynamic.values() for size in own.values()):
        n, step = size.name, size.multiple
        if n not in dims and size.low < size.high:
            dims[n] = torch.export.Dim(n if step == 1 else f"_{n}", min=-(-size.low // step), max=size.high // step)
            dims[n] = dims[n] if step == 1 else step * dims[n]
    return (tuple({p: dims[s.name] for p, s in dynamic.get(n, {}).items() if s.name in dims} for n in names),)


class Symbols:
    """Mapping from torch's symbols to sizes."""

    def __init__(self) -> None:
        self._sizes: dict[Any, Size] = {}  # by a symbol of ours
        self._known: dict[Any, Any] = {}  # torch's symbol: ours, divided by what the size is a multiple of

    def learn(self, value: Any, size: Size) -> None:
        """Record a dimension of an input: `s17`, or `4*s17` of a multiple."""
        if isinstance(value, int):
            return
        if not value.node.expr.free_symbols:
            what = f"`{size.name}` is fixed to {value}: PyTorch takes an op of this program apart for one length alone"
            raise DplcError(what, hint=f"leave `{size.name}` out of dynamic=, and compile for each length")
        (symbol,) = value.node.expr.free_symbols
        own = sympy.Symbol(size.name, integer=True, positive=True)
        self._sizes[own] = size
        self._known[symbol] = own / size.multiple

    def knows(self, n: Any) -> bool:
        return isinstance(n, int) or n.node.expr.free_symbols <= self._known.keys()

    def extent(self, n: Any) -> Expr:
        """Return an extent: a number, or an expression of sizes. Raises DplcError for arithmetic that our IRs lack."""
        return n if isinstance(n, int) else self.extent_of(n.node.expr)

    def extent_of(self, e: Any) -> Expr:
        """Return the extent for torch's own expression of lengths."""
        return self._of(e.subs(self._known, simultaneous=True))

    def _of(self, e: Any) -> Expr:
        if e in self._sizes:
            return self._sizes[e]
        if e.is_Integer:
            return int(e)
        if e.is_Add:
            return functools.reduce(add, map(self._of, e.args))
        if e.is_Mul:
            factor, rest = e.as_coeff_Mul()
            parts = [self._of(part) for part in rest.args] if rest.is_Mul else [self._of(rest)]
            return floordiv(multiply(functools.reduce(multiply, parts), int(factor.p)), int(factor.q))
        if e.is_Pow and e.exp.is_Integer and e.exp > 0:
            return functools.reduce(multiply, [self._of(e.base)] * int(e.exp))
        word = type(e).__name__
        if word in _ROUNDED and (found := self._rounded(word, e.args[0])) is not None:
            return found
        if word in _EXTREMES:
            return functools.reduce(_EXTREMES[word], map(self._of, e.args))
        if word in _OPERATIONS:
            return _OPERATIONS[word](*map(self._of, e.args))
        raise DplcError(f"an extent is `{e}`, which is not supported", hint="sizes are added, multiplied and divided")

    def _rounded(self, word: str, e: Any) -> Expr | None:
        """Return a length times a float, rounded, as a quotient of integers: `TruncToInt(1.5*ToFloat(s))` is s*3 // 2.

        None unless that equals the float64 result for every number that the length may be.
        """
        factor, rest = e.as_coeff_Mul()
        if type(rest).__name__ != "ToFloat" or not factor.is_number or not 0 < factor < LARGEST_EXTENT:
            return None
        length, by = self._of(rest.args[0]), float(factor)
        low, high = size_ends(length)
        if high - low > MOST_TRIED:
            return None
        part = Fraction(by).limit_denominator(MOST_PARTS)
        up = part.denominator - 1 if word == "CeilToInt" else 0
        whole = _ROUNDED[word]
        if any(whole(by * n) != (n * part.numerator + up) // part.denominator for n in range(low, high + 1)):
            return None
        return floordiv(add(multiply(length, part.numerator), up), part.denominator)


def _one_of(op: str, word: str) -> Callable[[Expr, Expr], Expr]:
    """Return the least or the greatest of two extents, if that is the same one for every length."""

    def chosen(a: Expr, b: Expr) -> Expr:
        known = decide_sizes(op, a, b)
        if known is not None:
            return a if known else b
        what = f"an extent that is the {word} of {print_expr(a)} and {print_expr(b)} is not supported"
        hint = "compile ranges for themselves in which it is one of them"
        way = op if decide_sizes(op, at_hint(a), at_hint(b)) else ">" if op == "<=" else "<"
        if remaining := ranges_around_hints(way, a, b):
            hint = f"with {', '.join(map(declaration, remaining))} it is one of them"
        raise where_decided(what, [Binary(op, a, b)], None, ()) or DplcError(what, hint=hint)

    return chosen


_EXTREMES = {"Min": _one_of("<=", "least"), "Max": _one_of(">=", "greatest")}
_ROUNDED: dict[str, Callable[[float], int]] = {
    "TruncToInt": math.trunc, "FloorToInt": math.floor, "CeilToInt": math.ceil
}  # fmt: skip
_OPERATIONS = {"FloorDiv": floordiv, "CleanDiv": floordiv, "Mod": modulo, "PythonMod": modulo}


# ---- Check the guards on several sizes at once, such as `s*t > 50`.


Asked = tuple[Any, Span | None]  # torch's comparison, and where the user's program made it
_WORDS = {
    "Equality": "==", "Unequality": "!=", "GreaterThan": ">=", "LessThan": "<=", "StrictGreaterThan": ">",
    "StrictLessThan": "<",
}  # fmt: skip
OTHERS = "other lengths take another way through the program"


def check_asked(symbols: Symbols, asked: Iterable[Asked]) -> None:
    """Raise DplcError for a condition that does not hold for every length of the ranges, or compares no lengths."""
    for condition, span in asked:
        for clause in _parts(sympy.And, sympy.to_cnf(condition)):
            either: list[Any] = []
            for part in _parts(sympy.Or, clause):
                op = _WORDS.get(type(part).__name__)
                if op is None:
                    what = f"the program asks of several lengths `{part}`, which is not a comparison"
                    raise DplcError(what, span, hint=_hint())
                same = part.lhs == part.rhs
                either.append(same or Binary(op, symbols.extent_of(part.lhs), symbols.extent_of(part.rhs)))
            _check(tuple(either), span)


def _check(either: tuple[Any, ...], span: Span | None) -> None:
    """Raise DplcError unless one of some comparisons always holds. True is a comparison of two equal lengths."""
    if any(c is True or decide_sizes(c.op, c.a, c.b) for c in either):
        return
    ranges = ", ".join(f"{size.name} of {range_of(size)}" for size in sizes_in(either).values())
    said = " or ".join(f"{print_expr(c.a)} {c.op} {print_expr(c.b)}" for c in either)
    what = f"this way through the program is that of lengths with {said}, which does not hold for every {ranges}"
    alone = either if len(either) == 1 else ()
    raise where_decided(what, alone, span, ()) or DplcError(what, span, hint=_hint(alone))


def _hint(alone: tuple[Any, ...] = ()) -> str:
    """Return a hint with the ranges for which a comparison holds, of several the widest around the hints."""
    remaining = ranges_around_hints(alone[0].op, alone[0].a, alone[0].b) if alone else None
    if remaining is None:
        return f"narrow the ranges until it always holds; {OTHERS}"
    return f"narrow them, as {', '.join(map(declaration, remaining))}; {OTHERS}"


def _parts(kind: Any, condition: Any) -> tuple[Any, ...]:
    return condition.args if isinstance(condition, kind) else (condition,)  # type: ignore[no-any-return]


# ---- Find the user's line at which a guard was added to the shape environment.


# torch's own questions about strides, and about sizes that were declared to be one
_OF_LAYOUT = re.compile(
    r"in (check_contiguous_sizes_strides|is_contiguous\w*|is_channels_last\w*|is_non_overlapping\w*|should_swap|ge|"
    r"produce_guards_and_solve_constraints)\b"
)


class GuardLocations:
    """Guards of a trace with their spans, and their requirements on declared sizes."""

    def __init__(self, places: SourcePlaces, dynamic: Dynamic, names: Sequence[str]):
        self._places = places
        self._sizes = {  # {torch's name of a length: its size, and where it was declared}
            f"L['tensors'][{names.index(name)}].size()[{place}]": (size, f"dimension {place} of `{name}`")
            for name, own in dynamic.items()
            for place, size in own.items()
        }
        self._env: Any = None
        self._found: list[tuple[Any, int | None]] = []

    def note(self, tensors: Any, place: int | None) -> None:
        """Record new guards with the location of a call, None before it. tensors: arguments of the call."""
        if self._env is None:
            shapes = (tensor.shape for tensor in tensors if isinstance(tensor, torch.Tensor))
            self._env = next((n.node.shape_env for shape in shapes for n in shape if isinstance(n, torch.SymInt)), None)
        guards = () if self._env is None else self._env.guards
        for guard in guards[len(self._found) :]:
            self._found.append((guard, place))

    def refusal(self, text: str, span: Span | None) -> DplcError | None:
        """Return one message for what a program requires of its sizes; None for any other message of torch.export.

        span: where the program requires it, if that is known.
        """
        if self._env is None or not re.search("Constraints violated|Expected op to be '=='", text):
            return None
        self.note((), None)
        declared, asked = (
            dict[Any, tuple[Size, str]](),
            list[str](),
        )  # torch's symbol: its size, and where it is declared
        for symbol, sources in self._env.var_to_sources.items():
            for name in (source.name for source in sources):
                if known := self._sizes.get(name() if callable(name) else name):
                    declared[symbol] = known
        for order, (symbol, (size, where)) in enumerate(declared.items()):
            told, found = f"`{size.name}` is declared {range_of(size)} ({where})", self._env.replace(symbol)
            at, guards = (
                span or self._span({symbol, *found.free_symbols}),
                [guard.expr for guard, _ in self._found if guard.expr.free_symbols == {symbol}],
            )
            if found.is_number:
                hint = f"take the number from the shape, `x.shape[..]`; or leave `{size.name}` out of dynamic="
                return DplcError(f"{told}, but the program asks for {found}", at, hint=hint)
            if found in declared and declared[found][0] is not size:
                pair = (size, where), declared[found]
                (one, _), (other, _) = pair = pair if order > list(declared).index(found) else pair[::-1]
                ranges = " and ".join(f"{range_of(n)} ({place})" for n, place in pair)
                low, high = max(one.low, other.low), min(one.high, other.high)
                alike = (one.low, one.high) == (other.low, other.high)
                hint = f"give both the name `{other.name}`"
                hint += "" if alike or low > high else f" and the range {low}..{high}"
                what = f"`{one.name}` and `{other.name}` must be equal in this program, and are declared {ranges}"
                return DplcError(what, at, hint=hint)
            if found is not symbol and found.free_symbols <= declared.keys():
                asks = f"{size.name} = {_spoken(found, declared)}"
                return DplcError(f"{told}, but the program asks for {asks}", at, hint="declare it so")
            if (step := common_step(size, symbol, guards)) > size.multiple:
                hint = f'declare it so: Dim("{size.name}", .., multiple={step})'
                narrow = node.replace(size, low=-(-size.low // step) * step, multiple=step, hint=step)
                return Narrower(narrow, f"{told}, but the program asks for a multiple of {step}", at, hint)
            part = around_hint(size, lambda n, symbol=symbol, guards=guards: all_hold(guards, symbol, n))  # type: ignore[misc]
            if part is not None and part is not size and part.low < part.high:
                what = f"{told}, but this way through the program is that of {part.low}..{part.high}"
                return Narrower(part, what, at, f"narrow it: {declaration(part)}; {OTHERS}")
            if part is not size:
                asked += [f"asked of `{size.name}`: {_spoken(guard, declared)}" for guard in guards]
        hint = "leave it out of dynamic=, and compile for each length; or for ranges in which it holds"
        what, at = "the program asks more of its dimensions than was declared", span or self._span(set(declared))
        return DplcError(what, at, asked or text.splitlines()[1:4], hint)

    def _span(self, symbols: set[Any]) -> Span | None:
        """Return the span of the first guard on such symbols, preferably of a guard on all of them."""
        about = [found for found in self._found if found[0].expr.free_symbols and found[0].expr.free_symbols <= symbols]
        ties = [found for found in about if found[0].expr.free_symbols == symbols]
        return next(filter(None, (self._of(*found) for found in ties or about)), None)

    def of_several(self) -> list[tuple[Any, Span | None]]:
        """Return the conditions on several lengths at once, with their spans, without those of memory layout."""
        if self._env is None:
            return []
        self.note((), None)
        found = []
        for guard, place in self._found:
            condition = self._env.replace(guard.expr)
            if len(condition.free_symbols) > 1 and not _OF_LAYOUT.search(str(getattr(guard, "sloc", ""))):
                found.append((condition, self._of(guard, place)))
        return found

    def _of(self, guard: Any, place: int | None) -> Span | None:
        if place is not None:
            return self._places.span(place)
        told = re.fullmatch(r"\(?(.+):(\d+) in .*", str(getattr(guard, "sloc", "")), re.DOTALL)
        return None if told is None else self._places.line(told[1], int(told[2]))


def all_hold(guards: Sequence[Any], symbol: Any, n: int) -> bool:
    """Return whether conditions of torch's on one length hold for a number."""
    try:
        return all(evaluated(guard, {symbol: n}) for guard in guards)
    except ZeroDivisionError:
        return False


def common_step(size: Size, symbol: Any, guards: Sequence[Any]) -> int:
    """Return the greatest divisor of the lengths for which guards hold, of the least and those around the hint."""
    least, step = -(-size.low // size.multiple) * size.multiple, size.multiple
    starts = least, max(least, size.hint // step * step - LOOKED_AT // 2 * step)
    tried = {n for start in starts for n in range(start, start + LOOKED_AT * step, step) if n <= size.high}
    held = [n for n in tried if all_hold(guards, symbol, n)]
    return math.gcd(*held) if len(held) > 1 else 1


def evaluated(e: Any, numbers: Mapping[Any, Any]) -> Any:
    """Return an expression of torch's symbols at numbers, or at proxies of them."""
    return sympy_interp(PythonReferenceAnalysis, dict(numbers), e)


def _spoken(e: Any, declared: Mapping[Any, tuple[Size, str]]) -> str:
    """Return an expression of torch's symbols as Python, with the names of sizes."""
    names = {symbol: sympy.Symbol(size.name, integer=True) for symbol, (size, _) in declared.items()}
    return str(PythonPrinter().doprint(e.xreplace(names)))
