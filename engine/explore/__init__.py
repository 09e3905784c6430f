"""Fusion by equality saturation: algebra rules fill an e-graph, extraction decides spellings and stores together.

`explore` cuts a program into regions, and prices candidates by lowering them. `problem` converts a region to plain
data. `rules_as_egglog` prints the algebra, and `saturate` runs egglog on it. `solution` prices kernels before they
have a schedule. `search` finds the best spellings and cuts, and converts them to Tensor IR. `stored_solutions` proves
a stored solution again, and `candidates` is the interface for compile and tune.
"""
