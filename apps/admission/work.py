"""The work of preview jobs: load, ask the engine, say how to store."""

from __future__ import annotations

from apps.admission.deciding import admission_decide, admission_store
from apps.admission.models import AdmissionRequest
from apps.jobs.models import Job
from apps.jobs.running import Outcome, Reporter

__all__ = ["preview_admission"]


def preview_admission(report: Reporter) -> Outcome:
    """Decide about the job's request on its cluster as it is now."""
    rows = AdmissionRequest.objects.select_related("cluster", "query", "version__query__cluster")
    request = rows.get(pk=report.job.params["admission"])
    purpose = report.job.params["purpose"]
    report(0.0, "Taking a snapshot")
    question, decision = admission_decide(request, purpose=purpose, progress=report)

    def store(job: Job) -> Outcome:
        stored = admission_store(request=request, purpose=purpose, question=question, decision=decision)
        page = f"/c/{stored.cluster.slug}/admission/{stored.pk}/"
        return Outcome({"verdict": stored.verdict, "state": stored.state}, page, f"/api/v1/admissions/{stored.pk}")

    return Outcome(store=store)
