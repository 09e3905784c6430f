"""Which blocks of a launch can run as one batch: those that come to the same barriers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..expr import free_names
from ..facts.structure import summary
from ..loop import For
from ..node import nodes
from ..tile import Tile
from .scalar import evaluate


def in_step(tile: Tile, places: Mapping[str, Any], blocks: int) -> Iterator[np.ndarray]:
    """Masks of the blocks that turn as often in every loop around a barrier; together they are all blocks, each once.

    places: of each BLOCK axis, where each block is. A loop whose bounds mention other loops, too, is asked by places.
    """
    keys = [np.zeros(blocks, int)]
    for loop in nodes(tile.body, For):
        assert isinstance(loop, For)
        bounds = loop.start, loop.stop, loop.step
        mentioned = free_names(bounds)
        if mentioned.isdisjoint(places) or not summary((loop,)).barriers:
            continue
        if mentioned <= places.keys():
            start, stop, step = (evaluate(e, dict(places)) for e in bounds)
            keys.append(np.broadcast_to(np.maximum(-((start - np.asarray(stop)) // step), 0), (blocks,)))
        else:
            keys += [places[name] for name in sorted(mentioned & places.keys())]
    _, batch = np.unique(np.stack(keys), axis=1, return_inverse=True)
    for number in range(int(batch.max()) + 1):
        yield batch.reshape(-1) == number
