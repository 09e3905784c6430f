"""bench of a model or an artefact."""

from __future__ import annotations

import functools
from pathlib import Path

from ...codegen.launch import CudaExecutor
from ...ir.diagnostic import DplcError
from ..bench.bench import BenchSteps
from ..bench.measuring import CudaClock, can_measure
from ..bench.records import CaseRecord
from ..models import artefact, benching, measuring, weights
from ..models.benching import BenchedModel
from ..models.sources import is_model
from .bench_command import Shown, complain, show_bench
from .compiling import tools_for
from .model_commands import compiled_model
from .options import Options
from .show import bars


def wanted(path: str) -> bool:
    """Whether `dplc bench` was given a model or an artefact rather than a suite."""
    return artefact.is_artefact(Path(path)) or is_model(path)


def bench_model(
    path: str, options: Options, folder: Path | None, shown: Shown, steps: BenchSteps, trust: bool = False
) -> None:
    """`dplc bench MODEL_OR_ARTEFACT`. folder: of weights, else they are made up where something is measured.

    trust: take CUDA of an artefact that dplc did not print.
    """
    with bars() as tell:
        if artefact.is_artefact(Path(path)):
            subject = benching.of_artefact(artefact.load(Path(path), trust))
        else:
            subject = benching.of_compiled(compiled_model(path, options, tell))
        measure = functools.partial(_measure, folder=folder) if steps.run and can_measure() else None
        record = benching.bench(subject, tools_for(options), steps.command, steps.assemble, measure, tell)
    show_bench(record, benching.PROFILED if shown.profile else benching.LAYOUT, shown)
    complain(record)


def _measure(subject: BenchedModel, cases: list[CaseRecord], folder: Path | None) -> None:
    """On the GPU that is here."""
    if folder is None:
        values = weights.make(subject.weights, device="cuda")
    else:
        values = {name: tensor.cuda() for name, tensor in weights.load(folder, subject.weights).items()}
    measuring.measure(subject, cases, values, CudaExecutor(), CudaClock(), "cuda")
    if cases[-1].measured is not None and cases[-1].measured.wrong:
        raise DplcError(cases[-1].measured.wrong)
