"""Convolutions and pools: strides, gaps, padding, groups, ragged sizes."""

from __future__ import annotations

CONVOLUTIONS = (
    "F.conv1d(torch.randn(2, 4, 17), torch.randn(6, 4, 3))",
    "F.conv1d(torch.randn(4, 13), torch.randn(6, 2, 4), torch.randn(6), stride=3, padding=2, dilation=2, groups=2)",
    "F.conv2d(torch.randn(2, 3, 11, 7), torch.randn(5, 3, 3, 3), torch.randn(5), padding=1)",
    "F.conv2d(torch.randn(1, 6, 9, 8), torch.randn(6, 1, 3, 2), stride=(2, 1), padding=(0, 1), groups=6)",
    "F.conv2d(torch.randn(2, 3, 7, 8), torch.randn(4, 3, 4, 3), padding='same')",
    "F.conv2d(torch.randn(2, 8, 5, 5), torch.randn(16, 8, 1, 1))",
    "F.conv3d(torch.randn(1, 2, 5, 6, 7), torch.randn(3, 2, 2, 2, 3), dilation=2, padding=(1, 2, 3))",
    "F.conv_transpose1d(torch.randn(2, 4, 5), torch.randn(4, 3, 3), stride=2)",
    "F.conv_transpose2d(torch.randn(2, 4, 5, 6), torch.randn(4, 3, 3, 2), torch.randn(6), stride=2, padding=1,"
    " output_padding=1, groups=2)",
    "F.conv_transpose2d(torch.randn(1, 2, 4, 3), torch.randn(2, 3, 2, 3), dilation=(2, 1), stride=(1, 3))",
    "nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)).eval()"
    "(torch.randn(1, 3, 9, 9))",
)
POOLS = (
    "F.max_pool1d(torch.randn(3, 17), 3, stride=2, dilation=2)",
    "F.max_pool2d(torch.randn(2, 3, 9, 8), 3, stride=2, padding=1, ceil_mode=True)",
    "F.max_pool2d(torch.full((1, 1, 4, 4), float('-inf')), 2)",
    "F.max_pool3d(torch.randn(1, 2, 5, 4, 6), (2, 1, 3))",
    "F.avg_pool1d(torch.randn(2, 11), 3, padding=1)",
    "F.avg_pool2d(torch.randn(2, 3, 9, 8), 3, stride=2, padding=1, ceil_mode=True)",
    "F.avg_pool2d(torch.randn(2, 3, 9, 8), (3, 2), padding=1, count_include_pad=False)",
    "F.avg_pool2d(torch.randn(3, 6, 4), 2, divisor_override=5)",
    "F.avg_pool3d(torch.randn(1, 2, 5, 4, 6), 2)",
    "F.adaptive_avg_pool1d(torch.randn(2, 3, 13), 5)",
    "F.adaptive_avg_pool2d(torch.randn(2, 3, 9, 8), (4, 1))",
    "F.adaptive_avg_pool2d(torch.randn(2, 3, 3, 2), (5, 4))",
)
