"""The order of launches: shuffled blocks of one launch of each cell."""

from __future__ import annotations

import random
from collections.abc import Iterable

from xfbench.model.request import Cell, Protocol, Request


def launch_order(cells: Iterable[tuple[Cell, Protocol]], seed: int = 0) -> list[Request]:
    """Return every launch that the protocols allow, in blocks.

    A block has one launch of each cell, in random order. `seed` determines this order. Later blocks
    leave out cells whose protocols allow no further launch.
    """
    cell_protocols = list(cells)
    order = random.Random(seed)
    requests: list[Request] = []
    for launch in range(1, max((protocol.most for _, protocol in cell_protocols), default=0) + 1):
        block = [
            cell.request(launch) for cell, protocol in cell_protocols if launch <= protocol.most
        ]
        order.shuffle(block)
        requests += block
    return requests
