"""The build cache and the messages of builds that fail."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from emulated import run
from forked import started

from dplc.codegen import build, compiler
from dplc.codegen.build import assemble, build_device, build_host, device_text, host_text
from dplc.codegen.cache import cached, digest
from dplc.codegen.compiler import BuildError, find_nvrtc
from dplc.codegen.emulator.runtime import runtime
from dplc.codegen.kernel import CudaKernel, KernelParam


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of its own."""
    monkeypatch.setenv("DPLC_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def entries(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.rglob("*") if path.is_file())


# ---- the store -------------------------------------------------------------------------------------


def test_an_entry_is_built_once(cache: Path) -> None:
    calls: list[Path] = []

    def make(product: Path) -> None:
        calls.append(product)
        product.write_text("built")
        product.with_name("by-product").write_text("dropped")

    first = cached("test", ["a", "b"], ".txt", make)
    assert first.read_text() == "built"
    assert cached("test", ["a", "b"], ".txt", make) == first
    assert cached("test", ["ab"], ".txt", make) != first
    assert len(calls) == 2
    assert len(entries(cache)) == 2


def test_boundaries_between_parts_count() -> None:
    assert digest(["ab", "c"]) != digest(["a", "bc"]) != digest(["abc"])


def test_a_failed_build_leaves_nothing(cache: Path) -> None:
    def fail(product: Path) -> None:
        product.write_text("half")
        raise BuildError("no", "because", "do")

    with pytest.raises(BuildError):
        cached("test", ["a"], ".txt", fail)
    assert entries(cache) == []


def test_an_unwritable_cache_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DPLC_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.raises(
        BuildError, match=r"could not write to the build cache [^\n]*\n.*Not a directory.*\n.*DPLC_CACHE_DIR"
    ):
        cached("test", ["a"], ".txt", lambda product: None)


def write(text: str) -> Callable[[Path], None]:
    def build(product: Path) -> None:
        product.write_text(text)

    return build


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666, 0o777])
def test_a_file_that_others_can_write_to_is_built_again(cache: Path, mode: int) -> None:
    entry = cached("test", ["a"], ".txt", write("right"))
    entry.write_text("planted")
    entry.chmod(mode)
    assert cached("test", ["a"], ".txt", write("right")) == entry
    assert entry.read_text() == "right" and not entry.stat().st_mode & 0o022


def test_a_link_to_somewhere_else_is_built_again(cache: Path, tmp_path: Path) -> None:
    entry = cached("test", ["a"], ".txt", write("right"))
    (tmp_path / "planted").write_text("planted")
    entry.unlink()
    entry.symlink_to(tmp_path / "planted")
    assert cached("test", ["a"], ".txt", write("right")).read_text() == "right"
    assert (tmp_path / "planted").read_text() == "planted"


def test_folders_are_their_owners_alone(cache: Path) -> None:
    before = os.umask(0o000)
    try:
        entry = cached("test", ["a"], ".txt", write("right"))
    finally:
        os.umask(before)
    for path in (entry, entry.parent, entry.parent.parent, cache):
        assert not path.stat().st_mode & 0o022, path
    entry.parent.chmod(0o777)
    assert cached("test", ["a"], ".txt", write("right")) == entry
    assert not entry.parent.stat().st_mode & 0o022


def test_a_cache_of_somebody_else_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = cached("test", ["a"], ".txt", write("right"))
    real, others = os.getuid(), 12345
    foreign = {str(entry): others}
    lstat, plain = Path.lstat, Path.stat

    def as_if(original: Callable[..., os.stat_result]) -> Callable[..., os.stat_result]:
        def status(path: Path, **options: bool) -> os.stat_result:
            found = original(path, **options)
            return os.stat_result((*found[:4], foreign.get(str(path), found.st_uid or 1000), *found[5:]))

        return status

    monkeypatch.setattr(Path, "lstat", as_if(lstat))
    monkeypatch.setattr(Path, "stat", as_if(plain))
    monkeypatch.setattr(os, "getuid", lambda: real or 1000)
    assert cached("test", ["a"], ".txt", write("again")).read_text() == "again"  # the file: built again
    for folder in (entry.parent, entry.parent.parent, cache):
        foreign.clear()
        foreign[str(folder)] = others
        with pytest.raises(BuildError, match="no place for the build cache") as caught:
            cached("test", ["a"], ".txt", write("never"))
        assert "belongs to user 12345" in caught.value.notes[0] and caught.value.exit_code == 1


def test_a_folder_that_everybody_can_write_to_is_refused(cache: Path) -> None:
    cache.mkdir()
    cache.chmod(0o777)
    with pytest.raises(BuildError, match="no place for the build cache"):
        cached("test", ["a"], ".txt", write("never"))
    cache.chmod(0o1777)  # as the temporary folder: nobody can take away what is ours
    assert cached("test", ["a"], ".txt", write("right")).read_text() == "right"


@pytest.mark.parametrize("stage", ["runtime", "kernel"])
def test_a_full_disk_is_called_one(
    cache: Path, tmp_path: Path, rms_norm: CudaKernel, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    reason = "/usr/bin/ld: final link failed: No space left on device"
    script = tmp_path / "full-g++"
    script.write_text(
        f"#!/bin/sh\n[ $1 = --version ] && exit 0\necho '{reason}' >&2\necho 'collect2: error: ld returned 1' >&2\nexit 1\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    with pytest.raises(BuildError) as caught:
        build.build_runtime() if stage == "runtime" else build_host(host_text([rms_norm]))
    assert caught.value.notes[0] == reason and caught.value.exit_code == 1
    assert "TMPDIR" in str(caught.value.hint) and "install" not in str(caught.value.hint)


def test_processes_that_build_the_same_thing_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both the runtime and the kernel are missing, and two processes start together."""
    runtime()  # what kernels run with is there; what is built is another
    monkeypatch.setenv("DPLC_CACHE_DIR", str(tmp_path / "cache"))
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "runtime.cpp").write_text("int nothing;")  # quick to build
    monkeypatch.setattr(build, "EMULATOR", sources)
    text = 'extern "C" __global__ void test(float* y) { stg32(y + threadIdx.x, 7.0f); }'
    kernel = CudaKernel("test", text, (1, 1, 1), 32, 0, (KernelParam("y", "f32", (32,), "out"),))
    start = multiprocessing.Barrier(2)

    def race() -> None:
        start.wait()
        build.build_runtime()
        assert (run(kernel, {})["y"] == 7).all()

    racers = [started(tmp_path / f"log{n}", race) for n in range(2)]
    for racer in racers:
        racer.join(300)
    assert [racer.exitcode for racer in racers] == [0, 0], [(tmp_path / f"log{n}").read_text() for n in range(2)]
    assert len(entries(tmp_path / "cache")) == 2  # one runtime, one kernel, nothing half-built


# ---- builds for the emulator -----------------------------------------------------------------------


def test_kernels_of_one_program_are_one_library(cache: Path, rms_norm: CudaKernel, matmul: CudaKernel) -> None:
    build_host(host_text([rms_norm, matmul]))
    assert len(entries(cache)) == 1


def test_the_compiler_is_part_of_the_key(cache: Path, rms_norm: CudaKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    build_host(host_text([rms_norm]))
    monkeypatch.setattr(build, "program_identity", lambda path: "another version")
    build_host(host_text([rms_norm]))
    assert len(entries(cache)) == 2


def test_a_missing_host_compiler_is_explained(rms_norm: CudaKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(BuildError) as caught:
        build_host(host_text([rms_norm]))
    assert str(caught.value) == (
        "error: no C++ compiler for the emulator\n"
        "  note: `no-such-compiler` is not on PATH\n"
        "  help: install g++ (Debian: apt install g++), or set $CXX to a C++17 compiler"
    )


def test_a_host_compiler_that_does_not_run_is_explained(
    cache: Path, rms_norm: CudaKernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "c++"
    fake.write_bytes(b"\x7fELF nonsense")
    fake.chmod(0o755)
    monkeypatch.setenv("CXX", str(fake))
    with pytest.raises(BuildError, match=r"could not run .*c\+\+: Exec format error"):
        build_host(host_text([rms_norm]))


def broken(kernel: CudaKernel) -> CudaKernel:
    return replace(kernel, text=kernel.text.replace("block_sync();", "block_sink();"))


def test_a_compile_error_shows_the_line(cache: Path, rms_norm: CudaKernel) -> None:
    with pytest.raises(BuildError) as caught:
        build_host(host_text([broken(rms_norm)]))
    message = str(caught.value)
    number = rms_norm.text.splitlines().index("  block_sync();") + 1
    assert message.startswith("error: could not compile kernel rms_norm for the emulator\n")
    assert f"rms_norm.cu:{number}:" in message and "block_sink" in message
    assert f"rms_norm.cu line {number}: block_sink();" in message
    assert "bug in dplc" in message and caught.value.exit_code == 3
    assert len(message.splitlines()) < 15


# ---- builds for the GPU ----------------------------------------------------------------------------

needs_device_compiler = pytest.mark.skipif(
    compiler.find_program("nvcc") is None and find_nvrtc() is None, reason="neither NVRTC nor nvcc is here"
)
needs_nvcc = pytest.mark.skipif(compiler.find_program("nvcc") is None, reason="nvcc is not here")
ARCHITECTURES = ["sm_80", "sm_90a", "sm_120"]


@needs_device_compiler
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_sample_kernels_assemble_without_spills(rms_norm: CudaKernel, matmul: CudaKernel, arch: str) -> None:
    kernels = assemble(device_text([rms_norm, matmul]), arch).kernels
    assert sorted(kernels) == ["matmul", "rms_norm"]
    for used in kernels.values():
        assert 8 <= used.registers <= 64
        assert used.spill_stores == used.spill_loads == used.static_smem == 0


@needs_device_compiler
def test_cubins_are_cached(cache: Path, rms_norm: CudaKernel) -> None:
    cubin = build_device(device_text([rms_norm]), "sm_80")
    assert cubin.startswith(b"\x7fELF") and b"rms_norm" in cubin
    assert build_device(device_text([rms_norm]), "sm_80") == cubin
    assert len(entries(cache)) == 1


@needs_device_compiler
def test_a_device_compile_error_shows_the_line(rms_norm: CudaKernel) -> None:
    with pytest.raises(BuildError) as caught:
        assemble(device_text([broken(rms_norm)]), "sm_90a")
    assert str(caught.value).startswith("error: could not compile kernel rms_norm for sm_90a\n")
    assert "block_sink();" in str(caught.value)


@needs_nvcc
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.sampled(2)
def test_nvcc_stands_in_for_nvrtc(rms_norm: CudaKernel, arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "find_nvrtc", lambda: None)
    used = assemble(device_text([rms_norm]), arch).kernels["rms_norm"]
    assert 8 <= used.registers <= 64 and used.spill_stores == 0
    with pytest.raises(BuildError, match="block_sink"):
        assemble(device_text([broken(rms_norm)]), arch)


def test_no_device_compiler_is_explained(cache: Path, rms_norm: CudaKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "find_nvrtc", lambda: None)
    monkeypatch.setattr(build, "find_program", lambda name: None)
    with pytest.raises(BuildError, match=r"no CUDA compiler for sm_90a\n.*neither.*\n.*--device emulator"):
        build_device(device_text([rms_norm]), "sm_90a")


class Old:
    """An NVRTC that knows nothing after Ampere."""

    identity, version = "nvrtc 11.8 libnvrtc.so", (11, 8)

    def knows(self, target: str) -> bool:
        return target in ("sm_80", "sm_86")


def test_a_compiler_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BuildError) as caught:
        build_device("", "sm_120", Old())  # type: ignore[arg-type]
    assert "no CUDA compiler for sm_120" in str(caught.value) and caught.value.exit_code == 1
    assert caught.value.hint is not None and "install a newer one" in caught.value.hint


def test_compilers_of_the_drivers_own_version_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cubin of a newer major version may not load: it is the last resort."""
    from dplc.codegen import compiler

    class Some(Old):
        def __init__(self, *version: int) -> None:
            self.version = version  # type: ignore[assignment]

    monkeypatch.setattr(compiler, "find_all", lambda: (Some(13, 5), Some(12, 8), Some(12, 2)))
    assert [one.version for one in compiler.suited(12040, "sm_80")] == [(12, 8), (12, 2), (13, 5)]
    assert [one.version for one in compiler.suited(13000, "sm_80")] == [(13, 5), (12, 8), (12, 2)]
    assert compiler.suited(13000, "sm_90a") == ()


@pytest.mark.parametrize(("identity", "own"), [("g++ 12.2", True), ("clang version 17.0.1", False)])
def test_a_compiler_gets_the_flags_that_it_knows(
    identity: str, own: bool, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[list[str]] = []

    def run(command: list[str]) -> None:
        called.append(command)
        Path(command[command.index("-o") + 1]).touch()

    monkeypatch.setattr(build, "program_identity", lambda compiler: identity)
    monkeypatch.setattr(build, "run_compiler", run)
    for checked in (False, True):
        build_host("// nothing", checked)
    assert [any(word.startswith("--param") for word in command) for command in called] == [own, own]
    assert ["-DDPLC_CHECKED" in command for command in called] == [False, True]
