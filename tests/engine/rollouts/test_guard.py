"""The guard on made-up epochs: what is compared with what, and what is chance."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from engine.rollouts.cases import GuardCase
from engine.rollouts.guard import CaseVerdict, GuardHealth, judge_case
from engine.rollouts.measures import EpochRow, Limits

LIMITS = Limits(overflow_pp=1.0, bytes_rel=0.05, latency_rel=0.25, latency_abs_s=0.5, cpu_rel=0.1)
SECOND = 1_000_000
BEGIN = 1_700_000_000 * SECOND
APPLIED = BEGIN + 100 * SECOND

Change = Callable[[EpochRow], EpochRow]


def row(at_us: int, version: int | None = None, **fields: float) -> EpochRow:
    base = EpochRow(at_us, (1.0,), 100, 8600, 4000, 0, 0.002, 0.2, 0.198, 0.2, version)
    return replace(base, **fields)


def rows(
    seconds: int = 160,
    *,
    applied_us: int = APPLIED,
    before: Change = lambda epoch: epoch,
    after: Change = lambda epoch: epoch,
) -> list[EpochRow]:
    """Epochs of an agent that applied version 7 at `applied_us`; 0 stands for never."""
    result = []
    for i in range(seconds):
        at_us = BEGIN + i * SECOND
        has = bool(applied_us) and at_us >= applied_us
        result.append((after if has else before)(row(at_us, 7 if has else 6)))
    return result


def old(seconds: int = 160, change: Change = lambda epoch: epoch) -> list[EpochRow]:
    return rows(seconds, applied_us=0, before=change)


def case(
    canary: dict[str, list[EpochRow]], control: dict[str, list[EpochRow]] | None = None, **fields: int
) -> GuardCase:
    base = GuardCase("eu-1/q", 7, SECOND, SECOND, 0, canary, control or {}, 20, LIMITS)
    return replace(base, **fields)


def times(factor: float) -> Change:
    return lambda epoch_row: replace(epoch_row, bytes_sent=round(epoch_row.bytes_sent * factor))


def verdict(guard_case: GuardCase) -> tuple[GuardHealth, str]:
    result = judge_case(guard_case)
    return result.health, result.reasons[0]


def test_guard_waits_for_epochs_on_both_sides() -> None:
    assert verdict(case({"a": old()})) == (GuardHealth.WAITING, "eu-1/q: no epoch with c-7 yet")
    assert verdict(case({"a": rows(103)})) == (GuardHealth.WAITING, "eu-1/q: 20 more epochs are needed")
    result = judge_case(case({"a": rows(115)}))
    assert (result.health, result.epochs, result.needed) == (GuardHealth.WAITING, 10, 20)
    assert set(result.measures) == {"overflow", "bytes", "latency", "cpu"}  # to be shown already
    assert judge_case(case({"a": rows(125)})).health == GuardHealth.HEALTHY


def test_short_baseline_is_not_used() -> None:
    young = rows(160)[95:]
    result = judge_case(case({"a": young}))
    assert result.reasons == ("eu-1/q: nothing to compare with, and no record overflows",)
    overflowing = [replace(epoch_row, overflow=5) for epoch_row in young]
    assert verdict(case({"a": overflowing})) == (
        GuardHealth.WORSE,
        "eu-1/q: records overflowing 5 % at 1 agent, +5 points (limit +1 points)",
    )
    result = judge_case(case({"a": [times(2.0)(epoch_row) for epoch_row in young]}, {"b": old()}))
    assert result.reasons[0].endswith("+100 % (limit +5 %); control 40 at 1")


def test_baseline_ends_at_the_previous_config_change() -> None:
    mixed = [
        replace(epoch_row, version=5, bytes_sent=9000) if epoch_row.epoch_us < BEGIN + 80 * SECOND else epoch_row
        for epoch_row in rows()
    ]
    result = judge_case(case({"a": mixed}))
    assert result.measures["bytes"].before == 40.0


@pytest.mark.parametrize(
    ("factor", "health"), [(1.04, GuardHealth.HEALTHY), (1.06, GuardHealth.WORSE), (0.5, GuardHealth.HEALTHY)]
)
def test_measures_beyond_their_limits_are_worse(factor: float, health: GuardHealth) -> None:
    assert judge_case(case({"a": rows(after=times(factor))}, {"b": old()})).health == health


def test_large_changes_are_shown_in_whole_numbers() -> None:
    assert "+1100 % (limit +5 %)" in verdict(case({"a": rows(after=times(12.0))}, {"b": old()}))[1]


def test_change_of_the_control_group_is_subtracted() -> None:
    later: Change = lambda epoch_row: times(1.5)(epoch_row) if epoch_row.epoch_us >= APPLIED else epoch_row  # noqa: E731
    assert judge_case(case({"a": rows(after=times(1.5))}, {"b": old(change=later)})).health == GuardHealth.HEALTHY
    assert (
        judge_case(case({"a": rows()}, {"b": old(change=times(0.3))})).health == GuardHealth.HEALTHY
    )  # always was dearer
    assert judge_case(case({"a": rows(after=times(1.5))}, {"b": old()})).health == GuardHealth.WORSE


def test_cpu_time_that_saves_bytes_is_accepted() -> None:
    dearer: Change = lambda epoch_row: replace(epoch_row, used_s=3 * epoch_row.used_s)  # noqa: E731
    assert verdict(case({"a": rows(after=dearer)}, {"b": old()}))[0] == GuardHealth.WORSE
    saving: Change = lambda epoch_row: times(0.8)(dearer(epoch_row))  # noqa: E731
    assert verdict(case({"a": rows(after=saving)}, {"b": old()}))[0] == GuardHealth.HEALTHY


@pytest.mark.parametrize("control", [{}, {"b": old(change=lambda epoch_row: replace(epoch_row, records_in=8))}])
def test_cpu_time_is_at_most_doubtful_with_little_to_compare(control: dict[str, list[EpochRow]]) -> None:
    dearer: Change = lambda epoch_row: replace(epoch_row, used_s=3 * epoch_row.used_s)  # noqa: E731
    soon = judge_case(case({"a": rows(130, after=dearer)}, control))
    assert (soon.health, soon.measures["cpu"].is_doubtful) == (GuardHealth.WAITING, True)
    assert soon.reasons[0].endswith("possibly because the host is busy, with too little to compare with")
    assert judge_case(case({"a": rows(170, after=dearer)}, control)).health == GuardHealth.HEALTHY
    both = verdict(case({"a": rows(after=lambda epoch_row: times(2.0)(dearer(epoch_row)))}, control))
    assert (both[0], "bytes sent per record" in both[1]) == (GuardHealth.WORSE, True)


def test_epochs_set_by_hand_do_not_count() -> None:
    def by_hand(epoch_row: EpochRow) -> EpochRow:
        inside = 110 <= (epoch_row.epoch_us - BEGIN) // SECOND < 120
        return replace(times(5.0)(epoch_row), version=None) if inside else epoch_row

    listed = [by_hand(epoch_row) for epoch_row in rows(150)]
    result = judge_case(case({"a": listed}, {"b": old()}))
    assert (result.health, result.epochs, result.measures["bytes"].before) == (GuardHealth.HEALTHY, 25, 40.0)
    assert judge_case(case({"a": listed[:118]}, {"b": old()})).health == GuardHealth.WAITING


def test_change_within_chance_is_watched_for_a_limited_time() -> None:
    def verdict_after(seconds: int, seed: int, factor: float) -> CaseVerdict:
        chance = random.Random(seed)
        noisy: Change = lambda epoch_row: times(chance.choice([0.2, 1.8]))(epoch_row)  # noqa: E731
        listed = rows(seconds, before=noisy, after=lambda epoch_row: times(factor)(noisy(epoch_row)))
        return judge_case(case({"a": listed}))

    kinds = [verdict_after(128, seed, 1.0) for seed in range(20)]
    assert not any(kind.health == GuardHealth.WORSE for kind in kinds)
    waiting = [kind for kind in kinds if kind.health == GuardHealth.WAITING]
    assert waiting
    assert all(outcome.reasons[0].endswith("possibly by chance") for outcome in waiting)
    assert all(verdict_after(190, seed, 1.0).health == GuardHealth.HEALTHY for seed in range(20))
    assert all(verdict_after(190, seed, 4.0).health == GuardHealth.WORSE for seed in range(20))


def burst(epoch_row: EpochRow) -> EpochRow:
    """Nothing but a burst once in ten seconds, two epochs after a window's end."""
    return replace(epoch_row, bytes_sent=40_000 if epoch_row.epoch_us // SECOND % 10 == 2 else 0)


def test_whole_windows_are_compared() -> None:
    """However the application falls between windows: a span with one burst more would be 50 % worse."""
    for shift in range(10):
        moment = APPLIED + shift * SECOND
        listed = rows(190, applied_us=moment, before=burst, after=burst)
        whole = case({"a": listed}, window_us=10 * SECOND, size_us=10 * SECOND, phase_us=7 * SECOND)
        result = judge_case(whole)
        assert result.health == GuardHealth.HEALTHY
        assert result.measures["bytes"].before == result.measures["bytes"].after == 40.0
        assert result.epochs % 10 == 0


def test_window_begun_before_the_config_does_not_count() -> None:
    """Its first burst after the change is still of the old configuration, and ten times as large."""

    def after(epoch_row: EpochRow) -> EpochRow:
        large = epoch_row.epoch_us < APPLIED + 13 * SECOND
        return replace(burst(epoch_row), bytes_sent=burst(epoch_row).bytes_sent * (10 if large else 1))

    listed = rows(190, before=burst, after=after)
    result = judge_case(case({"a": listed}, window_us=10 * SECOND, size_us=10 * SECOND, phase_us=7 * SECOND))
    assert result.measures["bytes"].change == 0.0


def test_agents_with_a_changed_budget_are_left_out() -> None:
    cut: Change = lambda epoch_row: replace(times(3.0)(epoch_row), budget_s=0.05)  # noqa: E731
    result = judge_case(case({"a": rows(after=cut), "b": rows()}, {"c": old()}))
    assert (result.health, result.measures["bytes"].change) == (GuardHealth.HEALTHY, 0.0)


def test_canary_whose_budget_changed_with_the_config_is_compared_with_the_control_group() -> None:
    """Granted time also depends on the query's own work: a mistake must not pass by that."""
    moved: Change = lambda epoch_row: replace(times(3.0)(epoch_row), budget_s=0.4)  # noqa: E731
    alone = judge_case(case({"a": rows(after=moved)}, {"c": old()}))
    assert alone.health == GuardHealth.WORSE
    assert "bytes sent per record" in alone.reasons[0]
    nobody = judge_case(case({"a": rows(after=moved)}))
    assert nobody.reasons == ("eu-1/q: nothing to compare with, and no record overflows",)


def test_control_agents_whose_config_changed_are_left_out() -> None:
    """A control agent at which another configuration was just rolled back got better meanwhile."""
    since = BEGIN + 90 * SECOND
    healed = [
        replace(epoch_row, version=8 if epoch_row.epoch_us >= since else 5) for epoch_row in rows(applied_us=since)
    ]
    healed = [times(2.0)(epoch_row) if epoch_row.version == 5 else epoch_row for epoch_row in healed]
    result = judge_case(case({"a": rows()}, {"b": healed, "c": old()}))
    assert (result.health, result.measures["bytes"].change) == (GuardHealth.HEALTHY, 0.0)
    assert judge_case(case({"a": rows()}, {"b": healed})).health == GuardHealth.HEALTHY


def test_agent_without_new_epochs_is_not_waited_for() -> None:
    result = judge_case(case({"a": rows(110), "b": rows(160)}))
    assert (result.health, result.epochs) == (GuardHealth.HEALTHY, 55)


def test_query_with_few_records_passes_after_a_limited_time() -> None:
    few: Change = lambda epoch_row: replace(epoch_row, records_in=0)  # noqa: E731
    assert verdict(case({"a": rows(130, after=few)})) == (
        GuardHealth.WAITING,
        "eu-1/q: 0 records came; at least 30 are needed",
    )
    assert judge_case(case({"a": rows(170, after=few)})).health == GuardHealth.HEALTHY


def test_agents_weigh_by_their_records() -> None:
    large: Change = lambda epoch_row: replace(epoch_row, records_in=10_000, bytes_sent=20 * 10_000)  # noqa: E731
    canary = {"small": rows(), "large": rows(before=large, after=large)}
    result = judge_case(case(canary, {"c": old()}))
    assert result.health == GuardHealth.HEALTHY
    assert result.measures["bytes"].after == pytest.approx((4000 + 200_000) / 10_100)
