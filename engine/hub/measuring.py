"""Measuring a model on a GPU: each distinct kernel alone, and the whole beside eager and torch.compile.

All three use the same weights, made up or loaded, where they lie. Eager is the reference here: float64 of a large model
fits nowhere. A result that is wrong is not timed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import torch

from ...codegen.launch import Executor
from ...ir.diagnostic import DplcError
from ..judge import judge
from ..suite.measuring import COLD, Clock, compiled_by_torch, device_name, timing
from ..suite.records import CaseRecord, MeasuredRecord, TimingRecord
from .benching import Subject
from .checking import GATES
from .module import build
from .running import ModelRunner
from .sources import Source


def measure(
    subject: Subject, cases: list[CaseRecord], weights: Mapping[str, Any], executor: Executor, clock: Clock, device: str
) -> None:
    """Fill in the measured times of the cases. weights: {name: tensor on the device}."""
    constants = {**weights, **{name: tensor.to(device) for name, tensor in subject.constants.items()}}
    (buffer,) = subject.program.inputs
    shape, words = (subject.plan.batch, subject.plan.length), int(subject.plan.config.get("vocab_size", 2))
    ids = torch.randint(0, words, shape, generator=torch.Generator().manual_seed(0)).to(device)
    runner, eager = (
        ModelRunner(subject.program, subject.outputs, executor, constants),
        eager_model(subject, weights, device),
    )

    def of_eager(tokens: Any) -> Any:
        return eager(input_ids=tokens, use_cache=False, return_dict=False)[0]

    whole = cases[-1]
    whole.measured = _record()
    try:
        with torch.no_grad():
            (logits,) = runner.run({buffer.name: ids})
            found = judge([logits], [of_eager(ids)], gates=dict.fromkeys(GATES, 2 * GATES[subject.plan.dtype]))
            whole.measured.relative_error = found.relative
            if not found.ok:
                whole.measured.wrong = f"off by {found.relative:.1e} from eager: not timed"
                return
            whole.measured.dplc = timing(lambda: runner.run({buffer.name: ids}), clock)
            whole.measured.eager = timing(lambda: of_eager(ids), clock)
            whole.measured.torch_compile = compiled_by_torch(of_eager, (ids,), clock)
            runner.run({buffer.name: ids})
            for case in cases[:-1]:
                case.measured = _record()
                case.measured.dplc = _launches(runner, case, clock)
    except DplcError as error:
        whole.measured.wrong = error.render()


def _launches(runner: ModelRunner, case: CaseRecord, clock: Clock) -> TimingRecord:
    """The first launch of a kernel, timed alone, times the number of its launches."""
    place = next(place for place, kernel in enumerate(runner.program.kernels) if kernel.name == case.name)
    one, count = timing(lambda: runner.launch(place), clock), case.sizes["launches"]
    return msgspec.structs.replace(
        one, median_us=one.median_us * count, low_us=one.low_us * count, high_us=one.high_us * count
    )


def eager_model(subject: Subject, weights: Mapping[str, Any], device: str) -> Any:
    """transformers' own module on the same tensors."""
    plan = subject.plan
    model = build(Source(plan.model, dict(plan.config)), plan.dtype, plan.layers)
    named = {name: weights[buffer] for buffer, wanted in subject.weights.items() for name in wanted.names}
    model.load_state_dict(named, strict=False, assign=True)
    for module in model.modules():
        for name, tensor in module.named_buffers(recurse=False):
            module._buffers[name] = tensor.to(device)
    return model


def _record() -> MeasuredRecord:
    return MeasuredRecord(device=device_name(), l2=COLD, float32=torch.get_float32_matmul_precision())
