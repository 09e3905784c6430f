"""Pipelines: the order of everything, as data. `rules/pipeline.rw` first, users' files laid over it.

    pipeline tile
        pass tileify
        pass xor_smem after vectorise            because "conflicts depend on the width"
        one of pipeline_predicated, pipeline_k_outer because "both rotate the ring"
        pass snake last

A pass is a rule file (`stage_inputs.rw` is `stage_inputs`) or one rule. An entry replaces the entry of an earlier file
with the same label. A pass that no pipeline names runs where rules of its level run, after ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from ...ir.diagnostic import DplcError, Span, did_you_mean
from ...ir.text import syntax as s
from .definitions import line_of
from .evaluate import Expressions, Value
from .rule import Rule, RuleSet, admits, pass_name, shown, wrong_kind
from .typed_slots import says

# The pipelines in the order they run, and the levels of the rules that each may contain.
PIPELINES: dict[str, tuple[str, ...]] = {
    "torch": ("torch",),
    "tensor": ("tensor",),
    "fusion": ("tensor", "module"),
    "loop": ("module", "loop"),
    "tile": ("module", "loop", "tile"),
    "kernel": ("kernel",),
}
LIST = "`dplc rules list` shows all passes of all pipelines"
NO_LINE = -1  # the layer of a pass that no file puts into a pipeline


@dataclass(frozen=True, eq=False)
class PassStep:
    """One line of a pipeline, equal to itself alone.

    `group` is shared by the passes of a `one of`: the first that fires ends the group.
    """

    name: str  # the pass: the stem of a file without its number, or the name of one rule
    rules: tuple[Rule, ...]
    parameters: dict[str, Value]
    label: str  # the name it runs under: the alias, or `name`
    span: Span
    group: str | None = None
    reason: str | None = None
    numbered: str = ""  # the label with the number of the pipeline, `007_stage_inputs`; empty without one
    places: tuple[tuple[str, str | None], ...] = ()  # requested: (`after` | `before` | `first` | `last`, label)
    layer: int = NO_LINE  # which file says so
    laid_over: bool = True  # an earlier file declares the pipeline, or no line does

    def shown(self, rule: Rule) -> str:
        """Return the label of the pass in a trace.

        This is its number and name, or the stem of the file, unless it runs under a name of its own.
        """
        return self.numbered or (rule.file if pass_name(rule.file) == self.label else self.label)

    @property
    def location(self) -> str:
        return line_of(self.span)


Pipelines = dict[str, tuple[PassStep, ...]]
_Lines = dict[str, dict[str, PassStep]]  # by pipeline and label, in the order of files
_Dropped = list[tuple[int, s.Without]]  # what is removed, with the index of the file that says so


def pipelines(rules: RuleSet) -> Pipelines:
    """Return every pipeline, in the order of PIPELINES, ordered and checked. Raises DplcError with both lines."""
    lines = _lines(rules)
    dropped = _dropped(rules, lines)
    return {name: tuple(_asked_first([*_steps(name, found, dropped)])) for name, found in lines.items()}


def taken_out(rules: RuleSet) -> dict[str, tuple[s.Without, ...]]:
    """Return the entries that files remove from each pipeline and that no later file restores."""
    left, written = pipelines(rules), [written for file in rules.files for written in file.without]
    return {
        name: tuple(
            one
            for one in written
            if one.pipeline in (None, name) and _named(one, found.values()) and not _named(one, left[name])
        )
        for name, found in _lines(rules).items()
    }


# Lines of pipelines, as files declare them.


def _lines(rules: RuleSet) -> _Lines:
    """Return the lines of every pipeline, those of later files laid over those of earlier ones."""
    lines: _Lines = {name: {} for name in PIPELINES}
    for layer, file in enumerate(rules.files):
        for declared in file.pipelines:
            if declared.name not in PIPELINES:
                raise DplcError(f"unknown pipeline `{declared.name}`", declared, did_you_mean(declared.name, PIPELINES))
            found = lines[declared.name]
            laid_over = any(step.layer != layer for step in found.values())
            lay_over = partial(_lay_over, found, rules, declared.name, layer, laid_over)
            for written in declared.entries:
                if isinstance(written, s.OneOf):
                    names = [_numberless(name, written.span, rules) for name in written.names]
                    for name in names:
                        if name not in found:
                            lay_over(s.PassEntry(written.span, name, (), None, (), written.reason))
                        found[name] = replace(found[name], group=" | ".join(names))
                elif isinstance(written, s.PassEntry):
                    lay_over(written)
    named = {rule.name for found in lines.values() for step in found.values() for rule in step.rules}
    for file in rules.files:  # the passes that no pipeline names: a rule in ten lines fires without a line here
        name = pass_name(file.stem)
        left = [rule for rule in rules.passes.get(name, ()) if rule.name not in named]
        for pipeline in map(default_pipeline, left):
            own = tuple(rule for rule in left if default_pipeline(rule) == pipeline)
            reason = "in no pipeline: runs after the passes that are"
            lines[pipeline][name] = PassStep(name, own, {}, name, own[0].span, None, reason)
    return lines


def _lay_over(
    lines: dict[str, PassStep], rules: RuleSet, pipeline: str, layer: int, laid_over: bool, written: s.PassEntry
) -> None:
    """Add a line to those of its pipeline, in the place of an earlier file's line with its label.

    Such a line gives new parameters, and keeps the old position unless it gives another.
    """
    name = _numberless(written.rule, written.span, rules)
    label, group = written.alias or name, None
    earlier = lines.get(label)
    if earlier is not None and written.alias is None:  # by its label: `pass spread_rows(V=2)`
        name = earlier.name
    members = _members(name, rules, pipeline, written.span)
    parameters = {argument.name: _argument(argument, members) for argument in written.arguments}
    places = tuple((kind, at and rules.plain(at)) for kind, at in written.places)
    if earlier is not None:
        if earlier.layer == layer:
            raise DplcError(
                f"pass `{label}` stands twice in pipeline `{pipeline}`",
                written,
                f"give one of them another name: `pass {name} as NAME`",
                (f"first at {earlier.location}",),
            )
        group = earlier.group
        if places:
            del lines[label]
        else:
            places, layer, laid_over = earlier.places, earlier.layer, earlier.laid_over
    numbered = "" if written.alias else rules.numbered.get(label, "")
    lines[label] = PassStep(
        name, members, parameters, label, written.span, group, written.reason, numbered, places, layer, laid_over
    )


def _numberless(name: str, span: Span, rules: RuleSet) -> str:
    """Return a name in a pipeline without its number. Raises DplcError for the number of another pass."""
    plain = pass_name(name)
    known = rules.numbered.get(plain, name)
    if name not in (known, plain):
        raise DplcError(f"`{name}`: another number is that of `{plain}`", span, f"write `{known}`")
    return plain


def _members(name: str, rules: RuleSet, pipeline: str, at: Span) -> tuple[Rule, ...]:
    """Return the rules of a pass, or the rule of this name. Raises DplcError unless the pipeline runs all of them."""
    rule = rules.rules.get(name)
    alone = (rule,) if rule is not None and not rule.attributes & {"local", "canonical"} else ()
    members = rules.passes.get(name, alone)
    if not members:
        raise DplcError(
            f"pipeline `{pipeline}`: there is no pass or rule `{name}`",
            at,
            did_you_mean(name, (*rules.passes, *rules.rules)) or LIST,
        )
    for rule in members:
        if rule.level not in PIPELINES[pipeline]:
            levels = " and ".join(PIPELINES[pipeline])
            what = f"pipeline `{pipeline}` runs rules on {levels}; `{rule.name}` is on {rule.level}"
            fitting = [name for name, known in PIPELINES.items() if rule.level in known]
            raise DplcError(
                what, at, f"write it below `pipeline {' or '.join(fitting)}`", (f"the rule is at {rule.location}",)
            )
    return members


def _argument(written: s.Keyword, members: tuple[Rule, ...]) -> Value:
    """Return the value of a parameter. Raises DplcError unless a rule of the pass can have it."""
    name, first = written.name, members[0]
    having = [rule for rule in members if any(parameter.name == name for parameter in rule.parameters)]
    if not having:
        parameters = {parameter.name for rule in members for parameter in rule.parameters}
        raise DplcError(
            f"`{first.name}` has no parameter `{name}`", written, did_you_mean(name, parameters) or "take it out"
        )
    at = written.value.span
    try:
        value = Expressions(first.level).compile(written.value)({})
    except Exception:
        raise DplcError(f"the value of `{name}` is not a constant", at, "write a number of its domain") from None
    for rule in having:
        if wrong := wrong_kind(rule, name, value):
            raise DplcError(wrong[0], at, wrong[1])
    if not any(admits(rule, name, value) for rule in having):
        raise DplcError(
            f"{value} is not in the domain of `{name}`: no rule of `{first.name}` would ever fire",
            at,
            "choose one value of the domain",
            (f"the domain is {shown(having[0], name)}",),
        )
    return value


def default_pipeline(rule: Rule) -> str:
    """Return the pipeline of a rule that no pipeline names.

    A rule on `tensor` that moves a `mat` decides which values are materialised: fusion. A rule on several kernels runs
    in the tile pipeline if its pattern has a `Tile`, else in the loop pipeline.
    """
    if rule.level == "tensor":
        return "fusion" if says((rule.match, rule.rewrite), "mat") else "tensor"
    if rule.level == "module":
        return "tile" if says(rule.match, "Tile") else "loop"
    return rule.level


# The order of a pipeline is file order unless a line gives another position. One that cannot be met is an error.


_Edge = tuple[str, str, PassStep]  # the first label runs before the second, because the line says so


def _arranged(pipeline: str, lines: list[PassStep], known: set[str]) -> list[PassStep]:
    """Return the lines in order.

    A line keeps its written position if its constraints hold there; otherwise it alone moves. A line that is laid over
    (not written among the others) goes right after, or right before, the pass that it names.

    known: further names that a constraint may mention without effect (passes that were dropped).
    Raises DplcError if the constraints contradict each other.
    """
    edges = [*_edges(pipeline, lines, known)]
    later = _closure(lines, edges)  # of all lines: finds the circles
    written = [line for line in lines if not line.laid_over]
    own = _closure(lines, [edge for edge in edges if not edge[2].laid_over])
    order = [line for line in written if not line.places]
    for n, line in enumerate(written):
        if line.places:
            low, high = _bounds(line, order, own)
            order.insert(min(max(order.index(written[n - 1]) + 1 if n else 0, low), high), line)
    for line in lines:
        if line.laid_over:  # after the pass that it names, and the lines already inserted there; else as late as it can
            low, high = _bounds(line, order, later)
            wishes = {wish for wish in line.places if wish[0] == "after"}
            while low < high and order[low].laid_over and not wishes.isdisjoint(order[low].places):
                low += 1
            order.insert(low if wishes else high, line)
    return order


def _bounds(line: PassStep, order: list[PassStep], later: dict[str, set[str]]) -> tuple[int, int]:
    """Return the first and the last position that a line may have among the lines in `order`."""
    low = max((n + 1 for n, other in enumerate(order) if line.label in later[other.label]), default=0)
    high = min((n for n, other in enumerate(order) if other.label in later[line.label]), default=len(order))
    if low > high:
        early, late = order[high], order[low - 1]
        wish = f"pass `{line.label}` cannot run after `{late.label}` and before `{early.label}`"
        raise DplcError(
            f"{wish}: `{early.label}` runs first",
            line,
            "take one of the two constraints out",
            [f"`{other.label}` is at {other.span.location}" for other in (early, late)],
        )
    return low, high


def _edges(pipeline: str, lines: list[PassStep], known: set[str]) -> Iterator[_Edge]:
    labels = {name for line in lines for name in (line.label, line.name)}
    for line in lines:
        if {kind for kind, _ in line.places} >= {"first", "last"}:
            raise DplcError(f"pass `{line.label}` cannot be first and last", line, "take one of the two words out")
        for kind, name in line.places:
            if name is not None and name not in labels | known:
                raise DplcError(
                    f"pass `{line.label}` is to run {kind} `{name}`, which is not in pipeline `{pipeline}`",
                    line,
                    did_you_mean(name, labels) or LIST,
                )
            for other in lines:
                if name is None:  # several may be first: among themselves they keep their order
                    meant = all(wish != kind for wish, _ in other.places)
                else:
                    meant = name in (other.label, other.name)
                if meant:
                    pair = (line.label, other.label) if kind in ("first", "before") else (other.label, line.label)
                    yield (*pair, line)


def _closure(lines: list[PassStep], edges: list[_Edge]) -> dict[str, set[str]]:
    """Return, for each label, everything that must run later. Raises DplcError for a cycle, with its lines."""
    sorter = TopologicalSorter[str]({line.label: () for line in lines})
    for early, late, _ in edges:
        sorter.add(late, early)
    later: dict[str, set[str]] = {}
    try:
        for label in reversed([*sorter.static_order()]):
            direct = {late for early, late, _ in edges if early == label}
            later[label] = direct.union(*(later[late] for late in direct))
    except CycleError as error:
        circle = error.args[1]
        first = {(early, late): line for early, late, line in reversed(edges)}
        said = [*dict.fromkeys(first[pair] for pair in pairwise(circle))]
        notes = []
        for line in said:
            wishes = ", ".join(f"{kind} {name}" if name else kind for kind, name in line.places)
            notes.append(f"`{line.label}` wants to be {wishes}: {line.span.location}")
        raise DplcError(
            f"these lines contradict each other: {' before '.join(circle)}",
            max(said, key=lambda line: line.layer),
            "take one of them back",
            notes,
        ) from None
    return later


# Passes and rules that `without` removes.


def _dropped(rules: RuleSet, lines: _Lines) -> _Dropped:
    """Return the entries that remove a label, a pass or a rule. Raises DplcError for one that removes nothing."""
    dropped: _Dropped = []
    known = {label for found in lines.values() for label in found} | rules.passes.keys() | rules.rules.keys()
    for layer, file in enumerate(rules.files):
        for written in file.without:
            if written.name not in known:
                raise DplcError(
                    f"`without {written.name}`, but there is no pass or rule `{written.name}`",
                    written,
                    did_you_mean(written.name, known) or LIST,
                )
            stands = [name for name, found in lines.items() if _named(written, found.values())]
            if written.pipeline not in (None, *stands):
                raise DplcError(
                    f"pipeline `{written.pipeline}` has no `{written.name}`",
                    written,
                    f"write it below `pipeline {stands[0]}`" if stands else LIST,
                )
            dropped.append((layer, written))
    return dropped


def _named(written: s.Without, steps: Iterable[PassStep]) -> bool:
    """Return whether an entry names the label, the pass or a rule of some lines."""
    return any(written.name in (step.label, step.name, *(rule.name for rule in step.rules)) for step in steps)


def _steps(pipeline: str, lines: dict[str, PassStep], dropped: _Dropped) -> Iterator[PassStep]:
    """Yield the lines of a pipeline in order, without what is removed; a later file may put it back."""
    here = [(layer, written.name) for layer, written in dropped if written.pipeline in (None, pipeline)]
    for step in _arranged(pipeline, [*lines.values()], {name for _, name in here}):
        gone = {name for layer, name in here if step.layer <= layer}
        kept = tuple(rule for rule in step.rules if rule.name not in gone)
        if kept and gone.isdisjoint((step.label, step.name)):
            yield replace(step, rules=kept)


def _asked_first(steps: list[PassStep]) -> list[PassStep]:
    """Move the requested passes (`--prefer`) of a `one of` ahead of its other passes."""
    ahead = sorted(steps, key=lambda step: not any(rule.wherever_legal for rule in step.rules))
    groups = {step.group: iter([other for other in ahead if other.group == step.group]) for step in steps}
    return [step if step.group is None else next(groups[step.group]) for step in steps]


# Texts for people.


def describe(rules: RuleSet) -> str:
    """Return the pipelines as text: the order, the pinned numbers, the reasons, and the origin of each line.

    The text also lists the rules that a file replaces and the entries that it removes.
    """
    steps, out = pipelines(rules), taken_out(rules)
    blocks = []
    for name, found in steps.items():
        if found or out[name]:
            rows = [row for step in found for row in _rows(step, rules)]
            blocks.append(_block(f"pipeline {name}", rows, out[name]))
    rows = [(rule.name, rule.location, "") for rule in rules.canonical]
    known = {rule.name for rule in rules.rules.values() if "canonical" in rule.attributes}
    gone = [written for file in rules.files for written in file.without if written.name in known]
    if rows or gone:
        blocks.append(_block("canonical rules, after every firing", rows, gone))
    return "\n\n".join(blocks) + "\n"


def _block(head: str, rows: list[tuple[str, str, str]], out: Iterable[s.Without]) -> str:
    rows += [(f"- without {w.name}", line_of(w.span), w.reason or "") for w in out]
    width, place, _ = (max(map(len, column)) for column in zip(*rows))
    lines = [f"    {text:{width}}  {location:{place}}  {reason}".rstrip() for text, location, reason in rows]
    return "\n".join([head, *lines])


def _rows(step: PassStep, rules: RuleSet) -> Iterator[tuple[str, str, str]]:
    pinned = ", ".join(f"{name}={value}" for name, value in step.parameters.items())
    alias = f" as {step.label}" if step.label != step.name else ""
    group = f" (one of {step.group})" if step.group else ""
    line = f"{step.numbered or step.name}{f'({pinned})' if pinned else ''}{alias}{group}"
    yield line, step.location, step.reason or ""
    for rule in step.rules:
        if rule.override:
            yield f"  override rule {rule.name}", rule.location, "in the place of the library's own"
        for other in (other for file in rules.files for other in file.rules):
            if other.name == rule.name and other.device is not None:
                yield f"  override rule {rule.name} for {other.device.text}", other.location, "on this device only"
