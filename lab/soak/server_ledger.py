"""Process that prints what a console's database tells, as JSON: the server's side of a soak's story."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["main"]


def main() -> None:
    """Print one line of JSON."""
    import django

    django.setup()
    from apps.admission.models import AdmissionRequest
    from apps.fleet.models import Cluster
    from apps.jobs.models import FINISHED, Job
    from apps.kubernetes.models import KubernetesReview
    from apps.ledger.models import ObjectChange
    from apps.policies.models import PolicyVersion
    from apps.queries.documents import document_export
    from apps.queries.models import Query
    from apps.reports.models import Delivery, Report

    told: dict[str, Any] = {
        "changes": list(
            ObjectChange.objects.exclude(request_id="").values_list("request_id", "kind", "name", "action")
        ),
        "queries": list(Query.objects.values("id", "name", "state", "description", "cluster__slug")),
        "versions": list(Query.objects.values_list("name", "versions__number")),
        "admissions": list(
            AdmissionRequest.objects.values("id", "reason", "state", "verdict", "query__name", "cluster__slug")
        ),
        "policies": list(PolicyVersion.objects.values("number", "note", "cluster__slug")),
        "jobs": list(
            Job.objects.exclude(state__in=FINISHED).values("id", "kind", "title", "state", "created_at", "attempt")
        ),
        "failed": list(Job.objects.filter(state="failed").values("kind", "error")),
        "reports": list(Report.objects.values("id", "definition", "state")),
        "deliveries": list(Delivery.objects.values("id", "report", "channel", "state", "attempts", "last_error")),
        "reviews": list(KubernetesReview.objects.values("uid", "name", "allowed", "basis")),
        "documents": {cluster.slug: document_export(cluster) for cluster in Cluster.objects.all()},
    }
    print("\n" + json.dumps(told, default=str))


if __name__ == "__main__":
    main()
