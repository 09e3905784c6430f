"""A slower evaluator for what may win: the others are left with what the model says of them."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from .evidence import AssembledModel
from .predicting import Model
from .protocol import Basis, Evaluator, Score
from .space import Candidate

MARGIN = 1.1  # a candidate may win if the model gives it at most so many times the best


@dataclass
class Promising:
    """An evaluator that may be asked from several threads: assemblers work while Python goes on.

    exact: what is asked about candidates that may win, by default the model on assembled kernels.
    """

    exact: Evaluator = field(default_factory=AssembledModel)
    best: float | None = None
    _turn: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def basis(self) -> Basis:
        return self.exact.basis

    def __call__(self, candidate: Candidate) -> Score:
        with self._turn:
            first = Model()(candidate)
            if first.seconds is None or (self.best is not None and first.seconds > MARGIN * self.best):
                return first
            _ = candidate.cuda  # made here: printing and rewriting are not for several threads
        score = self.exact(candidate)
        with self._turn:
            if score.seconds is not None and (self.best is None or score.seconds < self.best):
                self.best = score.seconds
        return score
