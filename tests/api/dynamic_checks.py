"""Programs for every length of a range, held against float64."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from torch import nn

import dplc
from dplc.codegen.emulator.executor import EmulatorExecutor
from dplc.engine.run.calls import accepted

WHOLE = dplc.Dim("s", 1, 4096, hint=512)


def sized(function: Callable[..., Any], *inputs: Any, size: Any = WHOLE, at: int = 0, **options: Any) -> dplc.Compiled:
    """Compile one program for every length: a dimension of each input is the size."""
    return dplc.compile(function, inputs, dynamic=[{at: size}] * len(inputs), **{"rows": (), **options})


def is_right(program: Any, function: Callable[..., Any], *inputs: Any) -> bool:
    """Return whether a call gives what the function or module gives in float64."""
    wide = copy.deepcopy(function).double() if isinstance(function, nn.Module) else function
    given = (x.double() if x.is_floating_point() else x for x in inputs)
    return accepted([program(*inputs)], [wide(*given).detach()])


def checked(program: dplc.Compiled) -> dplc.Compiled:
    """Run its calls in checked mode: no access leaves its buffer, no thread races."""
    program.__dict__["executor"] = EmulatorExecutor(checked=True)
    return program
