"""The stock trades of the Mace paper's plan selection (section IX-A), and the three plans of its query.

"Apply a user-defined select to the reviews of pairs of falling trades within a one minute window, which have similar
volumes": `falling` keeps trades below the price before, `select` reads a review, `pairs` joins trades of the last
minute with similar volumes. The select is the expensive part; a pair passes if both of its reviews do, so it may stand
before `falling`, between, or behind `pairs`. Prices are a random walk with 80 % rises, volumes a truncated uniform
variable; a trade carries the price before it, without which the first plan would select other pairs.
"""

from __future__ import annotations

import re
import zlib
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from engine.elements import Input, Operator, Window
from engine.plans.sampling import Function
from engine.rates import on_off_rate

__all__ = ["PLANS", "SOURCE", "Trade", "functions", "operators_of", "trades"]

SOURCE = "trades"
RATE_EPS = 2.0  # trades/s of the market
WINDOW_S = 60.0
SIMILAR = 35  # shares
PASSES = 50  # percent of reviews
#: Where the select stands: at the source, in the middle, at the sink.
PLANS = {
    "source": ("select", "falling", "pairs"),
    "middle": ("falling", "select", "pairs"),
    "sink": ("falling", "pairs", "select"),
}
_WORDS = re.compile(r"[a-z]+")
_REVIEWS = 2000


@dataclass(frozen=True, slots=True)
class Trade:
    """One trade; `at_s` is market time."""

    at_s: float
    price: float
    before: float
    volume: int
    review: str


def trades(count: int, seed: int) -> list[Trade]:
    """`count` trades with bursts of three times the low rate, ten minutes long on average."""
    rng = np.random.default_rng(seed)
    rate = on_off_rate(rng, RATE_EPS, 1.3 * count / RATE_EPS, 3.0, 1 / 3, 600.0, False)
    times = rate.draw_times(rng)[:count]
    steps = np.where(rng.random(count + 1) < 0.8, 1.0, -1.0) * rng.uniform(0.01, 0.1, count + 1)
    prices = 100.0 + np.cumsum(steps)
    volumes = np.clip(rng.uniform(0.0, 1200.0, count), 100.0, 1000.0).astype(int)
    reviews = _reviews(rng)
    chosen = rng.integers(0, len(reviews), count)
    return [
        Trade(float(times[i]), float(prices[i + 1]), float(prices[i]), int(volumes[i]), reviews[chosen[i]])
        for i in range(len(times))
    ]


def _reviews(rng: np.random.Generator) -> list[str]:
    words = ["".join(chr(97 + c) for c in rng.integers(0, 26, n)) for n in rng.integers(3, 9, 500)]
    return [" ".join(words[i] for i in rng.integers(0, len(words), n)) for n in rng.integers(60, 120, _REVIEWS)]


def liked(review: str) -> bool:
    """The user-defined select: a score over the words of a review, some 50 microseconds of real work."""
    score = 0
    for word in _WORDS.findall(review):
        score = (score * 31 + zlib.crc32(word.encode())) % 1_000_003
    return score % 100 < PASSES


def functions() -> dict[str, Function]:
    """Fresh functions of the three operators; `pairs` holds the trades of the last minute."""
    recent: deque[Trade] = deque()

    def falling(trade: Trade, position: int) -> Iterable[Trade]:
        return (trade,) if trade.price < trade.before else ()

    def select(item: Trade | tuple[Trade, Trade], position: int) -> Iterable[Trade | tuple[Trade, Trade]]:
        parts = item if isinstance(item, tuple) else (item,)
        return (item,) if all(liked(part.review) for part in parts) else ()

    def pairs(trade: Trade, position: int) -> Iterable[tuple[Trade, Trade]]:
        while recent and recent[0].at_s < trade.at_s - WINDOW_S:
            recent.popleft()
        found = [(other, trade) for other in recent if abs(other.volume - trade.volume) <= SIMILAR]
        recent.append(trade)
        return found

    return {"falling": falling, "select": select, "pairs": pairs}


def operators_of(plan: str) -> tuple[Operator, ...]:
    """The operators of a plan in a row, without statistics."""
    above, found = SOURCE, []
    for name in PLANS[plan]:
        window = Window("time", "sliding", WINDOW_S, 1.0) if name == "pairs" else None
        found.append(Operator(name, (), (Input(above),), query="trades", kind="other", window=window))
        above = name
    return tuple(found)
