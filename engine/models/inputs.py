"""What a model is called with, by the kinds of input that transformers says it takes: tokens, an image, a spectrum.

The extents that a configuration says are taken from it; how many tokens and how many at once is the caller's to say.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ...ir.diagnostic import DplcError
from ...ir.schemas import DTYPES
from ..capture.sizes import Dim

Extents = tuple[int | Dim, ...]
TOKENS, IMAGES = "input_ids", "pixel_values"


def called(model: Any) -> Any:
    """The part that is compiled: of an encoder and a decoder the encoder, for each token asks the decoder anew."""
    return model.get_encoder() if getattr(model.config, "is_encoder_decoder", False) else model


def extents(model: Any, length: int | Dim, batch: int | Dim) -> dict[str, Extents]:
    """{input: its extents} of a call of `called(model)`: tokens i64, all else floats.

    Raises DplcError for a model that takes anything else, and for one whose configuration leaves an extent open.
    """
    part = called(model)
    kinds = (part.input_modalities,) if isinstance(part.input_modalities, str) else part.input_modalities
    images = "image" in kinds and IMAGES in inspect.signature(part.forward).parameters  # a class may say its parent's
    if part.main_input_name == TOKENS and not images:
        return {TOKENS: (batch, length)}
    found: dict[str, Extents] = {TOKENS: (batch, length)} if "text" in kinds else {}
    if images:
        side = _said(model, "image_size")
        height, width = side if isinstance(side, (list, tuple)) else (side, side)
        found[IMAGES] = (batch, _said(model, "num_channels"), height, width)
    elif part.main_input_name == "input_features":
        # two frames a position: such encoders begin with a convolution that takes every second one
        found["input_features"] = (batch, _said(model, "num_mel_bins"), 2 * _said(model, "max_source_positions"))
    else:
        raise DplcError(f"this model takes `{part.main_input_name}`: only tokens, images and spectra are known here")
    if TOKENS not in found and isinstance(length, Dim):
        raise DplcError("--seq-len is a range, and this model takes no tokens", hint="--batch takes a range, too")
    return found


def _said(model: Any, field: str) -> Any:
    """A number of the configuration, or of its part about images. Raises DplcError where there is none."""
    for config in (model.config, getattr(model.config, "vision_config", None)):
        value = getattr(config, field, None)
        if isinstance(value, int) or (isinstance(value, (list, tuple)) and len(value) == 2):
            return value
    raise DplcError(f"the configuration does not say `{field}`, which the input's shape depends on")


def drawn(kinds: Mapping[str, tuple[str, Sequence[int]]], config: Mapping[str, Any], seed: int = 0) -> dict[str, Any]:
    """{input: tensor}, the same for the same seed: tokens that the model has, floats of a normal distribution.

    kinds: {input: (dtype by our name, shape as torch has it)}.
    """
    generator, words = torch.Generator().manual_seed(seed), vocabulary(config)
    made = {}
    for name, (kind, shape) in kinds.items():
        dtype = getattr(torch, DTYPES[kind])
        if dtype.is_floating_point:
            made[name] = torch.randn(tuple(shape), generator=generator).to(dtype)
        else:
            made[name] = torch.randint(0, words, tuple(shape), generator=generator).to(dtype)
    return made


def vocabulary(config: Mapping[str, Any]) -> int:
    """How many tokens a model has, by its configuration or the part of it about texts."""
    parts = (config, config.get("text_config"))
    found = (part.get("vocab_size") for part in parts if isinstance(part, Mapping))
    return next((words for words in found if words is not None), 2)
