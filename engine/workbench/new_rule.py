"""Skeleton of a rule: its pattern is a part of a program, and its template is the same part, for the author to change.

It changes nothing until the author edits the template. `dplc rules test --accept` then writes the result.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...ir import schemas
from ...ir.diagnostic import DplcError, Source
from ...ir.expr import Var
from ...ir.node import walk
from ...ir.program import Param, TensorType
from ...ir.substitute import substitute
from ...ir.text.parse import parse
from ...ir.text.torch import print_torch_graph, print_torch_op
from ...ir.torch import TorchGraph, TorchOp
from ..language import core as s
from ..language.spelling import statement
from ..language.typed_slots import every, is_variable, names_in, rebuilt

AXES = "ijkmnpqrstuv"
REASON = "say what is wrong where this fails"
TENSOR = """\
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
STATEMENTS = """\
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
TORCH = """\
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
        what = f"lines {first} to {last} of {source.name} are no block: `{cut[0].strip()}` stands further out"
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
    told = {"name": name, "level": level, "title": title, "guard": guard, "refusal": refusal}
    body = _indented(pattern)
    return STATEMENTS.format(pattern=body, template=body, program=_indented(lines), **told)


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
    return TENSOR.format(name=name, pattern=pattern, template=pattern, program=program, title=title, reason=REASON)


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
    fields = f"Its fields: {', '.join(map(_field, schemas.overloads(op)[0].arguments))}."
    if found is None:
        given = [a.name for a in schemas.overloads(op)[0].arguments if a.required]
        pattern = f"y = {op}({', '.join(_variable(n) for n in given)})"
        read = next((_variable(n) for n in given), "x")
        return TORCH.format(name=name, fields=fields, pattern=pattern, template=f"y[is..] = {read}[is..]")
    assert graph is not None
    alone = _alone(graph, found)
    pattern = re.sub(r"^(\w+): .*? = ", r"\1 = ", print_torch_op(alone.body[0]))
    head = TORCH.format(name=name, fields=fields, pattern=pattern, template=_comprehension(alone))
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


def _field(argument: schemas.Argument) -> str:
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
