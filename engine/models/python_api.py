"""Models from Python: `dplc.compile_model(path_or_id)` and `dplc.load_model(folder)`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ...codegen.launch import executor, memory_of
from ...codegen.target import Target
from ...ir.diagnostic import DplcError, did_you_mean
from ...ir.dtypes import FLOAT_NAMES
from ..api import RuleSource, choose_device, compile_options, logged
from ..capture.dynamic_shapes import Dim
from ..rewrite.statements.driver import Settings
from . import artefact, sources
from .artefact import Artefact
from .benching import emulator
from .compiling import CompiledModel, DynamicModelRunner, Figures, ModelShape
from .compiling import compile_model as compile_source
from .sources import find


class Model:
    """Compiled model: call it with tokens, i64[batch, length] as it was compiled for, and it returns the logits.

    A model of images or spectra accepts these instead. Where a length was compiled as a range, it is that of each call,
    and the table of rows says which kernels serve it.

    `.load_weights(folder)` reads safetensors; without it, the first call generates random weights. `.save(folder)`
    writes an artefact; `.figures` holds the figures of the compile; `.ir(stage)` and `.cuda` are its texts;
    `.remembered` has a line for everything that a tuning store decided.
    """

    def __init__(self, compiled: CompiledModel | Artefact, device: str, remembered: tuple[str, ...] = ()):
        self.compiled, self.device, self.remembered = compiled, device, remembered
        self._runner: DynamicModelRunner | None = None

    def __call__(self, *inputs: torch.Tensor) -> Any:
        """Return the logits, on the device of the kernels; of a model with several results, their tuple.

        inputs: tokens, images, spectra, in the order of the program. Raises DplcError for another shape or dtype.
        """
        names = [buffer.name for buffer in self.compiled.program.inputs]
        if len(inputs) != len(names):
            raise DplcError(f"the model takes {', '.join(names)}: {len(inputs)} tensors were given")
        results = self.run(dict(zip(names, inputs, strict=True)))
        return results[0] if len(results) == 1 else tuple(results)

    def run(self, inputs: Mapping[str, Any]) -> list[Any]:
        """Return the results in order, on the device of the kernels. inputs: by name."""
        if self._runner is None:
            self.place(sources.make(self.compiled.weights))
        assert self._runner is not None
        return self._runner.run({name: x.to(memory_of(self.device)) for name, x in inputs.items()})

    def load_weights(self, folder: str | Path) -> Model:
        """Take the weights of a folder. Raises DplcError for what is missing or of another shape."""
        self.place(sources.load(Path(folder), self.compiled.weights))
        return self

    def save(self, folder: str | Path, cubins: bool = True) -> None:
        """Write the artefact, which `dplc run` and `dplc.load_model` take. Raises DplcError."""
        if not isinstance(self.compiled, CompiledModel):
            raise DplcError("this model was read from an artefact: copy its folder")
        artefact.save(self.compiled, Path(folder), cubins)

    @property
    def figures(self) -> Figures:
        return self.compiled.figures

    def ir(self, stage: str) -> str:
        """Return the program's text at a stage: torch, tensor, loop, tile, kernel, cuda."""
        return self.compiled.ir(stage)

    @property
    def cuda(self) -> str:
        return self.ir("cuda")

    def __repr__(self) -> str:
        found = self.figures
        return f"<dplc.Model for {self.device}: {found.launches} launches of {found.kernels} kernels>"

    def place(self, values: Mapping[str, Any]) -> None:
        """Take weights by name, and move them to the device."""
        images = self.compiled.images() if isinstance(self.compiled, Artefact) else None
        runner = emulator() if self.device == "emulator" else executor(self.device, images)
        placed = {name: tensor.to(memory_of(self.device)) for name, tensor in values.items()}
        self._runner = DynamicModelRunner(self.compiled, runner, placed, memory_of(self.device))


def compile_model(
    path_or_id: str | Path,
    *,
    seq_len: int | Dim = 32,
    batch: int | Dim = 1,
    layers: int | None = None,
    dtype: str = "f32",
    device: str | None = None,
    rules: RuleSource = None,
    target: str | Target | None = None,
    settings: Settings | None = None,
    db: str | Path | bool | None = None,
    explore: bool = False,
    exact: bool = False,
    rows: Any = True,
) -> Model:
    """Compile a model for `batch` sequences of `seq_len` tokens.

    It returns the logits of a causal language model or the results of an encoder (of an encoder and a decoder, the
    encoder) for tokens, `batch` images or spectra.

    Either may be a range, `dplc.Dim("s", 1, 4096, hint=512)`: one model for all its lengths. Weights are symbolic until
    `load_weights` or a call.

    Args:
        path_or_id: a configuration (JSON), a folder with one, or an id of the hub.
        seq_len: tokens of a sequence, or their range.
        batch: sequences at once, or their range.
        layers: only the first so many.
        dtype: f32, f16 or bf16.
        device: cuda, cuda:N or emulator; by default the GPU if there is one.
        rules, target, settings: as in `dplc.compile`.
        db: the tuning store whose schedules are replayed, False for none; as in `dplc.compile`.
        explore: search spellings and cuts together, weights as their files have them.
        exact: no rule that reorders floating point fires.
        rows: the parts of the range that are compiled separately when a call first needs them, as in `dplc.compile`; by
            default the usual ones of one size, False for none.

    Returns:
        The compiled model.

    Raises:
        DplcError: if the model cannot be compiled.
    """
    if dtype not in FLOAT_NAMES:
        raise DplcError(f"there is no dtype `{dtype}` here", hint=did_you_mean(dtype, FLOAT_NAMES))
    told, shape = list[str](), ModelShape(seq_len, batch, FLOAT_NAMES[dtype], layers)
    where, options = compile_options(
        _device(device), rules, target, settings, exact=exact, db=db, explore=explore, tell=told.append
    )
    made = compile_source(find(str(path_or_id)), shape, options, rows)
    return Model(made, where, logged(told, made.compilation))


def load_model(folder: str | Path, *, device: str | None = None, trust_edited_cuda: bool = False) -> Model:
    """Return the model of an artefact. It executes nothing now, and later only CUDA that dplc prints of its Kernel IR.

    trust_edited_cuda: also accept CUDA that was edited since: the emulator compiles and runs it on this machine. Raises
    DplcError for a folder that is not an artefact, or is damaged.
    """
    chosen = _device(device)
    return Model(artefact.load(Path(folder), trust_edited_cuda), chosen)


def _device(device: str | None) -> str:
    chosen = choose_device(device)
    if chosen == "reference":
        raise DplcError("models run on cuda and on the emulator", hint="`dplc run DIR --device reference` is there too")
    return chosen
