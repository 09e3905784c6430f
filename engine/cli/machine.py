"""`dplc ops` and `model fit`."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from textwrap import fill

from ...codegen.target import devices, load_device
from ...codegen.target import target as find_target
from ...ir.diagnostic import DplcError, InternalError, UsageError, did_you_mean
from ..bench.records import read_results
from ..compiler import Compiler, compiler_with
from ..language.rule import Rule
from ..tune.fit import CONSTANTS, device_file, fit, fit_points
from ..verify.operators import COLUMNS, CRASHED, WRONG, OperatorVerdict, judged, missing, operators, supported
from .options import Flags
from .output import DEVICE, bars, print_json, print_rows, write, write_file

WIDTH = 120  # of a line of names


def ops(flags: Flags) -> None:
    """Run `dplc ops`: list every op with the rules for it, in the order in which dplc tries them.

    `--missing` lists the ops without rules by cause. `--dtypes` prints another table.
    """
    compiler = compiler_with(find_target(flags.target), flags.rules)
    lowering = compiler.tools.torch
    if flags.missing:
        if flags.names:
            raise UsageError("`--missing` stands alone: it lists ops that have no rules")
        found, (by_rule, decomposed) = missing(lowering), supported(lowering)
        if flags.as_json:
            print_json({"by rule": by_rule, "by decomposition": decomposed, "missing": found})
            return
        count = sum(map(len, found.values()))
        write(f"{by_rule} ops by rule, {decomposed} more by PyTorch's own decompositions, {count} by nothing:\n")
        for cause, names in found.items():
            write(fill(f"{cause} ({len(names)}): {', '.join(names)}", WIDTH, subsequent_indent="    ") + "\n")
        return
    chosen = operators(lowering)
    for name in flags.names:
        if name not in chosen:
            raise UsageError(f"no rule takes an op `{name}`", hint=did_you_mean(name, chosen))
    chosen = {name: chosen[name] for name in flags.names or chosen}
    if flags.dtypes:
        _tabulate(flags, compiler, chosen)
    elif flags.as_json:
        print_json(
            {op: [{"rule": one.name, "location": one.location} for one in rules] for op, rules in chosen.items()}
        )
    else:
        print_rows(("", ""), ((op, ", ".join(rule.name for rule in rules)) for op, rules in chosen.items()))


def _tabulate(flags: Flags, compiler: Compiler, chosen: Mapping[str, tuple[Rule, ...]]) -> None:
    """Print the verdict on every op in every dtype. Raises DplcError if a value is wrong or dplc itself fails."""
    table: dict[str, dict[str, OperatorVerdict]] = {}
    width = max(map(len, chosen), default=0)
    if not flags.as_json:
        write(f"{'':{width}}  {_row(COLUMNS)}\n")
    with bars() as show:
        for done, (op, rules) in enumerate(chosen.items()):
            show(op, done, len(chosen))
            table[op] = judged(rules, COLUMNS, compiler)
            if not flags.as_json:
                write(f"{op:{width}}  {_row([verdict.word for verdict in table[op].values()])}\n")
    verdicts = [(f"{op} of {dtype}", verdict) for op, row in table.items() for dtype, verdict in row.items()]
    count = Counter(verdict.word for _, verdict in verdicts)
    if flags.as_json:
        print_json({op: {d: {"is": v.word, "why": v.why} for d, v in row.items()} for op, row in table.items()})
    else:
        write(f"{len(table)} ops: {', '.join(f'{n} {word}' for word, n in count.most_common())}\n")
    notes = [f"{what}: {one.word}: {one.why}" for what, one in verdicts if one.word in (WRONG, CRASHED)]
    if notes:
        raise (InternalError if count[CRASHED] else DplcError)("some ops do not hold", notes=notes)


def _row(words: Iterable[str]) -> str:
    return "".join(f"{word:9}" for word in words).rstrip()


def fit_model(flags: Flags) -> None:
    """Run `dplc model fit`. Raises DplcError for too few measurements."""
    file = flags.file or Path()
    results = read_results(file)
    if flags.target:
        base = find_target(flags.target)
    else:  # that of the GPU that produced the measurements
        found = [one for one in map(load_device, devices()) if f"{results.gpu} ".startswith(f"{one.name} ")]
        if not found:
            what = f"{file}: no device file is for `{results.gpu}`"
            raise UsageError(what, hint="--target says which one to start from")
        base = found[0]
    with bars("fitting"):
        fitted, agreements = fit(fit_points(results), base)
    machine = dataclasses.replace(fitted, name=results.gpu)
    rows = [{"points": points, "constants": which, **row._asdict()} for points, which, row in agreements]
    if flags.out:
        write_file(flags.out, device_file(machine, base.name), DEVICE)
    if flags.as_json:
        values = {name: {"fitted": getattr(machine, name), "published": getattr(base, name)} for name in CONSTANTS}
        print_json({"gpu": machine.name, "base": base.name, "constants": values, "rows": rows})
        return
    for points, which, row in agreements:
        tau = "    -" if row.tau is None else f"{row.tau:5.2f}"
        numbers = f"error {row.error:6.1%}  predicted/measured {row.ratio:5.2f}  loss {row.loss:5.2f}x"
        write(f"{points:10} {which:20} {row.variants:5} variants  tau {tau}  {numbers}\n")
    for name in CONSTANTS:
        write(f"{name:24} {getattr(base, name):10.4g} published {getattr(machine, name):10.4g} fitted\n")
