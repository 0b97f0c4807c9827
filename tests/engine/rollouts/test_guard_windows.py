"""The guard of a schedule on made-up epochs: how late windows are, and how many it takes to say so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from engine.rollouts.cases import GuardCase
from engine.rollouts.guard import GuardHealth, judge_case
from engine.rollouts.measures import EpochRow, Sweep, measure_windows, queries_summed
from tests.engine.rollouts.test_guard import APPLIED, BEGIN, LIMITS, SECOND, row

Late = Callable[[int], float]


def rows(
    seconds: int = 160, *, has: bool = True, late: Late = lambda i: 0.4, every: int = 1, **fields: int
) -> list[EpochRow]:
    """Epochs of an agent that took schedule 7 at `APPLIED`, with a window once in `every` seconds, so late."""
    result = []
    for i in range(seconds):
        at_us = BEGIN + i * SECOND
        version = 7 if has and at_us >= APPLIED else None
        due = at_us - SECOND
        out = due + round(1e6 * late(i))
        sweeps = (Sweep(due, None, None, due, out, out),) if i % every == 0 else ()
        result.append(replace(row(at_us), schedule_version=version, sweeps=sweeps, **fields))
    return result


def case(canary: dict[str, list[EpochRow]], control: dict[str, list[EpochRow]] | None = None) -> GuardCase:
    return GuardCase(
        "scheduling", 7, SECOND, SECOND, 0, canary, control or {}, 20, LIMITS,
        has_schedule=True, schedule_only=frozenset(canary), of_windows=True, min_sweeps=10,
    )  # fmt: skip


def after(then: float, before: float = 0.4) -> Late:
    return lambda i: (then if i >= 100 else before) + 0.01 * (i % 3)


def test_late_windows_are_worse() -> None:
    result = judge_case(case({"a": rows(late=after(1.5))}, {"b": rows(has=False)}))
    assert result.health == GuardHealth.WORSE
    assert result.reasons[0] == (
        "scheduling: mean window latency 0.4098 → 1.51 s at 1 agent, +1.1 ± 0.0019 s (limit +0.5 s); "
        "control 0.4 → 0.4 s at 1"
    )


def test_healthy_schedule_shows_its_figures() -> None:
    result = judge_case(case({"a": rows(late=after(0.2))}, {"b": rows(has=False)}))
    assert (result.health, result.windows) == (GuardHealth.HEALTHY, 55)
    assert result.reasons[0].startswith(
        "scheduling: nothing is worse over 55 windows in 55 epochs: mean window latency"
    )
    assert "0.4098 → 0.2098 s" in result.reasons[0]


def test_delay_of_all_agents_is_not_blamed_on_the_schedule() -> None:
    assert (
        judge_case(case({"a": rows(late=after(1.5))}, {"b": rows(has=False, late=after(1.5))})).health
        == GuardHealth.HEALTHY
    )


def test_few_windows_are_awaited_for_a_limited_time() -> None:
    few = judge_case(case({"a": rows(130, every=10)}))
    assert (few.health, few.windows) == (GuardHealth.WAITING, 2)
    assert few.reasons[0].startswith("scheduling: 2 windows closed; at least 10 are needed")
    over = judge_case(case({"a": rows(170, every=10)}))
    assert (over.health, over.windows) == (GuardHealth.HEALTHY, 6)
    assert "and it passes after 65 epochs" in over.reasons[0]


def test_growing_queue_is_worse() -> None:
    waiting = [replace(row, queued=150 if row.schedule_version else 10) for row in rows()]
    result = judge_case(case({"a": waiting}, {"b": rows(has=False, queued=10)}))
    assert result.health == GuardHealth.WORSE
    assert "time in queue 0.1 → 1.5 s" in result.reasons[0]


def test_tail_of_few_windows_is_at_most_doubtful() -> None:
    def tail(i: int) -> float:
        return 4.0 if i >= 100 and i % 20 == 7 else 0.4

    short = judge_case(case({"a": rows(130, late=tail)}))
    assert (short.health, short.measures["window_p99"].is_conclusive) == (GuardHealth.WAITING, False)
    assert short.reasons[0].endswith("possibly by chance, with so few windows")
    sparse = judge_case(case({"a": rows(300, late=tail, every=3)}))
    assert (sparse.health, sparse.measures["window_p99"].is_conclusive) == (GuardHealth.HEALTHY, False)
    assert judge_case(case({"a": rows(300, late=tail)})).health == GuardHealth.WORSE  # a hundred on each side


def test_guard_waits_for_the_first_epoch_with_the_config() -> None:
    result = judge_case(case({"a": rows(has=False)}))
    assert result.reasons == ("scheduling: no epoch with c-7 yet",)


def test_queries_of_an_agent_are_summed() -> None:
    one, two = rows(10, queued=3), rows(10, every=2, queued=4)
    (first, second, *_) = queries_summed({"c/q": one, "c/r": two})
    assert (first.records_in, first.queued, len(first.sweeps), len(second.sweeps)) == (200, 7, 2, 1)
    assert first.budget_s == pytest.approx(0.4)
    assert queries_summed({}) == []


def test_no_latency_without_windows() -> None:
    silent = [replace(row, sweeps=()) for row in rows()]
    span = (APPLIED, APPLIED + 40 * SECOND)
    result = measure_windows({"a": silent}, {}, before=(BEGIN, APPLIED), after=span, window_us=SECOND, limits=LIMITS)
    assert set(result) == {"overflow", "queue"}
