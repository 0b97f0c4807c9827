"""Resource plans over REST: questions, answers at once and by a job, faults, lists."""

from __future__ import annotations

from typing import Any

import pytest
from rest_framework.test import APIClient

from apps.fleet.models import Cluster
from apps.microbatch.models import SparkQuery
from apps.microbatch.progress import own_progress_ingest, progress_ingest
from apps.microbatch.services import spark_query_create
from apps.planning.models import ResourcePlan
from apps.queries.services import query_create
from tests.apps import small_cluster
from tests.apps.microbatch.spark_progress import progress_of_run

pytestmark = pytest.mark.django_db

ADDRESS = "/api/v1/resource-plans"
SPARK = {
    "cluster": "little",
    "engine": "microbatch",
    "rate": 1e6,
    "constraint_s": 2.0,
    "statistic": "q0.95",
    "profile": {"f0_s": 0.3, "c_in_s": 1e-5, "c_sh_s": 5e-6},
}
STAGE = {"cluster": "little", "engine": "stage", "rate": 1e6, "constraint_s": 1.0, "max_nodes": 60}


@pytest.fixture
def cluster() -> Cluster:
    return small_cluster.small_cluster()


def counted_clicks(cluster: Cluster) -> Any:
    """A query of 100 events/s: 2 cycles before the shuffle, 4 after it, on nodes of 1,000 cycles/s."""
    kept = {"from": "clicks", "selectivity": 0.5, "cycles_per_event": 2.0}
    counts = {"from": "keep", "selectivity": 0.1, "cycles_per_event": 4.0}
    measured = {"kind": "measured", "events": 5000, "age_s": 0}
    operators = [
        {"id": "keep", "kind": "filter", "inputs": [kept], "evidence": measured},
        {"id": "count", "kind": "aggregate", "inputs": [counts]},
    ]
    return query_create(cluster=cluster, name="counts", body={"operators": operators})


def watched(cluster: Cluster, batches: int = 20, **settings: Any) -> SparkQuery:
    """A Spark query on 2 executors of 4 cores: 0.4 s and 2 µs per row, from 2 partitions every 5 s."""
    settings = {"executors": 2, "cores_per_executor": 4, "trigger_s": 5.0} | settings
    query = spark_query_create(cluster=cluster, name="orders", origin="listener", **settings)
    if batches:
        progress_ingest(query=query, documents=progress_of_run(range(batches)))
    query.refresh_from_db()
    return query


def post(api: APIClient, body: Any, **headers: str) -> Any:
    return api.post(ADDRESS, body, format="json", headers=headers)


def faults(response: Any) -> dict[str, str]:
    assert response.status_code == 400, response.content
    return {fault["path"]: fault["message"] for fault in response.json()["faults"]}


def test_spark_plan_is_answered_at_once(api: APIClient, cluster: Cluster) -> None:
    created = post(api, SPARK)
    assert created.status_code == 201
    answer = api.get(created["Location"]).json()
    assert answer == created.json()
    assert (answer["state"], answer["job"], answer["requested_by"]) == ("answered", None, "a-operator")
    plan = answer["result"]["plan"]
    assert plan["metric_s"] <= 0.93 * 2.0
    assert plan["max_rate"] >= 1e6
    assert answer["facts"]["executors"] == plan["executors"]
    assert answer["model_version"] == answer["result"]["model"]


def test_every_input_has_its_origin(api: APIClient, cluster: Cluster) -> None:
    origins = post(api, SPARK).json()["origins"]
    assert (origins["profile.f0_s"], origins["profile.c_in_s"]) == ("default", "assumed")  # 0.3 s is the default
    assert (origins["rate"], origins["utilisation_ceiling"]) == ("assumed", "default")


def test_query_gives_rate_and_profile(api: APIClient, cluster: Cluster) -> None:
    counted_clicks(cluster)
    body = {"cluster": "little", "engine": "microbatch", "query": "counts", "constraint_s": 2.0}
    answer = post(api, body).json()
    profile = answer["question"]["profile"]
    assert (answer["query"], answer["question"]["rate"]) == ("counts", pytest.approx(100.0))
    assert (profile["c_in_s"], profile["c_sh_s"], profile["alpha"]) == pytest.approx((2e-3, 4e-3, 0.5))
    # a core's capacity is assumed here, so its seconds are no better; the selectivity is measured
    assert (answer["origins"]["profile.c_in_s"], answer["origins"]["profile.alpha"]) == ("assumed", "measured")
    changed = post(api, body | {"profile": {"alpha": 0.25}}).json()
    assert (changed["question"]["profile"]["alpha"], changed["origins"]["profile.alpha"]) == (0.25, "assumed")
    assert changed["question"]["profile"]["c_in_s"] == profile["c_in_s"]


def test_former_plan_lends_its_inputs_with_their_origins(api: APIClient, cluster: Cluster) -> None:
    counted_clicks(cluster)
    body = {"cluster": "little", "engine": "microbatch", "query": "counts", "constraint_s": 2.0, "headroom": 0.2}
    first = post(api, body).json()
    again = {"cluster": "little", "engine": "microbatch", "plan": first["id"], "rate": 150.0}
    second = post(api, again).json()
    assert second["query"] == "counts"
    assert second["question"] == first["question"] | {"rate": 150.0}
    assert second["origins"] == first["origins"] | {"rate": "assumed"}


def test_constraint_below_the_fixed_time_is_an_answer(api: APIClient, cluster: Cluster) -> None:
    created = post(api, SPARK | {"constraint_s": 0.2})
    assert created.status_code == 201
    answer = created.json()
    assert answer["facts"]["feasible"] is False
    assert answer["result"]["infeasible"]["limit"] == "fixed time of a batch"
    nearest = answer["result"]["infeasible"]["nearest_constraint_s"]
    assert post(api, SPARK | {"constraint_s": nearest * 1.001}).json()["facts"]["feasible"] is True


def test_other_settings_come_with_what_they_would_do(api: APIClient, cluster: Cluster) -> None:
    effects = post(api, SPARK | {"stateful": True, "constraint_s": 3.0}).json()["result"]["effects"]["throughput"]
    takes = {effect["setting"]: effect["takes_effect"] for effect in effects}
    assert (takes["shuffle_partitions"], takes["trigger_s"]) == ("new checkpoint", "restart")
    # the limit of a batch follows the trigger: twice the interval is slower, not impossible
    longer = next(e for e in effects if e["setting"] == "trigger_s" and e["after"] > e["before"])
    assert longer["latency"]["statistic_s"] > 3.0


def test_every_fault_of_a_question_is_told_at_once(api: APIClient, cluster: Cluster) -> None:
    wrong = faults(
        post(
            api,
            {
                "cluster": "little",
                "engine": "microbatch",
                "rate": 0,
                "constraint_s": "soon",
                "statistic": "q1",
                "headroom": 1.0,
                "max_executors": 2.5,
                "stateful": "yes",
                "profile": {"f0_s": -1, "c_in_s": True, "colour": 3},
            },
        )
    )
    assert wrong.keys() == {
        "rate", "constraint_s", "statistic", "headroom", "max_executors", "stateful", "profile.f0_s",
        "profile.c_in_s", "profile.colour",
    }  # fmt: skip
    assert wrong["max_executors"].startswith("max_executors is 2.5; allowed: a whole number from 1")


@pytest.mark.parametrize("statistic", ["q0", "q1", "q1.5", "median", 0.95, "qnan"])
def test_statistic_is_the_mean_or_a_quantile_between_0_and_1(
    api: APIClient, cluster: Cluster, statistic: object
) -> None:
    assert "statistic" in faults(post(api, SPARK | {"statistic": statistic}))
    assert "statistic" in faults(post(api, STAGE | {"statistic": statistic}))


def test_nan_is_no_rate(api: APIClient, cluster: Cluster) -> None:
    text = '{"cluster": "little", "engine": "stage", "constraint_s": 1, "rate": NaN}'
    assert api.post(ADDRESS, text, content_type="application/json").status_code == 400


def test_work_of_nothing_is_refused(api: APIClient, cluster: Cluster) -> None:
    nothing = {"c_in_s": 0.0, "c_sh_s": 1e-6, "alpha": 0.0}
    assert list(faults(post(api, SPARK | {"profile": nothing}))) == ["profile.c_in_s"]
    assert list(faults(post(api, STAGE | {"profile": {"c_map": 0.0, "c_red": 0.0}}))) == ["profile.c_map"]


def test_inputs_of_the_other_engine_are_refused(api: APIClient, cluster: Cluster) -> None:
    wrong = faults(post(api, SPARK | {"hardware": {"n": 4}, "max_nodes": 3}))
    assert wrong.keys() == {"hardware", "max_nodes"}
    assert faults(post(api, STAGE | {"profile": [1]})).keys() == {"profile"}
    assert "profile.a.b" in faults(post(api, SPARK | {"profile": {"a.b": 1}}))


def test_rate_is_required_where_nothing_gives_it(api: APIClient, cluster: Cluster) -> None:
    assert faults(post(api, {"cluster": "little", "engine": "stage"})).keys() == {"rate", "constraint_s"}


def test_stage_plan_is_asked_of_a_worker(api: APIClient, cluster: Cluster) -> None:
    asked = post(api, STAGE)
    assert (asked.status_code, asked["Location"]) == (202, f"/api/v1/jobs/{asked.json()['id']}")
    row = api.get(asked.json()["result_api_url"]).json()
    assert (row["state"], row["job"], row["result"]) == ("asked", asked.json()["id"], None)
    assert row["question"]["profile"]["c_hb"] > 0  # or polls were free, and intervals as short as allowed
    assert row["origins"]["profile.c_hb"] == "default"


def test_worker_answers_a_stage_plan(api: APIClient, cluster: Cluster) -> None:
    asked = post(api, STAGE | {"profile": {"c_map": 1.6e-5, "alpha": 8, "c_red": 2e-6, "c_hb": 5e-3}})
    small_cluster.run_jobs()
    row = api.get(asked.json()["result_api_url"]).json()
    assert row["state"] == "answered"
    plan = row["result"]["plan"]
    assert (row["facts"]["nodes"], row["facts"]["limit"]) == (plan["nodes"], plan["binding"]["limit"])
    assert plan["max_rate"] >= 1e6
    assert plan["metric_s"] <= 0.93


def test_fit_of_a_spark_query_gives_the_profile(api: APIClient, cluster: Cluster) -> None:
    query = watched(cluster, shuffle_partitions=16, stateful=True)
    answer = post(
        api, {"cluster": "little", "engine": "microbatch", "spark_query": query.pk, "constraint_s": 6.0}
    ).json()
    question, origins = answer["question"], answer["origins"]
    assert question["rate"] == pytest.approx(60_000, rel=0.3)
    assert (question["input_partitions"], question["shuffle_partitions"], question["stateful"]) == (2, 16, True)
    # rate and spread are measured; which stage the time per row belongs to is assumed
    assert (origins["rate"], origins["profile.sd_s"], origins["profile.c_in_s"]) == ("measured", "measured", "assumed")
    fit = answer["basis"]["fit"]
    assert (fit["fixed_s"], fit["per_row_s"]) == pytest.approx((0.4, 2e-6), rel=0.1)


def test_fit_without_work_per_row_is_sized_and_says_what_is_unknown(api: APIClient, cluster: Cluster) -> None:
    query = watched(cluster, batches=0)
    progress_ingest(query=query, documents=progress_of_run(range(40), fixed_ms=600.0, per_row_ms=-0.0001))
    body = {"cluster": "little", "engine": "microbatch", "spark_query": query.pk, "constraint_s": 6.0}
    answer = post(api, body)
    assert answer.status_code == 201, answer.content
    shown = answer.json()
    assert shown["basis"]["fit"]["per_row_s"] == 0.0 and not shown["basis"]["fit"]["is_told_apart"]
    assert shown["question"]["profile"]["c_in_s"] > 0.0 and shown["origins"]["profile.c_in_s"] == "assumed"
    assert shown["result"]["plan"]["executors"] >= 1


def test_plan_at_the_settings_of_the_fit_has_its_durations(api: APIClient, cluster: Cluster) -> None:
    query = watched(cluster, shuffle_partitions=8, stateful=True)
    body = {"cluster": "little", "engine": "microbatch", "spark_query": query.pk, "constraint_s": 3.0}
    answer = post(api, body | {"rate": 280_000}).json()
    plan, fit = answer["result"]["plan"], answer["basis"]["fit"]
    assert plan["executors"] == 2
    assert (plan["fixed_s"], plan["per_row_s"]) == pytest.approx((fit["fixed_s"], fit["per_row_s"]), rel=1e-6)


def test_spark_query_that_never_ran_has_no_profile(api: APIClient, cluster: Cluster) -> None:
    query = watched(cluster, batches=0)
    body = {"cluster": "little", "engine": "microbatch", "spark_query": query.pk, "constraint_s": 3.0, "rate": 1e4}
    refused = post(api, body)
    assert refused.status_code == 422
    assert "orders has no fit yet" in refused.json()["detail"]
    assert post(api, body | {"profile": {"c_in_s": 1e-6}}).status_code == 201


def test_applied_settings_are_in_force_for_a_watched_query(api: APIClient, cluster: Cluster) -> None:
    query = watched(cluster)
    body = {"cluster": "little", "engine": "microbatch", "spark_query": query.pk, "constraint_s": 3.0}
    plan = post(api, body | {"rate": 500_000}).json()
    applied = api.post(f"{ADDRESS}/{plan['id']}/apply", {"choice": "latency"}, format="json")
    assert (applied.status_code, applied.json()["applied_choice"]) == (200, "latency")
    query.refresh_from_db()
    end = plan["result"]["ends"]["latency"]
    assert (query.executors, query.trigger_s, query.shuffle_partitions) == (
        end["executors"], end["trigger_s"], end["shuffle_partitions"],
    )  # fmt: skip
    assert query.applied_at is not None


def test_stream_processor_is_set_to_the_plans_trigger(api: APIClient, cluster: Cluster) -> None:
    settings = {"executors": 1, "cores_per_executor": 2, "input_partitions": 4, "shuffle_partitions": 4}
    own_progress_ingest(documents=progress_of_run(range(20)), settings={**settings, "trigger_s": 5.0, "stateful": True})
    query = SparkQuery.objects.get()
    body = {"cluster": "little", "engine": "microbatch", "spark_query": query.pk, "constraint_s": 3.0, "rate": 1e5}
    plan = post(api, body).json()
    assert plan["question"]["max_executors"] == 1  # it has no more
    assert api.post(f"{ADDRESS}/{plan['id']}/apply", {}, format="json").status_code == 200
    query.refresh_from_db()
    assert query.wanted_trigger_s == plan["result"]["plan"]["trigger_s"]
    larger = post(api, body | {"rate": 4e5, "max_executors": 8}).json()
    refused = api.post(f"{ADDRESS}/{larger['id']}/apply", {}, format="json")
    assert (refused.status_code, refused.json()["faults"][0]["path"]) == (422, "spark_query")


def test_plan_without_a_spark_query_cannot_be_applied(api: APIClient, cluster: Cluster) -> None:
    refused = api.post(f"{ADDRESS}/{post(api, SPARK).json()['id']}/apply", {}, format="json")
    assert (refused.status_code, refused.json()["faults"][0]["path"]) == (422, "spark_query")
    nothing = post(api, SPARK | {"constraint_s": 0.2}).json()
    assert api.post(f"{ADDRESS}/{nothing['id']}/apply", {}, format="json").status_code == 422
    assert post(api, STAGE).status_code == 202
    waiting = ResourcePlan.objects.get(engine="stage")
    assert api.post(f"{ADDRESS}/{waiting.pk}/apply", {}, format="json").status_code == 409
