"""Sources that a stream processor serves, and queries that a source does: figures 16 and 18 of the paper, simulated."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from benchmarks.jarvis_strategies import (
    BEST,
    EFFICIENCY,
    LINK_MBPS,
    bytes_s,
    cut,
    frontier,
    mbps,
    queries,
    run_sends,
    sustained,
)
from engine.jarvis.fairness import max_min
from engine.jarvis.simulation import Query

__all__ = ["several_queries", "several_sources"]

_ROOT_MBPS = 500.0  # of one query at the stream processor: 10 Gbit/s over 20 queries
_LEAST_ADAPTED = 0.9  # sources that can be served when each adapts by itself, over those of the best plan
_WHOLE = 1 - 1e-3  # of a rate that a bisection finds


@dataclass(frozen=True)
class _Setting:
    """S2SProbe at a rate, tenths of the paper's; what the paper says, and what its model was found to give."""

    scale: float
    cores: float  #: that one query has
    paper_sources: str
    model_sources: tuple[tuple[int, int], tuple[int, int]]  #: Jarvis and Best-OP; nominal link, net of protocols
    paper_queries: str  #: on one core and on two


_SETTINGS = (
    _Setting(1.0, 0.55, "32, below 32", ((37, 22), (33, 19)), "2, 3"),
    _Setting(0.5, 0.30, "about 70, 40", ((81, 44), (71, 39)), "4, 6"),
    _Setting(0.1, 0.05, "250 or more, 180", ((346, 221), (305, 195)), "15, 25"),
)


def several_sources() -> bool:
    """Print sources served; False where the model gives others, or sources that adapt by themselves fall behind."""
    print(f"\nsources of one stream processor, simulated: S2SProbe, {_ROOT_MBPS:g} Mbit/s in all; Jarvis and Best-OP")
    heads = "".join(f"{name:>14}{'here':>10}{'adapting':>10}" for name in ("nominal: model", "net: model"))
    print(f"  {'input, CPU':14} {'paper':18}{heads}")
    held = [_sources(setting) for setting in _SETTINGS]
    return all(held)


def _sources(setting: _Setting) -> bool:
    query = _scaled(setting)
    sent = frontier(query).at(setting.cores, query.records_s).objective
    sent_coarse = cut(query, "best-op", setting.cores).objective
    sent_adapting = run_sends(query, "scalar", setting.cores, query.records_s)
    columns, met = [], True
    for share, known in zip((1.0, EFFICIENCY), setting.model_sources, strict=True):
        link = share * bytes_s(_ROOT_MBPS)
        here, adapting = (int(link / sent), int(link / sent_coarse)), int(link / sent_adapting)
        met &= here == known and adapting >= _LEAST_ADAPTED * here[0]
        columns.append(f"{_pair(known):>14}{_pair(here):>10}{adapting:>10}")
    name = f"{10 * setting.scale:.0f}x, {100 * setting.cores:.0f} %"
    print(f"  {name:14} {setting.paper_sources:18}{''.join(columns)}")
    return met


def several_queries() -> None:
    """Print how many queries run side by side; cores are shared by max-min fairness."""
    print("\nqueries of one source, simulated: S2SProbe, on one core and on two")
    print(f"  {'':14} {'until throughput grows no more':>32}  {'none loses anything,':>26}")
    print(f"  {'input, CPU':14} {'paper':>10} {'fixed load factors':>21}  {'each adapts, link net':>26}")
    for setting in _SETTINGS:
        fixed = (_saturates(setting, 1.0), _saturates(setting, 2.0))
        adapting = (_most(_adapts(setting, 1.0)), _most(_adapts(setting, 2.0)))
        name = f"{10 * setting.scale:.0f}x, {100 * setting.cores:.0f} %"
        print(f"  {name:14} {setting.paper_queries:>10} {_pair(fixed):>21}  {_pair(adapting):>26}")


def _scaled(setting: _Setting) -> Query:
    query = queries()["s2s"]
    return replace(query, records_s=setting.scale * query.records_s)


def _saturates(setting: _Setting, cores: float) -> int:
    """Queries from which on another one adds nothing, each with load factors made for the setting's CPU."""

    def carried(count: int) -> float:
        return sum(max_min(cores, [setting.cores] * count, [1.0] * count))

    return 1 + _most(lambda count: carried(count + 1) > carried(count) / _WHOLE)


def _adapts(setting: _Setting, cores: float) -> Callable[[int], bool]:
    """Whether so many queries carry their whole rate by the best plan for the share that each gets."""
    query, link_mbps = _scaled(setting), EFFICIENCY * LINK_MBPS * setting.scale
    whole_mbps = _WHOLE * mbps(query, query.records_s)

    def carried(count: int) -> bool:
        share = max_min(cores, [math.inf] * count, [1.0] * count)[-1]
        return sustained(query, BEST, share, link_mbps) >= whole_mbps

    return carried


def _most(carried: Callable[[int], bool]) -> int:
    """Most queries that are carried side by side."""
    count = 0
    while carried(count + 1):
        count += 1
    return count


def _pair(two: tuple[int, int]) -> str:
    return f"{two[0]}, {two[1]}"
