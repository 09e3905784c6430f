"""A model with sizes on a device: every call at the lengths of its tokens, with weights placed once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ...codegen.launch import Executor
from ...ir.expr import Size
from ..run.inputs import sizes_of_call
from .running import BoundModel, ModelRunner

MOST_KEPT = 4  # lengths whose memory for temporaries, and graphs, stay: as many as an executor keeps graphs


class SizedModel(Protocol):
    """A model with sizes: compiled now (CompiledModel), or read back (Artefact)."""

    @property
    def sizes(self) -> Mapping[str, Size]: ...

    @property
    def inputs_with_sizes(self) -> tuple[tuple[str, int, Size], ...]:
        """The inputs that tell the sizes of a call: (name, dimension, size)."""
        ...

    def at(self, sizes: Mapping[str, int]) -> BoundModel: ...


class ServedModel:
    """A model with sizes; `run` as of a ModelRunner, at any lengths in their ranges.

    weights: {buffer: tensor}; device: torch's, where the executor finds tensors.
    """

    def __init__(self, model: SizedModel, executor: Executor, weights: Mapping[str, Any], device: str = "cpu"):
        self.model, self._executor, self._weights, self._device = model, executor, weights, device
        self._constants: dict[int | None, dict[str, Any]] = {}  # of each plan, placed
        self._runners: dict[tuple[int, ...], ModelRunner] = {}  # by lengths, the latest last

    def run(self, inputs: Mapping[str, Any]) -> list[Any]:
        """The outputs in order, with torch's shapes, given {input: tensor}. Raises DplcError for what does not fit, and
        for a length that was not compiled."""
        return self.runner(sizes_of_call(self.model.inputs_with_sizes, inputs)).run(inputs)

    def runner(self, sizes: Mapping[str, int]) -> ModelRunner:
        """What runs at these lengths; those asked for last keep their memory."""
        key = tuple(sizes.values())
        found = self._runners.pop(key, None) or self._made(self.model.at(sizes))
        self._runners[key] = found
        if len(self._runners) > MOST_KEPT:
            del self._runners[next(iter(self._runners))]
        return found

    def _made(self, made: BoundModel) -> ModelRunner:
        if made.plan not in self._constants:
            self._constants[made.plan] = {name: tensor.to(self._device) for name, tensor in made.constants.items()}
        constants = {**self._constants[made.plan], **self._weights}
        beside = next(iter(self._runners.values()), None)
        return ModelRunner(made.program, made.outputs, self._executor, constants, beside)
