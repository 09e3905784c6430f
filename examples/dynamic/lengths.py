"""One compile serves every prompt length: ten lines."""

import torch
from torch import nn

import dplc

block = nn.Sequential(nn.RMSNorm(64), nn.Linear(64, 96), nn.SiLU(), nn.Linear(96, 64)).eval()
served = dplc.compile(block, (torch.randn(100, 64),), dynamic={"input": {0: dplc.Dim("s", 1, 4096, hint=512)}})
for length in (1, 7, 100, 513):
    x = torch.randn(length, 64)
    error = (served(x) - block(x)).abs().max().item()
    print(f"{length:4} rows: error {error:.1e}, grid {served.at(s=length).kernels[0].grid}")
