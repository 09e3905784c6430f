"""bench of a model or an artefact."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ...codegen.launch import CudaExecutor
from ...ir.diagnostic import DplcError
from ..bench.bench import BenchSteps
from ..bench.measuring import CudaClock, can_measure
from ..bench.records import CaseRecord
from ..models import artefact, benching, measuring, weights
from ..models.benching import BenchedModel
from ..models.weights import Tell
from ..run.binding import at_binding
from .bench_command import Shown, complain, show_bench
from .bindings import alone, bindings, told
from .compiling import tools_for
from .model_commands import compiled_model
from .options import Flags
from .show import bars, write


def bench_model(
    path: str, flags: Flags, folder: Path | None, shown: Shown, steps: BenchSteps, trust: bool = False
) -> None:
    """`dplc bench MODEL_OR_ARTEFACT`. folder: of weights, else they are made up where something is measured.

    trust: take CUDA of an artefact that dplc did not print.
    """
    measure = functools.partial(_measure, folder=folder) if steps.run and can_measure() else None
    with bars() as tell:
        subjects = list(_subjects(path, flags, shown, trust, tell))
    for heading, subject in subjects:
        with bars() as tell:
            record = benching.bench(subject, tools_for(flags), steps.command, steps.assemble, measure, tell)
        write(heading)
        show_bench(record, benching.PROFILED if shown.profile else benching.LAYOUT, shown)
        complain(record)


def _subjects(path: str, flags: Flags, shown: Shown, trust: bool, tell: Tell) -> Iterator[tuple[str, BenchedModel]]:
    """(a line above it, what is benched): an artefact, or a model at each binding of its sizes."""
    if artefact.is_artefact(Path(path)):
        yield "", benching.of_artefact(artefact.load(Path(path), trust))
        return
    made = compiled_model(path, flags, tell)
    if not (made.compilation.sizes or flags.sizes):
        yield "", benching.of_compiled(made)
        return
    found = bindings(made.compilation.sizes, path, flags.sizes)
    alone(found, shown.as_json or bool(shown.markdown), "--json and --markdown are of one table")
    for binding in found:
        bound = replace(made, shape=made.shape.at(binding), compilation=at_binding(made.compilation, binding))
        yield told(binding) if len(found) > 1 else "", benching.of_compiled(bound)


def _measure(subject: BenchedModel, cases: list[CaseRecord], folder: Path | None) -> None:
    """On the GPU that is here."""
    if folder is None:
        values = weights.make(subject.weights, device="cuda")
    else:
        values = {name: tensor.cuda() for name, tensor in weights.load(folder, subject.weights).items()}
    measuring.measure(subject, cases, values, CudaExecutor(), CudaClock(), "cuda")
    if cases[-1].measured is not None and cases[-1].measured.wrong:
        raise DplcError(cases[-1].measured.wrong)
