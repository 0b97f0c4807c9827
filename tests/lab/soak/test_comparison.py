"""A story that differs from the clients' is told as what it is: lost, doubled, too much, or without an end."""

from __future__ import annotations

from typing import Any

from lab.soak.actors import BOUND_S
from lab.soak.client_ledger import Write
from lab.soak.comparison import doubled, late_queries, lost, unanswered, unserial


def story(**told: Any) -> dict[str, Any]:
    parts = ("changes", "queries", "versions", "admissions", "policies", "jobs", "reports", "deliveries", "reviews")
    return {part: [] for part in parts} | told


def write(kind: str, subject: str, number: int, value: Any = None, status: int | None = 200) -> Write:
    return Write(kind, subject, value, number, [f"request-{number}"], status)


def query(name: str, **fields: str) -> dict[str, str]:
    return {"name": name, "state": "draft", "description": "", **fields}


def document(*loads: float) -> dict[str, Any]:
    """Queries of one operator on one core of 1,000 cycles/s, at 100 events/s for a minute."""
    names = [f"q{i}" for i in range(len(loads))]
    return {
        "subinterval_s": 0.25,
        "sources": [{"id": "clicks", "arrivals": [25.0] * 240}],
        "nodes": [{"id": "n", "capacity_cps": 1000.0}],
        "operators": [operator(name, load) for name, load in zip(names, loads, strict=True)],
        "objectives": [objective(name) for name in names],
    }


def operator(name: str, load: float) -> dict[str, Any]:
    reads = {"from": "clicks", "selectivity": 1.0, "cycles_per_event": 10.0 * load}
    return {"id": f"{name}/work", "query": name, "node": "n", "inputs": [reads]}


def objective(name: str) -> dict[str, Any]:
    return {"query": name, "statistic": "worst", "bound_s": BOUND_S}


def test_acknowledged_query_that_is_not_there_is_lost() -> None:
    assert lost([write("query", "q", 1, status=201)], story()) == [
        "query q was acknowledged and is not there",
        "query q was acknowledged and the ledger does not tell of it",
    ]
    there = story(queries=[query("q")], changes=[("request-1", "query", "q", "create")])
    assert not lost([write("query", "q", 1, status=201)], there)


def test_last_acknowledged_description_stands_unless_a_later_one_had_no_answer() -> None:
    edits = [write("description", "q", 1, "first"), write("description", "q", 2, "second")]
    recorded = [(f"request-{number}", "query", "q", "update") for number in (1, 2, 3)]
    fault = ["query q has a description that is not the last acknowledged one"]
    assert lost(edits, story(queries=[query("q", description="first")], changes=recorded)) == fault
    unclear = [*edits, write("description", "q", 3, "third", status=None)]
    for text, found in (("second", []), ("third", []), ("first", fault)):
        assert lost(unclear, story(queries=[query("q", description=text)], changes=recorded)) == found


def test_what_was_applied_runs_until_it_is_stopped() -> None:
    applied, stopped = write("apply", "a1", 1, "q"), write("stop", "q", 2)
    told = {
        "admissions": [{"id": "a1", "state": "applied", "reason": ""}],
        "changes": [("request-2", "query", "q", "")],
    }
    assert lost([applied], story(queries=[query("q", state="stopped")], **told)) == [
        "query q is stopped after an acknowledged apply"
    ]
    assert not lost([applied, stopped], story(queries=[query("q", state="stopped")], **told))


def test_attempts_of_one_write_make_a_thing_once() -> None:
    twice = Write("query", "q", request_ids=["a", "b"], status=201)
    assert not doubled([twice], story(changes=[("a", "query", "q", "create")]))
    assert doubled([twice], story(changes=[("a", "query", "q", "create"), ("b", "query", "q", "create")]))
    asked = Write("admission", "why")
    assert doubled([asked], story(admissions=[{"reason": "why"}, {"reason": "why"}]))


def test_job_begun_before_the_calm_needs_an_end() -> None:
    job = {"title": "Estimate", "kind": "estimate", "state": "running", "created_at": "2026-03-01 10:00:00+00:00"}
    assert unanswered([], story(jobs=[job]), {}, "2026-03-01 10:00:01+00:00")
    assert not unanswered([], story(jobs=[job]), {}, "2026-03-01 09:59:59+00:00")


def test_admitted_set_is_serial_where_it_holds_and_no_refused_query_fits_beside_it() -> None:
    refused = {"late": [operator("late", 0.3), objective("late")]}
    assert not unserial(document(0.5, 0.4), refused)
    assert unserial(document(0.5, 0.1), refused) == ["late was refused, although it fits beside all that were admitted"]
    assert unserial(document(0.7, 0.6), {}) == [
        f"{late}, although it was admitted" for late in late_queries(document(0.7, 0.6))
    ]
    assert late_queries(document(0.7, 0.6))
