"""Search for rules: terms of Tensor IR by size, classes of equal terms, and rules with a label from them.

A term is over leaves. It has a value in two worlds, which give the axes other extents and the leaves other numbers. Of
the terms with one value in both worlds, larger terms have the cheapest as an operand. The axis `b` is of samples, and
nothing reduces it.

Of two equal terms, the pattern costs more than the template. A candidate is left out if the rules in force, those found
before it among them, bring its pattern to the cost of its template.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from textwrap import indent
from typing import Any

import numpy as np

from ...ir import compose
from ...ir.diagnostic import DplcError, Source, no_such
from ...ir.expr import Axis, extents_of
from ...ir.functions import FLOAT, FUNCTIONS
from ...ir.interp.tensor import Array, TensorMeaning, stored
from ...ir.monoid_texts import PARTS
from ...ir.monoids import of_part
from ...ir.names import unused
from ...ir.tensor import (
    Elementwise,
    Fold,
    Input,
    Output,
    Reduce,
    TensorGraph,
    Term,
    axes,
    decide_below,
    dtype,
    operands,
    postorder,
)
from ...ir.text.tensor import print_graph
from ...ir.verify.tensor import fit
from ..compiler import Compilation, Compiler
from ..kernels.examples import alone, fired
from ..language.format import formatted
from ..language.rule import Rule, RuleSet, read_rules
from ..language.spelling import INDENT
from ..rewrite.terms.rewriter import Rewriter, TermRules
from ..ruleset import toolchain
from ..verify.mutants import refusal
from ..verify.outcome import agree
from ..verify.run import Checkers, CheckOptions, check_rules
from .labels import label

Leaves = Mapping[str, str]  # the letters of the axes by the name of a value; a number has none
SAMPLES, POSITIVE = Axis("b", 4), 2  # of the samples, those in which all numbers are positive
REDUCED = "kr"  # the axes that reductions of a grammar reduce
LARGEST, DIGITS, TOLERANCE = 1e5, 7, 1e-7  # of numbers that are compared


class World:
    """Extents and numbers for leaves. known: the term of this world for each term of another one."""

    def __init__(self, leaves: Leaves, turned: bool):
        self.turned, numbers = turned, dict[str, Array]()
        self.known, self.leaves = dict[Term, Term](), list[Term]()
        for place, (name, letters) in enumerate(leaves.items()):
            order = (SAMPLES, *map(self.axis, letters))
            values = np.random.default_rng([place, turned]).standard_normal(extents_of(order))
            values[:POSITIVE] = np.abs(values[:POSITIVE]) + 0.1
            numbers[name] = values
            self.leaves.append(Input(name, order) if name.isidentifier() else compose.const(float(name)))
        self.meaning = TensorMeaning(numbers)
        self.order = tuple(dict.fromkeys((SAMPLES, *(axis for leaf in self.leaves for axis in axes(leaf)))))
        self.cost = functools.cache(self._cost)

    def axis(self, letter: str) -> Axis:
        return Axis(letter, 2 + (ord(letter) // 2 + self.turned) % 2)

    def of(self, term: Term) -> Term:
        """Return the term of this world for one of another."""
        return decide_below(term, self.known, self._of)

    def _of(self, term: Any) -> Term:
        if isinstance(term, Input):
            return next(leaf for leaf in self.leaves if getattr(leaf, "name", "") == term.name)
        if isinstance(term, Reduce | Fold):
            fn, over = term.part if isinstance(term, Fold) else term.fn, [self.axis(axis.name) for axis in term.over]
            return reduction(fn, over, [self.known[x] for x in operands(term)])
        return compose.rebuilt(term, self.known.__getitem__)

    def value(self, term: Term) -> Array:
        """Return the numbers of a term: one dimension for the samples, and one for each axis."""
        made = self.of(term)
        data, _ = decide_below(made, self.meaning.values, self.meaning.add)
        return stored(data, Output("y", self.order, made)).astype(float)

    def _cost(self, term: Term) -> float:
        """Return the instructions that a term takes."""
        every = postorder((self.of(term),))
        extents = (math.prod(axis.extent for axis in {*axes(one), *getattr(one, "over", ())}) for one in every)
        return float(sum(map(operator.mul, map(instructions, every), extents)))


def instructions(term: Any) -> int:
    """Return the instructions of one element of a term without those of its operands, at least 1 for an operation."""
    if isinstance(term, Fold):
        return len(of_part(term.part)[0].step)
    return max(1, FUNCTIONS[term.fn].cost[0]) if isinstance(term, Elementwise | Reduce) else 0


def reduction(fn: str, over: Iterable[Axis], args: Iterable[Term]) -> Term:
    """Return a reduction, or a part of one over a tuple."""
    return compose.fold(fn, over, args) if fn in PARTS else compose.reduce(fn, over, *args)


Worlds = tuple[World, World]


def worlds_of(leaves: Leaves) -> Worlds:
    """Return both worlds for some leaves."""
    return World(leaves, True), World(leaves, False)


def equal(worlds: Worlds, one: Term, other: Term, partly: bool = False) -> bool:
    """Return whether two terms have one value in both worlds. partly: where the first one is a real number."""
    for world in worlds:
        a, b = map(world.value, (one, other))
        if not (agree(a, b, TOLERANCE) | (partly & ~np.isfinite(a))).all():
            return False
    return True


def cheaper(worlds: Worlds, one: Term, other: Term) -> bool:
    """Return whether a term costs less than another one in a world, and more in none."""
    costs = [(world.cost(one), world.cost(other)) for world in worlds]
    return all(a <= b for a, b in costs) and any(a < b for a, b in costs)


class TermSearch:
    """Terms of a grammar: functions and reductions (`Reduce.add`, `online.s`) over leaves.

    sizes: terms by size, one for each value. classes: all terms that may be equal. Raises UsageError for an unknown
    function.
    """

    def __init__(self, leaves: Leaves, ops: Iterable[str]):
        self.leaves, self.ops = leaves, tuple(ops)
        for name in (op.removeprefix("Reduce.") for op in self.ops):
            if name not in FUNCTIONS and name not in PARTS:
                raise no_such("function", name, (*FUNCTIONS, *PARTS))
        self.worlds = worlds_of(leaves)
        self.first = self.worlds[0]
        self.sizes, self.place = [self.first.leaves], dict[Term, int]()
        self.classes = defaultdict[bytes, list[Term]](list)
        for term in self.first.leaves:
            self.place[term] = len(self.place)
            self.classes[self.key(term)].append(term)

    def key(self, term: Term) -> bytes:
        """Return what equal terms share: positive samples in the first world. Empty for values that are too large."""
        numbers = self.first.value(term)[:POSITIVE]
        within = (np.abs(numbers) < LARGEST).all()
        return dtype(term).encode() + (np.round(numbers, DIGITS) + 0.0).tobytes() if within else b""

    def grown(self) -> Iterator[tuple[Term, list[Term]]]:
        """Yield each term of the next size with earlier ones that may be equal: one of each value, and cheaper ones."""
        terms = dict.fromkeys(term for op in self.ops for term in self._applied(op))
        self.sizes.append([])
        for term in sorted(terms, key=self.first.cost):
            if term not in self.place and (key := self.key(term)):
                known = self.classes[key]
                yield term, known
                if not any(equal(self.worlds, term, one) for one in known):
                    self.place[term] = len(self.place)
                    self.sizes[-1].append(term)
                elif self.first.cost(term) >= min(map(self.first.cost, known)):
                    continue
                known.append(term)

    def _applied(self, op: str) -> Iterator[Term]:
        """Yield the terms of the next size with a function at their root."""
        fn = op.removeprefix("Reduce.")
        function, size = FUNCTIONS.get(fn), len(self.sizes)
        count = len(of_part(fn)[0].operands) if function is None else function.arity if fn == op else 1
        for each in itertools.product(range(size), repeat=count):
            for args in itertools.product(*(self.sizes[n] for n in each)) if sum(each) == size - 1 else ():
                if not fit(function.kind if function else FLOAT, [*map(dtype, args)]):
                    continue
                if fn != op or not function:
                    over = (axis for axis in map(self.first.axis, REDUCED) if axis in axes(args[0]))
                    yield from (reduction(fn, [axis], args) for axis in over)
                elif count != 2 or not function.commutative or self.place[args[0]] <= self.place[args[1]]:
                    yield Elementwise(fn, args)

    def widened(self, one: Term, other: Term) -> Leaves:
        """Return the leaves of a term along as many axes as leave it equal to another one."""
        leaves, letters = dict(self.leaves), sorted({*"".join(self.leaves.values())})
        for name, letter in itertools.product((x.name for x in inputs((one,))), letters):
            tried = {**leaves, name: leaves[name] + letter}
            if letter not in leaves[name] and equal(worlds_of(tried), one, other, partly=True):
                leaves = tried
        return leaves


def inputs(terms: Iterable[Term]) -> list[Input]:
    return [x for x in postorder(terms) if isinstance(x, Input)]


# ---- Rules


Pair = tuple[Term, Term]  # pattern and template


@dataclass
class FoundRule:
    """A rule as text. saved: the share of the cost of its pattern, or of the predicted time of `saves`."""

    name: str
    text: str
    label: str
    saved: float
    saves: str = "the cost of its pattern"


@dataclass
class Discovery:
    """Search for rules that the rules in force do not cover.

    rules: the set that a new rule joins. force: rules that cover candidates, of which there are `covered`. refuted: the
    texts of wrong rules, and why each is wrong.
    """

    search: TermSearch
    rules: RuleSet
    force: list[Rule]
    options: CheckOptions
    covered: int = 0
    refuted: list[tuple[str, str]] = field(default_factory=list)

    def step(self) -> Iterator[FoundRule]:
        """Yield the rules that the next size adds, the general ones first."""
        every = [(term, one) for term, known in self.search.grown() for one in known]
        pairs = dict.fromkeys(pair for each in every for pair in (each, each[::-1]) if self._is_candidate(*pair))
        for pair in sorted(pairs, key=self._rank):
            if self.covers(pair, self.search.worlds):
                self.covered += 1
                continue
            leaves = self.search.widened(*pair)
            worlds = worlds_of(leaves)
            if cheaper(worlds, *pair[::-1]) and not self.covers(pair, worlds):
                yield from self.accepted(CandidateText(self, pair, leaves))

    def _is_candidate(self, pattern: Term, template: Term) -> bool:
        worlds, read = self.search.worlds, set(inputs((pattern,)))
        smaller = cheaper(worlds, template, pattern) and read.issuperset(inputs((template,)))
        return smaller and equal(worlds, pattern, template, partly=True)

    def _rank(self, pair: Pair) -> tuple[float, ...]:
        """Return what is low for patterns of few operations over many leaves, which vary along many axes."""
        read = inputs(pair[:1])
        size = len(postorder(pair[:1])) - len(read)
        return size, -len(read), -sum(len(x.axes) for x in read)

    def covers(self, pair: Pair, worlds: Worlds) -> bool:
        """Return whether the rules in force bring a pattern to the cost of its template."""
        rewriter = Rewriter(TermRules(self.force, {rule.name for rule in self.force}))
        rewriter.site.roots = pair[:1]
        with suppress(DplcError):  # of rules that do not end
            return not cheaper(worlds, pair[1], rewriter.rewrite(pair[0]))
        return False

    def accepted(self, text: CandidateText) -> Iterator[FoundRule]:
        """Yield a rule with its label, and put it in force, unless a program refutes it."""
        text.illustrate()
        for text.attribute in ("", "@approx\n"):
            rules = text.in_set()
            rule = rules.rule(text.name)
            (verdict,) = check_rules(rules, [rule], self.options)
            found = label(rule, verdict)
            if verdict.wrong is None:
                self.rules, text.label = rules, found.label
                self.force.append(rule)
                before, after = map(self.search.first.cost, text.pair)
                yield FoundRule(text.name, text.written(), found.label, 1 - after / before)
                return
        self.refuted.append((text.written(), found.equation.stopped))


class CandidateText:
    """The text of a rule. attribute: the line before it; guards: each with its reason; examples: their text."""

    def __init__(self, of: Discovery, pair: Pair, leaves: Leaves):
        self.pair, self.worlds, self.rules = pair, of.search.worlds, of.rules
        self.attribute = self.label = self.examples = ""
        names = dict(zip(of.search.first.leaves, leaves))
        self.match = lines_of(pair[0], names)
        self.rewrite = lines_of(pair[1], {term: text for term, text in names.items() if "(" not in text})
        words = (re.findall(r"\b[a-z]\w+(?=[(,]|\.\w)", lines[-1])[:2] for lines in (self.rewrite, self.match))
        self.name = unused("_for_".join("_of_".join(each or ["value"]) for each in words), self.rules.rules)
        reduced = dict.fromkeys(axis.name for x in postorder(pair) for axis in getattr(x, "over", ()))
        self.guards = {
            f"disjoint({letter}s, axes({x.name}))": f"{x.name} varies along an axis of {letter}s"
            for x in inputs(pair)
            for letter in reduced
            if letter not in leaves[x.name]
        }

    def written(self) -> str:
        """Return the text in its layout."""
        after, before = (lines[-1].removeprefix("y = ") for lines in (self.rewrite, self.match))
        text = f"## Compute {after} for {before}: {self.label}.\n{self.attribute}rule {self.name} on tensor\nmatch\n"
        text += lined(self.match) + "".join(f'require {guard} else "{why}"\n' for guard, why in self.guards.items())
        return formatted(Source(f"{self.name}.rw", f"{text}rewrite\n{lined(self.rewrite)}{self.examples}"))

    def in_set(self) -> RuleSet:
        """Return the rules and this one."""
        return self.rules.extended(read_rules(Source(f"{self.name}.rw", self.written())))

    def illustrate(self) -> None:
        """Write an example for each world, and a refusal for each guard."""
        rule = self.in_set().rule(self.name)
        for world in self.worlds:
            root = world.of(self.pair[0])
            graph = TensorGraph("g", tuple(inputs((root,))), (Output("y", axes(root), root),))
            before, after = (lined([print_graph(one)]) for one in (graph, fired(graph, alone(rule))[0]))
            self.examples += f'example "extents {[*extents_of(axes(root))]}"\n{before}gives\n{after}'
        rules = self.in_set()
        refusals = [refusal(Checkers(rules), rules.rule(self.name), guard) for guard in rule.guards]
        self.examples += "".join(filter(None, refusals))


def lined(lines: Iterable[str]) -> str:
    return indent("\n".join(lines), INDENT) + "\n"


def lines_of(root: Term, names: dict[Term, str]) -> list[str]:
    """Return the lines of a pattern or template. A value that is read twice has its own.

    names: texts of terms, to which this function adds.
    """
    own = [x for x in postorder((root,), lambda x: () if x in names else operands(x)) if x not in names]
    readers, lines = Counter(x for one in own for x in operands(one)), list[str]()
    for one in own:
        names[one] = spelled(one, names)
        if readers[one] > 1:
            name = unused("t", names.values())
            lines.append(f"{name} = {names[one]}")
            names[one] = name
    return [*lines, f"y = {names[root]}"]


def spelled(term: Any, names: Mapping[Term, str]) -> str:
    """Return the text of an operation, from those of its operands."""
    args = ", ".join(names[x] for x in operands(term))
    over = "".join(f"{axis.name}s.., " for axis in getattr(term, "over", ()))
    if isinstance(term, Fold):
        return f"Fold({term.part}, {over}({args}))"
    return f"Reduce({term.fn}, {over}{args})" if isinstance(term, Reduce) else f"{term.fn}({args})"


def worth(found: FoundRule, compiler: Compiler, programs: Mapping[str, Callable[[Compiler], Compilation]]) -> None:
    """Note the largest share of the predicted time of a program that a rule saves."""
    rules = compiler.tools.rules.extended(read_rules(Source(f"{found.name}.rw", found.text)))
    changed, shares = replace(compiler, tools=toolchain(rules, compiler.tools.settings)), {"any program": 0.0}
    for name, program in programs.items():
        with suppress(DplcError):  # of rules that undo it
            shares[name] = 1 - program(changed).predicted_seconds / program(compiler).predicted_seconds
    best = max(shares, key=shares.__getitem__)
    found.saved, found.saves = shares[best], f"the predicted time of {best}"
