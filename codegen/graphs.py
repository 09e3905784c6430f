"""CUDA graphs: launches captured once on a stream, then enqueued again by one call of the driver.

PyCUDA knows streams by what it made itself, and no graphs; these few driver calls go to libcuda directly. Handles are
plain numbers. A graph holds the addresses it was captured with, so what replays it keeps the memory there alive.
"""

from __future__ import annotations

import ctypes
import weakref
from collections import OrderedDict
from collections.abc import Callable

from .driver import DriverError, call, status

Enqueue = Callable[[], None]
Addresses = tuple[int, ...]

# Nothing but launches happens between begin and end, so other threads may allocate meanwhile: CU_STREAM_CAPTURE_MODE_*.
RELAXED = 2
WITHOUT_TIMES = 2  # CU_EVENT_DISABLE_TIMING
MOST_GRAPHS, MOST_MET = 4, 16


class Graph:
    """Launches ready to be enqueued again. Destroyed when `close` is called, or when it is no longer referenced."""

    def __init__(self, stream: int, enqueue: Enqueue) -> None:
        """Capture what `enqueue` launches on a stream of ours. Raises DriverError, and what `enqueue` raises."""
        executable = ctypes.c_void_p()
        with _Captured(stream, enqueue) as graph:
            call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_ulonglong(0))
        self._executable = executable
        self.close = weakref.finalize(self, _destroy, executable)

    def update(self, stream: int, enqueue: Enqueue) -> bool:
        """Make it what `enqueue` launches now, in place; False if the driver needs a new one for that.

        Raises DriverError, and what `enqueue` raises.
        """
        result = (ctypes.c_uint64 * 3)()  # CUgraphExecUpdateResultInfo: an enum and two nodes
        with _Captured(stream, enqueue) as graph:
            try:
                call("cuGraphExecUpdate_v2", self._executable, graph, ctypes.byref(result))
            except DriverError:
                return False
        return True

    def replay(self, stream: int) -> None:
        """Enqueue the launches on any stream; 0 is the default one. Raises DriverError."""
        call("cuGraphLaunch", self._executable, ctypes.c_void_p(stream))


class Replays:
    """The graphs of one program on its way through the same few places, by the addresses they were captured with.

    Capturing costs more than launching, so addresses are captured when they are met again, not before: a program whose
    arrays never come back is never captured. The graph that has waited longest gives way to a fifth.
    """

    def __init__(self) -> None:
        self._graphs: OrderedDict[Addresses, Graph] = OrderedDict()
        self._met: OrderedDict[Addresses, None] = OrderedDict()

    def graph(self, addresses: Addresses, stream: int, enqueue: Enqueue) -> Graph | None:
        """The graph for these addresses, captured if they were met before; None if this is the first time.

        Raises DriverError, and what `enqueue` raises.
        """
        if addresses in self._graphs:
            self._graphs.move_to_end(addresses)
            return self._graphs[addresses]
        if addresses not in self._met:
            self._met[addresses] = None
            if len(self._met) > MOST_MET:
                self._met.popitem(last=False)
            return None
        del self._met[addresses]
        made = self._graphs[addresses] = self._capture(stream, enqueue)
        return made

    def _capture(self, stream: int, enqueue: Enqueue) -> Graph:
        if len(self._graphs) == MOST_GRAPHS:
            oldest = self._graphs.popitem(last=False)[1]
            if oldest.update(stream, enqueue):
                return oldest
            oldest.close()
        return Graph(stream, enqueue)

    def close(self) -> None:
        """Destroy every graph."""
        for graph in self._graphs.values():
            graph.close()
        self._graphs.clear()
        self._met.clear()


def is_capturing(stream: int) -> bool:
    """Whether what is enqueued on a stream is being captured. The default one cannot be captured."""
    capturing = ctypes.c_int()
    if stream:
        call("cuStreamIsCapturing", ctypes.c_void_p(stream), ctypes.byref(capturing))
    return capturing.value != 0


def order(before: int, after: int) -> None:
    """What is enqueued on stream `after` from now on waits for what is on `before`; in a capture it becomes part of it.

    Raises DriverError.
    """
    event = ctypes.c_void_p()
    call("cuEventCreate", ctypes.byref(event), ctypes.c_uint(WITHOUT_TIMES))
    try:
        call("cuEventRecord", event, ctypes.c_void_p(before))
        call("cuStreamWaitEvent", ctypes.c_void_p(after), event, ctypes.c_uint(0))
    finally:
        call("cuEventDestroy_v2", event)  # at once for us; the driver keeps it until it has happened


class _Captured:
    """A graph of what `enqueue` launches, for as long as a `with` lasts. The stream is given back whatever happens."""

    def __init__(self, stream: int, enqueue: Enqueue) -> None:
        self._stream, self._enqueue = ctypes.c_void_p(stream), enqueue
        self._graph = ctypes.c_void_p()

    def __enter__(self) -> ctypes.c_void_p:
        call("cuStreamBeginCapture_v2", self._stream, ctypes.c_int(RELAXED))
        try:
            self._enqueue()
        except BaseException:
            status("cuStreamEndCapture", self._stream, ctypes.byref(self._graph))
            self.__exit__()
            raise
        try:
            call("cuStreamEndCapture", self._stream, ctypes.byref(self._graph))
        except DriverError:
            self.__exit__()
            raise
        return self._graph

    def __exit__(self, *problem: object) -> None:
        if self._graph:
            status("cuGraphDestroy", self._graph)


def _destroy(executable: ctypes.c_void_p) -> None:
    status("cuGraphExecDestroy", executable)  # a run of it that is on its way is finished first
