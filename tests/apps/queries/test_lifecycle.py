"""Starting, moving and stopping queries, also while others do the same."""

from __future__ import annotations

from typing import Any

import pytest

from apps.core.errors import Conflict, Impossible, Malformed
from apps.fleet.services import node_drain
from apps.queries.definitions import query_delete, query_update, query_version_create
from apps.queries.lifecycle import placement_move, query_start, query_stop
from apps.queries.models import ArrivalSeries, Placement, Query
from tests.apps.domain import BODY, fault_paths, make_cluster, make_query, node_named, start

pytestmark = pytest.mark.django_db


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
