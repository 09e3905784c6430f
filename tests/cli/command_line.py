"""Texts and types of the tests of the command line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

MATMUL = "torch.relu(torch.randn(16, 64) @ torch.randn(64, 16) + torch.randn(16))"
SOFTMAX = "torch.softmax(torch.randn(64, 512), -1)"


@dataclass(frozen=True)
class Done:
    """What a command left: its exit code and what it printed."""

    code: int
    out: str
    err: str


Command = Callable[..., Done]
