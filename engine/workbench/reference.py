"""Names that a rule may use, with sorts and a sentence each; pages of all rules, statements, facts and constants.

Each definition has one description. The signatures are those that matchers read, the sentences are the docstrings.
"""

from __future__ import annotations

import functools
import html
import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from ...codegen import target as devices
from ...ir import schemas, tensor
from ...ir.atoms import ATOMS
from ...ir.diagnostic import DplcError, Source
from ...ir.expr import Var
from ...ir.functions import FUNCTIONS
from ...ir.kernel import VALUES as ADDRESSES
from ...ir.monoid_texts import TEXTS
from ...ir.node import Field, walk
from ...ir.program import Param, TensorType
from ...ir.substitute import substitute
from ...ir.text.parse import parse
from ...ir.text.read_statements import owners
from ...ir.text.torch import print_torch_graph, print_torch_op
from ...ir.torch import TorchGraph, TorchOp
from ..language import core as s
from ..language.check import load_facts
from ..language.core import FORMS
from ..language.definitions import format_value
from ..language.evaluate import FACTS
from ..language.format import format_fact, format_number, format_rule
from ..language.pipeline import PassStep, pipelines
from ..language.rule import LEVELS, Rule, RuleSet
from ..language.sorts import TARGET_FIELDS, field_sort
from ..language.spelling import statement
from ..language.typed_slots import every, is_variable, names_in, rebuilt

ROOT = Path(__file__).resolve().parents[2]
VALUES = (tensor.Reduce, tensor.Fold, tensor.Index, tensor.Case, tensor.Mat)
STATEMENTS = {"loop": ("loop", "tile", "module"), "tile": ("tile", "module"), "kernel": ("kernel",)}


@dataclass(frozen=True)
class Word:
    """Name that a rule may use.

    kind: fact, function, statement, value, op, monoid, atom or target; signature: as it is written, with sorts; says:
    its documentation, the first line a sentence; fields: (name, sort, default). The location of the definition is
    `file:line`.
    """

    name: str
    kind: str
    signature: str = ""
    says: str = ""
    levels: tuple[str, ...] = ()
    place: str = ""
    fields: tuple[tuple[str, str, str], ...] = ()

    @property
    def sentence(self) -> str:
        """First paragraph of the documentation, on one line."""
        return " ".join(self.says.split("\n\n")[0].split())

    def record(self) -> dict[str, Any]:
        """Return the word as data for JSON."""
        fields = [{"name": name, "sort": sort, "default": default} for name, sort, default in self.fields]
        return {**vars(self), "fields": fields}


def field_text(sort: str, default: str) -> str:
    """Return the sort of a field, with its default if it has one."""
    return f"{sort}, else {default}" if default else sort


# ---- queries


def facts(rules: RuleSet | None = None) -> list[Word]:
    """Return facts and scalar functions by name, with the facts that the files of `rules` declare."""
    load_facts()
    return sorted((*_facts(rules), *_functions()), key=lambda entry: (entry.name, entry.levels))


def _facts(rules: RuleSet | None) -> Iterator[Word]:
    for fact in {(fact.name, id(fact)): fact for fact in FACTS.values()}.values():
        text = f"{fact.name}({', '.join(fact.arguments)}) -> {fact.result}"
        levels = tuple(level for level in LEVELS if level in fact.levels)
        yield Word(fact.name, "fact", text, inspect.cleandoc(fact.doc), levels, _place(fact.ask))
    for declared in rules.facts.values() if rules is not None else ():
        place = f"{declared.span.source.name}:{declared.span.line}"
        given = ", ".join(f"{parameter.name}: {parameter.sort}" for parameter in declared.parameters)
        text = f"{declared.name}({given}) -> {declared.result}"
        yield Word(declared.name, "fact", text, "\n".join(declared.docs), tuple(LEVELS), place)


def _functions() -> Iterator[Word]:
    for function in FUNCTIONS.values():
        operands = ("x",) if function.arity == 1 else ("condition", "a", "b") if function.arity == 3 else ("a", "b")
        algebra = " Commutative." if function.commutative else ""
        algebra += f" A reduction starts from {function.identity}." if function.identity is not None else ""
        says = f"{function.meaning} ({function.kind}).{algebra}"
        text = f"{function.name}({', '.join(operands)})"
        yield Word(function.name, "function", text, says, tuple(LEVELS), "ir/functions.py")


# ---- the parts of programs


@functools.cache
def nodes() -> tuple[Word, ...]:
    """Return statements and values of the IRs except Torch IR, monoids, atoms, and the fields of `target`."""
    return (*_nodes(), machine())


def _nodes() -> Iterator[Word]:
    for cls in (*owners().values(), *ADDRESSES):
        module, fields = cls.__module__.rpartition(".")[2], tuple(map(_field, cls.fields))
        named = ((name, default) for name, _, default in fields if name != "body")
        written = ", ".join(f"{name}={default}" if default else name for name, default in named)
        levels, says = STATEMENTS.get(module, (module,)), inspect.cleandoc(cls.__doc__ or "")
        name = cls.__name__
        yield Word(name, "statement", f"{name}({written})", says, levels, _place(cls), fields)
    for value in VALUES:
        name = "mat" if value is tensor.Mat else value.__name__
        text = FORMS.get(name) or f"{name}({', '.join(field.name for field in value.fields)})"
        says = inspect.cleandoc(value.__doc__ or "")
        yield Word(name, "value", text, says, ("torch", "tensor"), _place(value), tuple(map(_field, value.fields)))
    for name, (operands, identity, lifted, _) in TEXTS.items():
        lines = "; ".join(lifted.splitlines())
        says = f"A tuple monoid with the parts {', '.join(identity)}. An element of ({', '.join(operands)}) is {lines}."
        yield Word(name, "monoid", name, says, tuple(LEVELS), "ir/monoid_texts.py")
    for atom in ATOMS.values():
        extents = f"{atom.m}x{atom.k} by {atom.k}x{atom.n}"
        who, machines = ("Four warps multiply", "on") if atom.asynchronous else ("A warp multiplies", "from")
        says = f"{who} {extents} of {' or '.join(atom.dtypes)}, sums in {atom.sums}; {machines} sm_{atom.sm}."
        yield Word(atom.name, "atom", atom.name, says, ("tile", "kernel"), "ir/atoms.py")


def machine() -> Word:
    """Describe the fields of `target` with units, and the devices for `for NAME` and `target.name`."""
    known = "\n".join(f'- {name}: "{devices.load_device(name).name}"' for name in devices.devices())
    says = f"{inspect.cleandoc(devices.Target.__doc__ or '')}\n\nDevices, and their `target.name`:\n\n{known}"
    fields = tuple((name, sort.kind, "") for name, sort in TARGET_FIELDS.items())
    return Word("target", "target", "target.FIELD", says, tuple(LEVELS), _place(devices.Target), fields)


@functools.cache
def op(name: str) -> Word | None:
    """Return an op of Torch IR, with the fields of all its overloads, or None for an unknown op."""
    overloads = schemas.overloads(name)
    if not overloads:
        return None
    forms = [f"{form.name}({', '.join(map(_argument, form.arguments))})" for form in overloads]
    fields: dict[str, tuple[str, str, str]] = {}
    for argument in (argument for form in overloads for argument in form.arguments):
        default = "" if argument.required else _default(argument.default)
        fields.setdefault(argument.name, (argument.name, argument.kind, default))
    required = [argument.name for argument in overloads[0].arguments if argument.required]
    says = f"torch.ops.aten.{schemas.aten_name(name)}\n\n" + "\n".join(forms)
    text = f"{name}({', '.join(required)})"
    return Word(name, "op", text, says, ("torch",), "ir/aten.json", tuple(fields.values()))


def _argument(argument: schemas.Argument) -> str:
    default = "" if argument.required else f" = {_default(argument.default)}"
    return f"{argument.name}: {argument.kind}{default}"


# ---- by name


def known(rules: RuleSet | None = None) -> list[Word]:
    """Return all names except the ops of Torch IR."""
    return [*facts(rules), *nodes()]


def find(entries: Iterable[Word], name: str, level: str | None = None) -> list[Word]:
    """Return the entries of a name on a level, and the torch op of the name."""
    found = [entry for entry in entries if entry.name == name and (level is None or level in entry.levels)]
    ops = op(name) if level in (None, "torch") else None
    return [*found, ops] if ops is not None else found


def _field(field: Field) -> tuple[str, str, str]:
    default = "" if field.required else _default(field.default)
    sort = field_sort(field.sort, field.many)
    return field.name, f"[{sort.kind}]" if sort.many else sort.kind, default


def _default(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    if isinstance(value, tuple):
        return f"({', '.join(map(_default, value))})"
    return str(getattr(value, "name", value))


def _place(definition: Callable[..., Any] | type) -> str:
    """Return `file:line` of a definition, relative to the root of the tree."""
    try:
        path, line = inspect.getsourcefile(definition), inspect.getsourcelines(definition)[1]
        return f"{Path(path or '').resolve().relative_to(ROOT)}:{line}"
    except (OSError, TypeError, ValueError):
        return definition.__module__


# ---- Write all rules, statements, facts and constants as Markdown pages.
#
# Links are relative, so a folder of the pages opens in any renderer of Markdown. `make docs` adds them to the site.

MARK = "<!-- written by dplc rules doc -->"  # the first line of every page: `dplc rules doc` replaces no other file

# (case of a suite, firings, predicted speed-up) of each rule
Fired = Mapping[str, Sequence[tuple[str, int, float]]]


def pages(rules: RuleSet, fired: Fired | None = None, suite: str = "") -> dict[str, str]:
    """Return {path: Markdown}: a page for each folder of rules, an index, statements, facts and constants.

    fired: the firings of each rule in the cases of a suite, if it was compiled. suite: the name of that suite.
    """
    load_facts()
    steps = pipelines(rules)
    folders: dict[str, list[Rule]] = {}
    for rule in rules.rules.values():
        folders.setdefault(_page(rule), []).append(rule)
    made = {
        page: "\n".join([f"# Rules: {PurePosixPath(page).stem}", *_each(found, rules, steps, fired, suite)])
        for page, found in folders.items()
    }
    made["index.md"] = "\n".join(_order(steps, len(rules.rules)))
    made["statements.md"] = "\n".join(["# Statements and values", *_words(nodes())])
    made["facts.md"] = "\n".join(_page_of_facts(rules))
    made["constants.md"] = "\n".join(_constants(rules))
    return {path: f"{MARK}\n\n{text.rstrip()}\n" for path, text in made.items()}


def _page(rule: Rule) -> str:
    """Return the page of a rule: its folder, and for Torch IR, which has most of the rules, its file."""
    path = PurePosixPath(rule.location.rsplit(":", 1)[0])
    parts = path.parts
    inside = parts[parts.index("rules") + 1 : -1] if "rules" in parts else ("yours",)
    return f"groups/{'_'.join((*inside, *((path.stem,) if rule.level == 'torch' else ())))}.md"


def _text(text: str) -> str:
    """Return a text of a rule file with everything escaped that Markdown or HTML would interpret."""
    return re.sub(r"([\\`*_\[\]|])", r"\\\1", html.escape(text, quote=False))


def _code(text: str) -> str:
    fence = "````" if "```" in text else "```"
    return f"{fence}dplc\n{text.rstrip()}\n{fence}\n"


def first_sentence(docs: Iterable[str]) -> str:
    """Return the first sentence of a comment."""
    return re.split(r"(?<=\.)\s", " ".join(docs).strip(), maxsplit=1)[0]


def _each(
    found: Sequence[Rule], rules: RuleSet, steps: Mapping[str, Sequence[PassStep]], fired: Fired | None, suite: str
) -> Iterator[str]:
    for rule in found:
        written = rules.written.get(rule.name, rule)
        body = "\n".join(line for line in format_rule(written).splitlines() if not line.startswith("## "))
        yield f"\n## {rule.name}\n\n{_text(' '.join(rule.docs))}\n\n{_code(body)}"
        yield f"- Defined in `{rule.location}`, on {rule.level}."
        for pipeline, listed in steps.items():
            for number, step in enumerate(listed, 1):
                if any(one.name == rule.name for one in step.rules):
                    because = f", because {_text(step.reason)}" if step.reason else ""
                    place = f"{number} of {len(listed)} of `{pipeline}`"
                    yield f"- Pass `{step.label or step.name}`, {place}{because}."
        words = set(written.words)
        for title, page, names in (
            ("Facts", "facts", words & (set(rules.facts) | {fact.name for fact in FACTS.values()})),
            ("Constants", "constants", words & rules.numbers.keys()),
        ):
            if names:
                yield f"- {title}: " + ", ".join(f"[`{name}`](../{page}.md#{name})" for name in sorted(names))
        if fired is not None:
            yield f"- {_firings(fired.get(rule.name, ()), suite)}"


def _firings(cases: Sequence[tuple[str, int, float]], suite: str) -> str:
    if not cases:
        return f"Does not fire in {_text(suite)}."
    logs = [math.log(times) for _, _, times in cases if times != 1.0]
    gain = ""
    if logs:
        factor = 1 / math.exp(math.fsum(logs) / len(logs))
        gain = f"; geometric mean of the predicted time, with over without the firing: {factor:.2f}"
    each = ", ".join(
        f"{_text(name)} ({count}{f', {times:.2f}x' if times != 1.0 else ''})"
        for name, count, times in sorted(cases, key=lambda one: -one[2])
    )
    return f"Fires in {len(cases)} cases of {_text(suite)}{gain}: {each}."


def _order(steps: Mapping[str, Sequence[PassStep]], count: int) -> Iterator[str]:
    yield f"# Rules\n\n{count} rules in the order of their pipelines."
    for name, listed in steps.items():
        yield f"\n## {name}\n\n| pass | rules | reason for its position |\n|---|---|---|"
        for step in listed:
            linked = "<br>".join(
                f"[`{rule.name}`]({_page(rule)}#{rule.name}) {_text(first_sentence(rule.docs))}" for rule in step.rules
            )
            yield f"| `{step.label or step.name}` | {linked} | {_text(step.reason or '')} |"


def _words(entries: Iterable[Word]) -> Iterator[str]:
    previous = ""
    for entry in entries:
        if entry.name != previous:  # one name may have several signatures, for different levels
            yield f"\n### {entry.name}"
        previous = entry.name
        yield f"\n`{entry.signature}` on {', '.join(entry.levels)}\n\n{_text(entry.says)}\n"
        yield from (f"- `{name}`: {field_text(sort, default)}" for name, sort, default in entry.fields)


def _page_of_facts(rules: RuleSet) -> Iterator[str]:
    yield "# Facts\n\nA rule calls a fact to analyse the program.\n\n## Facts and functions in Python"
    yield from _words(facts())
    yield "\n## Facts in rule files"
    for file in rules.files:
        for written in file.facts:
            yield f"\n### {written.name}\n\n{_code(format_fact(written))}"


def _constants(rules: RuleSet) -> Iterator[str]:
    readers: dict[str, list[Rule]] = {}
    for rule in rules.rules.values():
        for word in set(rules.written.get(rule.name, rule).words) & rules.numbers.keys():
            readers.setdefault(word, []).append(rule)
    yield "# Constants\n\nOverride a constant in a file for `--rules`: `override number NAME = VALUE`."
    for name, number in rules.numbers.items():
        yield f"\n## {name}\n\nValue: `{format_value(number.value)}`\n\n{_code(format_number(number.declared))}"
        if name in readers:
            links = (f"[`{rule.name}`]({_page(rule)}#{rule.name})" for rule in readers[name])
            yield "Read by " + ", ".join(links) + "."


# ---- Skeleton of a rule: its pattern is a part of a program, and its template the same part, for the author to change.
#
# It changes nothing until the author edits the template. `dplc rules test --accept` then writes the result.

AXES = "ijkmnpqrstuv"
REASON = "say what is wrong where this fails"
TENSOR_RULE = """\
## Say what becomes cheaper, and why both sides mean the same. @approx if it rounds differently.
rule {name} on tensor
match
{pattern}
rewrite
{template}
# A guard stands before `rewrite`:
#   require known(x)                               else "{reason}"
# and needs an example that is refused:
#   example "refused" .. gives no "{reason}"
example "{title}"
{program}
gives
{program}
"""
STATEMENT_RULE = """\
## Say what becomes cheaper, and why both sides mean the same.
rule {name} on {level}
match
{pattern}
{guard}rewrite
{template}
example "{title}"
{program}
gives
{program}
{refusal}"""
TORCH_RULE = """\
## Say what the op means. {fields}
rule {name} on torch
match
    {pattern}
rewrite
    {template}
"""
TORCH_EXAMPLE = """\
example "{title}"
{program}
gives
    pass
"""


# ---- a piece of a dump


def rule_from_lines(name: str, source: Source, level: str, first: int, last: int) -> str:
    """Return a rule whose pattern is lines `first` to `last` (from 1) of a dump at a level. Raises DplcError."""
    source = Source(source.name, re.sub(r"^##.*$", "", source.text, flags=re.MULTILINE))  # the head of a dump
    units = list(every(parse(source), s.Unit))
    file = source.name.rpartition("/")[2]
    title = "as it is" if file.startswith("--") else f"lines {first} to {last} of {file}"
    if level == "tensor":
        return _on_tensor(name, units, first, last, title)
    if level == "torch":
        raise DplcError("a rule on torch is of one op", hint="dplc rules new NAME --op OP -c EXPR")
    lines = source.text.splitlines()[first - 1 : last]
    while lines and (not lines[0].strip() or lines[0].startswith("#")):
        lines.pop(0)
    if not "".join(lines).strip():
        raise DplcError(f"there is nothing in lines {first} to {last} of {source.name}")
    lead = len(lines[0]) - len(lines[0].lstrip())
    if cut := [line for line in lines if line.strip() and line[:lead].strip()]:
        what = f"lines {first} to {last} of {source.name} are not a block: `{cut[0].strip()}` stands further out"
        raise DplcError(what, hint="give whole statements, from their first line to their last")
    return _on_statements(name, [line[lead:].rstrip() for line in lines if line.strip()], level, title)


def _on_statements(name: str, lines: Sequence[str], level: str, title: str) -> str:
    """Return a rule in which extents are variables and the rest of the program is unchanged."""
    if lines[0].startswith("kernel "):
        level = "module"
    extents: dict[str, str] = {}  # variable -> its number

    def variable(axis: str, number: str) -> str:
        taken = f"{axis.upper()}" if axis.upper() != axis else f"{axis}_size"
        extents.setdefault(taken, number)
        return taken if extents[taken] == number else number

    pattern = []
    for line in lines:
        line = re.sub(r"(for (\w+) in 0\.\.)(\d+)", lambda m: m[1] + variable(m[2], m[3]), line)
        if line.lstrip().startswith("Tile("):
            line = re.sub(r"(\w+):(\d+)(?==)", lambda m: f"{m[1]}:{variable(m[1], m[2])}", line)
        pattern.append(line)
    guard = refusal = ""
    if extents:
        extent, number = next(iter(extents.items()))
        axis = re.compile(rf"(for {extent.lower()} in 0\.\.|\b{extent.lower()}:){number}\b", re.IGNORECASE)
        small = [axis.sub(r"\g<1>1", line) for line in lines]
        guard = f'require {extent} > 1                                    else "{REASON}"\n'
        if small != list(lines):
            refusal = f'example "refused"\n{_indented(small)}\ngives no "{REASON}"\n'
    slots = {"name": name, "level": level, "title": title, "guard": guard, "refusal": refusal}
    body = _indented(pattern)
    return STATEMENT_RULE.format(pattern=body, template=body, program=_indented(lines), **slots)


def _indented(lines: Sequence[str]) -> str:
    return "\n".join(f"    {line}" for line in lines)


# ---- values


def _on_tensor(name: str, units: Sequence[s.Unit], first: int, last: int, title: str) -> str:
    unit = next((u for u in units if any(first <= one.span.line <= last for one in u.body)), None)
    if unit is None:
        raise DplcError(f"lines {first} to {last} hold no value of a graph")
    chosen = []
    for node in unit.body:  # values by name if they are read at their own axes
        if first <= node.span.line <= last and isinstance(node, s.Assign):
            target = node.target.base if isinstance(node.target, s.Subscript) else node.target
            chosen.append(replace(node, target=target, value=_plain_reads(node.value), types=()))
    kept = _reached(chosen)
    lines = unit.span.source.text.splitlines()
    end = max(one.span.line for one in unit.body)
    program = _indented([line.rstrip() for line in lines[unit.span.line - 1 : end] if line.strip()])
    pattern = "\n".join(line for one in kept for line in statement(one, 1))
    return TENSOR_RULE.format(name=name, pattern=pattern, template=pattern, program=program, title=title, reason=REASON)


def _plain_reads(node: Any) -> Any:
    if isinstance(node, s.Subscript) and all(isinstance(item, s.NameOf) for item in node.items):
        return node.base
    if isinstance(node, s.AxisItem):
        return s.NameOf(node.span, node.name)
    return rebuilt(node, _plain_reads)


def _reached(lines: Sequence[s.Assign]) -> list[s.Assign]:
    """Return the last value and those that it is computed from."""
    wanted, kept = names_in(lines[-1].value), [lines[-1]]
    for line in reversed(lines[:-1]):
        if names_in(line.target) & wanted:
            kept.append(line)
            wanted |= names_in(line.value)
    return kept[::-1]


# ---- an op of torch


def rule_of_op(name: str, op: str, graph: TorchGraph | None) -> str:
    """Return a skeleton for a torch op. Raises DplcError.

    graph: a program that calls the op, for the pattern and the example.
    """
    found = next((one for one in graph.body if one.op == op), None) if graph is not None else None
    if graph is not None and found is None:
        ops = ", ".join(dict.fromkeys(one.op for one in graph.body))
        raise DplcError(f"the program has no `{op}`", notes=(f"it has {ops}",))
    fields = f"Its fields: {', '.join(map(_op_field, schemas.overloads(op)[0].arguments))}."
    if found is None:
        given = [a.name for a in schemas.overloads(op)[0].arguments if a.required]
        pattern = f"y = {op}({', '.join(_variable(n) for n in given)})"
        read = next((_variable(n) for n in given), "x")
        return TORCH_RULE.format(name=name, fields=fields, pattern=pattern, template=f"y[is..] = {read}[is..]")
    assert graph is not None
    alone = _alone(graph, found)
    pattern = re.sub(r"^(\w+): .*? = ", r"\1 = ", print_torch_op(alone.body[0]))
    head = TORCH_RULE.format(name=name, fields=fields, pattern=pattern, template=_comprehension(alone))
    program = _indented(print_torch_graph(alone).splitlines())
    return head + TORCH_EXAMPLE.format(title=f"a {schemas.aten_name(op)}", program=program)


def _comprehension(alone: TorchGraph) -> str:
    """Return a template of the right rank: the first operand, summed over its further axes."""
    rank, read = len(alone.outs[0].shape), alone.ins[0] if alone.ins else None
    made = AXES[:rank]
    if read is None:
        return f"y[{', '.join(made)}] = 0.0"
    more = AXES[rank : max(rank, len(read.shape))]
    axes = [*more, *made][-len(read.shape) or len(AXES) :]
    value = f"{read.name}[{', '.join(axes)}]"
    return f"y[{', '.join(made)}] = " + (f"Reduce(add, {', '.join(more)}, {value})" if more else value)


def _op_field(argument: schemas.Argument) -> str:
    return f"{argument.name}: {argument.kind}" + ("" if argument.required else f" = {argument.default}")


def _variable(field: str) -> str:
    return "x" if field in ("self", "input") else field if is_variable(field) else f"{field}_"


def _alone(graph: TorchGraph, op: TorchOp) -> TorchGraph:
    """Return the graph of one op with its operands as inputs."""
    types = {p.name: TensorType(p.dtype, p.shape) for p in graph.ins}
    types |= {one.dst: one.types[0] for one in graph.body}
    read = dict.fromkeys(value.name for value in walk(op.args) if isinstance(value, Var) and value.name in types)
    renamed = {old: f"x{n}" if n else "x" for n, old in enumerate(read)}
    args = substitute(op.args, {old: Var(new) for old, new in renamed.items()})
    ins = tuple(Param(new, types[old].dtype, types[old].shape) for old, new in renamed.items())
    outs = (Param("y", op.types[0].dtype, op.types[0].shape),)
    return TorchGraph("f", ins, outs, (TorchOp("y", op.op, args, op.types),))
