"""Measuring a model on a GPU: each distinct kernel alone, and the whole beside eager and torch.compile.

All three use the same weights, made up or loaded, where they lie. Eager is the reference here: float64 of a large model
fits nowhere. A result that is wrong is not timed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ...codegen.launch import Executor
from ...ir.diagnostic import DplcError
from ..bench.records import CaseRecord
from ..bench.running import Clock, compiled_by_torch, timing
from ..bench.tables import nothing_measured, time_kernels
from ..run.judge import judge
from .benching import BenchedModel
from .capturing import plain
from .checking import GATES
from .inputs import TOKENS, called, drawn, extents
from .module import build
from .running import ModelRunner
from .sources import ModelSource


def measure(
    subject: BenchedModel,
    cases: list[CaseRecord],
    weights: Mapping[str, Any],
    executor: Executor,
    clock: Clock,
    device: str,
) -> None:
    """Fill in the measured times of the cases. weights: {name: tensor on the device}."""
    constants = {**weights, **{name: tensor.to(device) for name, tensor in subject.constants.items()}}
    runner = ModelRunner(subject.program, subject.outputs, executor, constants)
    eager = eager_model(subject, weights, device)
    shapes, part = extents(eager, subject.plan.length, subject.plan.batch), called(eager)  # type: ignore[arg-type]
    kinds = {name: ("i64" if name == TOKENS else subject.plan.dtype, shape) for name, shape in shapes.items()}
    inputs = {name: tensor.to(device) for name, tensor in drawn(kinds, subject.plan.config).items()}  # type: ignore[arg-type]
    names, flags = tuple(inputs), plain(part)

    def of_eager(*given: Any) -> Any:
        return part(**dict(zip(names, given, strict=True)), **flags)[0]

    whole = cases[-1]
    whole.measured = nothing_measured()
    try:
        with torch.no_grad():
            first = runner.run(inputs)[0]
            found = judge(
                [first], [of_eager(*inputs.values())], gates=dict.fromkeys(GATES, 2 * GATES[subject.plan.dtype])
            )
            whole.measured.relative_error = found.relative
            if not found.ok:
                whole.measured.wrong = f"off by {found.relative:.1e} from eager: not timed"
                return
            whole.measured.dplc = timing(lambda: runner.run(inputs), clock)
            whole.measured.eager = timing(lambda: of_eager(*inputs.values()), clock)
            whole.measured.torch_compile = compiled_by_torch(of_eager, tuple(inputs.values()), clock)
            runner.run(inputs)
            time_kernels(cases[:-1], runner.program, runner.launch, clock)
    except DplcError as error:
        whole.measured.wrong = error.render()


def eager_model(subject: BenchedModel, weights: Mapping[str, Any], device: str) -> Any:
    """transformers' own module on the same tensors."""
    plan = subject.plan
    model = build(ModelSource(plan.model, dict(plan.config)), plan.dtype, plan.layers)
    named = {name: weights[buffer] for buffer, wanted in subject.weights.items() for name in wanted.names}
    model.load_state_dict(named, strict=False, assign=True)
    for module in model.modules():
        for name, tensor in module.named_buffers(recurse=False):
            module._buffers[name] = tensor.to(device)
    return model
