"""Whatever a user calls a tensor, the kernel has an identifier for it, soon."""

from __future__ import annotations

import re

import pytest

from dplc.codegen.cuda import OURS, is_reserved, print_cuda, reserved, safe_names
from dplc.codegen.materialise import materialise
from dplc.codegen.target import target
from dplc.ir.text.programs import read_program

HOSTILE = (*OURS, *(f"{start}_x" for start in OURS), "dplc_x_v", "v_dplc_x_v", "__x", "x__y", "_x__", "____", "x___y_", "_", "x_",
           "float", "float_v", "int", "main", "ldg128", "smem_buf", "blockIdx", "threadIdx", "NULL")  # fmt: skip
TEXT = "kernel k({names}) -> result: f32[4]:\n    Tile(i:4=THREAD):\n{loads}        result[i] = a0\n"


def kernel(names: tuple[str, ...]):  # type: ignore[no-untyped-def]
    loads = "".join(f"        a{n} = load {name}[i]\n" for n, name in enumerate(names))
    text = TEXT.format(names=", ".join(f"{name}: f32[4]" for name in names), loads=loads)
    return materialise(read_program(text)[1][0], target("h200"))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", HOSTILE)
def test_one_name(name: str) -> None:
    made = safe_names(kernel((name,)))
    assert not is_reserved(made[name]) and made[name].isidentifier()
    assert print_cuda(kernel((name,))).text.count(made[name]) >= 2


def test_all_of_them_are_told_apart() -> None:
    names = tuple(dict.fromkeys(name for name in (*HOSTILE, *sorted(reserved())[:200]) if name.isidentifier()))
    names = tuple(
        name for name in names if name not in ("load", "if", "for", "in", "and", "or", "not", "true", "false")
    )
    made = safe_names(kernel(names))
    ours = [made[name] for name in names]
    assert len(set(ours)) == len(names) and not any(map(is_reserved, ours))


def test_what_needs_no_change_keeps_its_name() -> None:
    made = safe_names(kernel(("x", "weight_1", "x_v")))
    assert [made[name] for name in ("x", "weight_1", "x_v")] == ["x", "weight_1", "x_v"]


def test_a_value_named_like_an_earlier_loop_keeps_its_guard() -> None:
    """The range of a loop's variable ends with the loop: an index that is loaded later may have its name."""
    text = """## level: tile
kernel k(at: i64[4], x: f32[7]) -> result: f32[4]:
    Tile(i:4=THREAD):
        for c in 0..2 serial:
            a = load x[c]
            total <- add(total, a)
        c = load at[i]
        if c < 7:
            b = load x[c]
            total <- add(total, b)
        result[i] = total
"""
    code = print_cuda(materialise(read_program(text)[1][0], target("h200"))).text
    assert re.search(r"\bc\w* < 7", code), code
