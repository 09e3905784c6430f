"""Text from a model, greedy or sampled: the prompt at once or in pieces, then one token at a time, with a cache.

The prompt has any length. A token's call updates the cache without a copy, if it can.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...codegen.arrays import torch_dtype
from ...codegen.kernel import Program
from ...codegen.launch import Executor
from ...ir.diagnostic import DplcError, UsageError, first_line
from ...ir.dtypes import DTYPES
from ...ir.node import immutable
from ...ir.program import Param
from ..capture.dynamic_shapes import Dim
from ..capture.signature import Tensors
from ..compiler import Compilation, Compiler
from ..run.calls import Wanted, octaves, with_aliases
from .compiling import (
    CapturedModel,
    CompiledModel,
    DynamicModelRunner,
    ModelShape,
    called,
    capture_call,
    compile_call,
    with_rows,
)
from .sources import (
    INSTALL,
    ModelSource,
    Tell,
    WeightRequest,
    build,
    explained,
    folder_of,
    is_id,
    reach_hub,
    silent,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# ---- Capture the two calls of generation, prompt and token, with a cache of keys and values of our own.


KINDS = ("full_attention", "sliding_attention")
ONE = Dim("s", 1, 1)


def capture_prompt(model: PreTrainedModel, length: Dim, rows: int, scored: bool = False) -> CapturedModel:
    """Capture all tokens of a prompt: input_ids: i64[1, length] -> the next token i64[1] and the cache.

    The cache holds the keys and values of every layer, f[rows, heads, width], zeros after the prompt. length: of the
    prompt; rows: of the cache; scored: whether the call gives the logits f32[1, words] instead of the token. Raises
    DplcError for a model that keeps anything else from token to token.
    """

    def prompt(input_ids: Tensor) -> tuple[Tensor, ...]:
        length = input_ids.shape[1]
        positions = torch.arange(length, device=input_ids.device)[None]
        token, *kept = _outputs(model, _Cache(length), input_ids, positions, scored)
        room = (0, 0, 0, 0, 0, rows - length)
        return token, *(torch.nn.functional.pad(tensor, room) for tensor in kept)

    captured = capture_call(model, {"input_ids": _tokens(model, length)}, prompt, {"input_ids": {1: length}})
    if len(captured.captured.graph.outs) == 1:
        raise DplcError("this model does not keep keys and values: it cannot generate here")
    return captured


def capture_piece(
    model: PreTrainedModel, length: Dim | None, cache: Sequence[Param], reach: Dim, scored: bool = False
) -> CapturedModel:  # fmt: skip
    """Capture the call that reads some tokens of a prompt, or one token after the prompt.

    It takes input_ids: i64[1, length], the position of the first: i64[], and the cache of all tokens before. It gives
    the next token i64[1], and the cache with the rows of these tokens at their positions.

    Args:
        length: tokens of the piece; None for one token after the prompt.
        cache: dtypes and shapes, keys and values of every layer.
        reach: how many rows of the cache a call is given, its first.
        scored: as of `capture_prompt`.
    """

    def piece(input_ids: Tensor, position: Tensor, cache: Sequence[Tensor]) -> tuple[Tensor, ...]:
        rows, device = cache[0].shape[0], input_ids.device
        if length is None:
            positions = position.reshape(1, 1)
        else:
            count = input_ids.shape[1]
            place = torch.arange(rows, device=device) - position
            inside = (place >= 0) & (place < count)
            place = torch.where(inside, place, torch.zeros_like(place))  # of a row among those of the piece
            positions = position + torch.arange(count, device=device)[None]

        def written(new: Sequence[Tensor], layer: int) -> list[Tensor]:
            before = [tensor.transpose(0, 1)[None] for tensor in cache[2 * layer : 2 * layer + 2]]
            here = torch.arange(rows, device=device)[:, None] == position if length is None else inside[:, None]
            return [
                torch.where(here, tensor if length is None else tensor[:, :, place], old)
                for tensor, old in zip(new, before, strict=True)
            ]

        return _outputs(model, _Cache(rows, position, written, length is None), input_ids, positions, scored)

    ids, rows = _tokens(model, length or ONE), reach.size().hint
    tensors = [ids.new_empty((rows, *kept.shape[1:]), dtype=torch_dtype(kept.dtype)) for kept in cache]
    dynamic = {f"cache_{place}": {0: reach} for place in range(len(tensors))} | {"input_ids": {1: length or ONE}}
    arguments = {"input_ids": ids, "position": ids.new_empty(()), "cache": tensors}
    return capture_call(model, arguments, piece, dynamic)


def check_attention(model: PreTrainedModel, maximum: int) -> None:
    """Raise DplcError if a token does not see all preceding tokens, up to a maximum length."""
    config = model.config
    others = sorted(set(getattr(config, "layer_types", None) or ()) - set(KINDS))
    if others:
        raise DplcError(f"layers of the kind `{others[0]}` keep no keys and values: they cannot generate here")
    positions = getattr(config, "max_position_embeddings", None)
    if positions is not None and maximum > positions:
        raise DplcError(f"this model has {positions} positions; the maximum length is {maximum}")


def _tokens(model: PreTrainedModel, length: Dim) -> Tensor:
    """Return tokens to capture a call with."""
    return torch.empty((1, length.size().hint), dtype=torch.long, device=next(model.parameters()).device)


def _outputs(
    model: PreTrainedModel, cache: _Cache, input_ids: Tensor, positions: Tensor, scored: bool
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return the token of the largest logit after the last one given: i64[1], or all logits; then what the cache holds.

    Of every layer it holds the keys, then the values: for each position a row of all heads.
    """
    (logits, *_) = model(
        input_ids=input_ids, position_ids=positions, past_key_values=cache, use_cache=True, return_dict=False,
        logits_to_keep=1,
    )  # fmt: skip
    token = logits[:, -1].float() if scored else logits[:, -1].argmax(-1)
    tensors = (tensor for layer in sorted(cache.layers) for tensor in cache.layers[layer])
    return token, *(tensor[0].transpose(0, 1) for tensor in tensors)  # attention has f[1, heads, positions, width]


@dataclass(eq=False)
class _Cache:
    """Cache that transformers uses while a call runs.

    length: rows that attention reads; position: tokens before this call; written: returns what attention reads of a
    layer, given its keys and values of this call, by default these alone. is_compileable: transformers then makes a
    mask for one token, too, as for its own static cache.
    """

    length: int
    position: int | Tensor = 0
    written: Callable[[Sequence[Tensor], int], Sequence[Tensor]] = lambda new, layer: new
    is_compileable: bool = False
    layers: dict[int, Sequence[Tensor]] = field(default_factory=dict)

    def update(self, keys: Tensor, values: Tensor, layer: int, *_: object, **__: object) -> Sequence[Tensor]:
        """Return the keys and values that this layer's attention reads."""
        self.layers[layer] = self.written((keys, values), layer)
        return self.layers[layer]

    def get_seq_length(self, *_: object) -> int | Tensor:
        """Return the tokens before this call: a module derives its positions and the masks of its attention from it."""
        return self.position

    get_query_offset = get_seq_length

    def get_mask_sizes(self, *_: object) -> tuple[int, int]:
        """Return (rows of the cache that attention reads, the position of the first)."""
        return self.length, 0


USUAL = 512  # tokens of a prompt, which schedules are chosen for
STEP = 64  # rows of the cache: a call receives a multiple of 64 rows, so that 64 tokens share the bound arguments


@immutable
class Generation:
    """A model compiled to generate after prompts of some lengths, up to `maximum` tokens with them.

    prompt, token: the two captured calls; the second writes its cache where it reads it. The rows of the first are
    compiled when a prompt needs them. stops: the tokens that end a text. reach: how many rows of the cache a call may
    be given, its first. chunk: the first reads at most so many tokens of a prompt at a time, and writes its cache where
    it reads it, too; None: all at once.
    """

    prompt: CompiledModel
    token: CompiledModel
    lengths: Dim
    maximum: int
    stops: frozenset[int]
    reach: Dim
    chunk: int | None

    def sizes_of(self, call: CompiledModel, length: int, end: int) -> dict[str, int]:
        """Return the sizes of a call that reads so many tokens, of which the last is at `end`, counted from 1."""
        numbers = {self.lengths.name: length, self.reach.name: self.rows_up_to(end)}
        return {name: numbers[name] for name in call.sizes}

    def rows_up_to(self, tokens: int) -> int:
        """Return the number of rows for a call that writes the last of so many tokens."""
        return _rounded_up(tokens, self.reach.multiple)

    def pieces(self, length: int) -> list[tuple[int, int]]:
        """Return (position, tokens) of each piece of a prompt that is read at once.

        Raises DplcError for a length that was not compiled.
        """
        if not self.lengths.admits(length):
            low, high = self.lengths.low, self.lengths.high
            expected = f"{low}" if low == high else f"{low} to {high}"
            raise DplcError(f"the prompt has {length} tokens; this was compiled for {expected}")
        step = self.chunk or length
        return [(start, min(step, length - start)) for start in range(0, length, step)]

    @property
    def weights(self) -> dict[str, WeightRequest]:
        """{a weight's name in files: what it is}, of both calls."""
        return {want.names[0]: want for call in (self.prompt, self.token) for want in call.weights.values()}

    @property
    def memory(self) -> Memory:
        prompt, token = (call.compilation.largest for call in (self.prompt, self.token))
        return Memory(
            weights=sum(math.prod(w.shape) * DTYPES[w.dtype].item_bytes for w in self.weights.values()),
            tables=sum(
                buffer.nbytes
                for call in (self.prompt, self.token)
                for buffer in call.program.constants
                if buffer.name not in call.requests
            ),
            cache=_cache_bytes(token, ()),
            copied=_cache_bytes(token, token.aliases.values()),
            prompt=self.prompt.figures.planned_bytes + _cache_bytes(prompt, prompt.aliases.values()),
            token=self.token.figures.planned_bytes,
        )


def _cache_bytes(program: Program, written: Collection[str]) -> int:
    """Return the bytes of the inputs that are a cache, without those that the call writes where they are."""
    return sum(b.nbytes for b in program.inputs if b.name.startswith("cache_") and b.name not in written)


def _rounded_up(number: int, step: int) -> int:
    return -(-number // step) * step


@immutable
class Memory:
    """Memory on the device, in bytes.

    weights: of the model; tables: other constants; cache: keys and values of all layers. copied: the second cache of a
    token's call, 0 if the call writes to its input; prompt, token: temporaries of the two calls, of the longest prompt
    or piece (with a second cache if that does not write to its input).
    """

    weights: int
    tables: int
    cache: int
    copied: int
    prompt: int
    token: int

    @property
    def peak(self) -> int:
        """Return the most bytes in use: the temporaries of the prompt are freed before those of a token exist."""
        return self.weights + self.tables + self.cache + max(self.prompt, self.token + self.copied)


def all_lengths(maximum: int) -> Dim:
    """Return the range of prompts that leave room for a token. Raises DplcError if there is none."""
    check_length(1, maximum)
    return Dim("s", 1, maximum - 1, hint=min(USUAL, maximum - 1))


def compile_generation(
    source: ModelSource, lengths: Dim, maximum: int, shape: ModelShape, options: Compiler, rows: Wanted = True,
    chunk: int | None = None, step: int = STEP, tell: Tell = silent, scored: bool = False,
) -> Generation:  # fmt: skip
    """Compile a model to generate text.

    lengths: of prompts, `all_lengths(maximum)` at most, which one compile serves; maximum: of prompt and text; shape:
    dtype and layers; rows: parts of the range that are compiled separately when a prompt needs them, as in
    `dplc.compile`; chunk: the most tokens of a prompt that are read at once, which limits the temporaries, None for
    all; step: rows by which the part of the cache grows that a call is given; scored: whether tokens are chosen by a
    `Sampling`.

    Raises DplcError for a prompt that leaves no room, and for a model that cannot be compiled.
    """
    check_length(lengths.high, maximum)
    model = build(source, shape.dtype, shape.layers)
    if not model.can_generate() or called(model) is not model:
        raise DplcError(f"{source.name}: {type(model).__name__} is not a causal language model: it cannot generate")
    check_attention(model, maximum)
    step = min(step, maximum)
    most = _rounded_up(maximum, step)
    reach = Dim("n", step, most, step, hint=min(USUAL // step * step or step, most))

    def compiled(capture: Callable[[], CapturedModel], rows: Wanted) -> CompiledModel:
        return with_rows(compile_call(source, shape, capture, options, tell), rows, _in_place)

    if chunk is None:
        prompt = compiled(lambda: capture_prompt(model, lengths, reach.high, scored), rows)
        _, *cache = prompt.compilation.captured.graph.outs
    else:
        _, *cache = capture_prompt(model, ONE, reach.high).captured.graph.outs
        chunk = min(chunk, lengths.high)
        part = Dim(lengths.name, 1, chunk, hint=chunk)
        if rows is True and chunk > 1 and reach.low < reach.high:
            rows = octaves(part, options.target)
        prompt = compiled(lambda: capture_piece(model, part, cache, reach, scored), rows)
    token = compiled(lambda: capture_piece(model, None, cache, reach, scored), ())
    ends = model.config.eos_token_id
    stops = frozenset(ends if isinstance(ends, (list, tuple)) else () if ends is None else (ends,))
    return Generation(prompt, token, lengths, maximum, stops, reach, chunk)


def _in_place(call: Compilation) -> Compilation:
    """Return a call whose outputs share the memory of its inputs where they may: `Memory.copied` counts the others."""
    caches = (f"cache_{place}" for place in range(len(call.plan.outputs) - 1))
    return with_aliases(call, ("input_ids", *caches))


def check_length(length: int, maximum: int) -> None:
    """Raise DplcError for a prompt without tokens, or that leaves no room for one more."""
    if length < 1:
        raise DplcError("the prompt has no tokens")
    if length >= maximum:
        raise DplcError(
            f"the prompt has {length} tokens; with a maximum length of {maximum} there is no room for another",
            hint="a shorter prompt, or a larger --max-length",
        )


class Generator:
    """Compiled model with its weights on the device. It generates one text at a time: the cache is the generator's own.

    weights: {name in files: tensor}, all of `Generation.weights`; moved once for both calls. device: torch's, where the
    executor finds tensors. length: of the first prompt; its kernels are built now, not when its token is needed.
    """

    def __init__(
        self, generation: Generation, executor: Executor, weights: Tensors, device: str = "cpu",
        length: int | None = None,
    ):  # fmt: skip
        self.generation, self._device = generation, device
        values = {name: tensor.to(device) for name, tensor in weights.items()}
        prompt, token = generation.prompt, generation.token
        self._tokens = DynamicModelRunner(token, executor, _weights(token, values), device, 1)
        self._prompts = DynamicModelRunner(prompt, executor, _weights(prompt, values), device, 1, self._tokens)
        self._position = torch.zeros((), dtype=torch.long, device=device)
        first = generation.lengths.high if length is None else length
        self._tokens.runner(generation.sizes_of(token, 1, first + 1))
        _, count = generation.pieces(first)[0]
        self._prompts.runner(generation.sizes_of(prompt, count, count))
        self._prompts.forget()

    def tokens(
        self, prompt: Sequence[int], count: int, stops: Collection[int] | None = None, sampling: Sampling | None = None
    ) -> Iterator[int]:
        """Yield at most `count` new tokens, each when it is known.

        A token of `stops` (by default the model's) is the last. It yields no more than there is room for. sampling:
        chooses tokens, if the calls give logits. Raises DplcError for a prompt of a length that was not compiled.
        """
        found, length = self.generation, len(prompt)
        pieces = found.pieces(length)
        ends = found.stops if stops is None else stops
        last = min(length + count, found.maximum) - 1
        if last < length:
            return
        ids = torch.tensor([list(prompt)], device=self._device)
        if found.chunk is None:
            token, *cache = self._prompts.run({"input_ids": ids})
        else:
            # zeros, because masked values are multiplied by 0, and must be numbers
            cache = [
                torch.zeros((found.reach.high, *kept.shape[1:]), dtype=torch_dtype(kept.dtype), device=self._device)
                for kept in found.token.compilation.captured.graph.outs[1:]
            ]
            for start, amount in pieces:
                token = self._next(self._prompts, ids[:, start : start + amount].contiguous(), start, cache)
        self._prompts.forget()
        choose = sampling.choices(ids) if sampling else lambda found: found
        for place in range(length, last + 1):
            token = choose(token)
            number = int(token)
            yield number
            if number in ends or place == last:
                return
            token = self._next(self._tokens, token, place, cache)

    def _next(self, call: DynamicModelRunner, ids: Tensor, place: int, cache: Sequence[Tensor]) -> Tensor:
        """Return the token after some tokens, which begin at a place. The call updates the first rows of the cache."""
        self._position.fill_(place)
        rows = self.generation.rows_up_to(place + ids.numel())
        first = {f"cache_{number}": tensor[:rows] for number, tensor in enumerate(cache)}
        token, *written = call.run({"input_ids": ids, "position": self._position, **first})
        for before, after in zip(first.values(), written, strict=True):
            if after.data_ptr() != before.data_ptr():
                before.copy_(after)
        return token


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen by their logits, as transformers does: each None is left out.

    A token is drawn if a temperature, top_k, top_p or min_p is given; else it is the one of the largest logit. seed: of
    the draws, which are those of PyTorch after `torch.manual_seed(seed)`. Raises UsageError for a value out of range.
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        self._processors()

    def _processors(self) -> list[tuple[str, Any]]:
        """Return transformers' processors in its order."""
        import transformers

        kinds = {
            "repetition_penalty": transformers.RepetitionPenaltyLogitsProcessor,
            "temperature": transformers.TemperatureLogitsWarper, "top_k": transformers.TopKLogitsWarper,
            "top_p": transformers.TopPLogitsWarper, "min_p": transformers.MinPLogitsWarper,
        }  # fmt: skip
        made = []
        for name, kind in kinds.items():
            if (value := getattr(self, name)) is not None:
                try:
                    made.append((name, kind(value)))
                except ValueError as error:
                    option = f"--{name.replace('_', '-')} {value}"
                    raise UsageError(f"{option} is out of range", notes=(first_line(error),)) from None
        return made

    def choices(self, ids: Tensor) -> Callable[[Tensor], Tensor]:
        """Return a function of logits f32[1, words] that chooses the next token i64[1], after i64[1, length]."""
        steps, draws = self._processors(), torch.Generator(ids.device).manual_seed(self.seed)

        def choose(scores: Tensor) -> Tensor:
            nonlocal ids
            for _, step in steps:
                scores = step(ids, scores)
            drawn = any(name != "repetition_penalty" for name, _ in steps)
            probabilities = scores.softmax(-1)
            token = torch.multinomial(probabilities, 1, generator=draws)[:, 0] if drawn else scores.argmax(-1)
            ids = torch.cat((ids, token[None]), 1)
            return token

        return choose


def _weights(call: CompiledModel, weights: Tensors) -> Tensors:
    """Return {buffer: tensor} of its weights."""
    return {buffer: weights[want.names[0]] for buffer, want in call.weights.items()}


# ---- Tokenise text with the tokenizer in a model's folder.


FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")
WITHOUT = "give the tokens themselves: --ids 1,2,3"


class Tokenizer:
    """Tokenizer of transformers for a model: a folder, a configuration in the tokenizer's folder, or an id of the hub.

    Nothing of the model is executed. Raises DplcError if there is none.
    """

    def __init__(self, model: str):
        place = folder_of(model)
        held = place is not None and any((place / name).is_file() for name in FILES)
        if not held and not is_id(model):
            raise DplcError(f"{model} has no tokenizer beside it", hint=WITHOUT)
        with explained("tokenizers need transformers", INSTALL):
            from transformers import AutoTokenizer
        with explained(f"the tokenizer of {model} cannot be used", WITHOUT):  # damaged files, no network
            if not held:
                reach_hub()
            self._tokenizer = AutoTokenizer.from_pretrained(str(place) if held else model)

    def tokens(self, text: str) -> list[int]:
        """Return the tokens of a text, with those that the model wants at its start."""
        return [int(number) for number in self._tokenizer(text)["input_ids"]]

    def text(self, tokens: Sequence[int]) -> str:
        """Return the text of some tokens, without those that only mark its start and end."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True))


class Stream:
    """A text that comes token by token."""

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer, self._tokens, self._told = tokenizer, list[int](), ""

    def more(self, token: int, last: bool) -> str:
        """Return the text that a token adds: nothing yet if it ends inside a character."""
        self._tokens.append(token)
        text = self._tokenizer.text(self._tokens)
        if text.endswith("\N{REPLACEMENT CHARACTER}") and not last:
            return ""
        new, self._told = text[len(self._told) :], text
        return new


def stops_of(model: str) -> frozenset[int] | None:
    """Return the tokens that end a text by `generation_config.json`, which then counts; None if it has none."""
    folder = folder_of(model)
    if folder is not None:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
            found = json.loads((folder / "generation_config.json").read_bytes())["eos_token_id"]
            return frozenset(map(int, found if isinstance(found, list) else [found]))
    return None
