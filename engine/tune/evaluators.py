"""Scores of candidates by the analytic model: predicted seconds of all kernels.

Registers are predicted too, and the score reports that. Symbolic dimensions have their example values
(`tail.predictions`).
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field
from typing import Any

from ...codegen.build import assemble, device_text
from ...codegen.compiler import BuildError
from ...ir.diagnostic import DplcError
from ...ir.program import supplied
from ..bench.cases import Assembled, assembled, assembler
from ..bench.running import bound_to, buffers_of, check_ends, ratios
from ..rewrite.statements.compiled import Program
from ..schedule.scheduling import predicted_registers, predictions
from ..schedule.space import ScheduleCandidate
from ..store.records import Basis, Score
from .correctness import draw, launches


@dataclass(frozen=True)
class PredictingEvaluator:
    """Evaluator that needs no GPU. registers: of a thread, by kernel, if an assembler reported them."""

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


# ---- The cost model with the assembler's registers, for candidates that may win.


AHEAD = 4  # candidates at once, on two cores: not all of a round need the assembler
MARGIN = 1.1  # a candidate may win if the model gives it at most so many times the best


@dataclass
class AssemblingEvaluator:
    """Evaluator that several threads may call: NVRTC runs in parallel with Python.

    It rejects a candidate that spills registers, because the model does not know the cost. best: of each program so
    far.
    """

    basis: Basis = "predicted"
    best: dict[Program, float] = field(default_factory=dict)
    _turn: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __call__(self, candidate: ScheduleCandidate) -> Score:
        with self._turn:
            first = PredictingEvaluator()(candidate)
            if first.seconds is None or first.seconds > MARGIN * self.best.get(candidate.loops, math.inf):
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
                self.best[candidate.loops] = min(score.seconds, self.best.get(candidate.loops, math.inf))
        return score


# ---- Figures of the assembler, the disassembler and the emulator, stored with a schedule that no GPU measured.


Details = dict[str, Any]


def evidence(candidate: ScheduleCandidate, emulate: bool = True) -> Details:
    """Return figures of a candidate in addition to its score.

    emulate: count accesses, which builds and runs two blocks of each kernel. Raises DplcError if a tool rejects a
    kernel.
    """
    details: Details = {}
    if assembler():
        details |= of_assembler([assembled(text, candidate.target.arch) for text in candidate.cuda])
    if emulate:
        details |= of_emulator(candidate)
    return details


def of_assembler(found: list[Assembled]) -> Details:
    """Return registers and spills; with a disassembler also instructions and the share of FFMA in the hot loops."""
    details: Details = {
        "registers": [one.registers for one in found], "spills": [one.spill_bytes for one in found],
        "registers_by": assembler(),
    }  # fmt: skip
    if all(one.instructions is not None for one in found):
        details["ffma_share"] = [one.ffma_share for one in found]
        details["instructions"] = [one.instructions for one in found]
    return details


def of_emulator(candidate: ScheduleCandidate) -> Details:
    """Return two ratios for each kernel, counted in its first and last block.

    They are the least sectors of global memory divided by the sectors, and the wavefronts of shared memory divided by
    the least wavefronts.
    """
    loops, kernels, cuda = candidate.as_a_rule
    program = launches(loops, kernels, cuda)
    texts = {text.name: text for text in cuda}
    buffers = buffers_of(program, {param.name: draw(param) for param in supplied(loops)})
    found = [ratios(check_ends(texts[x.kernel.name], bound_to(x, buffers))) for x in program.launches()]
    outside, inside = map(list, zip(*found, strict=True))
    said = "emulator, first and last block of each kernel"
    return {"sector_efficiency": outside, "wavefront_ratio": inside, "counters_by": said}
