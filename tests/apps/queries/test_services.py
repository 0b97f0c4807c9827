"""Describing, starting and stopping queries; statistics; arrivals."""

from __future__ import annotations

import io
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from apps.core.errors import Conflict, Impossible, Malformed, Missing, TooLarge
from apps.fleet.services import cluster_update, node_drain
from apps.queries.arrivals import series
from apps.queries.arrivals.services import (
    arrivals_create_from_counts,
    arrivals_create_from_generator,
    arrivals_create_from_upload,
    arrivals_delete,
    arrivals_inspect,
)
from apps.queries.arrivals.uploads import upload_keep, upload_open, uploads_purge
from apps.queries.bodies import version_body
from apps.queries.definitions import query_delete, query_update, query_version_create
from apps.queries.lifecycle import placement_move, query_start, query_stop
from apps.queries.models import ArrivalSeries, Placement, Query
from apps.queries.selectors import version_numbered
from apps.queries.statistics import statistics_of, statistics_update
from tests.apps.domain import BODY, make_arrivals, make_cluster, make_query, node_named, start

pytestmark = pytest.mark.django_db


def paths(error: Any) -> set[str]:
    return {fault.path for fault in error.value.faults}


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
    } <= paths(error)
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
    assert paths(error) == {"operators[0].evidence.events"}


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
    assert (query.objective_statistic, query.objective_bound_s, query.team) == ("q0.95", 0.5, "search")
    query_update(query=query, priority=3)
    assert query.objective_bound_s == 0.5
    query_update(query=query, objective=None)
    assert query.objective_bound_s is None
    with pytest.raises(Malformed) as error:
        query_update(query=query, objective={"statistic": "q1.5"}, team="x" * 81)
    assert paths(error) == {"objective.statistic", "objective.bound_s", "team"}


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
    assert paths(error) == {
        "statistics[1].operator",
        "statistics[2].input",
        "statistics[3].selectivity",
        "statistics[3].cycles_per_event",
        "statistics[3].color",
        "statistics[4].measured_at",
        "statistics[5]",
        "statistics[6].events",
        "statistics[6]",
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


# -- running


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
    assert paths(error) == {path}
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


# -- arrivals


TRACE = "t,n\n" + "".join(f"2026-03-01 00:00:{i:02d},{i}\n" for i in range(10))


def _upload(text: str | bytes = TRACE, name: str = "trace.csv") -> SimpleUploadedFile:
    return SimpleUploadedFile(name, text.encode() if isinstance(text, str) else text)


def _store(cluster: Any, text: str | bytes = TRACE, **fields: Any) -> ArrivalSeries:
    key, _ = arrivals_inspect(file=_upload(text))
    chosen = {"time_column": "t", "count_column": "n", "source_id": "clicks"} | fields
    return arrivals_create_from_upload(cluster=cluster, key=key, **chosen)


def test_the_busiest_stretch_of_an_upload_is_stored() -> None:
    cluster = make_cluster()
    stored = _store(cluster)
    assert (stored.events, stored.peak_eps, stored.evidence) == (6 + 7 + 8 + 9, 9.0, "measured")
    assert stored.starts_at == datetime(2026, 3, 1, 0, 0, 6, tzinfo=UTC)
    assert series.unpack(stored.data).tolist() == [1.5] * 4 + [1.75] * 4 + [2.0] * 4 + [2.25] * 4
    assert stored.spec["file"] == "trace.csv" and stored.spec["lines"] == 10


def test_chosen_window_of_a_trace_is_stored_with_its_fill() -> None:
    cluster = make_cluster()
    assert _store(cluster, source_id="a", stretch="first").events == 0 + 1 + 2 + 3
    assert _store(cluster, source_id="b", stretch="2026-03-01T00:00:02Z").events == 2 + 3 + 4 + 5
    with pytest.raises(Malformed, match="repeat it, or zero"):
        _store(cluster, source_id="c", stretch="2026-03-01 00:00:08")
    assert _store(cluster, source_id="c", stretch="2026-03-01 00:00:08", fill="zero").events == 17
    assert _store(cluster, source_id="d", stretch="2026-03-01 00:00:08", fill="repeat").events == 34
    for stretch, fill, path in (("noon", "", "stretch"), ("1999-01-01", "", "stretch"), ("first", "x", "fill")):
        with pytest.raises(Malformed) as error:
            _store(cluster, source_id="e", stretch=stretch, fill=fill)
        assert paths(error) == {path}


def test_malformed_lines_stop_the_storing_unless_left_out() -> None:
    cluster = make_cluster()
    with pytest.raises(Malformed, match="2 lines cannot be read") as error:
        _store(cluster, TRACE + "yesterday,4\n2026-03-01 00:00:11,-4\n")
    assert paths(error) == {"file.line[12].t", "file.line[13].n"}
    assert not ArrivalSeries.objects.exists()
    stored = _store(cluster, TRACE + "yesterday,4\n", leave_out_problems=True)
    assert stored.spec["lines_left_out"] == 1


def test_a_source_is_replaced_only_when_told() -> None:
    cluster = make_cluster()
    first = _store(cluster)
    with pytest.raises(Conflict, match="replace"):
        _store(cluster)
    assert _store(cluster, stretch="first", replace=True).pk == first.pk


def test_large_uploads_are_refused_naming_the_limit(settings: Any) -> None:
    settings.UPLOAD_MAX_BYTES = 1000
    with pytest.raises(TooLarge, match=r"0\.001 MB .*SLUICE_UPLOAD_MAX_MB"):
        arrivals_inspect(file=_upload("x" * 1001))


def test_uploads_expire_and_keys_cannot_be_forged(settings: Any, tmp_path: Any) -> None:
    import os

    settings.VAR_DIR = tmp_path
    key = upload_keep(_upload())
    with upload_open(key) as upload:
        assert upload.name == "trace.csv" and upload.file.read() == TRACE.encode()
    with pytest.raises(Malformed):
        upload_open(key[:-1] + ("a" if key[-1] != "a" else "b"))
    kept = next((tmp_path / "uploads").iterdir())
    os.utime(kept, (0, 0))
    assert uploads_purge() == 1
    with pytest.raises(Missing, match="expired"):
        upload_open(key)


@pytest.mark.parametrize(
    "spec",
    [
        {"kind": "poisson", "mean_rate_eps": 40, "seed": 3},
        {"kind": "on_off", "mean_rate_eps": 40.0, "ratio": 10, "high_period_s": 1.0},
        {"kind": "diurnal", "mean_rate_eps": 40, "noise": False, "day_s": 4.0},
    ],
)
def test_generators_are_repeatable(spec: dict[str, Any]) -> None:
    cluster = make_cluster()
    one, two = (arrivals_create_from_generator(cluster=cluster, source_id=name, spec=spec) for name in ("a", "b"))
    assert one.digest == two.digest and one.evidence == "assumed" and one.spec == spec


@pytest.mark.parametrize(
    ("spec", "bad"),
    [
        ({"kind": "magic"}, {"generator.kind"}),
        ({}, {"generator.kind"}),
        ({"kind": ["poisson"]}, {"generator.kind"}),
        ({"kind": "poisson"}, {"generator.mean_rate_eps"}),
        ({"kind": "poisson", "mean_rate_eps": -1, "seed": -1}, {"generator.mean_rate_eps"}),
        ({"kind": "poisson", "mean_rate_eps": "fast", "speed": 1}, {"generator.mean_rate_eps", "generator.speed"}),
        ({"kind": "diurnal", "mean_rate_eps": 1.0, "noise": 1, "seed": 1.5}, {"generator.noise", "generator.seed"}),
    ],
)
def test_generators_refuse_by_name(spec: dict[str, Any], bad: set[str]) -> None:
    with pytest.raises(Malformed) as error:
        arrivals_create_from_generator(cluster=make_cluster(), source_id="a", spec=spec)
    assert bad <= paths(error)
    assert not ArrivalSeries.objects.exists()


def test_counts_are_resampled_or_kept_as_they_are() -> None:
    cluster = make_cluster()
    values = np.linspace(0, 7, 16)
    kept = arrivals_create_from_counts(cluster=cluster, source_id="a", counts=values)
    assert series.unpack(kept.data).tolist() == values.tolist()
    spread = arrivals_create_from_counts(cluster=cluster, source_id="b", counts=[4, 8, 0, 4], step_s=1.0)
    assert series.unpack(spread.data).tolist() == [1.0] * 4 + [2.0] * 4 + [0.0] * 4 + [1.0] * 4
    with pytest.raises(Malformed) as error:
        arrivals_create_from_counts(cluster=cluster, source_id="x/y@z", counts=[1, -1, float("nan")], step_s=0)
    assert paths(error) == {"source_id", "step_s", "counts[1]", "counts[2]"}


def test_arrivals_that_a_query_reads_cannot_be_deleted() -> None:
    cluster = make_cluster()
    query = start(make_query(cluster))
    with pytest.raises(Conflict, match="checkout"):
        arrivals_delete(arrivals=cluster.arrivals.get())
    query_stop(query=query)
    arrivals_delete(arrivals=cluster.arrivals.get())
    assert not ArrivalSeries.objects.exists()


def test_an_inspection_is_plain_data() -> None:
    key, found = arrivals_inspect(file=_upload(gzip_of(TRACE), "t.csv.gz"))
    shown = found.as_dict()
    assert isinstance(key, str) and shown["columns"][0] == {"name": "t", "kind": "time", "time_format": "iso"}


def gzip_of(text: str) -> bytes:
    import gzip

    out = io.BytesIO()
    with gzip.open(out, "wb") as packed:
        packed.write(text.encode())
    return out.getvalue()


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


def test_batches_that_add_up_beyond_numbers_are_refused() -> None:
    query = make_query(make_cluster())
    huge = {"events": 1e308, "outputs": 1.0, "cycles": 1.0}
    told = [{"operator": "parse", "batches": [huge, huge], "measured_at": "0001-01-01T00:00:00+14:00"}]
    with pytest.raises(Malformed) as error:
        statistics_update(version=query.versions.get(), statistics=told)
    assert paths(error) == {"statistics[0].batches"}
    told[0].pop("batches")
    with pytest.raises(Malformed, match="from 1970 on"):
        statistics_update(version=query.versions.get(), statistics=told)


def test_evidence_from_before_the_calendar_is_refused() -> None:
    cluster = make_cluster()
    make_arrivals(cluster)
    with pytest.raises(Malformed) as error:
        make_query(cluster, body=body_with(evidence={"kind": "measured", "events": 5, "age_s": 1e300}))
    assert paths(error) == {"operators[0].evidence.age_s"}


def test_a_description_has_a_bounded_length() -> None:
    query = make_query(make_cluster())
    with pytest.raises(Malformed, match="10000"):
        query_update(query=query, description="x" * 10_001)


# -- at the same time


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


def test_arrivals_read_for_another_grid_are_not_stored() -> None:
    cluster = make_cluster()
    seen = type(cluster).objects.get(pk=cluster.pk)
    cluster_update(cluster=cluster, subinterval_s=2.0, horizon_s=8.0)
    with pytest.raises(Conflict, match="subinterval was changed"):
        make_arrivals(seen)
    assert not ArrivalSeries.objects.exists()
