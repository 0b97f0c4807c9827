"""Policies against each other: the published table, loads, limits of the backlog, and where each wins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from benchmarks.klink_runs import COMPARED, LABELS, Figures, all_of, met, words
from engine.klink.simulation_loads import LOADS, Load

__all__ = ["backlogs", "limits", "policies", "published"]

_PUBLISHED = (  # load, queries, bursty, limit s, mean/p99 of Default, FCFS, SBox, Klink
    ("ysb", 30, False, 8.0, "0.52/0.99 0.52/0.99 0.52/0.99 0.52/0.99"),
    ("ysb", 42, False, 8.0, "2.38/4.16 2.41/4.41 1.52/3.25 1.55/3.39"),
    ("ysb", 80, False, 8.0, "8.49/10.3 8.56/10.1 8.25/8.69 8.23/9.00"),
    ("ysb", 36, True, 8.0, "0.88/4.32 0.96/2.81 0.68/1.82 0.69/2.02"),
    ("ysb", 80, True, 8.0, "7.17/23.7 7.76/10.1 7.33/8.66 7.33/8.94"),
    ("lrb", 36, True, 8.0, "1.17/4.12 1.22/2.83 0.94/1.85 0.95/1.97"),
    ("nyt", 36, True, 8.0, "0.86/4.56 0.94/2.85 0.86/2.47 0.86/2.57"),
    ("mixed", 36, True, 8.0, "1.93/13.2 3.43/6.96 2.24/4.89 2.44/5.51"),
    ("ysb", 60, False, 1.0, "1.59/2.33 1.62/2.77 0.58/1.07 0.58/1.08"),
    ("ysb", 80, True, 1.0, "1.42/8.01 1.53/2.70 0.57/1.07 0.57/1.07"),
)
_LISTED = ("random", "round-robin", "fcfs", "highest-rate", "nearest-deadline", "least-slack")
_MOST_WORSE, _ROUNDING_S = 1.02, 0.01
_MIXED_MEAN, _MIXED_P99 = 0.65, 1.4
_PAPER_MEAN, _PAPER_P99 = 0.5, 0.55
_FULL = 40  # queries that saturate four cores
_STARVES = 1.5  # p99 over the best one's


def published(seeds: int) -> None:
    """The table that this simulation is held against, side by side."""
    print("\npublished: mean/p99 in s; four cores, 40 queries saturate; what was found before, and here")
    for kind, count, bursty, limit_s, before in _PUBLISHED:
        found = all_of(
            Load(kind, count, 1, bursty=bursty),
            ("round-robin", "fcfs", "nearest-deadline", "least-slack"),
            seeds,
            intake_s=limit_s,
        )
        said = " ".join(f"{one.mean_s:.2f}/{one.p99_s:.2f}" for one in found.values())
        print(f"  {_name(kind, count, bursty, limit_s):34} Default FCFS SBox Klink: {before}   here: {said}")


def policies(seeds: int, counts: tuple[int, ...], delays: tuple[str, ...]) -> bool:
    """Every load under every policy; False where Sluice's default misses a target."""
    cells: dict[tuple[str, int], list[Mapping[str, Figures]]] = {}
    for kind in LOADS:
        print(f"\npolicies, {kind}: mean/p99 in s, backlog limit 8 s")
        for count, delay, bursty in _grid(counts, delays):
            load = Load(kind, count, 1, delay=delay, bursty=bursty)
            found = all_of(load, COMPARED, seeds, intake_s=8.0)
            print(f"  {_name(kind, count, bursty, 8.0)}, {delay:7} {words(found)}")
            own = found["klink"]
            print(
                f"  {'':24} sluice: slowdown {own.slowdown:,.0f}, {own.throughput:,.0f} events/s, "
                f"{100 * own.taken:.0f} % taken in, CPU {100 * own.busy:.0f} %, "
                f"memory {own.memory_mean / 1e6:.1f} MB on average, {own.memory_peak / 1e6:.1f} MB most"
            )
            cells.setdefault((kind, count), []).append(found)
    _winners(cells)
    _alike_taken([found for several in cells.values() for found in several])
    homogeneous = [found for (kind, _), several in cells.items() if kind != "mixed" for found in several]
    mixed = [
        found for (kind, count), several in cells.items() if kind == "mixed" and count >= _FULL for found in several
    ]
    return all([_never_worse(homogeneous), _mixed(mixed)])


def _grid(counts: tuple[int, ...], delays: tuple[str, ...]) -> Iterator[tuple[int, str, bool]]:
    for count in counts:
        for delay in delays:
            for bursty in (False, True):
                yield count, delay, bursty


def _name(kind: str, count: int, bursty: bool, limit_s: float) -> str:
    return f"{kind} {count:2} q, {'bursty' if bursty else 'steady'}, {limit_s:g} s"


def _winners(cells: Mapping[tuple[str, int], list[Mapping[str, Figures]]]) -> None:
    """Where each policy is within 2 % of the best, and which ones no other beats in both figures."""
    print(
        "\nwhere each wins: cells in which a policy is within 2 % of the best mean / the best p99 / on the Pareto front"
    )
    for name, chosen in (("below saturation", range(_FULL)), ("above saturation", range(_FULL, 1_000))):
        for mixed in (False, True):
            found = [one for (kind, count), several in cells.items() for one in several
                     if count in chosen and (kind == "mixed") == mixed]  # fmt: skip
            if not found:
                continue
            wins: Counter[tuple[str, str]] = Counter()
            for cell in found:
                for policy, one in cell.items():
                    wins[policy, "mean"] += _near(one.mean_s, min(other.mean_s for other in cell.values()))
                    wins[policy, "p99"] += _near(one.p99_s, min(other.p99_s for other in cell.values()))
                    wins[policy, "front"] += not any(_dominates(other, one) for other in cell.values())
            said = "  ".join(
                f"{LABELS[policy]} {wins[policy, 'mean']}/{wins[policy, 'p99']}/{wins[policy, 'front']}"
                for policy in COMPARED
            )
            print(f"  {'mixed' if mixed else 'alike'}, {name}, {len(found)} cells: {said}")


def _alike_taken(cells: list[Mapping[str, Figures]]) -> None:
    """Whether latencies may be compared: as many records taken in, and nothing left behind."""
    apart = max(max(one.taken for one in cell.values()) - min(one.taken for one in cell.values()) for cell in cells)
    unswept = sum(one.unswept for cell in cells for one in cell.values())
    print(
        f"\nfairness: share of the records taken in: at most {100 * apart:.2f} points apart between policies of a "
        f"cell; {unswept} windows not swept after draining"
    )


def _near(value: float, best: float) -> bool:
    return value <= _MOST_WORSE * best + _ROUNDING_S


def _dominates(one: Figures, other: Figures) -> bool:
    better = one.mean_s < other.mean_s / _MOST_WORSE or one.p99_s < other.p99_s / _MOST_WORSE
    return better and one.mean_s <= other.mean_s and one.p99_s <= other.p99_s


def _never_worse(cells: list[Mapping[str, Figures]]) -> bool:
    """Of queries alike: mean and p99 against each policy that is compared; those that starve apart."""
    worse: Counter[str] = Counter()
    most: dict[str, float] = {}
    for cell in cells:
        own, best = cell["klink"], min(one.p99_s for one in cell.values())
        for name in _LISTED:
            other = cell[name]
            starving = "where it starves: " if other.p99_s > _STARVES * best else ""
            for figure, mine, its in (("mean", own.mean_s, other.mean_s), ("p99", own.p99_s, other.p99_s)):
                if not _near(mine, its):
                    key = f"{LABELS[name]} {starving}{figure}"
                    worse[key] += 1
                    most[key] = max(most.get(key, 0.0), mine / its)
    fair = [key for key in worse if "starves" not in key]
    print(
        f"\ntargets: alike, {len(cells)} cells: at most 2 % worse than each of "
        f"{', '.join(LABELS[one] for one in _LISTED)}"
    )
    for key, count in sorted(worse.items()):
        print(f"  worse than {key} in {count} cells, at most {100 * (most[key] - 1):.0f} %")
    print(f"  against policies that starve nobody (p99 within {_STARVES:g} times the best): {met(not fair)} the target")
    print(f"  against all: {met(not worse)} the target")
    return not fair


def _mixed(cells: list[Mapping[str, Figures]]) -> bool:
    """Of a mix above saturation: mean over plain Klink's, p99 over the best one's."""
    if not cells:
        return True
    means = [cell["klink"].mean_s / cell["least-slack"].mean_s for cell in cells]
    tails = [cell["klink"].p99_s / min(one.p99_s for one in cell.values()) for cell in cells]
    reached = [mean <= _MIXED_MEAN and tail <= _MIXED_P99 for mean, tail in zip(means, tails, strict=True)]
    print(
        f"targets: mixed, {len(cells)} cells from 42 queries on: "
        f"mean over plain Klink's {min(means):.2f} to {max(means):.2f}, "
        f"p99 over the best {min(tails):.2f} to {max(tails):.2f}; {sum(reached)} of {len(reached)} within "
        f"{_MIXED_MEAN} and {_MIXED_P99}: {met(all(reached))}"
    )
    return all(reached)


def limits(seeds: int, counts: tuple[int, ...]) -> bool:
    """Three limits of the backlog: how much depends on them, and the paper's reduction where they allow it."""
    print("\nlimits, ysb (windows of 3 s): mean/p99 in s")
    reached = []
    for limit_s in (1.0, 2.0, 8.0):
        for count in counts:
            for bursty in (False, True):
                load = Load("ysb", count, 1, bursty=bursty)
                found = all_of(load, COMPARED, seeds, intake_s=limit_s)
                print(f"  {_name('ysb', count, bursty, limit_s)} {words(found)}")
                if limit_s < 1.5 and not bursty:
                    reached.append(_reduction(found))
    met_all = all(reached)
    print(
        "targets: 50 % of the mean and 55 % of the p99 less than Default where the limit is below the period: "
        f"{met(met_all)}"
    )
    return met_all


def _reduction(found: Mapping[str, Figures]) -> bool:
    own, default = found["klink"], found["random"]
    mean, p99 = 1 - own.mean_s / default.mean_s, 1 - own.p99_s / default.p99_s
    print(f"  {'':24} over Default: mean {100 * mean:.0f} % less, p99 {100 * p99:.0f} % less")
    return mean >= _PAPER_MEAN and p99 >= _PAPER_P99


def backlogs(seeds: int, shares: tuple[float, ...]) -> None:
    """One agent's core: how long records may wait, in windows' periods, before they overflow."""
    print(
        "\nbacklogs: one core, epochs of 1 s; records wait at most a share of the period: "
        "mean/p99 in s, % that overflow"
    )
    for kind, count, bursty in (("ysb", 9, True), ("ysb", 12, False), ("ysb", 12, True), ("mixed", 12, True)):
        for share in shares:
            load = Load(kind, count, 1, bursty=bursty, waits_periods=share)
            found = all_of(load, ("round-robin", "fcfs", "least-slack", "klink"), seeds, cores=1)
            said = words(found, lambda one: f"{one.mean_s:.2f}/{one.p99_s:.2f}, {100 * (1 - one.taken):.1f} %;")
            print(f"  {_name(kind, count, bursty, 0.0)[:-5]}, {share:4.2f} periods: {said}")
