"""REST: placement runs, who may do what with them, and what they say."""

from __future__ import annotations

from typing import Any

from apps.fleet.models import Cluster
from apps.fleet.services import node_update
from apps.planning.models import PlacementRun
from tests.apps.small_cluster import run_jobs

URL = "/api/v1/placements"


def ask(client: Any, **asked: Any) -> Any:
    return client.post(URL, {"cluster": "little", "budget_s": 0.3, **asked}, format="json")


def proposed(client: Any, **asked: Any) -> str:
    """Address of a run that is a proposal."""
    answer = ask(client, **asked)
    assert answer.status_code == 202, answer.content
    run_jobs()
    return answer.json()["result_api_url"]


def test_create_answers_202_with_a_job_and_the_address_of_the_run(api: Any, cluster: Cluster) -> None:
    answer = ask(api)
    assert (answer.status_code, answer.json()["kind"]) == (202, "workers.search_placement")
    searching = api.get(answer.json()["result_api_url"]).json()
    assert (searching["state"], searching["proposal"], searching["facts"]) == ("searching", None, {})
    run_jobs()
    job = api.get(answer["Location"]).json()
    assert job["result_api_url"] == answer.json()["result_api_url"]
    placement = api.get(answer.json()["result_api_url"]).json()
    assert (placement["state"], placement["requested_by"], placement["moves_done"]) == ("proposed", "a-operator", 0)
    assert placement["standing"] == {"stale": False, "changed": [], "can_apply": True, "can_undo": False, "why_not": ""}
    assert placement["proposal"]["gap"] is not None
    assert {"query", "before_s", "after_s", "bound_s", "after_state"} <= set(placement["proposal"]["queries"][0])
    assert {"operator", "before", "after", "duration_s", "state_bytes", "bump_s", "why"} <= set(placement["moves"][0])
    assert "moves" not in placement["proposal"]


def test_objective_defaults_to_the_queries_objectives(api: Any, cluster: Cluster) -> None:
    cluster.queries.update(objective_statistic="worst", objective_bound_s=2.0)
    assert api.get(ask(api).json()["result_api_url"]).json()["objective"] == "objectives"
    assert api.get(ask(api, objective="worst").json()["result_api_url"]).json()["objective"] == "worst"
    cluster.queries.update(objective_bound_s=None)
    assert api.get(ask(api).json()["result_api_url"]).json()["objective"] == "worst"


def test_a_proposal_is_applied_undone_and_deleted_over_rest(api: Any, cluster: Cluster) -> None:
    address = proposed(api)
    answer = api.post(f"{address}/apply", {"pace": 0}, format="json")
    assert (answer.status_code, answer.json()["kind"]) == (202, "workers.apply_moves")
    assert api.delete(address).json()["code"] == "wrong_state"
    run_jobs()
    applied = api.get(address).json()
    assert (applied["state"], applied["applied_by"], applied["moves_done"]) == ("applied", "a-operator", 1)
    assert applied["moves"][0]["state"] == "done"
    assert api.post(f"{address}/apply").json()["code"] == "wrong_state"
    assert api.post(f"{address}/done", {"note": ""}).status_code == 400
    done = api.post(f"{address}/done", {"note": "by savepoint"}).json()
    assert done["done_at"] and (done["done_by"], done["done_note"]) == ("a-operator", "by savepoint")
    assert api.post(f"{address}/done", {"note": "again"}).json()["code"] == "wrong_state"
    assert api.post(f"{address}/undo").status_code == 202
    run_jobs()
    assert api.get(address).json()["state"] == "undone"
    assert api.delete(address).status_code == 204
    assert api.get(address).status_code == 404


def test_stop_and_abort_return_409_when_nothing_runs(api: Any, cluster: Cluster) -> None:
    searching = ask(api).json()["result_api_url"]
    assert api.post(f"{searching}/abort").json()["code"] == "wrong_state"
    assert api.post(f"{searching}/stop").json()["state"] == "searching"
    assert PlacementRun.objects.get().stop_requested
    run_jobs()
    assert api.post(f"{searching}/stop").status_code == 409
    api.post(f"{searching}/apply")
    aborted = api.post(f"{searching}/abort").json()
    assert (aborted["state"], aborted["moves"][0]["state"]) == ("aborted", "skipped")


def test_apply_returns_409_with_the_changes_when_the_cluster_moved(api: Any, cluster: Cluster) -> None:
    address = proposed(api)
    node_update(node=cluster.nodes.get(name="b"), capacity_cps=900.0)
    answer = api.post(f"{address}/apply")
    assert (answer.status_code, answer.json()["code"]) == (409, "stale")
    assert answer.json()["changed"][0].startswith("node b: capacity changed")
    assert api.get(address).json()["standing"]["stale"]


def test_create_returns_400_with_every_fault(api: Any, cluster: Cluster) -> None:
    answer = ask(api, constraints={"pin": {"first/work": "zz"}, "apart": [["first/work"]]}, budget_s=-1, seed=-1)
    assert answer.status_code == 400
    paths = [fault["path"] for fault in answer.json()["faults"]]
    assert paths == ["budget_s", "seed", "constraints.apart[0]"]
    assert ask(api, speed=1).json()["faults"][0]["path"] == "speed"
    assert ask(api, cluster="nowhere").status_code == 404
