"""A compiled torch rule: match, clauses, template."""

from __future__ import annotations

import functools
from typing import Any

from ....ir import compose
from ....ir.diagnostic import DplcError
from ....ir.expr import Axis, Undecided
from ....ir.program import TensorType
from ....ir.text.sizes import told_open
from ...language import core as s
from ...language.asking import UNDECIDED, holds
from ...language.questions import Closure
from ...language.rule import Rule
from ..seen import what_it_saw
from .compiler import Numbers, TemplateCompiler
from .firing import TorchSite
from .pattern import StatementPattern
from .template import Bracket, IndexedRead, Part, StackedRead
from .values import READERS, Lowers, NotApplicable, OpCall, Producer, View, views


class Definition:
    """`name = value` or `y[bs.., j] = value`. bracket: of the result."""

    def __init__(self, name: str, bracket: Bracket | None, part: Part):
        self.name, self.bracket, self.part = name, bracket, part


class TorchStatement:
    """`ab: f32[..] = Cat([a, b], dim=d)`: the template makes another torch op. types: None for the result itself."""

    def __init__(
        self, name: str, op: str, fields: dict[str | int, Closure], types: tuple[tuple[Closure, Closure], ...]
    ):
        self.name, self.op, self.fields, self.types = name, op, fields, types


class ListSlices:
    """`Stacked(j, xs[os..]) = y[os..]`: y, the result, is the tensors of a list along its axis j."""

    def __init__(self, part: StackedRead, bracket: Bracket):
        self.part, self.bracket = part, bracket


class TorchRule:
    """Fires on an op or says why not. later: its clauses and its template are compiled when an op first asks for them,
    as those of most rules never are; what is wrong with them is told then, not now."""

    def __init__(self, rule: Rule, later: bool = False):
        self.rule = rule
        self.patterns = tuple(map(StatementPattern, rule.match))
        self.root = self.patterns[-1]
        if not later:
            _ = self.clauses, self.statements

    @functools.cached_property
    def clauses(self) -> tuple[tuple[s.LetClause | s.Guard, Closure], ...]:
        """The `let`s and guards, each with what computes it."""
        return tuple(map(self._clause, self.rule.clauses))

    @functools.cached_property
    def statements(self) -> tuple[Definition | TorchStatement, ...]:
        """The template."""
        lines = [x for x in self.rule.rewrite if not s.says_slices(x)]
        names = frozenset(n for n in map(_target_name, lines) if n != self.root.dst)
        compiler = TemplateCompiler(names)
        made = tuple(self._statement(x, compiler) for x in lines)
        if not made or made[-1].name != self.root.dst:
            what = f"the template of `{self.rule.name}` must end by defining `{self.root.dst}`"
            raise DplcError(what, self.rule.span)
        return made

    @functools.cached_property
    def slices(self) -> tuple[ListSlices, ...]:
        """What the template says of lists behind the result."""
        compiler, found = TemplateCompiler(frozenset()), []
        for line in filter(s.says_slices, self.rule.rewrite):
            part, whole = compiler.part(line.target), compiler.part(line.value)  # type: ignore[attr-defined]
            if not (isinstance(part, StackedRead) and isinstance(whole, IndexedRead) and whole.name == self.root.dst):
                what = f"write `Stacked(axis, list[axes..]) = {self.root.dst}[axes..]`"
                raise DplcError(what, line.span)
            found.append(ListSlices(part, whole.bracket))
        return tuple(found)

    @property
    def key(self) -> str:
        """The op to look it up by: the one that the pattern starts from."""
        root = self.root
        source = next((p for p in self.patterns[:-1] if root.op in READERS and p.dst in root.reads), root)
        return source.op

    def _clause(self, clause: Any) -> tuple[s.LetClause | s.Guard, Closure]:
        numbers = Numbers()
        if isinstance(clause, s.LetClause):
            return clause, numbers.compile(clause.value)
        if isinstance(clause, s.Guard):
            return clause, numbers.compile(clause.condition)
        raise DplcError("a torch rule has `let`, `where` and `prefer` only", clause.span)

    def _statement(self, node: s.Syntax, compiler: TemplateCompiler) -> Definition | TorchStatement:
        if not isinstance(node, s.Assign):
            raise DplcError("a template on torch holds definitions `name = value`", node.span)
        name, value = _target_name(node), node.value
        if isinstance(value, s.Apply) and value.fn[0].isupper() and (node.types or value.fn not in s.OPERATIONS):
            numbers = Numbers()
            fields: dict[str | int, Closure] = {}
            for n, item in enumerate(value.items):
                named = isinstance(item, s.Keyword)
                fields[item.name if named else n] = numbers.compile(item.value if named else item)  # type: ignore[attr-defined]
            types = tuple((numbers.compile(s.NameOf(t.span, t.dtype)), numbers.compile_all(t.dims)) for t in node.types)
            return TorchStatement(name, value.fn, fields, types)
        bracket = compiler.bracket(node.target.items) if isinstance(node.target, s.Subscript) else None
        if (bracket is None) == (name == self.root.dst):
            raise DplcError(f"`{name}`: the result has brackets, the values before it have none", node.span)
        return Definition(name, bracket, compiler.part(value))

    # ---- firing
    def fire(self, lowering: Lowers, call: OpCall) -> View:
        """The value of an op. Raises NotApplicable with the reason."""
        try:
            return self._fired(lowering, call)
        except Undecided as undecided:
            raise NotApplicable(f"undecided: {told_open(undecided.condition)}", undecided=undecided.condition) from None

    def _fired(self, lowering: Lowers, call: OpCall) -> View:
        statement = call.statement
        firing = TorchSite(lowering, View(statement.dst, statement.types[0].dtype, statement.types[0].shape, None, ()))
        firing.call = call
        self._match(lowering, call, firing)
        env = firing.env
        env[self.root.dst] = firing.result
        for clause, closure in self.clauses:
            if isinstance(clause, s.LetClause):
                env[clause.name] = closure(env)
            elif not holds(closure, env):
                undecided = env.pop(UNDECIDED, None)
                saw = functools.partial(what_it_saw, clause, dict(env), Numbers(), undecided)
                raise NotApplicable(clause.reason, saw)
        view = self._build(lowering, call, firing)
        lowering.matched = env
        return view

    def _match(self, lowering: Lowers, call: OpCall, firing: TorchSite) -> None:
        """The root first, then the producers that its fields name."""
        if len(self.patterns) > 1 and self.root.op != call.statement.op:
            raise NotApplicable(f"it reads {self.root.op}, not {call.statement.op}")
        for pattern in reversed(self.patterns):
            if pattern is not self.root:
                statement = lowering.made_by(firing.env.get(pattern.dst))
                if statement is None:
                    raise NotApplicable(f"`{pattern.dst}` is no op's result")
                call = lowering.call(statement)
            if pattern.op != call.statement.op:
                raise NotApplicable(f"expected {pattern.op}, found {call.statement.op}")
            if (reason := pattern.typed(call.statement.types, firing.env)) is not None:
                raise NotApplicable(reason)
            if (reason := pattern.match(call.overload, call.given, firing.env)) is not None:
                raise NotApplicable(reason)

    def _build(self, lowering: Lowers, call: OpCall, firing: TorchSite) -> View:
        *before, last = self.statements
        result = firing.result
        if isinstance(last, Definition):
            assert last.bracket is not None
            firing.place_result(last.bracket.entries(firing, len(result.shape)))
            if any(e.__class__ is not Axis for e, n in zip(firing.result_entries, result.shape, strict=True) if n != 1):
                raise DplcError(f"`{last.name}[..]`: the brackets of the result hold axes only", self.rule.span)
        for statement in self.statements:
            if isinstance(statement, TorchStatement):
                made = firing.env[statement.name] = self._torch(lowering, call, firing, statement)
                if statement is last:
                    assert isinstance(made, View)
                    return made
            else:
                statement.part.scan(firing)
        for known in self.slices:
            known.part.scan(firing)
        firing.name_axes()
        for statement in before:
            if isinstance(statement, Definition):
                value = firing.locals[statement.name] = statement.part.build(firing)
                lowering.hint(value, statement.name)
        assert isinstance(last, Definition)
        value, of_its_dtype = last.part.build(firing), any(view.dtype == result.dtype for view in views(call.given))
        term = compose.held(value, result.dtype) if of_its_dtype else compose.cast(value, result.dtype)
        lowering.hint(term, result.name)
        for known in self.slices:
            known.part.note_slices(firing, term, known.bracket)
        return View(result.name, result.dtype, result.shape, term, self._dims(firing))

    def _dims(self, firing: TorchSite) -> tuple[Axis | None, ...]:
        pairs = zip(firing.result_entries, firing.result.shape, strict=True)
        return tuple(None if n == 1 else firing.named(entry) for entry, n in pairs)

    def _torch(self, lowering: Lowers, call: OpCall, firing: TorchSite, statement: TorchStatement) -> View | Producer:
        """Lower an op that the template made, or name one that gives several tensors."""
        types = tuple(TensorType(dtype(firing.env).name, tuple(shape(firing.env))) for dtype, shape in statement.types)
        fields = {name: closure(firing.env) for name, closure in statement.fields.items()}
        if len(types) > 1:
            return lowering.several(statement.op, fields, types)
        return lowering.made(call, statement.name, statement.op, fields, types or call.statement.types)


def _target_name(node: s.Syntax) -> str:
    target = node.target if isinstance(node, s.Assign) else None
    base = target.base if isinstance(target, s.Subscript) else target
    if not isinstance(base, s.NameOf):
        raise DplcError("a definition reads `name = value` or `name[axes] = value`", node.span)
    return base.text
