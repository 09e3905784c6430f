"""Fusion by equality saturation: algebra rules fill an e-graph, extraction decides spellings and stores together.

`explore` cuts a program into regions, and prices candidates by lowering them. `problem` makes plain data of a region.
`rules_as_egglog` prints the algebra, and `saturate` runs egglog on it. `solution` prices kernels before they have a
schedule, and `search` finds the best spellings and cuts and makes Tensor IR of them. `stored_solutions` proves a stored
solution again, and `candidates` gives compile and tune what they ask for.
"""
