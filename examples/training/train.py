"""A small network that is trained by dplc's kernels, beside eager: `python examples/training/train.py`."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
eager = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 4))
ours = copy.deepcopy(eager)
optimizers = [torch.optim.AdamW(model.parameters(), lr=1e-2) for model in (ours, eager)]
losses = [
    torch.compile(lambda x, y: F.cross_entropy(ours(x), y), backend="dplc"),
    lambda x, y: F.cross_entropy(eager(x), y),
]
for step in range(10):
    x = torch.randn(32, 16)
    y = x[:, :4].argmax(-1)
    for optimizer, loss in zip(optimizers, losses):
        optimizer.zero_grad()
        loss(x, y).backward()
        optimizer.step()
    print(step, *(f"{loss(x, y).item():.6f}" for loss in losses))
