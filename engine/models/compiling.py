"""Models: how a compiled one runs, and its compilation from a configuration to a launch plan with figures."""

from __future__ import annotations

import functools
import inspect
import re
import resource
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

from ...codegen.arrays import torch_dtype, torch_dtype_name
from ...codegen.cache import forget_oldest
from ...codegen.kernel import Buffer, Program
from ...codegen.launch import Executor, Session
from ...ir.diagnostic import DplcError
from ...ir.expr import Size
from ...ir.node import immutable
from ...ir.program import Param
from ...ir.sizes import Binding, at_hint
from ...ir.text.print_statements import print_expr
from ..api import rows_of
from ..capture.capture import capture
from ..capture.dynamic_shapes import Dim
from ..capture.fx_rewrites import Function
from ..capture.signature import Capture, Tensors
from ..compiler import TIMED, Compilation, Compiler, SizePlaces, Stopwatch
from ..language.rule_files import collections_paused
from ..rewrite.statements.driver import tell_unheard
from ..run.calls import Rows, Served, Wanted, random_tensor, sizes_of_call
from ..store.store import FrozenRecord
from .sources import ModelSource, Requests, Tell, WeightRequest, build, silent, weights_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@immutable
class BoundModel:
    """Model at a binding of its sizes.

    outputs: with torch's shapes; constants: {buffer: tensor} of those that no weight file holds.
    """

    program: Program
    outputs: tuple[Buffer, ...]
    constants: Tensors


class ModelRunner:
    """Model at a binding of its sizes, on a device with its weights and constants.

    constants: {buffer: tensor} with torch's shapes, for every constant of the program; where the executor's device
    finds them. The optional runner on the same executor shares the memory of weights that both were given. Raises
    LaunchError for a constant that is missing or does not fit.
    """

    def __init__(self, made: BoundModel, executor: Executor, constants: Tensors, sharing: ModelRunner | None):
        self.program, self._outputs = made.program, made.outputs
        wanted = [buffer for buffer in made.program.constants if buffer.name in constants]
        placed = {buffer.name: constants[buffer.name].detach().reshape(buffer.shape) for buffer in wanted}
        self.session: Session = executor.prepare(made.program, placed, sharing and sharing.session)

    def run(self, inputs: Tensors) -> list[Tensor]:
        """Return the outputs in order, with torch's shapes, given {input: tensor}. Raises DplcError for a misfit."""
        given = {}
        for buffer in self.program.inputs:
            if buffer.name not in inputs:
                raise DplcError(f"the program needs the input `{buffer.name}`, {buffer.dtype}{list(buffer.shape)}")
            tensor = inputs[buffer.name]
            if tensor.numel() != buffer.size or tensor.dtype != torch_dtype(buffer.dtype):
                found = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
                raise DplcError(f"input `{buffer.name}` must be {buffer.dtype}{list(buffer.shape)}; it is {found}")
            given[buffer.name] = tensor.detach().reshape(buffer.shape)
        results = self.session.run(given)
        return [results[output.name].reshape(output.shape) for output in self._outputs]


# ---- Serve a model: each call at its own lengths, with weights placed once.


MOST_KEPT = 4  # lengths whose memory for temporaries, and graphs, stay: as many as an executor keeps graphs


class SizedModel(Protocol):
    """A compiled model, or one that was read from an artefact."""

    @property
    def inputs_with_sizes(self) -> SizePlaces: ...
    def at(self, sizes: Binding) -> BoundModel: ...


@dataclass(eq=False)
class DynamicModelRunner:
    """A model; `run` as of a ModelRunner, at any lengths in the ranges of its sizes.

    weights: {buffer: tensor}; device: torch's, where the executor finds tensors;
    most: how many lengths keep their memory. The optional runner on the same executor shares its weights.
    """

    model: SizedModel
    executor: Executor
    weights: Tensors
    device: str = "cpu"
    most: int = MOST_KEPT
    sharing: DynamicModelRunner | None = None

    def __post_init__(self) -> None:
        self._runners: dict[frozenset[tuple[str, int]], ModelRunner] = {}  # by lengths, the latest last
        self._placed = functools.cache(lambda constant: constant.to(self.device))  # each tensor once

    def run(self, inputs: Tensors) -> list[Tensor]:
        """Return the outputs in order, with torch's shapes, given {input: tensor}.

        Raises DplcError for inputs that do not fit, and for a length that was not compiled.
        """
        return self.runner(sizes_of_call(self.model.inputs_with_sizes, inputs)).run(inputs)

    def runner(self, sizes: Binding) -> ModelRunner:
        """Return the runner at these lengths; the most recently used runners keep their memory."""
        key = frozenset(sizes.items())
        found = self._runners.pop(key, None)
        if found is None:
            made = self.model.at(sizes)
            constants = {**{name: self._placed(tensor) for name, tensor in made.constants.items()}, **self.weights}
            others = (*self._runners.values(), *(self.sharing._runners.values() if self.sharing else ()))
            found = ModelRunner(made, self.executor, constants, next(iter(others), None))
        self._runners[key] = found
        forget_oldest(self._runners, self.most)
        return found

    def forget(self) -> None:
        """Give back the memory of all lengths."""
        self._runners.clear()


# ---- The inputs of a model, by the modalities that transformers declares: tokens, an image, a spectrum.


TOKENS, IMAGES = "input_ids", "pixel_values"


def called(model: PreTrainedModel) -> PreTrainedModel:
    """Return the part that is compiled.

    For a model with an encoder and a decoder that is the encoder, since each token calls the decoder again.
    """
    return model.get_encoder() if getattr(model.config, "is_encoder_decoder", False) else model


def inputs_of(model: PreTrainedModel, length: int, batch: int) -> list[Param]:
    """Return the inputs of a call of `called(model)`: tokens i64, all else floats of the model's dtype.

    Raises DplcError for a model with any other input, and for a configuration that leaves an extent open.
    """
    part, floats = called(model), torch_dtype_name(next(model.parameters()))
    kinds = part.input_modalities  # one of them, or several
    images = "image" in kinds and IMAGES in inspect.signature(part.forward).parameters  # a class may say its parent's
    tokens = [Param(TOKENS, "i64", (batch, length))]
    if part.main_input_name == TOKENS and not images:
        return tokens
    found = tokens if "text" in kinds else []
    if images:
        side = _said(model, "image_size")
        sides = side if isinstance(side, (list, tuple)) else (side,) * 2
        found.append(Param(IMAGES, floats, (batch, _said(model, "num_channels"), *sides)))
    elif part.main_input_name == "input_features":
        # two frames a position: such encoders begin with a convolution that takes every second one
        frames = _said(model, "num_mel_bins"), 2 * _said(model, "max_source_positions")
        found.append(Param("input_features", floats, (batch, *frames)))
    else:
        raise DplcError(f"this model takes `{part.main_input_name}`: only tokens, images and spectra are known here")
    return found


def _said(model: PreTrainedModel, field: str) -> Any:
    """Return a number of the configuration, or of its part about images. Raises DplcError if there is none."""
    for config in (model.config, getattr(model.config, "vision_config", None)):
        value = getattr(config, field, None)
        if isinstance(value, int) or (isinstance(value, (list, tuple)) and len(value) == 2):
            return value
    raise DplcError(f"the configuration does not say `{field}`, which the input's shape depends on")


def drawn(inputs: Iterable[Param], config: Mapping[str, object], seed: int = 0) -> dict[str, Tensor]:
    """Return {input: tensor}, the same for the same seed: tokens of the model, floats of a normal distribution.

    A size has its example value.
    """
    generator, words = torch.Generator().manual_seed(seed), vocabulary(config)
    return {p.name: random_tensor(p.dtype, [*map(at_hint, p.shape)], generator, words) for p in inputs}


def vocabulary(config: Mapping[str, object]) -> int:
    """Return the number of tokens of a model, by its configuration or the part of it about texts."""
    parts = (config, config.get("text_config"))
    found = (part.get("vocab_size") for part in parts if isinstance(part, Mapping))
    return next((words for words in found if words is not None), 2)


# ---- Capture a model, and list the weights that it needs.


@immutable
class CapturedModel:
    """Captured program of a model, with its weights by name.

    captured: the program; its parameters may be on the meta device. weights: {input of the graph: its weight}.
    """

    captured: Capture
    weights: Requests


def capture_results(model: PreTrainedModel, length: int | Dim, batch: int | Dim = 1) -> CapturedModel:
    """Capture a model's results for `batch` sequences of `length` tokens, for images, or for spectra.

    A causal language model returns its logits, input_ids: i64[batch, length] -> f[batch, length, words]. length, batch:
    numbers, or ranges that are known at a call. Raises DplcError for a model that cannot be compiled.
    """
    if not isinstance(length, Dim) and length < 1:
        raise DplcError(f"a sequence of {length} tokens is nothing to compile for")
    parameter, part = next(model.parameters()), called(model)
    arguments, dynamic = dict[str, object](plain(part)), dict[str, dict[int, Dim]]()
    for param in inputs_of(model, *(n.size().hint if isinstance(n, Dim) else n for n in (length, batch))):
        places = (batch, length) if param.name == TOKENS else (batch,)
        dynamic[param.name] = {place: n for place, n in enumerate(places) if isinstance(n, Dim)}
        arguments[param.name] = parameter.new_empty(param.shape, dtype=torch_dtype(param.dtype))
    if isinstance(length, Dim) and TOKENS not in arguments:
        raise DplcError("--seq-len is a range, and this model takes no tokens", hint="--batch takes a range, too")
    return capture_call(model, arguments, part, dynamic)


def plain(part: PreTrainedModel) -> dict[str, bool]:
    """Return the arguments with which a model returns tensors and no cache."""
    cached = ("use_cache",) if "use_cache" in inspect.signature(part.forward).parameters else ()
    return dict.fromkeys(("return_dict", *cached), False)


class _ConstantValues(TorchFunctionMode):
    """Keeps the value of a constant that a forward pass makes where the weights are, which may be nowhere."""

    def __init__(self, values: dict[int, Tensor]):
        super().__init__()
        self.values, self.made = values, list[Tensor]()  # what is made lives as long as its identity is looked up

    def __torch_function__(
        self, func: Function, types: object, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        made = func(*args, **kwargs)
        if func in (torch.tensor, torch.as_tensor) and made.is_meta and not any(isinstance(x, Tensor) for x in args):
            with _disable_current_modes():
                self.values[id(made)] = func(*args, **{**kwargs, "device": "cpu"})
            self.made.append(made)
        return made


def capture_call(
    model: PreTrainedModel, arguments: Mapping[str, object], function: Function, dynamic: object
) -> CapturedModel:
    """Return the captured call `function(**arguments)` of a function that uses the model.

    Tensors among the arguments are inputs. Tensors of the model's weight files are parameters; its other buffers follow
    from the configuration: they are constants, and fold. Weights stay as their files have them. dynamic: dimensions
    that are known at a call, as in `dplc.compile`.
    """
    what = "the forward pass of this model creates a tensor and combines it with weights that are not loaded yet"
    hint = "load the model and compile that: dplc.compile(model, (input_ids,))"
    device, own = next(model.parameters()).device, dict[int, Tensor]()

    def placed(tensor: Tensor) -> Tensor:
        """Return a buffer on the device of the parameters, and note whose it is."""
        there = tensor.to(device)
        own[id(there)] = tensor
        return there

    model._apply(placed)
    try:
        with _ConstantValues(own):
            captured = capture(function, (), arguments, dynamic)
    except DplcError as error:
        if not {"cpu", "meta"} <= set(re.findall(r"\w+", error.what)):
            raise
        raise DplcError(what, error, hint, (error.what,)) from None
    finally:
        model._apply(lambda tensor: own[id(tensor)])
    files, kinds, weights = weights_of(model), dict(captured.kinds), dict[str, WeightRequest]()
    tensors: Tensors = {name: own.get(id(tensor), tensor) for name, tensor in captured.tensors.items()}
    for param in captured.graph.ins:
        if kinds[param.name] != "input":
            found = files.get(id(tensors[param.name]))
            if found is None:
                kinds[param.name] = "constant"
                if tensors[param.name].is_meta:
                    raise DplcError(what, hint=hint)
            else:
                weights[param.name] = found
    return CapturedModel(replace(captured, tensors=tensors, kinds=kinds, folds=False), weights)


@immutable
class ModelShape:
    """Shape of a compile: tokens of a sequence, sequences at once, dtype of weights, blocks (None: all).

    length, batch: numbers, or ranges that are known at a call.
    """

    length: int | Dim = 32
    batch: int | Dim = 1
    dtype: str = "f32"
    layers: int | None = None

    @property
    def numbers(self) -> tuple[int, int]:
        """(length, batch), where both are numbers. Raises DplcError for ranges."""
        if isinstance(self.length, Dim) or isinstance(self.batch, Dim):
            raise DplcError(f"this needs numbers, not {self.described}", hint="--seq-len 32")
        return self.length, self.batch

    def at(self, known: Mapping[str, int | Dim]) -> ModelShape:
        """Return the shape where some lengths are these numbers or ranges."""
        length, batch = (known.get(n.name, n) if isinstance(n, Dim) else n for n in (self.length, self.batch))
        return replace(self, length=length, batch=batch)

    @property
    def described(self) -> str:
        """Text of the lengths: `32 tokens`, `1..4096 tokens, 1..8 sequences`."""
        tokens, batch = (n.range if isinstance(n, Dim) else str(n) for n in (self.length, self.batch))
        return f"{tokens} tokens" + (f", {batch} sequences" if batch != "1" else "")


class Figures(FrozenRecord, kw_only=True):
    """Figures of a compile. Bytes; seconds by the clock.

    launches: of one run; kernels: distinct ones; per_block: the most launches of a block of the model. planned_bytes:
    of the arena of temporaries, at the greatest lengths. seconds: of building the module, of capture, of everything
    after; rss_bytes: the most this process ever held.
    """

    launches: int
    kernels: int
    per_block: int
    cuda_lines: int
    weight_bytes: int
    planned_bytes: int
    seconds: dict[str, float]
    rss_bytes: int


@immutable
class CompiledModel(Served):
    """A compiled model without its weights.

    rows: the compile of its whole range of lengths, and those of parts, made when they are first needed. requests:
    the weights of the captured program, some of which may not be read.
    """

    source: ModelSource
    shape: ModelShape
    rows: Rows
    requests: Requests
    figures: Figures

    @property
    def weights(self) -> dict[str, WeightRequest]:
        """{buffer: the weight it takes}."""
        return {name: want for name, want in self.requests.items() if name in self.compilation.captured.kinds}

    @property
    def sizes(self) -> dict[str, Size]:
        """The lengths that are known at a call."""
        return self.compilation.sizes

    @property
    def inputs_with_sizes(self) -> SizePlaces:
        """The dimensions of inputs that tell the sizes of a call."""
        return self.compilation.inputs_with_sizes

    def at(self, sizes: Binding) -> BoundModel:
        """Return the model that serves calls of such lengths; a row is compiled when it is first needed."""
        made = self.rows.at(sizes)
        return BoundModel(made.at(sizes), made.outputs_at(sizes), self.constants(made))

    def of_row(self, place: int) -> CompiledModel:
        """Return a row as a model of its own; it is compiled now unless it has been."""
        row = self.rows.rows[place]
        made = self.rows.compiled(row)
        shape = self.shape.at({dim.name: dim.low if dim.low == dim.high else dim for dim in row})
        return replace(self, shape=shape, rows=rows_of(made, ()))

    @property
    def described(self) -> str:
        """Text of the compiled lengths: `32 tokens`, or the inputs if these are not tokens."""
        captured = self.compilation.captured
        if TOKENS in captured.inputs:
            return self.shape.described
        given = [param for param in captured.graph.ins if param.name in captured.inputs]
        return ", ".join(f"{p.name} {p.dtype}[{', '.join(map(print_expr, p.shape))}]" for p in given)

    def constants(self, made: Compilation | None = None) -> Tensors:
        """Return {name: tensor} of inputs that no weight file holds, of the program or only of its Torch IR.

        made: the compile of a part of the range.
        """
        captured = (made or self.compilation).captured
        own = (name for name, kind in captured.kinds.items() if kind != "input" and name not in self.requests)
        return {name: captured.tensors[name] for name in own}


def compile_model(
    source: ModelSource, shape: ModelShape, options: Compiler, rows: Wanted = None, tell: Tell = silent
) -> CompiledModel:
    """Compile the logits of a model for its shape. rows: as `dplc.compile` takes them.

    Raises DplcError for what cannot be compiled.
    """
    clock = Stopwatch()
    with clock.stage("build"):
        model = build(source, shape.dtype, shape.layers)
    results = functools.partial(capture_results, model, shape.length, shape.batch)
    return with_rows(compile_call(source, shape, results, options, tell, clock), rows)


def with_rows(
    made: CompiledModel, rows: Wanted, then: Callable[[Compilation], Compilation] = lambda made: made
) -> CompiledModel:
    """Return the model with parts of its range that are compiled separately. then: a change of every compile.

    Raises UsageError for an invalid row.
    """
    return replace(made, rows=rows_of(then(made.compilation), rows or (), then))


def compile_call(
    source: ModelSource,
    shape: ModelShape,
    capture: Callable[[], CapturedModel],
    options: Compiler,
    tell: Tell = silent,
    clock: Stopwatch | None = None,
) -> CompiledModel:
    """Compile any captured call of a model. clock: has timed what came before. Raises DplcError."""
    clock = clock or Stopwatch()
    with collections_paused():
        tell("capturing", 0, 1)
        with clock.stage("capture"):
            captured = capture()
        tell("capturing", 1, 1)
        with clock.stage("compile"):
            watch = Stopwatch(lambda stage: tell(f"compiling: {stage}", TIMED.index(stage), len(TIMED)))
            made = options.compile(captured.captured, watch=watch)
    tell_unheard(made.unheard)
    program, weights = made.program, captured.weights
    figures = Figures(
        launches=len(program.kernels),
        kernels=len(made.cuda_kernels),
        per_block=_most_launches(program, weights),
        cuda_lines=made.cuda.count("\n"),
        weight_bytes=sum(b.nbytes for b in program.constants if b.name in weights or not weights),  # a text has none
        planned_bytes=made.largest.arena.bytes,
        seconds={stage: spent / 1e3 for stage, spent in clock.timings.items()},
        rss_bytes=peak_rss(),
    )
    return CompiledModel(source, shape, rows_of(made, ()), weights, figures)


def _most_launches(program: Program, weights: Requests) -> int:
    """Return the most launches of a block of the model.

    A launch belongs to the first block whose weights it reads; one that reads none, to the preceding block. Launches
    before and after all blocks (the embedding, the head) belong to none.
    """
    counts, current = Counter[int | None](), None
    for launch in program.launches():
        paths = [weights[name].names[0] for name in launch.buffers if name in weights]
        if paths:  # maybe weights of no block
            current = min((int(block) for path in paths for block in re.findall(r"\.(\d+)\.", path)[:1]), default=None)
        counts[current] += 1
    del counts[None]
    return max(counts.values(), default=0)


def peak_rss() -> int:
    """Return the most bytes that this process has held in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
