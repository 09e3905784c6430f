"""Running a compiled model: its weights placed once, then inputs to outputs as often as one likes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ...codegen.kernel import Program
from ...codegen.launch import Executor, Session
from ...ir.diagnostic import DplcError
from ...ir.expr import Size
from ...ir.schemas import DTYPES
from ...ir.sizes import Binding
from ..run.inputs import sizes_of_call


@dataclass(frozen=True)
class TorchOutput:
    """An output of a program: its buffer, and the dtype and shape it has in torch."""

    buffer: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class BoundModel:
    """Model at a binding of its sizes.

    constants: {buffer: tensor} of those that no weight file holds; plan: the index of the plan in the table, None for
    that of the whole range.
    """

    program: Program
    outputs: tuple[TorchOutput, ...]
    constants: Mapping[str, Any]
    plan: int | None = None


class ModelRunner:
    """Program on a device with its weights and constants.

    constants: {buffer: tensor} with torch's shapes, for every constant of the program; where the executor's device
    finds them. The optional runner on the same executor shares the memory of weights that both were given. Raises
    LaunchError for a constant that is missing or does not fit.
    """

    def __init__(
        self,
        program: Program,
        outputs: Sequence[TorchOutput],
        executor: Executor,
        constants: Mapping[str, Any],
        beside: ModelRunner | None = None,
    ):
        self.program, self.outputs, self.executor = program, tuple(outputs), executor
        shapes = {buffer.name: buffer.shape for buffer in program.constants}
        placed = {name: constants[name].detach().reshape(shape) for name, shape in shapes.items() if name in constants}
        self._session: Session = executor.prepare(program, placed, beside and beside._session)

    def run(self, inputs: Mapping[str, Any]) -> list[Any]:
        """Return the outputs in order, with torch's shapes, given {input: tensor}. Raises DplcError for a misfit."""
        given = {}
        for buffer in self.program.inputs:
            if buffer.name not in inputs:
                raise DplcError(f"the program needs the input `{buffer.name}`, {buffer.dtype}{list(buffer.shape)}")
            tensor = inputs[buffer.name]
            if tensor.numel() != buffer.size or tensor.dtype != _torch_dtype(buffer.dtype):
                found = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
                raise DplcError(f"input `{buffer.name}` must be {buffer.dtype}{list(buffer.shape)}; it is {found}")
            given[buffer.name] = tensor.detach().reshape(buffer.shape)
        results = self._session.run(given)
        return [results[output.buffer].reshape(output.shape) for output in self.outputs]

    def launch(self, place: int) -> None:
        """Repeat one launch on the buffers of the latest run, to measure it alone."""
        self._session.launch(place)


def _torch_dtype(name: str) -> Any:
    import torch

    return getattr(torch, DTYPES[name])


# ---- Serve a model: each call at its own lengths, with weights placed once.


MOST_KEPT = 4  # lengths whose memory for temporaries, and graphs, stay: as many as an executor keeps graphs


class SizedModel(Protocol):
    """A model, with or without sizes: compiled now (CompiledModel), or read back (Artefact)."""

    @property
    def sizes(self) -> Mapping[str, Size]: ...

    @property
    def inputs_with_sizes(self) -> tuple[tuple[str, int, Size], ...]:
        """The inputs that tell the sizes of a call: (name, dimension, size)."""
        ...

    def at(self, sizes: Binding) -> BoundModel: ...


class DynamicModelRunner:
    """A model; `run` as of a ModelRunner, at any lengths in the ranges of its sizes.

    weights: {buffer: tensor}; device: torch's, where the executor finds tensors.
    """

    def __init__(self, model: SizedModel, executor: Executor, weights: Mapping[str, Any], device: str = "cpu"):
        self.model, self._executor, self._weights, self._device = model, executor, weights, device
        self._constants: dict[int | None, dict[str, Any]] = {}  # of each plan, placed
        self._runners: dict[tuple[int, ...], ModelRunner] = {}  # by lengths, the latest last

    def run(self, inputs: Mapping[str, Any]) -> list[Any]:
        """Return the outputs in order, with torch's shapes, given {input: tensor}.

        Raises DplcError for inputs that do not fit, and for a length that was not compiled.
        """
        return self.runner(sizes_of_call(self.model.inputs_with_sizes, inputs)).run(inputs)

    def runner(self, sizes: Binding) -> ModelRunner:
        """Return the runner at these lengths; the most recently used runners keep their memory."""
        key = tuple(sizes.values())
        beside = next(iter(self._runners.values()), None)
        found = self._runners.pop(key, None) or self.fresh(self.model.at(sizes), beside)
        self._runners[key] = found
        if len(self._runners) > MOST_KEPT:
            del self._runners[next(iter(self._runners))]
        return found

    def fresh(self, made: BoundModel, beside: ModelRunner | None = None) -> ModelRunner:
        """Return a new runner at a binding. The optional runner shares its weights, as in `ModelRunner`."""
        if made.plan not in self._constants:
            self._constants[made.plan] = {name: tensor.to(self._device) for name, tensor in made.constants.items()}
        constants = {**self._constants[made.plan], **self._weights}
        return ModelRunner(made.program, made.outputs, self._executor, constants, beside)
