"""Where an artefact goes: nothing that somebody else wrote is ever lost, whatever ends the process."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dplc.engine.models import plan_file
from dplc.engine.models.plan_file import MANIFEST, not_ours, replacing, seal
from dplc.ir.diagnostic import DplcError


def write(folder: Path, text: str) -> None:
    """A small folder as artefacts are."""
    with replacing(folder) as workshop:
        (workshop / "cuda").mkdir()
        for name in ("cuda/one.cu", "plan.json"):
            (workshop / name).write_text(text)
        seal(workshop, "0")


def contents(folder: Path) -> dict[str, str | None]:
    """Return everything in a folder by its path there, with its text."""
    found = sorted(folder.rglob("*"))
    return {str(path.relative_to(folder)): path.read_text() if path.is_file() else None for path in found}


@pytest.fixture(params=[True, False])
def exchange(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the system can exchange the names of two folders in one step."""
    if not request.param:
        monkeypatch.setattr(plan_file, "_exchange", lambda one, other: False)
    return bool(request.param)


NO_MANIFEST = f"holds cuda/ and no {MANIFEST} that says dplc wrote it"


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("thesis.txt", "years", "holds thesis.txt, which dplc did not write"),
        ("cuda/thesis.txt", "years", "holds cuda/thesis.txt, which dplc did not write"),
        ("notes", Path.mkdir, "holds notes/, which dplc did not write"),
        ("notes/thesis.txt", "years", "holds notes/, which dplc did not write"),
        ("link", lambda path: path.symlink_to("elsewhere"), "holds link, which dplc did not write"),
        ("cuda/one.cu", "years", "holds cuda/one.cu, which was changed since dplc wrote it"),
        (MANIFEST, Path.unlink, NO_MANIFEST),
        (MANIFEST, lambda path: path.write_text(path.read_text().replace("cuda/one.cu", "../mine.txt")), NO_MANIFEST),
    ],
)
def test_a_folder_with_more_than_dplc_wrote_stays(tmp_path: Path, name: str, change: Any, said: str) -> None:
    path = tmp_path / "made" / name
    (tmp_path / "mine.txt").write_text("old")
    write(tmp_path / "made", "old")
    path.parent.mkdir(exist_ok=True)
    if callable(change):
        change(path)
    else:
        path.write_text(change)
    before = contents(tmp_path)
    with pytest.raises(DplcError, match=f"{said}: it is not overwritten"):
        write(tmp_path / "made", "new")
    assert contents(tmp_path) == before


def test_a_file_of_this_name_stays(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for place, said in {"file": "is not a folder: it is not overwritten", "file/inside": "cannot write"}.items():
        with pytest.raises(DplcError, match=said):
            write(tmp_path / place, "new")
    assert contents(tmp_path) == {"file": "mine"}


def test_an_interrupt_leaves_what_there_was(tmp_path: Path) -> None:
    for _ in range(2):
        before = contents(tmp_path)
        with pytest.raises(KeyboardInterrupt), replacing(tmp_path / "made") as workshop:
            (workshop / "plan.json").write_text("new")
            raise KeyboardInterrupt
        assert contents(tmp_path) == before
        write(tmp_path / "made", "old")


@pytest.mark.usefixtures("exchange")
def test_an_artefact_is_replaced_and_a_link_to_it_stays(tmp_path: Path) -> None:
    made, link = tmp_path / "made", tmp_path / "link"
    made.mkdir()  # an empty folder is nobody's
    link.symlink_to(made)
    for folder, text in ((made, "old"), (made, "newer"), (link, "new")):
        write(folder, text)
        assert (made / "plan.json").read_text() == text and not_ours(made) is None
    assert link.is_symlink() and sorted(path.name for path in tmp_path.iterdir()) == ["link", "made"]


@pytest.mark.usefixtures("exchange")
def test_what_is_put_there_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the last look and the removal, as a test can do it."""
    write(tmp_path / "made", "old")
    exchange = plan_file._exchange

    def late(one: Path, other: Path) -> bool:
        (tmp_path / "made" / "thesis.txt").write_text("years")
        return exchange(one, other)

    monkeypatch.setattr(plan_file, "_exchange", late)
    write(tmp_path / "made", "new")
    assert (tmp_path / "made" / "plan.json").read_text() == "new"
    assert [path.read_text() for path in tmp_path.rglob("thesis.txt")] == ["years"]


def killed(folder: Path, step: int) -> None:
    """Write in a process that is killed at a step."""
    steps = iter(range(step))

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def act(*given: Any, **named: Any) -> Any:
            if next(steps, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*given, **named)

        return act

    for place, names in ((plan_file, ("_check", "_put", "remove", "_exchange")), (Path, ("rename", "unlink", "rmdir"))):
        for name in names:
            setattr(place, name, counted(getattr(place, name)))
    write(folder, "new")


@pytest.mark.parametrize("step", [2, 3, 4, 5, 6, 8])
@pytest.mark.sampled(3)
def test_a_kill_loses_nothing(tmp_path: Path, step: int, exchange: bool) -> None:
    """At every step of the exchange: the old one or the new one is there, whole."""
    write(tmp_path / "made", "old")
    child = os.fork()
    if child == 0:
        try:
            killed(tmp_path / "made", step)
        finally:
            os._exit(0)  # it was not killed
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    whole = {path.parent: path.read_text() for path in tmp_path.rglob("plan.json") if not_ours(path.parent) is None}
    assert {"old", "new"} & set(whole.values())
    assert not exchange or tmp_path / "made" in whole
