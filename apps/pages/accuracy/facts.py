"""Facts of a cluster's estimates, in the words and numbers of its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property

from django.db.models import Count, Exists, OuterRef, QuerySet
from django.urls import reverse
from django.utils import timezone
from django.utils.safestring import SafeString

from apps.estimates.calibration import INTERVAL
from apps.estimates.choices import RunOrigin, TrustState, UnscoredReason
from apps.estimates.models import AccuracyObservation, IntervalCalibration
from apps.estimates.summary import (
    AccuracySummary,
    OriginAccuracy,
    accuracy_listed,
    accuracy_origins,
    accuracy_summary,
    calibrations_listed,
    measured_alone,
    unscored_listed,
)
from apps.fleet.choices import Evidence
from apps.fleet.models import Cluster
from apps.jobs.models import Job, JobKind
from apps.jobs.selectors import job_under_way
from apps.pages.accuracy.calibration import (
    CalibrationLine,
    CoveragePart,
    calibration_lines,
    calibration_sentence,
    coverage_parts,
    error_chart,
    factors_chart,
    latency_chart,
    trust_words,
)
from apps.pages.accuracy.latency import LatencyPart, latency_parts
from apps.pages.overview.findings import Stat
from apps.queries.choices import QueryState
from apps.queries.models import Query
from apps.results.models import ResultWindow
from apps.telemetry.configs import live_served
from apps.ui.charts import Chart
from apps.ui.numbers import MISSING, Quantity, count, percent, ratio
from apps.ui.sentences import sentence
from engine.measurement.trust import RECENT
from engine.words import counted

__all__ = ["SPANS", "AccuracyFacts", "accuracy_tabs", "bias_text"]

SPANS = {
    "1h": ("Last hour", timedelta(hours=1)),
    "24h": ("Last 24 hours", timedelta(days=1)),
    "7d": ("Last 7 days", timedelta(days=7)),
    "30d": ("Last 30 days", timedelta(days=30)),
}
_DEFAULT_SPAN = "24h"
_FAIR = 0.86  # what 90 % intervals of a hundred outcomes may cover without being too narrow
_BIASED = 0.1


def accuracy_tabs(slug: str, current: str) -> list[tuple[str, str, bool]]:
    """Tabs of the pages on accuracy."""
    tabs = (
        ("estimates", "Estimates", "pages:accuracy"),
        ("promises", "Promises", "pages:promises"),
        ("model", "Prediction model", "pages:prediction-model"),
    )
    return [(label, reverse(name, args=[slug]), tab == current) for tab, label, name in tabs]


def bias_text(bias: float | None) -> str:
    """8.1% too high, 3% too low, right on average."""
    if bias is None:
        return MISSING
    if abs(bias) < 0.005:
        return "right on average"
    return f"{percent(bias)} too high" if bias > 0 else f"{percent(-bias)} too low"


@dataclass(frozen=True)
class LeftOut:
    """A reason why something is left out: how many of what, and what that means."""

    reason: str
    unit: str
    number: int
    note: str

    @property
    def words(self) -> str:
        """3 intervals."""
        return counted(self.number, self.unit, "queries" if self.unit == "query" else "")


class AccuracyFacts:
    """The observations that the address chooses; every property is computed when a template asks for it."""

    def __init__(self, cluster: Cluster, given: Mapping[str, str]) -> None:
        self.cluster = cluster
        self.span = given.get("span", "") if given.get("span", "") in SPANS else _DEFAULT_SPAN
        self.evidence = given.get("evidence", "") if given.get("evidence", "") in Evidence.values else ""
        self.query = given.get("query", "") if self._is_judged(given.get("query", "")) else ""
        self.origin = self._chosen_origin(given.get("origin", ""))

    def _chosen_origin(self, wanted: str) -> RunOrigin:
        """The wanted origin; else the first that has runs in this time, agents before others."""
        if wanted in RunOrigin.values:
            return RunOrigin(wanted)
        return self.by_origin[0].origin if self.by_origin else RunOrigin.LIVE

    spans = [(key, label) for key, (label, _) in SPANS.items()]
    evidences = Evidence.choices

    def _is_judged(self, query: str) -> bool:
        """Whether a query was ever judged."""
        return AccuracyObservation.objects.filter(cluster=self.cluster, query__name=query).exists()

    @cached_property
    def has_judged(self) -> bool:
        """Whether any query was ever judged."""
        return AccuracyObservation.objects.filter(cluster=self.cluster).exists()

    @cached_property
    def by_origin(self) -> list[OriginAccuracy]:
        """Figures of every origin apart, of the query, time and evidence chosen."""
        return accuracy_origins(self._of_all_origins)

    @cached_property
    def rows(self) -> QuerySet[AccuracyObservation]:
        """The observations chosen, newest first, of one origin."""
        return self._of_all_origins.filter(origin=self.origin)

    @property
    def is_simulated(self) -> bool:
        """Whether nothing was measured of what is shown."""
        return self.origin == RunOrigin.SIMULATED

    @cached_property
    def can_simulate(self) -> bool:
        """Whether anything runs that could be simulated."""
        return Query.objects.filter(cluster=self.cluster, state=QueryState.RUNNING).exists()

    @cached_property
    def simulation_job(self) -> Job | None:
        return job_under_way(JobKind.SIMULATION, self.cluster)

    @cached_property
    def _of_all_origins(self) -> QuerySet[AccuracyObservation]:
        rows = accuracy_listed().filter(cluster=self.cluster, starts_at__gte=timezone.now() - SPANS[self.span][1])
        if self.query:
            rows = rows.filter(query__name=self.query)
        return rows.filter(evidence=self.evidence) if self.evidence else rows

    @cached_property
    def summary(self) -> AccuracySummary:
        return accuracy_summary(self.rows)

    @property
    def is_empty(self) -> bool:
        return not self.summary.rows

    @cached_property
    def live_count(self) -> int:
        return live_served().filter(query__cluster=self.cluster).count()

    @property
    def disturbed(self) -> str:
        """1 interval left out: the stream processor was warming up."""
        parts = [
            f"{counted(number, 'interval')} left out: the stream processor was {work.label}"
            for work, number in self.summary.disturbed.items()
        ]
        return f"{'; '.join(parts)}." if parts else ""

    @cached_property
    def left_out(self) -> list[LeftOut]:
        """Reasons for which something counts for nothing or not in full, the most frequent first."""
        rows = unscored_listed().filter(cluster=self.cluster, starts_at__gte=timezone.now() - SPANS[self.span][1])
        if self.query:
            rows = rows.filter(query__name=self.query)
        if self.origin != RunOrigin.LIVE:
            rows = rows.none()  # what is not scored of a live query
        by_reason = rows.order_by().values_list("reason").annotate(number=Count("pk"))
        found = [
            *(
                LeftOut(f"The stream processor was {work.label}", "interval", number, "not scored")
                for work, number in self.summary.disturbed.items()
            ),
            LeftOut("A person said why a verdict was wrong", "interval", self.summary.set_aside, "set aside"),
            *(LeftOut(UnscoredReason(reason).label, "interval", number, "not scored") for reason, number in by_reason),
            LeftOut(
                "The estimate had no interval",
                "interval",
                self.summary.without_interval,
                "counts for bias and error, not for coverage",
            ),
            LeftOut(
                "Incomplete, revised, of another version, or of clocks that contradict each other",
                "window",
                self.summary.windows_left_out,
                "left out of a scored interval",
            ),
            LeftOut("Runs, but nothing measures it", "query", self._unmeasured_count, "neither live nor reported"),
            LeftOut("Live, but without a result in this time", "query", self._silent_count, "nothing to score"),
        ]
        return sorted((row for row in found if row.number), key=lambda row: -row.number)

    @cached_property
    def _running(self) -> QuerySet[Query]:
        rows = Query.objects.filter(cluster=self.cluster, state=QueryState.RUNNING)
        return rows.filter(name=self.query) if self.query else rows

    @property
    def _unmeasured_count(self) -> int:
        """Running queries that are neither live nor were reported in this time."""
        live = live_served().filter(query__cluster=self.cluster).values("query")
        scored = measured_alone(self._of_all_origins).order_by().values("query")
        return self._running.exclude(pk__in=live).exclude(pk__in=scored).count()

    @property
    def _silent_count(self) -> int:
        """Live queries of which no result came in this time."""
        since = timezone.now() - SPANS[self.span][1]
        live = self._running.filter(pk__in=live_served().values("query"))
        result = ResultWindow.objects.filter(query=OuterRef("pk"), emitted_at__gte=since)
        return live.filter(~Exists(result)).count()

    # -- the finding

    @property
    def sentence(self) -> SafeString | str:
        if not self.has_judged:
            return "No estimate has been held against a measurement yet."
        if self.is_empty:
            return self.disturbed or f"No run of {self.origin.label} is among what is chosen here."
        return sentence("pages/accuracy/sentences/finding.html", facts=self)

    @property
    def bias(self) -> str:
        return bias_text(self.summary.judged.bias)

    @property
    def span_words(self) -> str:
        return SPANS[self.span][0].lower().replace("last", "the last")

    @property
    def subject(self) -> str:
        """2 live queries; 1 query that runs on Flink; 3 queries in simulations."""
        number = len(self.summary.queries)
        if self.origin == RunOrigin.LIVE:
            return counted(number, "live query", "live queries")
        queries = counted(number, "query", "queries")
        return f"{queries} in simulations" if self.is_simulated else f"{queries} measured by {self.origin.label}"

    @property
    def interval_count(self) -> int:
        return sum(row.covered is not None for row in self.summary.rows)

    @property
    def stats(self) -> list[Stat]:
        found = self.summary.judged
        fair = found.coverage is None or found.coverage >= _FAIR
        measured = sum(row.evidence == Evidence.MEASURED for row in self.summary.rows) / found.outcomes
        return [
            Stat("Coverage", percent(found.coverage), "of 90% intervals; 90% is right", "" if fair else "bad"),
            Stat("Bias", _signed(found.bias), "of all estimates; below 0 is the risky side", _bias_tone(found.bias)),
            Stat("Error, median", percent(found.median_error), f"of the {self.observed_word} latency"),
            self._least_trust(),
            Stat(
                "Intervals",
                Quantity(count(found.outcomes)),
                f"{percent(measured)} on measured statistics",
            ),
        ]

    def _least_trust(self) -> Stat:
        """The query whose last intervals held least often."""
        judged = [query for query in self.summary.queries if query.trust_score is not None]
        if not judged:
            return Stat("Least trust", Quantity(MISSING), f"no query has {RECENT} judged intervals")
        least = min(judged, key=lambda query: query.trust_score or 0.0)
        row = least.calibration
        assert row is not None
        tone = "" if row.trust == TrustState.HOLDING else "bad"
        note = f"{least.query.name}: {trust_words(row.held or 0, row.judged or 0)}"
        return Stat("Least trust", Quantity(ratio(least.trust_score)), note, tone)

    # -- calibration

    @cached_property
    def _calibration(self) -> IntervalCalibration | None:
        """That of the query of the charts."""
        rows = (query.calibration for query in self.summary.queries if query.query.name == self.drawn)
        return next(rows, None)

    @property
    def calibration_sentence(self) -> SafeString | str:
        return calibration_sentence(self._calibration)

    @property
    def calibration_lines(self) -> list[CalibrationLine]:
        """Wide groups, and the query of the charts."""
        own = [self._calibration] if self._calibration else []
        return calibration_lines([*self.summary.calibrations, *own])

    @property
    def factors_chart(self) -> Chart | None:
        """History of the factors of the query of the charts."""
        row = self._calibration
        if row is None:
            return None
        since = timezone.now() - SPANS[self.span][1]
        same = {name: getattr(row, name) for name in ("origin", "evidence", "statistic", "windowed")}
        rows = calibrations_listed().filter(query=row.query_id, **same).exclude(until__lt=since)
        return factors_chart(list(rows.order_by("since", "pk")))

    # -- pictures

    @cached_property
    def drawn(self) -> str:
        """The query of the charts: the chosen one, else the one with the most observations."""
        return self.query or max(self.summary.queries, key=lambda query: query.judged.outcomes).query.name

    @cached_property
    def _drawn_rows(self) -> list[AccuracyObservation]:
        return [row for row in reversed(self.summary.rows) if row.query.name == self.drawn]

    @property
    def charts(self) -> list[Chart]:
        rows = self._drawn_rows
        return [latency_chart(rows, INTERVAL, self.observed_word), error_chart(rows, INTERVAL, self.observed_word)]

    @property
    def observed_word(self) -> str:
        return "simulated" if self.is_simulated else "measured"

    @property
    def stretch_words(self) -> str:
        """Length of what a run is about: 30 s of a live query, the stretch that was reported, the horizon."""
        if self.origin == RunOrigin.LIVE:
            return "each 30 s"
        return "the horizon, from an empty start" if self.is_simulated else "each stretch that was reported"

    @cached_property
    def coverage(self) -> Sequence[CoveragePart]:
        return coverage_parts(list(reversed(self.summary.rows)), INTERVAL)

    @property
    def parts(self) -> list[LatencyPart]:
        """Parts of the newest estimate of the query that is drawn."""
        return latency_parts(self.newest.parts)

    @property
    def newest(self) -> AccuracyObservation:
        return self._drawn_rows[-1]

    @property
    def api_path(self) -> str:
        chosen = {
            "cluster": self.cluster.slug,
            "origin": self.origin.value,
            "query": self.query,
            "evidence": self.evidence,
        }
        return "/api/v1/accuracy?" + "&".join(f"{name}={value}" for name, value in chosen.items() if value)


def _signed(bias: float | None) -> Quantity:
    if bias is None:
        return Quantity(MISSING)
    found = percent(abs(bias))
    sign = "+" if bias >= 0.005 else "\u2212" if bias <= -0.005 else ""
    return Quantity(f"{sign}{found.text}", found.unit)


def _bias_tone(bias: float | None) -> str:
    """Too low is the dangerous side."""
    return "bad" if bias is not None and bias < -_BIASED else ""
