"""What is looked at after every firing of a rule: it may refuse nothing that is right, on none of the IRs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import dplc
from dplc.engine.rewrite.statements.compiled import CompiledRule
from dplc.engine.rewrite.statements.driver import wellformed
from dplc.ir.text.programs import read_program

PROGRAMS: dict[str, tuple[Callable[..., torch.Tensor], tuple[tuple[int, ...], ...]]] = {
    "a small product": (lambda a, b: torch.relu(a @ b), ((3, 8), (8, 5))),
    "a ragged product": (lambda a, b: torch.relu(a @ b), ((130, 80), (80, 70))),
    "softmax": (lambda a: torch.softmax(a, -1), ((37, 300),)),
    "attention": (torch.nn.functional.scaled_dot_product_attention, ((1, 2, 65, 16),) * 3),
    "a scan": (lambda a: torch.cumsum(a, -1), ((37, 300),)),
    "a sort": (lambda a: torch.sort(a, -1)[0], ((37, 30),)),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.sampled(3)
def test_every_result_of_a_built_in_rule_passes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CompiledRule, "checked", property(lambda rule: True))
    function, shapes = PROGRAMS[name]
    inputs = tuple(torch.randn(shape) for shape in shapes)
    made = dplc.compile(function, inputs, device="emulator", db=False)
    torch.testing.assert_close(made(*inputs), function(*inputs), rtol=1e-3, atol=1e-3)


def test_a_name_of_kernel_ir_that_nothing_gives() -> None:
    text = """## level: kernel
kernel k(x: f32[8]) -> y: f32[8]:
    Launch(grid=(1, 1, 1), block=32):
        Loop(i, 0, 8):
            to = Base(y, NAME)
            StoreTo(f32, Address(to), values=(1.0))
"""
    for name, wrong in (("i", None), ("thread", None), ("block_x", None), ("nobody", "`nobody` is used but")):
        ((kernel,),) = (read_program(text.replace("NAME", name), "given.ir")[1],)
        said = wellformed(kernel)
        assert (said is None) == (wrong is None)
        assert wrong is None or (said is not None and said.startswith(wrong))
