"""Where rule files are, and what stands in them as text."""

from __future__ import annotations

from pathlib import Path

from ...ir.diagnostic import DplcError, Source, Span
from .further import FURTHER


def rule_paths(folder_or_file: Path) -> tuple[Path, ...]:
    """The `.rw` files of a folder (sorted, recursive) or the file itself, without the files of examples beside them.

    Raises DplcError if there is none.
    """
    if folder_or_file.is_dir():
        found = tuple(sorted(path for path in folder_or_file.rglob("*.rw") if not path.name.endswith(FURTHER)))
        if not found:
            raise DplcError(f"no .rw files in {folder_or_file}")
        return found
    if not folder_or_file.is_file():
        raise DplcError(f"no such rule file: {folder_or_file}")
    if folder_or_file.name.endswith(FURTHER):
        rules = folder_or_file.name.removesuffix(FURTHER) + ".rw"
        raise DplcError(f"{folder_or_file} holds examples only", hint=f"give `{rules}`: its examples are read with it")
    return (folder_or_file,)


def rule_source(path: Path, name: str = "") -> Source:
    """A rule file as a source: name is what messages call it, its path if none is given."""
    return Source(name or str(path), read_text(path))


def read_text(path: Path) -> str:
    """The text of a rule file. Raises DplcError, with a caret where it is no UTF-8."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DplcError(f"cannot read {path}: {error.strerror}") from None
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        source = Source(str(path), data.decode("utf-8", "replace"))
        ahead = data[: error.start].decode("utf-8")
        line, column = ahead.count("\n") + 1, len(ahead) - ahead.rfind("\n") - 1
        what = f"byte {data[error.start]:#04x} is no UTF-8"
        raise DplcError(what, Span(source, line, column, line, column + 1), (), "save the file as UTF-8") from None


def further_of(path: Path, name: str = "") -> Source | None:
    """The file of examples beside a rule file, if there is one: `stage.examples.rw` beside `stage.rw`."""
    beside = path.with_name(path.stem + FURTHER)
    return rule_source(beside, name and str(Path(name).with_name(beside.name))) if beside.is_file() else None
