"""The Python face: `dplc.compile(module_or_function, example_inputs)`."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ..codegen.arrays import as_tensor, is_tensor
from ..codegen.kernel import Program
from ..codegen.launch import Executor, executor
from ..codegen.target import Target
from ..codegen.target import target as find_target
from ..ir.diagnostic import UsageError, did_you_mean
from ..ir.program import Param
from ..ir.schemas import DTYPES
from .compiler import Compilation, buffer, compile_captured
from .exploring import chosen as best
from .front.capture import capture
from .inputs import Parameters, Weights, check_arguments
from .match.trace import Trace
from .prepare import Preparation
from .reference import run_reference
from .rw.pipeline import describe
from .rw.rule import RuleSet
from .toolchain import Settings, Toolchain, toolchain
from .tune.candidates import remembered
from .tune.recorded import book_for

DEVICES = ("cuda", "emulator", "reference")


class Rules:
    """The built-in rules with the .rw files and folders of a user laid over them, read and checked once.

    `Rules("mine.rw", "folder")`; printed, it is the passes in order. Raises DplcError for a file that does not check.
    """

    def __init__(self, *paths: str | Path):
        self.rules: RuleSet = toolchain(paths).rules

    def __contains__(self, name: str) -> bool:
        return name in self.rules.rules

    def __str__(self) -> str:
        return describe(toolchain(self.rules).pipelines)


RuleSource = str | Path | Iterable[str | Path] | Rules | RuleSet | None


class Compiled:
    """A compiled function: call it like the original, with tensors of the shapes it was compiled for.

    `.ir(stage)` is the program's text (torch, tensor, loop, tile, kernel, cuda), `.cuda` the CUDA text, `.trace` what
    the rules did, `.timings` milliseconds per stage, `.notes` what the last run did besides launching.
    """

    def __init__(self, compilation: Compilation, device: str, function: Callable[..., Any] | None = None):
        self.compilation, self.device = compilation, device
        self._weights = Weights(function, compilation.captured) if function is not None else None
        self._parameters = Parameters(function) if function is not None else None
        self.notes: tuple[str, ...] = ()
        self._placed: dict[str, Any] = {}  # constants, where the device can read them
        self._preparation = Preparation(compilation.prepared)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's value, computed by the kernels. Raises DplcError for arguments that do not fit."""
        captured = self.compilation.captured
        if self._parameters is not None:
            args, kwargs = self._parameters.bind(args, kwargs)
        inputs = captured.signature.bind(args, kwargs)
        check_arguments(captured, inputs)
        results = self.run(inputs)
        if self.device == "reference":
            kinds = (getattr(torch, DTYPES[kind.dtype]) for kind in self.compilation.plan.results)
            results = [result.to(kind) for result, kind in zip(results, kinds, strict=True)]
        return captured.signature.pack(results)

    def run(self, inputs: Mapping[str, Any]) -> list[Any]:
        """The outputs of the graph in order, with torch's shapes, given {input name: tensor}.

        What is not given is what it was when the program was captured. The reference computes in float64.
        """
        captured, plan = self.compilation.captured, self.compilation.plan
        weights = self._weights.now() if self._weights is not None else {}
        tensors = {**captured.tensors, **weights, **inputs}
        if self.device == "reference":
            return run_reference(captured, tensors)
        tensors |= self._preparation.now(tensors)
        runner = self.executor
        names = [b.name for b in (*self.program.inputs, *self.program.constants)]
        arrays = {name: self._place(name, tensors[name]) for name in names}
        results = runner.run(self.program, arrays)
        self.notes = runner.notes
        pairs = zip(plan.outputs, plan.results, strict=True)
        return [_tensor(param, results[param.name]).reshape(kind.shape) for param, kind in pairs]

    def _place(self, name: str, tensor: Any) -> Any:
        """A tensor as kernels know it. Constants were computed on the CPU: they move once."""
        if self.device != "cuda" or self.compilation.captured.kinds.get(name) != "constant":
            return _flat(tensor)
        if name not in self._placed:
            self._placed[name] = _flat(tensor.cuda())
        return self._placed[name]

    @functools.cached_property
    def executor(self) -> Executor:
        """What launches the kernels, made when first needed. Raises DplcError for a device that is not there."""
        return executor(self.device)

    @property
    def program(self) -> Program:
        return self.compilation.program

    def ir(self, stage: str) -> str:
        return self.compilation.ir(stage)

    @property
    def cuda(self) -> str:
        return self.compilation.cuda

    @property
    def trace(self) -> Trace | None:
        return self.compilation.trace

    @property
    def timings(self) -> dict[str, float]:
        return self.compilation.timings

    def __repr__(self) -> str:
        kernels = ", ".join(kernel.name for kernel in self.compilation.cuda_kernels)
        return f"<dplc.Compiled for {self.device}: {kernels}>"


def compile(
    function: Callable[..., Any],
    example_inputs: Sequence[Any],
    *,
    device: str | None = None,
    rules: RuleSource = None,
    target: str | Target | None = None,
    settings: Settings | None = None,
    trace: bool = True,
    db: str | Path | bool | None = None,
    explore: bool = False,
) -> Compiled:
    """Compile a function or a module for arguments of these shapes and dtypes.

    device: cuda, emulator or reference; the GPU if there is one, else the emulator. rules: a rule file or folder,
    several, or a `dplc.Rules`; beside the built-in ones. target: an architecture (`sm_90a`) or device name. settings:
    {rule: {parameter: value}}. trace: keep what the rules did. db: the tuning store whose schedules are replayed (None:
    the user's own; False: none; `Compiled.compilation.origins` says what came of it). explore: search spellings
    and cuts together, and take the best candidate. Raises DplcError for what cannot be compiled.
    """
    chosen = choose_device(device)
    tools = tools_of(rules, settings)
    machine = target if isinstance(target, Target) else find_target(target or default_target_name(chosen))
    start = time.perf_counter()
    captured = capture(function, example_inputs)
    elapsed = (time.perf_counter() - start) * 1e3
    book = book_for(tools, Path(db) if isinstance(db, (str, Path)) else None, db is not False)
    choose = remembered(book, tools, machine, best(tools, machine, book=book) if explore else None)
    record = Trace() if trace else None
    compilation = compile_captured(captured, tools, machine, record, elapsed, book=book, explore=choose)
    return Compiled(compilation, chosen, function)


def tools_of(rules: RuleSource, settings: Settings | None) -> Toolchain:
    """The toolchain of what a caller gave. Raises DplcError for rules that do not check."""
    if isinstance(rules, Rules):
        return toolchain(rules.rules, settings)
    return toolchain((rules,) if isinstance(rules, (str, Path)) else rules, settings)


def choose_device(device: str | None) -> str:
    """The device asked for; by default the GPU if torch sees one and PyCUDA is there, else the emulator."""
    if device is not None:
        if device not in DEVICES:
            raise UsageError(
                f"there is no device `{device}`",
                notes=(f"devices are {', '.join(DEVICES)}",),
                hint=did_you_mean(device, DEVICES),
            )
        return device
    return "cuda" if _gpu() else "emulator"


def default_target_name(device: str) -> str | None:
    """The architecture of ours that is closest to the GPU that is there, None (sm_80) without one."""
    if device != "cuda" or not _gpu():
        return None
    major, minor = torch.cuda.get_device_capability()
    return {8: "sm_89" if minor else "sm_80", 9: "sm_90a", 10: "sm_120", 12: "sm_120"}.get(major)


def _gpu() -> bool:
    import importlib.util

    return torch.cuda.is_available() and importlib.util.find_spec("pycuda") is not None


def _tensor(param: Param, result: Any) -> Any:
    """A result as a tensor, also of a program that is given none."""
    return result if is_tensor(result) else as_tensor(buffer(param), result)


def _flat(tensor: Any) -> Any:
    """A tensor without its size-1 dimensions, as kernels know it; a scalar has one element."""
    shape = [n for n in tensor.shape if n != 1]
    return tensor.detach().reshape(shape or [1])
