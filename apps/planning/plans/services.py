"""Comparisons of a query's plans: requested, stored, and a plan adopted as a new version."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.core.errors import Conflict, Fault, Impossible, Malformed, Missing, Stale
from apps.jobs.models import Job, JobState
from apps.planning.choices import ComparisonReason, PlanPlacement, RunState
from apps.planning.models import PlanComparison
from apps.planning.runs import PLANS
from apps.queries.bodies import version_body, with_operators
from apps.queries.definitions import query_version_create
from apps.queries.models import ArrivalSeries, OperatorInput, Query, QueryVersion

__all__ = [
    "MAX_COMPARISONS",
    "MAX_VERSIONS",
    "comparison_create",
    "comparison_request",
    "comparison_store",
    "plan_adopt",
    "plan_body",
    "version_digest",
    "version_key",
]

MAX_VERSIONS = 6  # the newest, and the one that runs
MAX_COMPARISONS = 50  # of a query


def version_digest(version: QueryVersion) -> str:
    """SHA-256 of a version's operators with their statistics."""
    text = json.dumps(version_body(version), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def version_key(version: QueryVersion) -> str:
    """A version's key in a ranking: v2."""
    return f"v{version.number}"


def plan_body(plan: Mapping[str, Any], base: QueryVersion) -> dict[str, Any]:
    """Operators by their bare names, on the nodes the plan was judged on.

    A polynomial model is taken from the version itself: the engine had it restated for a slice.
    """
    models = {(op["id"], k): entry.get("model") for op in version_body(base)["operators"] for k, entry in _inputs(op)}
    return {"operators": [_operator(op, plan["placement"], base.query.name, models) for op in plan["operators"]]}


def _inputs(operator: Mapping[str, Any]) -> Any:
    return enumerate(operator["inputs"])


def _operator(
    operator: Mapping[str, Any], placement: Mapping[str, Any], query: str, models: Mapping[tuple[str, int], Any]
) -> dict[str, Any]:
    name = operator["id"].removeprefix(f"{query}/")
    kept = {key: value for key, value in operator.items() if key not in {"node", "core", "split", "query", "inputs"}}
    inputs = []
    for k, entry in _inputs(operator):
        model = models.get((name, k)) if "model" in entry else None
        statistics = {key: value for key, value in entry.items() if key != "model"}
        read = entry["from"].removeprefix(f"{query}/").removesuffix(f"@{query}")
        inputs.append({**statistics, "from": read} | ({"model": model} if model else {}))
    return {**kept, "id": name, "inputs": inputs, **_place(placement.get(operator["id"], []))}


def _place(replicas: list[dict[str, Any]]) -> dict[str, Any]:
    if len(replicas) == 1 and replicas[0]["fraction"] == 1.0:
        return {"node": replicas[0]["node"], "core": replicas[0]["core"]}
    return {"split": replicas} if replicas else {}


@transaction.atomic
def comparison_request(*, query: Query, user: User | None = None, **asked: Any) -> tuple[PlanComparison, Job]:
    """Request a comparison; arguments as of `comparison_create`."""
    row = comparison_create(query=query, user=user, **asked)
    return row, row.job or PLANS.submit(row, query.cluster, user)


@transaction.atomic
def comparison_create(
    *,
    query: Query,
    user: User | None = None,
    reason: str = ComparisonReason.ASKED,
    versions: Sequence[int] | None = None,
    capacity_cps: float | None = None,
    hop_cycles: float = 0.0,
    places: str = PlanPlacement.KEEP,
) -> PlanComparison:
    """Create a comparison without a job. One with the same parameters that still waits is returned instead.

    Parameters
    ----------
    versions : sequence of int, optional
        Numbers of versions; the running one and the newest, six at most, unless given.
    capacity_cps : float, optional
        Judge on one node of this capacity instead of within the cluster.
    hop_cycles : float
        Cycles an event spends in a queue between two operators; 0: not known, and nothing is fused.

    Raises
    ------
    Malformed
        Numbers that are no versions, values out of range.
    Impossible
        No node to run on, or a source without arrivals.
    """
    query = Query.objects.select_for_update(of=("self",)).select_related("cluster", "running_version").get(pk=query.pk)
    numbers = _version_numbers(query, versions)
    _check_parameters(query, numbers, capacity_cps, hop_cycles, places)
    asked = {"versions": numbers, "capacity_cps": capacity_cps, "hop_cycles": hop_cycles, "places": places}
    same = PlanComparison.objects.filter(query=query, state=RunState.COMPUTING, **asked).select_related("job")
    waiting = next(
        (comparison for comparison in same if comparison.job is not None and comparison.job.state == JobState.QUEUED),
        None,
    )
    return waiting or PlanComparison.objects.create(query=query, requested_by=user, reason=reason, **asked)


def _version_numbers(query: Query, versions: Sequence[int] | None) -> list[int]:
    numbers = list(query.versions.order_by("-number").values_list("number", flat=True))
    if versions is None:
        running = query.running_version.number if query.running_version_id else None
        newest = [number for number in numbers if number != running][: MAX_VERSIONS - (running is not None)]
        return sorted([*newest, *([running] if running is not None else [])])
    faults = []
    if unknown := [number for number in versions if number not in numbers]:
        listed = ", ".join(map(str, numbers[:10])) or "none"
        faults.append(Fault("versions", f"{unknown} are no versions of {query.name}; allowed: {listed}"))
    if len(set(versions)) > MAX_VERSIONS:
        faults.append(Fault("versions", f"{len(set(versions))} versions are named; allowed: {MAX_VERSIONS}"))
    if faults:
        raise Malformed(f"{faults[0].path}: {faults[0].message}.", faults)
    return sorted(set(versions))


def _check_parameters(
    query: Query, numbers: Sequence[int], capacity_cps: float | None, hop_cycles: float, places: str
) -> None:
    faults = []
    if capacity_cps is not None and not (math.isfinite(capacity_cps) and capacity_cps >= 1):
        faults.append(Fault("capacity_cps", f"capacity_cps is {capacity_cps}; allowed: at least 1, as of nodes"))
    if not (math.isfinite(hop_cycles) and hop_cycles >= 0):
        faults.append(Fault("hop_cycles", f"hop_cycles is {hop_cycles}; allowed: at least 0"))
    if places not in PlanPlacement.values:
        faults.append(Fault("places", f"places is {places!r}; allowed: {', '.join(PlanPlacement.values)}"))
    if faults:
        raise Malformed(f"{faults[0].path}: {faults[0].message}.", faults)
    if not numbers:
        raise Impossible(f"Query {query.name} has no version to compare.", [("query", "has no version")])
    if capacity_cps is None and not query.cluster.nodes.exists():
        raise Impossible(
            f"Cluster {query.cluster.slug} has no nodes; give capacity_cps to judge on one.",
            [("capacity_cps", "is missing, and the cluster has no nodes")],
        )
    read = OperatorInput.objects.filter(operator__version__query=query, operator__version__number__in=numbers)
    names = set(read.exclude(source_id="").values_list("source_id", flat=True))
    series = ArrivalSeries.objects.filter(cluster=query.cluster, source_id__in=names)
    if missing := sorted(names - set(series.values_list("source_id", flat=True))):
        raise Impossible(
            f"No arrivals are known of {', '.join(missing)}; upload or generate them first.",
            [(f"sources.{name}", "has no arrivals") for name in missing],
        )


def comparison_store(*, comparison: PlanComparison, **fields: Any) -> PlanComparison:
    """Store the engine's answer. Called inside the job's transaction; older comparisons of the query are dropped."""
    row = PlanComparison.objects.select_for_update(of=("self",)).select_related("query__cluster").get(pk=comparison.pk)
    for name, value in fields.items():
        setattr(row, name, value)
    row.state, row.finished_at = RunState.DONE, timezone.now()
    row.recommended = fields["result"]["recommended"] or ""
    row.save()
    old = PlanComparison.objects.filter(query=row.query).values_list("pk", flat=True)[MAX_COMPARISONS:]
    PlanComparison.objects.filter(pk__in=list(old)).delete()
    PLANS.announce(row)
    return row


@transaction.atomic
def plan_adopt(*, comparison: PlanComparison, plan: str, user: User | None = None) -> QueryVersion:
    """Adopt a plan of a comparison as a version that can be admitted; nothing that runs changes.

    A plan that is a version already is given back as it is, and so is one that was adopted before.

    Raises
    ------
    Conflict
        The comparison has no ranking.
    Missing
        It has no such plan.
    Stale
        The version it was rewritten from has other statistics now.
    """
    row = PlanComparison.objects.select_for_update(of=("self",)).select_related("query__cluster", "adopted")
    comparison = row.get(pk=comparison.pk)
    if comparison.state != RunState.DONE:
        raise Conflict(f"The comparison is {comparison.get_state_display().lower()}; there is no plan to adopt.")
    plans = {chosen["key"]: chosen for chosen in comparison.result["plans"]}
    if plan not in plans:
        keys = ", ".join(plans)
        raise Missing(f"The comparison has no plan {plan!r}.", [("plan", f"plan is {plan!r}; allowed: {keys}")])
    if comparison.adopted is not None and comparison.adopted_key == plan:
        return comparison.adopted
    chosen = plans[plan]
    base = _version(comparison, chosen["base"] or plan)
    if chosen["origin"] == "entered":
        return base
    if comparison.basis.get(version_key(base)) != version_digest(base):
        message = f"The statistics of version {base.number} have changed since the comparison; compare again."
        raise Stale(message, [("plan", "rests on statistics that have changed")])
    version = query_version_create(
        query=comparison.query, body=plan_body(chosen, base), note=_note(chosen, base), user=user
    )
    comparison.adopted, comparison.adopted_key = version, plan
    comparison.save(update_fields=["adopted", "adopted_key"])
    return version


def _version(comparison: PlanComparison, key: str) -> QueryVersion:
    rows = with_operators(QueryVersion.objects.filter(query=comparison.query, number=int(key.removeprefix("v"))))
    return rows.get()


def _note(plan: Mapping[str, Any], base: QueryVersion) -> str:
    words = "; ".join(step["words"].replace("`", "") for step in plan["steps"])
    text = f"Rewritten from version {base.number}: {words}"
    return text if len(text) <= 200 else f"{text[:199]}…"
