"""Measuring a case on a GPU, beside eager and torch.compile. Only a result that is right is timed.

All three run on the same tensors, by CUDA graphs where they can be captured, so that no Python is timed; before every
run the L2 cache is filled with other data; the median of the runs counts. Without a GPU nothing here claims anything.
"""

from __future__ import annotations

import importlib.util
import statistics
from collections.abc import Callable
from typing import Any, Protocol

import torch

from ...ir.diagnostic import DplcError
from ..api import Compiled as Callee
from ..run.gpu_clock import RunClock, TorchClock, times
from ..run.judge import judge, run_reference
from .compiling import CompiledCase
from .records import MeasuredRecord, TimingRecord

WARM_UP, RUNS = 5, 30
COLD = "cold: filled with other data before every run"


class Clock(RunClock, Protocol):
    """A clock that can also record a run."""

    def graph(self, run: Callable[[], Any]) -> Callable[[], Any] | None:
        """The run recorded once, to be replayed; None where it cannot be."""
        ...


class CudaClock(TorchClock):
    """Times and records on torch's current stream."""

    def graph(self, run: Callable[[], Any]) -> Callable[[], Any] | None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            run()  # what loads modules and allocates for the first time cannot be captured
        torch.cuda.current_stream().wait_stream(side)
        recorded = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(recorded):
                run()
        except RuntimeError:
            torch.cuda.synchronize()
            return None
        return recorded.replay  # type: ignore[no-any-return]


def can_measure() -> bool:
    """Whether there is a GPU, and PyCUDA to launch on it."""
    return torch.cuda.is_available() and importlib.util.find_spec("pycuda") is not None


def timing(run: Callable[[], Any], clock: Clock, warm_up: int = WARM_UP, runs: int = RUNS) -> TimingRecord:
    """The median and the quartiles of some runs, after some that do not count."""
    replay = clock.graph(run)
    timed = replay or run
    seconds = [taken * 1e6 for taken in times(timed, clock, warm_up, runs)]
    low, middle, high = statistics.quantiles(seconds, n=4, method="inclusive")
    how = "CUDA graph" if replay else "one by one"
    return TimingRecord(median_us=middle, low_us=low, high_us=high, runs=runs, launched=how)


def measure_case(compiled: CompiledCase) -> None:
    """Measure a case on the GPU that is there. Needs `can_measure`."""
    if compiled.compilation is None:
        return
    tensors = {name: tensor.cuda() for name, tensor in compiled.subject.inputs().items()}
    compiled.record.measured = measured(compiled, tensors, Callee(compiled.compilation, "cuda"), CudaClock())


def measured(compiled: CompiledCase, tensors: dict[str, Any], callee: Callee, clock: Clock) -> MeasuredRecord:
    """Correctness first, then times. tensors: the inputs where the callee's device finds them."""
    assert compiled.compilation is not None
    record = MeasuredRecord(device=device_name(), l2=COLD, float32=torch.get_float32_matmul_precision())
    captured, function, inputs = compiled.compilation.captured, compiled.subject.function, tuple(tensors.values())
    named = dict(zip(captured.inputs, inputs, strict=True))
    device = inputs[0].device if inputs else torch.device(callee.device)
    constants = {name: tensor.to(device) for name, tensor in captured.tensors.items() if name not in named}
    try:
        results = callee.run(named)
        references = run_reference(captured, {**constants, **named})
        eager = [leaf for leaf in torch.utils._pytree.tree_leaves(function(*inputs)) if isinstance(leaf, torch.Tensor)]
        found = judge(results, references, eager)
        record.relative_error = found.relative
        if not found.ok:
            record.wrong = "the result is wrong: not timed"
            return record
        record.dplc = timing(lambda: callee.run(named), clock)
    except DplcError as error:
        record.wrong = error.render()
        return record
    except RuntimeError as error:  # a kernel that faulted: torch hears of it, and so will every case after this one
        record.wrong = f"the GPU stopped: {str(error).splitlines()[0]}"
        return record
    with torch.no_grad():
        record.eager = timing(lambda: function(*inputs), clock)
        record.torch_compile = compiled_by_torch(function, inputs, clock)
    return record


def compiled_by_torch(function: Callable[..., Any], inputs: tuple[Any, ...], clock: Clock) -> TimingRecord | None:
    """torch.compile's time; None where it does not work here (it needs Triton and a C compiler)."""
    torch._dynamo.reset()
    optimised = torch.compile(function, dynamic=False)
    try:
        optimised(*inputs)
    except Exception:  # whatever is missing or broken in there, our own figures stand
        return None
    return timing(lambda: optimised(*inputs), clock)


def device_name() -> str:
    """The GPU's name."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
