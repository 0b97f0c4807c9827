"""Queries: definitions, versions and statistics; started, moved and stopped."""

from __future__ import annotations

from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from apps.core.errors import Conflict, Impossible, Malformed
from apps.fleet.services import node_drain
from apps.queries.bodies import COST_NOISE_NAMES, version_body
from apps.queries.models import ArrivalSeries, Placement, Query
from apps.queries.selectors import version_numbered
from apps.queries.services import (
    placement_move,
    query_delete,
    query_start,
    query_stop,
    query_update,
    query_version_create,
)
from apps.queries.snapshots.cluster import cluster_snapshot
from apps.queries.statistics import statistics_of, statistics_update
from engine.document.elements import Batch, Input
from engine.estimation.noise.dispersion import cost_noise
from tests.apps.domain import BODY, fault_paths, make_arrivals, make_cluster, make_query, node_named, start

pytestmark = pytest.mark.django_db


def body_with(**changes: Any) -> dict[str, Any]:
    """The body with its first operator changed."""
    body = deepcopy(BODY)
    body["operators"][0].update(changes)
    return body


# -- describing


def test_a_body_comes_back_as_it_was_given() -> None:
    cluster = make_cluster()
    make_arrivals(cluster)
    body = deepcopy(BODY)
    body["operators"][0]["split"] = [
        {"node": "n1", "core": 0, "fraction": 0.25},
        {"node": "n2", "core": 1, "fraction": 0.75},
    ]
    body["operators"][1] |= {
        "node": "n2",
        "core": 1,
        "state_bytes": 1e6,
        "evidence": {"kind": "measured", "events": 500},
    }
    body["operators"][1]["bytes_per_event"] = 0.0
    body["operators"][1]["inputs"][0]["batches"] = [{"events": 10.0, "outputs": 1.0, "cycles": 9e4}]
    body["operators"][1]["inputs"][0]["model"] = {"output": [0.0, 0.1, 0.0], "cycles": [1.0, 2.0, 3.0]}
    query = make_query(cluster, body=body)
    assert version_body(version_numbered(query, 1)) == body


def test_every_fault_of_a_query_is_told_at_once() -> None:
    cluster = make_cluster()
    make_arrivals(cluster)
    body = {
        "operators": [
            {"id": "a", "inputs": [{"from": "clicks", "selectivity": float("nan"), "cycles_per_event": -1}]},
            {"id": "b", "inputs": [{"from": "nobody", "selectivity": 1, "cycles_per_event": 1}], "node": "n9"},
            {"id": "c", "inputs": [{"from": "d", "selectivity": 1, "cycles_per_event": 1}], "speed": 3},
            {"id": "d", "inputs": [{"from": "c", "selectivity": 1, "cycles_per_event": 1}], "query": "other"},
            {"id": "d", "inputs": []},
        ],
        "nodes": [],
    }
    with pytest.raises(Malformed) as error:
        make_query(cluster, "No Name", body=body, objective={"statistic": "p99", "bound_s": 0, "why": 1})
    assert {
        "operators[0].inputs[0].selectivity",
        "operators[0].inputs[0].cycles_per_event",
        "operators[1].inputs[0].from",
        "operators[1].node",
        "operators[2].speed",
        "operators[4].id",
        "nodes",
        "objective.statistic",
        "objective.bound_s",
        "objective.why",
        "name",
    } <= fault_paths(error)
    assert not Query.objects.exists()


def test_a_cycle_is_named() -> None:
    cluster = make_cluster()
    make_arrivals(cluster)
    body = {
        "operators": [
            {"id": i, "inputs": [{"from": j, "selectivity": 1, "cycles_per_event": 1}]} for i, j in ("ab", "ba")
        ]
    }
    with pytest.raises(Malformed, match="cycle"):
        make_query(cluster, body=body)


def test_evidence_beyond_counting_is_refused() -> None:
    cluster = make_cluster()
    make_arrivals(cluster)
    with pytest.raises(Malformed) as error:
        make_query(cluster, body=body_with(evidence={"kind": "measured", "events": 1e300}))
    assert fault_paths(error) == {"operators[0].evidence.events"}


@pytest.mark.parametrize("body", [None, [], {}, {"operators": []}, {"operators": "x"}, {"operators": [1]}])
def test_malformed_bodies_are_refused(body: Any) -> None:
    with pytest.raises(Malformed) as error:
        make_query(make_cluster(), body=body)
    assert error.value.faults


def test_a_name_is_taken_once_per_cluster() -> None:
    cluster = make_cluster()
    make_query(cluster)
    with pytest.raises(Conflict, match="checkout"):
        make_query(cluster)
    make_query(make_cluster("other"))


def test_statistics_are_carried_to_a_new_version_where_asked() -> None:
    cluster = make_cluster()
    query = make_query(cluster)
    statistics = [{"operator": "parse", "selectivity": 0.5, "cycles_per_event": 7, "events": 300}]
    statistics_update(version=query.versions.get(), statistics=statistics)
    body = body_with(bytes_per_event=99)
    body["operators"].append({"id": "sink", "inputs": [{"from": "parse", "selectivity": 1, "cycles_per_event": 1}]})
    plain = query_version_create(query=query, body=body)
    assert statistics_of(plain)[0]["selectivity"] == 0.8
    statistics_update(version=plain, statistics=statistics)
    carried = query_version_create(query=query, body=body, carry_statistics=True)
    found = statistics_of(carried)
    assert (carried.number, found[0]["selectivity"], found[0]["evidence"], found[0]["events"]) == (
        3,
        0.5,
        "measured",
        300,
    )
    assert found[2]["operator"] == "sink" and found[2]["evidence"] == "assumed"


def test_an_update_changes_the_objective_and_removes_it() -> None:
    query = make_query(make_cluster())
    query_update(query=query, objective={"statistic": "q0.95", "bound_s": 0.5}, team="search")
    assert (query.objective_statistic, query.objective_bound_s, str(query.team)) == ("q0.95", 0.5, "search")
    query_update(query=query, priority=3)
    assert query.objective_bound_s == 0.5
    query_update(query=query, objective=None)
    assert query.objective_bound_s is None
    with pytest.raises(Malformed) as error:
        query_update(query=query, objective={"statistic": "q1.5"}, team="x" * 81)
    assert fault_paths(error) == {"objective.statistic", "objective.bound_s", "team"}


# -- statistics


def test_every_fault_of_statistics_is_told_and_nothing_is_changed() -> None:
    version = make_query(make_cluster()).versions.get()
    before = statistics_of(version)
    with pytest.raises(Malformed) as error:
        statistics_update(
            version=version,
            statistics=[
                {"operator": "parse", "selectivity": 0.1},
                {"operator": "nobody", "selectivity": 0.1},
                {"operator": "count", "input": "clicks"},
                {"operator": "count", "selectivity": -1, "cycles_per_event": float("inf"), "color": "red"},
                {"operator": "count", "measured_at": "2026-03-01"},
                7,
                {"operator": "count", "events": 1e300},
            ],
        )
    assert fault_paths(error) == {
        "statistics[1].operator",
        "statistics[2].input",
        "statistics[3].selectivity",
        "statistics[3].cycles_per_event",
        "statistics[3].color",
        "statistics[4].measured_at",
        "statistics[5]",
        "statistics[6].events",
    }
    assert statistics_of(version) == before


def test_statistics_follow_from_batches() -> None:
    version = make_query(make_cluster()).versions.get()
    batches = [{"events": 100, "outputs": 40, "cycles": 1e6}, {"events": 300, "outputs": 60, "cycles": 2e6}]
    at = "2026-03-01T09:30:00+00:00"
    statistics_update(
        version=version, statistics=[{"operator": "parse", "input": "clicks", "batches": batches, "measured_at": at}]
    )
    found = statistics_of(version)[0]
    assert (found["selectivity"], found["cycles_per_event"], found["events"]) == (0.25, 7500.0, 400)
    assert (found["evidence"], found["measured_at"]) == ("measured", datetime(2026, 3, 1, 9, 30, tzinfo=UTC))


# -- numbers beyond what can be stored


def test_another_number_drops_the_sample_it_was_not_taken_from() -> None:
    version = make_query(make_cluster()).versions.get()
    batches = [{"events": 100, "outputs": 40, "cycles": 1e6}, {"events": 300, "outputs": 60, "cycles": 2e6}]
    statistics_update(version=version, statistics=[{"operator": "parse", "batches": batches}])
    entry = version.operators.get(name="parse").inputs.get()
    same = {"operator": "parse", "selectivity": entry.selectivity, "cycles_per_event": entry.cycles_per_event}
    statistics_update(version=version, statistics=[same])
    entry.refresh_from_db()
    assert len(entry.batches) == 2
    statistics_update(version=version, statistics=[{"operator": "parse", "selectivity": 0.9}])
    entry.refresh_from_db()
    assert (entry.selectivity, entry.batches) == (0.9, [])


def test_batches_beyond_numbers_are_refused() -> None:
    query = make_query(make_cluster())
    huge = {"events": 1e308, "outputs": 1.0, "cycles": 1.0}
    told = [{"operator": "parse", "batches": [huge, huge], "measured_at": "0001-01-01T00:00:00+14:00"}]
    with pytest.raises(Malformed) as error:
        statistics_update(version=query.versions.get(), statistics=told)
    assert fault_paths(error) == {f"statistics[0].batches[{i}].events" for i in (0, 1)}
    told[0].pop("batches")
    with pytest.raises(Malformed, match="from 1970 on"):
        statistics_update(version=query.versions.get(), statistics=told)


def test_evidence_from_before_the_calendar_is_refused() -> None:
    cluster = make_cluster()
    make_arrivals(cluster)
    with pytest.raises(Malformed) as error:
        make_query(cluster, body=body_with(evidence={"kind": "measured", "events": 5, "age_s": 1e300}))
    assert fault_paths(error) == {"operators[0].evidence.age_s"}


def test_a_description_has_a_bounded_length() -> None:
    query = make_query(make_cluster())
    with pytest.raises(Malformed, match="10000"):
        query_update(query=query, description="x" * 10_001)


# -- how costs vary


def test_variation_of_costs_is_kept_shown_carried_and_taken_into_snapshots() -> None:
    cluster = make_cluster()
    query = make_query(cluster)
    noise = {"cost_cv2": 0.25, "cost_dispersion": 9.0, "cost_dispersion_events": 500.0}
    statistics_update(version=query.versions.get(), statistics=[{"operator": "parse", **noise}])
    found = statistics_of(query.versions.get())
    assert {name: found[0][name] for name in noise} == noise
    assert {name: found[1][name] for name in noise} == dict.fromkeys(noise)
    carried = query_version_create(query=query, body=BODY, carry_statistics=True)
    assert version_body(version_numbered(query, carried.number))["operators"][0]["inputs"][0].items() >= noise.items()
    start(query)
    (entry,) = cluster_snapshot(cluster).deployment.operators[0].inputs
    assert (entry.cost_cv2, entry.cost_dispersion, entry.cost_dispersion_events) == (0.25, 9.0, 500.0)


def test_variation_of_costs_of_a_body_comes_back_with_it() -> None:
    body = deepcopy(BODY)
    body["operators"][0]["inputs"][0] |= {"cost_cv2": 0.0, "cost_dispersion": 3.0, "cost_dispersion_events": 40.0}
    query = make_query(make_cluster(), body=body)
    assert version_body(version_numbered(query, 1)) == body


def test_costs_of_single_events_tell_mean_variation_and_a_sample() -> None:
    version = make_query(make_cluster()).versions.get()
    costs = np.random.default_rng(1).gamma(2.0, 500.0, 4000).tolist()
    statistics_update(version=version, statistics=[{"operator": "parse", "selectivity": 0.5, "event_cycles": costs}])
    found = statistics_of(version)[0]
    assert found["cycles_per_event"] == pytest.approx(1000.0, rel=0.1)
    assert (found["events"], found["selectivity"], found["evidence"]) == (4000, 0.5, "measured")
    assert found["cost_cv2"] == pytest.approx(0.5, rel=0.1)
    assert len(found["batches"]) == 32
    noise = cost_noise(Input("s", **{name: found[name] for name in COST_NOISE_NAMES}))
    assert (noise.slow, noise.assumed) == (0.0, "")


@pytest.mark.parametrize(
    ("told", "paths"),
    [
        ({"cost_cv2": -1.0}, {"cost_cv2"}),
        ({"cost_cv2": float("nan")}, {"cost_cv2"}),
        ({"cost_cv2": 1e9}, {"cost_cv2"}),
        ({"cost_dispersion": 3.0}, {"cost_dispersion_events"}),
        ({"cost_dispersion_events": 3.0}, {"cost_dispersion"}),
        (
            {"cost_dispersion": float("inf"), "cost_dispersion_events": 0.5},
            {"cost_dispersion", "cost_dispersion_events"},
        ),
        ({"event_cycles": [1.0, -2.0, float("nan")]}, {"event_cycles[1]", "event_cycles[2]"}),
        ({"event_cycles": [5.0]}, {"event_cycles"}),
        ({"event_cycles": [0.0, 0.0]}, {"event_cycles"}),
        ({"event_cycles": [1e308, 1e308]}, {"event_cycles[0]", "event_cycles[1]"}),
        ({"event_cycles": [0.0] * 30_000 + [1.0]}, {"event_cycles"}),
        ({"event_cycles": [1.0] * 200_001}, {"event_cycles"}),
        ({"event_cycles": [1.0, 2.0], "cost_cv2": 1.0, "batches": []}, {"cost_cv2", "batches"}),
    ],
)
def test_variation_that_cannot_be_is_refused_and_nothing_is_changed(told: dict[str, Any], paths: set[str]) -> None:
    version = make_query(make_cluster()).versions.get()
    before = statistics_of(version)
    with pytest.raises(Malformed) as error:
        statistics_update(version=version, statistics=[{"operator": "parse", **told}])
    assert fault_paths(error) == {f"statistics[0].{path}" for path in paths}
    assert statistics_of(version) == before


def test_a_dispersion_goes_with_its_sample_and_cv2_with_the_cost_it_was_given_for() -> None:
    version = make_query(make_cluster()).versions.get()

    def after(**told: Any) -> list[float | None]:
        statistics_update(version=version, statistics=[{"operator": "parse", **told}])
        return [statistics_of(version)[0][name] for name in COST_NOISE_NAMES]

    batches = [{"events": 100, "outputs": 40, "cycles": 1e6}, {"events": 300, "outputs": 60, "cycles": 2e6}]
    assert after(cost_cv2=0.5, cost_dispersion=3.0, cost_dispersion_events=40) == [0.5, 3.0, 40]
    assert after(events=500) == [0.5, 3.0, 40]
    assert after(batches=batches) == [0.5, None, None]
    assert after(batches=batches, cost_dispersion=2.0, cost_dispersion_events=10) == [0.5, 2.0, 10]
    assert after(cycles_per_event=9.0) == [None, None, None]
    assert after(cost_cv2=0.5) == [0.5, None, None]
    assert after(cost_cv2=None) == [None, None, None]


def test_batches_of_one_event_and_a_single_batch_are_taken_for_what_they_are() -> None:
    version = make_query(make_cluster()).versions.get()
    single = [{"events": 1, "outputs": 1, "cycles": cycles} for cycles in (50, 150, 100, 60, 140)]
    statistics_update(version=version, statistics=[{"operator": "parse", "batches": single}])
    batches = tuple(Batch(**batch) for batch in statistics_of(version)[0]["batches"])
    noise = cost_noise(Input("s", batches=batches))
    assert noise.cv2 == pytest.approx(np.var([0.5, 1.5, 1.0, 0.6, 1.4], ddof=1))
    assert "from batches" in str(noise.assumed)
    assert cost_noise(Input("s", batches=batches[:1])).cv2 == 1.0


def test_a_query_starts_moves_and_stops() -> None:
    cluster = make_cluster()
    query = start(make_query(cluster), {"checkout/parse": "n1", "count": [{"node": "n2", "core": 1}]})
    assert (query.state, query.running_version.number) == ("running", 1)
    placement_move(query=query, placement={"parse": {"node": "n2", "core": 0}})
    where = Placement.objects.values_list("operator__name", "node__name", "core", "fraction")
    assert sorted(where) == [("count", "n2", 1, 1.0), ("parse", "n2", 0, 1.0)]
    stopped = query_stop(query=query)
    assert (stopped.state, stopped.running_version, Placement.objects.count()) == ("stopped", None, 0)
    with pytest.raises(Conflict, match="stopped"):
        query_stop(query=query)


def test_a_new_version_takes_the_place_of_the_running_one() -> None:
    cluster = make_cluster()
    query = start(make_query(cluster))
    version = query_version_create(query=query, body=BODY)
    query = query_start(version=version, placement={"parse": "n2", "count": "n2"})
    assert query.running_version == version
    assert set(Placement.objects.values_list("operator__version__number", "node__name")) == {(2, "n2")}


@pytest.mark.parametrize(
    ("placement", "path"),
    [
        ({"parse": "n1"}, "placement.count"),
        ({"parse": "n1", "count": "n9"}, "placement.count"),
        ({"parse": "n1", "count": {"node": "n1", "core": 2}}, "placement.count"),
        ({"parse": "n1", "count": "n1", "other": "n1"}, "placement.other"),
        (
            {"parse": [{"node": "n1", "fraction": 0.5}, {"node": "n2", "fraction": 0.4}], "count": "n1"},
            "placement.parse",
        ),
        (
            {"parse": [{"node": "n1", "fraction": 0.5}, {"node": "n1", "fraction": 0.5}], "count": "n1"},
            "placement.parse",
        ),
        (
            {"count": [{"node": "n1", "fraction": 0.5}, {"node": "n2", "fraction": 0.5}], "parse": "n1"},
            "placement.count",
        ),
    ],
)
def test_impossible_placements_are_refused(placement: dict[str, Any], path: str) -> None:
    query = make_query(make_cluster())
    with pytest.raises(Malformed) as error:
        start(query, placement)
    assert fault_paths(error) == {path}
    query.refresh_from_db()
    assert query.state == "draft" and not Placement.objects.exists()


def test_a_draining_node_keeps_what_it_has_and_takes_nothing_new() -> None:
    cluster = make_cluster()
    query = start(make_query(cluster), {"parse": "n1", "count": "n2"})
    node_drain(node=node_named(cluster, "n1"))
    again = query_version_create(query=query, body=BODY)
    query_start(version=again, placement={"parse": "n1", "count": "n2"})
    with pytest.raises(Conflict, match="takes nothing new"):
        start(make_query(cluster, "second"))


def test_a_source_without_arrivals_stops_the_start() -> None:
    cluster = make_cluster()
    query = make_query(cluster)
    ArrivalSeries.objects.all().delete()
    with pytest.raises(Impossible, match="clicks"):
        start(query)


def test_a_running_query_is_neither_deleted_nor_renamed() -> None:
    query = start(make_query(make_cluster()))
    with pytest.raises(Conflict, match="Stop it first"):
        query_delete(query=query)
    with pytest.raises(Conflict, match="name"):
        query_update(query=query, name="other")
    query = query_stop(query=query)
    query_delete(query=query_update(query=query, name="other"))
    assert not Query.objects.exists()


def test_a_query_admitted_meanwhile_goes_on_running() -> None:
    query = make_query(make_cluster())
    seen = Query.objects.get(pk=query.pk)
    start(query)
    query_update(query=seen, description="reads clicks")
    now = Query.objects.get(pk=query.pk)
    assert (now.state, now.running_version.number, now.description) == ("running", 1, "reads clicks")


def test_a_query_admitted_meanwhile_is_neither_renamed_nor_deleted() -> None:
    query = make_query(make_cluster())
    seen, also = Query.objects.get(pk=query.pk), Query.objects.get(pk=query.pk)
    start(query)
    with pytest.raises(Conflict, match="rename it when it is stopped"):
        query_update(query=also, name="other")
    with pytest.raises(Conflict, match="Stop it first"):
        query_delete(query=seen)
    assert Placement.objects.count() == 2
