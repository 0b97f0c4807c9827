"""Builds the demo: people, clusters, running queries, requests with every verdict. Run again, it adds what lacks."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.accounts.choices import Role
from apps.accounts.models import User
from apps.accounts.services import user_create
from apps.admission.choices import AdmissionState, Verdict
from apps.admission.decisions import admission_apply
from apps.admission.models import AdmissionRequest
from apps.admission.previews import ADMISSION
from apps.admission.questions import AdmissionQuestion
from apps.admission.selectors import admission_headline
from apps.demo import queries
from apps.demo.jobs import (
    DemoJobs,
    backtest_build,
    event_build,
    forecast_build,
    histories_build,
    reports_build,
    resource_plans_build,
    scenarios_build,
)
from apps.demo.live import live_build
from apps.demo.queries import FRAUD_RULES, NOTE, RUNNING, DemoQuery, operators_of
from apps.estimates.refresh import refresh_paused
from apps.estimates.selectors import run_latest
from apps.estimates.services import ESTIMATE
from apps.fleet.models import Cluster
from apps.fleet.services import cluster_create, link_create, node_create, pool_create
from apps.microbatch.models import SparkQueryOrigin
from apps.microbatch.progress import progress_ingest
from apps.microbatch.services import spark_query_create
from apps.planning.choices import PlacementObjective
from apps.planning.placement_search import PLACEMENT
from apps.planning.plans import PLANS
from apps.predictions.services import prediction_of_new
from apps.queries.arrivals.services import arrivals_create_from_generator, arrivals_fields_update
from apps.queries.models import Query, QueryVersion
from apps.queries.services import query_create, query_start, query_version_create

__all__ = ["PASSWORD", "demo_build"]

CLUSTER: dict[str, Any] = {
    "slug": "eu-1",
    "name": "Europe 1",
    "environment": "prod",
    "time_zone": "Europe/Berlin",
    "subinterval_s": 2.0,
    "horizon_s": 1800.0,
    "preview_valid_s": 6 * 3600,
}
STAGING: dict[str, Any] = {
    "slug": "eu-2",
    "name": "Europe 2",
    "environment": "staging",
    "time_zone": "Europe/Berlin",
    "subinterval_s": 1.0,
    "horizon_s": 600.0,
}

# name, cycles/s of one core, cores, memory, price per hour, nodes
POOLS: list[tuple[str, float, int, int, str, list[str]]] = [
    ("general", 2.4e9, 2, 16 * 2**30, "0.2100", [f"n{i:02}" for i in range(1, 9)]),
    ("compute", 3.0e9, 4, 32 * 2**30, "0.4800", [f"n{i:02}" for i in range(9, 13)]),
]
STAGING_POOLS: list[tuple[str, float, int, int, str, list[str]]] = [
    ("small", 2.0e9, 2, 8 * 2**30, "0.0900", ["s1", "s2"]),
]

_RACKS = 4  # n01, n05 and n09 stand in r1, n02, n06 and n10 in r2, and so on

# Between racks: 10 Gbit/s with a delay; n07 feeds n09 over an older link of 1 Gbit/s
LINKS: list[tuple[str, str, float, float]] = [
    ("n07", "n09", 1.25e8, 0.002),
    ("n05", "n06", 1.25e9, 0.0005),
    ("n01", "n02", 1.25e9, 0.0005),
    ("n02", "n08", 1.25e9, 0.0005),
]

# Fields of each source's events, which a prediction needs: ints, strings, doubles
EVENT_FIELDS: dict[str, tuple[int, int, int]] = {
    "payments": (3, 4, 1),
    "clicks": (2, 5, 0),
    "checkouts": (1, 2, 1),
    "impressions": (3, 4, 0),
    "searches": (1, 3, 0),
    "positions": (2, 1, 3),
    "app-logs": (2, 6, 0),
    "sensors": (2, 1, 2),
    "baskets": (3, 2, 1),
    "settlements": (2, 4, 2),
}

# source, what it is, generator
SOURCES: list[tuple[str, str, dict[str, object]]] = [
    (
        "payments",
        "Card payments, all shops",
        {"kind": "diurnal", "mean_rate_eps": 1250.0, "swing": 0.35, "peak_s": 750.0, "day_s": 1800.0, "seed": 11},
    ),
    (
        "clicks",
        "Page views of the shops",
        {"kind": "on_off", "mean_rate_eps": 3600.0, "ratio": 3.0, "high_period_s": 40.0, "seed": 12},
    ),
    ("checkouts", "Paid orders", {"kind": "poisson", "mean_rate_eps": 230.0, "seed": 13}),
    (
        "impressions",
        "Shown advertisements",
        {"kind": "on_off", "mean_rate_eps": 4200.0, "ratio": 4.0, "high_period_s": 45.0, "seed": 14},
    ),
    (
        "searches",
        "Search requests",
        {"kind": "diurnal", "mean_rate_eps": 1500.0, "swing": 0.5, "peak_s": 1100.0, "day_s": 1800.0, "seed": 15},
    ),
    (
        "positions",
        "Positions of the vans",
        {"kind": "diurnal", "mean_rate_eps": 2600.0, "swing": 0.3, "peak_s": 450.0, "day_s": 1800.0, "seed": 16},
    ),
    ("app-logs", "Log lines of all services", {"kind": "poisson", "mean_rate_eps": 6200.0, "seed": 17}),
    ("sensors", "Readings of the warehouses' sensors", {"kind": "poisson", "mean_rate_eps": 1400.0, "seed": 18}),
    (
        "baskets",
        "Changes of shopping baskets",
        {"kind": "on_off", "mean_rate_eps": 700.0, "ratio": 5.0, "high_period_s": 30.0, "seed": 19},
    ),
    (
        "settlements",
        "Entries of the clearing run",
        {"kind": "diurnal", "mean_rate_eps": 800.0, "swing": 0.6, "peak_s": 0.0, "day_s": 3600.0, "seed": 20},
    ),
]


PASSWORD = "sluice-demo"

Say = Callable[[str], None]
_NOW = DemoJobs()


def demo_build(say: Say, *, in_background: bool = False) -> None:
    """Build what of the demo is not there yet.

    With `in_background`, plans, placement, forecast, scenarios and the report are left to the workers: what runs and
    the verdicts are there at once, the rest follows.
    """
    later = DemoJobs(in_background)
    user = _user("demo", Role.ADMIN)
    _user("viewer", Role.VIEWER)
    with refresh_paused():
        cluster = Cluster.objects.filter(slug=CLUSTER["slug"]).first() or _production(user, say)
        if not Cluster.objects.filter(slug=STAGING["slug"]).exists():
            _staging()
        if run_latest(cluster) is None:
            say("Estimating nine running queries")
            _estimate(cluster, user)
        _requests(cluster, user, say)
        if _is_overtaken(cluster):
            say("Estimating again with what was admitted")
            _estimate(cluster, user)
        _predict(cluster)
        say("Histories of ten sources, and what is to be found out: forecast, plans, placement, scenarios, a report")
        histories_build(cluster)
        event_build(cluster, user)
        forecast_build(cluster, user, later)
        _compare(cluster.queries.get(name=FRAUD_RULES.name), user, later)
        _propose(cluster, user, later)
        scenarios_build(cluster, user, later)
        backtest_build(cluster, user, later)
        spark_query_build(cluster, user)
        resource_plans_build(cluster, user, later)
        reports_build(cluster, user, later)
    live_build(user, say)


def _user(name: str, role: Role) -> User:
    user = User.objects.filter(username=name).first()
    if user is None:
        user = user_create(username=name, password=PASSWORD, role=role)
        user.time_zone = "Europe/Berlin"
        user.save(update_fields=["time_zone"])
    return user


@transaction.atomic
def _production(user: User, say: Say) -> Cluster:
    say("Registering cluster eu-1: 12 nodes, 10 sources, 9 queries")
    cluster = cluster_create(**CLUSTER)
    nodes = _nodes(cluster, POOLS)
    for source, target, bandwidth, delay_s in LINKS:
        link_create(source=nodes[source], target=nodes[target], bandwidth_bytes_s=bandwidth, delay_s=delay_s)
    for source_id, description, spec in SOURCES:
        row = arrivals_create_from_generator(cluster=cluster, source_id=source_id, spec=spec, description=description)
        fields = dict(zip(("ints", "strings", "doubles"), EVENT_FIELDS[source_id], strict=True))
        arrivals_fields_update(arrivals=row, event_fields=fields)
    for plan in RUNNING:
        query = _query(cluster, plan, user)
        query_start(version=query.versions.get(), placement=_placement(plan))
    other = cluster.queries.get(name=FRAUD_RULES.name)
    query_version_create(query=other, body={"operators": operators_of(FRAUD_RULES)}, note=NOTE, user=user)
    _query(cluster, queries.NEVER_RAN, user)
    return cluster


@transaction.atomic
def _staging() -> None:
    _nodes(cluster_create(**STAGING), STAGING_POOLS)


def _nodes(cluster: Cluster, pools: list[tuple[str, float, int, int, str, list[str]]]) -> dict[str, Any]:
    nodes: dict[str, Any] = {}
    for name, capacity_cps, cores, memory_bytes, price, members in pools:
        pool = pool_create(
            cluster=cluster,
            name=name,
            capacity_cps=capacity_cps,
            cores=cores,
            memory_bytes=memory_bytes,
            price_per_hour=price,
        )
        nodes |= {member: node_create(pool=pool, name=member, labels=_labels(member)) for member in members}
    return nodes


def _labels(node: str) -> dict[str, str]:
    return {"rack": f"r{(int(node[1:]) - 1) % _RACKS + 1}"}


def _query(cluster: Cluster, plan: DemoQuery, user: User) -> Query:
    statistic, bound_s = plan.objective or ("", None)
    return query_create(
        cluster=cluster,
        name=plan.name,
        body={"operators": operators_of(plan)},
        objective={"statistic": statistic, "bound_s": bound_s} if bound_s else None,
        priority=plan.priority,
        team=plan.team,
        labels={"domain": plan.team.lower().replace(" ", "-"), "tier": "a" if plan.priority > 0 else "b"},
        description=plan.description,
        user=user,
    )


def _placement(plan: DemoQuery) -> dict[str, list[dict[str, object]]]:
    places = {step.name: step.at.partition("#") for step in plan.steps}
    return {name: [{"node": node, "core": int(core or 0)}] for name, (node, _, core) in places.items()}


def _requests(cluster: Cluster, user: User, say: Say) -> None:
    """One request per verdict. The first is applied; the others are decided on the cluster after it."""
    _ask(cluster, user, queries.DELIVERY, say, mode="apply", reason="Drivers ask for it")
    vouchers = _ask(
        cluster, user, queries.VOUCHERS, say, placement={"per-voucher": "n04#1"}, reason="Abuse has doubled"
    )
    if vouchers is not None:
        _take_choice(vouchers, "move", user, say)
    _ask(cluster, user, queries.CHURN, say, reason="Trial of the new model")
    queued = _ask(cluster, user, queries.SETTLEMENT, say, may_wait_s=1500.0, reason="Month end")
    if queued is not None and queued.verdict == Verdict.QUEUE:
        admission_apply(request=queued, user=user)
    _ask(cluster, user, queries.BASKETS, say, reason="Recommendations on the next page")


def _ask(cluster: Cluster, user: User, plan: DemoQuery, say: Say, **asked: Any) -> AdmissionRequest | None:
    if cluster.admissions.filter(query__name=plan.name).exists():
        return None
    say(f"Asking whether {plan.name} may run")
    if not cluster.queries.filter(name=plan.name).exists():
        _query(cluster, plan, user)
    return _preview(user, say, cluster=cluster, question=AdmissionQuestion(query=plan.name, **asked))


def _take_choice(request: AdmissionRequest, kind: str, user: User, say: Say) -> None:
    """Preview the first alternative of a kind, if the engine found one."""
    offered = request.decision.alternatives if request.decision else ()
    alternative = next((alternative for alternative in offered if alternative.kind == kind), None)
    if alternative is None:
        return
    say(f"Taking the alternative: {alternative.title}")
    _preview(user, say, parent=request, alternative=alternative.id)


def _preview(user: User, say: Say, **asked: Any) -> AdmissionRequest:
    request = _NOW.run(ADMISSION, user, **asked)
    request.refresh_from_db()
    _NOW.complete(request, user)
    request.refresh_from_db()
    say(f"  {request.get_verdict_display()}: {admission_headline(request)}")
    return request


def _estimate(cluster: Cluster, user: User) -> None:
    _NOW.run(ESTIMATE, user, cluster=cluster)


def _predict(cluster: Cluster) -> None:
    """Predict the query that never ran beside what was admitted, so that a visitor finds its prediction."""
    version = QueryVersion.objects.filter(query__cluster=cluster, query__name=queries.NEVER_RAN.name)
    first = version.select_related("query__cluster").order_by("number").first()
    if first is not None and not first.predictions.exists():
        prediction_of_new(version=first)


def _compare(query: Query, user: User, later: DemoJobs) -> None:
    """Rank the plans of the query that has several."""
    if query.comparisons.exists():
        return
    later.run(PLANS, user, query=query)


def _propose(cluster: Cluster, user: User, later: DemoJobs) -> None:
    """Leave a proposal that a visitor may apply."""
    if cluster.placement_runs.exists():
        return
    later.run(PLACEMENT, user, cluster=cluster, objective=PlacementObjective.OBJECTIVES, budget_s=2.0)


def _is_overtaken(cluster: Cluster) -> bool:
    run = run_latest(cluster)
    applied = AdmissionRequest.objects.filter(cluster=cluster, state=AdmissionState.APPLIED)
    return run is not None and applied.filter(decided_at__gt=run.created_at).exists()


SPARK_QUERY = "orders-by-region"
_BATCHES, _TRIGGER_S, _SEED = 43, 10.0, 42
_FIXED_MS, _PER_ROW_MS = 900.0, 0.0105
_MEAN_RATE, _SWING = 38_000.0, 0.35
_SETTINGS = {"trigger_s": _TRIGGER_S, "executors": 2, "cores_per_executor": 4, "max_rows_per_trigger": 900_000}


@transaction.atomic
def spark_query_build(cluster: Cluster, user: User) -> None:
    """Watch a stateful query by an uploaded file, unless the cluster has it."""
    if cluster.spark_queries.filter(name=SPARK_QUERY).exists():
        return
    fields: dict[str, object] = {**_SETTINGS, "constraint_s": 20.0, "statistic": "q0.95"}
    origin = SparkQueryOrigin.FILE
    query = spark_query_create(cluster=cluster, name=SPARK_QUERY, origin=origin, user=user, **fields)
    begins_at = timezone.now().replace(microsecond=0) - timedelta(seconds=_TRIGGER_S * (_BATCHES + 6))
    progress_ingest(query=query, documents=_documents(begins_at))


def _documents(begins_at: datetime) -> list[dict[str, object]]:
    chance = random.Random(_SEED)
    found, state_rows = [], 180_000
    for batch in range(_BATCHES):
        rate = _MEAN_RATE * (1 + _SWING * math.sin(2 * math.pi * batch / 28)) * chance.uniform(0.93, 1.07)
        rows = round(rate * _TRIGGER_S)
        usual_ms = (_FIXED_MS + _PER_ROW_MS * rows) * chance.uniform(0.94, 1.06)
        duration_ms = round(usual_ms * (1 + max(0.0, 0.9 - 0.35 * batch)))  # the first ones load and compile
        state_rows += chance.randrange(-900, 1_100)
        began_at = begins_at + timedelta(seconds=_TRIGGER_S * batch, milliseconds=chance.randrange(0, 6))
        found.append(_document(batch, began_at, rows, duration_ms, state_rows))
    return found


def _document(batch: int, began_at: datetime, rows: int, duration_ms: int, state_rows: int) -> dict[str, object]:
    beside_ms = {"latestOffset": 14, "getBatch": 1, "queryPlanning": 42, "walCommit": 31, "commitOffsets": 29}
    latest = began_at - timedelta(milliseconds=620)
    return {
        "id": "5a1f0a52-8c6e-4b1e-9d1f-5e2c7a0e4d10",
        "runId": "0d9b7a7e-3f0f-4c43-8d52-6a1b1f7f2c01",
        "name": SPARK_QUERY,
        "timestamp": _instant(began_at),
        "batchId": 1_180 + batch,
        "numInputRows": rows,
        "inputRowsPerSecond": rows / _TRIGGER_S,
        "durationMs": {**beside_ms, "addBatch": duration_ms - sum(beside_ms.values()), "triggerExecution": duration_ms},
        "eventTime": {"max": _instant(latest), "watermark": _instant(latest - timedelta(seconds=30))},
        "stateOperators": [
            {
                "operatorName": "stateStoreSave",
                "numRowsTotal": state_rows,
                "memoryUsedBytes": 412 * state_rows,
                "allUpdatesTimeMs": round(0.31 * duration_ms),
                "allRemovalsTimeMs": round(0.02 * duration_ms),
                "commitTimeMs": 118,
                "numRowsDroppedByWatermark": rows // 90_000,
                "numShufflePartitions": 16,
            }
        ],
        "sources": [
            {
                "description": "KafkaV2[Subscribe[orders]]",
                "endOffset": {"orders": {str(partition): batch * rows // 8 for partition in range(8)}},
                "numInputRows": rows,
            }
        ],
        "sink": {"description": "DeltaSink[/warehouse/orders_by_region]", "numOutputRows": -1},
    }


def _instant(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
