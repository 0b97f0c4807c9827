"""Metrics of the whole console: what `/metrics` tells, read of kept rows alone.

A scrape estimates nothing and takes as many statements for a thousand queries as for one. What is listed by name is
bounded: queries with the least headroom, nodes with the highest load; how many are left out is a metric of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Avg, Count, F, Min, OuterRef, Q, QuerySet, Subquery
from prometheus_client.metrics_core import InfoMetricFamily
from prometheus_client.process_collector import ProcessCollector

from agent import VERSION
from apps.admission.choices import OPEN
from apps.admission.models import AdmissionRequest
from apps.connections.choices import ConnectionState
from apps.connections.models import Connection
from apps.core.clock import shared_now
from apps.core.deliveries import DeliveryState
from apps.core.health import health_states
from apps.core.metrics import Family, Metric
from apps.estimates.choices import Certainty
from apps.estimates.models import EstimateRun, IntervalCalibration, NodeEstimate, ObjectiveStatus, QueryEstimate
from apps.estimates.selectors import places_by_load
from apps.fleet.models import Cluster
from apps.incidents.choices import IncidentState
from apps.incidents.models import Incident, IncidentDelivery
from apps.jobs.models import FINISHED, Job, JobState
from apps.jobs.selectors import queues_waiting_since
from apps.queries.choices import QueryState
from apps.queries.models import Query
from apps.telemetry.models import Agent, AgentState
from apps.telemetry.selectors import SILENT_S
from apps.telemetry.streams import stream_families, stream_figures

__all__ = ["console_families", "health_families"]

_LATELY = timedelta(hours=1)  # jobs that are counted
_DAY = timedelta(days=1)  # decisions that are counted
_CLUSTER, _QUERY, _NODE = ("cluster",), ("cluster", "query"), ("cluster", "node")

_HEALTHY = Metric("sluice_healthy", "Whether a part of the installation is in order.", labels=("part",))
_LEFT_OUT = Metric("sluice_scrape_left_out", "What is not listed by name, for its number.", labels=("of",))

# -- clusters
_ESTIMATED = Metric("sluice_cluster_estimated_timestamp_seconds", "When a cluster was estimated.", labels=_CLUSTER)
_CLUSTER_RATE = Metric(
    "sluice_cluster_max_rate_per_second",
    "Estimated: largest sum of its sources' rates that a cluster sustains, all of them growing by one factor.",
    labels=_CLUSTER,
)
_CLUSTER_NOW = Metric("sluice_cluster_rate_per_second", "Sum of the present rates of its sources.", labels=_CLUSTER)
_QUERIES = Metric("sluice_queries", "Queries by state.", labels=("cluster", "state"))
_OBJECTIVES = Metric(
    "sluice_objectives", "Running queries by the state of their objective.", labels=("cluster", "state")
)
_UNTRUSTED = Metric("sluice_queries_trust", "Queries by trust in their intervals.", labels=("cluster", "trust"))

# -- queries
_OBJECTIVE = Metric("sluice_query_objective_seconds", "Bound of the objective.", labels=(*_QUERY, "statistic"))
_STATE = Metric(
    "sluice_query_objective_state",
    "1 for the state that the objective is in, and the evidence that decides it.",
    labels=(*_QUERY, "state", "decided_by"),
)
_ESTIMATE = Metric("sluice_query_estimate_seconds", "Estimate of the objective's statistic.", "estimate_s", _QUERY)
_LOW = Metric("sluice_query_estimate_low_seconds", "Lower end of its 90 % interval.", "low_s", _QUERY)
_HIGH = Metric("sluice_query_estimate_high_seconds", "Upper end of its 90 % interval.", "high_s", _QUERY)
_UNCERTAIN = Metric(
    "sluice_query_estimate_missing", "1 where there is no estimate to tell, and why.", labels=(*_QUERY, "why")
)
_MEASURED = Metric(
    "sluice_query_measured_seconds", "Measured lately, of the same statistic; missing where too little was.",
    "measured_s", _QUERY,
)  # fmt: skip
_HEADROOM_S = Metric(
    "sluice_query_headroom_seconds", "Objective minus the larger of measurement and estimate.", labels=_QUERY
)
_HEADROOM = Metric("sluice_query_headroom_ratio", "Headroom as a share of the objective.", labels=_QUERY)
_RATE = Metric("sluice_query_max_rate_per_second", "Estimated: largest rate sustained.", "rate_per_s", _QUERY)
_RATE_LOW = Metric("sluice_query_max_rate_low_per_second", "Lower end of its 90 % interval.", "low_per_s", _QUERY)
_RATE_HIGH = Metric("sluice_query_max_rate_high_per_second", "Upper end of its 90 % interval.", "high_per_s", _QUERY)

# -- nodes and links
_PEAK = Metric("sluice_node_estimated_peak_load_ratio", "Estimated: largest load of a subinterval.", "peak", _NODE)
_MEAN = Metric("sluice_node_estimated_mean_load_ratio", "Estimated: mean load over the horizon.", "mean", _NODE)
_EXCESS = Metric("sluice_node_estimated_excess_seconds", "Estimated: largest excess of a core.", "excess", _NODE)

# -- admission
_ADMISSIONS = Metric("sluice_admission_open", "Requests that something may become of.", "n", ("cluster", "state"))
_ADMISSION_AGE = Metric("sluice_admission_oldest_age_seconds", "Age of the oldest.", labels=("cluster", "state"))
_DECISIONS = Metric("sluice_admission_decided", "Verdicts of the last 24 h.", "n", ("cluster", "verdict"))

# -- accuracy: of all scored runs of an origin, as they are calibrated
_GROUP = ("cluster", "origin", "evidence")
_SCORED = Metric("sluice_accuracy_runs", "Scored runs that weigh.", "runs", _GROUP)
_COVERAGE = Metric("sluice_accuracy_coverage_ratio", "Share of 90 % intervals that held.", "coverage_after", _GROUP)
_BIAS = Metric("sluice_accuracy_bias_ratio", "Median of measured over estimated latency.", "bias", _GROUP)

# -- incidents, agents, engines
_INCIDENTS = Metric("sluice_incidents_open", "Open incidents.", labels=("cluster", "cause", "severity", "acknowledged"))
_NOTICES = Metric("sluice_incident_messages", "Messages that wait, or were given up.", "n", ("channel", "state"))
_AGENTS = Metric("sluice_agents", "Agents by whether they report.", labels=("cluster", "state"))
_ENGINES = Metric("sluice_connection_up", "Whether an engine answers as it should.", labels=("cluster", "connection"))

# -- jobs
_JOBS = Metric("sluice_jobs_unfinished", "Jobs that wait or run.", "n", ("kind", "state"))
_JOB_AGE = Metric("sluice_job_queue_age_seconds", "Age of the oldest job that waits.", labels=("kind",))
_QUEUE_AGE = Metric("sluice_queue_age_seconds", "Age of the oldest job that waits; 0: none does.", labels=("queue",))
_FINISHED = Metric("sluice_jobs_finished", "Of the jobs asked for in the last hour.", "n", ("kind", "state"))
_LASTED = Metric("sluice_job_mean_duration_seconds", "Their mean duration.", labels=("kind", "state"))


def console_families() -> Iterator[Family]:
    """All that is known. Labels name clusters, queries, nodes, engines and words of the console, and nothing else."""
    now = shared_now()
    yield from _cluster_families()
    yield from _admission_families(now)
    yield from _accuracy_families()
    yield from _incident_families()
    yield from _agent_families(now)
    yield from _job_families(now)
    yield from stream_families(stream_figures())


def health_families() -> Iterator[Family]:
    """States of the installation's parts, version, and figures of the web process that answers."""
    yield InfoMetricFamily("sluice_build", "Version of Sluice.", {"version": VERSION})
    yield _HEALTHY.family(*(((part,), float(state == "ok")) for part, state in health_states().items()))
    yield from ProcessCollector(registry=None).collect()


def _cluster_families() -> Iterator[Family]:
    newest = EstimateRun.objects.filter(cluster=OuterRef("pk")).order_by("-created_at", "-pk").values("pk")[:1]
    runs = EstimateRun.objects.filter(pk__in=Cluster.objects.annotate(run=Subquery(newest)).values("run"))
    rows = list(
        runs.order_by("cluster__slug").values(
            "pk",
            "cluster__slug",
            "created_at",
            "result__capacity__rate_per_s",
            "result__capacity__now_per_s",
            "result__capacity__measured_s",
        )
    )
    yield _ESTIMATED.family(*(((row["cluster__slug"],), row["created_at"].timestamp()) for row in rows))
    yield _CLUSTER_NOW.family(*(((row["cluster__slug"],), row["result__capacity__now_per_s"]) for row in rows))
    sure = [row for row in rows if row["result__capacity__measured_s"] is None]  # else of seconds, and rough
    yield _CLUSTER_RATE.family(*(((row["cluster__slug"],), row["result__capacity__rate_per_s"]) for row in sure))
    queries = Query.objects.order_by().values_list("cluster__slug", "state").annotate(n=Count("pk"))
    yield _counts(_QUERIES, queries)
    running = ObjectiveStatus.objects.filter(query__state=QueryState.RUNNING).order_by()
    yield _counts(_OBJECTIVES, running.values_list("query__cluster__slug", "state").annotate(n=Count("pk")))
    pks = [row["pk"] for row in rows]
    estimates = QueryEstimate.objects.filter(run__in=pks, query__state=QueryState.RUNNING)
    least = estimates.order_by(F("status__headroom_share").asc(nulls_last=True), "pk")
    listed = list(_with_figures(least)[: settings.METRICS_LISTED])
    yield from _query_families(sorted(listed, key=_query_labels))
    places = places_by_load(NodeEstimate.objects.filter(run__in=pks))
    nodes = list(places[: settings.METRICS_LISTED])
    for metric in (_PEAK, _MEAN, _EXCESS):
        yield metric.family(*(((row["run__cluster__slug"], row["place"]), row[metric.field]) for row in nodes))
    counts = {"queries": estimates.count() - len(listed), "nodes": places.count() - len(nodes)}
    yield _LEFT_OUT.family(*(((name,), float(number)) for name, number in counts.items()))


def _query_families(rows: Sequence[QueryEstimate]) -> Iterator[Family]:
    judged = [(_query_labels(row), row.standing) for row in rows]
    yield _STATE.family(*(((*labels, row.state, row.decided_by), 1.0) for labels, row in judged if row))
    yield _OBJECTIVE.family(*(((*_query_labels(row), row.statistic), row.bound_s) for row in rows if row.bound_s))
    known = [row for row in rows if row.certainty == Certainty.KNOWN]
    for metric, shown in ((_ESTIMATE, known), (_LOW, known), (_HIGH, known), (_MEASURED, rows)):
        yield metric.family(*((_query_labels(row), getattr(row, metric.field)) for row in shown))
    yield _UNCERTAIN.family(
        *(((*_query_labels(row), row.certainty), 1.0) for row in rows if row.certainty != Certainty.KNOWN)
    )
    headrooms = [(_query_labels(row), row.headroom) for row in rows]
    yield _HEADROOM_S.family(*((labels, gap_s) for labels, (gap_s, _) in headrooms))
    yield _HEADROOM.family(*((labels, share) for labels, (_, share) in headrooms))
    for metric in (_RATE, _RATE_LOW, _RATE_HIGH):
        yield metric.family(
            *((_query_labels(row), getattr(row, metric.field)) for row in rows if row.capacity_measured_s is None)
        )


def _with_figures(rows: QuerySet[QueryEstimate]) -> QuerySet[QueryEstimate]:
    """Without the answers themselves, which are long."""
    capacity = "result__capacity__"
    own = ("statistic", "bound_s", "estimate_s", "low_s", "high_s", "state", "certainty")
    status = [f"status__{name}" for name in ("state", "decided_by", "value_s", "measured_s", "lacking", "estimate")]
    return (
        rows.select_related("query__cluster", "status")
        .only(*own, "run", "query__name", "query__cluster__slug", *status)
        .annotate(
            rate_per_s=F(f"{capacity}rate_per_s"),
            low_per_s=F(f"{capacity}low_per_s"),
            high_per_s=F(f"{capacity}high_per_s"),
            capacity_measured_s=F(f"{capacity}measured_s"),
        )
    )


def _query_labels(row: QueryEstimate) -> tuple[str, str]:
    return row.query.cluster.slug, row.query.name


def _admission_families(now: datetime) -> Iterator[Family]:
    requests = AdmissionRequest.objects.order_by()
    groups = requests.filter(state__in=OPEN).values("cluster__slug", "state")
    rows = [
        ((row["cluster__slug"], row["state"]), row)
        for row in groups.annotate(n=Count("pk"), oldest=Min("created_at")).order_by("cluster__slug", "state")
    ]
    yield _ADMISSIONS.family(*((labels, row["n"]) for labels, row in rows))
    yield _ADMISSION_AGE.family(*((labels, _age_s(row["oldest"], now)) for labels, row in rows))
    decided = requests.filter(created_at__gte=now - _DAY).exclude(verdict="")
    yield _counts(_DECISIONS, decided.values_list("cluster__slug", "verdict").annotate(n=Count("pk")))


def _accuracy_families() -> Iterator[Family]:
    in_force = IntervalCalibration.objects.filter(until=None).order_by("cluster__slug", "origin", "evidence")
    groups: list[Any] = list(
        in_force.filter(query=None, statistic="").values(
            "cluster__slug", "origin", "evidence", "runs", "coverage_after", "bias"
        )
    )
    for metric in (_SCORED, _COVERAGE, _BIAS):
        yield metric.family(
            *(((row["cluster__slug"], row["origin"], row["evidence"]), row[metric.field]) for row in groups)
        )
    trusted = in_force.exclude(query=None).exclude(trust="").order_by()
    yield _counts(_UNTRUSTED, trusted.values_list("cluster__slug", "trust").annotate(n=Count("query", distinct=True)))


def _incident_families() -> Iterator[Family]:
    groups = Incident.objects.filter(state=IncidentState.OPEN).order_by()
    seen = Q(acknowledged_at=None)
    rows = groups.values("cluster__slug", "cause_kind", "severity").annotate(
        n=Count("pk"), new=Count("pk", filter=seen)
    )
    numbers = [
        ((row["cluster__slug"], row["cause_kind"], row["severity"], word), float(number))
        for row in rows.order_by("cluster__slug", "cause_kind", "severity")
        for word, number in (("no", row["new"]), ("yes", row["n"] - row["new"]))
    ]
    yield _INCIDENTS.family(*numbers)
    waiting = IncidentDelivery.objects.exclude(state=DeliveryState.SENT).order_by()
    yield _counts(_NOTICES, waiting.values_list("channel", "state").annotate(n=Count("pk")))


def _agent_families(now: datetime) -> Iterator[Family]:
    enabled = Q(enabled=True)
    heard = Q(last_seen__gte=now - timedelta(seconds=SILENT_S))
    states = {
        AgentState.DISABLED: ~enabled,
        AgentState.NEVER: enabled & Q(last_seen=None),
        AgentState.SILENT: enabled & Q(last_seen__lt=now - timedelta(seconds=SILENT_S)),
        "reporting": enabled & heard,
    }
    counts = {str(state): Count("pk", filter=condition) for state, condition in states.items()}
    rows: Any = Agent.objects.order_by().values("cluster__slug").annotate(**counts).order_by("cluster__slug")
    yield _AGENTS.family(*(((row["cluster__slug"], state), row[state]) for row in rows for state in counts))
    engines = Connection.objects.order_by("cluster__slug", "name").exclude(state=ConnectionState.NEW)
    listed = list(engines.values_list("cluster__slug", "name", "state")[: settings.METRICS_LISTED])
    yield _ENGINES.family(*(((slug, name), float(state == ConnectionState.CONNECTED)) for slug, name, state in listed))


def _job_families(now: datetime) -> Iterator[Family]:
    unfinished = Job.objects.order_by().exclude(state__in=FINISHED).values("kind", "state")
    rows = list(unfinished.annotate(n=Count("pk"), oldest=Min("created_at")).order_by("kind", "state"))
    yield _JOBS.family(*(((_kind(row), row["state"]), row["n"]) for row in rows))
    queued = [row for row in rows if row["state"] == JobState.QUEUED]
    yield _JOB_AGE.family(*(((_kind(row),), _age_s(row["oldest"], now)) for row in queued))
    oldest = queues_waiting_since()
    yield _QUEUE_AGE.family(*(((queue,), _age_s(since or now, now)) for queue, since in oldest.items()))
    lately = Job.objects.order_by().filter(state__in=FINISHED, created_at__gte=now - _LATELY).values("kind", "state")
    lasted = Avg(F("finished_at") - F("started_at"))
    ended = list(lately.annotate(n=Count("pk"), lasted=lasted).order_by("kind", "state"))
    yield _FINISHED.family(*(((_kind(row), row["state"]), row["n"]) for row in ended))
    yield _LASTED.family(
        *(((_kind(row), row["state"]), row["lasted"] and row["lasted"].total_seconds()) for row in ended)
    )


def _counts(metric: Metric, groups: QuerySet[Any, Any]) -> Family:
    """Rows of labels and, last, their number."""
    return metric.family(*((labels, float(number)) for *labels, number in sorted(groups)))


def _kind(row: dict[str, Any]) -> str:
    return str(row["kind"]).removeprefix("workers.")


def _age_s(since: datetime, now: datetime) -> float:
    return max(0.0, (now - since).total_seconds())
