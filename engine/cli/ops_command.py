"""`dplc ops`: the ops by rule, and the table of op and dtype."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from textwrap import fill

from ...codegen.target import target as find_target
from ...ir.diagnostic import DplcError, InternalError, UsageError, did_you_mean
from ..language.rule import Rule
from ..ruleset import Toolchain, toolchain
from ..verify.operators import COLUMNS, CRASHED, WRONG, OperatorVerdict, judged, missing, operators, supported
from .show import bars, print_json, write

WIDTH = 120  # of a line of names
Chosen = dict[str, tuple[Rule, ...]]


def list_ops(names: list[str], paths: list[Path], as_json: bool) -> None:
    """Every op with the rules that take it, tried in this order."""
    chosen = _chosen(names, toolchain(paths))
    if as_json:
        print_json({op: [{"rule": r.name, "location": r.location} for r in rules] for op, rules in chosen.items()})
        return
    width = max(map(len, chosen), default=0)
    for op, rules in chosen.items():
        write(f"{op:{width}}  {', '.join(rule.name for rule in rules)}\n")


def list_missing(paths: list[Path], as_json: bool) -> None:
    """Every op of ATen that nothing takes, by cause, after how many are taken."""
    rules = toolchain(paths).torch
    found, (by_rule, decomposed) = missing(rules), supported(rules)
    if as_json:
        print_json({"by rule": by_rule, "by decomposition": decomposed, "missing": found})
        return
    count = sum(map(len, found.values()))
    write(f"{by_rule} ops by rule, {decomposed} more by PyTorch's own decompositions, {count} by nothing:\n")
    for cause, names in found.items():
        write(fill(f"{cause} ({len(names)}): {', '.join(names)}", WIDTH, subsequent_indent="    ") + "\n")


def tabulate(names: list[str], paths: list[Path], target: str | None, as_json: bool) -> None:
    """What becomes of every op in every dtype. Raises DplcError if a value is wrong or dplc itself fails."""
    tools = toolchain(paths)
    chosen, machine = _chosen(names, tools), find_target(target)
    table: dict[str, dict[str, OperatorVerdict]] = {}
    width = max(map(len, chosen), default=0)
    if not as_json:
        write(f"{'':{width}}  {_row(COLUMNS)}\n")
    with bars() as told:
        for done, (op, rules) in enumerate(chosen.items()):
            told(op, done, len(chosen))
            table[op] = {dtype: judged(rules, dtype, tools, machine) for dtype in COLUMNS}
            if not as_json:
                write(f"{op:{width}}  {_row([verdict.word for verdict in table[op].values()])}\n")
    if as_json:
        print_json({op: {d: {"is": v.word, "why": v.why} for d, v in row.items()} for op, row in table.items()})
    else:
        count = Counter(verdict.word for row in table.values() for verdict in row.values())
        write(f"{len(table)} ops: {', '.join(f'{n} {word}' for word, n in count.most_common())}\n")
    _complain(table)


def _row(words: list[str] | tuple[str, ...]) -> str:
    return "".join(f"{word:9}" for word in words).rstrip()


def _complain(table: dict[str, dict[str, OperatorVerdict]]) -> None:
    bad = [(op, d, v) for op, row in table.items() for d, v in row.items() if v.word in (WRONG, CRASHED)]
    if not bad:
        return
    ours = any(verdict.word == CRASHED for _, _, verdict in bad)
    notes = [f"{op} of {dtype}: {verdict.word}: {verdict.why}" for op, dtype, verdict in bad]
    raise (InternalError if ours else DplcError)("some ops do not hold", notes=notes)


def _chosen(names: list[str], tools: Toolchain) -> Chosen:
    every = operators(tools.torch)
    for name in names:
        if name not in every:
            raise UsageError(f"no rule takes an op `{name}`", hint=did_you_mean(name, every))
    return {name: every[name] for name in names} if names else every
