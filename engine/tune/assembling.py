"""The model with the registers that the assembler gives, for candidates that may win."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from ...codegen.build import BuildError, assemble, device_text
from .predicting import Model
from .protocol import Basis, Score
from .space import Candidate

MARGIN = 1.1  # a candidate is assembled if it is predicted to take at most so many times the best
SPILLS = 64  # bytes of a thread that may go to memory and back: beyond, a candidate is refused


@dataclass
class Assembled:
    """An evaluator that may be asked from several threads: NVRTC works while Python goes on."""

    basis: Basis = "predicted"
    best: float | None = None
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, candidate: Candidate) -> Score:
        with self._turn:
            first = Model()(candidate)
            if first.seconds is None or (self.best is not None and first.seconds > MARGIN * self.best):
                return first
            texts = candidate.cuda
        try:
            found = assemble(device_text(list(texts)), candidate.target.arch).kernels
        except BuildError as error:
            return Score(None, self.basis, "failed", error.what)
        used = [found[text.name] for text in texts]
        spilled = max(one.spill_stores + one.spill_loads for one in used)
        if spilled > SPILLS:
            return Score(None, self.basis, "refused", f"{spilled} bytes of spills")
        with self._turn:
            score = Model(tuple(one.registers for one in used))(candidate)
            if score.seconds is not None and (self.best is None or score.seconds < self.best):
                self.best = score.seconds
        return score
