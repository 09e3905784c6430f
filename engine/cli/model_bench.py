"""bench of a model or an artefact."""

from __future__ import annotations

import functools
import shlex
import sys
from pathlib import Path

import msgspec

from ...codegen.launch import CudaExecutor
from ...ir.diagnostic import DplcError
from ..hub import artefact, benching, measuring, weights
from ..hub.benching import Subject
from ..hub.sources import is_model
from ..suite.measuring import CudaClock, can_measure
from ..suite.page import html as html_page
from ..suite.records import CaseRecord
from ..suite.tables import markdown as markdown_page
from ..suite.tables import print_table
from .bench_command import complain, save_page
from .compiling import tools_for
from .model_commands import How
from .show import bars, write


def wanted(path: str) -> bool:
    """Whether `dplc bench` was given a model or an artefact rather than a suite."""
    return artefact.is_artefact(Path(path)) or is_model(path)


def bench_model(
    path: str, how: How, folder: Path | None, as_json: bool, html: Path | None, markdown: Path | None, run: bool,
    assemble: bool, trust: bool = False,
) -> None:  # fmt: skip
    """`dplc bench MODEL_OR_ARTEFACT`. folder: of weights, else they are made up where something is measured.

    trust: take CUDA of an artefact that dplc did not print.
    """
    with bars() as tell:
        if artefact.is_artefact(Path(path)):
            subject = benching.of_artefact(artefact.load(Path(path), trust))
        else:
            subject = benching.of_compiled(how.compile(path, tell))
        command = " ".join(["dplc", *map(shlex.quote, sys.argv[1:])])
        measure = functools.partial(_measure, folder=folder) if run and can_measure() else None
        tools = tools_for(list(how.rules), list(how.settings))
        record = benching.bench(subject, tools, command, assemble, measure, tell)
    for file, page in ((html, html_page), (markdown, markdown_page)):
        if file is not None:
            save_page(file, page(record, benching.LAYOUT))
    if as_json:
        write(msgspec.json.format(msgspec.json.encode(record), indent=1).decode() + "\n")
    else:
        print_table(record, not sys.stdout.isatty(), benching.LAYOUT)
    complain(record)


def _measure(subject: Subject, cases: list[CaseRecord], folder: Path | None) -> None:
    """On the GPU that is here."""
    if folder is None:
        values = weights.make(subject.weights, device="cuda")
    else:
        values = {name: tensor.cuda() for name, tensor in weights.load(folder, subject.weights).items()}
    measuring.measure(subject, cases, values, CudaExecutor(), CudaClock(), "cuda")
    if cases[-1].measured is not None and cases[-1].measured.wrong:
        raise DplcError(cases[-1].measured.wrong)
