"""Programs for every length of a range, held against float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dplc
from dplc.codegen.emulator.executor import EmulatorExecutor
from dplc.codegen.judge import judge
from dplc.codegen.target import target
from dplc.engine.api import rows_of
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import compiler_with
from dplc.engine.run.calls import run_reference

WHOLE = dplc.Dim("s", 1, 4096, hint=512)


def sized(function: Callable[..., Any], *inputs: Any, size: Any = WHOLE, at: int = 0, **options: Any) -> dplc.Compiled:
    """Compile one program for every length: a dimension of each input is the size."""
    return dplc.compile(function, inputs, dynamic=[{at: size}] * len(inputs), **{"rows": (), **options})


def sized_text(text: str, machine: str = "sm_80", rules: Any = None, rows: Any = ()) -> dplc.Compiled:
    """Compile a text for all lengths of its dimensions. Without rows its calls run in checked mode."""
    made = compiler_with(target(machine), rules).compile(capture_text(text))
    program = dplc.Compiled(made, "emulator", rows=rows_of(made, rows))
    program.__dict__["executor"] = EmulatorExecutor(checked=not rows)
    return program


def is_right(program: dplc.Compiled, text: str, **sizes: int) -> bool:
    """Return whether a program has the dtypes of eager, and the values of its text in float64, at some lengths."""
    drawn = capture_text(text, sizes=sizes)
    results = program.run(drawn.tensors)
    assert [result.dtype for result in results] == [own.dtype for own in drawn.reference]
    return judge(results, run_reference(drawn, drawn.tensors)).ok
