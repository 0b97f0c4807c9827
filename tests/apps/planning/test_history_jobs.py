"""Runs over the history: one at a time, once a day, with figures, load histories and faults that people can read."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.core.errors import Conflict
from apps.fleet.models import Cluster
from apps.jobs.models import Job, JobState
from apps.planning import history_work as work
from apps.planning.choices import HistoryJob, HistoryOrigin
from apps.planning.history_jobs import history_request, history_run_due
from apps.planning.history_work import EXPORTED_RUNS, loads_store, scored_runs_export
from apps.planning.load_histories import history_create_from_generator, history_values
from apps.planning.models import LoadHistory
from spark_jobs.history.figures import RUNS
from spark_jobs.history.jobs import JOBS
from tests.apps import small_cluster
from tests.apps.estimates.runs import make_runs
from tests.apps.pages.html import body
from tests.apps.results.rows import live_query

pytestmark = [pytest.mark.django_db, pytest.mark.moment]

HOUR_US = 3_600_000_000


@pytest.fixture
def cluster(db: None) -> Cluster:
    cluster = small_cluster.small_cluster()
    small_cluster.start_query(cluster, "calm", 0.5, "a", bound_s=20.0)
    return cluster


@pytest.fixture
def browser(user_of: Callable[..., User]) -> Client:
    client = Client()
    client.force_login(user_of())
    return client


@pytest.fixture
def folder(tmp_path: Path, settings: Any) -> Path:
    settings.VAR_DIR = tmp_path
    return tmp_path / "history"


def answers(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Let a script stand for the process of Spark."""
    monkeypatch.setattr(work, "COMMAND", (sys.executable, "-c", script))


def arrivals_of(query: str, starts_us: list[int]) -> pa.Table:
    """Counts of half hours, 100, 101 and so on."""
    rows = [
        {"query": query, "starts_us": at_us, "width_us": HOUR_US // 2, "count": 100 + n}
        for n, at_us in enumerate(starts_us)
    ]
    return pa.Table.from_pylist(rows)


def test_console_and_stream_processor_name_the_same_jobs_and_columns() -> None:
    assert HistoryJob.values == list(JOBS)
    assert EXPORTED_RUNS.equals(RUNS)


@pytest.mark.process
def test_run_leaves_figures_and_a_load_history_of_what_agents_counted(
    folder: Path, monkeypatch: pytest.MonkeyPatch, browser: Client, cluster: Cluster
) -> None:
    live, output = live_query(cluster), folder / "outputs" / "arrivals"
    output.mkdir(parents=True)
    begin_us = (int(timezone.now().timestamp()) // 3600 - 40) * HOUR_US
    pq.write_table(arrivals_of(live.key, [begin_us + n * HOUR_US // 2 for n in range(60)]), output / "part-0.parquet")
    figures = {"rows": 60, "queries": 1, "records": 7770, "first_us": begin_us, "end_us": begin_us + 30 * HOUR_US}
    days = {"statistics": {"first": "2026-11-24", "last": "2026-11-24", "days": 1, "files": 3, "bytes": 2048}}
    lines = [{"progress": 0.5, "step": "arrivals"}, {"jobs": {"arrivals": figures | {"duration_s": 2.5}}, "days": days}]
    answers(monkeypatch, f"print('no line of ours'); [print(line) for line in {[*map(json.dumps, lines)]}]")
    history_request(jobs=["arrivals"])
    with pytest.raises(Conflict, match="queued"):
        history_request(jobs=["costs"])
    (job,) = small_cluster.run_jobs()
    assert job.state == JobState.SUCCEEDED, job.error
    assert job.result["jobs"]["arrivals"]["histories"] == 1
    stored = LoadHistory.objects.get(cluster=cluster, source_id="clicks")
    assert (stored.origin, stored.buckets) == (HistoryOrigin.TELEMETRY, 30)
    assert history_values(stored)[0] == 201
    html = body(browser.get("/c/little/sources/history/"))
    assert "1 load history" in html
    assert "7,770 records of 1 query" in html


def test_load_history_that_somebody_made_stays(folder: Path, cluster: Cluster) -> None:
    live = live_query(cluster)
    history_create_from_generator(cluster=cluster, source_id="clicks", spec={"peak_rate_eps": 5.0, "weeks": 1})
    begin_us = int(datetime(2026, 11, 20, tzinfo=UTC).timestamp()) * 1_000_000
    starts_us = [begin_us + n * HOUR_US // 2 for n in range(40)]
    counts = arrivals_of(live.key, starts_us)
    folder.mkdir()
    pq.write_table(counts, folder / "arrivals.parquet")
    assert loads_store(folder / "arrivals.parquet") == 0
    LoadHistory.objects.all().delete()
    assert loads_store(folder / "arrivals.parquet") == 1
    later = arrivals_of(live.key, [at_us + 18 * HOUR_US for at_us in starts_us])
    pq.write_table(later, folder / "arrivals.parquet")
    assert loads_store(folder / "arrivals.parquet") == 1
    assert LoadHistory.objects.get().buckets == 38


@pytest.mark.process
@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("import sys; sys.exit(75)", "Another run over the history is under way"),
        ("import sys; print('no Java here', file=sys.stderr); sys.exit(1)", "ended with 1 and said: no Java here"),
    ],
)
def test_process_that_fails_says_why(
    folder: Path, monkeypatch: pytest.MonkeyPatch, browser: Client, cluster: Cluster, script: str, message: str
) -> None:
    answers(monkeypatch, script)
    history_request(jobs=["compact"])
    (job,) = small_cluster.run_jobs()
    assert job.state == JobState.FAILED
    assert message in job.error["message"]
    assert message in body(browser.get("/c/little/sources/history/"))


@pytest.mark.process
def test_job_that_is_cancelled_ends_its_process(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    answers(monkeypatch, f"import os, time; open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(60)")
    job = history_request()
    monkeypatch.setattr(work, "_POLL_S", 0.05)

    class _Cancels(work.JobReporter):
        def __call__(self, fraction: float, step: str = "") -> None:
            if mark.exists() and mark.read_text():
                raise InterruptedError

    with pytest.raises(InterruptedError):
        work.run_history(_Cancels(job))
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)


def test_run_is_due_once_after_each_day(folder: Path, user_of: Callable[..., User]) -> None:
    now = timezone.now()
    assert not history_run_due(now), "there is no history"
    (folder / "results" / "day=2026-11-24").mkdir(parents=True)
    assert history_run_due(now)
    Job.objects.update(state=JobState.CANCELLED)
    history_request(user=user_of())
    assert not history_run_due(now)
    Job.objects.update(state=JobState.CANCELLED, created_at=now - timedelta(days=2))
    assert history_run_due(now)


def test_scored_runs_are_written_by_day_until_the_day_is_over(folder: Path, cluster: Cluster) -> None:
    query = cluster.queries.get(name="calm")
    make_runs(query, 3)
    now = timezone.now()
    assert scored_runs_export(folder, now=now, days=400) == 3
    (path,) = folder.glob("runs/day=*/runs.parquet")
    table = pq.ParquetFile(path).read()
    assert table.schema.equals(RUNS)
    assert table["query"].to_pylist() == ["little/calm"] * 3


def test_rest_tells_jobs_and_runs_them(api: APIClient, folder: Path) -> None:
    told = api.get("/api/v1/history").json()
    assert [job["job"] for job in told["jobs"]] == HistoryJob.values
    assert api.post("/api/v1/history", {"jobs": ["sums"]}, format="json").status_code == 400
    assert api.post("/api/v1/history", {"jobs": ["costs", "compact"]}, format="json").status_code == 202
    assert api.get("/api/v1/history").json()["under_way"]["title"] == "Run compact, costs over the history"
    assert api.post("/api/v1/history", {}, format="json").status_code == 409
