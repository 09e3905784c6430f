"""The versions that a figure of the store holds for."""

from __future__ import annotations

import dataclasses
import functools
import hashlib

from ...codegen.target import Target
from ...version import __version__

MODEL = "model"


@functools.cache
def tools_of(target: Target) -> str:
    """`dplc 0.1.0; model 3f2a91bc`: ours, and a digest of the constants that the model of this device computes with.

    A measurement does not depend on the model; it adds the compiler that it used (`measured_with`).
    """
    known = dataclasses.asdict(target)
    constants = repr(sorted((name, value) for name, value in known.items() if name != "policy" or value))
    return f"dplc {__version__}; {MODEL} {hashlib.sha256(constants.encode()).hexdigest()[:8]}"


def measured_with(tools: str, assembler: str) -> str:
    """The tools of a measured figure, given those of its key."""
    kept = [part for part in tools.split("; ") if not part.startswith(f"{MODEL} ")]
    return "; ".join([*kept, *([assembler] if assembler else [])])
