"""Who judges candidates: a GPU of the target's kind if there is one, else the model; on assembled kernels if asked."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ...codegen.target import Target
from ...ir.diagnostic import DplcError
from ..suite.assembling import assembler
from .assembling import Promising
from .measure import measuring
from .predicting import Model
from .protocol import Evaluator


@contextlib.contextmanager
def evaluator_for(target: Target, predict: bool = False, assemble: bool = False) -> Iterator[Evaluator]:
    """The evaluator; what it started ends with it. Raises DplcError where there is no assembler for `assemble`."""
    found = None if predict or assemble else measuring(target)
    if found is not None:
        with found as evaluator:
            yield evaluator
        return
    if assemble and not assembler():
        raise DplcError("--assemble needs an assembler", hint="pip install nvidia-cuda-nvrtc, or put nvcc on the PATH")
    yield Promising() if assemble else Model()
