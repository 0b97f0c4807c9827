"""Scenarios and what-ifs: created, stored and deleted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.core.errors import Conflict, Fault, Impossible, Malformed, fault_count, field_faults, from_engine
from apps.core.events import announce
from apps.fleet.models import Cluster
from apps.jobs.models import Job
from apps.jobs.services import job_cancel
from apps.planning.choices import Find, RunState, ScenarioPlacement
from apps.planning.models import Scenario, WhatIf
from apps.planning.runs import WHAT_IF
from apps.planning.what_ifs.inputs import read_options
from apps.planning.what_ifs.selectors import what_if_same
from apps.queries.snapshots.cluster import Snapshot, cluster_snapshot
from engine.errors import EngineError

__all__ = [
    "MAX_SCENARIOS",
    "question_fingerprint",
    "scenario_create",
    "scenario_delete",
    "scenario_update",
    "what_if_create",
    "what_if_request",
    "what_if_store",
]

MAX_SCENARIOS = 12  # of one comparison


@transaction.atomic
def scenario_create(*, cluster: Cluster, name: str, user: User | None, **fields: Any) -> Scenario:
    """Create a scenario; `fields` are description, changes, place and inputs.

    Raises
    ------
    Malformed
        A field is not allowed, or a change does not fit what runs.
    Conflict
        The cluster has a scenario of that name.
    """
    scenario = Scenario(cluster=cluster, name=name, created_by=user)
    return _scenario_store(scenario, fields)


@transaction.atomic
def scenario_update(*, scenario: Scenario, **fields: Any) -> Scenario:
    """Change a scenario; answers it was part of stay as they are."""
    return _scenario_store(scenario, fields)


@transaction.atomic
def scenario_delete(*, scenario: Scenario) -> None:
    """Delete a scenario; answers it was part of stay."""
    announce(f"scenarios:{scenario.cluster.slug}")
    scenario.delete()


def _scenario_store(scenario: Scenario, fields: Mapping[str, Any]) -> Scenario:
    for name, value in fields.items():
        setattr(scenario, name, value)
    try:
        scenario.clean_fields(exclude=["cluster", "created_by"])
    except ValidationError as error:
        faults = field_faults(error)
        raise Malformed(f"The scenario has {fault_count(faults)}; first: {faults[0].message}", faults) from None
    if not scenario.pk or "changes" in fields:
        scenario.changes = _read_changes(scenario.changes, cluster_snapshot(scenario.cluster), "changes")
    same = Scenario.objects.filter(cluster=scenario.cluster, name=scenario.name).exclude(pk=scenario.pk)
    if same.exists():
        message = f"{scenario.cluster.slug} has a scenario {scenario.name!r} already; allowed: another name"
        raise Conflict(f"name: {message}.", [("name", message)])
    scenario.save()
    announce(f"scenarios:{scenario.cluster.slug}")
    return scenario


@transaction.atomic
def what_if_request(*, cluster: Cluster, user: User | None, **asked: Any) -> tuple[WhatIf, Job | None]:
    """Request a what-if on the cluster as it is when a worker takes it; arguments as of `what_if_create`.

    Returns
    -------
    The what-if and its job, which may be gone if the question was answered before.
    """
    row, is_new = what_if_create(cluster=cluster, user=user, **asked)
    if not is_new:
        return row, row.job
    return row, WHAT_IF.submit(row, cluster, user)


@transaction.atomic
def what_if_create(
    *,
    cluster: Cluster,
    user: User | None,
    scenarios: Sequence[int | Mapping[str, Any]] = (),
    find: str = Find.COMPARE,
    options: Mapping[str, Any] | None = None,
    from_bench: bool = False,
) -> tuple[WhatIf, bool]:
    """Create a what-if without a job.

    Parameters
    ----------
    scenarios : sequence
        Saved scenarios by number, or ``{name, changes, place}``. A search takes at most one, which it starts from;
        a comparison without any compares what is.
    find : str
        What to look for, a value of `Find`.
    options : mapping, optional
        Parameters of the search.
    from_bench : bool
        Asked by moving the bench: the same person's last such question is cancelled if it is still at work.

    Returns
    -------
    The what-if, and whether it is new: the same question on the same snapshot gives the one that is there.
    """
    Cluster.objects.select_for_update(no_key=True).get(pk=cluster.pk)
    snapshot = cluster_snapshot(cluster)
    if not snapshot.deployment.nodes:
        raise Impossible(
            f"Cluster {cluster.slug} has no nodes; register at least one before asking what if.",
            [("cluster", f"{cluster.slug} has no nodes")],
        )
    asked = _read_scenarios(cluster, scenarios, snapshot, find)
    parameters = read_options(find, dict(options or {}))
    digest = question_fingerprint(find, asked, parameters, snapshot)
    if from_bench:
        _cancel_overtaken(cluster, user, digest)
    same = what_if_same(cluster, digest, snapshot.digest)
    if same is not None and (from_bench or not same.from_bench):
        return same, False
    row = WhatIf.objects.create(
        cluster=cluster,
        find=find,
        scenarios=asked,
        options=parameters,
        fingerprint=digest,
        from_bench=from_bench,
        requested_by=user if user is not None and user.pk else None,
    )
    return row, True


def what_if_store(*, row: WhatIf, snapshot: Snapshot, answer: Mapping[str, Any], duration_s: float) -> WhatIf:
    """Store an answer with its snapshot. Called inside the job's transaction."""
    row.result = dict(answer)
    row.snapshot, row.snapshot_parts = snapshot.digest, snapshot.parts
    row.state, row.finished_at, row.duration_s = RunState.ANSWERED, timezone.now(), duration_s
    row.save(update_fields=["result", "snapshot", "snapshot_parts", "state", "finished_at", "duration_s", "updated_at"])
    WHAT_IF.announce(row)
    return row


def question_fingerprint(
    find: str, scenarios: Sequence[Mapping[str, Any]], options: Mapping[str, Any], snapshot: Snapshot
) -> str:
    """SHA-256 of a question. Prices belong to it: they change answers, but not what runs, which a snapshot is about."""
    prices = {node.id: node.price_per_hour for node in snapshot.deployment.nodes}
    text = json.dumps([find, list(scenarios), dict(options), prices], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _cancel_overtaken(cluster: Cluster, user: User | None, digest: str) -> None:
    rows = WhatIf.objects.filter(cluster=cluster, from_bench=True, requested_by=user, state=RunState.ASKED)
    for row in rows.exclude(fingerprint=digest).select_related("job"):
        if row.job is not None and not row.job.is_finished:
            job_cancel(row.job)


def _read_scenarios(
    cluster: Cluster, entries: Sequence[int | Mapping[str, Any]], snapshot: Snapshot, find: str
) -> list[dict[str, Any]]:
    """Scenarios of a request, as they are stored with the answer."""
    limit = MAX_SCENARIOS if find == Find.COMPARE else 1
    if len(entries) > limit:
        message = f"scenarios has {len(entries)} entries; allowed: at most {limit}"
        raise Malformed(message[0].upper() + message[1:] + ".", [("scenarios", message)])
    saved = {
        row.pk: row for row in Scenario.objects.filter(cluster=cluster, pk__in=[n for n in entries if _may_be_pk(n)])
    }
    faults: list[Fault] = []
    asked = [_read_scenario(saved, scenario, i, snapshot, faults) for i, scenario in enumerate(entries)]
    names = [scenario["name"] for scenario in asked if scenario]
    for i, name in enumerate(names):
        if name in names[:i]:
            faults.append(Fault(f"scenarios[{i}].name", f"name is {name!r} twice; allowed: each name once"))
    if faults:
        raise Malformed(f"The question has {fault_count(faults)}; first: {faults[0].message}", faults)
    return [scenario for scenario in asked if scenario] or [
        {"name": "Now", "changes": [], "place": str(ScenarioPlacement.KEEP)}
    ]


def _may_be_pk(value: Any) -> bool:
    """Whether a value may be a scenario's number: whole, and within the database's range."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def _read_scenario(
    saved: Mapping[int, Scenario], entry: Any, index: int, snapshot: Snapshot, faults: list[Fault]
) -> dict[str, Any] | None:
    path = f"scenarios[{index}]"
    if _may_be_pk(entry):
        row = saved.get(entry)
        if row is None:
            faults.append(Fault(path, f"{path} is {entry}; this cluster has no scenario of that number"))
            return None
        scenario: dict[str, Any] = {"id": row.pk, "name": row.name, "changes": row.changes, "place": row.place}
    elif isinstance(entry, Mapping):
        unknown = set(entry) - {"id", "name", "changes", "place"}
        faults += [Fault(f"{path}.{key}", f"{key} is not a field of a scenario") for key in sorted(map(str, unknown))]
        scenario = {
            "name": str(entry.get("name") or f"Scenario {index + 1}")[:80],
            "changes": entry.get("changes", []),
            "place": entry.get("place", str(ScenarioPlacement.FILL)),
        }
        if scenario["place"] not in ScenarioPlacement.values:
            faults.append(
                Fault(
                    f"{path}.place", f"place is {scenario['place']!r}; allowed: {', '.join(ScenarioPlacement.values)}"
                )
            )
    else:
        faults.append(Fault(path, f"{path} is {entry!r}; allowed: the number of a scenario, or one written out"))
        return None
    try:
        scenario["changes"] = _read_changes(scenario["changes"], snapshot, f"{path}.changes")
    except Malformed as error:
        faults += error.faults
        return None
    return scenario


def _read_changes(changes: Any, snapshot: Snapshot, path: str) -> list[dict[str, Any]]:
    """The changes, if they can be applied to what runs now."""
    from engine.provisioning.changes import read_changes  # loads part of the engine that most requests do not need

    try:
        read_changes(changes, snapshot.deployment, path=path)
    except EngineError as error:
        raise from_engine(error) from None
    return [dict(change) for change in changes]
