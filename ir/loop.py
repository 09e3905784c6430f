"""Loop IR: one loop nest per kernel. Also the statements that Tile IR keeps inside its tiles.

An accumulator starts as the identity of its function on entry to the innermost block that contains all its mentions.
A block defines a value once; a value is visible only inside its block.
"""

from __future__ import annotations

from .node import Buffer, Expr, Fn, Int, MonoidName, Name, Num, Role
from .program import Block, Instruction, Stmt

LOOP_ROLES = ("serial", "reduce", "free")


class For(Stmt):
    """`for var in start..stop [by step] role [unroll=n]:`.

    The role is free (independent iterations), reduce (only accumulates) or serial.
    """

    var: Name
    start: Expr
    stop: Expr
    body: Block
    role: Role = "serial"
    step: Expr = 1
    unroll: Int = 1


class If(Stmt):
    """`if cond:` a guard."""

    cond: Expr
    body: Block


class Load(Stmt):
    """`dst = load buf[idx]`, or `dst = load buf[idx] if when else other`: where the guard fails nothing is read."""

    dst: Name
    buf: Buffer
    idx: tuple[Expr, ...]
    when: Expr = True
    other: Num = 0.0


class Let(Stmt):
    """`dst = val`: a scalar function of values (`add(a, b)`), a constant, or a value of index arithmetic (`i + 1`)."""

    dst: Name
    val: Expr


class Accumulate(Stmt):
    """Accumulation `acc <- fn(acc, val)`."""

    acc: Name
    fn: Fn
    val: Expr


class Merge(Stmt):
    """`(m, s) <- online((m, s), (x, v))`: the tuple of accumulators absorbs an element of a monoid (ir/monoids.py)."""

    accs: tuple[Name, ...]
    fn: MonoidName
    vals: tuple[Expr, ...]


class Scale(Instruction):
    """`Scale(o, f)`: multiply the sum so far in o by f. Not allowed in a loop whose iterations may be reordered."""

    acc: Name
    val: Expr


class Carry(Instruction):
    """`Carry(m)`: a mention. The accumulator starts no deeper than here: it lives on across the loops below."""

    acc: Name


class Store(Stmt):
    """Store `buf[idx] = val`."""

    buf: Buffer
    idx: tuple[Expr, ...]
    val: Expr
