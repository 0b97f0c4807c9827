"""A cluster small enough to reckon with in one's head: nodes of 1,000 cycles/s, a source of 100 events/s, 60 s."""

from __future__ import annotations

from typing import Any

from apps.accounts.choices import Role
from apps.accounts.models import User
from apps.accounts.services import user_create
from apps.fleet.models import Cluster
from apps.fleet.services import cluster_create, node_create, pool_create
from apps.jobs.models import Job, JobState
from apps.jobs.runner import run_job
from apps.queries.arrivals.services import arrivals_create_from_counts
from apps.queries.models import Query
from apps.queries.services import query_create, query_start
from workers.jobs import JOB_WORK

__all__ = ["CAPACITY_CPS", "body", "make_query", "run_jobs", "small_cluster", "start_query", "user"]

CAPACITY_CPS = 1000.0
RATE_EPS = 100.0
PASSWORD = "correct-horse-battery"


def small_cluster(slug: str = "little", nodes: tuple[str, ...] = ("a", "b"), **fields: Any) -> Cluster:
    """Nodes of one core each, and the source `clicks`."""
    cluster = cluster_create(slug=slug, name=slug.title(), subinterval_s=1.0, horizon_s=60.0, **fields)
    pool = pool_create(cluster=cluster, name="pool", capacity_cps=CAPACITY_CPS, cores=1)
    for name in nodes:
        node_create(pool=pool, name=name)
    arrivals_create_from_counts(cluster=cluster, source_id="clicks", counts=[RATE_EPS / 4] * cluster.slices)
    return cluster


def body(load: float, source: str = "clicks") -> dict[str, Any]:
    """One operator that takes the share `load` of a node at the source's rate."""
    cycles = load * CAPACITY_CPS / RATE_EPS
    return {
        "operators": [
            {"id": "work", "inputs": [{"from": source, "selectivity": 1.0, "cycles_per_event": cycles}]},
        ]
    }


def make_query(cluster: Cluster, name: str, load: float, bound_s: float | None = 2.0) -> Query:
    """A draft of one operator."""
    objective = {"statistic": "worst", "bound_s": bound_s} if bound_s else None
    return query_create(cluster=cluster, name=name, body=body(load), objective=objective)


def start_query(cluster: Cluster, name: str, load: float, node: str, bound_s: float | None = 2.0) -> Query:
    """A running query of one operator."""
    query = make_query(cluster, name, load, bound_s)
    query_start(version=query.versions.get(), placement={"work": [{"node": node}]})
    query.refresh_from_db()
    return query


def user(role: Role = Role.ADMITTER, name: str = "") -> User:
    return user_create(username=name or str(role), password=PASSWORD, role=role)


def run_jobs() -> list[Job]:
    """Do what waits in the queue, here and now, until nothing does."""
    done = []
    while job := Job.objects.filter(state=JobState.QUEUED).order_by("created_at").first():
        run_job(job.pk, JOB_WORK[job.kind])
        job.refresh_from_db()
        done.append(job)
    return done
