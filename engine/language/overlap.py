"""Checks between rules, and of a rule with itself: who can match what another one leaves.

Two questions about syntax: *may* a pattern match an instance of a template (yes when in doubt: a warning), and does a
pattern match *everything* that another one matches (no when in doubt: an error).
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator
from typing import Any

from ...ir.diagnostic import DplcError
from ...ir.text import syntax as s
from ...ir.text.read_statements import statement_classes, value_classes
from .evaluate import CONSTANTS, RESERVED
from .findings import ERROR, NOTE, WARNING, Finding
from .pipeline import pipelines
from .positions import is_variable, names, parts, plain, walk
from .rule import Rule, RuleSet, pass_name
from .subject import CheckedRule

_OPEN = s.Run | s.RunStatement | s.InsideBlock
_COMPUTED = s.Member | s.Subscript | s.Operation | s.Choice | s.Comprehension | s.EachBlock | s.IfBlock


def repeats_itself(subject: CheckedRule) -> Iterator[Finding]:
    """Under @repeat, or as a canonical rule, a template that its own pattern can match, where nothing gets less by it.

    With a guard it is a note: the guard may well be what ends it. Without one only the fuel does.
    """
    rule = subject.rule
    if rule.level not in ("tile", "loop", "kernel") or not rule.attributes & {"repeat", "canonical"} or _dwindles(rule):
        return
    severity = NOTE if rule.guards else WARNING
    stops = "only its guards stop the repetition" if rule.guards else "nothing stops the repetition"
    for block in _blocks(rule.rewrite):
        for n, statement in enumerate(block):
            if not isinstance(statement, s.RunStatement | s.EachBlock | s.DropStatement) and _may_list(
                rule.match, block[n:]
            ):
                what = f"the template can match its own pattern: {stops}"
                yield subject.finding(what, statement.span, (), None, severity)
                return


def _dwindles(rule: Rule) -> bool:
    """Whether every firing leaves fewer loops, axes or statements of some kind: then it ends by itself."""
    bases = [node.run.base for node in walk(rule.rewrite) if isinstance(node, s.RunStatement)]
    runs = [name.text for base in bases for name in names(base.base if isinstance(base, s.Subscript) else base)]
    if len(runs) > len(set(runs)) or any(isinstance(node, s.EachBlock | s.UseRule) for node in walk(rule.rewrite)):
        return False
    put_back = [n for n in walk(rule.match) if isinstance(n, s.CaptureStatement) and n.name in runs]
    before, after = _counts(rule.match), _counts(rule.rewrite) + _counts(tuple(put_back))
    return any(after[kind] < number for kind, number in before.items())


def _counts(statements: tuple[s.Syntax, ...]) -> Counter[tuple[str, str | None]]:
    """How many statements and axes of each kind are written out. A run that changes its role is any number of axes."""
    found: Counter[tuple[str, str | None]] = Counter()
    for node in walk(statements):
        if isinstance(node, s.AxisItem):
            found["axis", node.role] += 1
        elif isinstance(node, s.ForLoop):
            found["for", next((a.text for a in node.attributes if isinstance(a, s.NameOf)), "serial")] += 1
        elif isinstance(node, s.Run) and node.role is not None:
            found["axis", node.role] += 1000
        elif isinstance(node, s.Apply) and node.fn in statement_classes():
            found[node.fn, None] += 1
        elif isinstance(node, s.LoadOf | s.AccumulateInto | s.IfBlock):
            found[type(node).__name__, None] += 1
    return found


def _blocks(statements: tuple[s.Syntax, ...]) -> Iterator[tuple[s.Syntax, ...]]:
    yield statements
    for statement in statements:
        if body := getattr(statement, "body", None):
            yield from _blocks(body)


def _may(p: Any, t: Any) -> bool:
    """May pattern p match an instance of template t?"""
    if p is None or t is None or isinstance(p, _OPEN) or isinstance(t, (*_OPEN.__args__, *_COMPUTED.__args__)):
        return True
    if isinstance(p, s.CaptureStatement):
        call = t.value if isinstance(t, s.Assign) else t.call if isinstance(t, s.Statement) else t
        return _may(p.call, call)
    if isinstance(p, tuple):  # then t is one: they are the same field of nodes of the same kind
        return _may_list(p, t)
    if isinstance(p, str) or isinstance(t, str):
        return p == t or "_" in (p, t) or (isinstance(p, str) and isinstance(t, str) and not (_fixed(p) and _fixed(t)))
    if _is_variable(p) or _is_variable(t):
        return True
    if isinstance(p, s.Prefix) and p.op == "not":
        return not (isinstance(t, s.NameOf) and isinstance(p.a, s.NameOf) and t.text == p.a.text)
    if isinstance(p, s.Group) or isinstance(t, s.Group):
        return _may_list(_listed(p), _listed(t))
    if isinstance(p, s.Apply) and isinstance(t, s.Apply):
        return _may_call(p, t)
    if type(p) is not type(t) or (isinstance(p, s.ForLoop) and not _may_header(p, t)):
        return False
    if not isinstance(p, s.Syntax):
        return bool(p == t)
    return all(_may(getattr(p, name), getattr(t, name)) for name in parts(type(p)))


def _may_header(p: s.ForLoop, t: s.ForLoop) -> bool:
    """Loop headers match exactly: what is not said is `by 1` and `unroll=1`."""
    said, again = ({a.name for a in loop.attributes if isinstance(a, s.Keyword)} for loop in (p, t))
    return not (p.step is None and t.step is not None) and again <= said


def _may_list(p: tuple[Any, ...], t: tuple[Any, ...]) -> bool:
    if not p:
        return True
    if isinstance(p[0], _OPEN) or not t:
        return all(isinstance(x, _OPEN) for x in p) if not t else True
    if isinstance(p[0], s.CaptureStatement) and isinstance(t[0], s.RunStatement):
        wanted = _keywords(p[0].call)  # `stages.. with via=TMA` is no `Stage(via=SYNC)`
        changed = [c for c in t[0].changes if isinstance(c, s.Keyword) and c.name in wanted]
        return all(_may(wanted[c.name], c.value) for c in changed)
    if isinstance(t[0], (*_OPEN.__args__, s.EachBlock)):
        return True
    return _may(p[0], t[0]) and _may_list(p[1:], t[1:])


def _may_call(p: s.Apply, t: s.Apply) -> bool:
    if p.fn != t.fn and (_fixed(p.fn) and _fixed(t.fn)):
        return False
    cls: Any = {**statement_classes(), **value_classes()}.get(p.fn)
    wanted, given = _keywords(p), _keywords(t)
    for name, value in wanted.items():
        if name in given:
            if not _may(value, given[name]):
                return False
        elif cls is not None and name in cls.by_name and not _may_default(value, cls.by_name[name].default):
            return False
    return _may_list(_positional(p), _positional(t))


def _may_default(p: s.Syntax, default: Any) -> bool:
    """May a pattern match the default that a template leaves unsaid?"""
    if isinstance(p, s.Number):
        return bool(p.value == default)
    if isinstance(p, s.NameOf) and _fixed(p.text):
        return bool(CONSTANTS.get(p.text, p.text) == default)
    if isinstance(p, s.Prefix) and isinstance(p.a, s.NameOf):
        return bool(p.a.text != default)
    return not (isinstance(p, s.Group) and default == () and any(not isinstance(x, s.Run) for x in p.items))


def _keywords(call: s.Apply) -> dict[str, s.Syntax]:
    return {item.name: item.value for item in call.items if isinstance(item, s.Keyword)}


def _positional(call: s.Apply) -> tuple[s.Syntax, ...]:
    return tuple(item for item in call.items if not isinstance(item, s.Keyword))


def _listed(node: Any) -> tuple[Any, ...]:
    return node.items if isinstance(node, s.Group) else (node,)


def _fixed(name: str) -> bool:
    return name in RESERVED or name in CONSTANTS or name in statement_classes()


def _is_variable(node: Any) -> bool:
    return isinstance(node, s.NameOf) and (node.text == "_" or is_variable(node.text))


# ---- shadowing


def shadowed(subject: CheckedRule) -> Iterator[Finding]:
    """A rule that an earlier rule leaves nothing: that one has no guard and matches all that it matches.

    Earlier in its pass; on torch and tensor, where all rules are tried at every place, in any file (a warning).
    """
    rule = subject.rule
    candidates, position = _unguarded(subject.rules)
    heads = dict.fromkeys((_head(rule), None))
    for earlier in (other for head in heads for other in candidates.get((_reach(rule), rule.level, head), ())):
        if position.get(earlier.name, 0) >= position.get(rule.name, 0) or not _same_reach(earlier, rule):
            continue
        if _Cover(rule.level).pattern(earlier.match, rule.match):
            what = f"can never fire: `{earlier.name}` matches everything it matches, without a guard"
            notes = (f"`{earlier.name}` is at {earlier.location}",)
            hint = "put the special rule first"
            severity = ERROR if earlier.file == rule.file else WARNING
            if earlier.file != rule.file:
                hint = f"say `pass {pass_name(rule.file)} before {pass_name(earlier.file)} ..` in a pipeline"
            place = rule.span if severity == ERROR else rule.match[-1].span
            yield subject.finding(what, place, notes, hint, severity)
            return


def behind_guards(subject: CheckedRule) -> Rule | None:
    """An earlier rule that matches whatever this one matches, and whose guards this one has too."""
    rule = subject.rule
    position = _positions(subject.rules)
    place = position.get(rule.name, 0)
    for earlier in _guarded(subject.rules).get((_reach(rule), rule.level, _head(rule)), ()):
        if position.get(earlier.name, 0) >= place or not _same_reach(earlier, rule):
            continue
        cover = _Cover(rule.level)
        if not cover.pattern(earlier.match, rule.match):
            continue
        asked = {plain(guard.condition) for guard in rule.guards}
        if all(_in_terms_of(guard.condition, cover.bound) in asked for guard in earlier.guards):
            return earlier
    return None


def _in_terms_of(value: Any, bound: dict[str, Any]) -> Any:
    """Syntax in plain form, names replaced by what a cover bound them to."""
    if isinstance(value, tuple):
        return tuple(_in_terms_of(item, bound) for item in value)
    if isinstance(value, s.NameOf):
        return bound.get(value.text, value.text)
    if isinstance(value, s.Syntax):
        return (type(value).__name__, *(_in_terms_of(getattr(value, name), bound) for name in parts(type(value))))
    return value


def _reach(rule: Rule) -> str:
    """What rules share whose order decides between them: a file, or all of a level."""
    return rule.level if rule.level in ("torch", "tensor") else rule.file


@functools.lru_cache(maxsize=4)
def _guarded(rules: RuleSet) -> dict[tuple[str, str, str | None], list[Rule]]:
    """Rules that ask something of what their patterns bind, and of nothing else, by reach, level and first op."""
    found: dict[tuple[str, str, str | None], list[Rule]] = {}
    for rule in rules.rules.values():
        plain_guards = rule.guards and all(isinstance(clause, s.Guard) for clause in rule.clauses)
        if plain_guards and not rule.parameters and not isinstance(rule.match[0], s.CaptureStatement | s.InsideBlock):
            found.setdefault((_reach(rule), rule.level, _head(rule)), []).append(rule)
    return found


@functools.lru_cache(maxsize=4)
def _unguarded(rules: RuleSet) -> tuple[dict[tuple[str, str, str | None], list[Rule]], dict[str, int]]:
    """The rules that fire wherever they match, by reach, level and first op (others cannot meet); and all positions."""
    found: dict[tuple[str, str, str | None], list[Rule]] = {}
    for rule in rules.rules.values():
        if _always_fires(rule) and not isinstance(rule.match[0], s.CaptureStatement | s.InsideBlock):
            found.setdefault((_reach(rule), rule.level, _head(rule)), []).append(rule)
    return found, _positions(rules)


@functools.lru_cache(maxsize=4)
def _positions(rules: RuleSet) -> dict[str, int]:
    """In which order rules are tried: that of the pipelines, and of declaration where these are not sound."""
    try:
        steps = [step for steps in pipelines(rules).values() for step in steps]
    except DplcError:
        steps = []
    named = [rule.name for step in steps for rule in step.rules] or list(rules.rules)
    return {name: n for n, name in enumerate(dict.fromkeys((*named, *rules.rules)))}


def _head(rule: Rule) -> str | None:
    """The op that the pattern begins with; None where that is open, or no op."""
    first = rule.match[0]
    call = first.value if isinstance(first, s.Assign) else first.call if isinstance(first, s.Statement) else None
    if not isinstance(call, s.Apply) or (is_variable(call.fn) and not call.fn[:1].isupper()) or call.fn == "_":
        return None
    return call.fn


def _always_fires(rule: Rule) -> bool:
    return not rule.parameters and not any(isinstance(c, s.Guard | s.PickClause) for c in rule.clauses)


def _same_reach(a: Rule, b: Rule) -> bool:
    """Both are tried by the pass, or both by the canonical fixpoint; local and unstable rules are not tried at all."""
    reach = ({"local", "canonical", "unstable"} & rule.attributes for rule in (a, b))
    return all(found in (set(), {"canonical"}) for found in reach) and ("canonical" in a.attributes) is (
        "canonical" in b.attributes
    )


class _Cover:
    """Does a pattern match whatever another pattern matches? Variables of the first bind pieces of the second."""

    def __init__(self, level: str):
        self.dataflow = level in ("torch", "tensor")
        self.closed = level == "torch"  # a field that is not mentioned must be at its default
        self.bound: dict[str, Any] = {}

    def pattern(self, p: tuple[Any, ...], t: tuple[Any, ...]) -> bool:
        """Whole patterns. One of statements may end anywhere, so what follows its end does not matter."""
        return self.block(p, t if self.dataflow else t[: len(p)])

    def block(self, p: tuple[Any, ...], t: tuple[Any, ...]) -> bool:
        """A final `rest..` takes what is left; runs elsewhere are not decided."""
        if not p:
            return not t
        if isinstance(p[0], s.Run | s.RunStatement):
            return len(p) == 1
        return bool(t) and self.one(p[0], t[0]) and self.block(p[1:], t[1:])

    def one(self, p: Any, t: Any) -> bool:
        if isinstance(p, s.NameOf) and (p.text == "_" or is_variable(p.text)):
            return self._bind(p.text, t)
        if isinstance(p, s.Number | s.Text | s.NameOf):
            return bool(plain(p) == plain(t))
        if type(p) is not type(t) or isinstance(p, s.InsideBlock | s.CaptureStatement | s.Prefix):
            return False
        if isinstance(p, s.Apply):
            return self._call(p, t)
        return all(self._part(getattr(p, name), getattr(t, name)) for name in parts(type(p)))

    def _part(self, p: Any, t: Any) -> bool:
        if isinstance(p, tuple):
            return isinstance(t, tuple) and self.block(p, t)
        if isinstance(p, str) and isinstance(t, str) and is_variable(p):
            return self._bind(p, t)
        return self.one(p, t) if isinstance(p, s.Syntax) else p == t

    def _bind(self, name: str, t: Any) -> bool:
        if isinstance(t, s.Run | s.RunStatement) or (not self.dataflow and _is_statement(t)):
            return False
        value = plain(t)
        return name == "_" or self.bound.setdefault(name, value) == value

    def _call(self, p: s.Apply, t: s.Apply) -> bool:
        if p.fn != t.fn and not (is_variable(p.fn) and p.fn not in statement_classes() and not p.fn[:1].isupper()):
            return False
        wanted, given = _keywords(p), _keywords(t)
        if self.closed and not any(isinstance(item, s.Run) for item in p.items) and wanted.keys() != given.keys():
            return False
        if not all(name in given and self.one(value, given[name]) for name, value in wanted.items()):
            return False
        return self.block(_positional(p), _positional(t))


def _is_statement(node: Any) -> bool:
    """`load B[i]`, `Stage(..)`: on the right of `a =` these are statements, which a variable does not take."""
    return isinstance(node, s.LoadOf) or (isinstance(node, s.Apply) and node.fn in statement_classes())
