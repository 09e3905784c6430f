"""The Python face: `dplc.compile(module_or_function, example_inputs)`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ..codegen.kernel import Program
from ..codegen.launch import executor
from ..codegen.target import Target, target as find_target
from ..ir.diagnostic import UsageError, did_you_mean
from .compiler import Compilation, compile_captured
from .front.capture import Capture, capture
from .match.trace import Trace
from .reference import run_reference
from .rw.rule import RuleSet as Rules
from .toolchain import Settings, toolchain

DEVICES = ("cuda", "emulator", "reference")
RuleSource = str | Path | Iterable[str | Path] | Rules | None


class Compiled:
    """A compiled function: call it like the original, with tensors of the shapes it was compiled for.

    `.ir(stage)` is the program's text (torch, tensor, loop, tile, kernel, cuda), `.cuda` the CUDA text, `.trace` what
    the rules did, `.timings` milliseconds per stage, `.notes` what the last run did besides launching.
    """

    def __init__(self, compilation: Compilation, device: str):
        self.compilation, self.device = compilation, device
        self.notes: tuple[str, ...] = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's value, computed by the kernels. Raises DplcError for arguments that do not fit."""
        captured = self.compilation.captured
        inputs = captured.signature.bind(args, kwargs)
        return captured.signature.pack(self.run(inputs))

    def run(self, inputs: dict[str, Any]) -> list[Any]:
        """The outputs of the graph in order, with torch's shapes, given {input name: tensor}."""
        captured, plan = self.compilation.captured, self.compilation.plan
        arrays = {**captured.tensors, **inputs}
        if self.device == "reference":
            return run_reference(captured, arrays)
        runner = executor(self.device)
        names = {b.name for b in (*self.program.inputs, *self.program.constants)}
        results = runner.run(self.program, {name: _flat(arrays[name]) for name in names})
        self.notes = runner.notes
        return [results[param.name].reshape(kind.shape) for param, kind in zip(plan.outputs, plan.results, strict=True)]

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


def compile(
    function: Callable[..., Any],
    example_inputs: Sequence[Any],
    *,
    device: str | None = None,
    rules: RuleSource = None,
    target: str | Target | None = None,
    settings: Settings | None = None,
    trace: bool = True,
) -> Compiled:
    """Compile a function or a module for arguments of these shapes and dtypes.

    device: cuda, emulator or reference; the GPU if there is one, else the emulator. rules: a rule file or folder,
    several, or a `dplc.Rules`; beside the built-in ones. target: an architecture (`sm_90a`) or device name. settings:
    {rule: {parameter: value}}. trace: keep what the rules did. Raises DplcError for what cannot be compiled.
    """
    chosen = choose_device(device)
    start = time.perf_counter()
    captured = capture(function, example_inputs)
    elapsed = (time.perf_counter() - start) * 1e3
    return Compiled(compile_program(captured, chosen, rules, target, settings, trace, elapsed), chosen)


def compile_program(
    captured: Capture,
    device: str,
    rules: RuleSource,
    target: str | Target | None,
    settings: Settings | None,
    trace: bool,
    capture_ms: float,
) -> Compilation:
    """Compile what was captured, with the default target of the device."""
    sources = (rules,) if isinstance(rules, (str, Path)) else rules
    machine = target if isinstance(target, Target) else find_target(target or default_target_name(device))
    return compile_captured(captured, toolchain(sources, settings), machine, Trace() if trace else None, capture_ms)


def choose_device(device: str | None) -> str:
    """The device asked for; by default the GPU if torch sees one and PyCUDA is there, else the emulator."""
    if device is not None:
        if device not in DEVICES:
            raise UsageError(f"there is no device `{device}`", notes=(f"devices are {', '.join(DEVICES)}",), hint=did_you_mean(device, DEVICES))
        return device
    return "cuda" if _gpu() else "emulator"


def default_target_name(device: str) -> str | None:
    """The architecture of the GPU that is there, None (sm_80) without one."""
    if device != "cuda" or not _gpu():
        return None
    import torch

    major, minor = torch.cuda.get_device_capability()
    return {9: "sm_90a"}.get(major, f"sm_{major}{minor}")


def _gpu() -> bool:
    import importlib.util

    import torch

    return torch.cuda.is_available() and importlib.util.find_spec("pycuda") is not None


def _flat(tensor: Any) -> Any:
    """A tensor without its size-1 dimensions, as kernels know it; a scalar has one element."""
    shape = [n for n in tensor.shape if n != 1]
    return tensor.detach().reshape(shape or [1])
