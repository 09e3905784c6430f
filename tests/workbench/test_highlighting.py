"""What kind of word each name of a rule is, for an editor's colours."""

from __future__ import annotations

from pathlib import Path

from dplc.engine.workbench.answers import variables
from dplc.engine.workbench.document import Document

MINE = """rule mine(N: int in {2, 4} = 2) on tile
match
    for k in 0..K serial:
        body..
where K > row_chunk                              because "short"
where matmul_shaped(body)                        because "no product"
rewrite
    for k in 0..K // N unrolled:
        body..
"""


def test_numbers_of_the_policy_are_no_variables(tmp_path: Path) -> None:
    document, lines = Document(tmp_path / "mine.rw"), MINE.splitlines()
    document.problems(MINE)
    kinds = {lines[span.line - 1][span.column : span.end_column]: kind for span, kind in variables(document)}
    assert kinds.items() >= {"row_chunk": "macro", "K": "variable", "body": "variable"}.items()
