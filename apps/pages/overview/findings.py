"""Findings of a cluster's newest estimate, in the words and numbers of its overview."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from django.db.models import QuerySet
from django.db.models.fields.json import KT
from django.urls import reverse
from django.utils.safestring import SafeString

from apps.admission.models import AdmissionRequest
from apps.estimates.models import EstimateRun, QueryEstimate
from apps.estimates.selectors import (
    UNKNOWN_RANK,
    ServerLoad,
    node_estimates,
    objectives_by_headroom,
    run_latest,
    servers_by_node,
)
from apps.fleet.models import Cluster
from apps.pages.context import url_of
from apps.queries.choices import ObjectiveState, QueryState
from apps.queries.models import Query
from apps.queries.selectors import queries_never_run
from apps.ui.numbers import MISSING, Quantity, percent, ratio, seconds
from apps.ui.pictures import EXCESS_CAP_S, heat_strip
from apps.ui.sentences import sentence
from apps.ui.times import ago

__all__ = ["Findings", "NodeLine", "Stat", "headroom_of", "headroom_rank"]

_MAX_LINES = 16  # a strip is a hundred rectangles
_HISTORY_RUNS = 24
_DECISIONS = 5


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


def headroom_of(row: QueryEstimate) -> tuple[float | None, float | None]:
    """Headroom of an estimate's objective, in seconds and as a share of it (`QueryEstimate.headroom`)."""
    return row.headroom


def headroom_rank(state: str, share: float | None) -> float | None:
    """Headroom to sort by: what never catches up has less than any, what nobody knows less than all that holds.

    None, the last of all, for what has no objective, does not run or is not estimated yet.
    """
    if share is None and state == ObjectiveState.BREACHED:
        return -math.inf
    return UNKNOWN_RANK if share is None and state == ObjectiveState.UNKNOWN else share


class Findings:
    """The newest run of a cluster, read once; every property is computed when a template asks for it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    @cached_property
    def run(self) -> EstimateRun | None:
        return run_latest(self.cluster)

    @cached_property
    def running(self) -> dict[int, Query]:
        rows = Query.objects.filter(cluster=self.cluster, state=QueryState.RUNNING).order_by("name")
        return {query.pk: query for query in rows}

    @cached_property
    def rows(self) -> list[QueryEstimate]:
        """Estimates of the queries that still run, least headroom first."""
        if self.run is None:
            return []
        return [row for row in objectives_by_headroom(self.run) if row.query_id in self.running]

    @cached_property
    def never_run(self) -> set[int]:
        """Ids of the queries whose costs nobody knows."""
        return queries_never_run(self.cluster)

    @cached_property
    def unestimated(self) -> list[Query]:
        """Queries that started after the newest estimate."""
        estimated = {row.query_id for row in self.rows}
        return [query for pk, query in self.running.items() if pk not in estimated]

    @cached_property
    def servers(self) -> list[ServerLoad]:
        return servers_by_node(node_estimates(self.run)) if self.run is not None else []

    @cached_property
    def has_nodes(self) -> bool:
        return self.cluster.nodes.exists()

    @cached_property
    def last_runs(self) -> dict[int, datetime]:
        """The last runs with their times, the newest first."""
        runs = EstimateRun.objects.filter(cluster=self.cluster).values_list("pk", "created_at")
        return dict(runs[:_HISTORY_RUNS])

    @cached_property
    def history(self) -> dict[int, list[float]]:
        """Estimates of each query in the last runs, oldest first."""
        runs = list(self.last_runs)
        rows = QueryEstimate.objects.filter(run__in=runs).order_by("run_id").values_list("query_id", "estimate_s")
        estimates: dict[int, list[float]] = {}
        for query_id, estimate_s in rows:
            estimates.setdefault(query_id, []).append(estimate_s)
        return estimates

    def with_state(self, state: str) -> list[QueryEstimate]:
        """Estimates of queries whose state, by measurement and estimate, is `state`."""
        return [row for row in self.rows if row.judged_state == state]

    @cached_property
    def judged(self) -> list[QueryEstimate]:
        """Those with an objective."""
        return [row for row in self.rows if row.bound_s]

    @property
    def held(self) -> int:
        """Objectives that hold by measurement and with their whole interval; one at risk is not among them."""
        return len(self.with_state(ObjectiveState.HOLDS))

    @cached_property
    def has_measured(self) -> bool:
        """Whether something that counts was measured lately of any of them."""
        return any(row.measured_s is not None for row in self.rows)

    # -- the sentence
    @property
    def sentence(self) -> SafeString:
        return sentence("pages/overview/sentences/finding.html", findings=self)

    @cached_property
    def breached(self) -> list[QueryEstimate]:
        return self.with_state(ObjectiveState.BREACHED)

    @cached_property
    def risky(self) -> list[QueryEstimate]:
        return self.with_state(ObjectiveState.AT_RISK)

    @cached_property
    def unknown(self) -> list[QueryEstimate]:
        """Estimates of queries of whose latency nothing is known, since nothing comes out."""
        return self.with_state(ObjectiveState.UNKNOWN)

    @property
    def risky_high(self) -> Quantity:
        """Upper end of the first risky estimate's interval."""
        return seconds(self.risky[0].high_s, apart_from=self.risky[0].bound_s)

    @property
    def least_headroom(self) -> tuple[float | None, float | None]:
        return headroom_of(self.judged[0])

    @cached_property
    def when(self) -> str:
        if self.run is None:
            return ""
        stretch = seconds(self.run.horizon_s)
        return f"Estimated {ago(self.run.created_at)} in {seconds(self.run.duration_s)}, over {stretch} of arrivals."

    # -- the strip
    @cached_property
    def stats(self) -> list[Stat]:
        return [self._holding(), self._least(), self._excess(), self._load()]

    def _holding(self) -> Stat:
        breached, risky = len(self.breached), len(self.risky)
        note = f"{breached} breached, {risky} at risk" if breached or risky else "None at risk"
        note += f", {len(self.unknown)} unknown" if self.unknown else ""
        return Stat("Objectives that hold", Quantity(str(self.held), f"of {len(self.judged)}"), note)

    def _least(self) -> Stat:
        if not self.judged:
            return Stat("Smallest headroom", Quantity(MISSING), "No objective set")
        row = self.judged[0]
        gap, share = headroom_of(row)
        if gap is None:
            never = row.judged_state == ObjectiveState.BREACHED
            note = f"{row.query.name} never catches up" if never else "No latency is known"
            return Stat("Smallest headroom", Quantity(MISSING), note, "bad" if never else "watch")
        over = (share or 0) < 0
        size = percent(abs(share or 0))
        note = f"{row.query.name}, {size} over" if over else f"{row.query.name}, {size} of its objective"
        tone = "bad" if over else "watch" if row.judged_state == ObjectiveState.AT_RISK else ""
        return Stat("Smallest headroom", seconds(gap), note, tone)

    def _excess(self) -> Stat:
        if not self.servers:
            return Stat("Largest node excess", Quantity(MISSING), "No estimate yet")
        worst = self.servers[0]
        tone = "watch" if worst.excess_s >= EXCESS_CAP_S else ""
        return Stat("Largest node excess", seconds(worst.excess_s), f"{worst.name}, work waiting at its peak", tone)

    def _load(self) -> Stat:
        if not self.servers:
            return Stat("Highest load", Quantity(MISSING), "No estimate yet")
        busiest = max(self.servers, key=lambda server: server.mean_load)
        tone = "bad" if busiest.mean_load > 1 else ""
        note = f"{busiest.name}, mean; {ratio(busiest.peak_load)} at its peak"
        return Stat("Highest load", Quantity(ratio(busiest.mean_load), "of capacity"), note, tone)

    # -- nodes
    @cached_property
    def node_lines(self) -> list[NodeLine]:
        """The nodes with the most excess; a link only where work waits for it."""
        return [self._line(server) for server in self._drawn[:_MAX_LINES]]

    @property
    def lines_left(self) -> int:
        """Number of nodes with less excess than those shown."""
        return max(0, len(self._drawn) - _MAX_LINES)

    @cached_property
    def _drawn(self) -> list[ServerLoad]:
        return [server for server in self.servers if server.node_name or server.excess_s > 0]

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
