"""Candidates scored by the analytic model: seconds of all kernels, predicted; registers predicted too, and said so."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.diagnostic import DplcError
from ..model.census import census
from ..model.predict import predict
from .limits import predicted_registers
from .protocol import Basis, Score
from .space import Candidate


@dataclass(frozen=True)
class Model:
    """The evaluator that needs no tools."""

    basis: Basis = "predicted"

    def __call__(self, candidate: Candidate) -> Score:
        try:
            kernels = candidate.kernels
        except DplcError as error:
            return Score(None, self.basis, "refused", error.what)
        seconds, bounds = 0.0, []
        for number, kernel in enumerate(kernels):
            registers = predicted_registers(candidate.tile, number, candidate.target)
            prediction = predict(census(kernel, registers), candidate.target)
            seconds += prediction.seconds
            bounds.append(prediction.binding)
        return Score(seconds, self.basis, "ok", ", ".join(bounds) + "; registers predicted")
