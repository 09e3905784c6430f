"""Torch IR to Tensor IR: forward, op by op, every decision a rule `on torch`.

    lowered = lower(graph, load())
    print_graph(lowered.graph)

An op that no rule accounts for is an error at its location in the user's text, with every candidate's reason.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property, lru_cache, partial
from itertools import chain, count, filterfalse
from typing import Any

import numpy as np

from ....ir import compose
from ....ir.compose import Folded, collected_folds, const, rebuilt, remap
from ....ir.diagnostic import DplcError, Span, did_you_mean, no_such
from ....ir.dtypes import DTYPES, FLOATS, SMALL_FLOATS
from ....ir.expr import COMPARISONS, Axis, Order, Undecided, Var, add, total
from ....ir.facts.index import operate
from ....ir.functions import category, promote
from ....ir.interp.torch import operator
from ....ir.names import unused
from ....ir.node import contains, immutable, nodes
from ....ir.program import Param, TensorType
from ....ir.ranges import where_decided
from ....ir.schemas import (
    DTYPES as SCHEMA_DTYPES,
    LOOP,
    PARTS,
    PROMOTED,
    WIDE_SCALARS,
    aten_name,
    draws,
    names,
    resolve,
)
from ....ir.sizes import sizes_in
from ....ir.tensor import (
    Case,
    Const,
    Elementwise,
    Fold,
    Index,
    Input,
    Mat,
    Named,
    OperatorCall,
    Output,
    Reduce,
    Remap,
    TensorGraph,
    Term,
    axes,
    dtype,
    from_below,
    operands,
    postorder,
)
from ....ir.text.read_statements import CONSTANTS
from ....ir.text.sizes import print_condition
from ....ir.text.tensor import default_axes
from ....ir.text.torch import bind
from ....ir.torch import TorchGraph, TorchOp
from ...language.check import load_facts
from ...language.core import (
    OPERATIONS,
    Apply,
    Guard,
    Keyword,
    LetClause,
    NameOf,
    NameTerm,
    PickClause,
    ReadTerm,
    StackedTerm,
    Subscript,
    TypeOf,
    line_name,
    says_slices,
    term_of,
)
from ...language.evaluate import RESERVED, Closure, holds
from ...language.pipeline import pipelines
from ...language.rule import Rule, RuleSet, built_in_files, overridden, policy_with
from ..trace import RewriteStep, what_it_saw
from .pattern import (
    Bound,
    Bracket,
    NotApplicable,
    Numbers,
    OpCall,
    Part,
    Producer,
    StatementPattern,
    TemplateCompiler,
    TorchSite,
    View,
    views,
)

# A compiled torch rule: match, clauses, template.

# Ops that read a value which is not a term itself: one of several results, a part of complex numbers.
READERS = ("Getitem", "Real", "Imag", "ViewAsReal")


class TorchRule:
    """Rule that fires on an op or says why not.

    Its clauses and its template are compiled when an op first needs them, which never happens for most rules. Their
    errors are raised then.
    """

    def __init__(self, rule: Rule):
        self.rule = rule
        self.patterns = tuple(map(StatementPattern, rule.match))
        self.root = self.patterns[-1]

    @cached_property
    def clauses(self) -> list[tuple[LetClause | Guard, Closure]]:
        """The `let`s and guards, each with what computes it."""
        numbers, found = Numbers(), []
        for clause in self.rule.clauses:
            if isinstance(clause, PickClause):
                raise DplcError("a torch rule has `let`, `require` and `prefer` only", clause)
            computed = clause.value if isinstance(clause, LetClause) else clause.condition
            found.append((clause, numbers.compile(computed)))
        return found

    @cached_property
    def template(self) -> tuple[list[Part], Bracket | None, list[Part]]:
        """The lines `name = value` or `y[bs.., j] = value`, the bracket of a result that has a value, and the slices.

        Slices are the lines `Stacked(j, xs[os..]) = y[os..]`.
        """
        lines = [line for line in self.rule.rewrite if not says_slices(line)]
        compiler, notes = TemplateCompiler(frozenset(map(line_name, lines)) - {self.root.dst}), list[Part]()
        made = [self._statement(line, compiler) for line in lines]
        if not lines or line_name(lines[-1]) != self.root.dst:
            raise DplcError(f"the template of `{self.rule.name}` must end by defining `{self.root.dst}`", self.rule)
        for line in filter(says_slices, self.rule.rewrite):
            match term_of(line.target, torch=True), term_of(line.value, torch=True):  # type: ignore[attr-defined]
                case (
                    StackedTerm(x=ReadTerm(x=NameTerm())) as listed,
                    ReadTerm(x=NameTerm(name=self.root.dst), places=places),
                ):
                    notes.append(compiler.slices(listed, compiler.bracket(places)))
                case _:
                    raise DplcError(f"write `Stacked(axis, list[axes..]) = {self.root.dst}[axes..]`", line)
        return [part for _, part in made], made[-1][0], notes

    @property
    def key(self) -> str:
        """The op to look it up by: the one that the pattern starts from."""
        root = self.root
        return next((p.op for p in self.patterns[:-1] if root.op in READERS and p.dst in root.reads), root.op)

    def _statement(self, node: Any, compiler: TemplateCompiler) -> tuple[Bracket | None, Part]:
        name, value = line_name(node), node.value
        if isinstance(value, Apply) and value.fn[0].isupper() and (node.types or value.fn not in OPERATIONS):
            return None, self._op(name, value, node.types, compiler.numbers)
        bracket = compiler.bracket(node.target.items) if isinstance(node.target, Subscript) else None
        if bracket is None and name == self.root.dst:
            raise DplcError(f"`{name}`: the result has brackets", node)
        part = compiler.of(term_of(value, torch=True))

        def local(firing: TorchSite) -> None:
            firing.own[name] = firing.entries(bracket or ())
            firing.locals[name] = cache(part(firing))

        return bracket, part if name == self.root.dst else local

    @staticmethod
    def _op(name: str, op: Apply, types: tuple[TypeOf, ...], numbers: Numbers) -> Part:
        """Compile `ab: f32[..] = Cat([a, b], dim=d)`: another op, or the name of one that gives several tensors.

        types: none for the result itself.
        """
        named = {item.name: numbers.compile(item.value) for item in op.items if isinstance(item, Keyword)}
        positional = numbers.compile_all(tuple(x for x in op.items if not isinstance(x, Keyword)))
        kinds = [(numbers.compile(NameOf(t.span, t.dtype)), numbers.compile_all(t.dims)) for t in types]

        def make(firing: TorchSite) -> None:
            env, call = firing.env, firing.call
            results = tuple(TensorType(kind(env).name, shape(env)) for kind, shape in kinds)
            given = {name: closure(env) for name, closure in named.items()}
            types = results or call.statement.types
            env[name] = firing.lowering.made(call, name, op.fn, positional(env), given, types)

        return make

    # ---- firing
    def fire(self, lowering: TorchLowering, call: OpCall) -> tuple[View, Mapping[str, Any]]:
        """Fire on an op, and return its value and what the names are bound to. Raises NotApplicable with the reason."""
        firing = TorchSite(lowering, call)
        try:
            self._match(call, firing)
            return self._build(firing), firing.env
        except Undecided as undecided:
            raise NotApplicable(
                f"undecided: {print_condition(undecided.condition)}", undecided=undecided.condition
            ) from None

    def _match(self, call: OpCall, firing: TorchSite) -> None:
        """Match the root first, then the producers that its fields name; compute the `let`s and decide the guards."""
        env, lowering = firing.env, firing.lowering
        if len(self.patterns) > 1 and self.root.op != call.statement.op:
            raise NotApplicable(f"it reads {self.root.op}, not {call.statement.op}")
        for pattern in reversed(self.patterns):
            if pattern is not self.root:
                statement = lowering.made_by(env.get(pattern.dst))
                if statement is None:
                    raise NotApplicable(f"`{pattern.dst}` is no op's result")
                call = lowering.call(statement)
            pattern.match(call, env)
        env[self.root.dst] = firing.result
        for clause, closure in self.clauses:
            if isinstance(clause, LetClause):
                env[clause.name] = closure(env)
            elif not holds(closure, env):
                raise NotApplicable(clause.reason, partial(what_it_saw, clause, env, Numbers()))

    def _build(self, firing: TorchSite) -> View:
        """Build the template."""
        result, hints, name = firing.result, firing.lowering.hints, self.root.dst
        parts, bracket, slices = self.template
        if bracket is not None:
            firing.result_entries = firing.align(bracket, result)
            for entry, n in zip(firing.result_entries, result.shape, strict=True):
                if entry in firing.slots:
                    firing.slots[entry].free = False  # torch gives the shape of the result: its extents are final
                elif n != 1:
                    raise DplcError(f"`{name}[..]`: the brackets of the result hold axes only", self.rule)
        *_, build = [part(firing) for part in parts]
        if bracket is None:
            return firing.env[name]  # type: ignore[no-any-return]
        notes = [note(firing) for note in slices]
        firing.name_axes()
        for local, value in firing.locals.items():
            hints.setdefault(value(), local)
        of_its_dtype = any(x.dtype == result.dtype for x in views(*firing.call.given.values()))
        result.term = (compose.held if of_its_dtype else compose.cast)(build(), result.dtype)
        hints.setdefault(result.term, result.name)
        for note in notes:
            note(result.term)
        return result


# The result of lowering a torch graph: the program, the firings and the refusals.


Refused = tuple[Rule, TorchOp, NotApplicable]  # a rule for an op that the rule did not take, and why


@immutable
class Lowered:
    """Lowered program: `graph`.

    firings (of an op, the term of its value), refusals: in order, empty unless requested. origins: the torch op that
    each term came from. bounds: the indices that are checked before the program runs. called: for each call of
    torch, why no rule lowers the op.
    """

    graph: TensorGraph
    firings: Sequence[RewriteStep]
    refusals: Sequence[Refused]
    origins: dict[Term, TorchOp]
    bounds: tuple[Bound, ...]
    called: tuple[Unsupported, ...] = ()


class Unsupported(DplcError):
    """No rule lowers an op."""


class RandomNumbers(Unsupported):
    """An op draws numbers."""


def random_numbers(name: str, fields: Container[str], place: Span | str | None) -> RandomNumbers:
    """Return the error for an op that draws numbers. place: as in the spans of a capture."""
    hint, what = "make random tensors outside and pass them in", f"torch op '{name}' draws random numbers"
    if "train" in fields or "training" in fields or "dropout_p" in fields:
        hint = "call `.eval()` on the module, or pass training=False"
        what = f"`{name}` in training mode draws random numbers"
    return RandomNumbers(what, *((None, hint, (f"in {place}",)) if isinstance(place, str) else (place, hint)))


PLAIN = (Input, Remap, Const, Index)  # read where they lie: no slice is cheaper


TOLD_TEXT = 200  # characters of a program that a message repeats


def _how_to_write(op: str, place: Span | None) -> str | None:
    """Return the command that begins a rule for an op; it includes the program if that is a line of text."""
    if op not in names() or op == "Getitem":
        return None
    name = aten_name(op)
    stem, text = name.strip("_"), place.source.text.strip() if place is not None else ""
    program = f" -c {shlex.quote(text)}" if text and "\n" not in text and len(text) < TOLD_TEXT else ""
    return f"begin its rule: dplc rules new {stem} --op {name}{program} -o {stem}.rw"


# What a value is called that no rule gave a name: by its function, by its class, and then as its function.
_CALLED: dict[type[Term], dict[str, str]] = {
    Reduce: {
        "add": "sum", "maximum": "top", "minimum": "least", "multiply": "product", "logical_and": "every",
        "logical_or": "some",
    },
    Elementwise: {
        "add": "added", "subtract": "difference", "multiply": "product", "divide": "ratio", "maximum": "larger",
        "minimum": "smaller", "negative": "negated", "where": "chosen", "copy": "kept",
    },
}  # fmt: skip
_OTHERWISE = {Reduce: "folded", Fold: "folded", Mat: "stored", Case: "picked"}


def complete_names(outs: Sequence[Output], hints: Mapping[Term, str], taken: set[str]) -> tuple[Named, ...]:
    """Return a name for every line between inputs and outputs. taken: the names of these, and of axes."""
    stored, named, tried = dict.fromkeys(out.value for out in outs), [], dict[str, int]()
    for term in postorder(stored):
        kind, fn = term.__class__, getattr(term, "fn", "")
        if kind not in PLAIN and term not in stored:
            name = hints.get(term) or _CALLED.get(kind, {}).get(fn) or _OTHERWISE.get(kind, f"{fn}_")
            plain = (name,) if name.endswith("_") else ()  # a name that always has a number
            name = unused(name, taken, plain, first=1 if plain else 2, tried=tried)
            taken.add(name)
            named.append(Named(name, term))
    return tuple(named)


RuleTable = dict[str, tuple[TorchRule, ...]]  # by the op that their pattern starts from
AXIS_LETTERS = "ijklmnopqrstuvw"
DEPTH = 64  # of ops that templates make from ops that templates made
MOST_SETS = 8  # of rules, whose tables are kept


@lru_cache(MOST_SETS)
def compile_rules(rules: RuleSet) -> RuleTable:
    """Return the torch rules by the op that their pattern starts from, in the order of the pipeline.

    A rule is compiled once for all sets. Only built-in rules (which the tests check) are compiled no further than their
    patterns: the errors of others are raised now.
    """
    load_facts()
    found: RuleTable = defaultdict(tuple)
    ours = {id(file.source) for file in built_in_files()}
    for step in pipelines(rules).get("torch", ()):
        for rule in step.rules:
            made = rule.compiled("torch", partial(TorchRule, rule))
            found[made.key] += (made,)
            if id(rule.span.source) not in ours:
                _ = made.clauses, made.template
    return found


CALLS = ("none", "missing")  # which ops are calls of torch: none, or those that no rule lowers


def lower(captured: Any, rules: RuleSet, trace: bool = False, calls: str = CALLS[0]) -> Lowered:
    """Return the Tensor IR of a captured program (constants folded). trace: keep the firings. calls: one of CALLS.

    captured: a `Capture` of `engine/capture/capture.py`. Raises DplcError for an op, or an argument of one, that no
    rule accounts for.
    """
    if calls not in CALLS:
        raise no_such("call choice", calls, CALLS)
    known = {}
    for name, kind in captured.kinds.items():
        if kind == "constant" and not captured.tensors[name].is_meta:
            tensor = captured.tensors[name].detach().cpu()
            # numpy has no bf16: 16-bit floats are given as f32
            known[name] = (tensor.float() if tensor.is_floating_point() and tensor.itemsize == 2 else tensor).numpy()
    return lower_graph(captured.graph, rules, known, captured.spans, trace, calls)


def lower_graph(
    graph: TorchGraph,
    rules: RuleSet,
    known: Mapping[str, Any] | None = None,
    spans: Mapping[str, Span | str] | None = None,
    trace: bool = False,
    calls: str = CALLS[0],
) -> Lowered:
    """Lower a program without its capture.

    known: arrays of inputs whose value is known. spans: the location of each op in the user's text.
    """
    lowering = TorchLowering(graph, compile_rules(rules), spans or {}, trace, calls == "missing")
    lowering.make_formulas(known or {}, policy_with(overridden(rules.numbers)).few_values)
    return lowering.run()


class TorchLowering:
    """The state of one pass over a program."""

    def __init__(
        self,
        graph: TorchGraph,
        rules: RuleTable,
        spans: Mapping[str, Span | str],
        trace: bool = False,
        calls: bool = False,
    ):
        self.graph, self.rules, self.spans, self.trace = graph, rules, spans, trace
        self.inputs = [View(p.name, p.dtype, p.shape) for p in graph.ins]
        self.env: dict[str, View] = {view.name: view for view in self.inputs}
        self.producers = {statement.dst: statement for statement in graph.body}
        taken = {*self.env, *self.producers, *_RESERVED, *sizes_in(graph)}
        every = (f"{letter}{round_ or ''}" for round_ in count() for letter in AXIS_LETTERS)
        self.axis_names = filterfalse(taken.__contains__, every)
        self.hints: dict[Any, str] = {}  # the preferred names of terms in prints
        self.age: dict[Axis, int] = {}
        self.fired: list[RewriteStep] = []
        self.folded: list[Folded] = []  # what canonical forms took away since the last firing
        self.refused: list[Refused] = []
        self.origins: dict[Term, TorchOp] = {}
        self.bounds: list[Bound] = []
        self.depth = 0
        self.references: dict[View, Var] = {}  # what templates call values
        self.alike: dict[int, Any] = {}  # by the length of lists: what the fact `alike` knows of operands
        self.slices: dict[Term, Term] = {}  # values that are computed as part of another one, and where it has them
        # the statements whose value is read, by anything but Getitem: those are read through it
        read = tuple(statement.args for statement in graph.body if statement.op != "Getitem")
        self.wanted = {out.name for out in graph.outs} | {name.name for name in nodes(read, Var)}
        # two results of one op (values and indices of a sort) share what both need
        self.made_before: dict[Any, View | Producer] = {}
        self.calling = calls
        self.called: list[tuple[OperatorCall, Unsupported | None]] = []  # loops too, which have no reason
        self.results: dict[TorchOp, list[View]] = {}  # of calls and loops
        self.operands: dict[tuple[Term, Order, Any], str] = {}  # what calls read, by axes and torch's shape

    # ---- axes and names
    def fresh(self, extent: int) -> Axis:
        """Return a new axis: i, j, ... w, i1, ..., with a name that no value has."""
        axis = Axis(next(self.axis_names), extent)
        self.age[axis] = len(self.age)
        return axis

    def make_formulas(self, known: Mapping[str, Any], few: int) -> None:
        """Replace the inputs of known value that are a formula, and the inputs without elements, by values."""
        for view in self.inputs:
            if 0 in view.shape:  # no element of it is ever read: any number represents them
                view.term, view.dims = const(0, view.dtype), (None,) * len(view.shape)
            elif view.name in known:
                resymbolise(view, known[view.name], self.fresh, few)
        self.inputs = [view for view in self.inputs if view.term is None]

    def own(self, view: View) -> Term:
        """Return the term of a value; the axes of an input that is not read plainly get names, if it has none yet."""
        return view.own(self.fresh, view.shape)

    def along(self, view: View) -> Order:
        """Return the axes along which a value is stored, those that it lacks too."""
        self.own(view)
        return tuple(a or self.fresh(n) for a, n in zip(view.dims, view.shape, strict=True) if n != 1)

    def bound(self, origin: TorchOp, x: Any, low: int, end: int) -> Any:
        """Return x; its values are indices from low to end-1, and torch raises an error of `origin` for any other."""
        elementwise = contains(x, Input) and not contains(x, Reduce, Fold)  # reductions would be calculated twice
        if elementwise and not _reads_floats(x):
            self.bounds.append(Bound(x, low, end, aten_name(origin.op), self._place(origin)))
        return x

    def slice_of(self, part: Term, whole: Term, read: Term) -> None:
        """Note that a value is computed with a whole list, which has it where `read` does."""
        self.slices[whole] = whole
        if isinstance(part, Remap):  # a list may rename the axes that it was computed along
            images = {axis: dict(part.map).get(axis, axis) for axis in axes(part.x)}
            names = {image: axis for axis, image in images.items() if image.__class__ is Axis}
            if len(names) < len(images):
                return
            part, read = part.x, remap(read, names)
        if not isinstance(part, PLAIN):
            self.slices.setdefault(part, read)

    # ---- ops
    def run(self) -> Lowered:
        """Lower every op that something reads as a tensor, and return the program."""
        with collected_folds() as self.folded:
            for statement in self.graph.body:
                self.lower_statement(statement)
        called, bounds = tuple(why for _, why in self.called if why), tuple(dict.fromkeys(self.bounds))
        return Lowered(self._graph(), self.fired, self.refused, self.origins, bounds, called)

    def lower_statement(self, statement: TorchOp) -> None:
        """Lower an op, if something reads it as a tensor. One that draws random numbers is a call in any case."""
        fields = dict(statement.args)
        if draws(statement.op, fields):
            why = random_numbers(aten_name(statement.op), fields, self.spans.get(statement.dst))
            if not self.calling:
                raise why
            self.add_call(statement, why)
        if statement.dst in self.wanted and statement.dst not in self.env and statement.types[0].dtype not in PARTS:
            view = self.env[statement.dst] = self.lowered(statement)
            waiting = [view.term]
            while waiting:  # everything new below the value comes from the op
                new = waiting.pop()
                if new is not None and new not in self.origins and not isinstance(new, Input):
                    self.origins[new] = statement
                    waiting.extend(operands(new))

    def lowered(self, statement: TorchOp) -> View:
        """Return the value of an op by rules, as a result of a loop, or by a call of torch if no rule lowers the op."""
        source = self.source(statement)
        if source.op == LOOP and source not in self.results:
            self.add_loop(source)
        try:
            return self.lower(self.call(statement))
        except Unsupported as problem:
            if not self.calling:
                raise
            self.add_call(source, problem)
        return self.lower(self.call(statement))

    def add_call(self, op: TorchOp, why: Unsupported) -> None:
        """Make an op a call of torch. Raises the reason why no rule lowers it if it cannot be called either."""
        try:
            operator(op.op, op.args)
            call = self.operator_call(op)
            if any(x.dtype in PARTS for x in op.types):
                raise DplcError("torch is not called for complex numbers")
        except DplcError as error:
            raise Unsupported(why.what, why, why.hint, (*why.notes, error.what)) from None
        self.called.append((call, why))
        self.inputs += (view for view in self.results[op] if 0 not in view.shape)

    def add_loop(self, op: TorchOp) -> None:
        """Make a loop a step of the program."""
        self.called.append((self.operator_call(op), None))
        self.inputs += self.results[op]

    def operator_call(self, op: TorchOp) -> OperatorCall:
        """Return the call of an op or a loop, and note its results."""
        given: dict[str, Param] = {}
        args = tuple((field, self.stored(value, given, op.dst)) for field, value in op.args)
        call = OperatorCall(TorchOp(op.dst, op.op, args, op.types), tuple(given.values()))
        self.results[op] = [View(x.name, x.dtype, x.shape) for x in call.results]
        return call

    def stored(self, value: Any, given: dict[str, Param], reader: str) -> Any:
        """Return a field of a call with the names under which its tensors are stored, and note these in `given`."""
        if value.__class__ is tuple:
            return tuple(self.stored(item, given, reader) for item in value)
        if value.__class__ is not Var or value.name in SCHEMA_DTYPES:
            return value
        view = self._value(value)
        if not isinstance(view, View) or view.dtype in PARTS or 0 in view.shape:
            raise DplcError("calls and loops read tensors that have elements, and no complex numbers")
        term, dims = self.own(view), self.along(view)
        name = term.name if isinstance(term, Input) and term.axes == dims else ""
        if not name or given.get(name, view).shape != view.shape:
            name = self.operands.setdefault((term, dims, view.shape), f"{reader}_in{len(given)}")
        given[name] = Param(name, view.dtype, view.shape)
        return Var(name)

    def source(self, statement: TorchOp) -> TorchOp:
        """Return the op of which a statement reads a part."""
        while statement.op in READERS and (made := self.made_by(self._value(dict(statement.args)["self"]))):
            statement = made
        return statement

    def call(self, statement: TorchOp, origin: TorchOp | None = None) -> OpCall:
        """Return an op with its fields looked up."""
        origin = origin or statement
        overload = resolve(statement.op, statement.args)
        if overload is None:
            raise self.unsupported(origin, statement, ())
        given = {name: self._value(value) for name, value in statement.args}
        return OpCall(statement, overload, given | self._converted(statement, given), origin)

    def _converted(self, statement: TorchOp, given: Mapping[str, Any]) -> dict[str, View]:
        """Return the fields without dimensions in the dtype of those with dimensions, if both have one category.

        Torch converts them first, so that 300 is 44 next to a tensor of u8. An op whose result has another dtype, such
        as the quotient of integers, computes in that dtype instead.
        """
        known = ((name, x) for name, x in given.items() if isinstance(x, View) and name in PROMOTED)
        tensors = [(name, x) for name, x in known if x.dtype in DTYPES]  # complex numbers are pairs of tensors
        dtypes = [x.dtype for _, x in tensors if x.shape]
        common = promote(*dtypes) if dtypes else None
        wide = common in SMALL_FLOATS and statement.op in WIDE_SCALARS
        if common is None or wide or statement.types[0].dtype not in (common, "b8"):
            return {}
        return {
            name: View(x.name, common, (), compose.cast(self.own(x), common))
            for name, x in tensors
            if not x.shape and x.dtype != common and category(x.dtype) == category(common)
        }

    def _value(self, value: Any) -> Any:
        if value.__class__ is tuple:
            return tuple(map(self._value, value))
        if value.__class__ is not Var:
            return value
        if value.name in self.env:
            return self.env[value.name]
        made = self.producers.get(value.name)
        if made is None:
            return value
        kind = made.types[0]
        if kind.dtype not in PARTS:
            return Producer(made)
        view = self.env[made.dst] = View(made.dst, kind.dtype, kind.shape)  # its parts are lowered at each read
        return view

    def made_by(self, value: Any) -> TorchOp | None:
        """Return the user's op whose result a value is."""
        if isinstance(value, Producer):
            return value.statement
        known = isinstance(value, View) and self.env.get(value.name) is value
        return self.producers.get(value.name) if known else None

    def lower(self, call: OpCall) -> View:
        """Return the value of an op by the first rule that fires."""
        statement = call.statement
        source = (statement.op in READERS and self.made_by(call.given.get("self"))) or statement
        if source in self.results and (source is statement or statement.op == "Getitem"):
            return self.results[source][call.given["index"] if source is not statement else 0]
        ops = dict.fromkeys((source.op, statement.op))
        rules, refusals = [rule for op in ops for rule in self.rules.get(op, ())], list[Refused]()
        for place, rule in enumerate(rules):
            mark = len(self.folded)
            try:
                view, bound = rule.fire(self, call)
            except NotApplicable as refusal:
                refusals.append((rule.rule, statement, refusal))
                continue
            if self.trace:
                given = tuple(v.term for v in views(*call.given.values()) if v.term)
                folded = tuple(self.folded[mark:])
                self.fired.append(RewriteStep(rule.rule, statement, view, bound, folded, given, call.origin.dst))
                del self.folded[mark:]
                before = NotApplicable(f"`{rule.rule.name}` took it before")
                self.refused += refusals + [(later.rule, statement, before) for later in rules[place + 1 :]]
            return view
        raise self.unsupported(call.origin, statement, refusals)

    def made(
        self,
        call: OpCall,
        name: str,
        op: str,
        positional: Sequence[Any],
        named: Mapping[str, Any],
        types: tuple[TensorType, ...],
    ) -> View | Producer:
        """Lower an op that a template made: its tensors get names, so that it is a statement like any other.

        Several results, and complex numbers, are lowered at each read.
        """
        if self.depth >= DEPTH:
            raise DplcError(f"torch rules do not end: `{op}` is made again and again", self._place(call.origin))
        if op not in names():
            raise DplcError(f"unknown torch op `{op}`", hint=did_you_mean(op, names()))
        given = bind(op, [*map(self._reference, positional)], {name: self._reference(x) for name, x in named.items()})
        if given is None:
            listed = ", ".join(map(str, (*range(len(positional)), *named)))
            raise DplcError(f"no overload of `{op}` takes the fields that a template gives it: {listed}")
        args = tuple(given.items())
        key = op, repr(args), types
        known = self.made_before.get(key)
        if len(types) > 1 or types[0].dtype in PARTS:
            if known is None:
                read = TorchOp(f"%{len(self.producers)}_", op, args, types)
                self.producers[read.dst] = read
                known = self.made_before[key] = self._value(Var(read.dst))
            return known
        statement = TorchOp(call.statement.dst if types is call.statement.types else name, op, args, types)
        if isinstance(known, View):
            again = replace(known, name=statement.dst)
            self.references[again] = self._reference(known)  # what is computed from it is computed once, too
            return again
        self.depth += 1
        view = self.made_before[key] = self.lower(self.call(statement, call.origin))
        self.depth -= 1
        return view

    def _reference(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(self._reference, value))
        if isinstance(value, Producer):
            return Var(value.statement.dst)
        if not isinstance(value, View):
            return value
        known = self.references.get(value)
        if known is None:
            known = self.references[value] = Var(f"%{len(self.env)}")
            self.env[known.name] = value
        return known

    def unsupported(self, origin: TorchOp, statement: TorchOp, refusals: Sequence[Refused]) -> DplcError:
        """Return the error for an op that no rule lowers; for an element of a list, it is about the op of the list.

        origin: the user's op that it is part of. Where a size left something open, it says for which part of the range
        a rule would take the op.
        """
        source = self.source(statement)
        if source is not statement and source.op not in self.rules:
            refusals = ()  # of who reads it: no rule at all makes it
        found = self.spans.get(origin.dst) or self.spans.get(source.dst)  # the parts of a result are read at no line
        name = aten_name(source.op) if source.op in names() else source.op
        notes = [f"it is part of `{aten_name(origin.op)}`"] if origin.op not in (source.op, "Getitem") else []
        notes += [f"{rule.location}: {rule.name}: {refusal.text}" for rule, _, refusal in refusals]
        notes += [f"in {found}"] if isinstance(found, str) else []
        place, what = found if isinstance(found, Span) else None, f"torch op '{name}' is not supported"
        narrower = where_decided(what, [refusal.undecided for _, _, refusal in refusals], place, notes)
        if narrower is not None:
            return narrower
        return Unsupported(what, place, _how_to_write(source.op, place), notes)

    def _place(self, origin: TorchOp) -> Span | None:
        return place if isinstance(place := self.spans.get(origin.dst), Span) else None

    # ---- the result
    def _graph(self) -> TensorGraph:
        """Return the graph: outputs are computed values, each stored once."""
        outs, stored = list[Output](), set[Term]()
        used = {view.name for view in self.inputs}
        used.update(self.operands.values())
        found = [self.env[param.name] for param in self.graph.outs]
        terms, now = [*(term for term, *_ in self.operands), *map(self.own, found)], self.slices
        for term in postorder(terms) if now else ():
            if term not in now:
                now[term] = rebuilt(term, now.__getitem__)
        read = [(name, dims) for (_, dims, _), name in self.operands.items()]
        given = ((unused(x.name, used, between="_", first=2), self.along(self.env[x.name])) for x in self.graph.outs)
        for (name, dims), term in zip(chain(read, given), terms, strict=True):
            term = now.get(term, term)
            while term in stored or term.__class__ in PLAIN:
                term = Elementwise("copy", (term,))
            stored.add(term)
            outs.append(Output(name, dims, term))
            used.add(name)
        for view in self.inputs:  # those without a reader
            own = iter(default_axes(view.name, tuple(n for n in view.shape if n != 1)))
            view.own(partial(next, own), view.shape)
        ins = tuple(view.term for view in self.inputs if isinstance(view.term, Input))
        taken = used | {axis.name for axis in self.age} | _RESERVED
        calls = tuple(call for call, _ in self.called)
        return TensorGraph(self.graph.name, ins, tuple(outs), complete_names(outs, self.hints, taken), calls)


@from_below
def _reads_floats(x: Any) -> bool:
    return dtype(x) in FLOATS or any(map(_reads_floats, operands(x)))


_RESERVED = RESERVED | CONSTANTS.keys() | {"and", "or", "not", "in", "if", "else", "for", "load", "mat"}


# Folded constants that are a formula: splats, affine ramps, triangles and steps become index arithmetic, not buffers.
#
# A transformer's whole attention mask (arange, cumsum, compare, and) folds to one tensor and comes back as `j <= i`.


Array = np.ndarray[Any, Any]
Over = Callable[[], list[Axis]]  # the axes of an array, which are named when a formula needs them
EXACT = 1 << 24  # integers that f32 holds exactly
LARGEST = 1 << 63  # what index arithmetic cannot reach


def resymbolise(view: View, array: Array, fresh: Callable[[int], Axis], few: int) -> None:
    """Make the value of a constant a formula over its axes, if a known formula describes it.

    few: the largest number of values that are selected one by one rather than stored.
    """
    varying = [d for d, n in enumerate(array.shape) if n > 1 and not np.all(_same(array, np.take(array, [0], axis=d)))]
    small = array[tuple(slice(None) if d in varying else 0 for d in range(array.ndim))]
    over = cache(lambda: list(map(fresh, small.shape)))
    if not small.ndim:
        value = small.item()
        found: Term | None = compose.const(value, view.dtype) if value == value else None  # not for nan
    elif view.dtype == "b8":
        found = _condition(small, over)
    else:
        found = _affine(small, view.dtype, over) or _two_values(small, view.dtype, over)
    view.term = found or _few(small, view.dtype, over, few)
    if view.term is not None:
        view.dims = tuple(map(dict(zip(varying, over(), strict=True)).get, range(array.ndim)))


def _same(a: Array, b: Any) -> Any:
    """Return whether elements are equal to the bit: zeros have signs; nan is equal to nothing."""
    return (a == b) & (np.signbit(a) == np.signbit(b)) if a.dtype.kind == "f" else a == b


def _affine(array: Array, dtype: str, over: Over) -> Term | None:
    """Return `origin + sum of step * axis`, computed in integers, or None."""
    if array.dtype.kind == "f" and not np.all((np.abs(array) < EXACT) & (array == np.round(array))):
        return None
    origin = int(array.flat[0])
    steps = [int(np.take(array, 1, axis=d).flat[0]) - origin for d in range(array.ndim)]
    if abs(origin) + sum(abs(step) * n for step, n in zip(steps, array.shape, strict=True)) >= LARGEST:
        return None
    ramp = sum(map(np.multiply, steps, np.ix_(*map(np.arange, array.shape))), np.int64(origin))
    if not np.array_equal(ramp, array):
        return None
    return compose.cast(compose.index(add(origin, total(over(), steps))), dtype)


def _condition(array: Array, over: Over) -> Term | None:
    """Return a step along one axis, or a triangle or diagonal over two."""
    edges: list[tuple[str, Any]] = []
    if array.ndim == 1:
        gap = np.arange(array.size)
        edges = [("<" if array[0] else ">=", np.argmax(array != array[0]))]
    elif array.ndim == 2:
        gap = -np.subtract.outer(*map(np.arange, array.shape))
        true, false = gap[array], gap[~array]
        # `<=` up to the largest gap that is true, and so on
        edges = [("<=", true.max()), (">", false.max()), ("==", true.flat[0]), ("!=", false.flat[0])]
    for op, edge in edges:
        if np.array_equal(COMPARISONS[op](gap, edge), array):
            *start, axis = over()
            return compose.index(operate(op, axis, total((*start, int(edge)))))
    return None


def _where(condition: Term, value: Any, otherwise: Term, dtype: str) -> Term:
    return compose.as_term(compose.elementwise("where", condition, compose.const(value.item(), dtype), otherwise))


def _few(array: Array, dtype: str, over: Over, few: int) -> Term | None:
    """Return a chain of selections for at most `few` values along one axis, or None."""
    if array.ndim != 1 or array.size > few:
        return None
    chain: Term = compose.const(array[-1].item(), dtype)
    for n in reversed(range(array.size - 1)):
        chain = _where(compose.index(operate("<", over()[0], n + 1)), array[n], chain, dtype)
    return chain


def _two_values(array: Array, dtype: str, over: Over) -> Term | None:
    """Return `where(condition, a, b)` for an array that holds two values, or None."""
    low, high = array.min(), array.max()
    if not np.all(_same(array, low) | _same(array, high)):
        return None
    condition = _condition(_same(array, high), over)
    return None if condition is None else _where(condition, high, compose.const(low.item(), dtype), dtype)
