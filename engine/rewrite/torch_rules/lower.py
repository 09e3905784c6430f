"""Torch IR to Tensor IR: forward, op by op, every decision a rule `on torch`.

    lowered = lower(graph, load())
    print_graph(lowered.graph)

What no rule accounts for is an error at the user's place in the text, with every candidate's reason.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from ....ir.compose import Folded, const, heard_folds
from ....ir.diagnostic import DplcError, InternalError, Span
from ....ir.expr import Axis, Var
from ....ir.functions import DTYPES
from ....ir.names import unused
from ....ir.program import TensorType
from ....ir.schemas import PARTS, aten_name, resolve
from ....ir.sizes import sizes_in
from ....ir.tensor import Elementwise, Input, Output, TensorGraph, Term, operands
from ....ir.text.tensor import default_axes
from ....ir.torch import TorchGraph, TorchOp
from ...language.check import load_facts
from ...language.evaluate import CONSTANTS, RESERVED
from ...language.pipeline import pipelines
from ...language.policy import policy_of
from ...language.rule import Rule, RuleSet, built_in_files
from .arguments import arguments_of
from .bounds import Bound
from .lowered import Fired, Lowered, Refused
from .naming import complete_names
from .resymbolise import resymbolise
from .rule import TorchRule
from .slices import PLAIN, as_it_was_made, read_as_slices
from .unsupported import Refusals, unsupported
from .values import READERS, NotApplicable, OpCall, Producer, View, views

AXIS_LETTERS = "ijklmnopqrstuvw"
DEPTH = 64  # of ops that templates make from ops that templates made


class Captured(Protocol):
    """What lowering reads of a captured program (`engine/capture/capture.py`)."""

    @property
    def graph(self) -> TorchGraph: ...
    @property
    def kinds(self) -> Mapping[str, str]: ...
    @property
    def tensors(self) -> Mapping[str, Any]: ...
    @property
    def spans(self) -> Mapping[str, Span | str]: ...


def compile_rules(rules: RuleSet) -> dict[str, tuple[TorchRule, ...]]:
    """The torch rules by the op their pattern starts from, in the order of the pipeline; compiled once per set, our own
    (which our tests judge) no further than their patterns until an op asks for one."""
    found = _COMPILED.get(rules.digest)
    if found is None:
        load_facts()
        found, ours = {}, {id(file.source) for file in built_in_files()}
        for step in pipelines(rules).get("torch", ()):
            for rule in (TorchRule(one, later=id(one.span.source) in ours) for one in step.rules):
                found[rule.key] = (*found.get(rule.key, ()), rule)
        _COMPILED[rules.digest] = found
    return found


_COMPILED: dict[str, dict[str, tuple[TorchRule, ...]]] = {}


def lower(captured: Captured, rules: RuleSet, trace: bool = False) -> Lowered:
    """The Tensor IR of a captured program (constants folded). trace: keep the firings.

    Raises DplcError for an op, or an argument of one, that no rule accounts for.
    """
    known = {
        param.name: _numbers(captured.tensors[param.name])
        for param in captured.graph.ins
        if captured.kinds[param.name] == "constant"
    }
    return lower_graph(captured.graph, rules, known, captured.spans, trace)


def _numbers(tensor: Any) -> Any:
    """A constant's elements; 16-bit floats as f32, since numpy has no bf16."""
    tensor = tensor.detach().cpu()
    return (tensor.float() if tensor.is_floating_point() and tensor.itemsize == 2 else tensor).numpy()


def lower_graph(
    graph: TorchGraph,
    rules: RuleSet,
    known: Mapping[str, Any] | None = None,
    spans: Mapping[str, Span | str] | None = None,
    trace: bool = False,
) -> Lowered:
    """The same for a program alone. known: arrays of inputs whose value is known. spans: where the user wrote an op."""
    lowering = TorchLowering(graph, compile_rules(rules), spans or {}, trace)
    lowering.make_formulas(known or {}, policy_of(rules).few_values)
    lowering.run()
    told, bounds = (tuple(lowering.fired), tuple(lowering.refused)), tuple(dict.fromkeys(lowering.bounds))
    return Lowered(lowering.finish(), *told, lowering.origins, bounds)


class TorchLowering:
    """The state of one pass over a program."""

    def __init__(
        self,
        graph: TorchGraph,
        rules: dict[str, tuple[TorchRule, ...]],
        spans: Mapping[str, Span | str],
        trace: bool = False,
    ):
        self.graph, self.rules, self.spans, self.trace = graph, rules, spans, trace
        self.inputs = [View(p.name, p.dtype, p.shape, None, ()) for p in graph.ins]
        self.env: dict[str, View] = {view.name: view for view in self.inputs}
        self.producers = {statement.dst: statement for statement in graph.body}
        self.taken = {*self.env, *self.producers, *(out.name for out in graph.outs), *RESERVED, *CONSTANTS, *_OPERATORS}
        self.taken |= sizes_in((graph.ins, graph.body)).keys()
        self.hints: dict[Term, str] = {}
        self.age: dict[Axis, int] = {}
        self.fired: list[Fired] = []
        self.matched: Mapping[str, Any] = {}
        self.heard: list[Folded] = []  # what canonical forms took away since the last firing
        self.refused: list[Refused] = []
        self.origins: dict[Term, TorchOp] = {}
        self.bounds: list[Bound] = []
        self.origin: TorchOp | None = None  # the user's op that is being lowered
        self.depth = 0
        self.references: dict[View, Var] = {}  # what templates call values
        self.slices: dict[Term, Term] = {}  # values that are computed as part of another one, and where it has them
        self.wholes: set[Term] = set()
        # two results of one op (values and places of a sort) share what both need
        self.made_before: dict[Any, View] = {}
        self.several_before: dict[Any, Producer] = {}  # ops of templates that give several tensors

    # ---- axes and names
    def fresh(self, extent: int) -> Axis:
        """A new axis: i, j, ... w, i1, ..., whatever no value is called."""
        number = len(self.age)
        while True:
            round_, letter = divmod(number, len(AXIS_LETTERS))
            name = AXIS_LETTERS[letter] + (str(round_) if round_ else "")
            if name not in self.taken:
                break
            number += 1
        self.taken.add(name)
        axis = Axis(name, extent)
        self.age[axis] = len(self.age)
        return axis

    def make_formulas(self, known: Mapping[str, Any], few: int) -> None:
        """Inputs of known value that are a formula are no inputs, nor are those without elements."""
        for view in tuple(self.inputs):
            if 0 in view.shape:  # no element of it is ever read: any number stands for them
                nowhere = (None,) * len(view.shape)
                self.env[view.name] = View(view.name, view.dtype, view.shape, const(0, view.dtype), nowhere)
                self.inputs.remove(view)
                continue
            array = known.get(view.name)
            formula = None if array is None else resymbolise(view.name, view.dtype, array, self, few)
            if formula is not None:
                self.env[view.name] = formula
                self.inputs.remove(view)

    def own(self, view: View) -> None:
        """Name the axes of an input that is not read plainly."""
        view.own(tuple(None if n == 1 else self.fresh(n) for n in view.shape))

    def hint(self, value: Any, name: str) -> None:
        """The name a term would like to be printed under; the first one wins."""
        if isinstance(value, Term):
            self.hints.setdefault(value, name)

    def bound(self, x: Any, low: int, end: int) -> None:
        """Note that the values of x are places of low..end-1."""
        assert self.origin is not None
        if isinstance(x, Term):
            found = Bound(x, low, end, aten_name(self.origin.op), self._place(self.origin))
            if found.knowable:
                self.bounds.append(found)

    def slice_of(self, part: Term, whole: Term, read: Term) -> None:
        """Note that a value is computed with a whole list, which has it where `read` does."""
        self.wholes.add(whole)
        self.slices |= dict(as_it_was_made(part, read)) | self.slices

    # ---- ops
    def run(self) -> None:
        """Lower every op that something reads as a tensor."""
        with heard_folds() as self.heard:
            for statement in self.graph.body:
                self.lower_statement(statement)

    def lower_statement(self, statement: TorchOp) -> None:
        """Lower an op, if something reads it as a tensor."""
        if statement.dst in self.wanted and statement.dst not in self.env and statement.types[0].dtype not in PARTS:
            view = self.env[statement.dst] = self.lower(self.call(statement))
            if view.term is not None:
                self._note_origin(view.term, statement)

    def _name(self, statement: TorchOp) -> View:
        """Complex numbers: no term, but what their parts are read from, each where it is asked for."""
        kind = statement.types[0]
        view = self.env[statement.dst] = View(statement.dst, kind.dtype, kind.shape, None, ())
        self.producers[statement.dst] = statement
        return view

    def _note_origin(self, term: Term, op: TorchOp) -> None:
        """Everything new below a value came from the op that made it."""
        waiting = [term]
        while waiting:
            new = waiting.pop()
            if new not in self.origins and not isinstance(new, Input):
                self.origins[new] = op
                waiting.extend(operands(new))

    @functools.cached_property
    def wanted(self) -> set[str]:
        """The statements whose value is read, by anything but Getitem: those are read through it."""
        wanted = {out.name for out in self.graph.outs}
        for statement in self.graph.body:
            if statement.op != "Getitem":
                wanted.update(_read(statement.args))
        return wanted

    def call(self, statement: TorchOp, origin: TorchOp | None = None) -> OpCall:
        """An op with its fields looked up."""
        origin = origin or statement
        overload = resolve(statement.op, statement.args)
        if overload is None:
            raise self.unsupported(origin, statement, ())
        return OpCall(statement, overload, {name: self._value(value) for name, value in statement.args}, origin)

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
        return self._name(made) if made.types[0].dtype in PARTS else Producer(made)

    def made_by(self, value: Any) -> TorchOp | None:
        """The user's op whose result a value is."""
        if isinstance(value, Producer):
            return value.statement
        known = isinstance(value, View) and self.env.get(value.name) is value
        return self.producers.get(value.name) if known else None

    def lower(self, call: OpCall) -> View:
        """The value of an op by the first rule that fires."""
        statement = call.statement
        self.origin = call.origin
        start = self._starting_op(call)
        rules, refusals = self.rules.get(start, ()), list[tuple[Rule, NotApplicable]]()
        if start != statement.op:
            rules += self.rules.get(statement.op, ())
        for place, rule in enumerate(rules):
            mark = len(self.heard)
            try:
                view = rule.fire(self, call)
            except NotApplicable as refusal:
                refusals.append((rule.rule, refusal))
                continue
            if self.trace:
                given = tuple(v.term for v in views(call.given) if v.term)
                heard, origin = tuple(self.heard[mark:]), call.origin.dst
                self.fired.append(Fired(rule.rule, statement, view, given, self.matched, heard, origin))
                del self.heard[mark:]
                self._note_refusals(statement, refusals, rules[place:])
            return view
        raise self.unsupported(call.origin, statement, refusals)

    def _note_refusals(
        self, statement: TorchOp, refusals: Iterable[tuple[Rule, NotApplicable]], rest: tuple[TorchRule, ...]
    ) -> None:
        """The rules that did not take an op. rest: the rule that did, and those that were not asked."""
        self.refused += [Refused(rule, statement, refusal) for rule, refusal in refusals]
        before = NotApplicable(f"`{rest[0].rule.name}` took it before")
        self.refused += [Refused(later.rule, statement, before) for later in rest[1:]]

    def _starting_op(self, call: OpCall) -> str:
        """The op that a pattern for this call starts from: for an element of a list, a part of complex numbers, what
        made these."""
        source = self.made_by(call.given.get("self")) if call.statement.op in READERS else None
        return call.statement.op if source is None else source.op

    def made(
        self, call: OpCall, name: str, op: str, fields: dict[str | int, Any], types: tuple[TensorType, ...]
    ) -> View:
        """Lower an op that a template made: its tensors get names, so that it is a statement like any other."""
        if self.depth >= DEPTH:
            raise DplcError(f"torch rules do not end: `{op}` is made again and again", self._place(call.origin))
        args = self._arguments(op, fields)
        statement = TorchOp(call.statement.dst if types is call.statement.types else name, op, args, types)
        key = op, repr(args), types
        known = self.made_before.get(key)
        if known is None and types[0].dtype in PARTS:
            known = self.made_before[key] = self._name(TorchOp(f"%{len(self.producers)}_", op, args, types))
        if known is not None and known.dtype in PARTS:
            return known
        if known is not None:
            again = View(statement.dst, known.dtype, known.shape, known.term, known.dims)
            self.references[again] = self._reference(known)  # what is made of it is made once, too
            return again
        self.depth += 1
        view = self.made_before[key] = self.lower(self.call(statement, call.origin))
        self.depth -= 1
        return view

    def several(self, op: str, fields: dict[str | int, Any], types: tuple[TensorType, ...]) -> Producer:
        """An op of a template that gives several tensors: each is lowered where `Getitem` reads it."""
        args = self._arguments(op, fields)
        statement = TorchOp(f"%{len(self.producers)}_", op, args, types)
        made = self.several_before.setdefault((op, repr(args), types), Producer(statement))
        self.producers[made.statement.dst] = made.statement
        return made

    def _arguments(self, op: str, fields: dict[str | int, Any]) -> tuple[tuple[str, Any], ...]:
        """The fields that a template gives to an op, by their names."""
        return arguments_of(op, {key: self._reference(value) for key, value in fields.items()})

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

    def unsupported(self, origin: TorchOp, statement: TorchOp, refusals: Refusals) -> DplcError:
        """The error for an op that no rule takes: for an element of a list, about what made these."""
        source = statement
        while source.op in READERS and isinstance(read := dict(source.args)["self"], Var):
            made = self.made_by(self._value(read))
            if made is None:
                break
            source = made
        if source is not statement and source.op not in self.rules:
            refusals = ()  # of who reads it: no rule at all makes it
        found = self.spans.get(origin.dst) or self.spans.get(source.dst)  # the parts of a result are read at no line
        return unsupported(source, origin, refusals, found)

    def _place(self, origin: TorchOp) -> Span | None:
        return place if isinstance(place := self.spans.get(origin.dst), Span) else None

    # ---- the result
    def finish(self) -> TensorGraph:
        """The graph: outputs are computed values, each stored once."""
        outs: list[Output] = []
        stored: set[Term] = set()
        used = {view.name for view in self.inputs}
        for param, view, term in zip(self.graph.outs, *self._results(), strict=True):
            while term in stored or term.__class__ in PLAIN:
                term = Elementwise("copy", (term,))
            stored.add(term)
            dims = (a or self.fresh(n) for a, n in zip(view.dims, view.shape, strict=True) if n != 1)
            outs.append(Output(unused(param.name, used, between="_", first=2), tuple(dims), term))
            used.add(outs[-1].name)
        for view in self.inputs:
            if view.term is None:  # it has no reader
                own = iter(default_axes(view.name, tuple(n for n in view.shape if n != 1)))
                view.own(tuple(None if n == 1 else next(own) for n in view.shape))
        ins = tuple(view.term for view in self.inputs if isinstance(view.term, Input))
        fixed = {a.name for a in self.age} | {x.name for x in ins} | RESERVED | CONSTANTS.keys() | _OPERATORS
        return TensorGraph(self.graph.name, ins, tuple(outs), complete_names(tuple(outs), self.hints, fixed))

    def _results(self) -> tuple[list[View], Sequence[Term]]:
        """What the program gives, and the values of that."""
        found, terms = [self.env[param.name] for param in self.graph.outs], []
        for view in found:
            if view.term is None:
                self.own(view)
            if view.term is None:
                raise InternalError(f"`{view.name}` has no value")
            terms.append(view.term)
        return found, read_as_slices(terms, self.slices, frozenset(self.wholes)) if self.slices else terms


_OPERATORS = frozenset(("and", "or", "not", "in", "if", "else", "for", "load", "mat", *DTYPES))


def _read(value: Any) -> Iterable[str]:
    for item in value if value.__class__ is tuple else ():
        yield from _read(item)
    if value.__class__ is Var:
        yield value.name
