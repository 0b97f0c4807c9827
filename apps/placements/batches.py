"""Which moves are made together: those next in order that do not wait on each other."""

from __future__ import annotations

from collections.abc import Iterable

from apps.placements.models import PlacementMove

__all__ = ["BATCH_SIZE", "MAX_BATCH_SIZE", "batches_of", "pause_of"]

BATCH_SIZE = 5
MAX_BATCH_SIZE = 200
_PAUSE_S = 30.0  # nobody watches one batch for longer
_TOTAL_S = 300.0  # of all pauses: a job must end before the broker gives it to another worker


def batches_of(moves: Iterable[PlacementMove], size: int) -> list[list[PlacementMove]]:
    """Moves in order, cut where one needs what an earlier one of its batch leaves or takes: a node that both touch.

    At most `size` to a batch.
    """
    batches: list[list[PlacementMove]] = []
    touched: set[str] = set()
    for move in moves:
        nodes = {part["node"] for part in (*move.before, *move.after)}
        if not batches or len(batches[-1]) >= size or touched & nodes:
            batches.append([])
            touched = set()
        batches[-1].append(move)
        touched |= nodes
    return batches


def pause_of(moves: Iterable[PlacementMove], *, pace: float, batches: int) -> float:
    """Seconds to wait after a batch: as long as the slowest of its moves takes, times `pace`, within limits."""
    slowest_s = max((move.duration_s for move in moves), default=0.0)
    return min(pace * slowest_s, _PAUSE_S, _TOTAL_S / max(batches, 1))
