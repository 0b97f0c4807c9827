"""Decisions for Flink: parallelism per vertex, slots, slot sharing groups, a patch for `FlinkDeployment`.

Sources: Flink's REST API (`PUT /jobs/:jobid/resource-requirements`, which the adaptive scheduler obeys) and
configuration (`pipeline.jobvertex-parallelism-overrides`, `taskmanager.numberOfTaskSlots`); the custom resource
`flink.apache.org/v1beta1` of the Flink Kubernetes Operator. `PATCH /jobs/:jobid/rescaling` is documented as well, and
answers 503 in every version since 1.9 (FLINK-12312): it is not exported.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import JsonValue

from engine.connectors.flink import SCHEDULER
from engine.connectors.picture import Place
from engine.document.elements import Replica
from engine.exports.export import (
    DecidedJob,
    DecidedOperator,
    EngineExport,
    EngineSettings,
    ExportedJob,
    ExportedOperator,
    ExportNote,
    RestCall,
    common_notes,
    is_uneven,
    kubernetes_metadata,
    uneven_note,
)
from engine.records import Fact

__all__ = ["OVERRIDES", "SLOTS", "flink_export"]

OVERRIDES = "pipeline.jobvertex-parallelism-overrides"
SLOTS = "taskmanager.numberOfTaskSlots"
_VERTEX_ID = re.compile(r"[0-9a-f]{32}\Z")
_DEFAULT_GROUP = "default"
_ADAPTIVE = "adaptive"


@dataclass(frozen=True)
class FlinkOperator(ExportedOperator):
    """An operator with the group whose subtasks share slots."""

    slot_sharing_group: str | None


@dataclass(frozen=True)
class _TaskManagers:
    """TaskManagers of one direction, slots and resources of each; None: not changed."""

    replicas: int | None = None
    slots: int | None = None
    resource: dict[str, JsonValue] | None = None


def flink_export(job: DecidedJob) -> EngineExport:
    """A decision as Flink's operator applies it, and what puts the job back as it was.

    An operator's parallelism is its number of replicas, of one that stays where it is what Flink told: its subtasks may
    share servers. What Flink has no setting for stands in the notes: a node for
    an operator (only a slot sharing group, set in the program, keeps operators apart), uneven shares, a share
    of events.
    """
    notes = common_notes(job, job.operators)
    operators = _known(job.operators, notes)
    now = {vertex: count for vertex, count in job.parallelism_now.items() if _VERTEX_ID.match(vertex)}
    after = _parallelism(operators, now, notes, is_after=True)
    before = _parallelism(operators, now, [], is_after=False)
    groups_before, groups_after = _groups(operators)
    notes += _placement_notes(job, operators, groups_before, groups_after)
    metadata = kubernetes_metadata(job, notes)
    slots = _slots(job, operators, notes)
    notes += _rest_notes(job, after, now.keys() - {operator.vertex for operator in operators})
    is_regrouped = groups_before != groups_after
    return EngineExport(
        engine="flink",
        job=ExportedJob(job.id, job.name),
        operators=tuple(_row(operator, now | before, after, groups_after) for operator in job.operators),
        apply=_direction(job, metadata, after, now, slots[1], groups_after if is_regrouped else {}),
        reverse=_direction(job, metadata, before, now, slots[0], groups_before if is_regrouped else {}),
        notes=tuple(notes),
    )


def _known(operators: Iterable[DecidedOperator], notes: list[ExportNote]) -> list[DecidedOperator]:
    """Operators with a vertex that Flink would take; of the others a note."""
    known = []
    for operator in operators:
        if operator.vertex is not None and not _VERTEX_ID.match(operator.vertex):
            names = {"operator": operator.name, "vertex": operator.vertex}
            notes.append(ExportNote.of("lost", "vertex_id", operator.name, **names))
        elif operator.vertex is not None:
            known.append(operator)
    return known


def _parallelism(
    operators: Sequence[DecidedOperator], now: Mapping[str, int], notes: list[ExportNote], *, is_after: bool
) -> dict[str, int]:
    """Subtasks by vertex; where several operators are one vertex, the most of them."""
    counts: dict[str, int] = {}
    for operator in operators:
        count = len(operator.after if is_after else operator.before) or len(operator.before)
        if not count or operator.vertex is None:
            continue
        if is_after and operator.parallelism is not None:
            count = operator.parallelism
        elif operator.parallelism is not None or _servers(operator.after) == _servers(operator.before):
            count = now.get(operator.vertex, count)
        known = counts.get(operator.vertex)
        if known is not None and known != count:
            counted = {"known": known, "count": count, "most": max(known, count)}
            notes.append(ExportNote.of("lost", "chained", operator.name, operator=operator.name, **counted))
        counts[operator.vertex] = max(known or 0, count)
    return counts


def _servers(replicas: Iterable[Replica]) -> set[tuple[str, int]]:
    return {(replica.node, replica.core) for replica in replicas}


def _groups(operators: Sequence[DecidedOperator]) -> tuple[dict[str, str], dict[str, str]]:
    """Slot sharing groups by operator, as they are and as the decision wants them.

    Operators that share no node, directly or over others, must not share slots either; else any TaskManager may run
    both. Where the groups that are there keep them apart already, these stay.
    """
    shown = _group_names(operators)
    before = {operator.name: shown[operator.slot_group] for operator in operators}
    component: dict[str, set[str]] = {}
    for operator in operators:
        nodes = {replica.node for replica in operator.after}
        joined = nodes.union(*(component[node] for node in nodes if node in component))
        component |= dict.fromkeys(joined, joined)
    names: dict[frozenset[str], str] = {}
    wanted = {}
    for operator in operators:
        if operator.after:
            key = frozenset(component[operator.after[0].node])
            wanted[operator.name] = names.setdefault(key, f"sluice-{len(names) + 1}")
    sharing = defaultdict(set)
    for name, group in wanted.items():
        sharing[before[name]].add(group)
    is_apart = all(len(groups) == 1 for groups in sharing.values())
    return before, before if is_apart else before | wanted


def _group_names(operators: Sequence[DecidedOperator]) -> dict[str | None, str]:
    """Names by group as the engine told it: Flink tells ids alone, so several are numbered, and one is its default."""
    told = [group for group in dict.fromkeys(operator.slot_group for operator in operators) if group is not None]
    if len(told) < 2:
        return dict.fromkeys([*told, None], _DEFAULT_GROUP)
    return {None: _DEFAULT_GROUP, **{group: f"group-{number}" for number, group in enumerate(told, start=1)}}


def _placement_notes(
    job: DecidedJob, operators: Sequence[DecidedOperator], before: Mapping[str, str], after: Mapping[str, str]
) -> list[ExportNote]:
    nodes = {replica.node for operator in operators for replica in operator.after}
    notes = [uneven_note(operator, "Flink") for operator in operators if is_uneven(operator.after)]
    if len(nodes) > 1:
        notes.append(ExportNote.of("lost", "nodes", job.name, nodes=sorted(nodes)))
    if before != after:
        places = [Fact("exports.place_in_group", operator=name, group=group) for name, group in after.items()]
        needed = sum(_most_per_group(operators, after).values())
        values = {"places": places, "slots": needed, "now": _groups_now(operators)}
        notes.append(ExportNote.of("program", "slot_sharing_groups", job.name, **values))
    return notes


def _groups_now(operators: Sequence[DecidedOperator]) -> Fact:
    """Knowledge of the groups that they have."""
    groups = {operator.slot_group for operator in operators}
    if None in groups:
        return Fact("exports.groups_unknown")
    return Fact("exports.one_group") if len(groups) == 1 else Fact("exports.several_groups", count=len(groups))


def _most_per_group(operators: Sequence[DecidedOperator], groups: Mapping[str, str]) -> dict[str, int]:
    """Slots that each group needs: its vertex of most subtasks."""
    most: dict[str, int] = {}
    for operator in operators:
        group = groups[operator.name]
        most[group] = max(most.get(group, 0), len(operator.after))
    return most


def _slots(
    job: DecidedJob, operators: Sequence[DecidedOperator], notes: list[ExportNote]
) -> tuple[_TaskManagers, _TaskManagers]:
    """TaskManagers before and after; only what changes and is known."""
    groups = {operator.name: operator.slot_group or _DEFAULT_GROUP for operator in operators}
    used = {replica.node for operator in operators for replica in operator.after}
    used_before = {replica.node for operator in operators for replica in operator.before}
    before, after = _TaskManagers(), _TaskManagers()
    if used_before and len(used) != len(used_before):
        before, after = _TaskManagers(len(used_before)), _TaskManagers(len(used))
        notes.append(ExportNote.of("info", "replicas", job.name, count=len(used), before=len(used_before)))
    places = [job.places[node] for node in sorted(used | used_before) if node in job.places]
    needed = max((_slots_on(node, operators, groups) for node in used), default=0)
    if not places or not needed:
        return before, after
    slots = max(place.slots for place in places)
    if len({(place.slots, place.cores, place.memory_bytes) for place in places}) > 1:
        notes.append(ExportNote.of("lost", "mixed_places", job.name))
    elif needed > slots:
        before, after = (
            replace(managers, slots=count, resource=_resource(places[0], slots, count))
            for managers, count in ((before, slots), (after, needed))
        )
        notes.append(ExportNote.of("info", "slots", job.name, needed=needed, slots=slots))
    return before, after


def _slots_on(node: str, operators: Sequence[DecidedOperator], groups: Mapping[str, str]) -> int:
    """Slots that the decision needs on a node: of each group its vertex with most subtasks there."""
    most: dict[str, int] = {}
    for operator in operators:
        count = sum(replica.node == node for replica in operator.after)
        most[groups[operator.name]] = max(most.get(groups[operator.name], 0), count)
    return sum(most.values())


def _resource(place: Place, slots: int, needed: int) -> dict[str, JsonValue]:
    """Cores and memory of a TaskManager of `needed` slots, with as much for each slot as now."""
    share = needed / slots
    resource: dict[str, JsonValue] = {"cpu": round(place.cores * share, 3)}
    if place.memory_bytes:
        resource["memory"] = f"{round(place.memory_bytes * share / 2**20)}m"
    return resource


def _rest_notes(job: DecidedJob, after: Mapping[str, int], others: Collection[str]) -> list[ExportNote]:
    notes = []
    if after:
        notes.append(_scheduler_note(job))
        notes.append(ExportNote.of("info", "overrides", job.name, setting=OVERRIDES))
    if job.rate_share != 1.0:
        notes.append(ExportNote.of("lost", "rate_share", job.name, share=job.rate_share))
    if others:
        notes.append(ExportNote.of("info", "other_vertices", job.name, count=len(others)))
    return notes


def _scheduler_note(job: DecidedJob) -> ExportNote:
    """A note on the call, by the scheduler that Flink told."""
    scheduler = job.settings.get(SCHEDULER, "").lower()
    names = {"setting": SCHEDULER, "adaptive": _ADAPTIVE}
    if scheduler not in {"", _ADAPTIVE}:
        names["scheduler"] = scheduler
        return ExportNote.of("lost", "adaptive_scheduler", job.name, "scheduler_refuses", **names)
    alone = "" if scheduler else Fact("exports.adaptive_alone", **names)
    return ExportNote.of("info", "adaptive_scheduler", job.name, alone=alone)


def _direction(
    job: DecidedJob,
    metadata: Mapping[str, str],
    parallelism: Mapping[str, int],
    now: Mapping[str, int],
    managers: _TaskManagers,
    groups: Mapping[str, str],
) -> EngineSettings:
    everything = {**now, **parallelism}
    settings: dict[str, str | None] = {}
    if everything:
        settings[OVERRIDES] = ",".join(f"{vertex}:{count}" for vertex, count in everything.items())
    if managers.slots is not None:
        settings[SLOTS] = str(managers.slots)
    spec: dict[str, JsonValue] = {}
    if settings:
        spec["flinkConfiguration"] = dict(settings)
    if everything:
        spec["job"] = {"parallelism": max(everything.values())}
    manager: dict[str, JsonValue] = {} if managers.replicas is None else {"replicas": managers.replicas}
    if managers.resource is not None:
        manager["resource"] = managers.resource
    if manager:
        spec["taskManager"] = manager
    patch: dict[str, JsonValue] = {
        "apiVersion": "flink.apache.org/v1beta1",
        "kind": job.target.kind if job.target and job.target.kind else "FlinkDeployment",
        "metadata": dict(metadata),
        "spec": spec,
    }
    call = RestCall(
        "PUT",
        f"/jobs/{job.id}/resource-requirements",
        {vertex: {"parallelism": {"lowerBound": count, "upperBound": count}} for vertex, count in everything.items()},
    )
    return EngineSettings(
        settings,
        {name: {"slotSharingGroup": group} for name, group in groups.items()},
        (call,) if everything and _VERTEX_ID.match(job.id) else (),
        patch,
    )


def _row(
    operator: DecidedOperator, before: Mapping[str, int], after: Mapping[str, int], groups: Mapping[str, str]
) -> FlinkOperator:
    vertex = operator.vertex or ""
    return FlinkOperator(
        operator.name,
        operator.vertex,
        before.get(vertex, len(operator.before) or None),
        after.get(vertex, len(operator.after)) if operator.after else None,
        operator.after,
        groups.get(operator.name),
    )
