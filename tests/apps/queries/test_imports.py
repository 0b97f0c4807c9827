"""Importing a document by a job, and the made-up fleet."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from apps.accounts.choices import Role
from apps.core.errors import Malformed
from apps.jobs.models import JobState
from apps.jobs.runner import run_job
from apps.queries.imports import import_request, imports_purge, run_import
from apps.queries.models import ImportRun, Query
from apps.queries.snapshots.cluster import cluster_snapshot
from engine.document.deployment import Deployment
from engine.estimation.mace import mace
from tests.apps.domain import make_cluster
from tests.apps.queries.test_documents import DOCUMENT, document_with

pytestmark = pytest.mark.django_db


def browser_of(user: Any) -> Client:
    client = Client()
    client.force_login(user)
    return client


def done(run: ImportRun) -> ImportRun:
    run_job(run.job_id, run_import)
    return ImportRun.objects.select_related("job").get(pk=run.pk)


def test_a_check_stores_nothing_and_an_import_all() -> None:
    cluster = make_cluster(nodes=0)
    checked = done(import_request(cluster=cluster, document=DOCUMENT))
    assert checked.job.state == JobState.SUCCEEDED and not Query.objects.exists()
    stored = done(import_request(cluster=cluster, document=DOCUMENT, dry_run=False, start=True))
    assert stored.result["created"] == checked.result["created"]
    snapshot = cluster_snapshot(cluster).deployment
    assert [(op.id, op.replicas[0].node, op.replicas[0].core) for op in snapshot.operators] == [
        ("q/a", "m1", 0),
        ("q/b", "m2", 3),
    ]


def test_a_worker_that_was_lost_imports_once() -> None:
    cluster = make_cluster(nodes=0)
    run = import_request(cluster=cluster, document=DOCUMENT, dry_run=False)
    done(run)
    run.job.refresh_from_db()
    run.job.state, run.job.heartbeat_at = JobState.RUNNING, None
    run.job.save()
    again = done(run)
    assert again.job.state == JobState.SUCCEEDED
    assert again.result["created"][-1] == "query q" and Query.objects.get().versions.count() == 1


def test_faults_of_the_document_come_before_the_job() -> None:
    with pytest.raises(Malformed) as refused:
        import_request(cluster=make_cluster(nodes=0), document=document_with(nodes=[{"id": "m1"}], surprise=1))
    assert {fault.path for fault in refused.value.faults} >= {"document.surprise", "document.nodes[0].capacity_cps"}
    assert not ImportRun.objects.exists()


def test_import_job_fails_with_every_fault_when_the_cluster_does_not_fit() -> None:
    document = document_with(subintervals=2, sources=[{"id": "clicks", "arrivals": [4, 8]}])
    run = done(import_request(cluster=make_cluster(nodes=0), document=document, dry_run=False))
    assert run.job.state == JobState.FAILED and run.result is None
    assert run.job.error["faults"][0]["path"].startswith("sources[0]")
    assert not Query.objects.exists()


def test_pages_check_then_import(user_of: Any) -> None:
    cluster = make_cluster(nodes=0)
    client = browser_of(user_of(Role.ADMIN))
    file = io.BytesIO(json.dumps(DOCUMENT).encode())
    file.name = "fleet.json"
    answer = client.post(f"/c/{cluster.slug}/import/", {"file": file, "fill": "", "start": "on"})
    run = ImportRun.objects.get()
    assert answer.status_code == 302 and run.options == {"dry_run": True, "fill": "", "query": "", "start": True}
    assert "Progress" in client.get(answer.url).content.decode()
    done(run)
    assert "Import 2 nodes and 1 queries" in client.get(answer.url).content.decode()
    stored = client.post(answer.url)
    done(ImportRun.objects.exclude(pk=run.pk).get())
    assert "Imported: 2 nodes" in client.get(stored.url).content.decode()
    assert Query.objects.get().state == "running"


def test_pages_show_what_is_wrong_with_a_file(user_of: Any) -> None:
    cluster = make_cluster(nodes=0)
    client = browser_of(user_of(Role.ADMIN))
    for text, told in (("{", "not JSON"), ('{"subinterval_s": -1}', "subinterval_s")):
        file = io.BytesIO(text.encode())
        file.name = "fleet.json"
        answer = client.post(f"/c/{cluster.slug}/import/", {"file": file})
        assert answer.status_code == 422 and told in answer.content.decode()


def test_only_administrators_pass_admission_by(user_of: Any) -> None:
    cluster = make_cluster(nodes=0)
    client = browser_of(user_of(Role.OPERATOR))
    assert "Run its queries" not in client.get(f"/c/{cluster.slug}/import/").content.decode()
    body = json.dumps({"document": DOCUMENT, "start": True})
    answer = client.post(f"/api/v1/clusters/{cluster.slug}/document", body, content_type="application/json")
    assert answer.status_code == 403 and answer.json()["faults"][0]["path"] == "start"


def test_old_imports_are_forgotten() -> None:
    run = done(import_request(cluster=make_cluster(nodes=0), document=DOCUMENT))
    assert imports_purge() == 0
    run.created_at = run.created_at.replace(year=2020)
    run.save()
    assert imports_purge() == 1


def test_a_made_up_fleet_is_loaded_as_asked_and_imports_as_it_is() -> None:
    out = io.StringIO()
    call_command("make_fleet", "--nodes", "5", "--operators", "37", "--seconds", "40", "--load", "0.4", stdout=out)
    document = json.loads(out.getvalue())
    deployment = Deployment.parse(document)
    assert (len(deployment.nodes), len(deployment.operators), len(deployment.queries)) == (5, 37, 4)
    capacity = sum(node.capacity_cps * node.cores for node in deployment.nodes)
    assert mace(deployment).load.sum() / 40 / capacity == pytest.approx(0.4)
    cluster = make_cluster(nodes=0, subinterval_s=1.0, horizon_s=40.0)
    done(import_request(cluster=cluster, document=document, dry_run=False, start=True))
    assert cluster_snapshot(cluster).deployment.operators[7].replicas == deployment.operators[7].replicas


def test_sizes_no_fleet_can_have_are_refused() -> None:
    with pytest.raises(CommandError, match="--nodes is 0; allowed: at least 1; --load is 3"):
        call_command("make_fleet", "--nodes", "0", "--load", "3")
