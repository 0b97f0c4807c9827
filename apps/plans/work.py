"""The work of comparisons: load, ask the engine, say how to store."""

from __future__ import annotations

from apps.jobs.models import Job
from apps.jobs.running import Outcome, Reporter
from apps.plans.basis import samples_of, version_digest
from apps.plans.loading import question_of
from apps.plans.models import PlanComparison
from apps.plans.services import comparison_store
from engine.plans.comparison import compare
from engine.plans.ranking import OneNode

__all__ = ["compare_plans"]

_SLICES_PER_SUBINTERVAL = 4  # snapshots are at a quarter of a subinterval


def compare_plans(report: Reporter) -> Outcome:
    """Rank the plans of the job's comparison."""
    rows = PlanComparison.objects.select_related("query__cluster", "query__running_version")
    comparison = rows.get(pk=report.job.params["comparison"])
    report(0.0, "Taking a snapshot")
    asked = question_of(comparison)
    capacity = comparison.capacity_cps
    answer = compare(
        asked.deployment,
        comparison.query.name,
        asked.entered,
        running=asked.running,
        node=OneNode(capacity) if capacity else None,
        hop_cycles=comparison.hop_cycles,
        places=str(comparison.places),
        closed=asked.closed_nodes,
        mace_every=_SLICES_PER_SUBINTERVAL,
        progress=report,
    )
    base = asked.versions[asked.running or answer["plans"][0]["base"] or list(asked.versions)[-1]]
    found = {
        "result": answer,
        "snapshot": asked.snapshot,
        "running": asked.versions[asked.running].number if asked.running else None,
        "basis": {key: version_digest(version) for key, version in asked.versions.items()},
        "samples": samples_of(base),
        "drift_digest": version_digest(base),
    }

    def store(job: Job) -> Outcome:
        row = comparison_store(comparison=comparison, **found)
        page = f"/c/{row.query.cluster.slug}/queries/{row.query.name}/plans/"
        facts = {"finding": answer["finding"]["kind"], "recommended": row.recommended, "plans": len(answer["plans"])}
        return Outcome(facts, page, f"/api/v1/plan-comparisons/{row.pk}")

    return Outcome(store=store)
