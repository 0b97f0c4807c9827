"""Recorded answers of a real Flink: the same statistics by upload as by URL."""

from __future__ import annotations

import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest
from django.core.files.base import ContentFile

from apps.connections import work
from apps.connections.models import Connection, ImportedJob
from apps.connections.services import connection_create, connection_import
from apps.connections.uploads import upload_store
from apps.queries.models import OperatorInput
from tests.apps import small_cluster
from tests.apps.connections.engine_server import EngineServer, Reply

ROOT = Path(__file__).resolve().parents[3]
SHARED = Path(os.environ.get("SLUICE_CASES") or ROOT.parent / "shared" / "cases").parent
RUNS = sorted((SHARED / "data" / "flink").glob("run_*/meta.json"))

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(not RUNS, reason="no recorded answers (SLUICE_CASES)"),
]

_METRICS = {
    "read-records": "numRecordsIn",
    "write-records": "numRecordsOut",
    "accumulated-busy-time": "accumulateBusyTimeMs",
    "accumulated-idle-time": "accumulateIdleTimeMs",
    "accumulated-backpressured-time": "accumulateBackPressuredTimeMs",
}


def recorded_answers(folder: Path) -> dict[str, Any]:
    """The answers of a run by path, as they were recorded at one moment."""
    answers: dict[str, Any] = {}
    for line in (folder / "rest" / "INDEX.tsv").read_text().splitlines():
        name, status, path = line.split("\t")
        file = folder / "rest" / f"{name}.json"
        if status == "200" and file.exists():
            answers[path] = json.loads(file.read_text())
    return answers


def recorded_polls(folder: Path, job: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """The job's answer as it would have been at moments 2 s apart, by the counters that were recorded each second."""
    lines = [json.loads(line) for line in (folder / "series.jsonl").read_text().splitlines()]
    told = [line for line in lines if line["v1"].get("accumulateBusyTimeMs") not in (None, "NaN")]
    polls = []
    for line in told[4::2][:count]:
        vertices = []
        for i, vertex in enumerate(job["vertices"]):
            counters = line[f"v{i}"]
            metrics = {ours: counters[theirs] for ours, theirs in _METRICS.items() if theirs in counters}
            vertices.append({**vertex, "metrics": {**vertex["metrics"], **metrics}})
        polls.append({**job, "now": round(1000 * line["t"]), "vertices": vertices})
    return polls


def statistics_of(connection: Connection) -> dict[str, tuple[float, float | None, str, int]]:
    query = ImportedJob.objects.get(connection=connection).query
    rows = OperatorInput.objects.filter(operator__version=query.running_version).select_related("operator")
    return {row.operator.name: (row.selectivity, row.cycles_per_event, row.evidence, row.events) for row in rows}


def imported(connection: Connection) -> None:
    job = connection_import(connection=connection)
    small_cluster.run_jobs()
    job.refresh_from_db()
    assert job.state == "succeeded", job.error


@pytest.mark.parametrize("run", [path.parent.name for path in RUNS])
def test_recorded_run_gives_the_same_statistics_by_upload_as_by_url(run: str, engine: EngineServer) -> None:
    folder = SHARED / "data" / "flink" / run
    answers = recorded_answers(folder)
    path = f"/jobs/{json.loads((folder / 'meta.json').read_text())['jid']}"
    polls = recorded_polls(folder, answers[path], work.IMPORT_POLLS + 1)
    answered = iter(polls)

    def reply(asked: str) -> Reply:
        if asked == path:
            return Reply(next(answered))
        return Reply(answers[asked]) if asked in answers else Reply({"errors": ["Not found."]}, 404)

    engine.find = reply
    asked = connection_create(cluster=small_cluster.small_cluster("url"), name="shop", engine="flink", url=engine.url)
    imported(asked)
    rounds = [{**(answers if i == 0 else {}), path: poll} for i, poll in enumerate(polls)]
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for i, part in enumerate(rounds):
            archive.writestr(f"{i:03}.json", json.dumps(part))
    uploaded = connection_create(cluster=small_cluster.small_cluster("upload"), name="shop", engine="flink")
    upload_store(connection=uploaded, file=ContentFile(content.getvalue(), name="answers.zip"))
    imported(uploaded)
    by_url, by_upload = statistics_of(asked), statistics_of(uploaded)
    assert by_url == by_upload
    assert sum(evidence == "measured" for _, _, evidence, _ in by_url.values()) >= 3
