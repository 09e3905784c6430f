"""`dplc rules new`: a rule to fill in, from a program or a piece of one."""

from __future__ import annotations

import re
from pathlib import Path

from ...ir import schemas
from ...ir.diagnostic import DplcError, Source, UsageError, did_you_mean
from ..language.layout import formatted
from ..workbench.new_rule import rule_from_lines, rule_of_op
from .compiling import captured_text, compile_text
from .options import Flags
from .output_file import write_file
from .rewriting import read_dump
from .show import print_note, print_text

LEVELS = ("tensor", "loop", "tile", "kernel")
NOTHING = re.compile(rb"(?!)")  # a file that is there is somebody's


def new_rule(name: str, lines: str | None, op: str | None, level: str, flags: Flags, out: Path | None) -> None:
    """Print a rule, or write it to a file. lines: `FILE.ir:10-20`. Raises UsageError for no program or for several."""
    if not re.fullmatch(r"[a-z_]\w*", name):
        raise UsageError(f"`{name}` is no name of a rule", hint="lower case letters, digits and _")
    if lines is not None:
        text = _from_file(name, lines)
    elif op is not None:
        text = _from_op(name, op, flags)
    else:
        text = _from_expression(name, level, flags)
    text = formatted(Source(f"{name}.rw", text))
    if out is None:
        print_text(text, "rw")
        return
    write_file(out, text, NOTHING)
    print_note(f"note: change what stands behind `rewrite` in {out}, then: dplc rules test --accept {out}")


def _from_file(name: str, lines: str) -> str:
    found = re.fullmatch(r"(.+?)(?::(\d+)(?:-(\d+))?)?", lines)
    assert found is not None
    path = Path(found[1])
    level, _ = read_dump(path)
    text = path.read_text()
    first = int(found[2] or 1)
    last = int(found[3] or found[2] or len(text.splitlines()))
    if not 0 < first <= last:
        raise UsageError(f"--from {lines}: lines count from 1, the first one first")
    if found[2] is None and level not in ("tensor", "torch"):
        first = next((n for n, line in enumerate(text.splitlines(), 1) if line.startswith("kernel ")), 1)
    return rule_from_lines(name, Source(str(path), text), level, first, last)


def _from_expression(name: str, level: str, flags: Flags) -> str:
    if level not in LEVELS:
        raise UsageError(
            f"--level {level}: a piece of a program is on {', '.join(LEVELS)}", hint="for torch say --op OP"
        )
    text = compile_text(flags, values=False).ir(level)
    first = next(n for n, line in enumerate(text.splitlines(), 1) if line.startswith(("graph ", "kernel ")))
    inner = first if level == "tensor" else first + 1
    return rule_from_lines(name, Source(f"--ir {level}", text), level, inner, len(text.splitlines()))


def _from_op(name: str, op: str, flags: Flags) -> str:
    known = {schemas.aten_name(one): one for one in schemas.names()} | {one: one for one in schemas.names()}
    if op not in known:
        raise DplcError(f"torch has no op `{op}`", hint=did_you_mean(op, known))
    graph = captured_text(flags, values=False)[0].graph if flags.text else None
    return rule_of_op(name, known[op], graph)
