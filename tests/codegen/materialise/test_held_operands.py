"""Left operands of asynchronous atoms in registers: all meanings agree, and what changes them too early is found."""

from __future__ import annotations

import numpy as np
import pytest
from altered_texts import altered
from asynchronous_texts import HALVES, assert_queued, needs_device_compiler, operands, product, wanted
from emulated import check as run_checked, run
from lowering_oracle import lower, read
from planted_faults import NONE, Fault, FaultyKernels, faulty_kernels, must_find

from dplc.codegen.emulator.executor import run_kernels
from dplc.codegen.emulator.runtime import EmulatorError
from dplc.codegen.materialise import materialise
from dplc.codegen.target import target
from dplc.ir.interp import tile
from dplc.ir.text.programs import print_program, read_program
from dplc.ir.verify.kernel import problems as kernel_problems
from dplc.ir.verify.tile import problems

FORMS = ("nn", "nt", "tn")


def held(form: str = "nt", n: int = 64, dtype: str = "bf16") -> str:
    """C = (A + A) @ B: what is added is in registers, so each iteration waits for its product."""
    text = product(form, n, dtype).replace("Mma(acc, a, b,", "c = add(a, a)\n            Mma(acc, c, b,")
    return altered(text, "WaitMma(keep=1)", "WaitMma()")


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(("form", "n"), [("nn", 128), ("nt", 48), ("tn", 64)])
@pytest.mark.sampled(3)
def test_it_is_right_in_both_modes(form: str, n: int, dtype: str) -> None:
    arrays, (kernel,) = operands(form, n, dtype), read(held(form, n, dtype))
    assert problems(kernel) == ()
    lowered = lower(kernel, "h200")
    assert f"wgmma_m64n{n}k16_{dtype}(&acc[0][0][0][0], &c_words[k * 4], matrix_" in lowered.text
    assert "wgmma_wait<0>();\n    wgmma_done(acc);\n    wgmma_done(c_words);" in lowered.text
    np.testing.assert_allclose(run(lowered, arrays)["C"], 2 * wanted(form, arrays), atol=1e-3)
    np.testing.assert_allclose(run_checked(lowered, arrays).outputs["C"], 2 * wanted(form, arrays), atol=1e-3)


@pytest.mark.parametrize("form", FORMS)
def test_the_meaning_of_tile_ir_agrees(form: str) -> None:
    (kernel,) = read(held(form))
    arrays = {name: array.double().numpy() for name, array in operands(form, 64).items()}
    for seed in range(2):
        got = tile.run((kernel,), arrays, seed)["C"]
        np.testing.assert_allclose(got, 2 * wanted(form, operands(form, 64)), atol=1e-10)


@needs_device_compiler
@pytest.mark.parametrize("dtype", HALVES)
def test_the_assembler_takes_registers(dtype: str) -> None:
    kernel = lower(read(held("nn", 128, dtype))[0], "h200")
    assert_queued(kernel)


def test_registers_that_are_given_up_too_early_are_refused() -> None:
    (kernel,) = read(held().replace("            WaitMma()", "            WaitMma(keep=1)"))
    assert any("until a WaitMma in the same block" in problem for problem in problems(kernel))


def test_checked_mode_notices_them() -> None:
    text = print_program(materialise(read(held())[0], target("h200")), "kernel")
    (kernel,) = read_program(altered(text, "WaitProducts(0, ", "WaitProducts(1, ", 1))[1]
    arrays = {name: array.double().numpy() for name, array in operands("nt", 64).items()}
    with pytest.raises(EmulatorError, match="wgmma_m64"):
        run_kernels((kernel,), arrays, 0)


WRONG = {
    "a sum": ("c_words[k*4]", "acc[0, 0, 0, 0]", "no place of a fragment"),
    "of another dtype": ("dtype=bf16)\n", "dtype=f16)\n", "does not multiply"),
}


@pytest.mark.parametrize("name", WRONG)
def test_laws_of_kernel_ir(name: str) -> None:
    old, new, message = WRONG[name]
    text = print_program(materialise(read(held())[0], target("h200")), "kernel")
    lines = [altered(line, old, new) if "QueueProduct" in line else line for line in (text + "\n").splitlines(True)]
    (kernel,) = read_program("".join(lines))[1]
    found = kernel_problems(kernel)  # type: ignore[arg-type]
    assert any(message in problem for problem in found), found


FAULTS = {
    "words: changed before they are read": Fault("    wgmma_wait<0>();\n", "    c_words[5] = 0u;\n    wgmma_wait<0>();\n", "wgmma_m64"),
    "words: of another step": Fault("c_words[k * 4]", "c_words[12 - k * 4]"),
    "words: rows exchanged": Fault("c_words[k * 4 + u * 2 + h] =", "c_words[k * 4 + u * 2 + 1 - h] ="),
    "words: halves of the steps exchanged": Fault("c_words[k * 4 + u * 2 + h] =", "c_words[k * 4 + h * 2 + u] ="),
    "queue: no wait in a turn": Fault("    wgmma_wait<0>();\n", "", "wgmma_m64|wgmma_wait|copy_box"),
}  # fmt: skip


@pytest.fixture(scope="module")
def kernels() -> FaultyKernels:
    """The kernel of every fault, and of none."""
    whole = lower(read(held())[0], "h200")
    return faulty_kernels({name: (whole, fault) for name, fault in {"none": NONE, **FAULTS}.items()})


ARRAYS = operands("nt", 64)


def test_without_a_fault_it_is_right(kernels: FaultyKernels) -> None:
    np.testing.assert_allclose(kernels.launched("none", ARRAYS), 2 * wanted("nt", ARRAYS), atol=1e-3)


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_is_found(name: str, kernels: FaultyKernels) -> None:
    must_find(kernels, name, FAULTS[name], ARRAYS, 2 * wanted("nt", ARRAYS))
