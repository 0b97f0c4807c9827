"""Findings of a cluster's newest estimate, in the words and numbers of its overview."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from django.db.models import Count, Exists, OuterRef, Q, QuerySet
from django.db.models.fields.json import KT
from django.urls import reverse
from django.utils.safestring import SafeString

from apps.admission.models import AdmissionRequest
from apps.estimates.choices import Certainty, DecidedBy, TrustState
from apps.estimates.models import EstimateRun, NodeEstimate, QueryEstimate
from apps.estimates.selectors import (
    NodeTotals,
    ServerLoad,
    estimates_named,
    nodes_by_excess,
    objectives_by_headroom,
    run_latest,
    servers_drawn,
)
from apps.fleet.models import Cluster
from apps.pages.context import url_of
from apps.queries.choices import ObjectiveState, QueryState
from apps.queries.models import Query
from apps.ui.numbers import MISSING, Quantity, percent, ratio, seconds
from apps.ui.pictures import EXCESS_CAP_S, heat_strip
from apps.ui.sentences import sentence
from apps.ui.times import ago
from engine.words import counted

__all__ = ["Findings", "NodeLine", "Stat", "StateGroup", "StateTotals", "first_estimates"]

_MAX_LINES = 16  # a strip is a hundred rectangles
_HISTORY_RUNS = 24
_DECISIONS = 5
_MAX_NAMED = 4  # of a group of queries
_MAX_SAID = 2  # of a group, by name in the sentence
_MAX_UNESTIMATED = 3


@dataclass(frozen=True)
class Stat:
    """One value of the strip below the title."""

    name: str
    value: Quantity
    note: str
    tone: str = ""


@dataclass(frozen=True)
class NodeLine:
    """A server's strip of excess."""

    name: str
    url: str
    strip: SafeString
    peak: Quantity
    peak_tone: str
    load: str


def first_estimates(rows: QuerySet[QueryEstimate], limit: int) -> list[QueryEstimate]:
    """The first of some estimates: sorted by their keys, and read by them."""
    return estimates_named(list(rows.values_list("pk", flat=True)[:limit]))


class StateGroup:
    """Estimates of one state: how many, and the first of them by headroom, read where they are named.

    States change between the statement that `counted` them and the one that reads them: of as few as the sentence
    names, those that are read count.
    """

    def __init__(self, rows: QuerySet[QueryEstimate], counted: int) -> None:
        self.rows, self.counted = rows, counted

    @property
    def count(self) -> int:
        return self.counted if self.counted > _MAX_SAID else len(self.first)

    @cached_property
    def first(self) -> list[QueryEstimate]:
        return first_estimates(self.rows, _MAX_NAMED) if self.counted else []


@dataclass(frozen=True)
class StateTotals:
    """Estimates of one state: how many, with an objective, measured lately, that have lost their trust, that nothing
    decides since they cannot be observed, that no measurement decides, and whose estimate has figures.
    """

    n: int = 0
    judged: int = 0
    measured: int = 0
    lost: int = 0
    unobserved: int = 0
    expected: int = 0
    open: int = 0


class Findings:
    """The newest run of a cluster; every property is read when a template asks for it, and none reads every query."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    @cached_property
    def run(self) -> EstimateRun | None:
        return run_latest(self.cluster)

    @cached_property
    def running_count(self) -> int:
        return self._running.count()

    @property
    def _running(self) -> QuerySet[Query]:
        return self.cluster.queries.filter(state=QueryState.RUNNING)

    @cached_property
    def rows(self) -> QuerySet[QueryEstimate]:
        """Estimates of the queries that still run, least headroom first."""
        return objectives_by_headroom(self.run).filter(query__state=QueryState.RUNNING)

    @cached_property
    def totals(self) -> dict[str, StateTotals]:
        """Counts of the estimates in each state, in one statement."""
        if self.run is None:
            return {}
        counted = (
            self.rows.order_by()
            .values("shown_state")
            .annotate(
                n=Count("pk"),
                judged=Count("pk", filter=Q(bound_s__gt=0.0)),
                measured=Count("measured_rank"),
                lost=Count("pk", filter=Q(trust=TrustState.LOST)),
                expected=Count("pk", filter=~Q(status__decided_by=DecidedBy.MEASUREMENT)),
                unobserved=Count("pk", filter=Q(status__decided_by=DecidedBy.NOTHING)),
                open=Count("pk", filter=Q(certainty=Certainty.KNOWN) & ~Q(status__decided_by=DecidedBy.NOTHING)),
            )
        )
        return {row.pop("shown_state"): StateTotals(**row) for row in counted}

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of estimates by state."""
        return {state: total.n for state, total in self.totals.items()}

    @property
    def expected_counts(self) -> dict[str, int]:
        """Numbers of estimates by state that no measurement decides."""
        return {state: total.expected for state, total in self.totals.items()}

    @property
    def row_count(self) -> int:
        return sum(total.n for total in self.totals.values())

    @property
    def lost_count(self) -> int:
        """Number of those that have lost their trust."""
        return sum(total.lost for total in self.totals.values())

    @cached_property
    def unestimated(self) -> tuple[int, list[Query]]:
        """Number of queries that started after the newest estimate, and the first three."""
        if self.row_count == self.running_count:
            return 0, []
        rows = self._running.filter(~Exists(QueryEstimate.objects.filter(run=self.run, query=OuterRef("pk"))))
        return self.running_count - self.row_count, list(rows.order_by("name")[:_MAX_UNESTIMATED])

    @cached_property
    def has_nodes(self) -> bool:
        return self.cluster.nodes.exists()

    @cached_property
    def last_runs(self) -> dict[int, datetime]:
        """The last runs with their times, the newest first."""
        runs = EstimateRun.objects.filter(cluster=self.cluster).values_list("pk", "created_at")
        return dict(runs[:_HISTORY_RUNS])

    def histories(self, queries: Collection[int]) -> dict[int, list[float]]:
        """Estimates of some queries in the last runs, oldest first."""
        rows = QueryEstimate.objects.filter(run__in=list(self.last_runs), query__in=queries).order_by("run_id")
        estimates: dict[int, list[float]] = {}
        for query_id, estimate_s in rows.values_list("query_id", "estimate_s"):
            estimates.setdefault(query_id, []).append(estimate_s)
        return estimates

    def _group(self, state: ObjectiveState) -> StateGroup:
        return StateGroup(self.rows.filter(shown_state=state), self.counts.get(state, 0))

    @property
    def judged(self) -> int:
        """Number of those with an objective."""
        return sum(total.judged for total in self.totals.values())

    @cached_property
    def least(self) -> QueryEstimate | None:
        """The estimate with the least headroom of those with an objective."""
        return next(iter(first_estimates(self.rows.filter(bound_s__gt=0.0), 1)), None) if self.judged else None

    @property
    def held(self) -> int:
        """Objectives that hold by measurement and with their whole interval; one at risk is not among them."""
        return self.counts.get(ObjectiveState.HOLDS, 0)

    @property
    def has_measured(self) -> bool:
        """Whether something that counts was measured lately of any of them."""
        return any(total.measured for total in self.totals.values())

    # -- the sentence
    @property
    def sentence(self) -> SafeString:
        return sentence("pages/overview/sentences/finding.html", findings=self)

    @cached_property
    def breached(self) -> StateGroup:
        return self._group(ObjectiveState.BREACHED)

    @property
    def expected_breaches(self) -> int:
        """Number of the breached that an estimate alone expects to be late."""
        return self.totals.get(ObjectiveState.BREACHED, StateTotals()).expected

    @property
    def has_measured_breach(self) -> bool:
        """Whether one of the breached was measured."""
        return self.expected_breaches < self.counts.get(ObjectiveState.BREACHED, 0)

    @property
    def over_words(self) -> str:
        """Words before `over`: empty where all was measured."""
        if not self.expected_breaches:
            return ""
        return "or are expected to be" if self.has_measured_breach else "expected to be"

    @property
    def unknown_words(self) -> str:
        """`, 2 are not known`: empty where all are."""
        count = self.unknown.count
        return f", {count} {'is' if count == 1 else 'are'} not known" if count else ""

    @cached_property
    def risky(self) -> StateGroup:
        return self._group(ObjectiveState.AT_RISK)

    @cached_property
    def unknown(self) -> StateGroup:
        """Queries of which nobody knows whether they hold."""
        return self._group(ObjectiveState.UNKNOWN)

    @cached_property
    def unestimable(self) -> StateGroup:
        """Those of them that could be observed: nothing is known of their latency."""
        total = self.totals.get(ObjectiveState.UNKNOWN, StateTotals())
        return StateGroup(self._observable.exclude(certainty=Certainty.KNOWN), total.n - total.unobserved - total.open)

    @cached_property
    def open_ended(self) -> StateGroup:
        """Those of them whose estimate has no known upper end, because of the policies of their nodes."""
        total = self.totals.get(ObjectiveState.UNKNOWN, StateTotals())
        return StateGroup(self._observable.filter(certainty=Certainty.KNOWN), total.open)

    @property
    def _observable(self) -> QuerySet[QueryEstimate]:
        return self.rows.filter(shown_state=ObjectiveState.UNKNOWN).exclude(status__decided_by=DecidedBy.NOTHING)

    @property
    def risky_high(self) -> Quantity | None:
        """Upper end of the first risky estimate's interval; None where that is not what is over the objective."""
        first = next(iter(self.risky.first), None)
        is_over = first is not None and (first.high_s or 0.0) > (first.bound_s or 0.0)
        return seconds(first.high_s, apart_from=first.bound_s) if first is not None and is_over else None

    @property
    def least_headroom(self) -> tuple[float | None, float | None]:
        return self.least.headroom if self.least is not None else (None, None)

    @cached_property
    def when(self) -> str:
        if self.run is None:
            return ""
        stretch = seconds(self.run.horizon_s)
        when, base = ago(self.run.created_at), self.run.base_facts
        if base is None or not base.moves or base.made_at is None:
            return f"Estimated {when} in {seconds(self.run.duration_s)}, over {stretch} of arrivals."
        rest = f"everything was computed {ago(base.made_at)}, and {counted(base.moves, 'change')} since"
        return f"Estimated {when} over {stretch} of arrivals: {rest}."

    # -- the strip
    @cached_property
    def stats(self) -> list[Stat]:
        return [self._holding(), self._least(), self._excess(), self._load()]

    def _holding(self) -> Stat:
        breached, risky, unknown = self.breached.count, self.risky.count, self.unknown.count
        over = "breached" if self.has_measured_breach else "expected late"
        note = f"{breached} {over}, {risky} at risk" if breached or risky else "None at risk"
        note += f", {unknown} not known" if unknown else ""
        return Stat("Objectives that hold", Quantity(str(self.held), f"of {self.judged}"), note)

    def _least(self) -> Stat:
        row = self.least
        if row is None:
            return Stat("Smallest headroom", Quantity(MISSING), "No objective set")
        gap, share = row.headroom
        if gap is None:
            never = row.judged_state == ObjectiveState.BREACHED
            words = "is expected never to catch up" if row.is_expected else "never catches up"
            unknown = "None is known" if row.certainty == Certainty.KNOWN else "No latency is known"
            note = f"{row.query.name} {words}" if never else unknown
            return Stat("Smallest headroom", Quantity(MISSING), note, "bad" if never else "watch")
        over = (share or 0) < 0
        size = percent(abs(share or 0))
        expected = "expected " if row.is_expected else ""
        note = f"{row.query.name}, {expected}{size} over" if over else f"{row.query.name}, {size} of its objective"
        tone = "bad" if over else "watch" if row.judged_state == ObjectiveState.AT_RISK else ""
        return Stat("Smallest headroom", seconds(gap), note, tone)

    def _excess(self) -> Stat:
        if not self.servers:
            return Stat("Largest node excess", Quantity(MISSING), "No estimate yet")
        worst = self.servers[0]
        tone = "watch" if worst.excess_s >= EXCESS_CAP_S else ""
        return Stat("Largest node excess", seconds(worst.excess_s), f"{worst.name}, work waiting at its peak", tone)

    def _load(self) -> Stat:
        busiest = nodes_by_excess(self.run).order_by("-mean", "-excess", "place").first() if self.run else None
        if busiest is None:
            return Stat("Highest load", Quantity(MISSING), "No estimate yet")
        tone = "bad" if busiest["mean"] > 1 else ""
        note = f"{busiest['place']}, mean; {ratio(busiest['peak'])} at its peak"
        return Stat("Highest load", Quantity(ratio(busiest["mean"]), "of capacity"), note, tone)

    # -- nodes
    @cached_property
    def servers(self) -> list[ServerLoad]:
        """The nodes with the most excess, as many as are drawn; a link only where work waits for it."""
        if self.run is None:
            return []
        return servers_drawn(self.run, list(self._drawn.values_list("place", flat=True)[:_MAX_LINES]))

    @cached_property
    def node_lines(self) -> list[NodeLine]:
        return [self._line(server) for server in self.servers]

    @cached_property
    def lines_left(self) -> int:
        """Number of nodes with less excess than those shown."""
        return self._drawn.count() - _MAX_LINES if len(self.servers) == _MAX_LINES else 0

    @property
    def _drawn(self) -> QuerySet[NodeEstimate, NodeTotals]:
        rows: Any = nodes_by_excess(self.run) if self.run is not None else NodeEstimate.objects.none()
        return rows.exclude(node_name="", excess=0.0)  # type: ignore[no-any-return]

    def _line(self, server: ServerLoad) -> NodeLine:
        url = url_of("pages:node", self.cluster.slug, server.node_name) if server.node_name else ""
        peak = seconds(server.excess_s)
        strip = heat_strip(server.excess, f"{server.name}: highest excess {peak}")
        tone = "watch" if server.excess_s >= EXCESS_CAP_S else ""
        return NodeLine(server.name.replace("->", " → "), url, strip, peak, tone, ratio(server.mean_load))

    # -- decisions
    @cached_property
    def decisions(self) -> QuerySet[AdmissionRequest]:
        rows = AdmissionRequest.objects.filter(cluster=self.cluster).exclude(verdict="")
        rows = rows.select_related("version__query", "decided_by").defer("result", "snapshot_parts")
        return rows.annotate(headline=KT("result__headline")).order_by("-created_at")[:_DECISIONS]

    @property
    def key(self) -> list[tuple[str, str]]:
        key = [("bar", "Estimate"), ("band", "Interval, 90%"), ("objective", "Objective")]
        return [*key, ("measured", "Measured")] if self.has_measured else key

    @property
    def rest_path(self) -> str:
        return f"{reverse('api-index')}estimates?cluster={self.cluster.slug}"
