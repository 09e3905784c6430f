"""A problem for `dplc bench examples/problems`: a linear layer, a gate and a norm of each row."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, 2 * hidden)
        self.norm = nn.RMSNorm(hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(nn.functional.glu(self.linear(x)))


batch_size = 1024
width = 2048
hidden = 1024


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(batch_size, width)]


def get_init_inputs() -> list[int]:
    return [width, hidden]
