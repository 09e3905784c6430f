"""`dplc calibrate` on the mock driver, with times made for a device that is known."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from pathlib import Path

import pytest
from mock_driver import environment
from worker_on_mock import serve_mock

from dplc.codegen.build import build_host, host_text
from dplc.codegen.compiler import find_nvrtc, find_program
from dplc.codegen.kernel import CudaKernel
from dplc.codegen.launch import DeviceError
from dplc.codegen.target import DEVICES, Target, target
from dplc.engine.cli import machine
from dplc.engine.cli.machine import calibrate_device
from dplc.engine.cli.options import Flags
from dplc.engine.tune.calibrate import FITTED, Sizes, calibrate, micro_kernel, sizes_for
from dplc.engine.tune.evaluators import cubin

SMALL = Sizes(copied=1 << 16, l2_bytes=1 << 14, l2_iterations=4, fma_iterations=2, launches=3, side=64)
FIXED = 3e-6  # seconds of every launch but the empty ones: it must cancel
TRUE = {
    "dram_share": 0.8, "l2_bytes_per_second": 6e12, "clock": 1.7e9, "launch_seconds": 1.5e-6, "issue_share": 0.75,
}  # fmt: skip
BASE = target("h200")


def build(kernel: CudaKernel, arch: str) -> bytes:
    return build_host(host_text([kernel])).read_bytes()


def made_times(path: Path, device: Target) -> None:
    """Times of the micro kernels on a device with the constants above."""
    device, lines = replace(device, clock=TRUE["clock"]), [f"empty {TRUE['launch_seconds'] * 1e6}"]
    for name in FITTED:
        if name != "launch_seconds":
            first, *more = (micro_kernel(name, device, SMALL, times) for times in (1, 2))
            more = [] if name == "issue_share" else more  # the same kernel, launched twice
            for micro in (first, *more):
                fixed = FIXED if more else 0.0
                lines.append(f"{micro.program.kernels[0].name} {(micro.work / TRUE[name] + fixed) * 1e6:.12g}")
    path.write_text("\n".join(lines) + "\n")


def small_device(folder: Path) -> str:
    """A device file with two multiprocessors, so that the emulator has not much to do."""
    text = (DEVICES / "h200.toml").read_text()
    path = folder / "base.toml"
    path.write_text(text.replace("multiprocessors = 132", "multiprocessors = 2"))
    return str(path)


@pytest.fixture
def mock_gpu(driver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`dplc calibrate` measures small kernels on the mock driver."""
    made_times(tmp_path / "times", replace(BASE, multiprocessors=2))
    for name, value in {**environment(driver), "DPLC_MOCK_TIMES": str(tmp_path / "times")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(machine, "serve_gpu", serve_mock)
    small = lambda base, process, folder, *_: calibrate(base, process, folder, build, SMALL)  # noqa: E731
    monkeypatch.setattr(machine, "calibrate", small)


@pytest.mark.usefixtures("mock_gpu")
def test_the_constants_are_found_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "mine.toml"
    calibrate_device(Flags(target=small_device(tmp_path), out=out))
    assert "dram_share: 0.8 measured on dplc mock GPU, 0.92 published" in capsys.readouterr().out
    found = target(str(out))
    for name, value in TRUE.items():
        assert getattr(found, name) == pytest.approx(value, rel=1e-3), name
    assert found.name == "dplc mock GPU"
    for field in fields(Target):
        if field.name not in (*FITTED, "name", "multiprocessors"):
            assert getattr(found, field.name) == getattr(BASE, field.name)
    assert "# Measured by `dplc calibrate` on dplc mock GPU: dram_share" in out.read_text()
    calibrate_device(Flags(target=small_device(tmp_path), as_json=True))
    record = json.loads(capsys.readouterr().out)
    assert record["constants"]["clock"] == {"measured": pytest.approx(1.7e9, rel=1e-3), "published": 1.98e9}


@pytest.mark.usefixtures("mock_gpu")
def test_times_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    (tmp_path / "times").write_text("copy_1 20\ncopy_2 20\n")
    with pytest.raises(DeviceError, match="twice the work for dram_share took no longer"):
        calibrate_device(Flags(target=small_device(tmp_path), as_json=True))


@pytest.mark.skipif(not find_nvrtc() and not find_program("nvcc"), reason="neither NVRTC nor nvcc is here")
def test_the_micro_kernels_are_what_they_should_be() -> None:
    """For a GPU: they compile, do not spill, and the multiply-adds are multiply-adds."""
    from dplc.codegen.build import assemble, device_text
    from dplc.codegen.sass import disassemble, find_nvdisasm

    for name in FITTED:
        one = micro_kernel(name, BASE, sizes_for(BASE), 1)
        kernel = one.program.kernels[0]
        assert cubin(kernel, "sm_90a")
        assembly = assemble(device_text([kernel]), "sm_90a")
        assert assembly.kernels[kernel.name].spill_stores == 0
        if find_nvdisasm() and kernel.name == "multiply_adds_1":
            assert disassemble(assembly.cubin)[kernel.name].share("FFMA") > 0.9


def test_the_work_of_micro_kernels_is_what_they_do() -> None:
    """Bytes that are copied fill both buffers; multiply-adds take a device of more multiprocessors as many clocks."""
    for name in FITTED:
        small, large = (
            [micro_kernel(name, replace(BASE, multiprocessors=n), SMALL, times) for times in (1, 2)] for n in (2, 132)
        )
        for once, twice in (small, large):
            assert twice.work == 2 * once.work
        if name == "dram_share":
            for copy in small:
                held = {buffer.name: 4 * math.prod(buffer.shape) for buffer in copy.program.temporaries}
                assert held["from"] + held["to"] == pytest.approx(copy.work * BASE.dram_bytes_per_second)
        if name == "clock":
            assert small[0].work == large[0].work
