"""Comparison of a policy with the recorded decisions, on equal terms."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.arrays import FloatArray
from engine.backtest.period import RecordedPeriod, check_period
from engine.backtest.policy import RECORDED, ReplayPolicy
from engine.backtest.replay import MAX_SEARCHES, PolicyReplay, RequestOutcome, replay
from engine.backtest.result import (
    BacktestResult,
    MeasuredReplay,
    MovedOperator,
    ReplayedLatency,
    ReplayedLoad,
    ReplayedRequest,
    ReplayResult,
    ReplayRisk,
    ReplayViolation,
    SourceSegments,
)
from engine.records import Fact
from engine.solvers import solving

__all__ = ["backtest_policies"]

Progress = Callable[[float, str], None]


def backtest_policies(period: RecordedPeriod, policy: ReplayPolicy, progress: Progress | None = None) -> BacktestResult:
    """Replay a period under a policy and as recorded.

    Parameters
    ----------
    period : RecordedPeriod
        The recorded period.
    policy : ReplayPolicy
        The policy under test. Both replays have the same arrivals, requests and estimates; only decisions differ.
    progress : callable, optional
        Receives the share done (0 to 1) and the step in words; an exception it raises ends the backtest.

    Raises
    ------
    InfeasibleError
        Nothing was recorded in the period, or it has too many segments.
    """
    solving()
    check_period(period)
    tell = progress or (lambda share, step: None)
    recorded = replay(period, RECORDED, lambda share, step: tell(0.5 * share, f"As recorded: {step}"))
    tested = recorded
    if policy != RECORDED:
        tested = replay(period, policy, lambda share, step: tell(0.5 + 0.5 * share, f"Policy: {step}"))
    tell(1.0, "Done")
    new, old = _replay_result(tested), _replay_result(recorded)
    return BacktestResult(
        since_s=period.since_s,
        until_s=period.starts_s(period.segments),
        width_s=period.width_s,
        segments=period.segments,
        policy=policy,
        headline=_headline(new, old),
        tested=new,
        recorded=old,
        requests=_requests(tested, recorded),
        measured=_measured_rows(period, recorded),
        sources={
            name: SourceSegments(source.measured, source.known - source.measured, period.segments - source.known)
            for name, source in period.sources.items()
        },
        notes=[*period.notes, *_notes(period, tested)],
    )


def _replay_result(run: PolicyReplay) -> ReplayResult:
    outcomes = [outcome.outcome for outcome in run.outcomes]
    violations = _violations(run)
    return ReplayResult(
        policy=run.policy,
        asked=len(outcomes),
        admitted=outcomes.count("admitted"),
        queued=outcomes.count("queued"),
        review=outcomes.count("review"),
        rejected=outcomes.count("rejected"),
        left=outcomes.count("not applied"),
        violations=violations,
        seconds_over=sum(violation.seconds_over for violation in violations),
        queries_over=len(violations),
        at_risk=_at_risk(run),
        moves=run.period.recorded_moves if run.policy == RECORDED else len(run.moves),
        moved=[
            MovedOperator(
                run.period.starts_s(move.segment), move.operator, list(move.before), list(move.after), move.why
            )
            for move in run.moves
        ],
        loads={node: ReplayedLoad(mean, peak) for node, (mean, peak) in run.loads.items()},
        queries={
            query: ReplayedLatency(*run.bounds[query], _to_list(values), _to_list(run.high_s[query]))
            for query, values in sorted(run.latency_s.items())
        },
    )


def _violations(run: PolicyReplay) -> list[ReplayViolation]:
    """Queries over their objectives, the longest violation first."""
    violations = []
    for query, values in run.latency_s.items():
        statistic, bound_s = run.bounds[query]
        endless = run.endless[query]
        over = np.flatnonzero((np.nan_to_num(values) > bound_s) | endless)
        if not len(over):
            continue
        worst = int(np.nanargmax(values))
        violations.append(
            ReplayViolation(
                query=query,
                statistic=statistic,
                bound_s=bound_s,
                segments=over.tolist(),
                seconds_over=len(over) * run.period.width_s,
                first_at_s=run.period.starts_s(int(over[0])),
                worst_s=float(values[worst]),
                worst_at_s=run.period.starts_s(worst),
                endless_segments=int(endless.sum()),
            )
        )
    return sorted(violations, key=lambda violation: (-violation.seconds_over, violation.query))


def _at_risk(run: PolicyReplay) -> list[ReplayRisk]:
    """Queries that may have been over their objectives where their medians are not, the longest first."""
    rows = []
    for query, values in run.high_s.items():
        bound_s = run.bounds[query][1]
        is_over = (np.nan_to_num(run.latency_s[query]) > bound_s) | run.endless[query]
        over = np.flatnonzero((np.nan_to_num(values) > bound_s) & ~is_over)
        if len(over):
            seconds = len(over) * run.period.width_s
            rows.append(ReplayRisk(query, over.tolist(), seconds, float(values[over].max())))
    return sorted(rows, key=lambda row: (-row.seconds_at_risk, row.query))


def _requests(tested: PolicyReplay, recorded: PolicyReplay) -> list[ReplayedRequest]:
    """Every request under both policies, in the order of the requests."""
    other = {id(outcome.request): outcome for outcome in recorded.outcomes}
    rows = sorted(tested.outcomes, key=lambda outcome: (outcome.request.at_s, outcome.request.query))
    return [_request(row, other[id(row.request)]) for row in rows]


def _request(outcome: RequestOutcome, was: RequestOutcome) -> ReplayedRequest:
    return ReplayedRequest(
        id=outcome.request.id,
        query=outcome.request.query,
        at_s=outcome.request.at_s,
        outcome=outcome.outcome,
        verdict=outcome.verdict,
        reason=outcome.reason,
        started_s=outcome.started_s,
        recorded=was.outcome,
        recorded_reason=was.reason,
        recorded_started_s=was.started_s,
        differs=outcome.outcome != was.outcome,
    )


def _measured_rows(period: RecordedPeriod, recorded: PolicyReplay) -> list[MeasuredReplay]:
    """Measured latency beside the replayed one, where both are known."""
    rows = []
    for query, values in sorted(period.measured_s.items()):
        replayed = recorded.latency_s.get(query)
        if replayed is None:
            continue
        both = np.isfinite(values) & np.isfinite(replayed)
        if both.any():
            rows.append(
                MeasuredReplay(
                    query=query,
                    segments=int(both.sum()),
                    measured_s=float(np.median(values[both])),
                    replayed_s=float(np.median(replayed[both])),
                    within=int((values[both] <= replayed[both]).sum()),
                    series_s=_to_list(values),
                )
            )
    return rows


def _headline(tested: ReplayResult, was: ReplayResult) -> str:
    """Headline: the policy's effect in clauses with numbers."""
    over, was_over = _over(tested), _over(was)
    clauses = [Fact("backtests.admitted", tested.admitted, tested.asked, was.admitted), over]
    if was_over != over:
        clauses.append(Fact("backtests.as_recorded", over=was_over))
    if tested.moves:
        clauses.append(Fact("backtests.moves", count=tested.moves))
    return "; ".join(map(str, clauses))


def _over(report: ReplayResult) -> Fact:
    """The queries over their objectives, or at risk, and for how long."""
    if report.violations:
        names = [violation.query for violation in report.violations]
        first, longest_s = names[0] if len(names) > 1 else "", report.violations[0].seconds_over
        return Fact("backtests.over", names=names, first=first, longest_s=longest_s)
    if report.at_risk:
        names = [row.query for row in report.at_risk]
        return Fact("backtests.at_risk", names=names, longest_s=report.at_risk[0].seconds_at_risk)
    return Fact("backtests.held")


def _notes(period: RecordedPeriod, tested: PolicyReplay) -> list[Fact]:
    notes = [Fact("backtests.shape")]
    silent = sorted(
        source.id
        for source in period.deployment.sources
        if not (record := period.sources.get(source.id.partition("@")[0])) or not record.known
    )
    if silent:
        notes.append(Fact("backtests.kept_as_present", names=silent))
    gaps = sorted(name for name, source in period.sources.items() if 0 < source.known < period.segments)
    if gaps:
        notes.append(Fact("backtests.gaps_filled", names=gaps))
    if tested.searches_left_out:
        notes.append(Fact("backtests.searches_left_out", most=MAX_SEARCHES))
    return notes


def _to_list(values: FloatArray) -> list[float | None]:
    return [None if not np.isfinite(value) else round(float(value), 6) for value in values]
