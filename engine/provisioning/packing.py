"""Packing: placements that keep every objective on as few cores as possible, where a balanced one would keep none.

Items are taken in classes of similar bounds, so that those that may wait share cores that run close to their capacity.
Each goes to the fullest core on which every bound is still kept (best fit).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from engine.elements import FloatArray, IntArray
from engine.provisioning.board import Board
from engine.provisioning.kernels import pack

__all__ = ["packings"]

# Whether classes of loose bounds go first, the ratio of bounds within a class, and whether the mean and deviation of a
# load decide within it instead of the peak.
_ORDERS = ((True, 2.0, False), (False, 1.6, False), (True, 3.0, True))


def packings(board: Board, size: int, tightest_s: float, most: int = len(_ORDERS)) -> Iterator[tuple[IntArray, int]]:
    """Placements on the first `size` nodes and how many items each leaves out (places of -1), by up to `most` orders.

    Parameters
    ----------
    tightest_s : float
        The tightest bound; that of an item is this over its weight.
    """
    cores = board.cores_of(size)
    for order in _orders(board)[:most]:
        placed = np.full(len(board.load), -1)
        left = pack(
            order,
            board.load,
            board.weight,
            np.zeros((cores, board.load.shape[1])),
            np.zeros(cores),
            board.budget[:cores],
            board.seconds[:cores],
            board.node[:cores],
            board.allowed[:, :cores],
            board.apart,
            tightest_s * (1.0 - 1e-9),
            placed,
        )
        yield placed, int(left)


def _orders(board: Board) -> list[IntArray]:
    peak, spread = board.load.max(axis=1, initial=0.0), board.load.mean(axis=1) + board.load.std(axis=1)
    free = board.allowed.mean(axis=1) if board.allowed.shape[1] else np.ones(len(peak))
    looseness: FloatArray = np.log(board.weight.max(initial=1e-300) / np.maximum(board.weight, 1e-300))
    orders = []
    for loose_first, ratio, by_spread in _ORDERS:
        group = np.floor(looseness / np.log(ratio) + 1e-9)
        size = spread if by_spread else peak
        orders.append(np.lexsort((-size, -group if loose_first else group, free > 0.5)))
    return orders
