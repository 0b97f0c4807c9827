"""Throughput of all strategies over CPU budgets, sources and queries: figures 10 to 12, 16 and 18, simulated."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from engine.jarvis.adaptation.controllers import make_controller
from engine.jarvis.baselines import baseline
from engine.jarvis.fairness import max_min
from engine.jarvis.partition import Frontier, Partition
from engine.jarvis.settings import AdaptationSettings
from lab.jarvis.simulation import QUERIES, SourceQuery, TrueOperator, WorkloadPhase, simulate
from lab.jarvis.stepwise import STEPWISE_METHODS
from lab.jarvis.workloads import grouping_operator

__all__ = [
    "ADAPTING",
    "BEST",
    "EFFICIENCY",
    "LINK_MBPS",
    "TITLES",
    "bytes_s",
    "cut",
    "frontier",
    "mbps",
    "queries",
    "run_sends",
    "several_queries",
    "several_sources",
    "sustained",
    "throughput",
]


LINK_MBPS = 20.48  # of one query at one source: 10 Gbit/s over 250 sources and 20 queries, ten times over
EFFICIENCY = 0.88  # of a link after protocols; explains the paper's S2SProbe and its counts of sources
BEST = "best"  # the envelope at the true costs
ADAPTING = (*reversed(STEPWISE_METHODS), "scalar")
_EPOCHS, _LOOKED_AT = 40, 20  # of a run, and how many of its last ones count
_HALVINGS = 10
_TUNED = 1.02  # what a settled run sends wavers; so much over the link still passes

TITLES = {"s2s": "S2SProbe", "t2t": "T2TProbe", "log": "LogAnalytics"}
_BUDGETS = (0.2, 0.4, 0.6, 0.8, 1.0)
_SAME = 0.01  # between ratios that are given to two digits
_GROUPING = (0.72, 0.80)  # of a core, that S2SProbe's grouping takes: sections VIII and V
_COLUMNS = ("all-sp", "all-src", "filter-src", "best-op", *ADAPTING, BEST)

_ROOT_MBPS = 500.0  # of one query at the stream processor: 10 Gbit/s over 20 queries
_MIN_ADAPTED = 0.9  # sources that can be served when each adapts by itself, over those of the best plan
_WHOLE = 1 - 1e-3  # of a rate that a bisection finds


def queries() -> dict[str, SourceQuery]:
    """The paper's three; S2SProbe with the cost of section VIII, where the whole takes 85 % and not 93 %."""
    made = QUERIES | {"s2s": _s2s(_GROUPING[0])}
    return {name: _proportional(query) for name, query in made.items()}


def _s2s(share: float) -> SourceQuery:
    """S2SProbe whose grouping takes this share of a core; it costs by groups as well as by records."""
    s2s = QUERIES["s2s"]
    keep, group = s2s.operators
    return replace(s2s, operators=(keep, grouping_operator(share, 0.86 * s2s.records_s, group.groups, group.bytes_out)))


def _proportional(query: SourceQuery) -> SourceQuery:
    """The same query with costs and groups in proportion to its records, as they are at the nominal rate."""
    operators, n = [], query.records_s
    for operator in query.operators:
        out = operator.rows(n, 1.0, "fitted")
        operators.append(
            TrueOperator(operator.id, operator.kind, operator.cpu_s(n, "fitted") / n, out / n, operator.bytes_out)
        )
        n = out
    return replace(query, operators=tuple(operators))


def frontier(query: SourceQuery) -> Frontier:
    """By the true costs."""
    sizes = [query.record_bytes, *(operator.bytes_out for operator in query.operators)]
    return Frontier.of(
        [operator.relay for operator in query.operators], [operator.cost_s for operator in query.operators], sizes
    )


def mbps(query: SourceQuery, records_s: float) -> float:
    """Megabits per second that so many records are."""
    return 8e-6 * query.record_bytes * records_s


def bytes_s(link_mbps: float) -> float:
    """Bytes per second of a link."""
    return link_mbps * 1e6 / 8


def sustained(query: SourceQuery, strategy: str, cores: float, link_mbps: float) -> float:
    """Highest rate in Mbit/s, at most the query's own, that a strategy carries."""
    return mbps(query, _records_s(query, strategy, cores, bytes_s(link_mbps)))


def _records_s(query: SourceQuery, strategy: str, cores: float, link: float) -> float:
    """`link` in bytes per second."""
    if strategy in ADAPTING:
        return _highest(query.records_s, lambda n: run_sends(query, strategy, cores, n) <= _TUNED * link)
    plans = frontier(query)
    if strategy == BEST:
        return _highest(query.records_s, lambda n: plans.at(cores, n).objective <= link)
    plan = cut(query, strategy, cores)
    takes, sends = plans.cpu_s[plan.lo], plans.sent[plan.lo]
    return min(query.records_s, cores / takes if takes else math.inf, link / sends)


def cut(query: SourceQuery, strategy: str, cores: float) -> Partition:
    """Operators that a strategy without load factors runs at the source; Best-OP plans for the query's own rate."""
    return baseline(strategy, frontier(query), query.records_s, cores, [operator.kind for operator in query.operators])


def _highest(most: float, carried: Callable[[float], bool]) -> float:
    """Highest rate that is carried, to a thousandth of `most`."""
    if carried(most):
        return most
    low, high = 0.0, most
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if carried(middle) else (low, middle)
    return low


def run_sends(query: SourceQuery, method: str, cores: float, records_s: float) -> float:
    """Bytes per second that a strategy sends once it has adapted; what overflows is sent, too."""
    method_controller = make_controller(AdaptationSettings(method=method), query.source_operators(), None)
    run = simulate(query, method_controller, (WorkloadPhase(_EPOCHS, cores, records_s),), seed=1)
    return float(run.bytes_sent[-_LOOKED_AT:].mean())


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
    paper_queries = queries()
    print("\nthroughput, simulated: the best plan over another strategy at the same CPU budget")
    print(f"  {'':32} {'':>6}  {'nominal link':>16}  {'net of protocols':>16}")
    print(f"  {'':32} {'paper':>6}  {'model':>8}{'here':>8}  {'model':>8}{'here':>8}")
    held = [_holds(paper_queries[claim.query], claim) for claim in _CLAIMS]
    _print_costs_of_groups()
    for name, query in paper_queries.items():
        _print_budgets(TITLES[name], query, budgets)
    return all(held)


def _holds(query: SourceQuery, claim: _Claim) -> bool:
    links = (LINK_MBPS, EFFICIENCY * LINK_MBPS)
    here = [
        sustained(query, BEST, claim.cores, link) / sustained(query, claim.over, claim.cores, link) for link in links
    ]
    name = f"{TITLES[claim.query]} {100 * claim.cores:.0f} %: over {claim.over}"
    pairs = [f"{expected:8.2f}{measured:8.2f}" for expected, measured in zip(claim.model, here, strict=True)]
    print(f"  {name:32} {claim.paper:6.2f}  {'  '.join(pairs)}")
    return all(abs(measured / expected - 1) <= _SAME for measured, expected in zip(here, claim.model, strict=True))


def _print_costs_of_groups() -> None:
    """Print S2SProbe over All-Src where fewer records have more groups each, which costs in proportion leave out."""
    cores = 0.6
    for share in _GROUPING:
        query = _s2s(share)
        keep, group = query.operators

        def fits(n: float, keep: TrueOperator = keep, group: TrueOperator = group) -> bool:
            return keep.cpu_s(n, "fitted") + group.cpu_s(keep.relay * n, "fitted") <= cores

        ratio = query.records_s / _highest(query.records_s, fits)
        name = f"the same, costs by groups, {100 * share:.0f} %"
        print(f"  {name:32} {2.6:6.2f}  {'':8}{ratio:8.2f}")


def _print_budgets(title: str, query: SourceQuery, budgets: Sequence[float]) -> None:
    link_mbps = EFFICIENCY * LINK_MBPS
    rate_mbps = mbps(query, query.records_s)
    print(
        f"\n  {title} at {rate_mbps:.1f} Mbit/s, link {link_mbps:.2f} Mbit/s: Mbit/s sustained; best: at the true costs"
    )
    print("  CPU    " + "".join(f"{name:>12}" for name in _COLUMNS))
    for cores in budgets:
        rates = [sustained(query, strategy, cores, link_mbps) for strategy in _COLUMNS]
        print(f"  {100 * cores:3.0f} %  " + "".join(f"{rate:12.1f}" for rate in rates))


@dataclass(frozen=True)
class _Setting:
    """S2SProbe at a rate, in tenths of the paper's, with the paper's figures and those its model was found to give."""

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
        met &= here == known and adapting >= _MIN_ADAPTED * here[0]
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


def _scaled(setting: _Setting) -> SourceQuery:
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
