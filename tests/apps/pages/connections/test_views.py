"""Connections in the browser: the list, a new one, its check and import, its states, and their traces elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone

from apps.connections import services
from apps.connections.models import Connection, ImportedJob, KeptPoll
from apps.fleet.models import Cluster
from apps.fleet.services import node_create, pool_create
from apps.jobs.models import Job, JobKind, JobState
from apps.queries.models import Query
from tests.apps.connections.pictures import FINDINGS, shop_look
from tests.apps.pages.html import body

pytestmark = pytest.mark.django_db

ROOT = "/c/little/connections/"
URL = "https://flink.example.org:8081/v1"


@pytest.fixture
def connection(cluster: Cluster) -> Connection:
    """Checked and connected, nothing imported."""
    row = services.connection_create(cluster=cluster, name="flink", engine="flink", url=URL)
    row.look, row.findings, row.engine_version = shop_look(timezone.now().timestamp()), FINDINGS, "2.3.0"
    row.cost = {"requests": 30, "bytes": 2048, "seconds": 0.5}
    row.checked_at = row.answered_at = row.asked_at = timezone.now()
    row.save()
    return services.state_change(row, "connected", "")


@pytest.fixture
def imported(connection: Connection) -> ImportedJob:
    """The query `calm` is its job `shop`, polled three times."""
    now = timezone.now()
    connection.imported_at = now
    connection.save()
    pool = pool_create(cluster=connection.cluster, name=connection.pool_name, capacity_cps=1e9, cores=2)
    node_create(pool=pool, name="tm1")
    query = Query.objects.get(name="calm")
    job = ImportedJob.objects.create(
        connection=connection,
        query=query,
        version=query.running_version,
        engine_id="j1",
        name="shop",
        state="running",
        shape="0" * 64,
        places={"tm1": "tm-1"},
        events=[
            {"at": (now - timedelta(minutes=5)).isoformat(), "kind": "appeared", "words": ""},
            {"at": now.isoformat(), "kind": "rescaled", "words": "enrich from 1 to 2"},
        ],
        versions_seen=2,
        started_at=now,
        seen_at=now,
        measured_at=now,
    )
    for ago_s in (0, 15, 30):
        KeptPoll.objects.create(job=job, at=now - timedelta(seconds=ago_s), attempt="a", data={"vertices": {}})
    return job


def page_of(connection: Connection, part: str = "") -> str:
    return f"{ROOT}{connection.pk}/{part}"


def test_empty_list_says_what_to_do_first(browser_of: Callable[..., Client], cluster: Cluster) -> None:
    html = body(browser_of("operator").get(ROOT))
    assert "No engine is connected yet" in html and "./sluice connect" in html and f'href="{ROOT}new/"' in html
    assert f'href="{ROOT}new/"' not in body(browser_of("viewer").get(ROOT))


def test_list_shows_engine_host_state_jobs_and_polls(browser: Client, imported: ImportedJob) -> None:
    html = body(browser.get(ROOT))
    assert "1 engine: 1 connected. 1 job runs." in html
    assert f'href="{page_of(imported.connection)}">flink</a>' in html and "flink.example.org:8081" in html
    line = browser.get(f"{ROOT}?export=csv").getvalue().decode().splitlines()[1]
    assert line.startswith("flink,flink,flink.example.org:8081,connected,1,")


def test_list_is_filtered_by_state_and_engine(browser: Client, cluster: Cluster, connection: Connection) -> None:
    other = services.connection_create(
        cluster=cluster, name="prom", engine="prometheus", url="https://prom.example.org"
    )
    services.state_change(other, "refused", "401")
    html = body(browser.get(f"{ROOT}?state=refused"))
    assert ">prom</a>" in html and ">flink</a>" not in html
    html = body(browser.get(f"{ROOT}?engine=flink"))
    assert ">prom</a>" not in html and ">flink</a>" in html
    assert "Nothing matches" in body(browser.get(f"{ROOT}?q=zzz"))


def test_only_operators_see_more_of_an_address_than_its_host(
    browser_of: Callable[..., Client], connection: Connection
) -> None:
    assert URL in body(browser_of("operator").get(page_of(connection)))
    assert URL not in body(browser_of("viewer").get(page_of(connection)))


def test_new_connection_is_named_after_its_host_and_checked(browser: Client, connection: Connection) -> None:
    for name in ("flink.example.org", "flink.example.org-2"):
        answer = browser.post(
            f"{ROOT}new/", {"engine": "flink", "url": URL, "poll_interval_s": "5", "verify_tls": "on"}
        )
        row = Connection.objects.get(name=name)
        assert answer["Location"] == page_of(row, "check/")
        assert (row.poll_interval_s, row.verify_tls, row.origin) == (5.0, True, "url")
        assert Job.objects.get(params__connection=row.pk).kind == JobKind.CONNECTION_CHECK


def test_every_fault_of_a_new_connection_is_shown_at_once(browser: Client, connection: Connection) -> None:
    answer = browser.post(
        f"{ROOT}new/",
        {
            "engine": "flink",
            "url": "",
            "name": "Not a Slug",
            "ca_pem": "none",
            "token": "a b",
            "poll_interval_s": "0",
            "latency_metric": "x",
            "latency_query": "y",
        },
    )
    html = body(answer)
    assert answer.status_code == 422 and "7 faults to correct" in html
    for words in (
        "It is missing; enter one such as http://flink:8081.",
        "holds no certificate",
        "It has to be 2 to 3,600",
        "printable ASCII",
        "latency_query needs it",
        "latency_metric is given as well",
        "Use 1 to 64 of a-z",
    ):
        assert words in html, words
    assert Connection.objects.count() == 1 and "a b" not in html
    assert html.count('class="panel con-more" open') == 3


def test_operators_of_a_prometheus_are_typed_as_json(browser: Client, cluster: Cluster) -> None:
    typed = {"engine": "prometheus", "url": URL, "name": "prom", "poll_interval_s": "15", "verify_tls": "on"}
    for operators, words in (
        ("[{", "It is no JSON"),
        ("{}", "It is dict; allowed: a list"),
        ('[{"name": "parse"}]', "rate is missing"),
    ):
        html = body(browser.post(f"{ROOT}new/", {**typed, "operators": operators}))
        assert words in html, words
    assert not Connection.objects.exists()
    browser.post(f"{ROOT}new/", {**typed, "operators": '[{"name": "parse", "rate": "sum(rate(in_total[1m]))"}]'})
    row = Connection.objects.get()
    assert row.operators == [{"name": "parse", "rate": "sum(rate(in_total[1m]))"}]
    assert "sum(rate(in_total[1m]))" in body(browser.get(page_of(row, "edit/")))


def test_form_refuses_private_addresses_with_the_setting_that_lists_them(browser: Client, cluster: Cluster) -> None:
    html = body(browser.post(f"{ROOT}new/", {"engine": "flink", "url": "http://10.0.0.1:8081", "poll_interval_s": "5"}))
    assert "private network" in html and "SLUICE_CONNECT_HOSTS" in html


def test_upload_is_kept_and_checked_or_nothing_is_stored(browser: Client, cluster: Cluster) -> None:
    page = f"{ROOT}new/?origin=upload"
    broken = SimpleUploadedFile("answers.json", b'{"/overview": ')
    answer = browser.post(page, {"engine": "flink", "name": "recorded", "file": broken})
    assert answer.status_code == 422 and "broken or ends too early" in body(answer)
    assert not Connection.objects.exists()
    file = SimpleUploadedFile("answers.json", b'{"/overview": {"taskmanagers": 1}}')
    answer = browser.post(page, {"engine": "flink", "file": file})
    row = Connection.objects.get()
    assert (row.name, row.origin, answer["Location"]) == ("flink", "upload", page_of(row, "check/"))
    html = body(browser.get(page_of(row)))
    assert "answers.json" in html and "Newer answers" in html
    newer = SimpleUploadedFile("newer.json", b'[{"/overview": {}}, {"/overview": {}}]')
    assert browser.post(page_of(row, "upload/"), {"file": newer})["Location"] == page_of(row, "check/")
    answer = browser.post(page_of(row, "upload/"), {"file": SimpleUploadedFile("x.json", b"{")})
    assert answer.status_code == 422 and "broken or ends too early" in body(answer)


def test_check_shows_its_progress_then_what_was_found(browser: Client, connection: Connection) -> None:
    assert browser.post(page_of(connection, "check/"))["Location"] == page_of(connection, "check/")
    html = body(browser.get(page_of(connection, "check/")))
    assert "What was found appears here by itself" in html and f"changed:connection:{connection.pk} " in html
    Job.objects.update(state=JobState.SUCCEEDED)
    html = body(browser.get(page_of(connection, "check/")))
    assert "appears here by itself" not in html
    assert "Flink 2.3.0 runs <b>2 jobs</b> on 2 TaskManagers with 4 slots" in html
    order = [
        html.index(f">{title}</h2>")
        for title in ("What changes the answer", "Missing", "Assumed in its place", "Found")
    ]
    assert order == sorted(order)
    for finding in FINDINGS:
        assert finding["message"] in html
    assert "A round asks 30 questions and reads 2" in html


def test_findings_of_one_kind_are_folded_and_what_changes_the_answer_stands_first(
    browser: Client, connection: Connection
) -> None:
    alike = [
        {"level": "assumed", "code": "buffer", "subject": f"shop-{i}", "message": f"{i + 100} ms a hop."}
        for i in range(140)
    ]
    unknown = [
        {
            "level": "missing",
            "code": "busy_time_missing",
            "subject": f"q{i}/source",
            "message": f"Cost {i} is unknown.",
        }
        for i in range(5)
    ]
    Connection.objects.filter(pk=connection.pk).update(findings=[*alike, *unknown])
    html = body(browser.get(page_of(connection)))
    assert html.index("What changes the answer") < html.index("Cost 0 is unknown") < html.index("Assumed in its place")
    assert "and 2 alike" in html and "and 139 alike" in html
    assert "40 more findings of this kind; REST lists every one" in html


def test_check_previews_nodes_operators_and_statistics_so_far(browser: Client, connection: Connection) -> None:
    html = body(browser.get(page_of(connection, "check/")))
    assert "2 nodes in the pool flink-flink" in html and ">tm1</th>" in html
    assert "7 polls over 60 s, 500 events" in html.replace("\xa0", " ")
    assert "orders (hash)" in html and "tm1 and tm2" in html
    assert "20\u00a0%" in html or "20%" in html
    assert "statistics need two" in html


def test_import_takes_the_chosen_jobs_with_their_objectives(
    browser_of: Callable[..., Client], connection: Connection
) -> None:
    chosen = {"job-0": "on", "statistic-0": "worst", "bound-0": "5", "statistic-1": "none"}
    answer = browser_of("admitter").post(page_of(connection, "import/"), chosen)
    assert answer["Location"] == page_of(connection)
    job = Job.objects.get(kind=JobKind.CONNECTION_IMPORT)
    assert job.params["jobs"] == ["shop"]
    assert job.params["objectives"] == {"shop": {"statistic": "worst", "bound_s": 5.0}}


def test_import_of_every_job_takes_later_ones_too(browser_of: Callable[..., Client], connection: Connection) -> None:
    browser_of("admitter").post(page_of(connection, "import/"), {"job-0": "on", "job-1": "on"})
    assert Job.objects.get(kind=JobKind.CONNECTION_IMPORT).params["jobs"] is None


def test_import_shows_every_fault_of_its_objectives(browser_of: Callable[..., Client], connection: Connection) -> None:
    typed = {"job-0": "on", "statistic-0": "worst", "job-1": "on", "statistic-1": "none", "bound-1": "3"}
    answer = browser_of("admitter").post(page_of(connection, "import/"), typed)
    html = body(answer)
    assert answer.status_code == 422 and "2 faults to correct" in html
    assert "has no bound" in html and "a bound without an objective" in html
    assert "No job is chosen" in body(browser_of("admitter").post(page_of(connection, "import/"), {}))
    assert not Job.objects.filter(kind=JobKind.CONNECTION_IMPORT).exists()


def test_import_is_for_those_who_decide_on_admissions(browser: Client, connection: Connection) -> None:
    assert "Your role may not import" in body(browser.get(page_of(connection, "check/")))


def test_only_named_jobs_are_chosen_at_first(browser_of: Callable[..., Client], connection: Connection) -> None:
    connection.job_names = ["other"]
    connection.save()
    html = body(browser_of("admitter").get(page_of(connection, "check/")))
    assert 'name="job-1" id="id_job-1" checked' in html and 'name="job-0" id="id_job-0" checked' not in html


def test_check_of_an_engine_that_refuses_says_why_and_what_to_do(browser: Client, connection: Connection) -> None:
    row = services.connection_create(cluster=connection.cluster, name="new", engine="flink", url=URL)
    services.state_change(row, "refused", "flink.example.org answers 401: it wants a token")
    html = body(browser.get(page_of(row, "check/")))
    assert "answers 401: it wants a token." in html and "Nothing was stored." in html
    assert f'href="{page_of(row, "edit/")}"' in html


def test_failed_check_shows_its_faults(browser: Client, connection: Connection) -> None:
    services.connection_check(connection=connection)
    error = {"code": "malformed", "message": "2 faults", "faults": [{"path": "jobs[0]", "message": "no id"}]}
    Job.objects.update(state=JobState.FAILED, error=error)
    html = body(browser.get(page_of(connection, "check/")))
    assert "2 faults" in html and "jobs[0]" in html


def test_page_of_a_connection_shows_jobs_polls_changes_and_costs(browser: Client, imported: ImportedJob) -> None:
    html = body(browser.get(page_of(imported.connection)))
    assert "Flink 2.3.0 at flink.example.org:8081: 1 of 1 job runs." in html
    assert 'href="/c/little/queries/calm/">calm</a>' in html and "shop, running" in html
    assert "over 30" in html and "was rescaled: enrich from 1 to 2" in html and "2 versions" in html
    assert "/accuracy/?origin=flink" in html
    assert "not imported" in html


def test_engine_that_is_away_is_a_state_with_what_was_known(browser: Client, imported: ImportedJob) -> None:
    services.state_change(imported.connection, "away", "flink.example.org did not answer within 8 s")
    html = body(browser.get(page_of(imported.connection)))
    assert "It does not answer since" in html and "did not answer within 8 s." in html
    assert "stands below, and ages" in html and "as far as is known" in html and ">enrich</th>" in html


def test_paused_connection_offers_to_resume(browser: Client, imported: ImportedJob) -> None:
    connection = imported.connection
    assert browser.post(page_of(connection, "pause/"))["Location"] == page_of(connection)
    html = body(browser.get(page_of(connection)))
    assert "Nothing is asked of it since" in html and f'action="{page_of(connection, "resume/")}"' in html
    browser.post(page_of(connection, "resume/"))
    connection.refresh_from_db()
    assert connection.state == "new"


def test_refresh_asks_once_more(browser: Client, imported: ImportedJob) -> None:
    assert browser.post(page_of(imported.connection, "refresh/"))["Location"] == page_of(imported.connection)
    assert Job.objects.filter(kind=JobKind.CONNECTION_REFRESH).count() == 1


def test_part_of_the_page_is_304_where_nothing_changed(browser: Client, imported: ImportedJob) -> None:
    path, part = page_of(imported.connection), {"HX-Request": "true", "Sluice-Part": "connection"}
    first = browser.get(path, headers=part)
    assert browser.get(path, headers={**part, "If-None-Match": first["ETag"]}).status_code == 304
    services.state_change(imported.connection, "away", "gone")
    assert browser.get(path, headers={**part, "If-None-Match": first["ETag"]}).status_code == 200


def test_dialog_counts_what_a_deletion_touches(browser: Client, imported: ImportedJob) -> None:
    connection = imported.connection
    html = body(browser.get(page_of(connection)))
    assert "with 3 polls of 1 job." in html and "1 query and 1 node stay" in html
    assert browser.post(page_of(connection, "delete/"))["Location"] == ROOT
    assert not Connection.objects.exists() and Query.objects.filter(name="calm").exists()


def test_change_keeps_the_token_and_the_name_of_the_pool(browser: Client, imported: ImportedJob) -> None:
    connection = services.connection_update(connection=imported.connection, token="secret")
    html = body(browser.get(page_of(connection, "edit/")))
    assert "One is kept" in html and "secret" not in html and "the pool of its nodes is named after it" in html
    values = {"url": URL, "poll_interval_s": "30", "verify_tls": "on", "job_names": "shop\nother\nshop"}
    assert browser.post(page_of(connection, "edit/"), values)["Location"] == page_of(connection)
    sealed = connection.sealed_token
    connection.refresh_from_db()
    assert (connection.sealed_token, connection.name) == (sealed, "flink")
    assert (connection.poll_interval_s, connection.job_names) == (30.0, ["shop", "other"])
    moved = browser.post(page_of(connection, "edit/"), {**values, "url": "https://other.example.org"})
    assert moved.status_code == 422 and "not sent to another URL" in body(moved)
    browser.post(page_of(connection, "edit/"), {**values, "no_token": "on"})
    connection.refresh_from_db()
    assert connection.sealed_token == ""


def test_page_of_the_query_says_where_it_comes_from(browser: Client, imported: ImportedJob) -> None:
    html = body(browser.get("/c/little/queries/calm/"))
    assert (
        "Where it comes from" in html and "<code>j1</code>" in html and "/accuracy/?query=calm&amp;origin=flink" in html
    )
    assert "The host was busy for 12 s." in html
    assert "Where it comes from" not in body(browser.get("/c/little/queries/late/"))
    services.state_change(imported.connection, "away", "gone")
    assert "does not answer since" in body(browser.get("/c/little/queries/calm/statistics/"))


def test_page_of_a_node_shows_its_task_manager(browser: Client, imported: ImportedJob) -> None:
    html = body(browser.get("/c/little/fleet/nodes/tm1/"))
    assert ">TaskManager</h2>" in html and "<dt>Slots</dt><dd>2" in html and page_of(imported.connection) in html
    assert ">TaskManager</h2>" not in body(browser.get("/c/little/fleet/nodes/a/"))


@pytest.mark.parametrize("text", ["flink", "shop"])
def test_search_finds_a_connection_by_its_name_and_its_jobs(browser: Client, imported: ImportedJob, text: str) -> None:
    assert f'href="{page_of(imported.connection)}"' in body(browser.get(f"/c/little/search/?q={text}"))


def test_attention_list_names_engines_that_are_away_or_refuse(browser: Client, imported: ImportedJob) -> None:
    assert "flink does not answer" not in body(browser.get("/c/little/"))
    services.state_change(imported.connection, "away", "flink.example.org did not answer within 8 s")
    html = body(browser.get("/c/little/"))
    assert "flink does not answer" in html and "Statistics of 1 query age" in html
    services.state_change(imported.connection, "refused", "it wants a token")
    assert "flink cannot be read" in body(browser.get("/c/little/"))


def test_connection_of_another_cluster_is_not_found(browser: Client, connection: Connection) -> None:
    assert browser.get(f"{ROOT}{connection.pk + 1}/").status_code == 404
