"""From Tensor IR to Loop IR: which values are stored (decide), what every kernel computes (kernels), its loop nest
(lift).
"""
