"""Proofs about index arithmetic, by the SMT solver Z3 (de Moura and Bjorner 2008), for all extents at once.

`dplc check` runs rules on programs; whatever of a rule is integer arithmetic is proved as well: that a substitution
`body[k := ko*BK + k]` makes every turn of the old loops once, that a slab with other axes holds what its loads ask for,
and that an equation between functions of integers holds. Z3 is an extra, and imported only when something is proved.
"""
