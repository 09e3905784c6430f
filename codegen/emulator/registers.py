"""Checked mode's registers: what a kernel declares without a value starts as poison; a GPU has there what was there.

A stack that is mostly zeros hides a sum that nothing started. Poison is a NaN (not that of memory, which says that
nothing was written) or a conspicuous integer.
"""

from __future__ import annotations

import re
from dataclasses import replace

from ...ir.dtypes import DTYPES
from ..kernel import CudaKernel

WORDS = "uint32_t"  # of fragments
TYPES = "|".join(re.escape(name) for name in (*(dtype.c_type for dtype in DTYPES.values()), WORDS))
DECLARED = re.compile(rf"^( *(?:{TYPES}) (\w+)(?:\[\d+\])*;)$", re.MULTILINE)


def poisoned(kernel: CudaKernel) -> CudaKernel:
    """The checked build's text of a kernel; its lines keep their numbers."""
    text = DECLARED.sub(r"\1 dplc_poison(\2);", kernel.text)
    return kernel if text == kernel.text else replace(kernel, text=text)
