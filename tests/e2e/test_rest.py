"""The main path over REST, with a token, against real processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.installation import Api
from tests.e2e.story import CAPACITY_CPS, FIRST, NODES, SECOND, example
from tests.servers import wait_until

pytestmark = pytest.mark.slow

SLUG = "by-rest"


@pytest.fixture
def ready(api: Api, trace: Path) -> None:
    """A cluster of four nodes with the arrivals of `requests`."""
    api.post("clusters", {"slug": SLUG, "name": "By REST", "subinterval_s": 1, "horizon_s": 3600})
    api.post("node-pools", {"cluster": SLUG, "name": "std", "capacity_cps": CAPACITY_CPS, "cores": 1})
    for name in NODES:
        api.post("nodes", {"cluster": SLUG, "pool": "std", "name": name})
    columns = {"time_column": "period", "count_column": "count", "stretch": "busiest"}
    stored = api.upload("arrivals", trace, {"cluster": SLUG, "source_id": "requests", **columns})
    assert stored["slices"] == 4 * 3600
    assert 2000 < stored["mean_eps"] <= stored["peak_eps"] < 4000


def codes(admission: dict[str, Any]) -> set[str]:
    return {reason["code"] for reason in admission["decision"]["reasons"] if reason["severity"] == "bad"}


@pytest.mark.usefixtures("ready")
def test_register_estimate_decide(api: Api) -> None:
    name, bound_s = FIRST
    objective = {"statistic": "worst", "bound_s": bound_s}
    body = {"cluster": SLUG, "name": name, "operators": example(name), "objective": objective}
    query = api.post("queries", body)
    assert (query["state"], query["operator_count"]) == ("draft", 14)

    preview = api.post("admissions", {"cluster": SLUG, "query": name}, wait_s=30)
    assert (preview["state"], preview["verdict"]) == ("preview", "admit")
    assert preview["decision"]["headline"].startswith("Every objective holds")
    assert len(preview["decision"]["placement"]) == 14

    assert api.post(f"admissions/{preview['id']}/apply")["state"] == "applied"
    assert api.get(f"queries/{query['id']}")["state"] == "running"
    estimates = f"estimates?cluster={SLUG}"
    wait_until(lambda: api.get(estimates)["results"], what="the estimate that follows")
    estimate = api.get(f"queries/{query['id']}/estimate")
    assert estimate["state"] == "holds"

    name, bound_s = SECOND
    document = {
        "query": name,
        "operators": example(name),
        "objective": {"statistic": "worst", "bound_s": bound_s},
    }
    refused = api.post("admissions", {"cluster": SLUG, "document": document}, wait_s=30)
    assert refused["verdict"] == "reject"
    assert "neighbour_breached" in codes(refused)
    assert refused["decision"]["headline"].startswith(f"{FIRST[0]} would miss its objective")
    address = f"admissions/{refused['id']}"
    wait_until(lambda: api.get(address)["parts"]["alternatives"]["state"] == "done", what="what else would pass")
    choices = api.get(address)["decision"]["choices"]
    assert {"scale_rate", "add_node"} <= {choice["kind"] for choice in choices}

    chosen = api.post(f"admissions/{refused['id']}/preview", {"choice": choices[0]["id"]}, wait_s=30)
    assert (chosen["parent"], chosen["verdict"]) == (refused["id"], "admit_with_changes")
    assert api.post(f"admissions/{chosen['id']}/apply")["state"] == "applied"
    running = api.get(f"queries?cluster={SLUG}")["results"]
    assert {query["name"]: query["state"] for query in running} == {FIRST[0]: "running", SECOND[0]: "running"}
