"""Queries of other teams as a part of a cluster shows them: in sums, and without a name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from apps.admission.models import AdmissionRequest
from apps.core.reach import is_seen_in_part, visible
from apps.fleet.models import Cluster
from apps.queries.models import Query
from apps.queries.snapshots.cluster import cluster_snapshot
from engine.policies.demand import demands_by_team
from engine.policies.quotas import CORES
from engine.records import Record, Words

__all__ = ["OthersLoad", "changes_told", "load_of_others"]


def changes_told(request: AdmissionRequest, changes: Sequence[str]) -> list[str]:
    """Changes since a preview as they are told: each change names what others own, which a part does not show."""
    return ["what runs there"] if changes and is_seen_in_part(request.cluster_id) else list(changes)


@dataclass(frozen=True)
class OthersLoad(Record):
    """Running queries of other teams in a cluster, in sum: a part of it names none of them."""

    TITLE: ClassVar[str] = "a sum"

    queries: Annotated[int, Words("Number of them.")]
    cores: Annotated[float, Words("Cores that they keep busy on average over the horizon, by their statistics.")]
    is_more: Annotated[bool, Words("Whether costs of some are not known, so that they take more than that.")]


def load_of_others(cluster: Cluster) -> OthersLoad | None:
    """Load of other teams in a cluster that the caller sees in part; None for who sees it whole."""
    if not is_seen_in_part(cluster.pk):
        return None
    own = set(visible(Query.objects.filter(cluster=cluster)).values_list("name", flat=True))
    deployment = cluster_snapshot(cluster, with_waiting=False).deployment
    names = [query for query in deployment.queries if query not in own]
    demand = demands_by_team(deployment, dict.fromkeys(names, "others"), ["others"], {})["others"]
    return OthersLoad(len(names), demand.amounts[CORES], CORES in demand.unknown)
