"""Running sums and products: short, just above what one launch does, and so long that the sums of chunks are cut again."""

from __future__ import annotations

SCANS = (
    "torch.cumsum(torch.randn(7), 0)",
    "torch.cumsum(torch.randn(3, 97), -1)",
    "torch.cumsum(torch.randn(2, 1493), 1)",
    "torch.cumsum(torch.randn(2112, 2), 0)",
    "torch.cumsum(torch.randn(2, 1700, 3), -2)",
    "torch.cumsum(torch.randn(70001), 0)",
    "torch.cumsum(torch.randint(-9, 9, (3, 2051)), 1)",
    "torch.cumsum(torch.randn(3001) > 0, 0)",
    "torch.cumsum(torch.randn(3001, dtype=torch.float16), 0)",
    "torch.cumsum(torch.randint(0, 3, (2500,)), 0, dtype=torch.float32)",
    "torch.cumprod(torch.randn(2, 1999).sign()*1.001, 1)",
    "torch.cumprod(torch.randn(2500) * 0 + 1.0005, 0)",
    "torch.cumsum(torch.randn(3000).relu(), 0) / 3000",
    "torch.cumsum(torch.randn(8209), 0)",
    "torch.cumsum(torch.randn(2, 12000), 1)",
    "torch.cumsum(torch.randn(1031, 5), 0)",
    "torch.cumsum(torch.randn(2, 4099, 33), 1)",
    "torch.cumsum(torch.softmax(torch.randn(3, 1000), -1), -1)",
    "torch.cumsum(torch.randint(-2**62, 2**62, (300,)), 0)",
    "torch.cumprod(torch.randn(9000).sign(), 0)",
    "torch.cumsum(torch.randn(300, dtype=torch.float64), 0)",
)
