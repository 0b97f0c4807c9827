"""Preview of a policy: what the decisions of the last month would have been under it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, ClassVar

from django.utils import timezone

from apps.admission.models import AdmissionRequest
from apps.fleet.models import Cluster
from apps.policies.services import policy_check
from engine.admission.answer import AdmissionDecision
from engine.admission.policy_replay import LACKS, replay_policy
from engine.policies.policy import ClusterPolicy
from engine.records import Moment, Record, Words
from engine.words import counted

__all__ = ["DAYS", "PolicyPreview", "ReplayedDecision", "policy_preview"]

DAYS = 30
MAX_REPLAYED = 2000  # decisions, the newest
_MAX_LISTED = 500  # that would be otherwise


@dataclass(frozen=True)
class ReplayedDecision(Record):
    """A decision that would be otherwise under another policy."""

    TITLE: ClassVar[str] = "a replayed decision"

    id: Annotated[str, Words("Of the admission request.")]
    query: str
    version: int
    decided_at: Moment
    then: Annotated[str, Words("Its verdict.")]
    now: Annotated[str, Words("Its verdict under the policy.")]
    because: Annotated[str, Words("The finding that the other verdict rests on.")]


@dataclass(frozen=True)
class PolicyPreview(Record):
    """Decisions of the last 30 days under another policy, by its step alone: estimates stay as they were."""

    TITLE: ClassVar[str] = "a preview of a policy"

    since: Moment
    decisions: Annotated[int, Words("Decisions of that time.")]
    replayed: Annotated[int, Words("Of them, those that could be replayed.")]
    otherwise: Annotated[int, Words("Of these, those with another verdict.")]
    listed: Annotated[tuple[ReplayedDecision, ...], Words("Those, the newest first; the first 500.")]
    lacking: Annotated[tuple[str, ...], Words("How many could not be replayed, and why.")]
    left_out: Annotated[int, Words("Older decisions of that time, beyond the newest 2,000.")] = 0

    @property
    def sentence(self) -> str:
        """17 of 212 decisions would be otherwise."""
        if not self.replayed:
            return "No decision of the last 30 days can be replayed."
        return f"{self.otherwise} of {counted(self.replayed, 'decision')} of the last {DAYS} days would be otherwise."


def policy_preview(*, cluster: Cluster, document: Any) -> PolicyPreview:
    """Try a policy on the cluster's decisions of the last 30 days.

    Raises
    ------
    Malformed
        The policy has faults.
    """
    return replay_decisions(cluster, policy_check(cluster=cluster, document=document), timezone.now())


def replay_decisions(cluster: Cluster, policy: ClusterPolicy, now: datetime) -> PolicyPreview:
    """Decisions of the 30 days before `now` under a policy."""
    since = now - timedelta(days=DAYS)
    rows = AdmissionRequest.objects.filter(cluster=cluster, result__isnull=False, previewed_at__gte=since)
    count, lacks, found, replayed = rows.count(), Counter[str](), list[ReplayedDecision](), 0
    chosen = rows.order_by("-previewed_at", "-pk").select_related("query", "version")
    for row in chosen.defer("curves", "snapshot_parts")[:MAX_REPLAYED].iterator(chunk_size=100):
        if row.group_id is not None:  # its verdict is the group's
            lacks["in_group"] += 1
            continue
        answer = replay_policy(AdmissionDecision.parse(row.result), policy, row.may_wait_s)
        if answer.verdict is None:
            lacks[answer.lacking] += 1
            continue
        replayed += 1
        if answer.verdict != row.verdict:
            found.append(
                ReplayedDecision(
                    str(row.pk),
                    row.query.name,
                    row.version.number,
                    row.previewed_at or row.created_at,
                    row.verdict,
                    answer.verdict,
                    answer.because,
                )
            )
    lacking = tuple(f"{counted(n, 'decision')}: {LACKS[code]}" for code, n in lacks.most_common())
    return PolicyPreview(
        since, count, replayed, len(found), tuple(found[:_MAX_LISTED]), lacking, max(0, count - MAX_REPLAYED)
    )
