"""Names that a rule may use, with sorts and a sentence each; pages of all rules, statements, facts and constants.

Each definition has one description. The signatures are those that matchers read, the sentences are the docstrings.
"""

from __future__ import annotations

import functools
import html
import inspect
import itertools
import re
import statistics
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from ...codegen import target as devices
from ...ir import schemas, tensor
from ...ir.atoms import ATOMS
from ...ir.diagnostic import DplcError, Source
from ...ir.expr import Var
from ...ir.functions import CAST, FUNCTIONS
from ...ir.kernel import VALUES as ADDRESSES
from ...ir.monoid_texts import TEXTS
from ...ir.node import Field, immutable, walk
from ...ir.program import Param, TensorType
from ...ir.substitute import substitute
from ...ir.text.parse import parse
from ...ir.text.print_statements import print_value
from ...ir.text.read_statements import owners
from ...ir.text.torch import print_torch_graph, print_torch_op
from ...ir.torch import TorchGraph, TorchOp
from ..language import core as s
from ..language.check import load_facts
from ..language.definitions import line_of, signature
from ..language.evaluate import FACTS
from ..language.format import format_file, format_rule
from ..language.pipeline import pipelines
from ..language.rule import BUILT_IN, LEVELS, Rule, RuleSet
from ..language.sorts import TARGET_FIELDS, field_sort
from ..language.spelling import INDENT, statement
from ..language.typed_slots import is_variable, names_in
from ..prove.labels import label

ROOT = BUILT_IN.parent
VALUES = (tensor.Reduce, tensor.Fold, tensor.Index, tensor.Case, tensor.Mat)
# The levels of the classes of a module.
LEVELS_OF = {"loop": ("loop", "tile", "module"), "tile": ("tile", "module"), "tensor": ("torch", "tensor")}


@immutable
class WordField:
    """Field of a statement, a value or an op. default: as it is written, "" for a required field."""

    name: str
    sort: str
    default: str = ""

    @property
    def text(self) -> str:
        """The sort, with the default if there is one."""
        return f"{self.sort}, else {self.default}" if self.default else self.sort


@immutable
class Word:
    """Name that a rule may use.

    kind: fact, function, statement, value, op, monoid, atom or target; signature: as it is written, with sorts; says:
    its documentation, the first line a sentence. The location of the definition is `file:line`.
    """

    name: str
    kind: str
    signature: str = ""
    says: str = ""
    levels: tuple[str, ...] = tuple(LEVELS)
    place: str = ""
    fields: tuple[WordField, ...] = ()

    @property
    def sentence(self) -> str:
        """First paragraph of the documentation, on one line."""
        return " ".join(self.says.split("\n\n")[0].split())

    @property
    def field_list(self) -> str:
        """The fields as a list in Markdown."""
        return "\n".join(f"- `{field.name}`: {field.text}" for field in self.fields)


# ---- queries


def facts(rules: RuleSet) -> list[Word]:
    """Return facts and scalar functions by name, with the facts that rule files declare."""
    return sorted((*_facts(), *declared_facts(rules)), key=lambda entry: (entry.name, entry.levels))


def _facts() -> Iterator[Word]:
    """Yield the facts and scalar functions that Python declares."""
    load_facts()
    for fact in dict.fromkeys(FACTS.values()):
        text = f"{fact.name}({', '.join(fact.arguments)}) -> {fact.result}"
        levels = tuple(level for level in LEVELS if level in fact.levels)
        yield Word(fact.name, "fact", text, inspect.getdoc(fact.ask) or "", levels, _place(fact.ask))
    for function in FUNCTIONS.values():
        operands = {1: "x", 3: "condition, a, b"}.get(function.arity, "a, b")
        algebra = " Commutative." if function.commutative else ""
        algebra += f" A reduction starts from {function.identity}." if function.identity is not None else ""
        says = f"{function.meaning} ({function.kind}).{algebra}"
        place = "ir/functions.py" if function.kind == CAST else "ir/functions.toml"  # casts are made from the dtypes
        yield Word(function.name, "function", f"{function.name}({operands})", says, place=place)


def declared_facts(rules: RuleSet) -> Iterator[Word]:
    """Yield the facts that rule files declare."""
    for declared in rules.facts.values():
        says = "\n".join(declared.docs)
        yield Word(declared.name, "fact", signature(declared), says, place=line_of(declared.span))


# ---- the parts of programs


def nodes() -> Iterator[Word]:
    """Yield statements and values of the IRs except Torch IR, monoids, atoms, and the fields of `target`."""
    cls: Any
    for cls in (*owners().values(), *ADDRESSES, *VALUES):
        name, module = "mat" if cls is tensor.Mat else cls.__name__, cls.__module__.rpartition(".")[2]
        fields = tuple(map(_field, cls.fields))
        named = [f"{one.name}={one.default}" if one.default else one.name for one in fields if one.name != "body"]
        kind, text = "value" if cls in VALUES else "statement", s.FORMS.get(name) or f"{name}({', '.join(named)})"
        yield Word(name, kind, text, inspect.getdoc(cls) or "", LEVELS_OF.get(module, (module,)), _place(cls), fields)
    for name, monoid in TEXTS.items():
        parts, operands = (", ".join(monoid[each]) for each in ("identity", "operands"))
        lines = "; ".join(monoid["lift"].splitlines())
        says = f"A tuple monoid with the parts {parts}. An element of ({operands}) is {lines}."
        yield Word(name, "monoid", name, says, place="ir/monoids.toml")
    for atom in ATOMS.values():
        extents = f"{atom.m}x{atom.k} by {atom.k}x{atom.n}"
        who, machines = ("Four warps multiply", "on") if atom.asynchronous else ("A warp multiplies", "from")
        says = f"{who} {extents} of {' or '.join(atom.dtypes)}, sums in {atom.sums}; {machines} sm_{atom.sm}."
        yield Word(atom.name, "atom", atom.name, says, ("tile", "kernel"), "ir/atoms.toml")
    yield machine()


def machine() -> Word:
    """Describe the fields of `target` with units, and the devices for `for NAME` and `target.name`."""
    known = "\n".join(f'- {name}: "{devices.load_device(name).name}"' for name in devices.devices())
    says = f"{inspect.getdoc(devices.Target)}\n\nDevices, and their `target.name`:\n\n{known}"
    fields = tuple(WordField(name, sort.kind) for name, sort in TARGET_FIELDS.items())
    return Word("target", "target", "target.FIELD", says, place=_place(devices.Target), fields=fields)


def op(name: str) -> Word | None:
    """Return an op of Torch IR, with the fields of all its overloads, or None for an unknown op."""
    overloads = schemas.overloads(name)
    if not overloads:
        return None
    forms = [f"{form.name}({', '.join(map(_argument, form.arguments))})" for form in overloads]
    fields: dict[str, WordField] = {}
    for argument in (argument for form in overloads for argument in form.arguments):
        fields.setdefault(argument.name, WordField(argument.name, argument.kind, _default(argument)))
    required = ", ".join(argument.name for argument in overloads[0].arguments if argument.required)
    says = f"torch.ops.aten.{schemas.aten_name(name)}\n\n" + "\n".join(forms)
    return Word(name, "op", f"{name}({required})", says, ("torch",), "ir/aten.json", tuple(fields.values()))


@functools.cache
def known() -> tuple[Word, ...]:
    """Return all names that Python declares, except the ops of Torch IR."""
    return (*_facts(), *nodes())


def _field(field: Field) -> WordField:
    sort = field_sort(field)
    return WordField(field.name, f"[{sort.kind}]" if sort.many else sort.kind, _default(field))


def _argument(argument: schemas.Argument) -> str:
    default = "" if argument.required else f" = {print_value(argument.default)}"
    return f"{argument.name}: {argument.kind}{default}"


def _default(field: Field | schemas.Argument) -> str:
    return "" if field.required else print_value(field.default)


def _place(definition: Callable[..., object] | type) -> str:
    """Return `file:line` of a definition, relative to the root of the tree."""
    path = Path(inspect.getsourcefile(definition) or "").resolve()
    return f"{path.relative_to(ROOT)}:{inspect.getsourcelines(definition)[1]}"


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
    index = [f"# Rules\n\n{len(rules.rules)} rules in the order of their pipelines."]
    passes: dict[str, list[str]] = {}
    for pipeline, steps in pipelines(rules).items():
        index.append(f"\n## {pipeline}\n\n| pass | rules | proof | reason for its position |\n|---|---|---|---|")
        for number, step in enumerate(steps, 1):
            reason = _text(step.reason or "")
            texts = [(rule, re.split(r"(?<=\.)\s", " ".join(rule.docs).strip())[0]) for rule in step.rules]
            linked = "<br>".join(f"{_link(rule)} {_text(first)}" for rule, first in texts)
            proofs = "<br>".join(label(rule).label for rule in step.rules if rule.level == "tensor")
            index.append(f"| `{step.label}` | {linked} | {proofs} | {reason} |")
            because = f", because {reason}" if reason else ""
            for rule in step.rules:
                line = f"- Pass `{step.label}`, {number} of {len(steps)} of `{pipeline}`{because}."
                passes.setdefault(rule.name, []).append(line)
    named = {"Facts": rules.facts.keys() | {name for _, name in FACTS}, "Constants": rules.numbers.keys()}
    made = {"index.md": index, "statements.md": ["# Statements and values", *_words(nodes())]}
    for rule in {**rules.rules, **rules.written}.values():
        page = _page(rule)
        body = "\n".join(line for line in format_rule(rule).splitlines() if not line.startswith("## "))
        lines = made.setdefault(page, [f"# Rules: {PurePosixPath(page).stem}"])
        lines.append(f"\n## {rule.name}\n\n{_text(' '.join(rule.docs))}\n\n{_code(body)}")
        lines.append(f"- Defined in `{rule.location}`, on {rule.level}.")
        lines += passes.get(rule.name, ())
        for title, names in named.items():
            if read := sorted(names & set(rule.words)):
                lines.append(f"- {title}: " + ", ".join(f"[`{one}`](../{title.lower()}.md#{one})" for one in read))
        if fired is not None:
            lines.append(f"- {_firings(fired.get(rule.name, ()), _text(suite))}")
    made["facts.md"] = [
        "# Facts\n\nA rule calls a fact to analyse the program.\n\n## Facts and functions in Python",
        *_words(word for word in facts(rules) if word.name not in rules.facts),
        "\n## Facts in rule files",
        *(f"\n### {one.name}\n\n{_code(format_file([one]))}" for file in rules.files for one in file.facts),
    ]
    constants = made["constants.md"] = [
        "# Constants\n\nOverride a constant in a file for `--rules`: `override number NAME = VALUE`."
    ]
    for name, constant in rules.numbers.items():
        value, declared = print_value(constant.value), constant.declared
        shown = _code(format_file([replace(declared, reason=None)]))
        constants.append(f"\n## {name}\n\nValue: `{value}`. {_text(declared.reason or '')}\n\n{shown}")
        if readers := [rule for rule in rules.rules.values() if name in rule.words]:
            constants.append(f"Read by {', '.join(map(_link, readers))}.")
    return {path: f"{MARK}\n\n" + "\n".join(lines).rstrip() + "\n" for path, lines in made.items()}


def _page(rule: Rule) -> str:
    """Return the page of a rule: its folder, and for Torch IR, which has most of the rules, its file."""
    path = PurePosixPath(rule.span.source.name)
    parts = path.parts
    inside = parts[parts.index("rules") + 1 : -1] if "rules" in parts else ("yours",)
    return f"groups/{'_'.join((*inside, *((path.stem,) if rule.level == 'torch' else ())))}.md"


def _link(rule: Rule) -> str:
    return f"[`{rule.name}`]({_page(rule)}#{rule.name})"


def _text(text: str) -> str:
    """Return a text of a rule file with everything escaped that Markdown or HTML would interpret, but code."""
    parts = re.split(r"(`[^`|]+`)", text)
    parts[::2] = [re.sub(r"([\\`*_\[\]|])", r"\\\1", html.escape(part, quote=False)) for part in parts[::2]]
    return "".join(parts)


def _code(text: str) -> str:
    fence = "````" if "```" in text else "```"
    return f"{fence}dplc\n{text.rstrip()}\n{fence}\n"


def _firings(cases: Sequence[tuple[str, int, float]], suite: str) -> str:
    if not cases:
        return f"Does not fire in {suite}."
    gain, gains = "", [times for _, _, times in cases if times != 1.0]
    if gains:
        factor = 1 / statistics.geometric_mean(gains)
        gain = f"; geometric mean of the predicted time, with over without the firing: {factor:.2f}"
    each = ", ".join(
        f"{_text(name)} ({count}{f', {times:.2f}x' if times != 1.0 else ''})"
        for name, count, times in sorted(cases, key=lambda one: -one[2])
    )
    return f"Fires in {len(cases)} cases of {suite}{gain}: {each}."


def _words(entries: Iterable[Word]) -> Iterator[str]:
    for name, group in itertools.groupby(entries, lambda entry: entry.name):
        yield f"\n### {name}"
        for entry in group:  # one name may have several signatures, for different levels
            yield f"\n`{entry.signature}` on {', '.join(entry.levels)}\n\n{_text(entry.says)}\n"
            if entry.fields:
                yield entry.field_list


# ---- Skeleton of a rule: its pattern is a part of a program, and its template the same part, for the author to change.
#
# It changes nothing until the author edits the template. `dplc rules test --accept` then writes the result.

AXES = "ijkmnpqrstuv"
EXTENT = re.compile(r"((\w+)(?: in 0\.\.|:(?=\d+=)))(\d+)")  # of a loop, or of an axis with a role
REASON = "say what is wrong where this fails"
STATEMENTS_RULE = """\
## Say what becomes cheaper, and why both sides mean the same.
rule {name} on {level}
match
{pattern}
{guard}rewrite
{pattern}
example "{title}"
{program}
gives
{program}
{refusal}"""
VALUES_RULE = f"""\
## Say what becomes cheaper, and why both sides mean the same. @approx if it rounds differently.
rule {{name}} on tensor
match
{{pattern}}
rewrite
{{pattern}}
# A guard stands before `rewrite`:
#   require known(x)                               else "{REASON}"
# and needs an example that is refused:
#   example "refused" .. gives no "{REASON}"
example "{{title}}"
{{program}}
gives
{{program}}
"""
TORCH_RULE = """\
## Say what the op means. Its fields: {fields}.
rule {name} on torch
match
    {pattern}
rewrite
    {template}
"""
TORCH_EXAMPLE = """\
example "a {op}"
{program}
gives
    pass
"""


# ---- a piece of a dump


def rule_from_lines(name: str, source: Source, level: str, first: int, last: int) -> str:
    """Return a rule whose pattern is lines `first` to `last` (from 1) of a dump at a level. Raises DplcError."""
    text = re.sub(r"^##.*$", "", source.text, flags=re.MULTILINE)  # the head of a dump
    file = source.name.rpartition("/")[2]
    title = "as it is" if file.startswith("--") else f"lines {first} to {last} of {file}"
    what = f"lines {first} to {last} of {source.name}"
    if level == "torch":
        raise DplcError("a rule on torch is of one op", hint="dplc rules new NAME --op OP -c EXPR")
    if level == "tensor":
        graphs: Any = parse(Source(source.name, text))
        graph = next((graph for graph in graphs if any(first <= one.span.line <= last for one in graph.body)), None)
        if graph is None:
            raise DplcError(f"lines {first} to {last} hold no value of a graph")
        pattern = _indented(_values(line for line in graph.body if first <= line.span.line <= last))
        return VALUES_RULE.format(name=name, title=title, pattern=pattern, program=_indented(statement(graph)))
    lines = [line.rstrip() for line in text.splitlines()[first - 1 : last] if line.strip()]
    program = [*itertools.dropwhile(lambda line: line.startswith("#"), lines)]
    if not program:
        raise DplcError(f"there is nothing in {what}")
    lead = len(program[0]) - len(program[0].lstrip())
    if cut := [line for line in program if line[:lead].strip()]:
        what += f" are not a block: `{cut[0].strip()}` stands further out"
        raise DplcError(what, hint="give whole statements, from their first line to their last")
    program = [line[lead:] for line in program]
    level = "module" if program[0].startswith("kernel ") else level
    pattern, guard, refusal = _statements(program)
    return STATEMENTS_RULE.format(
        name=name, level=level, title=title, pattern=pattern, program=_indented(program), guard=guard, refusal=refusal
    )


def _indented(lines: Iterable[str]) -> str:
    return textwrap.indent("\n".join(lines), INDENT)


def _statements(lines: Sequence[str]) -> tuple[str, str, str]:
    """Return a pattern in which extents are variables, with a guard of the first one and an example that it refuses."""
    extents: dict[str, str] = {}  # variable -> its number

    def sized(found: re.Match[str]) -> str:
        before, axis, number = found.groups()
        variable = axis.upper() if axis.upper() != axis else f"{axis}_size"
        same = extents.setdefault(variable, number) == number
        return before + (variable if same else number)

    pattern = _indented(EXTENT.sub(sized, line) for line in lines)
    if not extents:
        return pattern, "", ""
    extent, number = next(iter(extents.items()))
    axis = re.compile(rf"(for {extent} in 0\.\.|\b{extent}:){number}\b", re.IGNORECASE)
    small = [axis.sub(r"\g<1>1", line) for line in lines]
    refusal = f'example "refused"\n{_indented(small)}\ngives no "{REASON}"\n' if small != lines else ""
    return pattern, f'require {extent} > 1                                    else "{REASON}"\n', refusal


def _values(lines: Iterable[s.Syntax]) -> list[str]:
    """Return the last value and those that it is computed from, by name if they are read at their own axes."""
    kept, wanted = list[str](), set[str]()
    for line in reversed([line for line in lines if isinstance(line, s.Assign)]):
        line = replace(_plain_reads(line), types=())
        if not kept or names_in(line.target) & wanted:
            wanted |= names_in(line.value)
            kept = [*statement(line), *kept]
    return kept


def _plain_reads(node: Any) -> Any:
    if isinstance(node, s.Subscript) and all(isinstance(item, s.NameOf | s.AxisItem) for item in node.items):
        return node.base
    if isinstance(node, s.AxisItem):
        return s.NameOf(node.span, node.name)
    return s.rebuilt(node, _plain_reads)


# ---- an op of torch


def rule_of_op(name: str, op: str, graph: TorchGraph | None) -> str:
    """Return a skeleton for a torch op. Raises DplcError.

    graph: a program that calls the op, for the pattern and the example.
    """
    arguments, example = schemas.overloads(op)[0].arguments, ""
    if graph is None:
        given = [_variable(argument.name) for argument in arguments if argument.required]
        pattern, template = f"y = {op}({', '.join(given)})", f"y[is..] = {given[0] if given else 'x'}[is..]"
    else:
        found = next((one for one in graph.body if one.op == op), None)
        if found is None:
            ops = ", ".join(dict.fromkeys(one.op for one in graph.body))
            raise DplcError(f"the program has no `{op}`", notes=(f"it has {ops}",))
        alone = _alone(graph, found)
        pattern = re.sub(r"^(\w+): .*? = ", r"\1 = ", print_torch_op(alone.body[0]))
        template, program = _comprehension(alone), textwrap.indent(print_torch_graph(alone), INDENT)
        example = TORCH_EXAMPLE.format(op=schemas.aten_name(op), program=program)
    fields = ", ".join(map(_argument, arguments))
    return TORCH_RULE.format(name=name, fields=fields, pattern=pattern, template=template) + example


def _comprehension(alone: TorchGraph) -> str:
    """Return a template of the right rank: the first operand, summed over its further axes."""
    made = AXES[: len(alone.outs[0].shape)]
    value = "0.0"
    for read in alone.ins[:1]:
        reduced = AXES[len(made) : len(read.shape)]
        axes = (reduced + made)[len(reduced + made) - len(read.shape) :]
        value = f"{read.name}[{', '.join(axes)}]"
        if reduced:
            value = f"Reduce(add, {', '.join(reduced)}, {value})"
    return f"y[{', '.join(made)}] = {value}"


def _variable(field: str) -> str:
    return "x" if field in ("self", "input") else field if is_variable(field) else f"{field}_"


def _alone(graph: TorchGraph, op: TorchOp) -> TorchGraph:
    """Return the graph of one op with its operands as inputs."""
    types: dict[str, Param | TensorType] = {p.name: p for p in graph.ins}
    types |= {one.dst: one.types[0] for one in graph.body}
    read = dict.fromkeys(value.name for value in walk(op.args) if isinstance(value, Var) and value.name in types)
    ins = {old: Param(f"x{n}" if n else "x", types[old].dtype, types[old].shape) for n, old in enumerate(read)}
    args = substitute(op.args, {old: Var(param.name) for old, param in ins.items()})
    outs = (Param("y", op.types[0].dtype, op.types[0].shape),)
    return TorchGraph("f", tuple(ins.values()), outs, (TorchOp("y", op.op, args, op.types),))
