"""Random Tensor IR programs: shapes with primes, broadcast, transposed and gathered reads, concatenation, reductions,
softmax.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from dplc.ir import compose
from dplc.ir.expr import Axis, binary
from dplc.ir.tensor import Input, Output, TensorGraph, Term

SMALL = (2, 3, 4, 5, 6)
UNARY = ("tanh", "relu", "sigmoid", "abs", "exp", "negative")
LARGEST = 3000

_STEPS = """unary unary scaled pair pair broadcast matmul matmul gram transposed added_transposed merged split reduced
reduced softmax norm sliced flipped selected joined padded gathered masked chosen counted"""
STEPS = tuple(_STEPS.split())
_LOOKUPS = "looked_up looked_up looked_up along pointed itself stacked chained appended crossed crossed"
GATHERING = (*STEPS, *_LOOKUPS.split())


class Maker:
    """Builds one program. Every value keeps the order of its dimensions, as torch would."""

    def __init__(self, dice: random.Random, steps: tuple[str, ...] = STEPS):
        self.dice, self.steps = dice, steps
        self.ins: list[Input] = []
        self.values: list[tuple[Term, tuple[Axis, ...]]] = []
        self.count = 0

    def axis(self, extent: int) -> Axis:
        self.count += 1
        return Axis(f"a{self.count}", extent)

    def input(self, dims: tuple[Axis, ...], kind: str = "f32", name: str = "") -> Input:
        made = Input(name or f"in{len(self.ins)}", dims, kind)
        self.ins.append(made)
        return made

    def keep(self, term: Term, dims: tuple[Axis, ...]) -> None:
        size = np.prod([axis.extent for axis in dims], initial=1)
        if size <= LARGEST and len(dims) <= 4:
            self.values.append((term, dims))

    def read(self, term: Term, dims: tuple[Axis, ...], wanted: tuple[Any, ...]) -> Term:
        """A value at other places: one index expression a dimension."""
        return compose.remap(term, dict(zip(dims, wanted, strict=True)))

    def pick(self) -> tuple[Term, tuple[Axis, ...]]:
        return self.dice.choice(self.values[-4:])

    def step(self) -> None:
        x, dims = self.pick()
        getattr(self, self.dice.choice(self.steps))(x, dims)

    # ---- one method an operation
    def unary(self, x: Term, dims: Any) -> None:
        self.keep(compose.elementwise(self.dice.choice(UNARY), x), dims)

    def scaled(self, x: Term, dims: Any) -> None:
        self.keep(
            compose.elementwise(self.dice.choice(("add", "multiply", "maximum")), x, self.dice.choice((0.5, 2, 0, 1))),
            dims,
        )

    def pair(self, x: Term, dims: Any) -> None:
        same = [(v, d) for v, d in self.values if [a.extent for a in d] == [a.extent for a in dims]]
        other, own = self.dice.choice(same)
        self.keep(
            compose.elementwise(self.dice.choice(("add", "multiply", "subtract")), x, self.read(other, own, dims)), dims
        )

    def broadcast(self, x: Term, dims: Any) -> None:
        some = tuple(axis for axis in dims if self.dice.random() < 0.6)
        self.keep(compose.elementwise(self.dice.choice(("add", "multiply")), x, self.input(some)), dims)

    def matmul(self, x: Term, dims: Any) -> None:
        if len(dims) >= 2:
            new = self.axis(self.dice.choice((2, 3, 5)))
            product = compose.elementwise("multiply", x, self.input((dims[-1], new)))
            self.keep(compose.reduce("add", (dims[-1],), product), (*dims[:-1], new))

    def gram(self, x: Term, dims: Any) -> None:
        if len(dims) >= 2:
            new = self.axis(dims[-2].extent)
            other = self.read(x, dims, (*dims[:-2], new, dims[-1]))
            self.keep(compose.reduce("add", (dims[-1],), compose.elementwise("multiply", x, other)), (*dims[:-1], new))

    def transposed(self, x: Term, dims: Any) -> None:
        self.keep(x, tuple(self.dice.sample(dims, len(dims))))

    def added_transposed(self, x: Term, dims: Any) -> None:
        if len(dims) >= 2 and dims[0].extent == dims[1].extent:
            self.keep(compose.elementwise("add", x, self.read(x, dims, (dims[1], dims[0], *dims[2:]))), dims)

    def merged(self, x: Term, dims: Any) -> None:
        if len(dims) >= 2:
            new = self.axis(dims[0].extent * dims[1].extent)
            n = dims[1].extent
            self.keep(self.read(x, dims, (binary("//", new, n), binary("%", new, n), *dims[2:])), (new, *dims[2:]))

    def split(self, x: Term, dims: Any) -> None:
        for n in (2, 3):
            if dims and dims[-1].extent % n == 0 and dims[-1].extent > n:
                high, low = self.axis(dims[-1].extent // n), self.axis(n)
                self.keep(
                    self.read(x, dims, (*dims[:-1], binary("+", binary("*", high, n), low))), (*dims[:-1], high, low)
                )
                return

    def reduced(self, x: Term, dims: Any) -> None:
        if dims:
            over = tuple(self.dice.sample(dims, self.dice.choice((1, 1, min(2, len(dims))))))
            total = compose.reduce(self.dice.choice(("add", "maximum", "minimum")), over, x)
            self.keep(total, tuple(axis for axis in dims if axis not in over))

    def softmax(self, x: Term, dims: Any) -> None:
        if dims:
            k = self.dice.choice(dims)
            shifted = compose.elementwise("exp", compose.elementwise("subtract", x, compose.reduce("maximum", (k,), x)))
            self.keep(compose.elementwise("divide", shifted, compose.reduce("add", (k,), shifted)), dims)

    def norm(self, x: Term, dims: Any) -> None:
        if dims:
            total = compose.reduce("add", (dims[-1],), compose.elementwise("multiply", x, x))
            self.keep(
                compose.elementwise(
                    "multiply", x, compose.elementwise("rsqrt", compose.elementwise("add", total, 1.0))
                ),
                dims,
            )

    def sliced(self, x: Term, dims: Any) -> None:
        place = self.dice.randrange(len(dims)) if dims else 0
        if dims and dims[place].extent > 2:
            start, step = self.dice.randrange(dims[place].extent - 2), self.dice.choice((1, 2))
            new = self.axis(-(-(dims[place].extent - start) // step))
            wanted = list(dims)
            wanted[place] = binary("+", binary("*", new, step), start)
            self.keep(self.read(x, dims, tuple(wanted)), (*dims[:place], new, *dims[place + 1 :]))

    def flipped(self, x: Term, dims: Any) -> None:
        if dims:
            wanted = (binary("-", dims[0].extent - 1, dims[0]), *dims[1:])
            self.keep(self.read(x, dims, wanted), dims)

    def selected(self, x: Term, dims: Any) -> None:
        if len(dims) >= 2:
            self.keep(self.read(x, dims, (self.dice.randrange(dims[0].extent), *dims[1:])), dims[1:])

    def joined(self, x: Term, dims: Any) -> None:
        if dims:
            n = dims[-1].extent
            new = self.axis(2 * n)
            left = self.read(x, dims, (*dims[:-1], new))
            right = compose.elementwise("multiply", self.read(x, dims, (*dims[:-1], binary("-", new, n))), 2.0)
            self.keep(compose.case(binary("<", new, n), left, right), (*dims[:-1], new))

    def padded(self, x: Term, dims: Any) -> None:
        if dims:
            new = self.axis(dims[0].extent + 2)
            inside = binary("and", binary(">=", new, 1), binary("<", new, dims[0].extent + 1))
            self.keep(
                compose.case(inside, self.read(x, dims, (binary("-", new, 1), *dims[1:])), -1.0), (new, *dims[1:])
            )

    def gathered(self, x: Term, dims: Any) -> None:
        if dims:
            new = self.axis(self.dice.choice((2, 3)))
            places = self.input((new,), "i64")
            self.keep(
                self.read(x, dims, (compose.elementwise("remainder", places, dims[0].extent), *dims[1:])),
                (new, *dims[1:]),
            )

    def places(self, dims: tuple[Axis, ...], limit: int) -> Term:
        """An input that holds places below `limit`, for axes of these extents: a new one, or one that is there."""
        extents = [axis.extent for axis in dims]
        places = [x for x in self.ins if x.name.startswith("below_") and below(x.name) <= limit]
        fitting = [x for x in places if [axis.extent for axis in x.axes] == extents]
        if fitting and self.dice.random() < 0.5:
            found = self.dice.choice(fitting)
            return self.read(found, found.axes, dims)
        return self.input(dims, "i64", f"below_{limit}_{len(self.ins)}")

    def looked_up(self, x: Term, dims: Any) -> None:
        """Rows of a value, or of an input as an embedding has them; the places are read in the index itself."""
        new = self.axis(self.dice.choice((2, 3, 5)))
        if self.dice.random() < 0.5:
            dims = (self.axis(self.dice.choice(SMALL)), self.axis(self.dice.choice(SMALL)))
            x = self.input(dims)
        if dims:
            wanted = (self.places((new,), dims[0].extent), *dims[1:])
            self.keep(self.read(x, dims, wanted), (new, *dims[1:]))

    def along(self, x: Term, dims: Any) -> None:
        """take_along_dim: the place depends on the axes that stay."""
        if len(dims) >= 2:
            new = self.axis(self.dice.choice((2, 3)))
            wanted = (*dims[:-1], self.places((dims[-2], new), dims[-1].extent))
            self.keep(self.read(x, dims, wanted), (*dims[:-1], new))

    def pointed(self, x: Term, dims: Any) -> None:
        """A row that a reduction of another value, often of the same one, tells."""
        source, own = self.pick()
        if dims and own:
            many = compose.cast(compose.elementwise("greater", source, 0.2), "i64")
            place = compose.elementwise("remainder", compose.reduce("add", (own[-1],), many), dims[0].extent)
            new = tuple(self.axis(axis.extent) for axis in own[:-1])
            place = self.read(place, own[:-1], new)
            self.keep(self.read(x, dims, (place, *dims[1:])), (*new, *dims[1:]))

    def itself(self, x: Term, dims: Any) -> None:
        """A value made of a reduction, read at the place that the reduction tells."""
        if dims:
            many = compose.reduce("add", dims[-1:], compose.cast(compose.elementwise("greater", x, 0.2), "i64"))
            place = compose.elementwise("remainder", many, dims[-1].extent)
            value = compose.elementwise("add", x, compose.cast(place, "f32"))
            self.keep(value, dims)
            self.keep(self.read(value, dims, (*dims[:-1], place)), dims[:-1])

    def stacked(self, x: Term, dims: Any) -> None:
        """Two values of one shape as rows of one; often one row of them again."""
        same = [(v, d) for v, d in self.values if [a.extent for a in d] == [a.extent for a in dims]]
        other, own = self.dice.choice(same)
        new = self.axis(2)
        both = compose.case(binary("<", new, 1), x, self.read(other, own, dims))
        if self.dice.random() < 0.4:
            self.keep(self.read(both, (new,), (self.dice.randrange(2),)), dims)
        else:
            self.keep(both, (new, *dims))

    def chained(self, x: Term, dims: Any) -> None:
        """Places that are themselves looked up, in pieces joined: `x[cat(a, b)[c]]`."""
        if dims:
            middle, new = self.axis(6), self.axis(self.dice.choice((2, 5)))
            half = self.axis(3)
            parts = [self.places((half,), dims[0].extent) for _ in range(2)]
            left, right = (
                self.read(parts[0], (half,), (middle,)),
                self.read(parts[1], (half,), (binary("-", middle, 3),)),
            )
            joined = compose.case(binary("<", middle, 3), left, right)
            place = self.read(joined, (middle,), (self.places((new,), 6),))
            self.keep(self.read(x, dims, (place, *dims[1:])), (new, *dims[1:]))

    def appended(self, x: Term, dims: Any) -> None:
        """Rows of one value looked up, and then rows of another one below them."""
        same = [(v, d) for v, d in self.values if [a.extent for a in d[1:]] == [a.extent for a in dims[1:]]]
        if dims and (same := [(v, d) for v, d in same if d]):
            other, own = self.dice.choice(same)
            few, new = self.axis(3), self.axis(3 + own[0].extent)
            rows = self.read(x, dims, (self.places((few,), dims[0].extent), *dims[1:]))
            below = self.read(other, own, (binary("-", new, 3), *dims[1:]))
            joined = compose.case(binary("<", new, 3), self.read(rows, (few,), (new,)), below)
            self.keep(joined, (new, *dims[1:]))

    def crossed(self, x: Term, dims: Any) -> None:
        """Every row of a value with every row of another one: the other is read under a name of its own."""
        same = [(v, d) for v, d in self.values if [a.extent for a in d] == [a.extent for a in dims]]
        if dims:
            other, own = self.dice.choice(same)
            new = self.axis(dims[0].extent)
            product = compose.elementwise("multiply", x, self.read(other, own, (new, *dims[1:])))
            self.keep(compose.reduce("add", dims[1:], product), (dims[0], new))

    def masked(self, x: Term, dims: Any) -> None:
        if len(dims) >= 2:
            below = compose.index(binary("<=", dims[-1], dims[-2]))
            self.keep(compose.elementwise("where", below, x, self.dice.choice((0.0, -1.0))), dims)

    def chosen(self, x: Term, dims: Any) -> None:
        self.keep(
            compose.elementwise(
                "where", compose.elementwise("greater", x, 0.0), x, compose.elementwise("multiply", x, 0.1)
            ),
            dims,
        )

    def counted(self, x: Term, dims: Any) -> None:
        if dims:
            total = compose.reduce("add", (dims[-1],), compose.cast(compose.elementwise("greater", x, 0.2), "i64"))
            self.keep(compose.cast(total, "f32"), dims[:-1])


def program(dice: random.Random, steps: tuple[str, ...] = STEPS, most: int = 12) -> TensorGraph:
    """A program of three to `most` operations and one to three outputs, some of them inputs or returned twice."""
    maker = Maker(dice, steps)
    dims = tuple(maker.axis(dice.choice(SMALL)) for _ in range(dice.choice((1, 2, 2, 3))))
    maker.keep(maker.input(dims), dims)
    for _ in range(dice.randint(3, most)):
        maker.step()
    chosen = [maker.values[-1], *(dice.choice(maker.values) for _ in range(dice.choice((0, 0, 1, 2))))]
    outs = tuple(Output(f"out{place}", kept, term) for place, (term, kept) in enumerate(chosen))
    return TensorGraph("program", tuple(maker.ins), outs)


def below(name: str) -> int:
    """What the integers of an input stay below: its name says so where they are places."""
    return int(name.split("_")[1]) if name.startswith("below_") else 60


def data_for(graph: TensorGraph, seed: int) -> dict[str, Any]:
    """Inputs for a program: what every buffer holds."""
    generator = np.random.default_rng(seed)
    data = {}
    for x in graph.ins:
        shape = [axis.extent for axis in x.axes]
        places = generator.integers(0, below(x.name), shape)
        data[x.name] = generator.standard_normal(shape) if x.dtype == "f32" else places
    return data
