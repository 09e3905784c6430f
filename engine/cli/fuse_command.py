"""`dplc fuse`: the candidates of a program side by side; any of them at any stage, or run."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.diagnostic import DplcError, UsageError
from ..compiler import Compilation, CompileOptions, Values, compile_captured, values_of
from ..explore.candidates import exploration
from ..explore.explore import ExplorationOptions
from ..kernels.kernels import Candidate
from .commands import report_run
from .compiling import captured_text, machine_for, print_stage, stage_named, tools_for
from .options import Flags
from .show import print_json, print_remark, progress, write

SHOWN = 4


@dataclass(frozen=True)
class FuseView:
    """What is to be shown: the candidates, or one of them at a stage, or its run."""

    explore: bool
    top: int
    candidate: int | None
    ir: str | None
    run: bool
    device: str | None


def fuse_expression(flags: Flags, wanted: FuseView) -> None:
    """`dplc fuse`"""
    if wanted.ir is not None:
        stage_named(wanted.ir)
    device = wanted.device if wanted.run else None
    tools, machine = tools_for(flags, device), machine_for(flags, device)
    captured, elapsed = captured_text(flags, values=wanted.run)
    values = values_of(captured, CompileOptions(tools, machine))
    top = max(wanted.top, wanted.candidate or 1)
    made = exploration(values, tools, machine, ExplorationOptions(top=top))
    with progress("exploring"):
        found = made.explained(made.candidates()) if wanted.explore else [made.by_rules()]
    for note in made.notes if wanted.explore else ():
        print_remark(note)
    if wanted.ir is not None or wanted.run:
        chosen = _chosen(found, wanted.candidate or 1)
        compilation = compile_captured(captured, CompileOptions(tools, machine, explore=lambda _: chosen), elapsed)
        show_one(compilation, wanted, flags.as_json)
    elif flags.as_json:
        print_json(
            {"candidates": [candidate.record() for candidate in found], "target": machine.arch, "basis": "predicted"}
        )
    else:
        write(table(found, machine.name, values))


def _chosen(found: list[Candidate], number: int) -> Candidate:
    if not 0 < number <= len(found):
        raise UsageError(f"--candidate {number}: there are {len(found)}", hint="--explore --top K finds more")
    if found[number - 1].problem:
        raise DplcError(f"candidate {number} cannot be lowered: {found[number - 1].problem}")
    return found[number - 1]


def show_one(compilation: Compilation, wanted: FuseView, as_json: bool) -> None:
    """A candidate at a stage, or its run."""
    if wanted.ir is not None:
        print_stage(compilation, wanted.ir)
    if wanted.run:
        report_run(compilation, wanted.device, None, as_json)


def table(found: list[Candidate], device: str, values: Values) -> str:
    """The candidates as text: kernels, bytes, predicted time, and the rules that made the difference."""
    lines = [f"{'':>3} {'kernels':>7} {'moved':>10} {'predicted':>12}  made by"]
    for number, c in enumerate(found, 1):
        made = "the rules in their order" if c.label == "rules" else ", ".join(c.rules) or "other cuts"
        if c.prepared:
            made += f" ({len(c.prepared)} weight{'s' * (len(c.prepared) > 1)} computed at load time)"
        if c.problem:
            made += f"; cannot be lowered: {c.problem}"
        lines.append(f"{number:>3} {c.kernels:>7} {c.bytes / 1e6:>7.2f} MB {c.predicted_us:>9.1f} us  {made}")
    lines.append(
        f"times are predicted for {device} by the model, of the kernels that the rules make; nothing was measured"
    )
    return "\n".join(lines) + "\n"
