"""PyTorch's own formulas: one table, beside the rules and never in their way."""

from __future__ import annotations

from dplc.engine.capture.decompositions import (
    BY_SIZES,
    BY_WINDOWS,
    COMPOSITES,
    FORMULAS,
    IN_ORDER,
    ON_LISTS,
    POOLS,
    RENAMED,
    table,
)
from dplc.engine.ruleset import toolchain
from dplc.engine.verify.operators import operators

ALONE = (
    "_grouped_mm",
    "ctc_loss",
    "_native_batch_norm_legit_no_training",
    "as_strided_scatter",
    "_transformer_encoder_layer_fwd",
    "_native_multi_head_attention",
    "_cdist_forward",
    "_cdist_backward",
    "_trilinear",
)  # with formulas of our own


def named() -> list[str]:
    lists = [f"_foreach_{name}" for name in ON_LISTS.split()]
    return [*" ".join([*FORMULAS.values(), *COMPOSITES.values(), *POOLS.values()]).split(), *RENAMED, *lists, *ALONE]


def test_every_op_of_the_table_is_replaced() -> None:
    replaced = {overload._schema.name.partition("::")[2] for overload in table()} - {"grouped_mm_fallback", "fma"}
    assert {*named(), *IN_ORDER, *BY_SIZES, *BY_WINDOWS} == replaced


def test_no_op_stands_there_twice() -> None:
    assert len(named()) == len(set(named()))


def test_no_rule_takes_an_op_of_the_table() -> None:
    assert set(named()).isdisjoint(operators(toolchain().torch))
    assert set(operators(toolchain().torch)).issuperset({*IN_ORDER, *BY_SIZES, *BY_WINDOWS})
