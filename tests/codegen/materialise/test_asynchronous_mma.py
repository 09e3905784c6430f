"""Products of asynchronous atoms lowered: descriptors, the queue, both kinds of running it; and planted faults, all found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from altered_texts import altered
from asynchronous_texts import HALVES, assert_queued, needs_device_compiler, operands, product, wanted
from emulated import check as run_checked, run
from lowering_oracle import lower, read
from planted_faults import NONE, Fault, FaultyKernels, faulty_kernels, must_find

from dplc.codegen.build import assemble, device_text
from dplc.codegen.materialise import materialise
from dplc.codegen.target import target
from dplc.ir.diagnostic import DplcError
from dplc.ir.text.programs import print_program, read_program
from dplc.ir.verify.kernel import problems

FORMS = ("nn", "nt", "tn", "tt")


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.sampled(4)
def test_it_is_right_in_both_modes(form: str, dtype: str) -> None:
    arrays = operands(form, 128, dtype)
    kernel = lower(read(product(form, 128, dtype))[0], "h200")
    assert kernel.text.count(f"wgmma_m64n128k16_{dtype}(") == 1
    want = wanted(form, arrays)
    np.testing.assert_allclose(run(kernel, arrays)["C"], want, atol=1e-3)
    np.testing.assert_allclose(run_checked(kernel, arrays).outputs["C"], want, atol=1e-3)


@pytest.mark.parametrize("n", [32, 48, 240])
def test_other_numbers_of_columns(n: int) -> None:
    arrays = operands("nt", n)
    got = run_checked(lower(read(product("nt", n))[0], "h200"), arrays).outputs["C"]
    np.testing.assert_allclose(got, wanted("nt", arrays), atol=1e-3)


@needs_device_compiler
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.sampled(2)
def test_the_assembler_leaves_the_queue_as_it_is(form: str) -> None:
    """No product waits for the one before it (C7510), no register is spilled."""
    kernel = lower(read(product(form, 128))[0], "h200")
    assert_queued(kernel)


@needs_device_compiler
def test_the_assembler_warns_of_sums_that_are_touched_too_early() -> None:
    """The test above can fail."""
    kernel = lower(read(product("nt", 128))[0], "h200")
    text = kernel.text.replace("wgmma_wait<1>();", "acc[0][0][0][0] += 1.0f;")
    assert text != kernel.text
    assert assemble(device_text([replace(kernel, text=text)]), "sm_90a").warnings


MULTIPLY = (
    "wgmma_m64n64k16_bf16(&acc[0][0][0][0], matrix_along<1024>(a_at1, k * 32), matrix_along<1024>(Bs_wr, k * 32));"
)
WAIT = "mbarrier_wait(barriers + (waited & 3) * 8, (waited >> 2) & 1);"
BOX = "copy_box|wgmma_m64|mbarrier"
FAULTS = {
    "queue: no wait in a turn": Fault("    wgmma_wait<1>();\n", "", "copy_box"),
    "queue: a wait that keeps two": Fault("wgmma_wait<1>", "wgmma_wait<2>", "copy_box"),
    "queue: no wait at the end": Fault("  wgmma_wait<0>();\n", "", "wgmma_m64"),
    "queue: a wait at the end that keeps one": Fault("wgmma_wait<0>", "wgmma_wait<1>", "wgmma_m64"),
    "queue: no fence": Fault("    wgmma_fence();\n", "", "wgmma_m64"),
    "queue: no commit": Fault("    wgmma_commit();\n", "", "copy_box|wgmma_m64"),
    "queue: a sum that is changed meanwhile": Fault("    wgmma_wait<1>();\n", "    acc[0][0][0][0] = 0.0f;\n    wgmma_wait<1>();\n", "wgmma_wait"),
    "ring: no wait for a box": Fault(f"    {WAIT}\n", "", BOX),
    "ring: the wait of another box": Fault("(waited & 3) * 8, ", "((waited + 1) & 3) * 8, ", BOX),
    "ring: no barrier": Fault("    block_sync();\n    wgmma_fence", "    wgmma_fence", BOX),
    "ring: a box into the slot that is read": Fault("slot == 32768 ? 0", "slot == 16384 ? 0", BOX),
    "ring: fewer bytes are announced": Fault("issued & 3) * 8, 24576)", "issued & 3) * 8, 16384)", BOX),
    "ring: a slot that the threads fill": Fault(f"    {WAIT}\n", f"    {WAIT}\n    sts32(Bs_wr + tid * 4, 0.0f);\n", "wgmma_m64|sts32"),
    "matrix: half a row behind": Fault("a_at1, k * 32", "a_at1, 128 + k * 32", "wgmma_m64"),
    "matrix: a step too far": Fault("a_at1, k * 32", "a_at1, 32 + k * 32", "wgmma_m64"),
    "matrix: beyond its shared tile": Fault("Bs_wr, k * 32", "Bs_wr, 24576 + k * 32", "wgmma_m64"),
    "matrix: rows further apart": Fault("matrix_along<1024>(Bs_wr", "matrix_along<2048>(Bs_wr", "wgmma_m64"),
    "matrix: rows nearer": Fault("matrix_along<1024>(Bs_wr", "matrix_along<512>(Bs_wr"),
    "matrix: across": Fault("matrix_along<1024>(Bs_wr", "matrix_across<1024, 0>(Bs_wr", "wgmma_m64"),
    "matrix: another for each warp": Fault("a_at1, k * 32", "a_at1, p * 1024 + k * 32", "wgmma_m64"),
    "matrix: that of the other group": Fault("As + iw * 8192", "As + (1 - iw) * 8192"),
    "group: half of the sum": Fault("k < 4; ++k", "k < 2; ++k"),
    "group: warps that do not multiply": Fault(MULTIPLY, f"if (p < 3) {MULTIPLY}", "thread"),
    "group: lanes that do not multiply": Fault(MULTIPLY, f"if (g < 4) {MULTIPLY}", "wgmma_m64"),
    "group: results of other columns": Fault("+ g * 64 + t * 2;", "+ g * 64 + t;", "stg64"),
    "group: results of other rows": Fault("h * 512 + q * 16 + s * 8", "h * 64 + q * 16 + s * 8", "stg64"),
    "group: sums that start with anything": Fault("float acc[4][2][2][2] = {};", "float acc[4][2][2][2];"),
}  # fmt: skip


@pytest.fixture(scope="module")
def kernels() -> FaultyKernels:
    """The kernel of every fault, and of none."""
    whole = lower(read(product("nt", 64))[0], "h200")
    return faulty_kernels({name: (whole, fault) for name, fault in {"none": NONE, **FAULTS}.items()})


ARRAYS = operands("nt", 64)


def test_without_a_fault_it_is_right(kernels: FaultyKernels) -> None:
    np.testing.assert_allclose(kernels.launched("none", ARRAYS), wanted("nt", ARRAYS), atol=1e-3)


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.sampled(5)
def test_every_fault_is_found(name: str, kernels: FaultyKernels) -> None:
    must_find(kernels, name, FAULTS[name], ARRAYS, wanted("nt", ARRAYS))


WRONG = {
    "words for a matrix": (
        "Matrix(Address(a_at1, offset=k*32), stride=1024)",
        "acc[0, 0, 0, 0]",
        "no place of a fragment",
    ),
    "an odd stride": ("stride=1024)", "stride=1000)", "goes on after a multiple of 16"),
    "a warp's atom": ("m64n64k16", "m16n8k16", "does not multiply bf16 out of shared memory"),
    "another dtype": ("dtype=bf16", "dtype=f32", "does not multiply f32"),
    "half a step": ("offset=k*32", "offset=k*8", "a multiple of 8 bytes only"),
}


@pytest.mark.parametrize("name", WRONG)
def test_laws_of_kernel_ir(name: str) -> None:
    old, new, message = WRONG[name]
    text = print_program(materialise(read(product("nt", 64))[0], target("h200")), "kernel")
    (kernel,) = read_program(altered(text, old, new, 1))[1]
    assert any(message in problem for problem in problems(kernel)), problems(kernel)  # type: ignore[arg-type]


def test_a_value_of_threads_is_no_matrix() -> None:
    """Found by `dplc check` of 2026-11-22, on a program near one that a rule makes."""
    (kernel,) = read(product().replace("Mma(acc, a, b,", "c = add(b, b)\n            Mma(acc, a, c,"))
    with pytest.raises(DplcError, match=r"reads matrices in shared memory, and `c` is a value of threads"):
        materialise(kernel, target("sm_90a"))
