"""The pages for authors of rules: the tutorial is typed, the mistakes are made."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from dplc.engine.cli.app import main
from dplc.engine.workbench.document import Document

ROOT = Path(__file__).resolve().parents[2]
MISTAKES = re.findall(
    r"^## (.+?)\n\n```\n(.*?)^```\n\n```\n(.*?)^```", (ROOT / "examples/rules/MISTAKES.md").read_text(), re.M | re.S
)


def test_the_tutorial_is_true(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    times = []
    blocks = r"^```console\n(?P<typed>.*?)^```|^<!-- (?P<file>\S+) -->\n```\n(?P<text>.*?)^```"
    for block in re.finditer(blocks, (ROOT / "examples/rules/TUTORIAL.md").read_text(), re.M | re.S):
        if block["file"]:
            path = Path(block["file"])
            path.write_text(block["text"] + path.read_text()[path.read_text().index('example "as') :])
        for command in re.split(r"^\$ ", block["typed"] or "", flags=re.M)[1:]:
            line, *said = command.strip().splitlines()
            with pytest.raises(SystemExit) as stop:
                main(shlex.split(line)[1:])
            printed = capsys.readouterr()
            output = printed.err + printed.out
            assert int(stop.value.code or 0) == int("exit 1" in said), output
            for one in said:
                assert one == "exit 1" or one in output, f"$ {line}\n{output}"
            times += [float(text) for text in re.findall(r"([\d.]+) us predicted", output) if "bench" in line]
    before, after = times
    assert after < 0.7 * before


def test_there_are_fifty_mistakes() -> None:
    assert len(MISTAKES) == 50


@pytest.mark.parametrize(("title", "text", "said"), MISTAKES, ids=[title for title, _, _ in MISTAKES])
@pytest.mark.sampled(20)
def test_the_editor_says_of_a_mistake_what_the_page_says(title: str, text: str, said: str) -> None:
    found = [error.render() for error in Document(Path("mine.rw")).problems(text) if "no example" not in error.what]
    assert "\n".join(found) == said.rstrip("\n")
