"""Fusion by equality saturation: algebra rules fill an e-graph, extraction decides spellings and stores together.

`explore` cuts a program into regions, and prices candidates by lowering them; it is the interface for compile and tune.
`problem` converts a region to plain data. `saturate` prints the algebra, runs egglog on it, and proves a stored
solution again. `solution` prices kernels before they have a schedule, finds the best spellings and cuts, and converts
them to Tensor IR.
"""
