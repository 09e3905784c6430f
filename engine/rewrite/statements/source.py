"""Generated Python: an indented writer whose identifiers are ours and whose constants are objects.

No text of a rule ever becomes text of the program: names of a rule are keys of dictionaries, passed in as constants.
"""

from __future__ import annotations

import linecache
from typing import Any


class Writer:
    """Lines of a function under construction. `fail` is the statement that gives up the current attempt."""

    def __init__(self, scope: dict[str, Any]):
        self.scope = scope
        self.lines: list[str] = []
        self.depth = 0
        self.fail = "return"
        self.count = 0
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

    def open(self, header: str, fail: str | None = None) -> None:
        """Start a block: what follows is inside it."""
        self.put(header)
        self.depth += 1
        if fail is not None:
            self.fail = fail

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def compile(self, name: str, title: str) -> Any:
        """The function `name` of the text. The title shows in tracebacks."""
        text = self.text()
        file = f"<dplc {title}>"
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        exec(compile(text, file, "exec"), self.scope)  # our own text: see the head of this file
        return self.scope[name]
