"""The order of launches: balanced blocks of one launch of each cell."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from xfbench.model.request import Cell, Protocol, Request

_Item = TypeVar("_Item")


def launch_order(cells: Iterable[tuple[Cell, Protocol]], seed: int | None = None) -> list[Request]:
    """Return every launch that the protocols allow, in blocks.

    A block has one launch of each cell. Later blocks leave out cells whose protocols allow no
    further launch. Each cell comes at each place of a block equally often, and after each other
    cell equally often, as far as the number of blocks permits.

    - `seed`: determines the order; None: a new order at each call.
    """
    cell_protocols = list(cells)
    blocks = balanced_orders(cell_protocols, random.Random(seed))
    most = max((protocol.most for _, protocol in cell_protocols), default=0)
    return [
        cell.request(launch)
        for launch, block in zip(range(1, most + 1), blocks, strict=False)
        for cell, protocol in block
        if launch <= protocol.most
    ]


def balanced_orders(items: Sequence[_Item], rng: random.Random) -> Iterator[list[_Item]]:
    """Yield orders of the items without end, in random Williams designs.

    In a design of n items (Williams 1949), each item has each place equally often, and follows each
    other item equally often. A design has n orders if n is even, else 2 n. The items of each design
    are assigned at random, and its orders are shuffled.
    """
    count = len(items)
    # 0, n-1, 1, n-2, …: neighbours differ by each number once, modulo n.
    zigzag = [n // 2 if n % 2 == 0 else count - 1 - n // 2 for n in range(count)]
    starts = [(zigzag, shift) for shift in range(count)]
    if count % 2:
        starts += [(zigzag[::-1], shift) for shift in range(count)]
    while True:
        names = rng.sample(list(items), count)
        for places, shift in rng.sample(starts, len(starts)):
            yield [names[(place + shift) % count] for place in places]
        if not items:
            yield []
