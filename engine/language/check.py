"""Static checks of rules: at load for users' files, in the tests for ours. Nothing in a rule is executed.

Errors stop a file from loading, warnings do not.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import itertools
import pkgutil
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import Any

from ...codegen.target import devices, load_device
from ...ir import schemas
from ...ir.diagnostic import DplcError, closest, did_you_mean, raise_all
from ...ir.functions import FUNCTIONS
from ...ir.names import sort_word
from ...ir.text.programs import read_unit
from ...ir.text.read_statements import CLOSED, STATEMENT_CLASSES, VALUE_CLASSES, owners, read_block
from ...ir.text.syntax import children, walk, words_in
from ...ir.tile import AXIS_ROLES
from .core import (
    DECREASES,
    ON_TENSOR,
    OPERATIONS,
    Apply,
    Assign,
    AxisItem,
    CaptureStatement,
    Chosen,
    DropStatement,
    EachBlock,
    FactOf,
    Group,
    Guard,
    InsideBlock,
    Keyword,
    LetClause,
    Member,
    NameOf,
    Nodes,
    Number,
    Operation,
    Parameter,
    PassStatement,
    PickClause,
    Run,
    RunStatement,
    Statement,
    Subscript,
    Substitution,
    Syntax,
    Text,
    Unit,
    UseRule,
    says_slices,
)
from .definitions import remembered
from .evaluate import FACTS, facts_of
from .pipeline import pipelines
from .rule import Rule, RuleSet, admits, built_in_files, constant, pass_name, shown
from .rule_scope import OTHER_FIELDS, VALUE, CheckedRule
from .sorts import (
    ANY,
    AXIS,
    CLOSED_SORTS,
    INDEX,
    KINDS_OF_WORDS,
    NAMED,
    PARAMETER_SORTS,
    TARGET,
    TERM,
    Advice,
    Finding,
    Inference,
    sort_of,
    word_taken,
)
from .spelling import expression
from .typed_slots import (
    calls,
    defined_names,
    every,
    is_variable,
    names,
    names_in,
    plain,
    reads,
    says,
    substituted,
    subsumes,
    targets,
)

Findings = Iterator[Finding]

_WORDS = {kind: (sort_word(sort), CLOSED[sort]) for sort, kind in CLOSED_SORTS.items()}
GIVE_A_NAME = "give it a name in the pattern"
# What matchers say where a pattern does not fit (engine/rewrite); all else is the reason of a guard.
PATTERN_MISSES = (
    "the pattern matches nowhere", "nearest miss", "expected `", "nothing here is like its first statement",
    "is not in its domain", "the rule says nothing about", "has no field", "two values for",
    " is not ", "a list of ",
)  # fmt: skip
# What an example may set in addition to the parameters of its rule: the inputs whose values are known before the
# program runs, and the device that is compiled for, as text.
SETTINGS = {"torch": (), "tensor": ("weights",)}


class Checks(CheckedRule):
    """The checks of one rule, each a method; a finding has the name of its check.

    Of several problems at one place, the first in this order is reported.
    """

    # ---- words: ops, fields, roles, transports, functions, dtypes, facts, local rules and their arguments
    def placed(self) -> Findings:
        """Report unknown ops and fields, and statements of the wrong form: found while the rule was laid out."""
        yield from self.complaints

    def closed_names(self) -> Findings:
        """Report a role, transport, function or dtype that does not exist.

        In a pattern such a name is a variable, unless it is a slip of a real one: it is like one, and read nowhere.
        """
        texts = [name.text for name, _ in self.occurrences]
        read = {*self.used, *self.given}
        for n, one in enumerate((*self.pattern, *self.expressions)):
            if not one.name or one.want.kind not in _WORDS:
                continue
            name, (word, options) = one.name, _WORDS[one.want.kind]
            if one.want.kind == "dtype" and self.rule.level == "torch":
                options = tuple(schemas.DTYPES)
            known = {*options, "_"}
            if one.want.kind == "fn" and self.dataflow:
                known |= self.facts.keys()
                options = (*options, *self.facts, *(OPERATIONS if self.rule.level == "torch" else ON_TENSOR))
            if name in known:
                continue
            near, bound = closest(name, options), n < len(self.pattern) or name in one.scope
            unread = texts.count(name) < 2 and name not in read
            slip = near and (unread or difflib.get_close_matches(name, options, 1, 0.85))
            if slip or not bound or not is_variable(name):
                yield Finding(
                    f"unknown {word} `{name}`",
                    one.node,
                    did_you_mean(name, options) or "`dplc rules facts` and `dplc rules nodes` list what there is",
                )

    def argument_counts(self) -> Findings:
        """Check that facts and scalar functions have as many arguments as they declare."""
        for call in calls(self.parts):
            given = len(call.items)
            if fact := self.facts.get(call.fn):
                least, most, notes = fact.least, fact.most, [f"{call.fn}({', '.join(fact.arguments)}) -> {fact.result}"]
            elif function := FUNCTIONS.get(call.fn):
                least, most, notes = function.arity, function.arity, []
            else:
                continue
            runs = any(isinstance(item, Run) for item in call.items)
            if not runs and not least <= given <= (given if most is None else most):
                count = f"{least} to {most} arguments" if least != most else _arguments(least)
                count = f"at least {_arguments(least)}" if most is None else count
                form = f"`{call.fn}({', '.join('abcdef'[:least])})`"
                yield Finding(
                    f"`{call.fn}` takes {count}, not {given}",
                    call,
                    "give it those of its form" if notes else f"write {form}",
                    notes,
                )

    def local_rules(self) -> Findings:
        """Check that `with rule r(args)` names an `@local` rule of this level and gives it its parameters."""
        for use in every(self.rule.rewrite, UseRule):
            rule = self.rules.rules.get(use.call.fn)
            if rule is None or "local" not in rule.attributes:
                yield Finding(
                    f"there is no @local rule `{use.call.fn}`",
                    use,
                    did_you_mean(use.call.fn, [other.name for other in self.rules.locals]),
                    [f"`{rule.name}` at {rule.location} is not marked @local"] if rule else (),
                )
            elif len(rule.parameters) != len(use.call.items):
                yield Finding(
                    f"`{rule.name}` takes {_arguments(len(rule.parameters))}, not {len(use.call.items)}",
                    use,
                    "give each parameter a value",
                    (f"it is declared at {rule.location}",),
                )

    def changed_fields(self) -> Findings:
        """Check that the captured statement has the fields of `s.. with depth=2`."""
        for node in every(self.rule.rewrite, RunStatement):
            captured = Inference(self.facts, self.scope).sort(node.run.base).node
            among = [owners()[captured]] if captured else [*owners().values()]
            options = {name for cls in among for name in cls.by_name}
            for change in node.changes:
                if isinstance(change, Keyword) and change.name not in options:
                    who = f"`{captured}` has no" if captured else "no statement has a"
                    yield Finding(f"{who} field `{change.name}`", change, did_you_mean(change.name, options))

    def parameter_sorts(self) -> Findings:
        """Check that the sort of a parameter (`N: int`) exists."""
        for parameter in self.rule.parameters:
            if parameter.sort is not None and parameter.sort not in PARAMETER_SORTS:
                yield Finding(
                    f"unknown sort `{parameter.sort}` of `{parameter.name}`",
                    parameter,
                    did_you_mean(parameter.sort, PARAMETER_SORTS) or "write one of the sorts, or leave it out",
                    (f"sorts are {', '.join(PARAMETER_SORTS)}",),
                )

    def torch_ignored(self) -> Findings:
        """Report `dtype=_` on torch if the rule never reads the result's dtype: it would ignore the requested dtype."""
        if self.rule.level != "torch" or says(self.parts, "dtype"):
            return
        for node in walk(self.rule.match):
            match node:
                case Keyword(name="dtype", value=NameOf(text="_")):
                    yield Advice(
                        "`dtype=_` ignores what the user asked for",
                        node,
                        "bind it and use it, or leave it out to match its default only",
                    )

    # ---- names: each is bound before it is read, and read after it is bound
    def words_of_the_language(self) -> Findings:
        """Report a function, dtype or role where a pattern or template gives a name: it would not be a variable."""
        for one in (*self.pattern, *(one for one in self.template if one.makes)):
            inner = one.node.base if isinstance(one.node, Run) else one.node
            if not isinstance(inner, NameOf) or one.want.kind in _WORDS:
                continue
            free = ("a constant", "the machine", *(("a dtype", "a role") if one.want == ANY else ()))
            if KINDS_OF_WORDS.get(inner.text, free[0]) not in free:
                yield word_taken(inner.text, inner)

    def unbound(self) -> Findings:
        """Report what is read where nothing has bound it.

        That is a name; `_`, which binds nothing; a call of what is neither a fact of this level, nor a scalar function,
        nor a variable; and a substitution `body[4 := e]`, which replaces neither a variable nor a sum of variables.
        """
        later = {one.name: one.span.line for one in self.binders if not isinstance(one, Parameter)}
        known = {*self.facts, *FUNCTIONS, *VALUE_CLASSES, "_"}
        for one in self.expressions:
            for call in calls(one.node):
                if call.fn not in known and call.fn not in one.scope:
                    levels = ", ".join(sorted(level for level, name in FACTS if name == call.fn))
                    notes = [f"`{call.fn}` is a fact on level {levels}"] if levels else ()
                    hint = did_you_mean(call.fn, (*self.facts, *FUNCTIONS, *self.rules.facts))
                    hint = hint or f"`dplc rules facts --level {self.rule.level}` lists the facts of this level"
                    yield Finding(f"unknown fact or function `{call.fn}`", call, hint, notes)
            for name in names(one.node):
                if name.text == "_":
                    yield Finding(
                        "`_` matches anything and binds nothing: there is no value to read", name, GIVE_A_NAME
                    )
                elif (
                    is_variable(name.text)
                    and name.text not in one.scope
                    and not (name is one.node and one.want.kind in _WORDS)  # closed_names reports it
                ):
                    notes = [f"it is bound later, in line {later[name.text]}"] if name.text in later else ()
                    hint = did_you_mean(name.text, {*one.scope, *self.rules.numbers} - {name.text})
                    if len(self._unread) == 1:
                        hint = f"did you mean `{self._unread[0].text}`, which the pattern binds and nothing reads?"
                    hint = hint or "name it in the pattern, or define it by `let`"
                    yield Finding(f"unbound variable `{name.text}`", name, hint, notes)
            for node in every(one.node, Substitution):
                if not names_in(node.left):
                    yield Finding(
                        "a substitution replaces a variable, or a sum that is computed from variables",
                        node.left,
                        "write `body[i := e]..`, or `body[i*F + r := e]..`",
                    )

    def root_defined(self) -> Findings:
        """Check on torch and tensor that the template defines the value that the pattern ends with."""
        rule = self.rule
        made = {name for line in every(rule.rewrite, Assign) for name in defined_names(line)}
        dropped = all(isinstance(node, PassStatement | DropStatement) for node in rule.rewrite)
        for root in targets(rule.match[-1])[:1] if self.dataflow else ():
            if isinstance(root, NameOf) and root.text not in made and not dropped:
                yield Finding(
                    f"the template does not define `{root.text}`, the root of the pattern",
                    root,
                    f"define it in the template: `{root.text} = ..`",
                )

    def unreached(self) -> Findings:
        """Report a line of a torch or tensor pattern that the root value is not computed from."""
        rule, ends = self.rule, defined_names(self.rule.match[-1])
        pattern = rule.match if self.dataflow else ()
        lines = {name: line for line in every(pattern, Assign) for name in defined_names(line)}
        needed = set(ends)
        for line in every(rule.rewrite, Assign):
            if isinstance(line.target, Group):  # `(a, b) = mat(v, w)` has two roots
                needed.update(defined_names(line))
        while more := {name for one in needed & lines.keys() for name in reads(lines[one].value)} - needed:
            needed |= more
        lost = [name for name, line in lines.items() if needed.isdisjoint(defined_names(line))]
        if lost:
            yield Finding(
                f"`{''.join(ends[:1])}` is not computed from `{lost[0]}`",
                lines[lost[0]],
                f"leave {', '.join(f'`{name}`' for name in lost)} out, or write another rule",
                (f"a pattern on {rule.level} is its last value, and those that it is computed from",),
            )

    @functools.cached_property
    def _unread(self) -> list[NameOf]:
        """The variables that the pattern binds once and nothing reads."""
        times = Counter(name.text for name, _ in self.occurrences)
        free = {*self.used, *self.given}
        free |= {node.base.text for node in every(self.rule.match, Member) if isinstance(node.base, NameOf)}
        free |= {one.name for one in self.pattern if one.what == OTHER_FIELDS}
        return [name for name, _ in self.occurrences if times[name.text] == 1 and name.text not in free]

    def unused(self) -> Findings:
        """Report a variable that the pattern binds once, a `let`, a `pick` or a parameter that nothing reads.

        A variable under another name in the template is reported there (`unbound`) alone, and statements that the
        template drops by `dropped_runs`.
        """
        times = {name.text for name, _ in self.occurrences}
        meant = any(one.what.startswith("unbound variable") for one in self.unbound())
        for name in () if meant else self._unread:
            place = next(one for one in self.pattern if name in names(one.node))
            axis = place.what in ("an axis", "`name` of `Axis`") or place.want == AXIS
            if place.want.kind == "stmt":
                continue
            yield Finding(
                f"`{name.text}` is bound but never used",
                name,
                "write it in the template: the axis is lost" if axis else "write `_` if any value will do",
            )
        words = {Parameter: "parameter `", LetClause: "`let ", PickClause: "`pick "}
        for binder in self.binders:
            if binder.name not in (DECREASES, *self.used) and not (
                isinstance(binder, Parameter) and binder.name in times
            ):
                yield Finding(f"{words[type(binder)]}{binder.name}` is never used", binder, "use it, or take it out")

    def bound_twice(self) -> Findings:
        """Report a parameter, `let` or `pick` under a name that is taken. A local rule may match its parameters."""
        allowed = self.given if self.local else ()
        taken = {name.text: name.span.line for name, _ in reversed(self.occurrences) if name.text not in allowed}
        for binder in self.binders:
            if binder.name in taken:
                yield Finding(
                    f"`{binder.name}` is bound twice",
                    binder,
                    "choose another name",
                    (f"first in line {taken[binder.name]}",),
                )
            taken[binder.name] = binder.span.line

    def dropped_runs(self) -> Findings:
        """Report matched statements that the template does not emit: their stores and sums would be lost."""
        kept = set[str]()  # put back, dropped on purpose, or read field by field
        for node in walk(self.rule.rewrite):
            match node:
                case RunStatement(run=part) | DropStatement(run=part) | EachBlock(domain=part):
                    kept.update(reads(part))
                case InsideBlock(name=name) | Member(base=NameOf(text=name)):
                    kept.add(name)
        for let, value in reversed(self.lets.items()):  # `let new = body[..]`, then `new..`
            if let in kept:
                kept.update(reads(value))
        for node in walk(self.rule.match):
            match node:
                case RunStatement(run=Run(base=NameOf(text=name))):
                    dots = ".."
                case CaptureStatement(name=name) | InsideBlock(name=name):
                    dots = ""
                case Statement(call=Apply(items=items), body=[_, *_]):
                    for item in items:
                        match item:
                            case AxisItem(name="_") | Run(base=NameOf(text="_")):
                                yield Finding("`_` takes an axis that the template cannot put back", item, GIVE_A_NAME)
                    continue
                case _:
                    continue
            if name == "_":
                yield Finding("`_..` takes statements that the template cannot put back", node, GIVE_A_NAME)
            elif name not in kept:
                yield Finding(
                    f"the template drops `{name}{dots}`, with the accumulators and stores in it",
                    node,
                    f"write `drop {name}..` in the template if that is meant",
                )

    def reset_fields(self) -> Findings:
        """Check that a rewritten statement gives every field that the pattern left open: it would be reset."""
        matched = dict(_ops(self.rule.match))
        for key, made in _ops(self.rule.rewrite):
            if key in matched:
                cls = STATEMENT_CLASSES[made.fn]
                said = {item.name for item in (*matched[key].items, *made.items) if isinstance(item, Keyword)}
                said.update(getattr(cls, "sticky", ()))
                lost = [f"`{field.name}`" for field in cls.fields if not field.required and field.name not in said]
                if lost:
                    yield Finding(
                        f"the template resets {', '.join(lost)} of `{cls.__name__}`, which the pattern left open",
                        made,
                        "name it in the pattern, or capture the statement and use `with`",
                    )

    # ---- the lines of values on torch and tensor
    def reads_itself(self) -> Findings:
        """Report a torch or tensor template that reads the value that it defines; facts about its shape are allowed.

        On torch, a tensor is read with brackets: they name its axes.
        """
        rule = self.rule
        ends = defined_names(rule.match[-1]) if self.dataflow else []
        sliced = {id(node) for line in filter(says_slices, rule.rewrite) for node in walk(line)}
        for one in self.template:
            if one.name and one.want in (TERM, INDEX) and one.name in ends and id(one.node) not in sliced:
                yield Finding(
                    f"the template reads `{one.name}`, which it defines", one.node, "read values that the pattern binds"
                )
            elif rule.level == "torch" and one.what == VALUE and self.bound.get(one.name) == TERM:
                yield Finding(
                    f"a tensor is read with brackets: `{one.name}[..]`", one.node, f"write its axes: `{one.name}[is..]`"
                )

    def made_in_order(self) -> Findings:
        """Check that a template of values defines each value before it reads it; on tensor its left sides are names."""
        lines = [line for line in self.rule.rewrite if isinstance(line, Assign) and self.dataflow]
        places = {name: n for n, line in enumerate(lines) for name in defined_names(line)}
        for n, line in enumerate(lines):
            for name in names(line.value):
                if n < places.get(name.text, -1) and name.text not in self.bound:
                    yield Finding(
                        f"`{name.text}` is read before it is made",
                        name,
                        "write it above",
                        (f"line {lines[places[name.text]].span.line} makes it",),
                    )
            if isinstance(line.target, Subscript) and self.rule.level == "tensor":
                yield Finding(
                    "on tensor a template has no axes on the left",
                    line.target,
                    "write the name alone: what it varies with follows from what it is made of",
                )

    def dangling_axes(self) -> Findings:
        """Report kk in `y[i, j] = Reduce(add, k, multiply(x[i, k], w[j, kk]))`: neither an axis of y nor reduced."""
        free = self.axes.keys() - self.bound.keys() - self.lets.keys()
        made: dict[str, list[NameOf]] = {}
        for line in every(self.rule.rewrite if self.rule.level == "torch" else (), Assign):
            unreduced = [name for name in self._open(line.value, made) if name.text in free]
            match line.target:
                case NameOf(text=name):
                    made[name] = unreduced
                case Subscript(items=items) | Group(items=items):
                    if all(isinstance(item.base if isinstance(item, Run) else item, NameOf) for item in items):
                        result, there = "".join(defined_names(line)[:1]), names_in(items)  # no fact makes some
                        for axis in {name.text: name for name in unreduced if name.text not in there}.values():
                            yield Finding(
                                f"axis `{axis.text}` is neither in the bracket of `{result}` nor reduced",
                                axis,
                                f"write `{result}[.., {axis.text}]`, or reduce: `Reduce(add, {axis.text}, ..)`",
                            )

    def _open(self, node: object, made: dict[str, list[NameOf]]) -> Iterator[NameOf]:
        """Yield the names of axes and others that a value reads, less the axes that it folds, and those in facts.

        made: the axes of the values that lines above define.
        """
        match node:
            case NameOf():
                yield from made.get(node.text, (node,))
            case Apply(fn="Reduce" | "Fold", items=(_, *over, value)):
                folded = {*reads(tuple(over))}
                yield from (name for name in self._open(value, made) if name.text not in folded)
            case Syntax() if getattr(node, "fn", "") not in self.facts:
                for part in children(node):
                    yield from self._open(part, made)
            case tuple():
                for part in node:
                    yield from self._open(part, made)

    # ---- meaning: sorts of expressions, reasons, defaults against domains, attributes
    def sort_clashes(self) -> Findings:
        """Report a value of one sort where another is required: in guards, domains, arguments of facts, and fields."""
        inference = Inference(self.facts, {})
        for node, want, what, makes, scope in self.expressions:
            word = want.kind in _WORDS and getattr(node, "text", "") not in scope  # closed_names
            if not (isinstance(node, NameOf) and (makes or word)):
                have = replace(inference, scope=scope).want(node, want, what)
                if want.kind == "axis" and not self.dataflow and have.kind not in ("axis", "any", "value"):
                    axis = "i" if have.many else getattr(node, "text", "i")
                    yield Finding(
                        f"{what} must be axes, and this is {have}",
                        node,
                        f"write its name, its extent and its role ({', '.join(AXIS_ROLES)}): `{axis}:EXTENT=ROLE`",
                    )
        for node, want, what, *_ in self.pattern:
            if isinstance(node, Number | Text):
                inference.want(node, want, what)
            elif want.kind in NAMED and not want.many and not isinstance(node, NameOf | Member):
                inference.report(f"{what} is a name in a pattern", node, "write a name, and compare it in a `require`")
        yield from inference.complaints

    def unique_reasons(self) -> Findings:
        """Check that no two guards of a rule share a reason: it is the key of a refusal."""
        first: dict[str, Guard] = {}
        for guard in self.rule.guards:
            if guard.reason in first:
                yield Finding(
                    f'two guards give the reason "{guard.reason}"',
                    guard,
                    "say what is different",
                    (f"the other is in line {first[guard.reason].span.line}",),
                )
            elif not guard.reason.strip():
                yield Finding("a guard without a reason", guard, 'else "what is wrong when it fails"')
            first.setdefault(guard.reason, guard)

    def defaults_in_domains(self) -> Findings:
        """Check that the default of a parameter is in its domain, if both are constant."""
        rule = self.rule
        for parameter in rule.parameters:
            if parameter.default is not None:
                default = constant(rule.level, parameter.default)
                if default is not None and not admits(rule, parameter.name, default):
                    yield Finding(
                        f"the default {default} of `{parameter.name}` is not in its domain",
                        parameter.default,
                        "choose one value of the domain",
                        (f"the domain is {shown(rule, parameter.name)}",),
                    )

    def alternatives(self) -> Findings:
        """Check that a `choose` has several alternatives, and that their costs differ."""
        for node in every(self.rule.match, Chosen):
            yield Finding("a pattern weighs nothing: `choose` is not for patterns", node, "write it in a `let`")
        for node in every(self.parts, Chosen):
            costs = node.costs
            if costs.variable not in names_in(costs.element):
                yield Finding(
                    f"every alternative is alike: what `{node.word}` compares does not read `{costs.variable}`",
                    costs.element,
                    f"say what a value `{costs.variable}` costs",
                )
            match costs.domain:
                case Group(items=()):
                    yield Finding("nothing to choose: there is no value", costs.domain, "write two values or more")
                case Group(items=(one,)) if not isinstance(one, Run):
                    yield Finding("nothing to choose: there is one value", costs.domain, "write the value itself")

    def attributes(self) -> Findings:
        """Report attributes that contradict each other."""
        rule = self.rule
        for a, others in (("local", ("canonical", "repeat")), ("canonical", ("repeat", "approx", "off"))):
            for b in others:
                if {a, b} <= rule.attributes:
                    yield Finding(f"@{a} and @{b} exclude each other", rule, "take one of them out")
        if self.dataflow:
            for a in sorted({"local", "canonical", "repeat"} & rule.attributes):
                yield Finding(
                    f"@{a} is for rules on statements: no rule on {rule.level} runs so",
                    rule,
                    f"take it out: a rule on {rule.level} fires wherever it matches, until no site is left",
                )
        if DECREASES in self.lets and "repeat" not in rule.attributes:
            yield Finding(
                "`decreases` is for a @repeat rule: any other fires once",
                self.lets[DECREASES],
                "add `@repeat`, or take the clause out",
            )
        if "canonical" in rule.attributes and rule.parameters:
            yield Finding(
                "a @canonical rule has no parameters: no setting reaches it",
                rule.parameters[0],
                "take out the attribute or the parameters",
            )

    # ---- examples
    def examples_enough(self) -> Findings:
        """Check that a rule has an example that fires, and one refusal per `require`.

        Rules that share a group of guards share its refusals. The examples of its users reach a local rule.
        """
        rule = self.rule
        if self.local:
            return
        if not any(isinstance(one.gives, tuple) for one in self.rules.examples_at(rule.span)):
            yield Advice("no example shows it fire", rule, 'add `example "title"` .. `gives` ..')
        for guard in rule.required:
            if not self.rules.shows_refusal(guard):
                yield Advice(
                    f'no example is refused because "{guard.reason}"',
                    guard,
                    f'add an example that `gives no "{guard.reason}"`; `dplc rules test --accept FILE` draws one',
                )

    def refusals_known(self) -> Findings:
        """Check that `gives no "text"` has the text of a reason of this rule, or of a pattern that does not match."""
        reasons = [guard.reason for guard in self.rule.guards]
        for example in self.rule.examples:
            text = example.gives
            expected = isinstance(text, tuple) or any(text in reason for reason in reasons)
            if not expected and not any(miss in text for miss in PATTERN_MISSES):
                yield Finding(
                    f'no guard gives the reason "{text}"',
                    example,
                    did_you_mean(text, reasons) or "add a guard with this reason",
                )

    def example_parameters(self) -> Findings:
        """Check that `example "title" (BK=16)` sets parameters of the rule, each once, to constant values."""
        settings = [*self.given, *SETTINGS.get(self.rule.level, ("target",))]
        for example in self.rule.examples:
            seen = set[str]()
            for argument in example.arguments:
                if argument.name not in settings:
                    yield Finding(
                        f"the example sets `{argument.name}`, which is not a parameter of the rule",
                        argument,
                        did_you_mean(argument.name, settings),
                    )
                elif argument.name in seen:
                    yield Finding(f"the example sets `{argument.name}` twice", argument, "take one of them out")
                seen.add(argument.name)

    def example_programs(self) -> Findings:
        """Check that the programs of examples are programs of their level; the result of a torch rule is on tensor."""
        level = self.rule.level if self.dataflow else None
        for example in self.rule.examples:
            for block, at in ((example.before, level), (example.gives, None if level == "torch" else level)):
                if not isinstance(block, tuple):
                    continue
                if self.dataflow and isinstance(block[0], PassStatement):
                    what = f'example "{example.title}" does not say yet what the rule gives'
                    yield Finding(what, block[0], "dplc rules test --accept FILE writes it")
                    continue
                try:
                    if any(isinstance(statement, Unit) for statement in block):
                        for unit in block:
                            read_unit(unit, at, None)
                    elif self.dataflow:
                        raise DplcError("the program of an example on torch or tensor is a `graph`", block[0])
                    else:
                        read_block(block)
                except DplcError as error:
                    what, place = f'example "{example.title}": {error.what}', error if error.span else example
                    yield Finding(what, place, error.hint or "write a program as `--ir` prints it", error.notes)

    # ---- rules that cannot fire: an earlier rule has the same pattern and no guard, or the template is the pattern
    def shadowed(self) -> Findings:
        """Report a rule with the pattern and the guards of an earlier rule, or with a more special pattern (a warning).

        The earlier rule is in the same pass. On torch and tensor, where every rule is tried at every value, the earlier
        rule may be in any file (a warning).
        """
        rule = self.rule
        before = itertools.takewhile(lambda one: one.name != rule.name, _alternatives(self.rules)[_tried_with(rule)])
        earlier = next((one for one in before if _leaves_nothing(one, rule)), None)
        if earlier is None:
            return
        what = f"can never fire: `{earlier.name}` fires wherever it matches"
        notes, place = (f"`{earlier.name}` is at {earlier.location}",), rule.match[-1]
        if earlier.file != rule.file:
            hint = f"say `pass {pass_name(rule.file)} before {pass_name(earlier.file)} ..` in a pipeline"
            yield Advice(what, place, hint, notes)
        elif _same(earlier, rule):
            yield Finding(what, rule, "put the special rule first", notes)
        else:
            yield Advice(what, place, "put the special rule first", notes)

    def changes_nothing(self) -> Findings:
        """Report a template that is the pattern: the rule fires nowhere."""
        rule = self.rule
        if plain(rule.match) == plain(rule.rewrite):
            yield Advice(
                "the template is the pattern: the rule changes nothing, so it never fires",
                rule.rewrite[0],
                "change what stands behind `rewrite`",
            )


def _arguments(n: int) -> str:
    return f"{n} argument{'' if n == 1 else 's'}"


def _ops(statements: Nodes) -> Iterator[tuple[tuple[str, ...], Apply]]:
    """Yield the calls of ops, each with its name and the name that it defines."""
    for node in every(statements, Assign | Statement):
        call = node.value if isinstance(node, Assign) else node.call
        if isinstance(call, Apply) and call.fn in STATEMENT_CLASSES:
            yield (call.fn, *defined_names(node)), call


def _leaves_nothing(general: Rule, special: Rule) -> bool:
    """Return whether a rule fires wherever another one would: its pattern and its guards are among the other's.

    On torch the patterns must be the same: ops with more operands and longer patterns go first there.
    """
    matched, length, asked = dict[str, Any](), len(general.match), {type(clause) for clause in general.clauses}
    part = special.match[-length:] if general.level == "tensor" else special.match[:length]
    if general.parameters or asked - {LetClause, Guard} or general.attributes & {"local", "off"}:
        return False
    if not subsumes(general.match, part, matched) or (general.level == "torch" and not _same(general, special)):
        return False
    words = {name: NameOf(general.span, one) if isinstance(one, str) else one for name, one in matched.items()}
    conditions = [plain(guard.condition) for guard in special.guards]
    return all(plain(substituted(guard.condition, words)) in conditions for guard in general.guards)


def _same(one: Rule, other: Rule) -> bool:
    """Return whether two patterns differ in names only."""
    return subsumes(one.match, other.match, {}) and subsumes(other.match, one.match, {})


def _tried_with(rule: Rule) -> Any:
    """Return what rules share that are tried at one place: on torch the op, on tensor nothing, else the pass."""
    root = next((call.fn for call in calls(rule.match[-1:])), "")
    place = {"torch": root, "tensor": ""}.get(rule.level, rule.file)
    return rule.level, place, rule.attributes & {"local", "canonical", "off"}


@functools.lru_cache(maxsize=4)
def _alternatives(rules: RuleSet) -> dict[Any, list[Rule]]:
    """Return the rules that are tried at one place, in the order of pipelines, or of files if these are not sound."""
    try:
        named = [rule.name for steps in pipelines(rules).values() for step in steps for rule in step.rules]
    except DplcError:
        named = []
    found = defaultdict[Any, list[Rule]](list)
    for name in dict.fromkeys((*named, *rules.rules)):
        found[_tried_with(rules.rules[name])].append(rules.rules[name])
    return found


@functools.cache
def load_facts() -> None:
    """Import the modules that register facts."""
    facts = importlib.import_module("..facts", __package__)
    for module in pkgutil.iter_modules(facts.__path__):
        importlib.import_module(f"{facts.__name__}.{module.name}")
    importlib.import_module("..rewrite.statements.site", __package__)


def check_rule(rule: Rule, rules: RuleSet) -> list[Finding]:
    """Return everything that is wrong with one rule, errors and warnings, in the order of the text."""
    findings: dict[object, Finding] = {}
    for finding in Checks(rule, rules).findings():  # one problem for each location: the first is the clearest
        findings.setdefault((finding.span, type(finding)), finding)
    return sorted(findings.values(), key=lambda finding: (finding.span.line, finding.span.column))


def check(rules: RuleSet, only: Collection[str] | None = None) -> list[Finding]:
    """Return everything that is wrong with the rules. only: names of source files; None means all of them.

    The members of a family share their text, hence their findings: each is reported once.
    """
    load_facts()
    findings: dict[object, Finding] = {}
    for each in for_every_device(rules):
        for declared in check_declarations(each, only):
            findings.setdefault(declared.span, declared)
        for rule in each.rules.values():
            for finding in check_rule(rule, each) if only is None or rule.span.source.name in only else ():
                what = finding.what.replace(f"`{rule.name}`", "") if rule.family else finding.what
                findings.setdefault((finding.check, finding.span, what), finding)
    return list(findings.values())


def for_every_device(rules: RuleSet) -> tuple[RuleSet, ...]:
    """Return the rules, and the rules with the declarations for each device that some declaration names."""
    return (rules, *(rules.on_device(name) for name in rules.devices if name != rules.device))


def rules_in_force(rules: RuleSet, files: Collection[str] = ()) -> Iterator[tuple[RuleSet, list[Rule]]]:
    """Yield each rule set of `for_every_device`, and its rules from the files with these names (without names, all).

    For a device, these are only the rules that are declared for it.
    """
    for each in for_every_device(rules):
        every = (rule for rule in each.rules.values() if each.device is None or rule.device is not None)
        yield each, [rule for rule in every if not files or rule.span.source.name in files]


def check_declarations(rules: RuleSet, only: Collection[str] | None) -> Iterator[Finding]:
    """Report what nothing reads, and facts whose value has another sort than they declare.

    A fact that stays the same is kept.
    """
    if only:
        yield from _unread(rules, only)
    for fact in rules.facts.values():
        if only is None or fact.span.source.name in only:
            yield from remembered("kind", fact.name, (fact,), functools.partial(_kind_of_fact, fact))


def _kind_of_fact(fact: FactOf) -> list[Finding]:
    scope = {"target": TARGET, **{p.name: sort_of(p.sort or "any") for p in fact.parameters}}
    inference = Inference(facts_of("tile"), scope)
    inference.want(fact.value, sort_of(fact.result), "what it gives")
    return [one.of(f"fact `{fact.name}`") for one in inference.complaints]


def _unread(rules: RuleSet, only: Collection[str]) -> Iterator[Finding]:
    """Report numbers and facts of users' files that nothing reads. Python reads some numbers of ours, in copies too."""
    values = [fact.value for file in rules.files for fact in file.facts]
    values += [number.declared.value for number in rules.numbers.values()]
    read = {*words_in(tuple(values)), *(number.name for file in built_in_files() for number in file.numbers)}
    read.update(word for file in rules.files for rule in file.rules for word in rule.words)
    for name, fact in rules.facts.items():
        if fact.span.source.name in only and name not in read:
            yield Finding(f"fact `{name}` is never asked", fact, "ask it in a rule, or take it out")
    for name, number in rules.numbers.items():
        declared = number.declared
        if declared.span.source.name in only and number.overrides is None and name not in read:
            hint = did_you_mean(name, rules.numbers.keys() - {name}) or "name it in a rule, or take it out"
            yield Finding(f"number `{name}` is never read", declared, hint)


def errors(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings that forbid loading."""
    return [finding for finding in findings if not isinstance(finding, Advice)]


def require(rules: RuleSet, only: Collection[str] | None = None) -> list[Finding]:
    """Check the rules, raise all errors at once, and return the warnings."""
    findings = check(rules, only)
    raise_all(errors(findings))
    return findings


class Lints(CheckedRule):
    """Checks of `dplc rules lint` and editors, not of compiles: the rule is legal, and a part has no effect."""

    def unused_local(self) -> Findings:
        """Report a @local rule that no rule uses."""
        rule = self.rule
        others = tuple(other.rewrite for other in self.rules.rules.values() if other is not rule)
        if self.local and rule.name not in (use.call.fn for use in every(others, UseRule)):
            yield Advice(f"no rule says `with rule {rule.name}(..)`", rule, "use it, or take it out")

    def endless_repeats(self) -> Findings:
        """Report a @repeat rule that does not say what every firing makes smaller."""
        if "repeat" in self.rule.attributes and DECREASES not in self.lets:
            yield Advice(
                "nothing says that its firings end",
                self.rule,
                "add `decreases N`: a number N that every firing makes smaller",
            )

    def idle_guards(self) -> Findings:
        """Report a guard that has the same value for all programs."""
        for condition in (guard.condition for guard in self.rule.guards):
            value = constant(self.rule.level, condition)
            if value is not None:
                holds = "always holds: no program violates it" if value else "never holds: the rule cannot fire"
                yield Advice(
                    f"`{expression(condition)}` {holds}",
                    condition,
                    "leave it out" if value else "ask something of the program",
                )

    def unknown_devices(self) -> Findings:
        """Report a text that is compared with `target.name` or `target.arch`, and that no device file has."""
        for node in every((self.rule.clauses, self.rule.parameters), Operation):
            for side, other in ((node.a, node.b), (node.b, node.a)) if node.op in ("==", "!=", "in", "not in") else ():
                match side:
                    case Member(base=NameOf(text="target"), field="name" | "arch" as field):
                        known = sorted({getattr(load_device(name), field) for name in devices()})
                        for text in every(other, Text):
                            if text.value not in known:
                                yield Advice(
                                    f'no device has the {field} "{text.value}": the comparison is never equal',
                                    text,
                                    did_you_mean(text.value, known),
                                )


def lint_rule(rule: Rule, rules: RuleSet) -> list[Finding]:
    """Return the parts of one rule that have no effect."""
    return [*Lints(rule, rules).findings()]
