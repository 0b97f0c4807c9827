"""Resource plans in the browser: form and faults, answers of both engines, what would be feasible, apply, list."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.utils.html import strip_tags

from apps.fleet.models import Cluster
from apps.microbatch.models import SparkQuery
from apps.microbatch.progress import own_progress_ingest, progress_ingest
from apps.planning.models import ResourcePlan
from apps.planning.resource_plans import RESOURCE_PLAN
from tests.apps import small_cluster
from tests.apps.microbatch.spark_progress import progress_of_run
from tests.apps.pages.html import body
from tests.apps.planning.test_resource_plans import counted_clicks, watched

pytestmark = pytest.mark.django_db

ROOT = "/c/little/provisioning/resource-plans/"
NEW = f"{ROOT}new/"
SPARK = {"f0_s": 0.3, "c_in_s": 1e-5, "c_sh_s": 5e-6}


@pytest.fixture
def cluster() -> Cluster:
    return small_cluster.small_cluster()


def spark_plan(cluster: Cluster, **changes: Any) -> ResourcePlan:
    asked = {"rate": 1e6, "constraint_s": 2.0, "statistic": "q0.95", "profile": SPARK, "cores_per_executor": 4}
    return RESOURCE_PLAN.request(cluster=cluster, user=None, engine="microbatch", **asked | changes)[0]


def stage_plan(cluster: Cluster, **changes: Any) -> ResourcePlan:
    profile = {"c_map": 1.6e-5, "alpha": 8, "c_red": 2e-6, "c_hb": 5e-3}
    asked = {"rate": 1e6, "constraint_s": 1.0, "hardware": {"n": 4}, "profile": profile} | changes
    return RESOURCE_PLAN.request(cluster=cluster, user=None, engine="stage", **asked)[0]


def said(html: str) -> str:
    """Texts of a page without its tags, from its heading on."""
    text = unescape(strip_tags(re.sub(r"<(?=[^/])", " <", html[html.index("<h1") :]))).replace("\u00a0", " ")
    return re.sub(r" (?=[.,:])", "", re.sub(r"\s+", " ", text))


def fields(html: str) -> dict[str, str]:
    """Values of the form's fields of numbers."""
    inputs = re.findall(r'<input type="text" name="([^"]+)"([^>]*)>', html)
    return {name: (re.findall(r'value="([^"]*)"', rest) or [""])[0] for name, rest in inputs}


def test_empty_list_says_what_to_do_first(browser: Client, cluster: Cluster) -> None:
    html = body(browser.get(ROOT))
    assert "No resource plan yet" in html
    assert f'href="{NEW}"' in html
    assert 'aria-current="page">Resource plan</a>' in html


def test_form_is_filled_from_a_querys_statistics(browser: Client, cluster: Cluster) -> None:
    counted_clicks(cluster)
    html = body(browser.get(f"{NEW}?engine=stage&source=query:counts"))
    values = fields(html)
    assert (values["rate"], values["profile-c_map"], values["profile-alpha"]) == ("100", "2000", "0.5")  # 2 ms in µs
    assert values["constraint_s"] == ""
    alpha = html[html.index("Map outputs") :]
    assert "Measured" in alpha[: alpha.index("profile-alpha")]


def test_what_is_left_as_it_was_keeps_its_origin(browser: Client, cluster: Cluster) -> None:
    counted_clicks(cluster)
    url = f"{NEW}?engine=microbatch&source=query:counts"
    values = fields(body(browser.get(url))) | {"constraint_s": "2", "statistic": "q0.99", "profile-c_sh_s": "3000"}
    posted = browser.post(url, values)
    row = ResourcePlan.objects.get()
    assert posted.headers["Location"] == f"{ROOT}{row.pk}/"
    assert (row.origins["profile.alpha"], row.origins["profile.c_sh_s"]) == ("measured", "assumed")
    assert row.origins["profile.f0_s"] == row.origins["aim"] == "default"
    assert (row.question["profile"]["c_sh_s"], row.question["statistic"]) == (pytest.approx(3e-3), "q0.99")
    assert row.query is not None and row.query.name == "counts"


def test_wrong_input_is_told_at_its_fields_all_at_once(browser: Client, cluster: Cluster) -> None:
    values = fields(body(browser.get(NEW)))
    wrong = {"rate": "0", "constraint_s": "soon", "max_executors": "2.5", "headroom": "100", "profile-cv": "nan"}
    response = browser.post(NEW, values | wrong | {"statistic": "q0.95"})
    assert response.status_code == 422
    text = said(body(response))
    assert "6 faults to correct" in text  # work is missing as well
    assert "Latency constraint: It is soon; allowed: a finite number from 0.001 to 1000000." in text
    assert "Executors at most: It is 2.5; allowed: a whole number from 1 to 1000." in text
    assert "Headroom: It is 100; allowed: a finite number from 0 to 95." in text
    assert "Spread of tasks: It is nan" in text and "Before the shuffle: It is missing" in text
    assert not ResourcePlan.objects.exists()


@pytest.mark.parametrize(("typed", "rate"), [("120,5", 120.5), ("120000", 120_000.0), ("0,125", 0.125)])
def test_decimals_may_follow_a_comma(browser: Client, cluster: Cluster, typed: str, rate: float) -> None:
    values = fields(body(browser.get(NEW))) | {"rate": typed, "constraint_s": "5", "profile-c_in_s": "1"}
    browser.post(NEW, values | {"statistic": "mean"})
    assert ResourcePlan.objects.get().question["rate"] == rate


def test_grouped_thousands_are_asked_about_and_not_read_as_decimals(browser: Client, cluster: Cluster) -> None:
    values = fields(body(browser.get(NEW))) | {"rate": "120,000", "constraint_s": "5", "profile-c_in_s": "1"}
    html = body(browser.post(NEW, values | {"statistic": "mean"}))
    assert "Input rate: It is 120,000; write 120000, or a point before decimals." in said(html)
    assert fields(html)["rate"] == "120,000" and not ResourcePlan.objects.exists()


def test_faults_of_the_whole_question_stand_at_a_field(browser: Client, cluster: Cluster) -> None:
    url = f"{NEW}?engine=stage"
    values = fields(body(browser.get(url))) | {"rate": "10", "constraint_s": "1", "statistic": "mean"}
    response = browser.post(url, values | {"profile-c_map": "0", "profile-c_red": "0"})
    assert response.status_code == 422
    assert "Map work: c_map and c_red are 0; allowed: one of them above 0" in said(body(response))


def test_spark_answer_says_size_settings_and_limit(browser: Client, cluster: Cluster) -> None:
    row = spark_plan(cluster)
    html = body(browser.get(f"{ROOT}{row.pk}/"))
    text = said(html)
    assert "With 7 executors of 4 cores and a trigger every 1 s, the p95 latency is 1.9 s at 1 M/s, within" in text
    assert "--conf spark.executor.instances=7 \\" in html
    assert ".trigger(processingTime=&quot;1033 milliseconds&quot;)" in html
    assert "The cores are the limit." in text
    assert "Trigger 1 s 0.52 s" in text  # other settings
    assert "Your rate" in html and "6 executors" in html and "8 executors" in html
    assert "Input rate 1 M/s Assumed" in text
    assert "Aim 93%" in text


def test_choice_of_the_other_end_shows_its_settings(browser: Client, cluster: Cluster) -> None:
    row = spark_plan(cluster, constraint_s=5.0)
    most, least = (body(browser.get(f"{ROOT}{row.pk}/?choice={choice}")) for choice in ("throughput", "latency"))
    result = row.result or {}
    for html, end in ((most, "throughput"), (least, "latency")):
        assert f"{round(result['ends'][end]['trigger_s'] * 1000)} milliseconds" in html
    assert "<p>Most throughput</p>" in most and "<p>Least latency at your rate</p>" in least


def test_setting_that_a_checkpoint_fixes_is_told(browser: Client, cluster: Cluster) -> None:
    stateful, stateless = (spark_plan(cluster, stateful=stateful) for stateful in (True, False))
    assert "Needs a new checkpoint: state is lost" in body(browser.get(f"{ROOT}{stateful.pk}/"))
    assert "new checkpoint" not in body(browser.get(f"{ROOT}{stateless.pk}/"))


def test_infeasible_answer_names_the_limit_and_fills_in_what_is_feasible(browser: Client, cluster: Cluster) -> None:
    row = spark_plan(cluster, constraint_s=0.2)
    html = body(browser.get(f"{ROOT}{row.pk}/"))
    text = said(html)
    assert "No plan of up to 64 executors keeps the p95 latency within 0.2 s at 1 M/s." in text
    assert "The fixed time of a batch is the limit." in text
    assert "No rate, however low, can be kept within 0.2 s." in text
    url = unescape(re.findall(r'href="([^"]*constraint_s=[^"]*)"', html)[0])
    filled = browser.get(url)
    values = fields(body(filled))
    assert values["rate"] == "1000000"
    posted = browser.post(url, values | {"statistic": "q0.95"}, follow=True)
    assert "No plan" not in said(body(posted))


def test_rate_that_is_too_high_leads_to_the_highest_that_is_borne(browser: Client, cluster: Cluster) -> None:
    row = spark_plan(cluster, rate=1e9)
    html = body(browser.get(f"{ROOT}{row.pk}/"))
    assert "the highest rate that fits is" in said(html)
    url = unescape(re.findall(r'href="([^"]*[?&;]rate=[^"]*)"', html)[0])
    values = fields(body(browser.get(url)))
    posted = browser.post(url, values | {"statistic": "q0.95"}, follow=True)
    assert "With 64 executors of 4 cores" in said(body(posted))


def test_watermark_delay_is_told_apart(browser: Client, cluster: Cluster) -> None:
    row = spark_plan(cluster, constraint_s=12.0, watermark_delay_s=10.0)
    assert "10 s of the 12 s are the wait for the watermark, the largest term by far" in said(
        body(browser.get(f"{ROOT}{row.pk}/"))
    )


def test_watermark_delay_beyond_the_constraint_is_no_part_of_it(browser: Client, cluster: Cluster) -> None:
    row = spark_plan(cluster, constraint_s=10.0, watermark_delay_s=30.0)
    text = said(body(browser.get(f"{ROOT}{row.pk}/")))
    assert "The wait for the watermark alone, 30 s, takes the constraint of 10 s:" in text


def test_stage_answer_appears_when_its_job_is_done(browser: Client, cluster: Cluster) -> None:
    row = stage_plan(cluster)
    html = body(browser.get(f"{ROOT}{row.pk}/"))
    assert "The answer appears here by itself." in html
    assert f'hx-trigger="changed:resource-plan:{row.pk} from:body' in html
    small_cluster.run_jobs()
    text = said(body(browser.get(f"{ROOT}{row.pk}/")))
    assert "With 10 nodes, each of" in text and "mappers and" in text
    assert "The twelve phases of an event at 1 M/s" in text and "Shuffle batch (B_sh)" in text


def test_phases_of_windows_are_those_of_a_window(browser: Client, cluster: Cluster) -> None:
    profile = {"c_map": 1.6e-5, "alpha": 1, "c_red": 2e-6, "window": 10, "keys": 1000, "s_k": 1e-5}
    row = stage_plan(cluster, rate=1e5, constraint_s=20.0, profile=profile)
    small_cluster.run_jobs()
    text = said(body(browser.get(f"{ROOT}{row.pk}/")))
    assert "The parts of a window's latency at 100 k/s" in text and "Finalize" in text


def test_failed_job_is_told_on_the_page(browser: Client, cluster: Cluster) -> None:
    row = stage_plan(cluster)
    ResourcePlan.objects.filter(pk=row.pk).update(question={**row.question, "rate": -1.0})
    small_cluster.run_jobs()
    text = said(body(browser.get(f"{ROOT}{row.pk}/")))
    assert "rate is -1" in text and "The answer appears" not in text


def test_fit_of_a_spark_query_fills_the_form(browser: Client, cluster: Cluster) -> None:
    query = watched(cluster, shuffle_partitions=16, stateful=True)
    html = body(browser.get(f"{NEW}?engine=microbatch&source=spark:{query.pk}"))
    text, values = said(html), fields(html)
    assert "orders takes 0.4 s a batch and" in text and "How that divides into the figures below is assumed" in text
    assert (values["shuffle_partitions"], values["cores_per_executor"]) == ("16", "4")
    never = watched(small_cluster.small_cluster("other"), batches=0)
    assert "orders has no fit yet" in said(
        body(browser.get(f"/c/other/provisioning/resource-plans/new/?source=spark:{never.pk}"))
    )


def test_measured_rate_stays_measured_while_the_query_runs_on(browser: Client, cluster: Cluster) -> None:
    query = watched(cluster)
    url = f"{NEW}?engine=microbatch&source=spark:{query.pk}"
    html = body(browser.get(url))
    signed = re.findall(r'name="shown" value="([^"]+)"', html)[0]
    values = fields(html) | {"constraint_s": "5", "statistic": "mean"}
    progress_ingest(query=query, documents=progress_of_run(range(20, 30), fixed_ms=700, per_row_ms=0.004))
    for shown, origin in ((signed, "measured"), (f"{signed}x", "assumed"), ("", "assumed")):
        row = ResourcePlan.objects.get(
            pk=browser.post(url, values | {"shown": shown}).headers["Location"].split("/")[-2]
        )
        assert (row.origins["rate"], row.origins["profile.sd_s"]) == (origin, origin)
        assert row.question["rate"] == pytest.approx(float(values["rate"]), rel=1e-5)
        assert (row.basis["fit"]["batches"] == 17) is (shown == signed)  # 20 less those that warm up


def test_inputs_of_another_source_are_not_taken(browser: Client, cluster: Cluster) -> None:
    query = watched(cluster)
    html = body(browser.get(f"{NEW}?engine=microbatch&source=spark:{query.pk}"))
    signed = re.findall(r'name="shown" value="([^"]+)"', html)[0]
    browser.post(NEW, fields(html) | {"constraint_s": "5", "statistic": "mean", "shown": signed})
    assert ResourcePlan.objects.get().origins["rate"] == "assumed"


def test_spark_query_gives_no_stage(browser: Client, cluster: Cluster) -> None:
    query = watched(cluster)
    text = said(body(browser.get(f"{NEW}?engine=stage&source=spark:{query.pk}")))
    assert "Micro-batches do not tell map from reduce" in text


def test_watched_query_is_marked_as_applied(browser: Client, cluster: Cluster) -> None:
    query = watched(cluster)
    row = spark_plan(cluster, spark_query=query, rate=5e5, constraint_s=3.0, profile={})
    assert "Mark as applied" in body(browser.get(f"{ROOT}{row.pk}/"))
    after = body(browser.post(f"{ROOT}{row.pk}/apply/", {"choice": "latency"}, follow=True))
    assert "The settings are noted for orders" in after and "Least latency at your rate applied" in said(after)
    query.refresh_from_db()
    assert query.trigger_s == (row.result or {})["ends"]["latency"]["trigger_s"]


def test_refusal_to_apply_stands_on_the_page(browser: Client, cluster: Cluster) -> None:
    settings = {"executors": 1, "cores_per_executor": 2, "input_partitions": 4, "shuffle_partitions": 4}
    own_progress_ingest(documents=progress_of_run(range(20)), settings={**settings, "trigger_s": 5.0})
    own = SparkQuery.objects.get()
    row = spark_plan(cluster, spark_query=own, rate=4e5, constraint_s=3.0, max_executors=8, profile={})
    response = browser.post(f"{ROOT}{row.pk}/apply/", {"choice": "throughput"})
    assert response.status_code == 422
    assert "while it runs, it can change its trigger interval alone" in body(response)


def test_list_is_filtered_and_exported(browser: Client, cluster: Cluster) -> None:
    spark_plan(cluster)
    spark_plan(cluster, constraint_s=0.2)
    stage_plan(cluster)
    text = said(body(browser.get(ROOT)))
    assert "7 executors of 4 cores" in text and "Not feasible" in text and "Asked" in text
    assert "Not feasible" not in said(body(browser.get(f"{ROOT}?feasible=true"))).split("Asked by")[1]
    rows = list(csv.DictReader(io.StringIO(browser.get(f"{ROOT}?export=csv").content.decode("utf-8-sig"))))
    assert sorted(row["Answer"] for row in rows) == ["7 executors of 4 cores", "Asked", "Not feasible"]


def test_plan_is_deleted(browser: Client, cluster: Cluster) -> None:
    row = spark_plan(cluster)
    html = body(browser.post(f"{ROOT}{row.pk}/delete/", follow=True))
    assert "The resource plan is deleted." in html and not ResourcePlan.objects.exists()


def test_viewer_reads_and_asks_nothing(browser_of: Callable[..., Client], cluster: Cluster) -> None:
    viewer, row = browser_of("viewer"), spark_plan(cluster)
    assert "Change and plan again" not in body(viewer.get(f"{ROOT}{row.pk}/"))
    assert "Planning resources needs the role Operator." in body(viewer.get(NEW))
