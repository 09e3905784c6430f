"""Dimensions that are known at a call: how a caller declares them, and what torch.export finds out about them.

A dimension is declared once, by name, wherever it occurs. torch.export traces with symbols for it and reports what the
program requires of them; its symbols become sizes of our IRs, and its requirements become one message.
"""

from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from fractions import Fraction
from typing import Annotated, Any, Never
from unittest import mock

import sympy
from msgspec import Meta
from sympy import Basic, Symbol
from torch import SymInt, Tensor
from torch._guards import Source
from torch.export import Dim as TorchDim
from torch.fx.experimental.symbolic_shapes import EqualityConstraint, ShapeEnv, ShapeGuard
from torch.utils._sympy.functions import ToFloat
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.printers import PythonPrinter
from torch.utils._sympy.reference import PythonReferenceAnalysis

from ...ir import node
from ...ir.diagnostic import DplcError, Span, UsageError, did_you_mean
from ...ir.expr import Binary, Size, Sum, add, floordiv, is_int, modulo, multiply
from ...ir.node import Expr, immutable
from ...ir.ranges import Narrower, around_hint, ranges_around_hints, where_decided
from ...ir.sizes import decide_sizes, size_ends, sizes_in
from ...ir.text.parse import LARGEST_EXTENT
from ...ir.text.print_statements import print_expr
from .places import SourcePlaces
from .signature import TraceInput

MOST = 2**31 - 1  # of a size: a kernel takes an int
MOST_TRIED = 1 << 16  # numbers of a length for which a float is computed
MOST_PARTS = 1 << 12  # of such a quotient
LOOKED_AT = 64  # lengths that tell a common divisor


Identifier = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,254}\Z")]
Length = Annotated[int, Meta(ge=1, le=MOST)]


@immutable
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
        if not 1 <= self.low <= self.high <= MOST or self.multiple < 1:
            raise UsageError(f"`{self.name}` goes from 1 or more up to 2^31 - 1 at most, not {self.low}..{self.high}")
        if self.high // self.multiple * self.multiple < self.low:
            raise UsageError(f"no number of {self.low}..{self.high} is a multiple of {self.multiple}")
        if self.hint is not None and not self.admits(self.hint):
            raise UsageError(f"the hint of `{self.name}` is {self.hint}, which is not in {self.range}")

    @classmethod
    def of(cls, size: Size) -> Dim:
        """Return the declaration of a size of the IRs."""
        return cls(size.name, size.low, size.high, size.multiple, size.hint)

    def size(self, example: int = 0) -> Size:
        """Return the size of the IRs. example: its hint, if the declaration has none and the range has the number."""
        usual = example if self.admits(example) else self.high // self.multiple * self.multiple
        return Size(self.name, self.low, self.high, self.multiple, self.hint or usual)

    def number(self) -> Size | int:
        """Return the size of the IRs, or the number that it is where the range has one number."""
        return self.low if self.low == self.high else self.size()

    def admits(self, n: int) -> bool:
        return self.low <= n <= self.high and n % self.multiple == 0

    @property
    def range(self) -> str:
        return range_of(self)


@immutable
class Computed:
    """Length that an expression of torch's symbols computes from declared ones. dims: {symbol: its declaration}."""

    expression: sympy.Expr
    dims: Mapping[Symbol, Dim]

    def at(self, lengths: Mapping[str, int | sympy.Expr]) -> sympy.Expr:
        """Return the expression with these lengths, or expressions of torch, by name."""
        return self.expression.subs({symbol: lengths[dim.name] for symbol, dim in self.dims.items()}, simultaneous=True)


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

    def _fixed(self, *_: object) -> Never:
        what = f"arithmetic on `{self.size.name}` would fix it to {int(self)}"
        raise DplcError(what, hint="compute with the shape of a tensor, `x.shape[0]`")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = __rfloordiv__ = __mod__ = _fixed
    __rmod__ = __truediv__ = __rtruediv__ = __pow__ = __neg__ = __lt__ = __le__ = __gt__ = __ge__ = _fixed


def sizes_of_factory(args: Sequence[object], shape: Sequence[int]) -> dict[int, Size]:
    """Return {dimension: size} of a factory's result, by the arguments for its shape."""
    for given in (args, *(x for x in args if isinstance(x, (tuple, list)))):
        lengths = [x for x in given[: len(shape)] if isinstance(x, int)]
        found = {place: n.size for place, n in enumerate(lengths) if isinstance(n, Extent)}
        if found and lengths == list(shape):
            return found
    return {}


def declared(dynamic: object, inputs: Sequence[TraceInput]) -> list[TraceInput]:
    """Return inputs with the dimensions that `dynamic=` declares.

    dynamic: {input: {dimension: Dim}}, or a list with a Dim or None for each dimension; a list or tuple of these for
    the inputs in order; Dims of torch.export as well, so that its `dynamic_shapes` are accepted unchanged. Raises
    UsageError for an invalid declaration, DplcError for an example that is outside of it.
    """
    shapes = {given.name: given.tensor.shape for given in inputs}
    notes = (f"its inputs are {', '.join(given.name for given in inputs)}",)
    if isinstance(dynamic, (list, tuple)):
        if len(dynamic) != len(inputs):
            raise UsageError(f"dynamic= says it for {len(dynamic)} inputs; there are {len(inputs)}", notes=notes)
        dynamic = {given.name: own for given, own in zip(inputs, dynamic, strict=True)}
    if not isinstance(dynamic, Mapping):
        raise UsageError(f"dynamic= is {{input: {{dimension: Dim}}}}, not {type(dynamic).__name__}")
    found: dict[str, tuple[Dim, Size]] = {}
    settled: dict[str, dict[int, Size | Computed]] = {}
    for name, given in dynamic.items():
        if name not in shapes:
            hint = did_you_mean(str(name), list(shapes))
            raise UsageError(f"dynamic= names `{name}`, which is not an input", notes=notes, hint=hint)
        rank = len(shapes[name])
        if given is None or isinstance(given, (list, tuple)):
            given = dict(enumerate(given or ()))
        if not isinstance(given, Mapping):
            raise UsageError(f"dynamic={{{name!r}: ..}} is {{dimension: Dim}}, not {type(given).__name__}")
        for place, dim in given.items():
            if place.__class__ is not int or place not in range(-rank, rank):
                raise UsageError(f"dynamic= names dimension {place} of `{name}`, which has {rank}")
            if isinstance(dim, Computed):
                settled.setdefault(name, {})[place % rank] = dim
            if dim is None or isinstance(dim, Computed):
                continue
            dim, place = dim if isinstance(dim, Dim) else _of_torch(dim), place % rank
            known, size = found.setdefault(dim.name, (dim, dim.size(length := shapes[name][place])))
            if known != dim:
                raise UsageError(f"`{dim.name}` is declared twice: {known.range} and {dim.range}")
            if not dim.admits(length):
                what = f"`{dim.name}` is {length} in the example (dimension {place} of `{name}`); declared {dim.range}"
                raise DplcError(what, hint="an example within the range, or a range that has it")
            settled.setdefault(name, {})[place] = size
    return [given._replace(sizes=settled.get(given.name, {})) for given in inputs]


def _of_torch(dim: TorchDim) -> Dim:
    """Convert a Dim of torch.export: the Dim itself, or a multiple of one."""
    root, fn, name = getattr(dim, "root", dim), getattr(dim, "fn", int), getattr(dim, "__name__", str(dim))
    low, high = getattr(root, "min", None), getattr(root, "max", None)
    if low.__class__ is not int or high.__class__ is not int or high > MOST:
        hint = 'dplc.Dim("s", 1, 4096, hint=512), or torch.export.Dim("s", min=1, max=4096)'
        raise UsageError(f"`{name}` is not a dimension with a range", hint=hint)
    step = fn(1)
    if step < 1 or fn(2) != 2 * step:
        hint = f'dplc.Dim("{root.__name__}", .., multiple=4)'
        raise UsageError(f"`{name}` is not a multiple of a dimension", hint=hint)
    name = name if root is dim else f"{root.__name__}_{step}"
    return Dim(name, max(low, 1) * step, high * step, step)


def stand_ins(inputs: Sequence[TraceInput]) -> tuple[Tensor, ...]:
    """Return the tensors to trace with.

    Torch specialises an extent of 1, so a size that is 1, or from which an extent of 1 is computed, is longer there.
    """
    found, computed = dict[str, tuple[int, Size]](), list[Computed]()
    for given in inputs:
        for place, n in given.sizes.items():
            if isinstance(n, Computed):
                computed.append(n)
            else:
                found[n.name] = given.tensor.shape[place], n
    for least in (2, 4, 8, 16):
        lengths = {name: max(n, min(size.high, least * size.multiple)) for name, (n, size) in found.items()}
        if all(n.at(lengths) > 1 for n in computed):
            break
    return tuple(_stand_in(given, lengths) for given in inputs)


def _stand_in(given: TraceInput, lengths: Mapping[str, int]) -> Tensor:
    shape = list(given.tensor.shape)
    for place, n in given.sizes.items():
        shape[place] = int(n.at(lengths)) if isinstance(n, Computed) else lengths[n.name]
    return given.tensor if shape == list(given.tensor.shape) else given.tensor.new_zeros(shape)


def exported_shapes(inputs: Sequence[TraceInput]) -> tuple[tuple[dict[int, TorchDim], ...]] | None:
    """Return the sizes of inputs in the form of torch.export's `dynamic_shapes`, None without sizes."""

    def exported(length: Size | Computed) -> TorchDim:
        return TorchDim.AUTO if isinstance(length, Computed) else of_size(length)

    @functools.cache
    def of_size(size: Size) -> TorchDim:
        step = size.multiple
        least, most = -(-size.low // step), size.high // step
        if step == 1:
            return TorchDim(size.name, min=least, max=most)
        return step * TorchDim(f"_{size.name}", min=least, max=most)

    of_each = (
        {place: exported(n) for place, n in given.sizes.items() if isinstance(n, Computed) or n.low < n.high}
        for given in inputs
    )
    return (tuple(of_each),) if any(given.sizes for given in inputs) else None


# ---- What torch finds out about sizes in a trace: its symbols for them, and the guards that it adds.


# torch's guard or condition, and where the user's program made it
Asked = tuple[ShapeGuard, Span | None]
OTHERS = "other lengths take another way through the program"
# torch's own questions about strides, and about sizes that were declared to be one
_OF_LAYOUT = re.compile(
    r"in (check_contiguous_sizes_strides|is_contiguous\w*|is_channels_last\w*|is_non_overlapping\w*|should_swap|ge|"
    r"produce_guards_and_solve_constraints)\b"
)


class Symbols:
    """Torch's symbols for sizes in a trace, and the guards on them with their spans."""

    def __init__(self, places: SourcePlaces):
        self._places = places
        self._env: ShapeEnv = None  # of a trace with sizes; None before it
        # {torch's symbol: its size, and where it is declared}
        self._declared: dict[Symbol, tuple[Size, str]] = {}
        self._found: list[Asked] = []
        self._atoms: dict[Symbol, Expr] = {}  # sizes, and quotients of them, by a symbol of ours
        self._computed: set[Source] = set()  # torch's sources of lengths that are computed from others
        # {torch's symbol: ours, divided by what the size is a multiple of}
        self._known: dict[Symbol, sympy.Expr] = {}

    def begin(self, inputs: Sequence[TraceInput], tensors: Sequence[Tensor]) -> None:
        """Learn torch's symbols from the tensors that it traces, and tell it which lengths are computed from others."""
        lengths, computed = dict[str, int | sympy.Expr](), list[tuple[int | SymInt, Computed]]()
        for given, tensor in zip(inputs, tensors, strict=True):
            for place, size in given.sizes.items():
                n = tensor.shape[place]
                if isinstance(size, Computed):
                    computed.append((n, size))
                    continue
                lengths[size.name] = n
                if isinstance(n, SymInt):
                    lengths[size.name] = n.node.expr
                    self._env = n.node.shape_env
                    self._declared[n.node.expr] = size, f"dimension {place} of `{given.name}`"
        for n, length in computed:
            if isinstance(n, SymInt) and n.node.expr.is_Symbol:
                symbol, expression = n.node.expr, length.at(lengths)
                self._computed.update(self._env.var_to_sources[symbol])
                self._env.var_to_range[symbol] = self._env.bound_sympy(expression)
                self._env._set_replacement(symbol, expression, "computed from others")

    def computing(self) -> AbstractContextManager[object]:
        """Return a context in which torch.export accepts lengths that are computed from others."""
        derived = EqualityConstraint.is_derived

        def is_derived(known: EqualityConstraint, source: Source, *others: object) -> bool:
            return source in self._computed or derived(known, source, *others)

        return mock.patch.object(EqualityConstraint, "is_derived", is_derived)

    def note(self, span: Span | None) -> None:
        """Record new guards with the location of a call, None before it."""
        if self._env is not None:  # None while torch has not begun
            self._found += ((guard, span) for guard in self._env.guards[len(self._found) :])

    def prove(self) -> None:
        """Drop torch's conditions on floats of one length that hold for all its numbers.

        Torch refuses such a condition (`1 / s**0.5 >= 0`), because it knows no bounds of powers of floats.
        """
        guards = [] if self._env is None else self._env.guards
        for place, guard in enumerate(guards):
            symbols = guard.expr.free_symbols
            if len(symbols) != 1 or not guard.expr.has(ToFloat):
                continue
            (symbol,) = symbols
            known = self._env.var_to_range[symbol]
            if known.upper - known.lower > MOST_TRIED:
                continue
            if all(all_hold((guard.expr,), symbol, n) for n in range(int(known.lower), int(known.upper) + 1)):
                guards[place] = guard._replace(expr=sympy.true)

    def learn(self, found: sympy.Expr, size: Size) -> None:
        """Record what a size is to torch: `s17`, or `4*s17` of a multiple. Raises DplcError for a number."""
        if found.is_number:
            why = "PyTorch takes an op of this program apart for one length alone"
            hint = f"leave `{size.name}` out of dynamic=, and compile for each length"
            raise DplcError(f"`{size.name}` is fixed to {found}: {why}", hint=hint)
        own = Symbol(size.name, integer=True, positive=True)
        self._atoms[own] = size
        self._known |= dict.fromkeys(found.free_symbols, own / size.multiple)

    def settle(self) -> None:
        """Learn the sizes, and check the conditions on several lengths at once, but for those of memory layout.

        Raises DplcError for a condition that does not hold for every length of the ranges, or compares no lengths.
        """
        for symbol, (size, _) in self._declared.items():
            self.learn(self._env.replace(symbol), size)
        self.note(None)
        for noted in self._found:
            condition = self._env.replace(noted[0].expr)
            if len(condition.free_symbols) > 1 and not _OF_LAYOUT.search(str(noted[0].sloc)):
                for clause in _parts(sympy.And, sympy.to_cnf(condition)):
                    self._check(_parts(sympy.Or, clause), self._where(noted))

    def _check(self, parts: Sequence[Basic], span: Span | None) -> None:
        """Raise DplcError unless one of some conditions holds for every length."""
        hint = f"narrow the ranges until it always holds; {OTHERS}"
        for part in parts:
            if not isinstance(part, sympy.Rel):
                what = f"the program asks of several lengths `{part}`, which is not a comparison"
                raise DplcError(what, span, hint=hint)
        if any(part.lhs == part.rhs for part in parts):
            return
        either = tuple(Binary(part.rel_op, self.extent(part.lhs), self.extent(part.rhs)) for part in parts)
        if any(decide_sizes(c.op, c.a, c.b) for c in either):
            return
        ranges = ", ".join(f"{size.name} of {range_of(size)}" for size in sizes_in(either).values())
        said = " or ".join(f"{print_expr(c.a)} {c.op} {print_expr(c.b)}" for c in either)
        lengths = f"this way through the program is that of lengths with {said}"
        what = f"{lengths}, which does not hold for every {ranges}"
        alone = either if len(either) == 1 else ()
        if narrower := where_decided(what, alone, span, ()):
            raise narrower
        for c in alone:
            if remaining := ranges_around_hints(c.op, c.a, c.b):
                hint = f"narrow them, as {', '.join(map(declaration, remaining))}; {OTHERS}"
                raise Narrower(remaining, what, span, hint)
        raise DplcError(what, span, hint=hint)

    def refusal(self, text: str, span: Span | None) -> DplcError | None:
        """Return one message for what a program requires of its sizes; None for any other message of torch.export.

        span: where the program requires it, if that is known.
        """
        if self._env is None or not re.search("Constraints violated|Expected op to be '=='", text):
            return None
        self.note(None)
        declared = self._declared
        asked: list[str] = []
        for symbol, (size, where) in declared.items():
            declared_as, found = f"`{size.name}` is declared {range_of(size)} ({where})", self._env.replace(symbol)
            but = f"{declared_as}, but the program asks for"
            at = span or self._span({symbol, *found.free_symbols})
            guards = [guard.expr for guard, _ in self._found if guard.expr.free_symbols == {symbol}]
            if found.is_number:
                hint = f"take the number from the shape, `x.shape[..]`; or leave `{size.name}` out of dynamic="
                return DplcError(f"{but} {found}", at, hint=hint)
            if found in declared and declared[found][0] is not size:
                (other, there), (one, here) = (known for tied, known in declared.items() if tied in (symbol, found))
                low, high = max(one.low, other.low), min(one.high, other.high)
                alike = (one.low, one.high) == (other.low, other.high)
                hint = "" if alike or low > high else f" and the range {low}..{high}"
                ranges = f"{range_of(one)} ({here}) and {range_of(other)} ({there})"
                what = f"`{one.name}` and `{other.name}` must be equal in this program, and are declared {ranges}"
                return DplcError(what, at, hint=f"give both the name `{other.name}`{hint}")
            if found not in declared and found.free_symbols <= declared.keys():
                return DplcError(f"{but} {size.name} = {_spoken(found, declared)}", at, hint="declare it so")
            if (step := common_step(size, symbol, guards)) > size.multiple:
                narrow = node.replace(size, low=-(-size.low // step) * step, multiple=step, hint=step)
                hint = f'declare it so: Dim("{size.name}", .., multiple={step})'
                return Narrower((narrow,), f"{but} a multiple of {step}", at, hint)
            part = around_hint(size, functools.partial(all_hold, guards, symbol))
            if part is not None and part is not size and part.low < part.high:
                what = f"{declared_as}, but this way through the program is that of {part.low}..{part.high}"
                return Narrower((part,), what, at, f"narrow it: {declaration(part)}; {OTHERS}")
            if part is not size:
                asked += [f"asked of `{size.name}`: {_spoken(guard, declared)}" for guard in guards]
        what, at = "the program asks more of its dimensions than was declared", span or self._span(set(declared))
        hint = "leave it out of dynamic=, and compile for each length; or for ranges in which it holds"
        return DplcError(what, at, hint, asked or text.splitlines()[1:4])

    def _span(self, symbols: set[Symbol]) -> Span | None:
        """Return the span of the first guard on such symbols, preferably of a guard on all of them."""
        about = [found for found in self._found if set() < found[0].expr.free_symbols <= symbols]
        ties = [found for found in about if found[0].expr.free_symbols == symbols]
        return next(filter(None, map(self._where, ties or about)), None)

    def _where(self, noted: Asked) -> Span | None:
        guard, span = noted
        place = re.fullmatch(r"\(?(.+):(\d+) in .*", str(guard.sloc), re.DOTALL)
        return span or (None if place is None else self._places.line(place[1], int(place[2])))

    def knows(self, n: int | SymInt) -> bool:
        return isinstance(n, int) or n.node.expr.free_symbols <= self._known.keys()

    def extent(self, n: int | SymInt | sympy.Expr) -> Expr:
        """Return an extent: a number, or an expression of sizes. Raises DplcError for arithmetic that our IRs lack.

        n: a number, a symbolic one, or torch's own expression of lengths.
        """
        e = n.node.expr if isinstance(n, SymInt) else n
        return e if isinstance(e, int) else self._of(e.subs(self._known, simultaneous=True))

    def _of(self, e: sympy.Expr) -> Expr:
        word = type(e).__name__
        if e in self._atoms:
            return self._atoms[e]
        if e.is_Integer:
            return int(e)
        if e.is_Mul:
            factor, rest = e.as_coeff_Mul()
            product = functools.reduce(multiply, map(self._of, sympy.Mul.make_args(rest)))
            return floordiv(multiply(product, int(factor.p)), int(factor.q))
        if e.is_Pow and e.exp.is_Integer and e.exp > 0:
            return functools.reduce(multiply, [self._of(e.base)] * int(e.exp))
        if word in _ROUNDED and (found := self._rounded(_ROUNDED[word], e.args[0])) is not None:
            return found
        if word in _OPERATIONS:
            args = [self._of(part) for part in e.args]
            if word in _DIVISIONS:
                quotient = sympy.cancel(operator.truediv(*map(self._polynomial, args)))
                if quotient.is_integer:
                    return 0 if "Mod" in word else self._of(quotient)
            return functools.reduce(_OPERATIONS[word], args)
        raise DplcError(f"an extent is `{e}`, which is not supported", hint="sizes are added, multiplied and divided")

    def _polynomial(self, e: Expr) -> sympy.Expr:
        """Return an extent as torch's expression, in which each size and each quotient is a symbol."""
        if e.__class__ is Sum:
            return sympy.Add(e.constant, *(n * self._polynomial(atom) for atom, n in e.terms))
        if e.__class__ is Binary and e.op == "*":
            return self._polynomial(e.a) * self._polynomial(e.b)
        if is_int(e):
            return sympy.Integer(e)
        symbol = Symbol(print_expr(e), integer=True)
        self._atoms[symbol] = e
        return symbol

    def _rounded(self, whole: Callable[[float], int], e: sympy.Expr) -> Expr | None:
        """Return a length times a float, rounded, as a quotient of integers: `TruncToInt(1.5*ToFloat(s))` is s*3 // 2.

        None unless that equals the float64 result for every number that the length may be.
        """
        factor, rest = e.as_coeff_Mul()
        if type(rest).__name__ != "ToFloat" or not 0 < factor < LARGEST_EXTENT:
            return None
        length, by = self._of(rest.args[0]), float(factor)
        low, high = size_ends(length)
        if high - low > MOST_TRIED:
            return None
        part = Fraction(by).limit_denominator(MOST_PARTS)
        up = part.denominator - 1 if whole is math.ceil else 0
        if any(whole(by * n) != (n * part.numerator + up) // part.denominator for n in range(low, high + 1)):
            return None
        return floordiv(add(multiply(length, part.numerator), up), part.denominator)


def _parts(kind: type[Basic], condition: Basic) -> tuple[Basic, ...]:
    return (*condition.args,) if isinstance(condition, kind) else (condition,)


def _one_of(op: str, opposite: str, word: str) -> Callable[[Expr, Expr], Expr]:
    """Return the least or the greatest of two extents, if that is the same one for every length."""

    def chosen(a: Expr, b: Expr) -> Expr:
        known = decide_sizes(op, a, b)
        if known is not None:
            return a if known else b
        what = f"an extent that is the {word} of {print_expr(a)} and {print_expr(b)} is not supported"
        if narrower := where_decided(what, [Binary(op, a, b)], None, ()):
            raise narrower
        if remaining := ranges_around_hints(op, a, b) or ranges_around_hints(opposite, a, b):
            raise Narrower(remaining, what, None, f"with {', '.join(map(declaration, remaining))} it is one of them")
        raise DplcError(what, hint="compile ranges for themselves in which it is one of them")

    return chosen


_ROUNDED: dict[str, Callable[[float], int]] = {
    "TruncToInt": math.trunc, "FloorToInt": math.floor, "CeilToInt": math.ceil
}  # fmt: skip
_DIVISIONS = ("FloorDiv", "CleanDiv", "Mod", "PythonMod")
_OPERATIONS = {
    "Add": add, "FloorDiv": floordiv, "CleanDiv": floordiv, "PythonMod": modulo,
    "Mod": lambda a, b: a if decide_sizes("<", a, b) else modulo(a, b),  # a smaller extent is its own remainder
    "Min": _one_of("<=", ">", "least"), "Max": _one_of(">=", "<", "greatest"),
}  # fmt: skip


def all_hold(guards: Sequence[Basic], symbol: Symbol, n: int) -> bool:
    """Return whether conditions of torch's on one length hold for a number."""
    try:
        return all(evaluated(guard, {symbol: n}) for guard in guards)
    except ZeroDivisionError:
        return False


def common_step(size: Size, symbol: Symbol, guards: Sequence[Basic]) -> int:
    """Return the greatest divisor of the lengths for which guards hold, of the least and those around the hint."""
    lengths = range(-(-size.low // size.multiple) * size.multiple, size.high + 1, size.multiple)
    near = max(0, (size.hint - lengths.start) // size.multiple - LOOKED_AT // 2)
    tried = {*lengths[:LOOKED_AT], *lengths[near : near + LOOKED_AT]}
    held = [n for n in tried if all_hold(guards, symbol, n)]
    return math.gcd(*held) if len(held) > 1 else 1


def evaluated(e: sympy.Expr, numbers: Mapping[Symbol, Any]) -> Any:
    """Return an expression of torch's symbols at numbers, or at proxies of them."""
    return sympy_interp(PythonReferenceAnalysis, dict(numbers), e)


def _spoken(e: sympy.Expr, declared: Mapping[Symbol, tuple[Size, str]]) -> str:
    """Return an expression of torch's symbols as Python, with the names of sizes."""
    names = {symbol: Symbol(size.name, integer=True) for symbol, (size, _) in declared.items()}
    return str(PythonPrinter().doprint(e.xreplace(names)))
