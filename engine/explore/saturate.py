"""Problems and rules to egglog text, saturated step by step under budgets, and read back.

egglog sees limits only between iterations, so one iteration is run at a time, rows are counted, and it stops: never
"until saturated". A stopped e-graph is smaller, never wrong, and the program as it was written is always in it.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import re
import sys
import time
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial, reduce
from importlib.machinery import PathFinder
from importlib.resources import files
from itertools import count
from typing import Any

import msgspec

from ...ir.diagnostic import DplcError, Located
from ...ir.dtypes import COMPUTING_FLOATS, FLOATS, toml_table
from ...ir.expr import NEGATED
from ...ir.functions import CAST, COMPARE, DTYPES, FLOAT, FUNCTIONS, HELD, LOGICAL, SELECT, opmath, result_dtype
from ...ir.monoid_texts import PARTS
from ...ir.monoids import of_part
from ...ir.node import immutable
from ..language.core import (
    Apply,
    AxisTerm,
    CaseTerm,
    FoldTerm,
    FunctionTerm,
    Group,
    Guard,
    LetClause,
    LetExpression,
    MappedTerm,
    NameOf,
    NameTerm,
    Number,
    NumberTerm,
    Operation,
    PickClause,
    Prefix,
    ReduceTerm,
    Syntax,
    ValueTerm,
    bare,
)
from ..language.evaluate import facts_of
from ..language.rule import Rule
from ..language.typed_slots import calls, without_lets
from ..rewrite.terms.rewriter import mentions_mat
from .problem import (
    CONSTRUCTORS,
    LISTS,
    EGraph,
    ENode,
    IndexForm,
    Problem,
    Stop,
    number_text,
    read_back,
    sorted_operands,
)
from .solution import Extraction, Solution

# ---- E-graphs of egglog, a new one for each problem: all rules are read (0.07 s), a problem says which of them run.
#
# A graph that keeps the rules and gets one problem after the other by `push` and `pop` answers by what it saw before:
# rules then match that do not match in a new graph.


@functools.cache
def bindings() -> Any:
    """Return the compiled module of egglog by itself. Raises ImportError if egglog is not installed.

    The classes for Python programs around the module take 40 times as long to import.
    """
    name = "egglog.bindings"
    package = importlib.util.find_spec("egglog")
    places = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec(name, places) if places is not None else None
    if name in sys.modules or spec is None or spec.loader is None:
        return importlib.import_module(name)
    made = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def run(graph: Any, text: str) -> Any:
    """Run the commands of a text and return the answers of egglog. No command has two lines.

    Line by line: every word of a parsed text keeps a copy of all of it, 100 MB for the rules.
    """
    return [answer for line in text.splitlines() for answer in graph.run_program(*graph.parse_program(line))]


@immutable
class SaturationBudget:
    """When to stop: e-nodes, seconds, iterations."""

    nodes: int = 2000
    seconds: float = 2.0
    iterations: int = 30


def available() -> bool:
    """Return whether egglog can be imported here."""
    try:
        bindings()
    except ImportError:
        return False
    return True


@cache
def prelude() -> str:
    """Return sorts, constructors, and the analyses: axes, dtype, known when loaded, varies at run time."""
    out = ["(sort T)"]
    for name, (attributes, arity) in CONSTRUCTORS.items():
        out.append(f"(constructor {name} ({' '.join((*attributes, *['T'] * arity))}) T)")
    out.append((files(__package__) / "analyses.egg").read_text())
    out += [f'(set (opmath "{name}") "{opmath(name)}")' for name in DTYPES]
    out += [f'(floating "{name}")' for name in FLOATS]
    for name, function in FUNCTIONS.items():
        given = function.kind in (COMPARE, LOGICAL, CAST)
        out.append(f'(gives "{name}" "{result_dtype(name)}")' if given else f'(keeps "{name}")')
    for part in PARTS:  # of a reduction over tuples: a part has the axes of what it depends on
        monoid, own = of_part(part)
        names = dict(zip("abc", monoid.operands))
        read = [name for name, operand in names.items() if operand in monoid.reads(own)]
        asked = " ".join(f"(= m{name} (axes {name}))" for name in read)
        mask = functools.reduce("(| {} {})".format, (f"m{name}" for name in read)) if read else "0"
        axes = f"(set (axes e) (& {mask} (not-i64 k)))"
        out.append(f'(rule ((= e (F{len(names)} "{part}" k {" ".join(names)})) {asked}) ({axes}) :ruleset analysis)')
    return "\n".join(out)


def constructor(node: ENode) -> str:
    """Return the egglog constructor of an e-node."""
    op, _, children = node
    return f"{LISTS[op]}{len(children)}" if op in LISTS else op


def node_text(node: ENode, name: str) -> str:
    """Return an e-node over classes called `name` and their number."""
    attributes = (f'"{a}"' if isinstance(a, str) else str(a) for a in node[1])
    return f"({' '.join((constructor(node), *attributes, *(f'{name}{child}' for child in node[2])))})"


def text_of(problem: Problem) -> str:
    """Return the program and what is known of it."""
    out: list[str] = []
    for number, node in enumerate(problem.nodes):
        out.append(f"(let $t{number} {node_text(node, '$t')})")
        if node[0] == "Leaf":
            leaf = problem.leaves[node[1][0]]
            out.append(f'(set (axes $t{number}) {leaf.mask}) (set (dtype $t{number}) "{leaf.dtype}")')
            if leaf.memory:
                out.append(f"({'known' if leaf.known else 'varies'} $t{number})")
        elif (literal := literal_of(node)) is not None:
            out.append(f"(set (literal $t{number}) {literal})")
        elif node[0] == "Op":
            out.append(f"(set (axes $t{number}) {problem.forms[node[1][0]].mask})")
            out.append(f'(set (dtype $t{number}) "{problem.dtypes[number]}") (varies $t{number})')
    out += [f"(single {bit})" for bit in problem.extents]
    for number, form in enumerate(problem.forms):
        source, image = moved(form)
        out.append(
            f"(set (source {number}) {source}) (set (image {number}) {image}) (set (brings {number}) {form.mask})"
        )
    out += [f"(set (extent {mask}) {size})" for mask, size in sizes(problem).items()]
    for pack in problem.packs:
        at = f"$t{pack.weight} {pack.over}"
        out.append(f"(set (packed {at}) $t{pack.whole}) (set (places {at}) {pack.places})")
    for mean in problem.means:
        out.append(f"(one_over $t{mean.number} {mean.over}) (set (first {mean.over}) {mean.first})")
    return "\n".join(out)


def literal_of(node: ENode) -> int | None:
    """Return a whole number as what a rule compares with an extent."""
    text = node[1][0] if node[0] == "Num" else ""
    return int(float(text)) if text.endswith(".0") and abs(float(text)) < 2**53 else None


def moved(form: IndexForm) -> tuple[int, int]:
    """Return the axes that an index map reads, and those under which it reads them."""
    source = image = 0
    for axis, mask in form.images:
        source, image = source | axis, image | mask
    return source, image


def sizes(problem: Problem) -> dict[int, int]:
    """Return the number of elements along each set of axes that a rule can query."""
    masks = {node[1][1] for node in problem.nodes if node[0] == "Red"}.union(
        problem.extents, *map(moved, problem.forms)
    )
    return {mask: problem.size(mask) for mask in sorted(masks)}


def order_of_sizes(problem: Problem, constants: Iterable[int]) -> tuple[int, ...]:
    """Return all that rules can see of extents: their order.

    The extents are compared among themselves and with numbers of the program and of the rules.
    """
    numbers = [n for n in map(literal_of, problem.nodes) if n is not None]
    values = (*sizes(problem).values(), *numbers, *constants)
    place = {value: rank for rank, value in enumerate(sorted(set(values)))}
    return tuple(place[value] for value in values)


def graph_of_rules(exported: RuleTexts, only: Collection[str] | None = None) -> Any:
    """Return an e-graph of egglog in which some rules run, by default all, and the commutativity of functions."""
    commuting = {
        f"commutes_{name}": f'(rewrite (E2 "{name}" a b) (E2 "{name}" b a) :ruleset commutes_{name})'
        for name, function in sorted(FUNCTIONS.items())
        if function.commutative and function.arity == 2
    }
    rules = {f"rule_{name}": text for name, text in exported.text.items()}
    wanted = [f"rule_{name}" for name in exported.text if only is None or name in only]
    rulesets = (f"(ruleset {name})" for name in (*rules, *commuting))
    graph = bindings().EGraph()
    run(graph, "\n".join((prelude(), *rulesets, *rules.values(), *commuting.values())))
    run(graph, f"(unstable-combined-ruleset algebra {' '.join((*wanted, *commuting))})")
    return graph


def saturate(problem: Problem, exported: RuleTexts, budget: SaturationBudget | None = None) -> EGraph:
    """Return the e-graph of a problem under all rules."""
    return saturated(graph_of_rules(exported), problem, exported, budget or SaturationBudget())


def saturated(graph: Any, problem: Problem, exported: RuleTexts, budget: SaturationBudget) -> EGraph:
    """Put a problem into an e-graph of egglog, and let its algebra run."""
    start = time.perf_counter()
    run(graph, text_of(problem))
    run(graph, "(run-schedule (saturate analysis))")
    reason, rows, done = "", len(problem.nodes), 0
    hits: Counter[str] = Counter()
    while not reason:
        if rows > budget.nodes:
            reason = "nodes"
        elif time.perf_counter() - start >= budget.seconds:
            reason = "seconds"
        elif done >= budget.iterations:
            reason = "iterations"
        else:
            done += 1
            report = run(graph, "(run-schedule (run algebra))")[0].report
            hits.update(report.num_matches_per_rule)
            run(graph, "(run-schedule (saturate analysis))")
            rows = sum(len(f.rows) for name, f in graph.freeze().functions.items() if name in CONSTRUCTORS)
            reason = "" if report.updated else "saturated"
    return read_back(graph, problem, Stop(reason, done, rows), tuple(name for name in exported.text if hits[name]))


class Spellings:
    """The e-graphs of problems. Those that differ in extents share one, unless a rule could tell them apart."""

    def __init__(self, exported: RuleTexts, budget: SaturationBudget):
        self.exported, self.budget = exported, budget
        self.made: dict[Hashable, EGraph] = {}

    def of(self, problem: Problem) -> EGraph:
        key = problem.structure, order_of_sizes(problem, sorted(self.exported.constants))
        if key not in self.made:
            self.made[key] = saturate(problem, self.exported, self.budget)
        return replace(self.made[key], problem=problem)


# ---- Solutions as plain data: the choice of a search is put into the e-graph again, and proved there.
#
# A recorded solution is a list of e-nodes over the leaves, forms and axes of its region, and none of it is trusted. It
# is accepted for the program only if the rules that are named with it, as they are written now, prove the two equal
# again.


AGAIN = 3  # iterations in which a solution that was put in may meet the program
KINDS = frozenset(("E", "Red", "Fold", "Map", "Case", "Op", "Leaf", "Num"))
WORD = re.compile(r"[A-Za-z0-9_.+-]+")  # functions, dtypes, numbers


class StoredSolution(msgspec.Struct, frozen=True):
    """Solution of one region.

    region: a hash of the region; rules: the rules that prove it; nodes: (constructor, attributes, indices of
    operands), operands first; roots, stored, groups: indices of nodes.
    """

    region: str
    rules: tuple[str, ...]
    nodes: tuple[ENode, ...]
    roots: tuple[int, ...]
    stored: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...] = ()


class NotProved(Exception):
    """A recorded solution that the rules do not make equal to the program."""


def region_of(problem: Problem) -> str:
    """Return a hash of a region: equal for regions of equal structure, extents and dtypes."""
    return hashlib.sha256(repr(problem.key).encode()).hexdigest()[:16]


def written(problem: Problem, extraction: Extraction, solution: Solution) -> StoredSolution:
    """Return a solution of a region as data."""
    graph = extraction.graph
    place: dict[int, int] = {}
    nodes: list[ENode] = []
    for cls, (op, attributes, children) in extraction.in_order(solution):
        place[cls] = len(nodes)
        nodes.append((op, attributes, tuple(place[child] for child in children)))
    groups = tuple(tuple(place[cls] for cls in group) for group in solution.groups)
    stored = tuple(sorted(place[cls] for cls in solution.stored))
    roots = tuple(place[graph.of[root]] for root in problem.roots)
    rules = used_rules(graph, solution)
    return StoredSolution(region_of(problem), rules, tuple(nodes), roots, stored, groups)


def proved(
    problem: Problem, recorded: StoredSolution, exported: RuleTexts, budget: SaturationBudget
) -> tuple[EGraph, list[tuple[int, int]]]:
    """Return the e-graph of a region that proves a recorded solution, and the class and spelling of each of its nodes.

    Raises NotProved if the solution does not equal the program.
    """
    if not available():
        raise NotProved("egglog is not here")
    places = {place for group in (recorded.roots, recorded.stored, *recorded.groups) for place in group}
    if len(recorded.roots) != len(problem.roots) or not places <= set(range(len(recorded.nodes))):
        raise NotProved("it is not a solution: it names nodes that are not there")
    try:
        graph = graph_of_rules(exported, recorded.rules)
        made = saturated(graph, problem, exported, budget)
        run(graph, "\n".join(f"(let $r{n} {_text(node, n)})" for n, node in enumerate(recorded.nodes)))
        for turn in range(AGAIN + 1):
            run(graph, f"(run-schedule {'(run algebra) ' if turn else ''}(saturate analysis))")
            if _equal(graph, problem, recorded):
                assert made.stop is not None
                found = read_back(graph, problem, made.stop, made.fired)
                return found, _classes(found, recorded)
    except NotProved:
        raise
    except Exception as error:  # it holds something else, which egglog or we do not read
        raise NotProved(f"it is not a solution: {type(error).__name__}") from None
    raise NotProved("the rules do not make it equal to the program")


def used_rules(graph: EGraph, solution: Solution) -> tuple[str, ...]:
    """Return the rules that matched in a region if a solution spells it in another way than the program does."""
    written_so = {(graph.of[place], graph.spelled(node)) for place, node in enumerate(graph.problem.nodes)}
    chosen = ((cls, graph.classes[cls][place]) for cls, place in solution.choice.items())
    return () if all(pair in written_so for pair in chosen) else graph.fired


def _text(node: ENode, place: int) -> str:
    """Return a node as egglog text. It comes from a file: nothing but a node can come out. Raises NotProved."""
    op, attributes, children = node
    plain = all(isinstance(a, int) or (isinstance(a, str) and WORD.fullmatch(a)) for a in attributes)
    if op not in KINDS or not plain or not all(0 <= child < place for child in children):
        raise NotProved(f"it is not a solution: node {place}")
    return node_text((op, tuple(attributes), tuple(children)), "$r")


def _equal(graph: Any, problem: Problem, recorded: StoredSolution) -> bool:
    named = {name: t.rows[0].output for name, t in graph.freeze().functions.items() if t.is_let_binding}
    pairs = zip(recorded.roots, problem.roots, strict=True)
    return all(named[f"$r{mine}"] == named[f"$t{root}"] for mine, root in pairs)


def _classes(graph: EGraph, recorded: StoredSolution) -> list[tuple[int, int]]:
    """Return the class of each recorded node, and its place among the spellings of the class."""
    of = {node: (cls, n) for cls, spelled in enumerate(graph.classes) for n, node in enumerate(spelled)}
    out: list[tuple[int, int]] = []
    for op, attributes, children in recorded.nodes:
        out.append(of[sorted_operands((op, tuple(attributes), tuple(out[child][0] for child in children)))])
    return out


# ---- Rules on tensor as egglog text.
#
# A rule is an equation between values. Its pattern becomes a query and its template a union. Guards that are true of
# every spelling of a value (axes, extents, dtypes, known when loaded) hold inside the e-graph. A guard about one kernel
# does not, so its rule is refused with the location of the guard. Such a rule still works where rules are run as
# rewrites.


MOST_OPERANDS = 3
# {what a guard asks: what that gives, its text in the e-graph, and what it takes}
FACTS: dict[str, list[str]] = toml_table(__package__, "facts")


def form(head: str, *operands: str) -> str:
    """Return an expression of egglog."""
    return f"({' '.join((head, *operands))})"


@dataclass(eq=False)
class Kind:
    """Dtype of values of a rule. Those that the pattern says are one have the same root.

    text: what gives it; fixed: whether it is the dtype itself; folded: the dtype whose elements a reduction adds up to
    one of this (16-bit floats give f32); sum: the other way round.
    """

    text: str = ""
    fixed: bool = False
    floating: bool = False
    folded: Kind | None = None
    sum: Kind | None = None
    same: Kind | None = None

    def root(self) -> Kind:
        return self if self.same is None else self.same.root()

    def unite(self, other: Kind) -> None:
        """Note that two dtypes are one: the root is the one that is known best."""
        kinds = self.root(), other.root()
        root, rest = sorted(kinds, key=lambda kind: (not kind.fixed, not kind.text, kind.folded is None))
        if root is not rest:
            rest.same = root
            root.floating |= rest.floating

    def spelled(self) -> str:
        """Return a text that gives the dtype."""
        root = self.root()
        assert root.text or root.folded, "a number in a template meets nothing that the pattern binds"
        return form("opmath", root.folded.spelled()) if root.folded and not root.text else root.text


Typed = tuple[str, Kind]  # the text of a value, and its dtype


@immutable
class RuleTexts:
    """Rules as egglog text, by name. constants: the numbers that they compare extents with."""

    text: dict[str, str] = field(default_factory=dict)
    constants: set[int] = field(default_factory=set)
    refused: list[DplcError] = field(default_factory=list)


def export(rules: Iterable[Rule]) -> RuleTexts:
    """Return the algebra among some rules, exported."""
    made = RuleTexts()
    for rule in rules:
        if rule.level == "tensor" and not mentions_mat(rule):
            writer = RuleText(rule)
            try:
                made.text[rule.name] = writer.write()
                made.constants.update(writer.constants)
            except DplcError as error:
                made.refused.append(error)
    return made


class RuleText:
    """Writes one rule: its pattern, its `require` guards, then its template by the same methods.

    What a rule prefers is left to extraction, which knows what it costs. Operands of a function have one dtype by the
    laws of the IR, so a pattern says that some values share theirs. Where a template brings values together that the
    pattern does not, the e-graph is queried; so no rule changes a dtype there.
    """

    def __init__(self, rule: Rule):
        self.rule = rule
        self.building = False  # the template, not the pattern
        self.query: list[str] = []
        self.roles: dict[str, str] = {}  # variable -> term, axes, fn, map, cond
        self.values: dict[str, Typed] = {}  # of the pattern, and those that the template has defined
        self.constants: set[int] = set()
        self.functions: dict[str, Sequence[Kind]] = {}  # function variable -> dtypes of its operands and result
        self.fresh = (f"w{number}" for number in count(1))
        self.lets: dict[str, Any] = {p.name: p.default for p in rule.parameters}  # names and their text
        # What the template needs: variables for dtypes of its numbers, dtypes that are one, floating ones.
        self.asked: dict[str, str] = {}
        self.needed: list[str] = []
        self.floats: list[str] = []

    def write(self) -> str:
        name = self.rule.name
        root, kind = self.variable([*self.rule.left][-1], self.rule)
        self.guards()
        self.building = True
        actions = []
        for defined, term in self.rule.right.items():
            text, result = self.value(term, kind)
            actions.append(form("let", f"t_{defined}", text))
            self.values[defined] = f"t_{defined}", result
        actions[-1] = form("union", root, text)
        self.agree(result, kind)
        asked = (form("=", variable, dtype) for dtype, variable in self.asked.items())
        query = dict.fromkeys((*self.query, *asked, *self.needed, *self.floats))
        return f'(rule {form(*query)} {form(*actions)} :ruleset rule_{name} :name "{name}")'

    def refuse(self, what: str, node: Located) -> DplcError:
        return DplcError(
            f"rule `{self.rule.name}`: {what} has no form in an e-graph",
            node,
            "the rule still works where it is run as a rewrite",
        )

    def bind(self, name: str, role: str, node: Located) -> str:
        """Return a variable of the pattern, or one that it has bound."""
        bound = self.roles.get(name) if self.building else self.roles.setdefault(name, role)
        if bound != role:
            raise self.refuse(f"`{name}`, which is {bound or 'nothing'} in the pattern and {role} here,", node)
        return f"v_{name}"

    # ---- dtypes: what the pattern implies, and what the template needs beyond that
    def agree(self, kind: Kind, *others: Kind) -> None:
        """Note that dtypes are one: the pattern says so, the template needs it."""
        for other in others:
            if not self.building:
                kind.unite(other)
            elif kind.root() is not other.root() and kind.spelled() != other.spelled():
                self.needed.append(form("=", kind.spelled(), other.spelled()))

    def floating(self, kind: Kind) -> None:
        """Note a function of floating point of this dtype."""
        root = kind.root()
        if not self.building:
            root.floating = True
        elif not root.floating:
            self.floats.append(form("floating", root.spelled()))

    # ---- values of the pattern and of the template
    def value(self, term: ValueTerm, wanted: Kind) -> Typed:
        """Return a value and its dtype. wanted: the dtype of a number in the template."""
        match term:
            case NumberTerm():
                return self.number(term.value, wanted)
            case NameTerm(name="_"):
                return next(self.fresh), Kind()
            case NameTerm(name=name):
                return self.variable(name, term)
            case MappedTerm():
                text, kind = self.value(term.x, wanted)
                return form("Map", self.bind(term.map, "map", term), text), kind
            case ReduceTerm():
                return self.reduction("Red", self.named_function(term.fn, term), term, (term.x,), wanted)
            case FoldTerm(part=part, args=args) if part in PARTS:
                return self.reduction(f"F{len(args)}", f'"{part}"', term, args, wanted)
            case CaseTerm(cond=NameOf(text=condition)):
                text, (kind, other) = self.operands((term.a, term.b), wanted)
                self.agree(kind, other)
                return form("Case", self.bind(condition, "cond", term), text), kind
            case FunctionTerm(fn=fn, operands=operands):
                if term.runs or not 0 < len(operands) <= MOST_OPERANDS:
                    raise self.refuse("a list of operands", term)
                text, kinds = self.operands(operands, wanted)
                kind = self.result(fn, kinds) if term.known else self.result_of_variable(term, kinds)
                return form(f"E{len(operands)}", self.named_function(fn, term), text), kind
        what = getattr(term.node, "fn", "this")
        raise self.refuse(f"`{what}` in {'a template' if self.building else 'a pattern'}", term)

    def number(self, value: float, wanted: Kind) -> Typed:
        text = f'"{number_text(value)}"'
        if not self.building:
            dtype = next(self.fresh)
            return form("Num", text, dtype), Kind(dtype)
        if isinstance(value, float) and not value.is_integer():
            self.floating(wanted)
        dtype = wanted.spelled()
        if dtype.startswith("("):  # a template cannot query it: a variable of the query holds it
            dtype = self.asked.setdefault(dtype, f"d{len(self.asked)}")
        return form("Num", text, dtype), wanted

    def variable(self, name: str, node: Located) -> Typed:
        """Return the value of a variable. The first time the query asks for its definition in the pattern."""
        if name not in self.values:
            text, kind = self.values[name] = self.bind(name, "term", node), Kind(f"(dtype v_{name})")
            if not self.building and name in self.rule.left:
                made, result = self.value(self.rule.left[name], kind)
                self.query.append(form("=", text, made))
                kind.unite(result)
        return self.values[name]

    def named_function(self, name: str, node: Located) -> str:
        return f'"{name}"' if name in FUNCTIONS else self.bind(name, "fn", node)

    def reduction(
        self, head: str, fn: str, term: ReduceTerm | FoldTerm, args: Sequence[ValueTerm], wanted: Kind
    ) -> Typed:
        """Return a reduction, or one part of a reduction over a tuple; `k` is one axis, `ks..` all of them."""
        axis, *others = term.over
        if others or getattr(axis, "extent", None) is not None:
            raise self.refuse("a reduction over a list of axes, or one of this extent,", term)
        if isinstance(axis, AxisTerm) and not self.building:
            self.query.append(form("single", f"v_{axis.name}"))
        over = self.bind(axis.name, "axes", term)
        text, kinds = self.operands(args, wanted)
        self.agree(*kinds)
        root = kinds[0].root()
        root.sum = root.sum or Kind(floating=root.floating, folded=root)
        return form(head, fn, over, text), root.sum

    def operands(self, items: Sequence[ValueTerm], wanted: Kind) -> tuple[str, list[Kind]]:
        """Return the operands of a function. The numbers of a template take the dtype of what they meet."""
        built: dict[int, Typed] = {}
        last = self.building
        for place in sorted(range(len(items)), key=lambda place: last and isinstance(items[place], NumberTerm)):
            built[place] = _, wanted = self.value(items[place], wanted)
        texts, kinds = zip(*(built[place] for place in sorted(built)), strict=True)
        return " ".join(texts), list(kinds)

    def result_of_variable(self, term: FunctionTerm, kinds: list[Kind]) -> Kind:
        """Return the dtype of the result of a variable for a function."""
        if not self.building:
            self.functions[term.fn] = *kinds, Kind()
        *expected, kind = self.functions.get(term.fn, (Kind(),))
        if len(expected) != len(kinds):
            raise self.refuse(f"`{term.fn}` of other operands than in the pattern", term)
        for have, want in zip(kinds, expected, strict=True):
            self.agree(have, want)
        return kind

    def result(self, fn: str, kinds: list[Kind]) -> Kind:
        """Return the dtype of a function's result."""
        kind, truth = FUNCTIONS[fn].kind, Kind('"b8"', fixed=True)
        if kind == CAST:
            name = HELD.get(fn, fn)
            return Kind(f'"{name}"', fixed=True, floating=name in COMPUTING_FLOATS)
        if kind == LOGICAL:
            for each in kinds:
                self.agree(each, truth)
            return truth
        first, *others = kinds[1:] if kind == SELECT else kinds
        self.agree(first, *others)
        if kind == FLOAT:
            self.floating(first)
        return truth if kind == COMPARE else first

    # ---- guards: masks of axes, extents, dtypes, and whether a value is known when loaded
    def guards(self) -> None:
        for clause in self.rule.clauses:
            match clause:
                case LetClause(name=name, value=value):
                    gives, *_ = FACTS.get(getattr(value, "fn", ""), ("",))
                    if gives in ("term", "map"):
                        self.query.append(form("=", f"v_{name}", self.text(value, gives)))
                        self.roles[name] = gives
                    else:
                        self.lets[name] = self.named(value)
                case Guard(kind="require"):
                    self.condition(clause.condition)
                case PickClause():
                    raise self.refuse("`pick`", clause)

    def condition(self, node: Syntax) -> None:
        """Query for what a condition says."""
        match bare(self.named(node)):
            case Operation(op="!=", a=NameOf(text=name), b=NameOf(text="none")) if name in self.roles:
                pass  # the fact answers, or the rule does not match
            case Operation(op="and", a=a, b=b):
                self.condition(a)
                self.condition(b)
            case Operation(op="or"):
                raise self.refuse("`or`", node)
            case other:
                self.query.append(self.text(other, "condition"))

    def text(self, node: Syntax, sort: str) -> str:
        """Return the text of what a guard says or asks; a set of axes is a mask."""
        node = self.named(node)
        asked, operands = "", tuple[Syntax, ...]()
        match node:
            case NameOf(text=name) if self.roles.get(name) == sort:
                return f"v_{name}"
            case NameOf(text=name) if sort == "dtype" and name in DTYPES:
                return f'"{name}"'
            case Number(value=int(value)) if sort == "number":
                self.constants.add(value)
                return str(value)
            case Group(bracket="[" | "{", items=(_, *_)) if sort == "axes":
                return reduce(partial(form, "|"), [self.text(item, sort) for item in node.items])
            case Apply():
                asked, operands = node.fn, node.items
            case Prefix(op="not", a=Apply(fn=fn, items=operands)):
                asked = f"not {fn}"
            case Operation():
                asked, operands = node.op, (node.a, node.b)
        gives, text, *takes = FACTS.get(asked, ("", ""))
        if gives == sort:
            return text.format(*map(self.text, operands, takes))
        for compared in ("number", "dtype", "axes") if asked in NEGATED else ():
            if compared == "number" or asked in ("==", "!="):
                with suppress(DplcError):
                    return form("=" if asked == "==" else asked, *(self.text(item, compared) for item in operands))
        raise self.unknown(node)

    def named(self, node: Syntax) -> Any:
        """Return what the name of a `let` or of a parameter is bound to; other syntax without its own `let`s."""
        if isinstance(node, LetExpression):
            return without_lets(node)
        return self.lets.get(node.text, node) if isinstance(node, NameOf) else node

    def unknown(self, node: Syntax) -> DplcError:
        """Return the refusal of a guard: a property of a kernel says so."""
        facts = facts_of("tensor")
        for fn in (call.fn for call in calls(node) if call.fn in facts):
            of_kernel = facts[fn].ask.__module__.endswith("facts.fusion")
            return self.refuse(f"`{fn}` is a property of one kernel: it" if of_kernel else f"the fact `{fn}`", node)
        return self.refuse("this guard", node)
