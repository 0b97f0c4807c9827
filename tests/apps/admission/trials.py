"""A cluster whose agents collect probes, and a candidate that reads them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone

from apps.accounts.models import User
from apps.admission.models import AdmissionRequest, AdmissionTrial
from apps.admission.previews import ADMISSION
from apps.admission.questions import AdmissionQuestion
from apps.fleet.models import Cluster
from apps.queries.services import query_create
from apps.telemetry.models import Agent
from tests.apps.measurements.live import body, live_query, make_live_cluster
from tests.apps.recordings import recorded
from tests.apps.small_cluster import run_jobs, user

__all__ = ["asked_request", "previewed", "report", "run_out"]


def report(agent: Agent, cpu_cores: float = 0.05, state: str = "collecting", **says: Any) -> None:
    """The agent's last heartbeat: it collects the probes with so much of its processor, a moment ago."""
    agent.heartbeat = {"cpu_cores": cpu_cores, "collectors": [{"source": "probes", "state": state}], **says}
    agent.last_seen = timezone.now()
    agent.save()


def asked_request() -> AdmissionRequest:
    """An admitted preview of the draft `tried`, beside `errors`, which runs live at agent-1 and agent-2.

    Of their 0.2 cores the agents use 0.05 and 0.1.
    """
    request = recorded(_asked_request)
    for agent, cpu_cores in zip(request.cluster.agents.order_by("name"), (0.05, 0.1), strict=True):
        report(agent, cpu_cores)
    return request


def _asked_request() -> AdmissionRequest:
    cluster = make_live_cluster()
    live_query(cluster)
    return previewed(cluster, user(name="asker"), "tried")


def previewed(cluster: Cluster, asker: User | None, name: str) -> AdmissionRequest:
    """An admitted preview of a draft like `errors`."""
    objective = {"statistic": "worst", "bound_s": 30.0}
    query_create(cluster=cluster, name=name, body=body(), objective=objective)
    request, _ = ADMISSION.request(cluster=cluster, user=asker, question=AdmissionQuestion(query=name))
    run_jobs()
    request.refresh_from_db()
    return request


def run_out(trial: AdmissionTrial) -> None:
    """Put the trial's start two hours back, before all that tests measure, and its end ten minutes: its time is up."""
    trial.started_at -= timedelta(hours=2)
    trial.ends_at -= timedelta(minutes=10)
    trial.save()
