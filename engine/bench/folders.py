"""Folders of problems: Python files by the convention of KernelBench, each benchmarked in a process of its own.

A problem defines a class `Model`, `get_init_inputs()` with the arguments of its constructor, and `get_inputs()` with
those of a call. The files are Python that runs here, like the text after `-c`: benchmark folders that you trust.
"""

from __future__ import annotations

import ast
import copy
import itertools
import multiprocessing
import os
import re
import sys
import threading
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor, hub
from torch.utils import _pytree as pytree

from ...codegen.pack.runner import WorkerGone, WorkerProcess, how_it_ended
from ...codegen.pack.worker import serve
from ...ir.diagnostic import DplcError, UsageError
from ..api import Compiled
from ..capture.capture import capture
from ..capture.export import explain
from ..capture.fx_rewrites import tensors
from ..compiler import Compiler, Stopwatch
from ..ruleset import here, processes
from .bench import CompiledCase, CudaClock, describe, measured, run_case
from .cases import import_everything
from .records import CaseRecord, read_json

FUNCTIONS = ("get_init_inputs", "get_inputs")
HINT = f"a problem is a Python file with a class `Model` and the functions {', '.join(FUNCTIONS)}"
PUBLISHED = 'such a file has {"FOLDER": {"NAME.py": {"mean": MILLISECONDS}}}'
Program = tuple[torch.nn.Module, Sequence[object]]  # a module, and the arguments of a call


def problems_of(path: Path) -> dict[str, Path]:
    """Return {name: file} of the problems of a folder, or of a file. Raises UsageError without any.

    A name is a path in the folder, without the suffix. The numbers in names order them.
    """
    path = path.resolve()
    root, files = (path.parent, [path]) if path.is_file() else (path, sorted(path.rglob("*.py"), key=_numbered))
    found = [file for file in files if "class Model(" in file.read_text(errors="replace")]
    if not found:
        raise UsageError(f"{path} holds no problem: no Python file in it defines a class `Model`", hint=HINT)
    return {file.relative_to(root).with_suffix("").as_posix(): file for file in found}


def _numbered(path: Path) -> str:
    return re.sub(r"\d+", lambda number: number[0].zfill(9), str(path))


class PublishedTime(msgspec.Struct):
    """Milliseconds that others measured."""

    mean: float


def published_times(files: Sequence[Path], problems: Mapping[str, Path]) -> dict[str, dict[str, float]]:
    """Return {problem: {title: microseconds}} of files as PUBLISHED; their names without `.json` are the titles.

    Raises UsageError for an unreadable file and for one without a time of any problem, DplcError for another format.
    """
    found: dict[str, dict[str, float]] = {name: {} for name in problems}
    for file in files:
        times = read_json(file, dict[str, dict[str, PublishedTime]], PUBLISHED, "published times")
        known = [(name, path) for name, path in problems.items() if path.name in times.get(path.parent.name, ())]
        if not known:
            raise UsageError(f"--published {file}: it has no time of any of these problems", hint=PUBLISHED)
        for name, path in known:
            found[name][file.stem] = times[path.parent.name][path.name].mean * 1e3
    return found


# ---- a program, at full size or with smaller extents


def build(path: Path, device: str, *extents: int) -> Program:
    """Run the file of a problem with tensors on a device of torch, and return its program in evaluation mode.

    extents: what `shrink` takes. Raises what the file raises, and AttributeError if it does not define a function.
    """
    tree = ast.parse(path.read_text(), path)
    if extents:
        shrink(tree, *extents)
    module: Any = types.ModuleType(path.stem)
    sys.modules[path.stem] = module  # where dataclasses and pickles look
    torch.manual_seed(0)
    with torch.device(device):
        exec(compile(tree, path, "exec"), module.__dict__)
        return module.Model(*module.get_init_inputs()).eval(), module.get_inputs()


DIVISORS = (32, 16, 8, 4, 2, 1)  # of the integers of a file; the first is tried first
STAY = (512, 0)  # divided by the divisor, the integers up to which stay; 0: only exact quotients are taken
BATCH = (2, 0)  # the integers of a batch; 0: they are as other integers, which they may have to equal
LARGEST = 4e6  # elements of inputs
SMALL = 16


def smaller(value: int, divisor: int, kept: int) -> int:
    """Return an extent divided by about `divisor`; powers of two still divide it.

    kept: the values up to which it stays; 0: it is an exact quotient, so that other divisors still divide it.
    """
    if value <= (kept or SMALL):
        return value
    found, unit = value // divisor, min(SMALL, value & -value)
    if not kept:
        return value if value % divisor else found
    return min(max(found, kept), 8 * kept) // unit * unit


def shrink(tree: ast.Module, batch: int, kept: int, divisor: int) -> None:
    """Divide the integers of the variables of a file, and of FUNCTIONS, in its syntax tree. batch: one of BATCH."""
    for node in tree.body:
        variables = ast.unparse(node.targets[0]).lower() if isinstance(node, ast.Assign) else ""
        if variables or getattr(node, "name", "") in FUNCTIONS:
            for leaf in ast.walk(node):
                if isinstance(leaf, ast.Constant) and type(leaf.value) is int:
                    most = batch if batch and "batch" in variables else smaller(leaf.value, divisor, kept)
                    leaf.value = min(most, leaf.value)


def shrunk(path: Path) -> tuple[Program, list[Tensor], str]:
    """Return a program with the smallest extents at which it runs, its results in float64, and what was divided.

    Without results in float64, some of its tensors have a fixed dtype. Raises DplcError if it does not run with smaller
    extents.
    """
    last = DplcError(f"inputs have more than {LARGEST:.0e} elements with any smaller extents")
    wanted = list[Tensor]()
    for batch, most, divisor in itertools.product(BATCH, STAY, DIVISORS):
        try:
            model, args = build(path, "cpu", batch, most // divisor, divisor)
            if sum(leaf.numel() for leaf in tensors(args)) > LARGEST:
                continue
            with torch.no_grad():
                copy.deepcopy(model)(*copy.deepcopy(args))
                with suppress(RuntimeError):
                    wide = pytree.tree_map_only(Tensor, lambda x: x.double() if x.is_floating_point() else x, args)
                    wanted = tensors(copy.deepcopy(model).double()(*copy.deepcopy(wide)))
        except Exception as error:  # extents that do not fit each other
            last = explain(error, None)
        else:
            return (model, args), wanted, f"smaller extents: integers divided by {divisor}"
    raise last


# ---- the processes


@dataclass(frozen=True)
class ProblemWorker:
    """Benchmarks problems in a process that has loaded the rules, each in a fork of that process.

    measure: whether to measure on a GPU; small: whether to run with smaller extents on the emulator.
    """

    compiler: Compiler
    measure: bool
    small: bool

    def __call__(self) -> ProblemWorker:
        """Load everything that forks share. No thread may have begun before a fork."""
        torch.set_num_threads(1)
        self._compiled((torch.nn.ReLU(), (torch.empty(8),)))
        import_everything()
        hub.tqdm.set_lock(threading.RLock())  # its own is a semaphore, which a fork would leave
        return self

    def about(self) -> dict[str, Any]:
        """Return nothing, because this machine is known."""
        return {}

    def answer(self, path: Path) -> tuple[CaseRecord, bool]:
        """Return the record of a problem."""
        ours, theirs = multiprocessing.Pipe(duplex=False)
        child = os.fork()
        if not child:
            try:
                theirs.send(self.record(path))
            finally:
                os._exit(0)
        theirs.close()
        record = None
        with suppress(EOFError):
            record = ours.recv()
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return record or problem(f"its process {how_it_ended(ended, '')}"), False

    def record(self, path: Path) -> CaseRecord:
        """Compile and predict at full size; measure; run with smaller extents. An error is in the record."""
        record = problem()
        sys.path.insert(0, str(path.parent))
        try:
            try:
                program = build(path, "cuda" if self.measure else "meta")
            except RuntimeError:  # its constructor needs values
                program = build(path, "cpu")
            made = self._compiled(program)
            record = made.record
            if self.measure:
                record.measured = measured(made, Compiled(made.compilation, "cuda"), CudaClock())
            if self.small:
                program, wanted, extent = shrunk(path)
                made = self._compiled(program)
                if len(wanted) == len(made.compilation.results):  # nothing is changed in place
                    made.wanted = wanted
                run_case(made)
                record.run = made.record.run
                if record.run:
                    record.run.extent = extent
        except DplcError as error:
            record.error = error.render()
        except Exception as error:
            record.error = explain(error, None).render()
        return record

    def _compiled(self, program: Program) -> CompiledCase:
        watch = Stopwatch()
        with watch.stage("capture"):
            captured = capture(*program, aliases=True)
        made = CompiledCase(replace(self.compiler, calls="missing").compile(captured, watch), problem())
        describe(made)
        return made


def problem(error: str = "") -> CaseRecord:
    """Return the record of a problem without figures."""
    return CaseRecord(name="", operation="module", sizes={}, dtype="", error=error)


def each_record(worker: ProblemWorker, paths: Sequence[Path], limit: float) -> Iterator[CaseRecord]:
    """Yield the records of problems. limit: seconds of each. Raises DplcError if no process can be started."""
    process = WorkerProcess(here(partial(serve, make=worker)), processes())
    try:
        for path in paths:
            process.start()
            try:
                yield process.ask(path, limit)
            except WorkerGone as gone:
                yield problem(f"{gone}")
    finally:
        process.kill()
