"""Throughput of all strategies over CPU budgets: the paper's figures 10 to 12, simulated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.jarvis_strategies import ADAPTING, BEST, EFFICIENCY, LINK_MBPS, mbps, queries, sustained
from engine.jarvis.simulation import Query

__all__ = ["TITLES", "throughput"]

TITLES = {"s2s": "S2SProbe", "t2t": "T2TProbe", "log": "LogAnalytics"}
_BUDGETS = (0.2, 0.4, 0.6, 0.8, 1.0)
_SAME = 0.01  # between ratios that are given to two digits
_COLUMNS = ("all-sp", "all-src", "filter-src", "best-op", *ADAPTING, BEST)


@dataclass(frozen=True)
class _Claim:
    """Throughput of the best plan over another strategy's: the paper's, and what its model was found to give."""

    query: str
    cores: float
    over: str
    paper: float
    model: tuple[float, float]  #: with the nominal link, with what protocols leave of it


_CLAIMS = (
    _Claim("s2s", 0.8, "best-op", 1.25, (1.10, 1.25)),
    _Claim("s2s", 0.6, "all-src", 2.6, (1.42, 1.42)),
    _Claim("t2t", 0.4, "all-src", 4.4, (4.40, 4.36)),
    _Claim("t2t", 0.8, "best-op", 1.2, (1.10, 1.25)),
    _Claim("log", 0.2, "best-op", 1.5, (1.46, 1.66)),
    _Claim("log", 0.6, "all-sp", 2.3, (2.42, 2.75)),
)


def throughput(budgets: Sequence[float] = _BUDGETS) -> bool:
    """Print ratios and rates; False where a ratio is not the one that the paper's model was found to give."""
    made = queries()
    print("\nthroughput, simulated: the best plan over another strategy at the same CPU budget")
    print(f"  {'':32} {'':>6}  {'nominal link':>16}  {'net of protocols':>16}")
    print(f"  {'':32} {'paper':>6}  {'model':>8}{'here':>8}  {'model':>8}{'here':>8}")
    held = [_holds(made[claim.query], claim) for claim in _CLAIMS]
    for name, query in made.items():
        _print_budgets(TITLES[name], query, budgets)
    return all(held)


def _holds(query: Query, claim: _Claim) -> bool:
    links = (LINK_MBPS, EFFICIENCY * LINK_MBPS)
    here = [sustained(query, BEST, claim.cores, one) / sustained(query, claim.over, claim.cores, one) for one in links]
    name = f"{TITLES[claim.query]} {100 * claim.cores:.0f} %: over {claim.over}"
    pairs = [f"{known:8.2f}{found:8.2f}" for known, found in zip(claim.model, here, strict=True)]
    print(f"  {name:32} {claim.paper:6.2f}  {'  '.join(pairs)}")
    return all(abs(found / known - 1) <= _SAME for found, known in zip(here, claim.model, strict=True))


def _print_budgets(title: str, query: Query, budgets: Sequence[float]) -> None:
    link_mbps = EFFICIENCY * LINK_MBPS
    rate_mbps = mbps(query, query.records_s)
    print(
        f"\n  {title} at {rate_mbps:.1f} Mbit/s, link {link_mbps:.2f} Mbit/s: Mbit/s sustained; best: at the true costs"
    )
    print("  CPU    " + "".join(f"{name:>12}" for name in _COLUMNS))
    for cores in budgets:
        found = [sustained(query, strategy, cores, link_mbps) for strategy in _COLUMNS]
        print(f"  {100 * cores:3.0f} %  " + "".join(f"{one:12.1f}" for one in found))
