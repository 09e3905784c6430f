"""Generated Python: an indented writer whose identifiers are ours and whose constants are objects.

No text of a rule ever becomes text of the program: names of a rule are keys of dictionaries, passed in as constants.
"""

from __future__ import annotations

import contextlib
import linecache
from collections.abc import Iterator
from typing import Any

from ...ir.diagnostic import DplcError

LOOPS, DEEPEST = 18, 85  # loops in a function, of which Python nests twenty; levels of indentation: a hundred


class Writer:
    """Lines of a function under construction. `fail` is the statement that gives up the current attempt."""

    def __init__(self, scope: dict[str, Any]):
        self.scope = scope
        self.lines: list[str] = []
        self.depth = self.loops = 0
        self.fail = "return"
        self.count = 0
        self.inner: list[tuple[int, str]] | None = None  # functions in the function: where they stand, their names
        self._constants: dict[Any, str] = {}

    def put(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def local(self, letter: str) -> str:
        """A new variable of the generated function."""
        self.count += 1
        return f"{letter}{self.count}"

    def constant(self, value: Any) -> str:
        """The name of an object in the scope of the generated function."""
        key = (value.__class__, repr(value) if isinstance(value, float) else value)
        if key not in self._constants:
            name = self._constants[key] = f"c{len(self._constants)}"
            self.scope[name] = value
        return self._constants[key]

    def object(self, value: Any) -> str:
        """The same for one that is what it is by identity, as pieces of rules are: spans make comparing them slow."""
        key = (object, id(value))  # of what lives as long as the scope
        if key not in self._constants:
            name = self._constants[key] = f"c{len(self._constants)}"
            self.scope[name] = value
        return self._constants[key]

    def open(self, header: str, fail: str | None = None) -> None:
        """Start a block: what follows is inside it."""
        self.put(header)
        self.depth += 1
        if fail is not None:
            self.fail = fail

    def loop(self, header: str, place: Any) -> None:
        """A choice. Where Python nests no further, those that follow are in a function of their own."""
        if self.loops >= LOOPS:
            if self.inner is None:
                raise DplcError("too many runs in one pattern", place.span)
            name = self.local("f")
            self.put(f"def {name}():")
            self.inner.append((self.depth, name))
            self.depth, self.loops = self.depth + 1, 0
        if self.depth > DEEPEST:
            what = "a pattern on tensor has at most 80 choices (operands in either order, runs)"
            raise DplcError(what, place.span, (), "match less of the program")
        self.open(header, "continue")
        self.loops += 1

    @contextlib.contextmanager
    def function(self, header: str, fail: str) -> Iterator[None]:
        """A function in the function."""
        before = self.depth, self.loops, self.fail
        self.open(header, fail)
        yield
        self.depth, self.loops, self.fail = before

    def close(self) -> None:
        """The end of the text: no choice was right."""
        for depth, name in reversed(self.inner or ()):
            self.depth = depth
            found = self.local("f")
            self.put(f"{found} = {name}()")
            self.put(f"if {found} is not None: return {found}")

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def compile(self, name: str, title: str) -> Any:
        """The function `name` of the text. The title shows in tracebacks."""
        text = self.text()
        file = f"<dplc {title}>"
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        exec(compile(text, file, "exec"), self.scope)  # our own text: see the head of this file
        return self.scope[name]
