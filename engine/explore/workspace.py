"""E-graphs of egglog that wait for a problem: rules are read once, a problem goes on top and is taken off again.

Reading rules takes ten times as long as reading a problem; so all are read, and each problem says which of them run.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import sys
import threading
from collections.abc import Iterator
from importlib.machinery import PathFinder
from typing import Any

KEPT = 4  # texts
_here = threading.local()  # an e-graph of egglog belongs to the thread that made it


@functools.cache
def bindings() -> Any:
    """egglog's compiled module by itself: the classes for Python programs around it take 40 times as long to import.

    Raises ImportError where egglog is not here.
    """
    name = "egglog.bindings"
    package = importlib.util.find_spec("egglog")
    places = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec(name, places) if places is not None else None
    if name in sys.modules or spec is None or spec.loader is None:
        return importlib.import_module(name)
    made = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def run(graph: Any, text: str) -> Any:
    """What egglog answers to the commands of a text, one answer a command that has one. No command has two lines.

    Line by line: every word of a parsed text keeps a copy of all of it, 100 MB for the rules.
    """
    return [answer for line in text.splitlines() for answer in graph.run_program(*graph.parse_program(line))]


@contextlib.contextmanager
def workspace(text: str) -> Iterator[Any]:
    """An e-graph in which a text has been read, and nothing else. What is put into it is gone afterwards."""
    kept: dict[str, Any] = _here.__dict__.setdefault("kept", {})
    graph = kept.pop(text, None) or read(text)
    run(graph, "(push)")
    yield graph
    run(graph, "(pop)")  # after an error it is not kept: its content is unknown
    kept[text] = graph
    while len(kept) > KEPT:
        del kept[next(iter(kept))]


def read(text: str) -> Any:
    """A new e-graph of egglog that has read a text."""
    graph = bindings().EGraph()
    run(graph, text)
    return graph
