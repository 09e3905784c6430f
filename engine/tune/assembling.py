"""The model with the registers that the assembler gives, for candidates that may win."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field

from ...codegen.build import BuildError, assemble, device_text
from ..schedule.space import ScheduleCandidate, Start
from ..store.protocol import Basis, Score
from .predicting import PredictingEvaluator

AHEAD = 4  # candidates at once, on two cores: not all of a round need the assembler
MARGIN = 1.1  # a candidate may win if the model gives it at most so many times the best


@dataclass
class AssemblingEvaluator:
    """An evaluator that may be asked from several threads: NVRTC works while Python goes on.

    What spills is refused: the model does not know what that costs. best: of each program so far.
    """

    basis: Basis = "predicted"
    best: dict[Start, float] = field(default_factory=dict)
    _turn: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __call__(self, candidate: ScheduleCandidate) -> Score:
        with self._turn:
            first = PredictingEvaluator()(candidate)
            if first.seconds is None or first.seconds > MARGIN * self.best.get(candidate.start, math.inf):
                return first
            texts = candidate.cuda
        try:
            found = assemble(device_text(list(texts)), candidate.target.arch).kernels
        except BuildError as error:
            return Score(None, self.basis, "failed", error.what)
        used = [found[text.name] for text in texts]
        spilled = sum(one.spill_stores + one.spill_loads for one in used)
        if spilled:
            return Score(None, self.basis, "refused", f"{spilled} bytes of registers spilled")
        with self._turn:
            score = PredictingEvaluator(tuple(one.registers for one in used))(candidate)
            if score.seconds is not None:
                self.best[candidate.start] = min(score.seconds, self.best.get(candidate.start, math.inf))
        return score
