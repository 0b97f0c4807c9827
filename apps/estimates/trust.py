"""How far estimates of a query can be trusted, by what became of earlier ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from apps.estimates.models import AccuracyObservation
from apps.fleet.choices import Evidence
from apps.queries.models import Query
from engine.measurement.trust import LEAST, RECENT, Outcome, Trust, trust

__all__ = ["evidence_of", "outcome_of", "outcomes_of", "trust_of"]


def outcome_of(row: AccuracyObservation) -> Outcome:
    """A row as the engine judges it."""
    return Outcome(row.expected_s, row.observed_s, row.half_s, row.covered)


def outcomes_of(rows: Iterable[AccuracyObservation]) -> list[Outcome]:
    """Outcomes, oldest first, of rows that come newest first."""
    return [outcome_of(row) for row in rows][::-1]


def evidence_of(result: Mapping[str, Any]) -> str:
    """What an estimate rests on: measured where no input lacks a sample and, of a live query, batches were timed."""
    live = result.get("live") or {}
    is_assumed = result.get("uncovered") or live.get("evidence") == Evidence.ASSUMED
    return Evidence.ASSUMED if is_assumed else Evidence.MEASURED


def trust_of(query: Query, statistic: str, evidence: str) -> tuple[Trust, str]:
    """Trust in new estimates of a query, and by whose past: its own, or with fewer than 20 of those its cluster's.

    Outcomes of estimates of another statistic, or of other evidence, say nothing of this one, nor do those of intervals
    in which the stream processor was not at work. Those of a cluster are
    put together in units of their half widths; absolute errors of other queries are not taken over, because queries
    differ in size.
    """
    rows = AccuracyObservation.objects.filter(statistic=statistic, evidence=evidence, disturbed="").only(
        "expected_s", "observed_s", "half_s", "covered", "starts_at"
    )
    own = trust(outcomes_of(rows.filter(query=query).order_by("-starts_at")[:RECENT]))
    if own.outcomes >= LEAST:
        return own, "query"
    others = trust(outcomes_of(rows.filter(cluster=query.cluster_id).order_by("-starts_at")[:RECENT]))
    if others.concluded:
        return Trust(others.factor, others.score, others.outcomes, None, True), "cluster"
    return own, "query"
