"""Which ATen ops nothing takes, by cause: what `dplc ops --missing` prints."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ...ir.schemas import aten_name, names
from ..capture.decompositions import table
from ..language.rule import RuleSet
from .operators import operators

RANDOM, SHAPE, VALUE = "draw random numbers", "give a shape that depends on values", "give a number of Python"
COMPLEX, SPARSE, BACKWARD = (
    "spectra and complex numbers",
    "sparse and quantized tensors",
    "derivatives that PyTorch names",
)
DEVICE, OPEN = "names of one device's or library's own kernels", "no rule yet"
WORDS = {
    COMPLEX: ("fft", "complex", "stft", "istft", "polar", "real", "imag"),
    SPARSE: ("sparse", "quantize", "quantized", "fake", "dequantize", "csr", "coo", "crow", "ccol", "q"),
    BACKWARD: ("backward", "grad"),
    DEVICE: ("cudnn", "mkldnn", "miopen", "mps", "nnpack", "thnn", "cuda", "cufft", "cslt", "nested", "jagged"),
}  # fmt: skip


def missing(rules: RuleSet) -> dict[str, list[str]]:
    """{cause: the ops in ATen's names that neither a rule nor the table of decompositions takes}, by name."""
    taken = set(operators(rules)) | {_bare(overload) for overload in table()}
    found: dict[str, list[str]] = {}
    for name in sorted(aten_name(op) for op in names()):
        packet = getattr(torch.ops.aten, name, None)
        if packet is not None and name not in taken:
            overloads = [getattr(packet, word) for word in packet.overloads()]
            found.setdefault(_cause(name, overloads), []).append(name)
    return dict(sorted(found.items(), key=lambda entry: len(entry[1])))


def supported(rules: RuleSet) -> tuple[int, int]:
    """How many ops rules take, and how many more PyTorch's own decompositions."""
    ruled = set(operators(rules))
    return len(ruled), len({_bare(overload) for overload in table()} - ruled)


def _bare(overload: Any) -> str:
    return str(overload._schema.name).rpartition("::")[2]


def _cause(name: str, overloads: Iterable[Any]) -> str:
    tags = {tag for overload in overloads for tag in overload.tags}
    if torch.Tag.nondeterministic_seeded in tags:
        return RANDOM
    words = set(name.strip("_").split("_"))
    for cause, told in WORDS.items():
        if words & set(told):
            return cause
    if torch.Tag.dynamic_output_shape in tags:
        return SHAPE
    return VALUE if torch.Tag.data_dependent_output in tags else OPEN
