"""Where an artefact goes: nothing that somebody else wrote is ever lost, whatever ends the process."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dplc.engine.models import plan_file as module
from dplc.engine.models.plan_file import MANIFEST, not_ours, replacing, seal
from dplc.ir.diagnostic import DplcError


def write(folder: Path, text: str) -> None:
    """A small folder as artefacts are."""
    with replacing(folder) as workshop:
        (workshop / "cuda").mkdir()
        (workshop / "cuda" / "one.cu").write_text(text)
        (workshop / "plan.json").write_text(text)
        seal(workshop, "0")


def files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_folder_with_a_plan_is_no_artefact(tmp_path: Path) -> None:
    (tmp_path / "home" / ".git").mkdir(parents=True)
    (tmp_path / "home" / "plan.json").write_text('{"my": "project plan"}')
    before = files(tmp_path / "home")
    with pytest.raises(DplcError, match=f"holds .git/ and no {MANIFEST} .* it is not overwritten"):
        write(tmp_path / "home", "new")
    assert files(tmp_path / "home") == before and (tmp_path / "home" / ".git").is_dir()
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


@pytest.mark.parametrize("name", ["thesis.txt", "cuda/thesis.txt", "notes/", "notes/thesis.txt", "link"])
def test_a_foreign_file_in_an_artefact_stays(tmp_path: Path, name: str) -> None:
    write(tmp_path / "made", "old")
    path = tmp_path / "made" / name
    path.parent.mkdir(exist_ok=True)
    if name.endswith("/"):
        path.mkdir()
    elif name == "link":
        path.symlink_to(tmp_path / "elsewhere")
    else:
        path.write_text("years")
    with pytest.raises(
        DplcError, match=f"holds {name.split('/th')[0]}.* which dplc did not write: it is not overwritten"
    ):
        write(tmp_path / "made", "new")
    assert os.path.lexists(path) and (tmp_path / "made" / "plan.json").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_an_edited_file_stays(tmp_path: Path) -> None:
    write(tmp_path / "made", "old")
    (tmp_path / "made" / "cuda" / "one.cu").write_text("mine")
    with pytest.raises(DplcError, match=r"holds cuda/one.cu, which was changed since dplc wrote it"):
        write(tmp_path / "made", "new")
    assert (tmp_path / "made" / "cuda" / "one.cu").read_text() == "mine"


def test_files_and_places_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(DplcError, match="is not a folder: it is not overwritten"):
        write(tmp_path / "file", "new")
    with pytest.raises(DplcError, match="cannot write"):
        write(tmp_path / "file" / "inside", "new")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("exchange", [True, False])
def test_an_artefact_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: bool) -> None:
    if not exchange:
        monkeypatch.setattr(module, "_exchange", lambda one, other: False)
    (tmp_path / "made").mkdir()  # an empty folder is nobody's
    for text in ("old", "new"):
        write(tmp_path / "made", text)
        assert files(tmp_path / "made")["plan.json"] == text and not_ours(tmp_path / "made") is None
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_a_link_stays_one(tmp_path: Path) -> None:
    write(tmp_path / "there", "old")
    (tmp_path / "link").symlink_to(tmp_path / "there")
    write(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "there" / "plan.json").read_text() == "new"


@pytest.mark.parametrize("exchange", [True, False])
def test_what_is_put_there_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: bool) -> None:
    """Between the last look and the removal, as a test can do it."""
    write(tmp_path / "made", "old")
    real = module._exchange

    def late(one: Path, other: Path) -> bool:
        (tmp_path / "made" / "thesis.txt").write_text("years")
        return exchange and real(one, other)

    monkeypatch.setattr(module, "_exchange", late)
    write(tmp_path / "made", "new")
    assert (tmp_path / "made" / "plan.json").read_text() == "new"
    assert [path.read_text() for path in tmp_path.rglob("thesis.txt")] == ["years"]


def killed(folder: Path, step: int, exchange: bool) -> None:
    """Write in a process that is killed at a step."""
    steps = iter(range(step))

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def act(*given: Any, **named: Any) -> Any:
            if next(steps, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*given, **named)

        return act

    if not exchange:
        setattr(module, "_exchange", lambda one, other: False)  # noqa: B010
    for place, names in ((module, ("_check", "_put", "remove", "_exchange")), (Path, ("rename", "unlink", "rmdir"))):
        for name in names:
            setattr(place, name, counted(getattr(place, name)))
    write(folder, "new")


@pytest.mark.parametrize("exchange", [True, False])
@pytest.mark.parametrize("step", [2, 3, 4, 5, 6, 8])
@pytest.mark.sampled(3)
def test_a_kill_loses_nothing(tmp_path: Path, step: int, exchange: bool) -> None:
    """At every step of the exchange: the old one or the new one is there, whole."""
    write(tmp_path / "made", "old")
    child = os.fork()
    if child == 0:
        try:
            killed(tmp_path / "made", step, exchange)
        finally:
            os._exit(0)  # it was not killed
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    texts = {files(path.parent)["plan.json"] for path in tmp_path.rglob("plan.json") if not_ours(path.parent) is None}
    assert texts & {"old", "new"}
    if exchange:
        assert (tmp_path / "made" / "plan.json").read_text() in ("old", "new") and not_ours(tmp_path / "made") is None


def test_a_manifest_may_not_name_what_is_elsewhere(tmp_path: Path) -> None:
    write(tmp_path / "made", "old")
    (tmp_path / "thesis.txt").write_text("years")
    path = tmp_path / "made" / MANIFEST
    path.write_text(path.read_text().replace("cuda/one.cu", "../thesis.txt"))
    with pytest.raises(DplcError, match="it is not overwritten"):
        write(tmp_path / "made", "new")
    assert (tmp_path / "thesis.txt").read_text() == "years"
