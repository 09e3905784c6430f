"""`dplc ops` and `model fit`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from textwrap import fill

import torch

from ...codegen.target import devices, load_device, target as find_target
from ...ir.diagnostic import UsageError, did_you_mean
from ...ir.schemas import aten_name, names
from ..bench.records import read_results
from ..capture.decompositions import table
from ..language.rule import Rule, RuleSet
from ..rewrite.torch_rules.lower import compile_rules
from ..ruleset import toolchain
from ..tune.fit import CONSTANTS, device_file, fit, fit_points
from .options import Flags
from .output import DEVICE, bars, print_json, print_rows, write, write_file

WIDTH = 120  # of a line of names


def ops(flags: Flags) -> None:
    """Run `dplc ops`: list every op with the rules for it, in the order in which dplc tries them.

    `--missing` lists the ops without rules by cause.
    """
    lowering = toolchain(flags.rules).torch
    if flags.missing:
        if flags.names:
            raise UsageError("`--missing` stands alone: it lists ops that have no rules")
        found, (by_rule, decomposed) = missing(lowering), supported(lowering)
        if flags.as_json:
            print_json({"by rule": by_rule, "by decomposition": decomposed, "missing": found})
            return
        count = sum(map(len, found.values()))
        write(f"{by_rule} ops by rule, {decomposed} more by PyTorch's own decompositions, {count} by nothing:\n")
        for cause, listed in found.items():
            write(fill(f"{cause} ({len(listed)}): {', '.join(listed)}", WIDTH, subsequent_indent="    ") + "\n")
        return
    chosen = operators(lowering)
    for name in flags.names:
        if name not in chosen:
            raise UsageError(f"no rule takes an op `{name}`", hint=did_you_mean(name, chosen))
    chosen = {name: chosen[name] for name in flags.names or chosen}
    if flags.as_json:
        print_json(
            {op: [{"rule": one.name, "location": one.location} for one in rules] for op, rules in chosen.items()}
        )
    else:
        print_rows(("", ""), ((op, ", ".join(rule.name for rule in rules)) for op, rules in chosen.items()))


def operators(rules: RuleSet) -> dict[str, tuple[Rule, ...]]:
    """Return {name in aten: the rules that start from it}, by name."""
    found = {aten_name(op): tuple(c.rule for c in group) for op, group in compile_rules(rules).items()}
    return dict(sorted(found.items()))


# ---- Which ATen ops nothing takes, by cause: what `dplc ops --missing` prints.


# Words of names and tags of torch, by the cause that they show: of several causes the first one counts.
CAUSES = {
    "draw random numbers": "nondeterministic_seeded",
    "spectra and complex numbers": "fft complex stft istft polar real imag",
    "sparse and quantized tensors": "sparse quantize quantized fake dequantize csr coo crow ccol q",
    "derivatives that PyTorch names": "backward grad",
    "names of one device's or library's own kernels": (
        "cudnn mkldnn miopen mps nnpack thnn cuda cufft cslt nested jagged"
    ),
    "give a shape that depends on values": "dynamic_output_shape",
    "give a number of Python": "data_dependent_output",
}


def missing(rules: RuleSet) -> dict[str, list[str]]:
    """Return {cause: the names of ATen ops that neither a rule nor a decomposition lowers}, by name."""
    taken = operators(rules).keys() | _decomposed()
    by_cause: dict[str, list[str]] = {}
    for name in sorted(aten_name(op) for op in names()):
        packet = getattr(torch.ops.aten, name, None)
        if packet is not None and name not in taken:
            tags = {tag.name for word in packet.overloads() for tag in getattr(packet, word).tags}
            parts = tags.union(name.strip("_").split("_"))
            cause = next(
                (cause for cause, words in CAUSES.items() if not parts.isdisjoint(words.split())), "no rule yet"
            )
            by_cause.setdefault(cause, []).append(name)
    return dict(sorted(by_cause.items(), key=lambda entry: len(entry[1])))


def supported(rules: RuleSet) -> tuple[int, int]:
    """Return the number of ops that rules lower, and the number that PyTorch's own decompositions add."""
    ruled = operators(rules).keys()
    return len(ruled), len(_decomposed() - ruled)


def _decomposed() -> set[str]:
    return {overload._schema.name.rpartition("::")[2] for overload in table()}


# ---- model fit


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
