"""How to look for a placement, and what is found."""

from __future__ import annotations

from dataclasses import dataclass

from engine.elements import IntArray
from engine.placement.goal import Measured
from engine.placement.items import Items, Placement

__all__ = ["Candidate", "Settings", "Spared"]


@dataclass(frozen=True)
class Settings:
    """How long and how to search."""

    algorithm: str = "search"
    budget_s: float | None = 5.0
    rounds: int | None = None
    seed: int = 0
    workers: int = 1
    mace_every: int = 1
    tolerance: float = 0.0


@dataclass(frozen=True)
class Spared:
    """Moves that were left out for gaining too little: how many, and the value that they would have led to."""

    moves: int
    value: float


@dataclass(frozen=True, eq=False)
class Candidate:
    """A placement that was found, with what the goal says of it, and what it leaves out."""

    items: Items
    assignment: IntArray
    measured: Measured
    spared: Spared | None = None

    @property
    def moves(self) -> int:
        """Items that are elsewhere than before."""
        return int(((self.items.start >= 0) & (self.assignment != self.items.start)).sum())

    @property
    def whole(self) -> tuple[float, int]:
        """Value and moves before any were left out."""
        if self.spared is None:
            return self.measured.value, self.moves
        return self.spared.value, self.moves + self.spared.moves

    @property
    def placement(self) -> Placement:
        return self.items.placement(self.assignment)
