"""`override rule .. for DEVICE` in the editor: its own text is checked and run, not that of the other devices."""

from __future__ import annotations

from pathlib import Path

from dplc.engine.workbench.document import Document, Request

RULE = """\
## A sum with itself is a double.
{head}
match
    y = add(x, x)
rewrite
    y = multiply(x, {factor})
example "one value"
    graph f(x: f32[i:8]) -> y: f32[8]:
        y[i] = add(x[i], x[i])
gives
    graph f(x: f32[i:8]) -> y: f32[8]:
        y[i] = multiply(x[i], 2.0)
"""


def test_an_override_for_one_device_is_checked_and_run(tmp_path: Path) -> None:
    path, general = tmp_path / "mine.rw", RULE.format(head="rule twice on tensor", factor="2.0")
    own = general + RULE.format(head="override rule twice on tensor for h200", factor="{}")
    (wrong,) = Document(path, {}.get).problems(own.format("z"))
    assert (wrong.what, wrong.span and wrong.span.line) == ("rule `twice`: unbound variable `z`", 18)
    for kind, label, line in (("examples", "1 of 2 hold", 19), ("check", "1 ok", 14)):
        answer = Request(kind, "twice", None, path, {path: own.format("3.0")}, None).answer(lambda *progress: None)
        assert (answer.label, [wrong.span and wrong.span.line for wrong in answer.wrong]) == (label, [line])
