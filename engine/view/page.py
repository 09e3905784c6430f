"""Render the page: one file without external resources. A script shows the JSON data as text, never as markup."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import math
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("page")
SCRIPTS = ("core", "columns", "timeline", "kernels", "tabs", "suite", "searched")


def page(record: dict[str, Any], live: bool = False) -> str:
    """Render a record (`view_record`). live: the page polls its server for changes."""
    import jinja2

    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    script = "".join(map(_part, (*(f"{name}.js" for name in SCRIPTS), *(("live.js",) if live else ()), "start.js")))
    style = _part("page.css")
    return environment.from_string(_part("page.html")).render(
        title=record["title"], style=style, script=script, data=embedded(record), style_hash=_digest(style),
        script_hash=_digest(script), connect="'self'" if live else "'none'",
    )  # fmt: skip


def embedded(record: Any) -> str:
    """Return JSON that is safe inside of a script element."""
    text = as_json(record)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def as_json(record: Any) -> str:
    """Return JSON with null for infinities and NaNs."""
    try:
        return json.dumps(record, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return json.dumps(_finite(record), separators=(",", ":"), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value


@functools.cache
def _part(name: str) -> str:
    return (FOLDER / name).read_text()


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
