"""The bits of tensors: all of them, in order, however they lie in memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from dplc.engine.capture.capture import bits

KINDS = (torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.uint8, torch.bool, torch.complex64)
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "as it is": lambda x: x,
    "every other": lambda x: x[::2],
    "one of a stride": lambda x: x[1:2][::2],
    "one of a column": lambda x: x.reshape(2, 3)[:1, 1:2],
    "one by strides": lambda x: x.as_strided((1, 1), (5, 7), 2),
    "no dimensions": lambda x: x[2],
    "transposed": lambda x: x.reshape(2, 3).T,
    "repeated": lambda x: x[:1].expand(4),
    "none": lambda x: x[:0],
}


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_bits(kind: torch.dtype, layout: str) -> None:
    value = LAYOUTS[layout](torch.tensor([3, 1, 0, 2, 5, 4]).to(kind))
    fresh = torch.empty(value.shape, dtype=kind).copy_(value)
    assert bytes(bits(value)) == bytes(fresh.untyped_storage())


def test_bits_of_what_is_transposed_when_it_is_read() -> None:
    z = torch.tensor([1 + 2j, 3 - 4j])
    assert bytes(bits(z.conj())) == bytes(bits(torch.tensor([1 - 2j, 3 + 4j])))
    assert bytes(bits(z.conj().imag)) == bytes(bits(torch.tensor([-2.0, 4.0])))
