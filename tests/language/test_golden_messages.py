"""Every mistake of authors and users that we know, each with the message that it gets: `mistakes.md` is both."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import re
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import pytest
from small_configs import SMALL

from dplc.engine.cli.app import main
from dplc.engine.kernels.examples import run_examples
from dplc.engine.language.check import check, errors
from dplc.engine.language.pipeline import pipelines
from dplc.engine.language.rule import load
from dplc.engine.rewrite.statements.driver import Engine
from dplc.engine.workbench.document import Document
from dplc.ir.diagnostic import DplcError

PAGE = Path(__file__).with_name("mistakes.md")
BLOCK = re.compile(r"^```(\w+) ?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECONDS = re.compile(r" +\d+\.\d+(?=  \w+$)|\d+\.\d(?= s$)", re.MULTILINE)
GRAMMAR = {"LPAR", "RPAR", "LSQB", "RSQB", "EQUAL", "_COMMA", "COLON", "STRING", "COMPARE", "_NL", "_INDENT"}
FINDING = re.compile(r"^(?:(\S+:\d+:\d+): )?(?:error|warning): .*(?:\n .*)*", re.MULTILINE)


class Mistake(NamedTuple):
    """Files, and commands that are run beside them, or beside those of `prepared`.

    Without commands, the checks of `dplc rules test mine.rw`.
    """

    title: str
    files: tuple[tuple[str, str], ...]
    commands: tuple[str, ...]
    message: str


def mistakes() -> dict[str, Mistake]:
    """Return the mistakes of the page by their titles."""
    found = [_mistake(*section.split("\n", 1)) for section in PAGE.read_text().split("\n### ")[1:]]
    assert len({one.title for one in found}) == len(found)
    return {one.title: one for one in found}


def _mistake(title: str, text: str) -> Mistake:
    blocks = [found.groups() for found in BLOCK.finditer(text)]
    files = tuple((name, body) for kind, name, body in blocks if name)
    commands = [line for kind, _, body in blocks if kind == "sh" for line in body.splitlines()]
    return Mistake(title, files, tuple(commands), blocks[-1][2])


@functools.cache
def told(mistake: Mistake) -> str:
    """Return all that dplc says of a mistake."""
    if not mistake.files:
        with contextlib.chdir(prepared().name), patch("torch.cuda.is_available", lambda: False):
            before = sorted(Path().rglob("*"))
            said = "".join(map(_run, mistake.commands))
            assert sorted(Path().rglob("*")) == before  # no command with a mistake writes a file
        return said.replace(f"{PAGE.parents[2]}/", "")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for name, text in mistake.files:
            Path(name).write_text(text)
        said = "".join(map(_run, mistake.commands)) if mistake.commands else "\n".join(_checked()) + "\n"
    return SECONDS.sub("..", re.sub(r"[ \t]+$", "", said, flags=re.MULTILINE))


def _run(command: str) -> str:
    settings, _, arguments = command.partition("dplc ")
    out, machine = io.StringIO(), dict(setting.split("=") for setting in settings.split())
    printed = contextlib.redirect_stdout(out), contextlib.redirect_stderr(out)
    with pytest.raises(SystemExit) as stop, printed[0], printed[1], patch.dict(os.environ, machine):
        main(shlex.split(arguments))
    return f"$ {command}\n{out.getvalue()}exit code {stop.value.code or 0}\n"


BROKEN_RULE = "rule x on tensor\nmatch\n    y = addd(x, 0)\nrewrite\n    y = x\n"
BROKEN_DUMP = "## level: tile\nkernel k(x: f32[4]) -> y: f32[4]:\n    Tile(i:4=THREADS):\n        y[i] = x\n"


@functools.cache
def prepared() -> tempfile.TemporaryDirectory[str]:
    """Return a folder with programs, models, rules and an artefact."""
    made, config = tempfile.TemporaryDirectory(), {"model_type": "qwen2", **SMALL}
    dump = (PAGE.parents[2] / "examples" / "dumps" / "scaled.ir").read_text()
    for name, text in {
        "scaled.ir": dump, "scaled.txt": dump, "tiny.json": json.dumps(config), "bad.rw": BROKEN_RULE, "bad.ir": BROKEN_DUMP,
        "unknown.json": json.dumps(config | {"model_type": "qwen22"}), "less.rw": "# For a while.\nwithout tileify\n",
        "number.rw": "pipeline tile\n    pass 008_stage_inputs\n", "domain.rw": "pipeline tile\n    pass blockify_flat(T=9)\n",
        "tile.ir": BROKEN_DUMP.replace("THREADS", "THREAD").replace("= x", "= 1.0"), "empty.ir": "",
        "made.cu": '// grid\nextern "C" __global__\n',
    }.items():  # fmt: skip
        Path(made.name, name).write_text(text)
    Path(made.name, "empty").mkdir()
    _run(f"dplc compile {made.name}/tiny.json --layers 1 --seq-len 3 --no-cubins -o {made.name}/made")
    return made


def _checked() -> Iterator[str]:
    """Yield what is wrong with mine.rw, without missing examples."""
    try:
        rules = load(["mine.rw"], copies=True)
        found = [one for one in check(rules, {"mine.rw"}) if one.check != "examples_enough"]
        yield from (one.render() for one in found)
        pipelines(rules)
        if not errors(found):
            mine = [rule for rule in rules.rules.values() if rule.span.source.name == "mine.rw"]
            yield from (failure.render() for failure in run_examples(Engine(rules, check=True), mine)[1])
    except DplcError as error:
        yield error.render()


def test_golden_messages_of_all_mistakes() -> None:
    """DPLC_UPDATE_GOLDEN=1 writes the messages anew: read the diff."""
    page, written = PAGE.read_text(), PAGE.read_text()
    for one in mistakes().values():
        at = written.index(f"\n### {one.title}\n")
        written = written[:at] + written[at:].replace(f"```text\n{one.message}```", f"```text\n{told(one)}```", 1)
    if os.environ.get("DPLC_UPDATE_GOLDEN"):
        PAGE.write_text(written)
    else:
        assert written == page


@pytest.mark.parametrize("title", [title for title, one in mistakes().items() if not one.commands])
def test_message_says_where_and_what_to_do(title: str) -> None:
    findings = [*FINDING.finditer(told(mistakes()[title]))]
    assert findings
    for found in findings:
        assert found[1] and "^" in found[0], found[0]
        assert "\n  help: " in found[0], found[0]
        assert not GRAMMAR & {*re.findall(r"\w+", found[0])}


UNLIKE = {  # the editor keeps the rest of a rule that it cannot parse, and runs examples on demand
    "tabs among spaces", "a tab among spaces", "an example with another result", "an example that does not fire",
    "guards twice",
}  # fmt: skip
EDITED = [one for one in mistakes().values() if not one.commands and len(one.files) == 1 and one.title not in UNLIKE]


@pytest.mark.parametrize("title", [one.title for one in EDITED])
@pytest.mark.sampled(20)
def test_the_editor_gives_the_same_messages(title: str) -> None:
    mistake = mistakes()[title]
    said = "\n".join(error.render() for error in Document(Path("mine.rw")).problems(mistake.files[0][1]))
    assert all(found[0] in said for found in FINDING.finditer(mistake.message))
