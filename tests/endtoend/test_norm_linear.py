"""A linear layer of a norm is one kernel that reads its rows once, where the device's figures say that it pays."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

from dplc.codegen.build import assemble, device_text
from dplc.codegen.compiler import find_nvrtc, find_program
from dplc.codegen.emulator.executor import CheckingExecutor
from dplc.codegen.judge import GATE, judge
from dplc.codegen.sass import Listing, disassemble, find_nvdisasm
from dplc.codegen.target import target
from dplc.engine.api import Compiled
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import Compilation, Compiler
from dplc.engine.cost.instruction_counts import instruction_counts
from dplc.engine.cost.predict import predict
from dplc.engine.ruleset import Toolchain, toolchain
from dplc.engine.run.calls import run_reference
from dplc.ir.expr import Var
from dplc.ir.node import nodes
from dplc.ir.tile import Combine, Stage


def norm_linear(rows: int, inner: int, outer: int, bias: bool = False) -> str:
    return f"nn.Linear({inner}, {outer}, bias={bias})(nn.RMSNorm({inner})(torch.randn({rows}, {inner})))"


APART = "without scale_after_gain\nwithout scale_after_product\n"
TOGETHER = ("scale_after_gain", "fuse_beside", "store_operand")  # what is asked, with the columns of a tile
FOLDED = 1 << 20  # as if a tile had all columns: computing again costs nothing


LARGE = (
    ("chunk_matmul_k", "BK", 16), ("blockify_launch", "BM", 64), ("blockify_launch", "BN", 128),
    ("register_tile", "FM", 8), ("register_tile", "FN", 8),
)  # fmt: skip


@functools.cache
def tools(rules: str, folded: tuple[str, ...], pins: tuple[tuple[str, str, int], ...] = ()) -> Toolchain:
    settings: dict[str, dict[str, Any]] = {rule: {"TILE": FOLDED} for rule in folded}
    for rule, parameter, value in pins:
        settings.setdefault(rule, {})[parameter] = value
    settings |= {rule: {"TILE": FOLDED, "prefer": False} for rule in folded if rule == "scale_after_gain"}
    if not rules:
        return toolchain(settings=settings)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "apart.rw"
        path.write_text(rules)
        return toolchain([path], settings)


@functools.lru_cache(maxsize=3)  # each holds its weights
def compiled(
    text: str, arch: str = "sm_90a", rules: str = "", folded: tuple[str, ...] = (),
    pins: tuple[tuple[str, str, int], ...] = (),
) -> Compilation:  # fmt: skip
    """rules: laid over ours; folded: the rules for which computing again costs nothing; pins: parameters of passes."""
    return Compiler(tools(rules, folded, pins), target(arch)).compile(capture_text(text, values=False))


def predicted(compilation: Compilation, arch: str = "sm_90a") -> float:
    return sum(predict(instruction_counts(kernel), target(arch)).seconds for kernel in compilation.kernels)


def error(compilation: Compilation, checker: CheckingExecutor | None = None) -> float:
    """The largest error of a whole run, over the largest value."""
    (want,) = run_reference(compilation.captured, compilation.captured.tensors)
    program = compilation.program
    if checker is None:
        (got,) = Compiled(compilation, "emulator").run({})
        found = got.numpy()
    else:
        names = [buffer.name for buffer in (*program.inputs, *program.constants)]
        found = checker.run(program, {name: compilation.captured.tensors[name].detach().numpy() for name in names})[
            program.outputs[0].name
        ]
    return judge((torch.from_numpy(found).reshape(want.shape),), (want,)).relative


SUBJECTS = {
    "nt": norm_linear(64, 256, 128),
    "ragged, bias": norm_linear(33, 70, 65, bias=True),
    "relu": f"torch.relu({norm_linear(40, 130, 66, bias=True)})",
    "split": norm_linear(32, 1024, 128),
    "teams": norm_linear(16, 1024, 128),
    "one row": norm_linear(1, 256, 70),
    "no gain": "nn.Linear(96, 40)(nn.RMSNorm(96, elementwise_affine=False)(torch.randn(20, 96)))",
    "nn": "x, g, w = torch.randn(36, 96), torch.randn(96), torch.randn(96, 70)\n(x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * g) @ w",
    "batches": "nn.Linear(48, 40)(nn.RMSNorm(48)(torch.randn(2, 9, 48)))",
}


@pytest.mark.parametrize("name", SUBJECTS)
@pytest.mark.sampled(2)
def test_one_kernel_reads_the_rows_once(name: str) -> None:
    compilation = compiled(SUBJECTS[name])
    assert len(compilation.plan.kernels) == 1
    readers = [param.name for kernel in compilation.plan.kernels for param in kernel.ins]
    assert readers.count("x") == 1
    assert error(compilation) < GATE


@pytest.mark.parametrize("name", ["ragged, bias", "split", "nn", "teams"])
@pytest.mark.sampled(2)
def test_nothing_is_found_in_checked_mode(name: str) -> None:
    checker = CheckingExecutor(("all",))
    assert error(compiled(SUBJECTS[name]), checker) < GATE
    assert not checker.findings


def test_the_row_is_prepared_in_shared_memory() -> None:
    """The sum and the gain once for each element of a shared tile, not once for each thread that reads it."""
    (kernel,) = compiled(norm_linear(512, 2048, 2048), folded=TOGETHER).tile
    shared_tiles = {stage.dst for stage in nodes(kernel.body, Stage)}
    assert {"x_smem", "linear_weight_smem"} <= shared_tiles
    assert [combine.fn for combine in nodes(kernel.body, Combine)] == ["add"]


@pytest.mark.parametrize(
    ("shape", "kernels"),
    [
        ((512, 2048, 2048), 2),
        ((384, 2048, 2048), 2),
        ((384, 2048, 1024), 1),
        ((1, 2048, 2048), 1),
        ((32, 2048, 2048), 1),
        ((4096, 1024, 4096), 2),
    ],
)
@pytest.mark.sampled(2)
def test_the_device_decides(shape: tuple[int, int, int], kernels: int) -> None:
    """One kernel where it is predicted to be faster than two; in every block of a wide product it is not."""
    text = norm_linear(*shape)
    chosen, one, two = compiled(text), compiled(text, folded=TOGETHER), compiled(text, rules=APART)
    assert [len(made.plan.kernels) for made in (chosen, one, two)] == [kernels, 1, 2]
    assert predicted(chosen) <= 1.03 * min(predicted(one), predicted(two))  # it is chosen before there are schedules


def test_another_reader_of_the_norm_keeps_it() -> None:
    text = "x = nn.RMSNorm(256)(torch.randn(64, 256))\nnn.Linear(256, 256)(x) + x"
    assert len(compiled(text).plan.kernels) == 2


ARCHITECTURES = ("sm_80", "sm_90a", "sm_120")
needs_assembler = pytest.mark.skipif(
    not find_nvdisasm() or not (find_nvrtc() or find_program("nvcc")), reason="needs an assembler"
)


def assembled(arch: str, pins: tuple[tuple[str, str, int], ...] = ()) -> tuple[int, Listing]:
    """Return the bytes that the product's kernel spills, and its listing."""
    compilation = compiled(norm_linear(512, 2048, 2048), arch, folded=TOGETHER, pins=pins)
    kernel = compilation.cuda_kernels[0]  # a second may add parts
    assembly = assemble(device_text([kernel]), target(arch).arch)
    resources = assembly.kernels[kernel.name]
    return resources.spill_stores + resources.spill_loads, disassemble(assembly.cubin)[kernel.name]


@needs_assembler
@pytest.mark.parametrize(("arch", "share"), zip(ARCHITECTURES, (0.82, 0.85, 0.82), strict=True))
@pytest.mark.sampled(2)
def test_what_the_assembler_makes_of_a_large_tile(arch: str, share: float) -> None:
    spilled, listing = assembled(arch, LARGE)
    assert not spilled and listing.share("FFMA") > share
    assert {"LDGSTS.128", "LDS.128", "STG.128"} <= set(listing.widths()), listing.widths()


@needs_assembler
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.sampled(2)
def test_the_chosen_tile_is_no_slower_than_a_large_one(arch: str) -> None:
    text = norm_linear(512, 2048, 2048)
    chosen, large = (compiled(text, arch, folded=TOGETHER, pins=pins) for pins in ((), LARGE))
    assert predicted(chosen, arch) <= 1.01 * predicted(large, arch)
    spilled, listing = assembled(arch)
    assert not spilled and {"LDGSTS.128", "LDS.128"} <= set(listing.widths()), listing.widths()


def test_teams_share_the_reduction() -> None:
    """The sum of a row varies with fewer registers than the product: so its few partial results fit, too."""
    (kernel,) = compiled(norm_linear(128, 2048, 1024), "sm_120", folded=TOGETHER).tile[:1]
    assert [combine.over for combine in nodes(kernel.body, Combine)] == [(Var(axis),) for axis in "kww"]


def test_wavefronts_and_sectors_are_the_least() -> None:
    (kernel,) = compiled(norm_linear(512, 2048, 2048), folded=TOGETHER).kernels
    counted = instruction_counts(kernel)
    assert counted.wavefronts == pytest.approx(counted.ideal_wavefronts, rel=0.01)
    assert counted.sectors == pytest.approx(counted.ideal_sectors, rel=0.01)


def test_an_expensive_operand_is_stored() -> None:
    """silu(gate) * up: every block of a wide product would compute it again."""
    text = "gate, up, w = torch.randn({0}, {1}), torch.randn({0}, {1}), torch.randn({1}, {2})\n(F.silu(gate) * up) @ w"
    wide, narrow = text.format(512, 2048, 2048), text.format(64, 128, 64)
    assert len(compiled(wide).plan.kernels) == 2
    assert len(compiled(narrow).plan.kernels) == 1
    assert error(compiled(narrow)) < GATE
    without = compiled(wide, folded=("store_operand",))
    assert len(without.plan.kernels) == 1 and predicted(compiled(wide)) < predicted(without)


MATVECS = {
    "nn": ("torch.randn(1, 2048) @ torch.randn(2048, 2048)", 256),
    "nt": ("nn.Linear(2048, 2048, bias=False)(torch.randn(1, 2048))", 256),
}


@pytest.mark.parametrize("name", MATVECS)
def test_a_vector_streams_the_matrix(name: str) -> None:
    text, blocks = MATVECS[name]
    (kernel,) = compiled(text).kernels
    counted = instruction_counts(kernel)
    assert counted.blocks >= blocks
    assert counted.sectors == pytest.approx(counted.ideal_sectors, rel=0.15)
    assert predict(counted, target("sm_90a")).seconds < 7.5e-6


@pytest.mark.parametrize(
    "text",
    [
        "torch.randn(1, 300) @ torch.randn(300, 72)",
        "torch.randn(3, 300, 40).amax(1)",
        "nn.Linear(130, 66)(torch.randn(1, 130))",
    ],
)
@pytest.mark.sampled(2)
def test_matvecs_are_right(text: str) -> None:
    assert error(compiled(text)) < GATE
