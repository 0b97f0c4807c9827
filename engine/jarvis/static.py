"""Methods that do not adapt, or only cut between operators: what Jarvis is compared with, and load factors by hand."""

from __future__ import annotations

from collections.abc import Sequence

from engine.jarvis.baselines import filter_cut
from engine.jarvis.controlling import Phase
from engine.jarvis.observation import SourceOperator
from engine.jarvis.settings import Settings
from engine.jarvis.stepping import Epoch, Step, use_in_words

__all__ = ["Static", "static_factors"]

_WORDS = {
    "fixed": "load factors are set by hand",
    "all-sp": "everything runs at the stream processor",
    "all-src": "everything that may runs at the source",
    "filter-src": "the source filters and nothing else",
}


def static_factors(settings: Settings, operators: Sequence[SourceOperator]) -> tuple[float, ...]:
    """Load factors of a method that keeps them."""
    count = len(operators)
    if settings.method == "all-src":
        return (1.0,) * count
    if settings.method == "filter-src":
        cut = filter_cut([one.kind for one in operators])
        return (1.0,) * cut + (0.0,) * (count - cut)
    given = settings.load_factors[:count] if settings.method == "fixed" else ()
    return tuple(given) + (0.0,) * (count - len(given))


class Static:
    """Keeps its load factors."""

    z: float | None = None

    def __init__(self, load_factors: tuple[float, ...] = ()) -> None:
        self._load_factors = load_factors

    def step(self, epoch: Epoch) -> Step:
        """Says how they do."""
        words = f"{use_in_words(epoch.observation)}; {_WORDS[epoch.settings.method]}"
        return Step(self._load_factors, Phase.PROBE, epoch.state, words)
