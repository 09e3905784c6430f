"""The CUDA of the manifest's programs is what the manifest says: no change of a kernel goes unseen."""

from __future__ import annotations

import copy
import json
import os

import pytest
import torch
from manifest import FILE, differences, made, written

KEPT = json.loads(FILE.read_text())


@pytest.mark.skipif(
    torch.__version__.split("+")[0] != KEPT["torch"],
    reason=f"the manifest was made with torch {KEPT['torch']}: another version captures other programs",
)
def test_manifest_golden() -> None:
    """DPLC_UPDATE_GOLDEN=1 writes it anew; `python tests/manifest/manifest.py` says what has changed, and by how much."""
    new = made()
    if os.environ.get("DPLC_UPDATE_GOLDEN"):
        FILE.write_text(written(new))
        return
    changed = "\n".join(differences(KEPT, new))
    assert not changed, changed


def test_what_changed_is_said_by_name() -> None:
    new = copy.deepcopy(KEPT)
    found = new["programs"]["expressions/softmax"]
    found["sm_90a"] = ["000000000000", found["sm_90a"][1] + 1, found["sm_90a"][2] * 2]
    del new["programs"]["expressions/linear"]
    lines = list(differences(KEPT, new))
    assert "expressions/linear: is gone" in lines
    assert any(line.startswith("expressions/softmax sm_90a: ") and line.endswith("x2.000") for line in lines)
    assert any(line.startswith("sm_90a: predicted time") and "worst 2.000" in line for line in lines)
