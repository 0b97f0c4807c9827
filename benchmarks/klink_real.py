"""Policies side by side on a real agent's runtime: twenty windowed queries, one recorded input, a CPU budget."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import fields

from benchmarks.klink_runs import met
from benchmarks.klink_source import LOADS, QUERIES, Recording, recordings
from benchmarks.klink_watch import EPOCH_S, Seen, watch
from engine.klink.settings import POLICIES

__all__ = ["real"]

_BASE = "round-robin"  # that the others are held against
_BUDGETS = {"bursts": 1.25, "saturated": 0.8}  # for operators, of what they take on average when nothing is short
_WARM_S, _RUN_S = 5.0, 20
_QUICK_WARM_S, _QUICK_RUN_S = 1.0, 5
_FULL, _FULL_WARM_S, _FULL_S = 5.0, 1.0, 4  # times the usual records, more than epochs take
_SHARE = 0.005  # of throughput, that scheduling may take


def real(repeats: int, *, quick: bool = False) -> bool:
    """Print the tables of every load and budget, and what scheduling takes; False where that is above its target."""
    print(
        f"\nreal: {QUERIES} windowed queries on one agent's runtime, epochs of {EPOCH_S:g} s, all at the source\n"
        f"  the clock is the process's CPU time and what it would have slept; medians of {repeats}, order rotated"
    )
    for load in LOADS[:1] if quick else LOADS:
        for name in list(_BUDGETS)[:1] if quick else _BUDGETS:
            _compare(load, name, repeats, quick)
    return _overhead(1 if quick else repeats)


def _compare(load: str, name: str, repeats: int, quick: bool) -> None:
    """One load under one budget: each repeat has an input of its own, and every policy runs on it."""
    share = _BUDGETS[name]
    warm_s, run_s = (_QUICK_WARM_S, _QUICK_RUN_S) if quick else (_WARM_S, _RUN_S)
    seen: dict[str, list[Seen]] = {policy: [] for policy in POLICIES}
    budgets = []
    for repeat in range(repeats):
        found = recordings(load, run_s + 1, seed=repeat + 1)
        budgets.append(_budget(found, share, warm_s, run_s))
        for policy in _rotated(repeat):
            seen[policy].append(watch(found, policy, budgets[-1], warm_s, run_s))
    said = ", ".join(f"{one:.3f}" for one in budgets)
    print(f"  {load}, {name}: budget of {said} cores, for operators {share:g} of what they take")
    for policy in POLICIES:
        print(f"    {policy:14} {_words(seen[policy], seen[_BASE])}")


def _rotated(repeat: int) -> Sequence[str]:
    at = repeat % len(POLICIES)
    return POLICIES[at:] + POLICIES[:at]


def _budget(found: Sequence[Recording], share: float, warm_s: float, run_s: float) -> float:
    """Cores that leave operators this share of what they take, beside all that the process takes else."""
    whole = watch(found, _BASE, 1.0, warm_s, run_s)
    return whole.cores + (share - 1.0) * whole.operators


def _words(seen: Sequence[Seen], base: Sequence[Seen]) -> str:
    """Medians; ratios are those of runs on the same input."""
    mid = {one.name: statistics.median(getattr(run, one.name) for run in seen) for one in fields(Seen)}
    ratios = [
        statistics.median(getattr(a, name) / getattr(b, name) for a, b in zip(seen, base, strict=True))
        for name in ("mean_s", "p99_s")
    ]
    return (
        f"latency mean {mid['mean_s']:.2f} p50 {mid['p50_s']:.2f} p99 {mid['p99_s']:.2f} s "
        f"(x {ratios[0]:.2f}, {ratios[1]:.2f} of {_BASE}; watermarks {mid['arrived_s']:.2f})  "
        f"overflow {100 * mid['overflow']:.1f} %  memory {mid['memory_mean'] / 1e6:.2f}, most "
        f"{mid['memory_peak'] / 1e6:.1f} MB  CPU {mid['cores']:.3f} cores, operators {mid['operators']:.3f}  "
        f"scheduling {100 * mid['scheduling']:.2f} %, picks {100 * mid['picks']:.2f} %"
    )


def _overhead(pairs: int) -> bool:
    """A core that is given as many records as epochs take: records per second, and what scheduling takes."""
    found = recordings(LOADS[0], _FULL_S + 1, seed=1, times=_FULL)
    seen: dict[str, list[Seen]] = {"klink": [], _BASE: []}
    for pair in range(pairs):
        for policy in sorted(seen, reverse=bool(pair % 2)):
            seen[policy].append(watch(found, policy, 1.0, _FULL_WARM_S, _FULL_S))
    ratios = [a.processed / b.processed for a, b in zip(seen["klink"], seen[_BASE], strict=True)]

    def middle(policy: str, of: Callable[[Seen], float]) -> float:
        return statistics.median(map(of, seen[policy]))

    shares = {policy: middle(policy, lambda one: one.scheduling) for policy in seen}
    rates = {policy: f"{middle(policy, lambda one: one.processed):,.0f}" for policy in seen}
    turns = {policy: f"{100 * middle(policy, lambda one: one.picks):.2f} %" for policy in seen}
    good = shares["klink"] <= _SHARE
    print(
        f"  one core, as many records as epochs take, {pairs} pairs: klink "
        f"{rates['klink']} records/s, {_BASE} {rates[_BASE]}; "
        f"ratio {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})\n"
        f"  scheduling takes {100 * shares['klink']:.2f} % of the CPU time under klink (turns {turns['klink']}), "
        f"{100 * shares[_BASE]:.2f} % under {_BASE} (turns {turns[_BASE]}): {met(good)} {100 * _SHARE:g} %"
    )
    return good
