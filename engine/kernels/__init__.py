"""From Tensor IR to Loop IR.

`fusion_pass` decides which values are stored, `index_maps` moves index maps to the loads, `kernels` arranges the
computation of every kernel, `lift` builds its loop nest, and `sharing` compiles equal kernels once.
"""
