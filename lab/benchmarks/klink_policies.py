"""Simulated policies against each other: the published table, loads, several nodes, memory, and where each wins."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from engine.klink.simulation.run import KlinkRun, SimulationSetting, simulate
from engine.klink.simulation.world import SAMPLE_MS
from lab.klink.loads import LOADS, DrawnLoad, draw_load

__all__ = [
    "COMPARED",
    "LABELS",
    "WARM_MS",
    "RunFigures",
    "backlogs",
    "figure_words",
    "limits",
    "memory",
    "met_words",
    "nodes",
    "policies",
    "published",
    "run_policies",
    "run_seeds",
]


#: Those that the paper compares with, Sluice's default last.
COMPARED = (
    "random",
    "round-robin",
    "fcfs",
    "stimulus-time",
    "highest-rate",
    "nearest-deadline",
    "response-ratio",
    "least-slack",
    "klink",
)
LABELS = {
    "random": "Default",
    "round-robin": "RR",
    "fcfs": "FCFS",
    "stimulus-time": "stimulus",
    "highest-rate": "HR",
    "nearest-deadline": "SBox",
    "response-ratio": "response",
    "least-slack": "Klink",
    "klink": "sluice",
    "algorithm-1": "Alg. 1",
    "algorithm-1-repaired": "repaired",
}
WARM_MS = 10_000.0  # before memory is looked at
_DRAIN_S = 120.0  # at most; records of a query whose work is large drain on one core

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
_MAX_WORSE, _ROUNDING_S = 1.02, 0.01
_MIXED_MEAN, _MIXED_P99 = 0.65, 1.4
_PAPER_MEAN, _PAPER_P99 = 0.5, 0.55
_FULL = 40  # queries that saturate four cores
_STARVES = 1.5  # p99 over the best one's

_LINK_MS = 5.0


@dataclass(frozen=True)
class RunFigures:
    """Figures of a policy; times in seconds.

    Every window counts from the start of the run on, and the run goes on without new records until all are swept: so no
    policy looks better for windows that it leaves behind.
    """

    mean_s: float
    p99_s: float
    slowdown: float  #: latency over the CPU time of one event through the chain
    throughput: float  #: events taken in per second, all of which are processed
    taken: float  #: share of the events that was taken in and did not overflow
    memory_mean: float  #: bytes
    memory_peak: float
    busy: float  #: share of the cores, until no more records come
    unswept: int  #: windows that draining did not reach


def run_seeds(load: DrawnLoad, policy: str, seeds: int, **setting: float) -> list[KlinkRun]:
    """One run for each seed."""
    drawn = (draw_load(dataclasses.replace(load, seed=seed)) for seed in range(1, seeds + 1))
    simulation_setting = SimulationSetting(
        policy=policy, nodes=load.nodes, tick_ms=load.tick_ms, drain_s=_DRAIN_S, **setting
    )  # type: ignore[arg-type]
    return [simulate(queries, arrivals, simulation_setting) for queries, arrivals in drawn]


def run_policies(
    load: DrawnLoad,
    policies: Iterable[str],
    seeds: int,
    settings: Mapping[str, Mapping[str, float]] | None = None,
    **setting: float,
) -> dict[str, RunFigures]:
    """Figures of several policies for the same load; `settings` has more of them by policy."""
    own = settings or {}
    return {name: _figures(load, run_seeds(load, name, seeds, **setting, **own.get(name, {}))) for name in policies}


def _figures(load: DrawnLoad, done: Sequence[KlinkRun]) -> RunFigures:
    latencies = np.concatenate([run.latencies_ms() for run in done])
    queries, _ = draw_load(dataclasses.replace(load, seed=1))
    cost_ms = float(np.mean([query.cost_ms for query in queries]))
    came = sum(float(run.came.sum()) for run in done)
    lost = sum(float(run.refused.sum() + run.overflow.sum()) for run in done)
    memory = np.concatenate([run.memory_bytes.sum(axis=1)[int(WARM_MS / SAMPLE_MS) :] for run in done])
    return RunFigures(
        mean_s=float(latencies.mean()) / 1e3,
        p99_s=float(np.quantile(latencies, 0.99)) / 1e3,
        slowdown=float(latencies.mean()) / cost_ms,
        throughput=(came - lost) / (len(done) * load.horizon_s),
        taken=1 - lost / came if came else 1.0,
        memory_mean=float(memory.mean()),
        memory_peak=float(memory.max()),
        busy=float(np.mean([_busy(run) for run in done])),
        unswept=int(sum(np.isnan(swept).sum() for run in done for swept in run.swept_ms)),
    )


def _busy(run: KlinkRun) -> float:
    """Share of the cores, from the first sample to the last."""
    used_ms = run.used_ms.sum(axis=1)
    return float((used_ms[-1] - used_ms[0]) / ((len(used_ms) - 1) * SAMPLE_MS * len(run.busy_ms)))


def figure_words(figures: Mapping[str, RunFigures], say: Callable[[RunFigures], str] | None = None) -> str:
    """A row of a table: mean / p99 of every policy."""
    say = say or (lambda figure: f"{figure.mean_s:.2f}/{figure.p99_s:.2f}")
    return " ".join(f"{LABELS[name]} {say(figure)}" for name, figure in figures.items())


def met_words(true: bool) -> str:
    """Word of a table for a target that is met or missed."""
    return "meets" if true else "MISSES"


def published(seeds: int) -> None:
    """The table that this simulation is held against, side by side."""
    print("\npublished: mean/p99 in s; four cores, 40 queries saturate; what was found before, and here")
    for kind, count, bursty, limit_s, before in _PUBLISHED:
        by_policy = run_policies(
            DrawnLoad(kind, count, 1, bursty=bursty),
            ("round-robin", "fcfs", "nearest-deadline", "least-slack"),
            seeds,
            intake_s=limit_s,
        )
        said = " ".join(f"{figures.mean_s:.2f}/{figures.p99_s:.2f}" for figures in by_policy.values())
        print(f"  {_name(kind, count, bursty, limit_s):34} Default FCFS SBox Klink: {before}   here: {said}")


def policies(seeds: int, counts: tuple[int, ...], delays: tuple[str, ...]) -> bool:
    """Every load under every policy; False where Sluice's default misses a target."""
    cells: dict[tuple[str, int], list[Mapping[str, RunFigures]]] = {}
    for kind in LOADS:
        print(f"\npolicies, {kind}: mean/p99 in s, backlog limit 8 s")
        for count, delay, bursty in _grid(counts, delays):
            load = DrawnLoad(kind, count, 1, delay=delay, bursty=bursty)
            by_policy = run_policies(load, COMPARED, seeds, intake_s=8.0)
            print(f"  {_name(kind, count, bursty, 8.0)}, {delay:7} {figure_words(by_policy)}")
            own = by_policy["klink"]
            print(
                f"  {'':24} sluice: slowdown {own.slowdown:,.0f}, {own.throughput:,.0f} events/s, "
                f"{100 * own.taken:.0f} % taken in, CPU {100 * own.busy:.0f} %, "
                f"memory {own.memory_mean / 1e6:.1f} MB on average, {own.memory_peak / 1e6:.1f} MB most"
            )
            cells.setdefault((kind, count), []).append(by_policy)
    _winners(cells)
    _alike_taken([by_policy for several in cells.values() for by_policy in several])
    homogeneous = [by_policy for (kind, _), several in cells.items() if kind != "mixed" for by_policy in several]
    mixed = [
        by_policy
        for (kind, count), several in cells.items()
        if kind == "mixed" and count >= _FULL
        for by_policy in several
    ]
    return all([_never_worse(homogeneous), _mixed(mixed)])


def _grid(counts: tuple[int, ...], delays: tuple[str, ...]) -> Iterator[tuple[int, str, bool]]:
    for count in counts:
        for delay in delays:
            for bursty in (False, True):
                yield count, delay, bursty


def _name(kind: str, count: int, bursty: bool, limit_s: float) -> str:
    return f"{kind} {count:2} q, {'bursty' if bursty else 'steady'}, {limit_s:g} s"


def _winners(cells: Mapping[tuple[str, int], list[Mapping[str, RunFigures]]]) -> None:
    """Cells in which each policy is within 2 % of the best, and policies that no other beats in both figures."""
    print(
        "\nwhere each wins: cells in which a policy is within 2 % of the best mean / the best p99 / on the Pareto front"
    )
    for name, chosen in (("below saturation", range(_FULL)), ("above saturation", range(_FULL, 1_000))):
        for mixed in (False, True):
            found = [cell for (kind, count), several in cells.items() for cell in several
                     if count in chosen and (kind == "mixed") == mixed]  # fmt: skip
            if not found:
                continue
            wins: Counter[tuple[str, str]] = Counter()
            for cell in found:
                for policy, figures in cell.items():
                    wins[policy, "mean"] += _near(figures.mean_s, min(other.mean_s for other in cell.values()))
                    wins[policy, "p99"] += _near(figures.p99_s, min(other.p99_s for other in cell.values()))
                    wins[policy, "front"] += not any(_dominates(other, figures) for other in cell.values())
            said = "  ".join(
                f"{LABELS[policy]} {wins[policy, 'mean']}/{wins[policy, 'p99']}/{wins[policy, 'front']}"
                for policy in COMPARED
            )
            print(f"  {'mixed' if mixed else 'alike'}, {name}, {len(found)} cells: {said}")


def _alike_taken(cells: list[Mapping[str, RunFigures]]) -> None:
    """Whether latencies may be compared: as many records taken in, and nothing left behind."""
    apart = max(
        max(figures.taken for figures in cell.values()) - min(figures.taken for figures in cell.values())
        for cell in cells
    )
    unswept = sum(figures.unswept for cell in cells for figures in cell.values())
    print(
        f"\nfairness: share of the records taken in: at most {100 * apart:.2f} points apart between policies of a "
        f"cell; {unswept} windows not swept after draining"
    )


def _near(value: float, best: float) -> bool:
    return value <= _MAX_WORSE * best + _ROUNDING_S


def _dominates(one: RunFigures, other: RunFigures) -> bool:
    better = one.mean_s < other.mean_s / _MAX_WORSE or one.p99_s < other.p99_s / _MAX_WORSE
    return better and one.mean_s <= other.mean_s and one.p99_s <= other.p99_s


def _never_worse(cells: list[Mapping[str, RunFigures]]) -> bool:
    """Of queries alike: mean and p99 against each policy that is compared; those that starve apart."""
    worse: Counter[str] = Counter()
    worst: dict[str, float] = {}
    for cell in cells:
        own, best = cell["klink"], min(figures.p99_s for figures in cell.values())
        for name in _LISTED:
            other = cell[name]
            starving = "where it starves: " if other.p99_s > _STARVES * best else ""
            for figure, mine, its in (("mean", own.mean_s, other.mean_s), ("p99", own.p99_s, other.p99_s)):
                if not _near(mine, its):
                    key = f"{LABELS[name]} {starving}{figure}"
                    worse[key] += 1
                    worst[key] = max(worst.get(key, 0.0), mine / its)
    fair = [key for key in worse if "starves" not in key]
    print(
        f"\ntargets: alike, {len(cells)} cells: at most 2 % worse than each of "
        f"{', '.join(LABELS[figures] for figures in _LISTED)}"
    )
    for key, count in sorted(worse.items()):
        print(f"  worse than {key} in {count} cells, at most {100 * (worst[key] - 1):.0f} %")
    print(
        f"  against policies that starve nobody (p99 within {_STARVES:g} times the best): "
        f"{met_words(not fair)} the target"
    )
    print(f"  against all: {met_words(not worse)} the target")
    return not fair


def _mixed(cells: list[Mapping[str, RunFigures]]) -> bool:
    """Of a mix above saturation: mean over plain Klink's, p99 over the best one's."""
    if not cells:
        return True
    means = [cell["klink"].mean_s / cell["least-slack"].mean_s for cell in cells]
    tails = [cell["klink"].p99_s / min(figures.p99_s for figures in cell.values()) for cell in cells]
    reached = [mean <= _MIXED_MEAN and tail <= _MIXED_P99 for mean, tail in zip(means, tails, strict=True)]
    print(
        f"targets: mixed, {len(cells)} cells from 42 queries on: "
        f"mean over plain Klink's {min(means):.2f} to {max(means):.2f}, "
        f"p99 over the best {min(tails):.2f} to {max(tails):.2f}; {sum(reached)} of {len(reached)} within "
        f"{_MIXED_MEAN} and {_MIXED_P99}: {met_words(all(reached))}"
    )
    return all(reached)


def limits(seeds: int, counts: tuple[int, ...]) -> bool:
    """Three limits of the backlog: how much depends on them, and the paper's reduction where they allow it."""
    print("\nlimits, ysb (windows of 3 s): mean/p99 in s")
    reached = []
    for limit_s in (1.0, 2.0, 8.0):
        for count in counts:
            for bursty in (False, True):
                load = DrawnLoad("ysb", count, 1, bursty=bursty)
                by_policy = run_policies(load, COMPARED, seeds, intake_s=limit_s)
                print(f"  {_name('ysb', count, bursty, limit_s)} {figure_words(by_policy)}")
                if limit_s < 1.5 and not bursty:
                    reached.append(_reduction(by_policy))
    met_all = all(reached)
    print(
        "targets: 50 % of the mean and 55 % of the p99 less than Default where the limit is below the period: "
        f"{met_words(met_all)}"
    )
    return met_all


def _reduction(by_policy: Mapping[str, RunFigures]) -> bool:
    own, default = by_policy["klink"], by_policy["random"]
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
            load = DrawnLoad(kind, count, 1, bursty=bursty, waits_periods=share)
            by_policy = run_policies(load, ("round-robin", "fcfs", "least-slack", "klink"), seeds, cores=1)
            said = figure_words(
                by_policy,
                lambda figures: f"{figures.mean_s:.2f}/{figures.p99_s:.2f}, {100 * (1 - figures.taken):.1f} %;",
            )
            print(f"  {_name(kind, count, bursty, 0.0)[:-5]}, {share:4.2f} periods: {said}")


def nodes(seeds: int, counts: Sequence[int]) -> None:
    """Eighty queries on one to eight nodes of four cores: spread over them, or each over two of them."""
    print("\nnodes: 80 ysb queries, four cores each, bursty, backlog limit 8 s: mean/p99 in s")
    for count in counts:
        spread = DrawnLoad("ysb", 80, 1, bursty=True, nodes=count)
        by_policy = run_policies(
            spread, ("random", "fcfs", "highest-rate", "least-slack", "klink"), seeds, intake_s=8.0
        )
        print(f"  {count} nodes, spread: {figure_words(by_policy)}")
        if count == 1:
            continue
        for forwarding in (True, False):
            over = DrawnLoad("ysb", 80, 1, bursty=True, nodes=count, spanning=True)
            own = run_policies(over, ("fcfs", "least-slack", "klink"), seeds, intake_s=8.0, link_ms=_LINK_MS,
                         forwarding=forwarding)  # fmt: skip
            print(f"    over two nodes, delays and costs {'told' if forwarding else 'not told'}: {figure_words(own)}")


def memory(seeds: int, counts: Sequence[int]) -> None:
    """The memory mode on and off, alike and mixed, and how memory and CPU go on over time."""
    print("\nmemory: bursty, backlog limit 8 s; the mode begins at half of what waits at most: mean/p99 in s, taken in")
    for kind in ("ysb", "mixed"):
        for count in counts:
            load = DrawnLoad(kind, count, 1, bursty=True)
            for name in ("least-slack", "klink"):
                free = run_policies(load, (name,), seeds, intake_s=8.0)[name]
                bound = free.memory_peak / 2
                held = run_policies(load, (name,), seeds, intake_s=8.0, memory_bytes=bound)[name]
                print(
                    f"  {kind} {count} q, {LABELS[name]}: without {free.mean_s:.2f}/{free.p99_s:.2f}, "
                    f"{100 * free.taken:.0f} %, "
                    f"{free.memory_mean / 1e6:.1f} MB; above {bound / 1e6:.1f} MB {held.mean_s:.2f}/{held.p99_s:.2f}, "
                    f"{100 * held.taken:.0f} %, {held.memory_mean / 1e6:.1f} MB"
                )
    print("\nover time: 60 ysb queries, bursty: what waits (MB) and CPU (% of the cores) every 5 s from 10 s on")
    for limit_s in (8.0, 1.0):
        for name in ("random", "fcfs", "least-slack", "klink"):
            (run,) = run_seeds(DrawnLoad("ysb", 60, 1, bursty=True), name, 1, intake_s=limit_s)
            print(f"  limit {limit_s:g} s, {LABELS[name]:7} {_over_time(run)}")


def _over_time(run: KlinkRun) -> str:
    every = 25  # samples of 200 ms
    first = int(WARM_MS / 200)
    held = run.memory_bytes.sum(axis=1)[first::every] / 1e6
    used = np.diff(run.used_ms.sum(axis=1)[first::every]) / (every * 200 * len(run.busy_ms)) * 100
    return " ".join(f"{value:.1f}" for value in held) + "   CPU " + " ".join(f"{value:.0f}" for value in used)
