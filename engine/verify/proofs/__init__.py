"""Proofs about index arithmetic, by the SMT solver Z3 (de Moura and Bjorner 2008), for all extents at once.

`dplc check` runs rules on programs; the integer arithmetic of a rule is proved as well: that a substitution
`body[k := ko*BK + k]` makes every iteration of the old loops once, and that an equation between functions of integers
holds. Z3 is an extra, and imported only when something is proved.
"""
