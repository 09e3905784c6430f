"""A causal language model as two calls with a cache of keys and values: the prompt, at once or a piece after the other,
then one token at a time.

All are transformers' own module, given a cache of ours: what it hands to attention, and what it keeps. The cache has
a row of all heads for each position, so that its first rows lie together: a call is given those that may be written,
and reads no others. How many they are is known at a call, so that one compile serves every position.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...ir.diagnostic import DplcError
from ...ir.schemas import DTYPES as TORCH_DTYPES
from ..capture.sizes import Dim
from .capturing import CapturedModel, capture_call

CacheTensor = tuple[str, Sequence[int]]  # (dtype by torch's name, shape)
KINDS = ("full_attention", "sliding_attention")


def capture_prompt(model: Any, length: int | Dim, rows: int) -> CapturedModel:
    """All tokens of a prompt: input_ids: i64[1, length] -> the next token i64[1]; then of every layer its keys and its
    values, f[rows, heads, width], zeros after the prompt.

    length: of the prompt, or the range that it may have; rows: of the cache. Raises DplcError for a model that keeps
    anything else from token to token.
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


def cache_of(model: Any, rows: int) -> list[CacheTensor]:
    """What a model keeps where its cache has so many rows: of every layer its keys and its values.

    Raises DplcError for a model that keeps anything else.
    """
    _, *kept = capture_prompt(model, 1, rows).captured.graph.outs
    return [(TORCH_DTYPES[param.dtype], tuple(map(int, param.shape))) for param in kept]


def capture_piece(
    model: Any, length: int | Dim, cache: Sequence[CacheTensor], rows: Dim | None = None
) -> CapturedModel:  # fmt: skip
    """Some tokens of a prompt: input_ids: i64[1, length], the position of the first: i64[], and the cache of all before
    -> the next token i64[1], and the cache with the rows of these tokens at their positions.

    length: of the piece, or the range that it may have; rows: as of `capture_token`.
    """

    def piece(input_ids: Any, position: Any, cache: Sequence[Any]) -> tuple[Any, ...]:
        count = input_ids.shape[1]
        kept = _Piece(cache, position, count)
        positions = position + torch.arange(count, device=input_ids.device)[None]
        token = _next_token(model, kept, input_ids=input_ids, position_ids=positions)
        return token, *kept.tensors()

    ids = _ids(model, length.size().hint if isinstance(length, Dim) else length)
    given, dynamic = _before(cache, rows, ids.device)
    if isinstance(length, Dim):
        dynamic["input_ids"] = {1: length}
    return capture_call(model, {"input_ids": ids, **given}, piece, dynamic or None)


def _before(
    cache: Sequence[CacheTensor], rows: Dim | None, device: Any
) -> tuple[dict[str, Any], dict[str, Any]]:  # fmt: skip
    """What stands behind tokens that come at a position, the cache before them; and which extents of it are a range."""
    first = [shape if rows is None else (rows.size().hint, *shape[1:]) for _, shape in cache]
    pairs = zip(cache, first, strict=True)
    tensors = [torch.empty(tuple(shape), dtype=getattr(torch, kind), device=device) for (kind, _), shape in pairs]
    dynamic = {} if rows is None else {f"cache_{place}": {0: rows} for place in range(len(tensors))}
    return {"position": torch.empty((), dtype=torch.long, device=device), "cache": tensors}, dynamic


def capture_token(model: Any, cache: Sequence[CacheTensor], rows: Dim | None = None) -> CapturedModel:
    """One token: input_ids: i64[1, 1], its position: i64[], and the cache that the prompt's call returned, (dtype by
    torch's name, shape) of each tensor -> the next token i64[1], and the cache with this token's row at its position.

    rows: how many of the cache a call is given, its first; None for all.
    """

    def token(input_ids: Any, position: Any, cache: Sequence[Any]) -> tuple[Any, ...]:
        kept = _Written(cache, position)
        chosen = _next_token(model, kept, input_ids=input_ids, position_ids=position.reshape(1, 1))
        return chosen, *kept.tensors()

    ids = _ids(model, 1)
    given, dynamic = _before(cache, rows, ids.device)
    return capture_call(model, {"input_ids": ids, **given}, token, dynamic or None)


def check_attention(model: Any, maximum: int) -> None:
    """Raises DplcError where a token does not see all tokens before it, up to a maximum length."""
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
    """The token of the largest logit after the last one given: i64[1]."""
    (logits, *_) = model(past_key_values=kept, use_cache=True, return_dict=False, logits_to_keep=1, **arguments)
    return logits[:, -1].argmax(-1)


class _PromptCache:
    """What transformers takes for a cache while the prompt runs: attention gets the prompt's own keys and values."""

    is_compileable = False

    def __init__(self, length: int) -> None:
        self.length = length
        self.layers: dict[int, tuple[Any, Any]] = {}

    def update(self, keys: Any, values: Any, layer: int, *_: Any, **__: Any) -> tuple[Any, Any]:
        """The keys and values that this layer's attention reads."""
        self.layers[layer] = keys, values
        return self.layers[layer]

    def tensors(self) -> list[Any]:
        """Of every layer the keys, then the values, a row of all heads for each position."""
        return [_by_position(tensor) for layer in sorted(self.layers) for tensor in self.layers[layer]]

    def get_seq_length(self, *_: Any) -> Any:
        """The tokens before this call; of it a module makes its positions and the masks of its attention."""
        return 0

    def get_query_offset(self, *_: Any) -> Any:
        return self.get_seq_length()

    def get_mask_sizes(self, *_: Any) -> tuple[int, int]:
        """(rows of the cache that attention reads, the position of the first)"""
        return self.length, 0


class _Written(_PromptCache):
    """The same for one token at a position that is an input: attention gets the whole cache with its row written.

    is_compileable: transformers then makes a mask for one token, too, as for its own static cache.
    """

    is_compileable = True

    def __init__(self, cache: Sequence[Any], position: Any) -> None:
        super().__init__(cache[0].shape[0])
        self.cache, self.position = cache, position

    def update(self, keys: Any, values: Any, layer: int, *_: Any, **__: Any) -> tuple[Any, Any]:
        before = map(_by_head, self.cache[2 * layer : 2 * layer + 2])
        rows = torch.arange(self.length, device=keys.device)[:, None]
        new_keys, new_values = (
            torch.where(rows == self.position, new, old) for new, old in zip((keys, values), before, strict=True)
        )
        return super().update(new_keys, new_values, layer)

    def get_seq_length(self, *_: Any) -> Any:
        return self.position


class _Piece(_PromptCache):
    """The same for some tokens from a position on: attention gets the whole cache with their rows written."""

    def __init__(self, cache: Sequence[Any], position: Any, count: Any) -> None:
        super().__init__(cache[0].shape[0])
        self.cache, self.position = cache, position
        place = torch.arange(self.length, device=cache[0].device) - position
        self.written = (place >= 0) & (place < count)
        self.place = torch.where(self.written, place, torch.zeros_like(place))  # of a row among those of the piece

    def update(self, keys: Any, values: Any, layer: int, *_: Any, **__: Any) -> tuple[Any, Any]:
        before = map(_by_head, self.cache[2 * layer : 2 * layer + 2])
        written = self.written[:, None]
        new_keys, new_values = (
            torch.where(written, new[:, :, self.place], old) for new, old in zip((keys, values), before, strict=True)
        )
        return super().update(new_keys, new_values, layer)

    def get_seq_length(self, *_: Any) -> Any:
        return self.position


def _by_position(tensor: Any) -> Any:
    """f[1, heads, positions, width], as attention has it, to f[positions, heads, width], as the cache does."""
    return tensor[0].transpose(0, 1)


def _by_head(tensor: Any) -> Any:
    return tensor.transpose(0, 1)[None]
