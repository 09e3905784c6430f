"""Damaged artefacts say what is wrong, whether the digests are as they were or somebody made them fit."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dplc.engine.models import artefact
from dplc.engine.models.plan_file import MANIFEST, seal
from dplc.ir.diagnostic import DplcError


def _edit(change: Callable[[dict[str, Any]], Any], where: str = "plan.json") -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        plan = json.loads((folder / where).read_text())
        change(plan)
        (folder / where).write_text(json.dumps(plan))

    return damage


_FILE = {"size": 0, "sha256": ""}


def _weight(plan: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(iter(plan["weights"].values()))
    return found


def _an_unused_temporary(plan: dict[str, Any]) -> None:
    plan["temporaries"].append({**plan["temporaries"][0], "name": "unused"})


def _text_of(folder: Path) -> Path:
    return sorted((folder / "cuda").iterdir())[0]


def _bomb(path: Path) -> None:
    path.write_text('{"format": 3, "config": ' + "[" * 100_000 + "]" * 100_000 + "}")


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _link(path: Path) -> None:
    path.rename(path.with_suffix(".moved"))
    path.symlink_to(path.with_suffix(".moved"))


def _size(plan: dict[str, Any], name: str = "s") -> dict[str, Any]:
    return next(size for size in plan["sizes"] if size["name"] == name)


PASSES = "kernel x(a: f32[1]) -> b: f32[1]:\n    pass\n"
DAMAGES: dict[str, list[tuple[Callable[[Path], Any], str]]] = {
    "text": [
        (_edit(lambda p: p["examples"].clear()), "(?s)damaged.*`x` is not there"),
        (_edit(lambda p: p["examples"][0].update(low=3.0, high=2.0)), "(?s)damaged.*its ends are not a range"),
        (_edit(lambda p: p["examples"][0].update(shape=["s", 8])), "(?s)damaged.*has other elements"),
        (_edit(lambda p: p["examples"][0].update(high=1e30)), "(?s)damaged.*its ends are not a range"),
        (_edit(lambda p: p["examples"].append(p["examples"][0])), "(?s)damaged.*is there twice"),
        (_edit(lambda p: p["examples"][0].update(shape=["t", 16])), "(?s)damaged.*`t` is not an extent"),
        (_edit(lambda p: p["examples"][0].update(shape=["s*16"])), "(?s)damaged.*no input tells `s`"),
    ],
    "model": [
        (lambda at: shutil.rmtree(at), "is not there"),
        (lambda at: (at / MANIFEST).unlink(), "is not an artefact"),
        (lambda at: (at / "plan.json").unlink(), "does not list plan.json"),
        (lambda at: (at / "plan.json").write_text("{"), "does not fit its schema"),
        (_edit(lambda p: p.update(format=99), MANIFEST), "is of format 99"),
        (_edit(lambda p: p.pop("launches")), "does not fit its schema"),
        (_edit(lambda p: p["launches"][0].update(kernel="gone")), "contradicts itself"),
        (_edit(lambda p: p["launches"][0]["buffers"].reverse()), "contradicts itself"),
        (_edit(lambda p: p["kernels"].update({"../x": ""})), "kernels"),
        (_edit(lambda p: p["kernels"].update(x="")), "`x` is not in ir/kernel.ir"),
        (_edit(lambda p: _weight(p).update(dtype="zz")), "weights.*dtype"),
        (_edit(lambda p: _weight(p).update(shape=[3])), "`weights`: f32"),
        (_edit(lambda p: p["results"][0].update(shape=[3])), "`results`: f32"),
        (_edit(lambda p: p["results"].clear()), "`results` has 0"),
        (_edit(lambda p: p.update(arena_bytes=16)), "does not fit its schema"),
        (_edit(lambda p: p["temporaries"].pop()), "contradicts itself"),
        (_edit(_an_unused_temporary), "contradicts itself"),
        (_edit(lambda p: p.update(dtype="f8")), "dtype"),
        (_edit(lambda p: p.update(arch="sm_1")), "sm_1"),
        (_edit(lambda p: p.update(batch=3)), "tokens"),
        (_edit(lambda p: p["config"].update(vocab_size="many")), "vocab_size is 'many'"),
        (_edit(lambda p: p["config"].update(vocab_size=0)), "vocab_size is 0"),
        (_edit(lambda p: p["files"].update({"../x": _FILE}), MANIFEST), "lists `../x`"),
        (lambda at: _bomb(at / "plan.json"), "does not fit its schema"),
        (lambda at: _bomb(at / MANIFEST), "does not fit its schema"),
        (lambda at: _text_of(at).write_bytes(b"\xff\xfe"), "is not UTF-8: invalid start byte at byte 0"),
        (lambda at: _pipe(_text_of(at)), "is not a plain file"),
        (lambda at: _folder(_text_of(at)), "is not a plain file"),
        (lambda at: _pipe(at / "plan.json"), "does not list plan.json"),
        (lambda at: _link(at / "plan.json"), "does not list plan.json"),
        (lambda at: (at / "ir" / "kernel.ir").write_text(PASSES), "is not one Launch"),
        (lambda at: (at / "ir" / "kernel.ir").write_text("("), "unexpected `\\("),
        (lambda at: (at / "figures.json").unlink(), "the artefact is damaged"),
        (lambda at: next((at / "cuda").iterdir()).unlink(), "the artefact is damaged"),
        (lambda at: (at / "constants.safetensors").write_bytes(b""), "the artefact is damaged"),
    ],
    "sized": [
        (_edit(lambda p: _size(p).update(high=65)), "`s` has another range in kernel"),
        (_edit(lambda p: _size(p).update(low=0)), "sizes.*low"),
        (_edit(lambda p: _size(p).update(low=90)), "damaged.*goes from|damaged.*`s`"),
        (_edit(lambda p: p["sizes"].pop()), "`s` is not an extent made of b"),
        (_edit(lambda p: p["sizes"].append(_size(p))), "a name is there twice"),
        (_edit(lambda p: p["sizes"].extend([_size(p)] * 9)), "sizes"),
        (_edit(lambda p: p.update(length="t")), "`t` is not an extent made of b, s"),
        (_edit(lambda p: p.update(length="b")), "tokens"),
        (_edit(lambda p: p.update(length="__import__('os')")), "does not fit its schema"),
        (_edit(lambda p: p["inputs"][0].update(shape=["s*2", "b"])), "contradicts|damaged"),
        (_edit(lambda p: p["inputs"][0].update(shape=["b", "s**9"])), r"`s\*\*9` is not an extent"),
        (_edit(lambda p: p["inputs"][0].update(shape=["b", "s // (s - s)"])), "is not an extent"),
        (_edit(lambda p: p["inputs"][0].update(shape=["b", "s(1)"])), "is not an extent"),
        (_edit(lambda p: p["results"][0].update(shape=["b", 32, 50])), "`results`: f32"),
        (_edit(lambda p: p["temporaries"][0].update(shape=["s*s*s"])), "contradicts itself"),
        (_edit(lambda p: p["constants"][0].update(shape=["s"])), "depends on a size|contradicts itself"),
        (_edit(lambda p: p.update(aliases={"out": "x"})), "of a plan with sizes there are none|contradicts itself"),
        (_edit(lambda p: p["rows"].pop(0)), "row 0: "),
        (_edit(lambda p: p["rows"].append(p["rows"][0])), r"does not list rows/3/plan\.json"),
        (_edit(lambda p: p["rows"][0][0].update(high=2)), "row 0: `s` is a number in its plan"),
        (_edit(lambda p: p["rows"][0][0].update(low=2, high=2)), "row 0: "),
        (_edit(lambda p: p["rows"][2][0].update(high=65)), "row 2: `s` is 4..65, which is not a part of its range"),
        (_edit(lambda p: p["rows"][2][0].update(multiple=2)), "row 2: `s` is 4..64 in its plan"),
        (_edit(lambda p: p["rows"][2][0].update(low=61, high=63)), r"no number of 61\.\.63 is a multiple of 4"),
        (_edit(lambda p: p["rows"][1].pop()), "row 1: `b` is a number in its plan"),
        (_edit(lambda p: p["rows"][1][1].update(name="t")), "row 1: .*that the whole has not"),
        (_edit(lambda p: p["rows"][1].clear()), "rows"),
        (_edit(lambda p: p.update(arch="sm_90a"), "rows/0/plan.json"), "row 0: it is of another model"),
        (_edit(lambda p: _weight(p).update(names=["x"]), "rows/0/plan.json"), "row 0: `weights`"),
        (_edit(lambda p: p["inputs"][0].update(name="other"), "rows/2/plan.json"), "row 2|contradicts"),
        (lambda at: (at / "rows" / "1" / "plan.json").unlink(), r"does not list rows/1/plan\.json"),
        (lambda at: shutil.rmtree(at / "rows" / "1"), "does not list rows/1"),
    ],
}


@pytest.mark.parametrize(("kind", "damage", "said"), [(kind, *row) for kind, rows in DAMAGES.items() for row in rows])
@pytest.mark.sampled(22)
@pytest.mark.usefixtures("parsed_once")
def test_damage_is_told(
    kind: str, damage: Callable[[Path], Any], said: str, artefacts: dict[str, Path], tmp_path: Path
) -> None:
    made = tmp_path / "made"
    shutil.copytree(artefacts[kind], made)
    whole = (made / MANIFEST).read_bytes()
    damage(made)
    if (made / MANIFEST).is_file() and (made / MANIFEST).read_bytes() == whole:
        with pytest.raises(DplcError, match=r"the artefact is damaged|is not what this dplc"):
            artefact.load(made)
        seal(made, "somebody")
    with pytest.raises(DplcError, match=said) as told:
        artefact.load(made)
    assert told.value.exit_code == 1
