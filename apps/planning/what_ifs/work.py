"""The work of what-if jobs: load, ask the engine, say how to store."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from apps.jobs.models import Job
from apps.jobs.runner import JobOutcome, JobReporter
from apps.planning.choices import Find
from apps.planning.models import WhatIf
from apps.planning.what_ifs.answers import ANSWERS
from apps.planning.what_ifs.services import what_if_store
from apps.queries.snapshots.cluster import cluster_snapshot

__all__ = ["answer_what_if"]


def answer_what_if(report: JobReporter) -> JobOutcome:
    """Answer the job's what-if on its cluster as it is now."""
    row = WhatIf.objects.select_related("cluster").get(pk=report.job.params["what_if"])
    report(0.0, "Taking a snapshot")
    snapshot = cluster_snapshot(row.cluster)
    started = time.perf_counter()
    answer = ANSWERS[Find(row.find)](row, snapshot, _scaled(report))
    duration_s = time.perf_counter() - started

    def store(job: Job) -> JobOutcome:
        stored = what_if_store(row=row, snapshot=snapshot, answer=answer, duration_s=duration_s)
        page = f"/c/{stored.cluster.slug}/provisioning/what-ifs/{stored.pk}/"
        return JobOutcome({"what_if": str(stored.pk), "find": stored.find}, page, f"/api/v1/what-ifs/{stored.pk}")

    return JobOutcome(store=store)


def _scaled(report: JobReporter) -> Callable[[float, str], Any]:
    """The engine's progress from 0 to 1 in the part of the job that is left for it."""
    return lambda share, step: report(0.02 + 0.97 * share, step)
