"""Files that commands write: never in the place of somebody's own, never half."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dplc.engine.cli import output as made
from dplc.engine.cli.output import PAGE, write_file, writing
from dplc.ir.diagnostic import DplcError

OURS = re.compile(rb"by dplc")


def test_a_file_of_the_same_make_is_replaced(tmp_path: Path) -> None:
    """The folder is created with the first one."""
    path = tmp_path / "new" / "page"
    for text in ("by dplc 1", "by dplc 2"):
        write_file(path, text, OURS)
        assert path.read_text() == text
    assert [path.name for path in path.parent.iterdir()] == ["page"]


def test_a_file_of_somebody_else_stays(tmp_path: Path) -> None:
    path = tmp_path / "thesis.html"
    path.write_text("<html>years</html>")
    with pytest.raises(DplcError, match=r"thesis.html is there, and dplc did not write it: it is not overwritten"):
        write_file(path, "<html>", PAGE)
    assert path.read_text() == "<html>years</html>"


def test_nothing_of_a_half_remains(tmp_path: Path) -> None:
    path = tmp_path / "page"
    write_file(path, "by dplc 1", OURS)
    for error in (OSError(28, "No space left on device"), KeyboardInterrupt()):
        with pytest.raises((DplcError, KeyboardInterrupt)), writing(path, OURS) as file:
            file.write(b"half")
            raise error
    assert path.read_text() == "by dplc 1" and [path.name for path in tmp_path.iterdir()] == ["page"]


def test_links_modes_and_devices(tmp_path: Path) -> None:
    write_file(tmp_path / "there", "by dplc 1", OURS)
    (tmp_path / "there").chmod(0o640)
    (tmp_path / "link").symlink_to(tmp_path / "there")
    write_file(tmp_path / "link", "by dplc 2", OURS)
    assert (tmp_path / "link").is_symlink() and (tmp_path / "there").read_text() == "by dplc 2"
    assert (tmp_path / "there").stat().st_mode & 0o777 == 0o640
    write_file(Path("/dev/null"), "anything", OURS)
    with pytest.raises(DplcError, match="cannot write"):
        write_file(tmp_path / "there" / "inside", "anything", OURS)
    with pytest.raises(DplcError, match="cannot write"):
        write_file(tmp_path, "anything", OURS)


def test_makes_know_what_dplc_writes() -> None:
    import io

    import numpy as np

    arrays = io.BytesIO()
    np.savez(arrays, out0=np.zeros(3))
    assert made.ARRAYS.search(arrays.getvalue()) and not made.ARRAYS.search(b"PK\x03\x04" + b"x" * 60)
    assert made.EXPORT.search(b'{"dplc_schedules":1}\n') and not made.EXPORT.search(b'{"a": 1}')
    assert made.DEVICE.search(b"# Measured by `dplc calibrate` on X: ")
    assert made.COUNTEREXAMPLE.search(b"## level: tile\n# rule split: wrong\n# from its pattern\n")
    assert made.TABLE.search(b"# s\n\nMade by `dplc bench x` on 2026 (m). Do not edit: run it again.\n")
    page = Path(made.__file__).parents[1] / "view" / "page" / "page.html"
    assert made.PAGE.search(page.read_bytes())
