"""REST: what a policy would have decided, what decisions would be today, and the queue of a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts.choices import Scope
from apps.accounts.permissions import signed_in_user
from apps.admission.month_replays import MonthQuestion, MonthReplay, month_replay_request
from apps.admission.policy_previews import PolicyPreview, policy_preview
from apps.admission.queue import QueuePlace, cluster_queue
from apps.core.rest.api import ApiMixin
from apps.core.rest.serializers import read_body
from apps.fleet.selectors import cluster_by_slug
from apps.jobs.api import JobSerializer, job_response
from apps.policies.api import PolicyAskSerializer, asked_policy
from engine.policies.waits import ExpectedWait
from engine.records import Record, Words

__all__ = ["MonthReplayView", "PolicyPreviewView", "QueueView"]


@dataclass(frozen=True)
class QueuedAdmission(Record):
    """A request that waits."""

    TITLE: ClassVar[str] = "a queued request"

    id: str
    query: str
    version: int
    place: QueuePlace


@dataclass(frozen=True)
class QueueAnswer(Record):
    """The queue of a cluster in its order."""

    TITLE: ClassVar[str] = "a queue"

    entries: tuple[QueuedAdmission, ...]
    overdue_after_s: Annotated[float, Words("A request that has waited so long is not overtaken any more.", unit="s")]
    expected_wait: Annotated[
        ExpectedWait | None, Words("Of a request that comes now, with how often that was right; null: not known.")
    ]
    needed_waits: Annotated[int, Words("Waits that have to end before something is known.")]


class PolicyPreviewView(ApiMixin, APIView):
    """Preview of a policy."""

    scopes = {"POST": Scope.READ}

    @extend_schema(request=PolicyAskSerializer, responses=PolicyPreview)
    def post(self, request: Request, slug: str) -> Response:
        """Decisions of the last 30 days under a policy: how many would be otherwise, each with both verdicts.

        The policy's step alone is replayed, on the evidence that is kept; what cannot be replayed is counted.
        """
        asked = read_body(PolicyAskSerializer, request)
        return Response(policy_preview(cluster=cluster_by_slug(slug), document=asked_policy(asked)).to_dict())


class MonthReplayView(ApiMixin, APIView):
    """Replay of a month's decisions."""

    scopes = {"POST": Scope.OPERATE}

    @extend_schema(request=MonthQuestion, responses={200: MonthReplay, 202: JobSerializer})
    def post(self, request: Request, slug: str) -> Response:
        """Decisions of the last 30 days, or of a month, as they would be with what is `taken` of today; of each version
        the last, and what changed most.

        202 with a job, or the answer with `Prefer: wait=N`. Nothing is changed by it.
        """
        cluster, user = cluster_by_slug(slug), signed_in_user(request)
        job = month_replay_request(cluster=cluster, question=request.data, user=user)
        return job_response(request, job, lambda job: job.result)


class QueueView(ApiMixin, APIView):
    """Queue of a cluster."""

    scopes = {"GET": Scope.READ}

    @extend_schema(responses=QueueAnswer)
    def get(self, request: Request, slug: str) -> Response:
        """Requests that wait, in their order: place, who is ahead, why, and the expected wait."""
        queue = cluster_queue(cluster_by_slug(slug))
        entries = tuple(
            QueuedAdmission(str(row.pk), row.query.name, row.version.number, place) for row, place in queue.places
        )
        overdue_s = queue.policy.queue.overdue_after_s
        return Response(QueueAnswer(entries, overdue_s, queue.calibration, queue.needed_waits).to_dict())
