"""Decisions are entries of the ledger, with what they do to the cluster's least headroom."""

from __future__ import annotations

import pytest

from apps.admission.decisions import admission_apply
from apps.admission.models import AdmissionRequest
from apps.fleet.models import Cluster
from apps.ledger.models import ObjectChange

pytestmark = pytest.mark.django_db


def test_applied_decision_is_an_entry_with_the_run_behind_it(cluster: Cluster, decision: AdmissionRequest) -> None:
    admission_apply(request=decision, user=None)
    entry = ObjectChange.objects.get(kind="decision")
    assert (entry.action, entry.object_id, entry.cluster) == ("decided", str(decision.pk), cluster.slug)
    before, after = entry.before or {}, entry.after or {}
    assert (before["state"], after["state"], after["verdict"]) == ("preview", "applied", decision.verdict)
    assert decision.decision is not None
    assert (before["headroom_share"], after["headroom_share"]) == decision.decision.least_headrooms
    assert after["headroom_share"] is None or after["headroom_share"] < 1
