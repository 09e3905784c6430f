"""Fusion by equality saturation: algebra rules fill an e-graph, extraction decides spellings and stores together.

A program is cut into regions (regions); a region becomes plain data (problem); its algebra is exported as egglog text
(export, saturate) and read back (graph); kernels are priced before they have a schedule (body, and engine/cost);
search finds the best spellings and cuts (solution, search, exact); rebuild makes Tensor IR of them again (explore).
"""
