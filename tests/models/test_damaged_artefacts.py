"""Damaged artefacts say what is wrong, whether the digests are as they were or somebody made them fit; nothing in them runs."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import dplc
from dplc.engine.models import artefact
from dplc.engine.models.plan_file import MANIFEST, seal
from dplc.ir.diagnostic import DplcError, InternalError

pytestmark = pytest.mark.usefixtures("parsed_once")
BOMB = b'{"format": 3, "config": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
DEEP = b"kernel x(a: f32[" + b"(" * 9000 + b"1" + b")" * 9000 + b"]) -> b: f32[1]:\n    pass\n"
PASSES = b"kernel x(a: f32[1]) -> b: f32[1]:\n    pass\n"
CODE = 'rules: a\nextern "C" int system(const char*);'
# By the kind of the artefact and the file: a value in it, what it becomes (`..` for nothing), and what is said. Without a
# value it is the whole file.
DAMAGES: dict[tuple[str, str], list[tuple[str, Any, str]]] = {
    ("text", "plan.json"): [
        ("examples", [], "`x` is not there"),
        ("examples 0 low", 1e9, "its ends are not a range"),
        ("examples 0 shape", ["s", 8], "has other elements"),
        ("examples 0 high", 1e30, "its ends are not a range"),
        ("examples", lambda inputs: inputs * 2, "is there twice"),
        ("examples 0 shape", ["t", 16], "`t` is not an extent"),
        ("examples 0 shape", ["s*16"], "no input tells `s`"),
    ],
    ("model", MANIFEST): [
        ("", None, "is not an artefact"),
        ("", BOMB, "does not fit its schema"),
        ("format", 99, "is of format 99"),
        ("files ../x", {"size": 0, "sha256": ""}, "lists `../x`"),
    ],
    ("model", "plan.json"): [
        ("", None, "does not list plan.json"),
        ("", b"{", "does not fit its schema"),
        ("", BOMB, "does not fit its schema"),
        ("", os.mkfifo, "does not list plan.json"),
        ("", lambda path: path.symlink_to(f"{path}.moved"), "does not list plan.json"),
        ("launches", ..., "does not fit its schema"),
        ("launches 0 kernel", "gone", "contradicts itself"),
        ("launches 0 buffers", lambda names: names[::-1], "contradicts itself"),
        ("kernels ../x", "", "at `key` in `$.kernels`"),
        ("kernels x", "", "`x` is not in ir/kernel.ir"),
        ("kernels *", CODE, "`comment` of kernel"),
        ("weights * dtype", "zz", "at `$.weights[...].dtype`"),
        ("weights * shape", [3], "`weights`: f32"),
        ("results 0 shape", [3], "`results`: f32"),
        ("results", [], "`results` has 0"),
        ("arena_bytes", 16, "does not fit its schema"),
        ("temporaries", lambda buffers: buffers[:-1], "contradicts itself"),
        ("temporaries", lambda buffers: [*buffers, {**buffers[0], "name": "unused"}], "contradicts itself"),
        ("dtype", "f8", "at `$.dtype`"),
        ("arch", "sm_1", "`arch`: `sm_1` is not an architecture"),
        ("batch", 3, "`inputs`: [7] is not 3 x 7 tokens"),
        ("config vocab_size", "many", "vocab_size is 'many'"),
        ("config vocab_size", 0, "vocab_size is 0"),
    ],
    ("model", "cuda/*"): [
        ("", None, "No such file or directory"),
        ("", b"\xff\xfe", "is not UTF-8: invalid start byte at byte 0"),
        ("", os.mkfifo, "is not a plain file"),
        ("", Path.mkdir, "is not a plain file"),
    ],
    ("model", "ir/kernel.ir"): [
        ("", PASSES, "is not one Launch"),
        ("", b"(", "unexpected `(`"),
        ("", DEEP, "nest too deep"),
    ],
    ("model", "ir/torch.ir"): [("", DEEP, "nest too deep")],
    ("model", "figures.json"): [("", None, "does not list figures.json")],
    ("model", "constants.safetensors"): [("", b"", "/constants.safetensors")],
    ("sized", "plan.json"): [
        ("sizes 1 high", 65, "`s` has another range in kernel"),
        ("sizes 1 low", 0, "at `$.sizes[1].low`"),
        ("sizes 1 low", 90, "`s` goes from 1 or more"),
        ("sizes", lambda sizes: sizes[:1], "`s` is not an extent made of b"),
        ("sizes", lambda sizes: [*sizes, sizes[1]], "a name is there twice"),
        ("sizes", lambda sizes: sizes * 5, "at `$.sizes`"),
        ("length", "t", "`t` is not an extent made of b, s"),
        ("length", "b", "[2, 32] is not 2 x 2 tokens"),
        ("length", "__import__('os')", "does not fit its schema"),
        ("inputs 0 shape", ["s*2", "b"], "contradicts itself"),
        ("inputs 0 shape", ["b", "s**9"], "`s**9` is not an extent"),
        ("inputs 0 shape", ["b", "s // (s - s)"], "`s // (s - s)` is not an extent"),
        ("inputs 0 shape", ["b", "s(1)"], "`s(1)` is not an extent"),
        ("results 0 shape", ["b", 32, 50], "`results`: f32"),
        ("temporaries 0 shape", ["s*s*s"], "contradicts itself"),
        ("constants 0 shape", ["s"], "contradicts itself"),
        ("aliases", {"out": "x"}, "an output and an input are needed"),
        ("rows", lambda rows: rows[1:], "row 0: `s` is a number in its plan"),
        ("rows", lambda rows: [*rows, rows[0]], "does not list rows/3/plan.json"),
        ("rows 0 0 high", 2, "row 0: `s` is a number in its plan"),
        ("rows 0 0", {"name": "s", "low": 2, "high": 2}, "row 0: `inputs` are others"),
        ("rows 2 0 high", 65, "row 2: `s` is 4..65, which is not a part of its range"),
        ("rows 2 0 multiple", 2, "row 2: `s` is 4..64 in its plan"),
        ("rows 2 0", {"name": "s", "low": 61, "high": 63, "multiple": 4}, "no number of 61..63 is a multiple of 4"),
        ("rows 1", lambda row: row[:1], "row 1: `b` is a number in its plan"),
        ("rows 1 1 name", "t", "row 1: rows within rows, or sizes that the whole has not"),
        ("rows 1", [], "at `$.rows[1]`"),
    ],
    ("sized", "rows/0/plan.json"): [
        ("arch", "sm_90a", "row 0: it is of another model"),
        ("weights * names", ["x"], "row 0: `weights`"),
    ],
    ("sized", "rows/2/plan.json"): [("inputs 0 name", "other", "contradicts itself")],
    ("sized", "rows/1/plan.json"): [("", None, "does not list rows/1/plan.json")],
    ("sized", "rows/1"): [("", None, "does not list rows/1")],
}


def damage(path: Path, place: str, value: Any) -> None:
    if not place:
        path.rename(f"{path}.moved")
        if callable(value):
            value(path)
        elif value is not None:
            path.write_bytes(value)
        return
    plan = found = json.loads(path.read_text())
    *outer, last = (int(key) if key.isdigit() else key for key in place.split())
    for key in outer:
        found = found[next(iter(found)) if key == "*" else key]
    last = next(iter(found)) if last == "*" else last
    if value is ...:
        del found[last]
    else:
        found[last] = value(found[last]) if callable(value) else value
    path.write_text(json.dumps(plan))


@pytest.mark.parametrize(
    "row",
    [(*where, *row) for where, rows in DAMAGES.items() for row in rows],
    ids=lambda row: " ".join((*row[:3], row[-1])),
)
def test_damage_is_told(row: tuple[str, str, str, Any, str], artefacts: dict[str, Path], tmp_path: Path) -> None:
    kind, file, place, value, said = row
    made = Path(shutil.copytree(artefacts[kind], tmp_path / "made"))
    damage(sorted(made.glob(file))[0], place, value)
    if file != MANIFEST:
        with pytest.raises(DplcError, match=r"the artefact is damaged|is not what this dplc"):
            artefact.load(made)
        seal(made, "somebody")
    with pytest.raises(DplcError, match=re.escape(said)) as caught:
        artefact.load(made).torch_graph({})
    assert caught.value.exit_code == 1


EVIL = """
extern "C" int system(const char*);
__attribute__((constructor)) static void trip() {{ system("touch {canary}"); }}
"""


def test_cuda_of_somebody_else_is_not_run(artefacts: dict[str, Path], tmp_path: Path) -> None:
    made, canary = Path(shutil.copytree(artefacts["model"], tmp_path / "made")), tmp_path / "canary"
    path = next((made / "cuda").iterdir())
    path.write_text(path.read_text() + EVIL.format(canary=canary))
    for _ in range(2):
        with pytest.raises(DplcError, match=r"is not what this dplc .* prints") as caught:
            dplc.load_model(made, device="emulator")
        assert "--trust-edited-cuda" in (caught.value.hint or "")
        seal(made, "somebody")
    assert not canary.exists()
    trusted = artefact.load(made, trust_edited_cuda=True)
    assert any("system" in kernel.text for kernel in trusted.program.kernels)


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (ValueError("no such register"), "no such register"),
        (InternalError("too wide"), "too wide"),
        (KeyError(), "KeyError"),
    ],
)
def test_what_the_printer_cannot_take_is_told(
    artefacts: dict[str, Path], monkeypatch: pytest.MonkeyPatch, raised: Exception, said: str
) -> None:
    """A kernel of somebody else may pass every check and still be none that anybody would make."""
    monkeypatch.setattr(artefact, "print_cuda", Mock(side_effect=raised))
    with pytest.raises(DplcError, match=rf"the artefact is damaged: .*kernel `\w+`: {said}$") as caught:
        artefact.load(artefacts["model"])
    assert caught.value.exit_code == 1
