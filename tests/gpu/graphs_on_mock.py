"""Scenarios of CUDA graphs and streams on the mock driver; run_on_mock.py runs them."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from on_mock_driver import AXPY, SIZE, TRANSPOSE, MockedExecutor

from dplc.codegen.cuda import print_cuda
from dplc.codegen.driver import MOST_GRAPHS, Graph
from dplc.codegen.kernel import Buffer, CudaKernel, KernelParam, Program
from dplc.codegen.launch import CudaSession, DeviceError
from dplc.codegen.materialise import materialise
from dplc.codegen.target import target
from dplc.engine.capture.capture import capture
from dplc.engine.compiler import compiler_with
from dplc.ir.text.programs import read_program

LAUNCH, REPLAY = b"cuLaunchKernel", b"cuGraphLaunch"
NOT_SUPPORTED, GLOBAL = 801, 0
MOCK = ctypes.CDLL("libcuda.so.1")
MOCK.mock_count.restype = ctypes.c_long
A = torch.tensor(3.0)


def two_layers() -> Program:
    """y = a (a x + 1) + 1, by two launches of one kernel."""
    x, h, y = (Buffer(name, "f32", (SIZE,)) for name in "xhy")
    params = (KernelParam("x", "f32", (SIZE,)), KernelParam("a", "f32", ()), KernelParam("y", "f32", (SIZE,), "out"))
    kernel = CudaKernel("axpy", AXPY, (8, 1, 1), 128, 2048, params)
    return Program((kernel, kernel), (x,), (y,), (Buffer("a", "f32", ()),), (h,), (("x", "a", "h"), ("h", "a", "y")))


def right(y: torch.Tensor, x: torch.Tensor) -> bool:
    return torch.allclose(y, 3 * (3 * x + 1) + 1)


class SameOutputs(MockedExecutor):
    """Outputs lie where they lay before, as torch's allocator likes to have it; `lend` says how many there are.

    Temporaries stay, as they do on a GPU if they were taken inside of a capture: torch gives them to the user's graph.
    """

    def __init__(self, lend: int = 1, **options: Any) -> None:
        super().__init__(**options)
        self._lent, self._turn = [torch.empty(SIZE) for _ in range(lend)], 0
        self._pool: list[Any] = []

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        if shape != (SIZE,):
            return super().empty(shape, dtype)
        self._turn += 1
        return self._lent[self._turn % len(self._lent)].fill_(float("nan"))

    def temporaries(self, program: Program) -> dict[str, Any]:
        alone = {b.name: torch.full(b.shape, float("nan")) for b in program.temporaries}
        self._pool.extend(alone.values())
        return alone


class OnStream(SameOutputs):
    """An executor for which torch's current stream is one of the mock driver's."""

    def __init__(self) -> None:
        super().__init__()
        with self.gpu.context():
            self.current = self._driver.Stream(1)

    def current_stream(self) -> int:
        return int(self.current.handle)


def prepared(executor: MockedExecutor) -> CudaSession:
    return executor.prepare(two_layers(), {"a": A})


@contextmanager
def counted(**expected: int) -> Iterator[None]:
    """Exactly so many calls of the driver are made, and no graph is left behind."""
    before = {name: MOCK.mock_count(name.encode()) for name in expected}
    yield
    made = {name: MOCK.mock_count(name.encode()) - before[name] for name in expected}
    assert made == expected, made


@contextmanager
def refused(name: bytes, after: int = 0, times: int = 1) -> Iterator[None]:
    MOCK.mock_refuse(name, NOT_SUPPORTED, ctypes.c_long(after), ctypes.c_long(times))
    try:
        yield
    finally:
        MOCK.mock_refuse(name, 0, ctypes.c_long(0), ctypes.c_long(0))


def alive() -> tuple[int, int]:
    """Graphs and executables that nobody has destroyed."""
    gc.collect()
    return MOCK.mock_count(b"graphs"), MOCK.mock_count(b"executables")


def a_replay_sees_what_the_arrays_hold_now() -> None:
    session, x = prepared(SameOutputs()), torch.randn(SIZE)
    assert right(session.run({"x": x})["y"], x)  # launched
    with counted(cuLaunchKernel=2, cuGraphLaunch=1):
        assert right(session.run({"x": x})["y"], x)  # captured and replayed
    for _ in range(3):
        x.normal_()
        with counted(cuLaunchKernel=0, cuGraphLaunch=1):
            assert right(session.run({"x": x})["y"], x)
    assert session._executor.notes == ()


def a_step_in_place_is_replayed() -> None:
    """An output in the memory of its input, given back as the next input: the addresses stay, nothing is allocated."""
    executor, x = SameOutputs(), torch.randn(SIZE) / 1e3
    session = executor.prepare(replace(two_layers(), aliases={"y": "x"}), {"a": A})
    want, value, place = x.clone(), x, x.data_ptr()
    executor._lent.clear()  # an allocation would fail
    with counted(cuLaunchKernel=4, cuGraphLaunch=3):
        for _ in range(4):
            want, value = 3 * (3 * want + 1) + 1, session.run({"x": value})["y"]
            assert torch.allclose(value, want) and value.data_ptr() == place


def arrays_that_never_come_back_are_not_captured() -> None:
    session, kept = prepared(SameOutputs()), [torch.randn(SIZE) for _ in range(8)]
    with counted(cuStreamBeginCapture_v2=0, cuGraphLaunch=0, cuLaunchKernel=16):
        assert all(right(session.run({"x": x})["y"], x) for x in kept)


def a_few_places_share_a_few_graphs() -> None:
    """Each place gets its graph when it comes again; a fifth takes over that of the first, in place."""
    session, kept = prepared(SameOutputs()), [torch.randn(SIZE) for _ in range(MOST_GRAPHS + 1)]
    with counted(cuGraphInstantiateWithFlags=MOST_GRAPHS, cuGraphExecUpdate_v2=1, executables=MOST_GRAPHS):
        for x in (x for x in kept for _ in range(3)):
            assert right(session.run({"x": x.normal_()})["y"], x)
    with counted(cuGraphLaunch=MOST_GRAPHS, cuLaunchKernel=0):
        assert all(right(session.run({"x": x.normal_()})["y"], x) for x in kept[1:])
    with counted(cuGraphLaunch=0, cuLaunchKernel=2):
        assert right(session.run({"x": kept[0]})["y"], kept[0])


def two_results_alive_in_turn() -> None:
    session, x = prepared(SameOutputs(lend=2)), torch.randn(SIZE)
    for turn in range(6):
        y = session.run({"x": x.normal_()})["y"]
        assert right(y, x), turn
    assert len(session._replays._graphs) == 2  # type: ignore[union-attr]


def a_graph_that_cannot_be_changed_is_made_anew() -> None:
    session, kept = prepared(SameOutputs()), [torch.randn(SIZE) for _ in range(MOST_GRAPHS + 1)]
    before = alive()[1]
    with refused(b"cuGraphExecUpdate_v2"), counted(cuGraphInstantiateWithFlags=MOST_GRAPHS + 1):
        for x in (x for x in kept for _ in range(2)):
            assert right(session.run({"x": x})["y"], x)
    assert session._executor.notes == () and alive()[1] == before + MOST_GRAPHS


def two_sessions_do_not_mix() -> None:
    executor = SameOutputs(lend=2)
    one, other = prepared(executor), executor.prepare(two_layers(), {"a": torch.tensor(-2.0)})
    x = torch.randn(SIZE)
    for _ in range(4):
        x.normal_()
        assert right(one.run({"x": x})["y"], x)
        assert torch.allclose(other.run({"x": x})["y"], -2 * (-2 * x + 1) + 1)


def nothing_is_left_behind() -> None:
    before = alive()
    session, x = prepared(SameOutputs()), torch.randn(SIZE)
    for _ in range(3):
        session.run({"x": x})
    assert alive() == (before[0], before[1] + 1)
    session.close()
    assert alive() == before
    assert right(session.run({"x": x})["y"], x)
    again = prepared(SameOutputs())
    for _ in range(3):
        again.run({"x": x})
    del again, session
    assert alive() == before


def a_driver_that_refuses_is_done_without() -> None:
    for name in (b"cuStreamBeginCapture_v2", b"cuStreamEndCapture", b"cuGraphInstantiateWithFlags", REPLAY):
        before = alive()
        session, x = prepared(SameOutputs()), torch.randn(SIZE)
        with refused(name):
            notes = []
            for _ in range(4):
                assert right(session.run({"x": x.normal_()})["y"], x), name
                notes.extend(session._executor.notes)
        wanted = f"no CUDA graph, launched one by one: {name.decode()}: error {NOT_SUPPORTED} of the driver"
        assert notes == [wanted], notes
        assert alive() == before, name


def a_launch_that_fails_inside_of_a_capture() -> None:
    """It is tried again outside, and the stream is free again; if it fails there too, that is the error."""
    before = alive()
    executor, x = SameOutputs(), torch.randn(SIZE)
    session = prepared(executor)
    session.run({"x": x})
    with refused(LAUNCH, after=1):
        assert right(session.run({"x": x})["y"], x)
    assert len(executor.notes) == 1 and "kernel `axpy` cannot be launched" in executor.notes[0], executor.notes
    other = prepared(executor)
    other.run({"x": x})
    with refused(LAUNCH, times=9):
        try:
            other.run({"x": x})
        except DeviceError as error:
            assert str(error).startswith("error: kernel `axpy` cannot be launched: "), error
        else:
            raise AssertionError("not raised")
    third = prepared(executor)
    with counted(cuGraphLaunch=2):
        assert all(right(third.run({"x": x})["y"], x) for _ in range(3))
    del third
    assert alive() == before


def an_interrupt_inside_of_a_capture_ends_it() -> None:
    before = alive()
    executor, x = SameOutputs(), torch.randn(SIZE)

    def interrupted() -> None:
        raise KeyboardInterrupt

    for _ in range(2):
        with executor.gpu.side_stream() as stream:
            try:
                Graph(stream.handle, interrupted)
            except KeyboardInterrupt:
                pass
            else:
                raise AssertionError("not raised")
    assert alive() == before
    session = prepared(executor)
    assert all(right(session.run({"x": x})["y"], x) for _ in range(3)) and executor.notes == ()


def one_launch_needs_no_graph() -> None:
    params = (KernelParam("x", "f32", (SIZE,)), KernelParam("a", "f32", ()), KernelParam("y", "f32", (SIZE,), "out"))
    kernel = CudaKernel("axpy", AXPY, (8, 1, 1), 128, 2048, params)
    session = SameOutputs().prepare(Program((kernel,), params[:1], params[2:], params[1:2]), {"a": A})
    x = torch.randn(SIZE)
    with counted(cuStreamBeginCapture_v2=0, cuLaunchKernel=3):
        assert all(torch.allclose(session.run({"x": x})["y"], 3 * x + 1) for _ in range(3))


def graphs_can_be_switched_off() -> None:
    os.environ["DPLC_CUDA_GRAPHS"] = "0"
    try:
        off, on = SameOutputs(), SameOutputs(graphs=True)
    finally:
        del os.environ["DPLC_CUDA_GRAPHS"]
    assert (off.graphs, on.graphs, SameOutputs(graphs=False).graphs) == (False, True, False)
    session, x = prepared(off), torch.randn(SIZE)
    with counted(cuStreamBeginCapture_v2=0, cuLaunchKernel=6):
        assert all(right(session.run({"x": x})["y"], x) for _ in range(3))


def an_output_in_the_memory_of_an_input() -> None:
    """Every run starts from what the one before left there, captured or not, and when a replay is refused."""
    for refuse in (False, True):
        session = SameOutputs().prepare(replace(two_layers(), aliases={"y": "x"}), {"a": A})
        x = torch.randn(SIZE)
        with refused(REPLAY, after=1) if refuse else counted(cuGraphLaunch=3):
            for _ in range(4):
                before = x.clone()
                assert session.run({"x": x})["y"].data_ptr() == x.data_ptr() and right(x, before)


def a_launch_again_by_place() -> None:
    session, x = prepared(SameOutputs()), torch.randn(SIZE)
    for _ in range(3):
        y = session.run({"x": x})["y"]
    y.fill_(0)
    session.launch(1)
    assert right(y, x)


def numpy_arrays_come_and_go() -> None:
    session = MockedExecutor().prepare(two_layers(), {"a": np.float32(3)})
    for seed in range(4):
        x = np.random.default_rng(seed).standard_normal(SIZE).astype(np.float32)
        assert right(torch.from_numpy(session.run({"x": x})["y"]), torch.from_numpy(x))


def tensor_maps_are_part_of_a_graph() -> None:
    (unit,) = read_program(TRANSPOSE)[1]
    kernel = print_cuda(materialise(unit, target("h200")))
    x, y, z = Buffer("x", "f32", (30, 36)), Buffer("y", "f32", (32, 32)), Buffer("z", "f32", (32, 32))
    program = Program((kernel, kernel), (x,), (y, z), bindings=(("x", "y", "x"), ("x", "z", "x")))
    executor, values = MockedExecutor(), torch.randn(30, 36)
    places = [torch.empty(32, 32), torch.empty(32, 32)]
    executor.empty = lambda shape, dtype: places[0] if len(places) == 1 else places[next(turn) % 2].zero_()  # type: ignore[method-assign]
    turn = iter(range(99))
    session = executor.prepare(program, {})
    with counted(cuGraphLaunch=2, cuLaunchKernel=4):
        for _ in range(3):
            made = session.run({"x": values.normal_()})
            for result in made.values():
                assert torch.equal(result[:, :30], values[:, :32].T) and not result[:, 30:].any()


def torchs_current_stream_is_used() -> None:
    """Launched: in its order, by events. Replayed: on it."""
    executor, x = OnStream(), torch.randn(SIZE)
    session, streams, replay = prepared(executor), [], Graph.replay
    Graph.replay = lambda self, stream: (streams.append(stream), replay(self, stream))[1]  # type: ignore[method-assign]
    try:
        with counted(cuEventRecord=2, cuStreamWaitEvent=2, cuEventCreate=2, cuEventDestroy_v2=2):
            assert right(session.run({"x": x})["y"], x)
        with counted(cuEventRecord=0, cuStreamWaitEvent=0):
            assert all(right(session.run({"x": x})["y"], x) for _ in range(3))
    finally:
        Graph.replay = replay  # type: ignore[method-assign]
    assert streams == [executor.current.handle] * 3


def captured_by_the_user(executor: OnStream, x: torch.Tensor, run: Callable[[], Any]) -> None:
    """Launched plainly into the user's graph: nothing runs before that is launched, and it runs then."""
    for _ in range(3):
        assert right(run()["y"], x)
    graph, executable, current = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(executor.current.handle)
    assert MOCK.cuStreamBeginCapture_v2(current, GLOBAL) == 0
    with counted(cuGraphLaunch=0, cuLaunchKernel=2, cuStreamBeginCapture_v2=0):
        y = run()["y"]
    assert y.isnan().all()
    assert MOCK.cuStreamEndCapture(current, ctypes.byref(graph)) == 0
    assert MOCK.cuGraphInstantiateWithFlags(ctypes.byref(executable), graph, ctypes.c_ulonglong(0)) == 0
    for _ in range(2):
        x.normal_()
        assert MOCK.cuGraphLaunch(executable, current) == 0
        assert right(y, x)
    assert MOCK.cuGraphExecDestroy(executable) == MOCK.cuGraphDestroy(graph) == 0
    assert right(run()["y"], x) and executor.notes == ()


def a_session_inside_of_a_capture_of_the_users() -> None:
    before = alive()
    executor, x = OnStream(), torch.randn(SIZE)
    session = prepared(executor)
    captured_by_the_user(executor, x, lambda: session.run({"x": x}))
    session.close()
    assert alive() == before


def an_executor_inside_of_a_capture_of_the_users() -> None:
    executor, program, x = OnStream(), two_layers(), torch.randn(SIZE)
    captured_by_the_user(executor, x, lambda: executor.run(program, {"x": x, "a": A}))


def runs_of_an_executor_are_replayed_too() -> None:
    """As long as they are of one program on one stream; on another stream they get memory of their own."""
    executor, program, x = OnStream(), two_layers(), torch.randn(SIZE)
    with counted(cuGraphLaunch=2, cuLaunchKernel=4):
        for _ in range(3):
            assert right(executor.run(program, {"x": x.normal_(), "a": A})["y"], x)
    before, other = executor._session, executor.current
    with executor.gpu.context():
        executor.current = executor._driver.Stream(1)
    assert right(executor.run(program, {"x": x.normal_(), "a": A})["y"], x)
    assert executor._session is not before
    assert other.handle != executor.current.handle
    assert right(executor.run(program, {"x": x, "a": torch.tensor(3.0)})["y"], x)


def torch_computes_between_kernels() -> None:
    """Calls read and write the arena, on the default stream and on another one; nothing replays."""

    def function(x: torch.Tensor) -> torch.Tensor:
        u, s, v = torch.linalg.svd(x * 2 + 1)
        return torch.special.airy_ai((u * s) @ v).exp() + s

    compiler = replace(compiler_with(target("sm_80")), calls="missing")
    program = compiler.compile(capture(function, (torch.randn(6, 6),))).program
    assert len(program.calls) == 2 and program.arena.offsets
    for executor in (MockedExecutor(), OnStream()):
        for _ in range(3):
            x = torch.randn(6, 6)
            (y,) = executor.run(program, {"x": x}).values()
            torch.testing.assert_close(y, function(x), rtol=1e-4, atol=1e-4)


def torch_compile_neither_copies_nor_leaves_the_stream() -> None:
    """The back end on what poses as CUDA tensors: kernels get the addresses of arguments and weights themselves."""
    import dplc.engine.api

    executor, places = OnStream(), []
    launch = executor.launch
    executor.launch = lambda launches, given, stream: (
        places.append((dict(given), stream)),
        launch(launches, given, stream),
    )[1]  # type: ignore[method-assign,func-returns-value]
    make, dplc.engine.api.executor = dplc.engine.api.executor, lambda device: executor
    try:
        layer, x = torch.nn.Linear(32, 16).requires_grad_(False), torch.randn(8, 32)
        compiled = torch.compile(lambda x: torch.softmax(layer(x), -1), backend="dplc", options={"device": "cuda"})
        for _ in range(3):
            x.normal_()
            with torch.no_grad():
                y = compiled(x)
            assert torch.allclose(y, torch.softmax(layer(x), -1), atol=1e-6)
            assert executor.notes == ()
    finally:
        dplc.engine.api.executor = make
    for given, stream in places:
        assert {x.data_ptr(), layer.weight.data_ptr()} <= set(given.values())
        assert stream in executor.gpu._idle
    torch._dynamo.reset()
