"""Linear layers with packed weights: one layout and one unpacking, and the checkpoints that are read into it.

A weight is `(code - zero)*scale`, with a scale and an optional zero for each group of a row. Codes of 4 bits lie two in
a byte, the first in the low half. GPTQ, AWQ, compressed-tensors and block-wise fp8 are tables of how their tensors map
onto that; `--quantise` rounds to the nearest code.
"""

from __future__ import annotations

import fnmatch
import itertools
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import torch
from msgspec import Meta
from torch import Tensor, nn
from torch.nn import functional

from ...ir.diagnostic import DplcError, UsageError, no_such
from ..store.store import FrozenRecord

Kind = Literal["int8", "int4", "nf4", "fp8"]
BITS = {"int8": 8, "int4": 4, "nf4": 4, "fp8": 8}
# quantiles of a normal distribution: Dettmers et al., QLoRA (2023), appendix E
NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip


class Packing(FrozenRecord):
    """How a linear layer is stored. group: inputs of a scale, 0 for a whole row; order: inputs are permuted first.

    reader: the kind of checkpoint, a name in READERS; detail: what else its tensors depend on.
    """

    kind: Kind
    reader: Annotated[str, Meta(max_length=32)]
    group: Annotated[int, Meta(ge=0, le=2**24)] = 0
    zeros: bool = False
    order: bool = False
    detail: Annotated[str, Meta(max_length=32)] = ""


class Unpacked(NamedTuple):
    """A weight as codes. codes: integers from 0, or f8, [outputs, inputs]; scales, zeros: [outputs, groups]."""

    codes: Tensor
    scales: Tensor
    zeros: Tensor | None = None
    order: Tensor | None = None


class PackedLinear(nn.Module):
    """Linear layer whose weight is stored packed, and unpacked where it is used. Its buffers have no values yet.

    codes: u8[outputs, inputs / 2] of 4 bits, i8 or f8[outputs, inputs] of 8; scales: f[outputs, groups]; zeros:
    u8[outputs, groups]; order: i64[inputs], the inputs in the order of the codes. Raises DplcError for a group that
    does not divide the inputs.
    """

    def __init__(self, like: nn.Linear, packing: Packing, name: str):
        super().__init__()
        outputs, inputs = like.weight.shape
        group = packing.group or inputs
        if inputs % group or (BITS[packing.kind] == 4 and inputs % 2):
            raise DplcError(f"`{name}` has {inputs} inputs, not a multiple of a group of {group}")
        self.packing, self.group, self.bias, self.dtype = packing, group, like.bias, like.weight.dtype
        coded = torch.uint8 if BITS[packing.kind] == 4 else torch.int8
        self._empty(
            "codes",
            (outputs, inputs * BITS[packing.kind] // 8),
            torch.float8_e4m3fn if packing.kind == "fp8" else coded,
        )
        self._empty("scales", (outputs, inputs // group), self.dtype)
        if packing.zeros:
            self._empty("zeros", (outputs, inputs // group), torch.uint8)
        if packing.order:
            self._empty("order", (inputs,), torch.int64)

    def _empty(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        self.register_buffer(name, torch.empty(shape, dtype=dtype, device="meta"))

    def weight(self) -> Tensor:
        """Return the unpacked weight, f[outputs, inputs], in the order of the codes."""
        codes, kind = self.codes, self.packing.kind
        if BITS[kind] == 4:
            codes = torch.stack((codes & 15, codes >> 4), -1)
        codes = codes.reshape(*self.scales.shape, self.group)
        if kind == "nf4":
            values = torch.tensor(NF4, dtype=self.dtype, device=codes.device)[codes.long()]
        else:
            values = codes.to(self.dtype)
        if self.packing.zeros:
            zeros = self.zeros.to(self.dtype) - 128 * (kind == "int8")
            values = values - zeros[..., None]
        elif kind == "int4":
            values = values - 8
        return (values * self.scales[..., None]).flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        """x: f[.., inputs] -> f[.., outputs]."""
        x = x[..., self.order] if self.packing.order else x
        return functional.linear(x, self.weight(), self.bias)


def packed(found: Unpacked, part: str, packing: Packing) -> Tensor:
    """Return a buffer of a PackedLinear: "codes", "scales", "zeros" or "order"."""
    if part != "codes":
        made: Tensor = getattr(found, part)
        return made.to(torch.uint8) if part == "zeros" else made
    if packing.kind == "int8":
        return (found.codes - 128).to(torch.int8)
    if BITS[packing.kind] == 4:
        return (found.codes[:, ::2] | found.codes[:, 1::2] << 4).to(torch.uint8)
    return found.codes


# ---- Checkpoints: which tensors a layer has in files, and what codes these are.


def _bits(words: Tensor, bits: int, axis: int, order: Collection[int] = ()) -> Tensor:
    """Return the numbers packed in 32-bit words along an axis, low bits first. order: of the numbers in a word."""
    shifts = torch.tensor(list(order) or range(32 // bits), device=words.device) * bits
    words = words.movedim(axis, -1)
    return (words[..., None] >> shifts & (1 << bits) - 1).flatten(-2).movedim(-1, axis)


def _gptq(t: Mapping[str, Tensor], packing: Packing) -> Unpacked:
    bits = BITS[packing.kind]
    codes, scales = _bits(t["qweight"], bits, 0).T, t["scales"].T
    zeros = _bits(t["qzeros"], bits, 1).T[: len(scales)] + (packing.detail != "gptq_v2")
    if not packing.order:
        return Unpacked(codes, scales, zeros)
    order = t["g_idx"].long().argsort(stable=True)
    return Unpacked(codes[:, order], scales, zeros, order)


def _awq(t: Mapping[str, Tensor], packing: Packing) -> Unpacked:
    order = (0, 4, 1, 5, 2, 6, 3, 7)  # columns lie 0, 2, 4, 6, 1, 3, 5, 7 in a word
    return Unpacked(_bits(t["qweight"], 4, 1, order).T, t["scales"].T, _bits(t["qzeros"], 4, 1, order).T)


def _compressed(t: Mapping[str, Tensor], packing: Packing) -> Unpacked:
    bits, scales = BITS[packing.kind], t["weight_scale"]
    if packing.detail == "pack-quantized":
        codes = _bits(t["weight_packed"], bits, 1)
        zeros = _bits(t["weight_zero_point"], bits, 0)[: len(codes)] if packing.zeros else None
    else:
        codes = t["weight"]
        codes = codes if packing.kind == "fp8" else codes.int() + (1 << bits - 1)
        zeros = t["weight_zero_point"] + (1 << bits - 1) if packing.zeros else None
    scales = scales.reshape(-1, 1) if scales.dim() < 2 else scales
    return Unpacked(codes, scales.expand(len(codes), -1), zeros)


def _blocks(t: Mapping[str, Tensor], packing: Packing) -> Unpacked:
    rows = int(packing.detail)
    return Unpacked(t["weight"], t["weight_scale_inv"].repeat_interleave(rows, 0)[: len(t["weight"])])


def _nearest(t: Mapping[str, Tensor], packing: Packing) -> Unpacked:
    weight = t["weight"]
    groups = weight.double().reshape(len(weight), -1, packing.group or weight.shape[1])
    low, high = groups.amin(-1, True), groups.amax(-1, True)
    most = torch.maximum(high, -low)
    scales = {"int8": most / 127, "int4": most / 7, "nf4": most, "fp8": most / 448}[packing.kind]
    zeros = None
    if packing.zeros:
        low, top = low.clamp(max=0), (1 << BITS[packing.kind]) - 1
        scales = (high.clamp(min=0) - low) / top
        scales = torch.where(scales > 0, scales, 1.0)
        zeros = (-low / scales).round().clamp(0, top)
        codes = (groups / scales + zeros).round().clamp(0, top).int()
    else:
        scales = torch.where(scales > 0, scales, 1.0)
        scaled = groups / scales
        if packing.kind == "fp8":
            codes = scaled.to(torch.float8_e4m3fn)
        elif packing.kind == "nf4":
            edges = torch.tensor(
                [(a + b) / 2 for a, b in itertools.pairwise(NF4)], dtype=groups.dtype, device=weight.device
            )
            codes = torch.bucketize(scaled, edges)
        else:
            codes = (scaled.round() + (1 << BITS[packing.kind] - 1)).int()
    return Unpacked(codes.flatten(1), scales[..., 0], zeros if zeros is None else zeros[..., 0])


class CheckpointReader(NamedTuple):
    """A kind of checkpoint. tensors: names of a layer's tensors, with those that only some packings have."""

    tensors: Callable[[Packing], tuple[str, ...]]
    unpack: Callable[[Mapping[str, Tensor], Packing], Unpacked]


READERS = {
    "gptq": CheckpointReader(lambda p: ("qweight", "qzeros", "scales", *("g_idx",) * p.order), _gptq),
    "awq": CheckpointReader(lambda p: ("qweight", "qzeros", "scales"), _awq),
    "compressed-tensors": CheckpointReader(
        lambda p: (
            "weight_packed" if p.detail == "pack-quantized" else "weight", "weight_scale",
            *("weight_zero_point",) * p.zeros,
        ),
        _compressed,
    ),
    "fp8": CheckpointReader(lambda p: ("weight", "weight_scale_inv"), _blocks),
    "nearest": CheckpointReader(lambda p: ("weight",), _nearest),
}  # fmt: skip


# ---- Configurations: which layers are packed, and how.


def nearest(text: str) -> dict[str, Any]:
    """Return the configuration of `--quantise`: KIND[:GROUP][:zeros], as int8, int4:128, int4:64:zeros, nf4:64, fp8.

    Raises UsageError.
    """
    kind, *rest = text.split(":")
    if kind not in BITS:
        raise no_such("kind of weights", kind, BITS)
    zeros = rest[-1:] == ["zeros"]
    numbers = rest[: len(rest) - zeros]
    if (
        len(numbers) > 1
        or not all(n.isdecimal() and int(n) > 0 for n in numbers)
        or (zeros and kind not in ("int8", "int4"))
    ):
        raise UsageError(f"--quantise {text}: write int8, int4:128, int4:128:zeros, nf4:64 or fp8")
    return {"quant_method": "nearest", "kind": kind, "group": int(numbers[0]) if numbers else 0, "zeros": zeros}


def _said(config: Mapping[str, Any], name: str, known: Collection[Any], default: Any = None) -> Any:
    """Return a field of a configuration. Raises DplcError for a value that no reader knows."""
    value = config.get(name, default)
    if value not in known:
        shown = ", ".join(map(str, known))
        raise DplcError(f"quantised weights with `{name}` {str(value)[:40]} are not read: {shown} are possible")
    return value


def _of_gptq(c: Mapping[str, Any]) -> Packing:
    kind: Kind = "int4" if _said(c, "bits", (4, 8)) == 4 else "int8"
    detail = _said(c, "checkpoint_format", ("gptq", "gptq_v2"), "gptq")
    return Packing(kind, "gptq", max(_group(c), 0), True, bool(c.get("desc_act")), detail)


def _of_awq(c: Mapping[str, Any]) -> Packing:
    _said(c, "version", ("gemm", "GEMM"), "gemm"), _said(c, "bits", (4,), 4), _said(c, "zero_point", (True,), True)
    return Packing("int4", "awq", max(_group(c), 0), True)


def _of_compressed(c: Mapping[str, Any], scheme: Mapping[str, Any]) -> Packing:
    detail = scheme.get("format") or c.get("format")
    _said({"format": detail}, "format", ("pack-quantized", "int-quantized", "float-quantized", "naive-quantized"))
    bits, sort = _said(scheme, "num_bits", (4, 8)), _said(scheme, "type", ("int", "float"), "int")
    _said(scheme, "strategy", ("tensor", "channel", "group"))
    _said(scheme, "actorder", (None, False, "static", "weight"))
    if (sort, bits) == ("float", 4):
        raise DplcError("quantised weights of 4-bit floats are not read")
    kind: Any = "fp8" if sort == "float" else f"int{bits}"
    zeros = not scheme.get("symmetric", True)
    return Packing(kind, "compressed-tensors", max(_group(scheme), 0), zeros, detail=str(detail))


def _of_fp8(c: Mapping[str, Any]) -> Packing:
    size = c.get("weight_block_size")
    if not (isinstance(size, (list, tuple)) and len(size) == 2 and all(type(n) is int and n > 0 for n in size)):
        raise DplcError("quantised weights with `quant_method` fp8 need a `weight_block_size` of two numbers")
    return Packing("fp8", "fp8", size[1], detail=str(size[0]))


def _group(config: Mapping[str, Any]) -> int:
    """Return the inputs of a group; 0 or less for a row."""
    value = config.get("group_size")
    if value is not None and type(value) is not int:
        raise DplcError(f"quantised weights with `group_size` {str(value)[:40]} are not read: it is a number")
    return value or 0


@dataclass(frozen=True)
class _Scheme:
    """A packing and the layers that have it: names or classes, with `re:` before a pattern; () for all."""

    packing: Packing
    targets: tuple[str, ...] = ()


def _schemes(config: Mapping[str, Any]) -> Iterator[_Scheme]:
    method = config.get("quant_method")
    match method:
        case "gptq":
            yield _Scheme(_of_gptq(config))
        case "awq":
            yield _Scheme(_of_awq(config))
        case "fp8":
            yield _Scheme(_of_fp8(config))
        case "nearest":
            yield _Scheme(Packing(config["kind"], "nearest", config["group"], config["zeros"]))
        case "compressed-tensors":
            groups = config.get("config_groups")
            for group in groups.values() if isinstance(groups, dict) else ():
                scheme = group.get("weights") if isinstance(group, dict) else None
                if isinstance(scheme, dict):
                    yield _Scheme(_of_compressed(config, scheme), tuple(group.get("targets") or ("Linear",)))
        case _:
            known = ", ".join(name for name in READERS if name != "nearest")
            raise DplcError(f"quantised weights of the method `{str(method)[:40]}` are not read", hint=f"{known} are")


def _named(name: str, patterns: Collection[str]) -> bool:
    """Return whether a layer is listed: by its name, a part of it, or a pattern."""
    return any(
        re.match(p[3:], name) is not None if p.startswith("re:") else p in (name, "Linear") or f".{p}." in f".{name}."
        or fnmatch.fnmatch(name, p)
        for p in patterns
    )  # fmt: skip


def pack_layers(model: Any, config: Mapping[str, Any]) -> None:
    """Replace the linear layers of a model by packed ones, as a `quantization_config` says. The head stays as it is.

    Raises DplcError for a format that is not read, and for one that no layer has.
    """
    schemes = list(_schemes(config))
    left = [*(config.get("ignore") or ()), *(config.get("modules_to_not_convert") or ())]
    head, count = model.get_output_embeddings(), 0
    for name, module in list(model.named_modules()):
        if not isinstance(module, nn.Linear) or module is head or _named(name, left):
            continue
        found = next((s for s in schemes if not s.targets or _named(name, s.targets)), None)
        if found is not None:
            parent, _, own = name.rpartition(".")
            setattr(model.get_submodule(parent), own, PackedLinear(module, found.packing, name))
            count += 1
    if not count:
        raise DplcError("no linear layer of this model has quantised weights")


def packings(model: nn.Module) -> dict[str, Packing]:
    """Return {name of a buffer: how its layer is packed}."""
    layers = ((n, m) for n, m in model.named_modules() if isinstance(m, PackedLinear))
    return {f"{name}.{part}": m.packing for name, m in layers for part, _ in m.named_buffers()}
