"""Candidates scored by the analytic model: seconds of all kernels, predicted; registers predicted too, and said so.

What is known at a call is its hint there (`tail.predictions`)."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.diagnostic import DplcError
from ..schedule.scheduling import predicted_registers, predictions
from ..schedule.space import ScheduleCandidate
from ..store.protocol import Basis, Score


@dataclass(frozen=True)
class PredictingEvaluator:
    """The evaluator that needs no GPU. registers: of a thread, by kernel, where an assembler said so."""

    registers: tuple[int, ...] | None = None
    basis: Basis = "predicted"

    def __call__(self, candidate: ScheduleCandidate) -> Score:
        try:
            kernels = candidate.kernels
        except DplcError as error:
            return Score(None, self.basis, "refused", error.what)
        numbers = range(len(kernels))
        known = self.registers or [predicted_registers(candidate.tile, n, candidate.target) for n in numbers]
        found = predictions(kernels, candidate.target, known)
        about = f"registers {'assembled' if self.registers else 'predicted'}"
        bounds = ", ".join(prediction.binding for prediction in found)
        return Score(sum(prediction.seconds for prediction in found), self.basis, "ok", f"{bounds}; {about}")
