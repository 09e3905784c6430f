"""Which files are the user's: their lines are shown, and a call is placed in them."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest
import torch

from dplc.engine.capture import places

PYTHON = Path(sysconfig.get_path("stdlib"))
LIBRARIES = {
    "torch": Path(torch.__file__).parent / "nn" / "functional.py",
    "ours": Path(places.__file__),
    "Python's": PYTHON / "contextlib.py",
}
OF_USERS = {
    "a script": Path("/home/somebody/model.py"),
    "what is installed beside torch": Path(torch.__file__).parents[1] / "transformers" / "models" / "llama.py",
    "what is installed below Python's own": PYTHON / "site-packages" / "model.py",
    "the system's packages": PYTHON / "dist-packages" / "model.py",
    "a name that begins as Python's folder does": Path(f"{PYTHON}_of_mine") / "model.py",
}


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library(name: str) -> None:
    assert places.is_library(str(LIBRARIES[name]))


@pytest.mark.parametrize("name", OF_USERS)
def test_a_file_of_the_user(name: str) -> None:
    assert not places.is_library(str(OF_USERS[name]))
