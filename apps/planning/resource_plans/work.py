"""Work of resource plans' jobs: a map-reduce stage sized by the engine. Only workers import it: it loads numba."""

from __future__ import annotations

import time

from apps.jobs.models import Job
from apps.jobs.runner import JobOutcome, JobReporter
from apps.planning.models import ResourcePlan
from apps.planning.resource_plans.questions import question_of
from apps.planning.resource_plans.services import resource_plan_store
from engine.planner.sizing import size_stage

__all__ = ["size_stage_plan"]


def size_stage_plan(report: JobReporter) -> JobOutcome:
    """Answer the job's resource plan."""
    row = ResourcePlan.objects.select_related("cluster").get(pk=report.job.params["resource_plan"])
    report(0.05, "Searching the smallest number of nodes")
    question = question_of(row)
    started = time.perf_counter()
    sizing = size_stage(**vars(question))
    duration_s = time.perf_counter() - started

    def store(job: Job) -> JobOutcome:
        stored = resource_plan_store(row=row, answer=sizing, duration_s=duration_s)
        result = {"resource_plan": str(stored.pk), **stored.facts}
        page = f"/c/{stored.cluster.slug}/provisioning/resource-plans/{stored.pk}/"
        return JobOutcome(result, page, f"/api/v1/resource-plans/{stored.pk}")

    return JobOutcome(store=store)
