"""`dplc doctor --model MODEL`: what of a model dplc runs under torch.compile, what is left to eager, and why."""

from __future__ import annotations

import warnings
from dataclasses import asdict
from typing import Any

import torch

from ...codegen.host_memory import check_room
from ...codegen.target import Target
from ..capture.shares import Shares
from ..models.compiling import ModelShape
from ..models.inputs import TOKENS, called, drawn, extents
from ..models.module import build
from ..models.sources import ModelSource
from ..torch_backend import backend
from .compiling import machine_for
from .model_commands import shape_of, source_of
from .options import Flags
from .show import print_json, write


def report_of_model(model: str, flags: Flags) -> None:
    """Print the shares of a model. Raises DplcError for a model that is not there or fits in no memory here."""
    source, shape, machine = source_of(model), shape_of(flags), machine_for(flags)
    found = shares_of(source, shape, machine)
    if flags.as_json:
        print_json({"model": source.name, "target": machine.arch, **record(found)})
        return
    layers = "all layers" if shape.layers is None else f"{shape.layers} layer{'s' * (shape.layers > 1)}"
    write(f"{source.name}: {layers}, {shape.told}, {shape.dtype}, for {machine.name} ({machine.arch})\n{found}\n")


def shares_of(source: ModelSource, shape: ModelShape, machine: Target) -> Shares:
    """What becomes of a call of the model with its defaults, caches included: compiled, and not run.

    Weights are zeros: PyTorch computes what the parts hand on to each other. Raises DplcError.
    """
    length, batch = shape.numbers
    model = build(source, shape.dtype, shape.layers)
    kinds = {
        name: ("i64" if name == TOKENS else shape.dtype, tuple(map(int, numbers)))  # type: ignore[arg-type]
        for name, numbers in extents(model, length, batch).items()
    }
    allocate(model)
    shares = Shares(runs=False)
    torch._dynamo.reset()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what they say is in the report
        chosen = {"target": machine.arch, "shares": shares}
        torch.compile(called(model), backend=backend, options=chosen)(**drawn(kinds, source.config))
    return shares


def allocate(model: Any) -> None:
    """Zeros for everything on the meta device; what is tied stays tied. Raises DplcError where there is no room."""
    tables = [table for module in model.modules() for table in (module._parameters, module._buffers)]
    empty = {id(t): t for table in tables for t in table.values() if t is not None and t.is_meta}
    check_room(sum(t.numel() * t.element_size() for t in empty.values()), "the weights (--layers 1 takes fewer)")
    made = {
        key: torch.nn.Parameter(zeros, requires_grad=False) if isinstance(t, torch.nn.Parameter) else zeros
        for key, t in empty.items()
        for zeros in (torch.zeros(t.shape, dtype=t.dtype),)
    }
    for table in tables:
        table.update({name: made[id(t)] for name, t in table.items() if id(t) in made})


def record(shares: Shares) -> dict[str, Any]:
    return {
        "ops": shares.all_ops,
        "compiled_ops": shares.ops,
        "predicted_us": shares.all_seconds * 1e6,
        "compiled_us": shares.seconds * 1e6,
        "eager": [asdict(cause) for cause in shares.eager.values()],
    }
