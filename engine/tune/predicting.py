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
    """The evaluator that needs no GPU. registers: of a thread, by kernel, where an assembler said so."""

    registers: tuple[int, ...] | None = None
    basis: Basis = "predicted"

    def __call__(self, candidate: Candidate) -> Score:
        try:
            kernels = candidate.kernels
        except DplcError as error:
            return Score(None, self.basis, "refused", error.what)
        known = self.registers or tuple(
            predicted_registers(candidate.tile, number, candidate.target) for number in range(len(kernels))
        )
        found = [predict(census(k, n), candidate.target) for k, n in zip(kernels, known, strict=True)]
        bounds = ", ".join(prediction.binding for prediction in found)
        about = "registers assembled" if self.registers else "registers predicted"
        return Score(sum(prediction.seconds for prediction in found), self.basis, "ok", f"{bounds}; {about}")
