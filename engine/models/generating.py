"""Text from a model, greedily: the prompt at once or in pieces, then one token at a time, with a cache.

The prompt has any length. A token's call updates the cache without a copy, if it can.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ...codegen.kernel import Buffer, Program
from ...codegen.launch import Executor
from ...ir.diagnostic import DplcError
from ...ir.dtypes import DTYPES
from ...ir.schemas import DTYPES as TORCH_DTYPES
from ..capture.dynamic_shapes import Dim
from ..capture.signature import Tensors
from ..compiler import Compilation, Compiler
from ..run.calls import octaves, with_aliases
from .compiling import (
    BoundModel,
    CapturedModel,
    CompiledModel,
    DynamicModelRunner,
    ModelRunner,
    ModelShape,
    called,
    capture_call,
    compile_call,
    planned_peak,
    with_rows,
)
from .sources import ModelSource, Tell, WeightRequest, build, explained, folder_of, is_id, reach_hub, silent

# ---- Capture the two calls of generation, prompt and token, with a cache of keys and values of our own.


CacheTensor = tuple[str, Sequence[int]]  # (dtype by torch's name, shape)
KINDS = ("full_attention", "sliding_attention")


def capture_prompt(model: Any, length: int | Dim, rows: int) -> CapturedModel:
    """Capture all tokens of a prompt: input_ids: i64[1, length] -> the next token i64[1] and the cache.

    The cache holds the keys and values of every layer, f[rows, heads, width], zeros after the prompt. length: of the
    prompt, or the range that it may have; rows: of the cache. Raises DplcError for a model that keeps anything else
    from token to token.
    """

    def prompt(input_ids: Any) -> tuple[Any, ...]:
        length = input_ids.shape[1]
        kept = _PromptCache(length)
        positions = torch.arange(length, device=input_ids.device)[None]
        token = _next_token(model, kept, input_ids=input_ids, position_ids=positions)
        room = (0, 0, 0, 0, 0, rows - length)
        return token, *(torch.nn.functional.pad(tensor, room) for tensor in kept.tensors())

    size = length.size() if isinstance(length, Dim) else None
    ids = _ids(model, length if size is None else size.hint)  # type: ignore[arg-type]
    captured = capture_call(model, {"input_ids": ids}, prompt, size and {"input_ids": {1: length}})
    if len(captured.captured.graph.outs) == 1:
        raise DplcError("this model does not keep keys and values: it cannot generate here")
    return captured


def capture_piece(
    model: Any, length: int | Dim | None, cache: Sequence[CacheTensor], rows: Dim | None = None
) -> CapturedModel:
    """Capture the call that reads some tokens of a prompt, or one token after the prompt.

    It takes input_ids: i64[1, length], the position of the first: i64[], and the cache of all tokens before. It gives
    the next token i64[1], and the cache with the rows of these tokens at their positions.

    Args:
        length: tokens of the piece, or their range; None for one token after the prompt.
        rows: how many rows of the cache a call is given, its first; None for all.
    """

    def piece(input_ids: Any, position: Any, cache: Sequence[Any]) -> tuple[Any, ...]:
        if length is None:
            kept, positions = _Written(cache, position), position.reshape(1, 1)
        else:
            count = input_ids.shape[1]
            kept = _Piece(cache, position, count)
            positions = position + torch.arange(count, device=input_ids.device)[None]
        token = _next_token(model, kept, input_ids=input_ids, position_ids=positions)
        return token, *kept.tensors()

    ids = _ids(model, length.size().hint if isinstance(length, Dim) else length or 1)
    first = [shape if rows is None else (rows.size().hint, *shape[1:]) for _, shape in cache]
    pairs = zip(cache, first, strict=True)
    tensors = [torch.empty(tuple(shape), dtype=getattr(torch, kind), device=ids.device) for (kind, _), shape in pairs]
    dynamic: dict[str, Any] = {} if rows is None else {f"cache_{place}": {0: rows} for place in range(len(tensors))}
    if isinstance(length, Dim):
        dynamic["input_ids"] = {1: length}
    position = torch.empty((), dtype=torch.long, device=ids.device)
    return capture_call(model, {"input_ids": ids, "position": position, "cache": tensors}, piece, dynamic or None)


def check_attention(model: Any, maximum: int) -> None:
    """Raise DplcError if a token does not see all preceding tokens, up to a maximum length."""
    config = model.config
    others = sorted(set(getattr(config, "layer_types", None) or ()) - set(KINDS))
    if others:
        raise DplcError(f"layers of the kind `{others[0]}` keep no keys and values: they cannot generate here")
    positions = getattr(config, "max_position_embeddings", None)
    if positions is not None and maximum > positions:
        raise DplcError(f"this model has {positions} positions; the maximum length is {maximum}")


def _ids(model: Any, length: int) -> Any:
    return torch.empty((1, length), dtype=torch.long, device=next(model.parameters()).device)


def _next_token(model: Any, kept: Any, **arguments: Any) -> Any:
    """Return the token of the largest logit after the last one given: i64[1]."""
    (logits, *_) = model(past_key_values=kept, use_cache=True, return_dict=False, logits_to_keep=1, **arguments)
    return logits[:, -1].argmax(-1)


class _PromptCache:
    """Cache that transformers uses while the prompt runs: attention reads the prompt's own keys and values."""

    is_compileable = False

    def __init__(self, length: int) -> None:
        self.length = length
        self.layers: dict[int, tuple[Any, Any]] = {}

    def update(self, keys: Any, values: Any, layer: int, *_: Any, **__: Any) -> tuple[Any, Any]:
        """Return the keys and values that this layer's attention reads."""
        self.layers[layer] = keys, values
        return self.layers[layer]

    def tensors(self) -> list[Any]:
        """Return the keys, then the values of every layer, a row of all heads for each position."""
        tensors = (tensor for layer in sorted(self.layers) for tensor in self.layers[layer])
        return [tensor[0].transpose(0, 1) for tensor in tensors]  # attention has f[1, heads, positions, width]

    def get_seq_length(self, *_: Any) -> Any:
        """Return the tokens before this call: a module derives its positions and the masks of its attention from it."""
        return 0

    def get_query_offset(self, *_: Any) -> Any:
        return self.get_seq_length()

    def get_mask_sizes(self, *_: Any) -> tuple[int, int]:
        """Return (rows of the cache that attention reads, the position of the first)."""
        return self.length, 0


class _Written(_PromptCache):
    """A cache with the row of one token at a position that is an input: attention gets the whole cache.

    is_compileable: transformers then makes a mask for one token, too, as for its own static cache.
    """

    is_compileable = True

    def __init__(self, cache: Sequence[Any], position: Any) -> None:
        super().__init__(cache[0].shape[0])
        self.cache, self.position = cache, position

    def written(self) -> Any:
        """Return which rows of the cache are those of this call: [rows, 1]."""
        return torch.arange(self.length, device=self.cache[0].device)[:, None] == self.position

    def placed(self, new: Any) -> Any:
        """Return new keys or values as the rows of the cache select them."""
        return new

    def update(self, keys: Any, values: Any, layer: int, *_: Any, **__: Any) -> tuple[Any, Any]:
        before = [tensor.transpose(0, 1)[None] for tensor in self.cache[2 * layer : 2 * layer + 2]]
        written = self.written()
        pairs = zip((keys, values), before, strict=True)
        return super().update(*(torch.where(written, self.placed(new), old) for new, old in pairs), layer)  # type: ignore[call-arg, misc]

    def get_seq_length(self, *_: Any) -> Any:
        return self.position


class _Piece(_Written):
    """A cache with the rows of some tokens from a position on."""

    is_compileable = False

    def __init__(self, cache: Sequence[Any], position: Any, count: Any) -> None:
        super().__init__(cache, position)
        place = torch.arange(self.length, device=cache[0].device) - position
        self.mask = (place >= 0) & (place < count)
        self.place = torch.where(self.mask, place, torch.zeros_like(place))  # of a row among those of the piece

    def written(self) -> Any:
        return self.mask[:, None]

    def placed(self, new: Any) -> Any:
        return new[:, :, self.place]


USUAL = 512  # tokens of a prompt, which schedules are chosen for
STEP = 64  # rows of the cache: a call is given as many of it as hold what is written, so that 64 tokens share a binding


@dataclass(frozen=True)
class Generation:
    """A model compiled to generate after prompts of some lengths, up to `maximum` tokens with them.

    prompt, token: the two captured calls; the second writes its cache where it reads it. The rows of the first are
    compiled when a prompt needs them. stops: the tokens that end a text. chunk: the first reads at most so many tokens
    of a prompt at a time, and writes its cache where it reads it, too; None: all at once. reach: how many rows of the
    cache a call may be given; None: all of them.
    """

    prompt: CompiledModel
    token: CompiledModel
    lengths: Dim
    maximum: int
    stops: frozenset[int]
    chunk: int | None = None
    reach: Dim | None = None

    def prompt_of(self, length: int, rows: int | None = None) -> BoundModel:
        """Return the model that reads so many tokens of a prompt at once, given so many rows of the cache.

        The tokens are all of the prompt, or a piece.
        """
        numbers = {self.lengths.name: length, **({} if self.reach is None else {self.reach.name: rows or self.rows})}
        return self.prompt.at({name: numbers[name] for name in self.prompt.sizes})

    def token_of(self, rows: int) -> BoundModel:
        """Return the model that reads one token, given so many rows of the cache."""
        return self.token.at(dict.fromkeys(self.token.sizes, rows))

    @property
    def rows(self) -> int:
        """Rows of the cache: a call is given the first of them."""
        return self.maximum if self.reach is None else self.reach.high

    def rows_up_to(self, tokens: int) -> int:
        """Return the number of rows for a call that writes the last of so many tokens."""
        return self.rows if self.reach is None else -(-tokens // self.reach.multiple) * self.reach.multiple

    def pieces(self, length: int) -> list[tuple[int, int]]:
        """Return (position, tokens) of each piece of a prompt that is read at once.

        Raises DplcError for a length that was not compiled.
        """
        if not self.lengths.admits(length):
            low, high = self.lengths.low, self.lengths.high
            told = f"{low}" if low == high else f"{low} to {high}"
            raise DplcError(f"the prompt has {length} tokens; this was compiled for {told}")
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
                if buffer.name not in call.weights
            ),
            cache=sum(buffer.nbytes for buffer in _cache(token)),
            copied=_copied(token),
            prompt=self.prompt.figures.planned_bytes + _copied(prompt),
            token=planned_peak(token),
        )


def _cache(program: Program) -> list[Buffer]:
    """Return the inputs that are a cache: of a token, or of a piece."""
    return [buffer for buffer in program.inputs if buffer.name.startswith("cache_")]


def _copied(program: Program) -> int:
    """Return the bytes of the cache that a call does not update but copies."""
    return sum(buffer.nbytes for buffer in _cache(program) if buffer.name not in program.aliases.values())


@dataclass(frozen=True)
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
        """The most that is held at once: the prompt's temporaries are given back before the first token's are taken."""
        return self.weights + self.tables + self.cache + max(self.prompt, self.token + self.copied)


def all_lengths(maximum: int) -> Dim:
    """Return the range of prompts that leave room for a token. Raises DplcError if there is none."""
    check_length(1, maximum)
    return Dim("s", 1, maximum - 1, hint=min(USUAL, maximum - 1))


def compile_generation(
    source: ModelSource, length: int | Dim, maximum: int, shape: ModelShape, options: Compiler, rows: Any = True,
    chunk: int | None = None, step: int = STEP, tell: Tell = silent,
) -> Generation:  # fmt: skip
    """Compile a model to generate text.

    length: tokens of the prompt, or their range, `all_lengths(maximum)` at most, which one compile serves; maximum: of
    prompt and text; shape: dtype and layers; rows: parts of the range that are compiled separately when a prompt needs
    them, as in `dplc.compile`; chunk: the most tokens of a prompt that are read at once, which limits the temporaries,
    None for all; step: rows by which the part of the cache grows that a call is given.

    Raises DplcError for a prompt that leaves no room, and for a model that cannot be compiled.
    """
    for end in (length.low, length.high) if isinstance(length, Dim) else (length,):
        check_length(end, maximum)
    model = build(source, shape.dtype, shape.layers)
    if not model.can_generate() or called(model) is not model:
        raise DplcError(f"{source.name}: {type(model).__name__} is not a causal language model: it cannot generate")
    check_attention(model, maximum)
    lengths = length if isinstance(length, Dim) else Dim("s", length, length)
    reach = None  # how many rows of the cache a call may be given, if they are more than one step
    if maximum > step:
        most = -(-maximum // step) * step
        reach = Dim("n", step, most, step, hint=min(USUAL // step * step or step, most))
    room = maximum if reach is None else reach.high
    if chunk is None:
        wanted = _number_or_range(lengths)
        told = replace(shape, length=lengths.high)
        prompt = compile_call(source, told, lambda: capture_prompt(model, wanted, room), options, tell)
        prompt = with_rows(prompt, rows)
        cache: list[CacheTensor] = [(TORCH_DTYPES[output.dtype], output.shape) for output in prompt.outputs[1:]]
    else:
        chunk, (_, *kept) = min(chunk, lengths.high), capture_prompt(model, 1, room).captured.graph.outs
        cache = [(TORCH_DTYPES[param.dtype], tuple(map(int, param.shape))) for param in kept]
        part = Dim(lengths.name, 1, chunk, hint=chunk)
        told, pieces = replace(shape, length=chunk), _number_or_range(part)
        made = compile_call(source, told, lambda: capture_piece(model, pieces, cache, reach), options, tell)
        parts = octaves(part, options.target) if rows is True and chunk > 1 and reach is not None else rows
        prompt = with_rows(made, parts, _in_place)
    one = replace(shape, length=1)
    token = compile_call(source, one, lambda: capture_piece(model, None, cache, reach), options, tell)
    token = with_rows(token, (), _in_place)
    ends = model.config.eos_token_id
    stops = frozenset(ends if isinstance(ends, (list, tuple)) else () if ends is None else (ends,))
    return Generation(prompt, token, lengths, maximum, stops, chunk, reach)


def _number_or_range(lengths: Dim) -> int | Dim:
    return lengths if lengths.low < lengths.high else lengths.low


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
        self._prompts, self._tokens = (
            DynamicModelRunner(call, executor, _weights(call, values), device)
            for call in (generation.prompt, generation.token)
        )
        first = generation.lengths.high if length is None else length
        self._rows = generation.rows_up_to(first + 1)
        self._token = self._reading(self._rows)
        start, count = generation.pieces(first)[0]
        self._prompt(count, generation.rows_up_to(start + count))

    def tokens(self, prompt: Sequence[int], count: int, stops: Collection[int] | None = None) -> Iterator[int]:
        """Yield at most `count` new tokens, each when it is known.

        A token of `stops` (by default the model's) is the last. It yields no more than there is room for. Raises
        DplcError for a prompt of a length that was not compiled.
        """
        found, length = self.generation, len(prompt)
        found.pieces(length)
        ends = found.stops if stops is None else stops
        count = min(count, found.maximum - length)
        if count < 1:
            return
        token, cache = self._read(prompt)
        position = torch.zeros((), dtype=torch.long, device=self._device)
        for place in range(length, length + count):
            number = int(token)
            yield number
            if number in ends or place + 1 == length + count:
                return
            position.fill_(place)
            rows = found.rows_up_to(place + 1)
            if rows != self._rows:
                self._token, self._rows = self._reading(rows, self._token), rows
            token = _run(self._token, {"input_ids": token, "position": position}, cache, rows)

    def _read(self, prompt: Sequence[int]) -> tuple[Any, list[Any]]:
        """Return the first new token, and the cache. The call's temporaries are freed."""
        ids = torch.tensor([list(prompt)], device=self._device)
        if self.generation.chunk is None:
            token, *cache = self._prompt(len(prompt)).run({"input_ids": ids})
            return token, cache
        position = torch.zeros((), dtype=torch.long, device=self._device)
        outputs = self.generation.token_of(self.generation.rows).outputs[1:]
        kinds = [(output.shape, getattr(torch, TORCH_DTYPES[output.dtype])) for output in outputs]
        # zeros, because masked values are multiplied by 0, and must be numbers
        cache = [torch.zeros(shape, dtype=dtype, device=self._device) for shape, dtype in kinds]
        token, runner, runs = None, None, (0, 0)  # runs: the tokens that the runner reads, and rows of the cache
        for start, count in self.generation.pieces(len(prompt)):
            rows = self.generation.rows_up_to(start + count)
            if runner is None or runs != (count, rows):
                runner, runs = self._prompt(count, rows), (count, rows)
            position.fill_(start)
            given = {"input_ids": ids[:, start : start + count].contiguous(), "position": position}
            token = _run(runner, given, cache, rows)
        return token, cache

    def _reading(self, rows: int, sharing: ModelRunner | None = None) -> ModelRunner:
        """Return the runner that reads a token, given so many rows of the cache."""
        return self._tokens.fresh(self.generation.token_of(rows), sharing)

    def _prompt(self, length: int, rows: int | None = None) -> ModelRunner:
        return self._prompts.fresh(self.generation.prompt_of(length, rows), self._token)


def _run(runner: ModelRunner, given: Tensors, cache: Sequence[Any], rows: int) -> Any:
    """Return the next token. The call reads and updates the first rows of the cache."""
    first = [tensor[:rows] for tensor in cache]
    token, *written = runner.run({**given, **{f"cache_{number}": tensor for number, tensor in enumerate(first)}})
    for before, after in zip(first, written, strict=True):
        if after.data_ptr() != before.data_ptr():
            before.copy_(after)
    return token


def _weights(call: CompiledModel, weights: Tensors) -> dict[str, Any]:
    """Return {buffer: tensor} of its weights. Raises DplcError for a missing one."""
    missing = [want.names[0] for want in call.weights.values() if want.names[0] not in weights]
    if missing:
        raise DplcError(f"the weight `{missing[0]}` is not given", notes=(f"{len(missing)} in all are not",))
    return {buffer: weights[want.names[0]] for buffer, want in call.weights.items()}


# ---- Tokenise text with the tokenizer in a model's folder.


FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")
WITHOUT = "give the tokens themselves: --ids 1,2,3"


class Tokenizer:
    """Tokenizer of transformers for a model: a folder, a configuration in the tokenizer's folder, or an id of the hub.

    Nothing of the model is executed. Raises DplcError if there is none.
    """

    def __init__(self, model: str) -> None:
        place = folder_of(model)
        held = place is not None and any((place / name).is_file() for name in FILES)
        if not held and not is_id(model):
            raise DplcError(f"{model} has no tokenizer beside it", hint=WITHOUT)
        try:
            from transformers import AutoTokenizer
        except ImportError:
            raise DplcError("tokenizers need transformers", hint="pip install 'dplc[hub]'") from None
        with explained(f"the tokenizer of {model} cannot be used", WITHOUT):  # damaged files, no network
            if not held:
                reach_hub()
            self._tokenizer: Any = AutoTokenizer.from_pretrained(str(place) if held else model)

    def tokens(self, text: str) -> list[int]:
        """Return the tokens of a text, with those that the model wants at its start."""
        return [int(number) for number in self._tokenizer(text)["input_ids"]]

    def text(self, tokens: Sequence[int]) -> str:
        """Return the text of some tokens, without those that only mark its start and end."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True))


class Stream:
    """A text that comes token by token."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer, self._tokens, self._told = tokenizer, list[int](), ""

    def more(self, token: int, last: bool = False) -> str:
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
    if folder is None or not (folder / "generation_config.json").is_file():
        return None
    try:
        found = json.loads((folder / "generation_config.json").read_bytes())["eos_token_id"]
        return frozenset(map(int, found if isinstance(found, list) else [found]))
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
