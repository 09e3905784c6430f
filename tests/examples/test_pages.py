"""`make pages`: a figure that its command does not print is found, and every figure of our pages is what it prints."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCHES = ROOT / "examples" / "benches"


@pytest.fixture(scope="module")
def tool() -> Any:
    """examples/benches/pages.py"""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHES))
        spec = importlib.util.spec_from_file_location("pages", BENCHES / "pages.py")
        assert spec is not None and spec.loader is not None
        module: ModuleType = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module


PAGE = """A page with answers.

<!-- printed by: dplc quick -->
| old |
<!-- end -->

<!-- long run: dplc slow -->
```
as it was
```
<!-- end -->
"""


def test_a_page_is_filled(tool: Any) -> None:
    ran: list[str] = []

    def run(command: str) -> str:
        ran.append(command)
        return f"| new of {command} |\n"

    quick = tool.with_blocks(PAGE, run)
    assert "as it was" in quick and ran == ["dplc quick"]
    assert "<!-- printed by: dplc quick -->\n| new of dplc quick |\n<!-- end -->" in quick
    every = tool.with_blocks(PAGE, run, True)
    assert "```\n| new of dplc slow |\n```\n\nRun on 20" in every and "as it was" not in every
    again = tool.with_blocks(every, run, True)
    assert again == every


def test_figures_of_sentences_come_from_their_command(tool: Any) -> None:
    page = "It takes <!-- figure: time -->1<!-- end --> us, <!-- figure: share -->2 of 3<!-- end --> of all."
    filled = tool.with_blocks(page, lambda command: "time 7\nshare 4 of 5\n")
    assert filled == page.replace("1<", "7<").replace("2 of 3", "4 of 5")
    assert tool.with_blocks("no figure", pytest.fail) == "no figure"
    with pytest.raises(ValueError, match="no figure `share`"):
        tool.with_blocks(page, lambda command: "time 7\n")


@pytest.mark.parametrize(("text", "found"), [
    ("It takes 7 us.", ["7 us"]), ("It is 1.2 times as fast.", ["1.2 times"]), ("a share of 0.7", ["0.7"]), ("8 % more", ["8 %"]),
    ("<!-- figure: x -->7<!-- end --> us and 84 shapes", []), ("`0.7` and Python 3.11", []), ("```sh\n7 us\n```\n", []),
    ("<!-- printed by: dplc x -->\n7 us\n<!-- end -->", []),
])  # fmt: skip
def test_measurements_outside_of_marks_are_found(tool: Any, text: str, found: list[str]) -> None:
    assert tool.unprinted(text) == found


def test_every_measurement_of_our_pages_has_its_command(tool: Any) -> None:
    settings = {
        "measure_elsewhere.md": ["95 %", "1 %", "40 seconds"],
        "first_rule.md": ["30 %"],
    }  # test_docs checks the last
    pages = [ROOT / "README.md", *(path for path in (ROOT / "docs").rglob("*.md") if "generated" not in path.parts)]
    assert {path.name: found for path in pages if (found := tool.unprinted(path.read_text()))} == settings


def test_only_our_own_commands_run(tool: Any) -> None:
    assert tool.words_of("python a.py --b 'c d'") == [sys.executable, "a.py", "--b", "c d"]
    assert tool.words_of("dplc doctor") == [sys.executable, "-m", "dplc", "doctor"]
    with pytest.raises(ValueError, match="commands begin with"):
        tool.words_of("rm -r x")


def test_no_table_of_our_pages_is_stale(tool: Any, tmp_path: Path) -> None:
    for path in tool.pages():
        before = path.read_text()
        after = tool.with_blocks(before, tool.run)
        assert list(tool.differences(path, before, after)) == [], "run `make pages`"


def test_a_stale_table_is_found(tool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- printed by: dplc --version -->\nold\n<!-- end -->\n")
    monkeypatch.setattr(sys, "argv", ["pages.py", "--check", str(page)])
    assert tool.main() == 1 and "-old" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["pages.py", str(page)])
    assert tool.main() == 0
    monkeypatch.setattr(sys, "argv", ["pages.py", "--check", str(page)])
    assert tool.main() == 0


def test_commands_of_pages_are_there(tool: Any) -> None:
    """A long run is not repeated by a test; that its program and options exist is."""
    commands = {c for path in tool.pages() for _, c, _ in tool.BLOCK.findall(path.read_text())}
    commands |= set(tool.whole(tool.pages()))
    assert len(commands) >= 8
    for command in commands:
        words = command.split()
        if words[0] == "python":
            name = words[2].removeprefix("dplc.").replace(".", "/") + ".py" if words[1] == "-m" else words[1]
            text = (ROOT / name).read_text()
            assert [word for word in words if word.startswith("--") and f'"{word}"' not in text] == [], command
