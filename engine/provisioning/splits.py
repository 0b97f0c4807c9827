"""Operators that have to be split for a pool to keep its objectives, into how many parts, and why others are not.

A stateless operator that alone breaks an objective on the best core is cut into equal parts, which are placed as
operators of their own (paper, section X). Parts that meet on a core are one replica again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from engine.deployment import Deployment
from engine.placement.splitting import MOST_PARTS
from engine.provisioning.board import Board, Placement, board_of
from engine.provisioning.bounds import alone_s, late_alone
from engine.provisioning.judge import Judge

__all__ = ["parts_needed", "split_board", "splits_of", "splits_said"]

_ROOM = 0.5  # of the bound a part may take alone, so that it need not have a core to itself


def parts_needed(board: Board, judge: Judge, cores: int) -> dict[str, int]:
    """Parts for the operators that alone break an objective on the first cores: the fewest that leave room, or 8."""
    operators = board.deployment.operators
    limits: dict[int, float] = {}
    for late in late_alone(board, judge, cores):
        if not board.whole(operators[board.operator[late.item]]):
            bound_s = float(judge.bounds[late.query])
            limits[late.item] = min(limits.get(late.item, np.inf), bound_s)
    found: dict[str, int] = {}
    for item, bound_s in limits.items():
        name = operators[board.operator[item]].id
        found[name] = max(found.get(name, 1), _parts(board, cores, item, _ROOM * bound_s))
    return found


def _parts(board: Board, cores: int, item: int, limit_s: float) -> int:
    for parts in range(2, MOST_PARTS):
        scale = np.zeros(len(board.load))
        scale[item] = 1.0 / parts
        if alone_s(board, cores, scale)[item] <= limit_s:
            return parts
    return MOST_PARTS


def split_board(board: Board, weights: Any, closed: Any, cores: int) -> tuple[Board, dict[str, int]]:
    """The board with what alone breaks an objective on its first cores cut into parts, and those parts."""
    board = replace(board, split=True)
    parts = parts_needed(board, Judge(board), cores)
    return (replace(board_of(board.deployment, weights, closed, parts), split=True) if parts else board), parts


def splits_of(deployment: Deployment, placement: Placement) -> dict[str, int]:
    """Operators that a placement has in more parts than they are in now, and how many."""
    now = {operator.id: max(1, len(operator.replicas)) for operator in deployment.operators}
    return {name: len(held) for name, held in placement.items() if len(held) > now[name]}


def splits_said(splits: Mapping[str, int]) -> str:
    """In words, as the beginning of a sentence; empty without splits."""
    if not splits:
        return ""
    words = [f"{name} in {parts} parts" for name, parts in list(splits.items())[:5]]
    more = f" and {len(splits) - 5} more operators" if len(splits) > 5 else ""
    return f"Split: {', '.join(words)}{more}."
