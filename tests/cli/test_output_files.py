"""Files that commands write: never in the place of somebody's own, never half."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pytest

from dplc.engine.cli import output as made
from dplc.engine.cli.output import write_file, writing
from dplc.ir.diagnostic import DplcError

OURS = re.compile(rb"by dplc")


def test_file_of_the_same_make_is_replaced_through_links(tmp_path: Path) -> None:
    """The folder is created with the first one."""
    path, link = tmp_path / "new" / "page", tmp_path / "link"
    write_file(path, "by dplc 1", OURS)
    path.chmod(0o640)
    link.symlink_to(path)
    write_file(link, "by dplc 2", OURS)
    assert link.is_symlink() and path.read_text() == "by dplc 2" and path.stat().st_mode & 0o777 == 0o640
    assert [*path.parent.iterdir()] == [path]
    write_file(Path("/dev/null"), "anything", OURS)


def test_what_cannot_be_replaced_stays(tmp_path: Path) -> None:
    path = tmp_path / "thesis.html"
    path.write_text("<html>years</html>")
    for written, said in (
        (path, r"thesis.html is there, and dplc did not write it: it is not overwritten"),
        (path / "inside", "cannot write"),
        (tmp_path, "cannot write"),
    ):
        with pytest.raises(DplcError, match=said):
            write_file(written, "<html>", OURS)
    assert path.read_text() == "<html>years</html>"


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_nothing_of_a_half_remains(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "page"
    write_file(path, "by dplc 1", OURS)
    with pytest.raises((DplcError, KeyboardInterrupt)), writing(path, OURS) as file:
        file.write(b"half")
        raise error
    assert path.read_text() == "by dplc 1" and [*tmp_path.iterdir()] == [path]


def test_makes_know_what_dplc_writes() -> None:
    arrays = io.BytesIO()
    np.savez(arrays, out0=np.zeros(3))
    assert made.ARRAYS.search(arrays.getvalue()) and not made.ARRAYS.search(b"PK\x03\x04" + b"x" * 60)
    assert not made.EXPORT.search(b'{"a": 1}')
    for make, text in (
        (made.EXPORT, b'{"dplc_schedules":1}\n'),
        (made.DEVICE, b"# Measured by `dplc calibrate` on X: "),
        (made.COUNTEREXAMPLE, b"## level: tile\n# rule split: wrong\n# from its pattern\n"),
        (made.TABLE, b"# s\n\nMade by `dplc bench x` on 2026 (m). Do not edit: run it again.\n"),
        (made.PAGE, (Path(made.__file__).parents[1] / "view" / "page" / "page.html").read_bytes()),
    ):
        assert make.search(text)
