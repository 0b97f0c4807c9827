"""Reading scenarios and what-ifs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import QuerySet

from apps.fleet.models import Cluster
from apps.planning.choices import Find, RunState
from apps.planning.models import Scenario, WhatIf
from apps.planning.what_ifs.answers import stored_answer
from apps.queries.snapshots.cluster import Snapshot, cluster_snapshot, snapshot_changes
from engine.provisioning.answers.scenarios import ComparedScenario

__all__ = [
    "WhatIfStanding",
    "scenario_answers",
    "scenarios_visible",
    "what_if_same",
    "what_if_standing",
    "what_ifs_visible",
]

_LOOKED_AT = 20  # newest comparisons in which a scenario's values are looked for


@dataclass(frozen=True)
class WhatIfStanding:
    """Whether an answer is stale, and what has changed since."""

    is_stale: bool
    changes: Sequence[str]


def scenarios_visible(cluster: Cluster | None = None) -> QuerySet[Scenario]:
    """Scenarios by name, with who made them."""
    rows = Scenario.objects.select_related("cluster", "created_by")
    return rows.filter(cluster=cluster) if cluster is not None else rows


def what_ifs_visible() -> QuerySet[WhatIf]:
    """Every what-if without its bulk, newest first."""
    return WhatIf.objects.select_related("cluster", "job", "requested_by").defer("snapshot_parts", "result")


def what_if_standing(row: WhatIf, present: Snapshot | None = None) -> WhatIfStanding:
    """Compare the snapshot of an answer with the cluster's present one."""
    if row.state != RunState.ANSWERED:
        return WhatIfStanding(False, ())
    present = present or cluster_snapshot(row.cluster)
    if present.digest == row.snapshot:
        return WhatIfStanding(False, ())
    return WhatIfStanding(True, snapshot_changes(row.snapshot_parts, present.parts))


def what_if_same(cluster: Cluster, fingerprint: str, snapshot: str) -> WhatIf | None:
    """The newest what-if of a question that is asked or answered on this snapshot."""
    rows = what_ifs_visible().filter(cluster=cluster, fingerprint=fingerprint)
    answered = rows.filter(state=RunState.ANSWERED, snapshot=snapshot).first()
    return answered or rows.filter(state=RunState.ASKED).first()


def scenario_answers(cluster: Cluster) -> dict[int, tuple[WhatIf, ComparedScenario]]:
    """The newest answer of every saved scenario as it is now: {scenario: (what-if, its part of the answer)}."""
    present = {row.pk: (row.changes, row.place) for row in Scenario.objects.filter(cluster=cluster)}
    answers: dict[int, tuple[WhatIf, ComparedScenario]] = {}
    rows = WhatIf.objects.filter(cluster=cluster, find=Find.COMPARE, state=RunState.ANSWERED, from_bench=False)
    for row in rows.order_by("-created_at")[:_LOOKED_AT]:
        if len(answers) == len(present):
            break
        answer = stored_answer(row)
        for asked, part in zip(row.scenarios, answer.scenarios if answer else (), strict=False):
            key = asked.get("id")
            if key in present and key not in answers and present[key] == (asked["changes"], asked["place"]):
                answers[key] = (row, part)
    return answers
