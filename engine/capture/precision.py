"""TF32 as torch says: the operators that its settings govern, and what the settings are.

Tensor cores multiply float32 in TF32, which keeps 11 of 24 bits of each operand. torch has a setting for convolutions
(on by default) and one for products of matrices (off by default).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ...codegen.target import Target
from ...ir.diagnostic import no_such
from ...ir.torch import TorchGraph
from ..language.rule import policy

CHOICES = ("auto", "on", "off")
AS_CPU = "auto on a CPU"  # which has no TF32: for tensors of a CPU that are compiled for no target in particular
# By the number of `rules/policy.rw` that says whether their products are in TF32.
_OPERATORS = {
    "tf32_convolutions": """
        Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d Convolution ConvolutionBackward
    """,
    "tf32_products": """
        Addbmm Addmm Baddbmm Bilinear Bmm ChainMatmul Einsum Inner LinalgMatmul LinalgMultiDot Linear Matmul Mm
        ScaledDotProductAttention Tensordot
    """,
}
OPERATORS = {number: tuple(ops.split()) for number, ops in _OPERATORS.items()}


def tf32_numbers(choice: str = "auto") -> dict[str, int]:
    """Return the numbers of `rules/policy.rw` for a choice: for `auto` those of torch's settings now.

    Raises UsageError for an unknown choice.
    """
    if choice not in (*CHOICES, AS_CPU):
        raise no_such("TF32 choice", choice, CHOICES)
    if choice != "auto":
        return dict.fromkeys(OPERATORS, int(choice == "on"))
    backends = torch.backends
    convolutions = backends.cudnn.enabled and backends.cudnn.conv.fp32_precision == "tf32"
    return {
        "tf32_convolutions": int(convolutions),
        "tf32_products": int(backends.cuda.matmul.fp32_precision == "tf32"),
    }


@contextmanager
def one_precision() -> Iterator[None]:
    """Give cuDNN one precision where torch has several: an export asks for the one (`allow_tf32`) and would fail."""
    cudnn = torch.backends.cudnn
    kept = cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision
    if len(set(kept)) == 1:
        yield
        return
    torch._C._set_cudnn_allow_tf32(True)  # what `allow_tf32 = True` does, unless torch forbids changes
    try:
        yield
    finally:
        cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision = kept


def tf32_operators(target: Target) -> frozenset[str]:
    """Return the operators whose float32 operands the tensor cores of a compile round to TF32."""
    return frozenset(op for ops, in_tf32 in _decided(target).values() if in_tf32 for op in ops)


def _decided(target: Target) -> dict[str, tuple[tuple[str, ...], bool]]:
    """Return the operators of each setting, with whether their products are in TF32."""
    in_force = policy(target).tf32_convolutions, policy(target).tf32_products
    return {number: (ops, on > 0) for (number, ops), on in zip(OPERATORS.items(), in_force, strict=True)}


def tf32_line(target: Target, graph: TorchGraph) -> str:
    """Return a line for a person on the operators of a program that TF32 concerns; "" if there are none."""
    said = []
    for number, (ops, in_tf32) in _decided(target).items():
        if any(op.op in ops and any(kind.dtype == "f32" for kind in op.types) for op in graph.body):
            said.append(f"{number.removeprefix('tf32_')} {'in TF32' if in_tf32 else 'in f32'}")
    return f"{', '.join(said)} (--tf32)" if said else ""
