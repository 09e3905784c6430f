"""Checked mode's own layout of shared memory: slabs stand apart, so that what leaves one does not fall into the next.

A kernel carves its shared memory up by adding offsets to one base, in lines of a known form:

    const uint32_t smem = smem_addr(smem_buf);
    const uint32_t x_smem = smem;
    const uint32_t y_smem = smem + 16384;

For the checked build the offsets in these lines grow, a gap for each slab; nothing else of the text changes, and its
lines keep their numbers. A text that uses the base in any other way keeps its layout; so does one of which a slab lies
where others are, by turns (two lines give one address): what is checked then is that nobody is at the one any more.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from ..kernel import CudaKernel

GAP = 64 << 10  # bytes between slabs. A multiple of every unit that addresses are flipped or swizzled in
SPAN = 2 << 20  # bytes that shared memory may take with its gaps: mirrors dplc::shared_region

BASE = re.compile(r"^ *const uint32_t (\w+) = smem_addr\(smem_buf\);$", re.MULTILINE)
DERIVED = r"^( *const uint32_t (\w+) = ({roots}))(?: \+ (\d+))?;$"


@dataclass(frozen=True)
class SlabPlace:
    """A slab: its name in the text, where it starts in the kernel's layout and in the checked one, its bytes."""

    name: str
    start: int
    begin: int
    bytes: int


@dataclass(frozen=True)
class Spaced:
    """A kernel with its slabs apart. span: bytes of shared memory, gaps among them; no slabs: it is as it was."""

    kernel: CudaKernel
    slabs: tuple[SlabPlace, ...]
    span: int


@lru_cache(maxsize=256)
def spaced(kernel: CudaKernel) -> Spaced:
    """The checked build's text of a kernel, and what stands where in it."""
    as_it_is = Spaced(kernel, (), kernel.smem)
    base = BASE.search(kernel.text)
    if base is None or len(BASE.findall(kernel.text)) > 1:
        return as_it_is
    root = base[1]
    lines = {m[2]: int(m[4] or 0) for m in _derived(kernel.text, (root,))}
    if not lines or len(lines) + 1 != len(re.findall(rf"\b{root}\b", kernel.text)):
        return as_it_is  # the base is used in another way, or a name has two meanings
    first = {start: name for name, start in lines.items()}
    if len(first) < len(lines):
        return as_it_is
    starts = sorted(first)
    if starts[0] != 0 or starts[-1] >= kernel.smem or (kernel.smem + GAP * len(starts)) * kernel.cluster > SPAN:
        return as_it_is
    ends = [*starts[1:], kernel.smem]
    slabs = tuple(
        SlabPlace(first[start], start, start + n * GAP, end - start)
        for n, (start, end) in enumerate(zip(starts, ends, strict=True))
    )
    text = _moved(kernel.text, root, lines, slabs)
    return Spaced(replace(kernel, text=text), slabs, kernel.smem + GAP * (len(slabs) - 1))


def _derived(text: str, roots: Sequence[str]) -> list[re.Match[str]]:
    """The lines that add a number to one of some addresses."""
    return list(re.finditer(DERIVED.format(roots="|".join(roots)), text, re.MULTILINE))


def _moved(text: str, root: str, starts: dict[str, int], slabs: Sequence[SlabPlace]) -> str:
    """The text with every line of a slab's address in the new layout; also of those that one slab's address gives."""
    order = [slab.start for slab in slabs]

    def place(start: int) -> SlabPlace:
        return slabs[bisect_right(order, start) - 1]

    def line(match: re.Match[str]) -> str:
        from_root = match[3] == root
        start = (0 if from_root else starts[match[3]]) + int(match[4] or 0)
        gap = place(start).begin - place(start).start
        if not from_root:  # an address within its slab stays where it is
            gap -= place(starts[match[3]]).begin - place(starts[match[3]]).start
        offset = int(match[4] or 0) + gap
        return f"{match[1]} + {offset};" if offset else f"{match[1]};"

    return re.sub(DERIVED.format(roots="|".join((root, *starts))), line, text, flags=re.MULTILINE)
