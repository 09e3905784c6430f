"""A slower evaluator for what may win: the others are left with what the model says of them."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field

from .evidence import AssembledModel
from .predicting import Model
from .protocol import Basis, Evaluator, Score
from .space import Candidate, Start

MARGIN = 1.1  # a candidate may win if the model gives it at most so many times the best


@dataclass
class Promising:
    """An evaluator that may be asked from several threads: assemblers work while Python goes on.

    exact: what is asked about candidates that may win, by default the model on assembled kernels. best: of each
    program so far.
    """

    exact: Evaluator = field(default_factory=AssembledModel)
    best: dict[Start, float] = field(default_factory=dict)
    _turn: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def basis(self) -> Basis:
        return self.exact.basis

    def __call__(self, candidate: Candidate) -> Score:
        with self._turn:
            first = Model()(candidate)
            if first.seconds is None or first.seconds > MARGIN * self.best.get(candidate.start, math.inf):
                return first
            _ = candidate.cuda  # made here: printing and rewriting are not for several threads
        score = self.exact(candidate)
        with self._turn:
            if score.seconds is not None:
                self.best[candidate.start] = min(score.seconds, self.best.get(candidate.start, math.inf))
        return score
