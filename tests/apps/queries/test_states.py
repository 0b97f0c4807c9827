"""Snapshots by difference: whatever changes, and whoever changes it, they are what a snapshot read from nothing is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from django.core.exceptions import ObjectDoesNotExist
from django.db import DatabaseError, connection, transaction
from django.test.utils import CaptureQueriesContext

from apps.core.errors import SluiceError
from apps.fleet.models import Cluster, Link, Node, NodePool
from apps.fleet.services import cluster_create, node_create
from apps.queries.documents import document_import
from apps.queries.models import ArrivalSeries, Operator, OperatorInput, Placement, Query, RowChange
from apps.queries.services import placement_move, query_delete, query_stop, query_update
from apps.queries.snapshots import outlines, states
from apps.queries.snapshots.cluster import Snapshot, cluster_snapshot
from apps.queries.snapshots.outlines import ClusterOutline, cluster_outline
from apps.queries.snapshots.row_changes import triggers_create, triggers_drop
from engine.document.export import to_document
from tests.apps.small_cluster import make_query, small_cluster, start_query


@pytest.fixture
def cluster(transactional_db: None) -> Iterator[Cluster]:
    _forget()
    yield _cluster()
    _forget()


def _forget() -> None:
    states._shared.clear()
    outlines._shared.clear()


def _cluster() -> Cluster:
    cluster = small_cluster()
    for name, load, node in (("first", 0.3, "a"), ("second", 0.2, "a"), ("third", 0.2, "b")):
        start_query(cluster, name, load, node)
    make_query(cluster, "draft", 0.1)
    return cluster


def content(snapshot: Snapshot) -> tuple[Any, ...]:
    document = to_document(snapshot.deployment)
    return snapshot.digest, snapshot.parts, document, snapshot.closed_nodes, snapshot.deployment.digest


def outlined(outline: ClusterOutline) -> tuple[Any, ...]:
    return to_document(outline.deployment), outline.deployment.digest, outline.closed_nodes


def require_fresh(cluster: Cluster) -> Snapshot:
    """The snapshot by difference, which has to be that of everything read."""
    cluster = Cluster.objects.get(pk=cluster.pk)
    found = cluster_snapshot(cluster)
    outline = cluster_outline(cluster)
    known, known_outlines = dict(states._shared), dict(outlines._shared)
    _forget()
    assert outlined(outline) == outlined(cluster_outline(cluster))
    outlines._shared.update(known_outlines)
    whole = cluster_snapshot(cluster)
    assert content(found) == content(whole)
    states._shared.update(known)
    return found


def rows(model: Any, **named: Any) -> Any:
    return model.objects.filter(**named)


def raw(sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


FIRST = {"operator__version__query__name": "first"}
CHANGES: dict[str, Callable[[Cluster], object]] = {
    "start": lambda cluster: start_query(cluster, "fourth", 0.1, "b"),
    "objective": lambda cluster: query_update(
        query=Query.objects.get(name="first"), objective={"statistic": "mean", "bound_s": 3.0}
    ),
    "priority": lambda cluster: rows(Query, name="first").update(priority=7),
    "share": lambda cluster: rows(Query, name="first").update(rate_share=0.5),
    "move": lambda cluster: placement_move(query=Query.objects.get(name="first"), placement={"work": "b"}),
    "moved in bulk": lambda cluster: rows(Placement, **FIRST).update(core=0, node=Node.objects.get(name="a")),
    "costs by statement": lambda cluster: rows(OperatorInput, **FIRST).update(cycles_per_event=3.5),
    "cost": lambda cluster: [row.save() for row in _dearer(rows(OperatorInput, **FIRST))],
    "costs in bulk": lambda cluster: OperatorInput.objects.bulk_update(
        _dearer(OperatorInput.objects.all()), ["cycles_per_event"]
    ),
    "never ran": lambda cluster: rows(OperatorInput, **FIRST).update(cycles_per_event=None),
    "operator": lambda cluster: rows(Operator, version__query__name="first").update(bytes_per_event=9.0),
    "arrivals": lambda cluster: ArrivalSeries.objects.update(step_s=2.0),
    "another source": lambda cluster: rows(ArrivalSeries).update(dispersion=2.0, dispersion_step_s=1.0),
    "capacity": lambda cluster: rows(Node, name="a").update(capacity_cps=900.0),
    "drained": lambda cluster: rows(Node, name="a").update(state="draining"),
    "new node": lambda cluster: node_create(pool=cluster.pools.get(), name="d", capacity_cps=1e3, cores=1),
    "price": lambda cluster: NodePool.objects.update(price_per_hour=3),
    "label": lambda cluster: NodePool.objects.update(labels={"zone": "1"}),
    "link": lambda cluster: Link.objects.bulk_create(
        [Link(cluster=cluster, source=Node.objects.get(name="a"), target=Node.objects.get(name="b"), delay_s=0.1)],
        ignore_conflicts=True,
    ),
    "horizon": lambda cluster: rows(Cluster, pk=cluster.pk).update(policy_version=1),
    "by hand": lambda cluster: raw("UPDATE queries_query SET state = 'stopped' WHERE name = 'third'"),
    "deleted by hand": lambda cluster: raw(
        "DELETE FROM queries_placement WHERE operator_id IN (SELECT o.id FROM queries_operator o"
        " JOIN queries_queryversion v ON v.id = o.version_id JOIN queries_query q ON q.id = v.query_id"
        " WHERE q.name = 'second')"
    ),
    "import": lambda cluster: document_import(
        cluster=cluster,
        document={"nodes": [{"id": "e", "capacity_cps": 1e3}], "sources": [], "operators": [], "links": []}
        | {"subinterval_s": cluster.subinterval_s, "subintervals": int(cluster.horizon_s / cluster.subinterval_s)},
    ),
    "stop": lambda cluster: query_stop(query=Query.objects.get(name="second")),
    "delete": lambda cluster: (
        query_stop(query=Query.objects.get(name="fourth")),
        query_delete(query=Query.objects.get(name="fourth")),
    ),
    "placements gone": lambda cluster: rows(Placement, **FIRST).delete(),
    "offline": lambda cluster: rows(Node, name="b").update(state="offline"),
    "node renamed": lambda cluster: rows(Node, name="a").update(name="z"),
    "renamed": lambda cluster: rows(Query, name="first").update(name="newer"),
}


def _dearer(found: Any) -> list[OperatorInput]:
    listed = list(found)
    for row in listed:
        row.cycles_per_event = (row.cycles_per_event or 1.0) * 1.1
    return listed


def test_snapshot_after_each_kind_of_change_is_that_of_everything_read(cluster: Cluster) -> None:
    before = require_fresh(cluster)
    for name, change in CHANGES.items():
        change(cluster)
        after = require_fresh(cluster)
        assert content(after) != content(before), f"{name} was seen"
        before = after


def test_change_by_rest_is_seen(cluster: Cluster, api_of: Any) -> None:
    before = require_fresh(cluster)
    query = Query.objects.get(name="first")
    answer = api_of("admin").patch(f"/api/v1/queries/{query.pk}", {"priority": 3}, format="json")
    assert answer.status_code == 200, answer.content
    assert require_fresh(cluster).parts != before.parts


@pytest.mark.parametrize("seed", range(3))
def test_snapshots_after_random_changes_are_those_of_everything_read(cluster: Cluster, seed: int) -> None:
    random = np.random.default_rng(seed)
    for _ in range(12):
        for name in random.choice(list(CHANGES), size=random.integers(1, 3)):
            try:
                with transaction.atomic():
                    CHANGES[name](cluster)
                    if random.random() < 0.3:
                        cluster_snapshot(cluster)  # within the transaction, which may not last
                    if random.random() < 0.3:
                        transaction.set_rollback(True)
            except (SluiceError, DatabaseError, ObjectDoesNotExist):
                continue  # the query is gone already, or the name is taken
        require_fresh(cluster)


def test_cluster_that_has_not_changed_is_not_read_again(cluster: Cluster) -> None:
    first = cluster_snapshot(cluster)
    with CaptureQueriesContext(connection) as captured:
        second = cluster_snapshot(cluster)
    assert second.deployment is first.deployment
    assert len(captured) <= 4, captured.captured_queries
    assert not any("queries_operator" in each["sql"] for each in captured.captured_queries)


def test_change_of_one_query_reads_that_one(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster_snapshot(cluster)
    read: list[str] = []
    real = states.running_queries
    monkeypatch.setattr(
        states,
        "running_queries",
        lambda queries, nodes: (read.extend(q.name for q in queries), real(queries, nodes))[1],
    )
    CHANGES["cost"](cluster)
    CHANGES["priority"](cluster)
    cluster_snapshot(cluster)
    assert set(read) == {"first"}


def test_draft_and_row_saved_as_it_was_leave_the_deployment(cluster: Cluster) -> None:
    before = cluster_snapshot(cluster).deployment
    make_query(cluster, "another", 0.1)
    for model in (Query, Node, OperatorInput):
        for row in model.objects.all():
            row.save()
    assert cluster_snapshot(cluster).deployment is before
    require_fresh(cluster)


def test_change_of_another_cluster_reads_nothing(cluster: Cluster) -> None:
    cluster_snapshot(cluster)
    other = cluster_create(slug="other", name="Other", subinterval_s=1.0, horizon_s=60.0)
    position = states._shared[cluster.pk].changes.position
    Query.objects.create(cluster=other, name="elsewhere")
    cluster_snapshot(cluster)
    assert states._shared[cluster.pk].changes.position == position


def test_what_a_transaction_wrote_is_seen_inside_and_forgotten_with_it(cluster: Cluster) -> None:
    before = require_fresh(cluster)
    with transaction.atomic():
        rows(Query, name="first").update(priority=9)
        assert cluster_snapshot(cluster).parts != before.parts
        with transaction.atomic():
            rows(Query, name="second").update(priority=9)
            inner = cluster_snapshot(cluster).parts
            transaction.set_rollback(True)
        assert cluster_snapshot(cluster).parts != inner
        transaction.set_rollback(True)
    assert cluster_snapshot(cluster).parts == before.parts
    rows(Query, name="third").update(priority=9)  # its mark may have the key of one that is gone
    assert require_fresh(cluster).parts != before.parts


def test_threads_bring_a_state_forward_at_once(cluster: Cluster) -> None:
    failed: list[BaseException] = []

    def look() -> None:
        try:
            for _ in range(5):
                cluster_snapshot(Cluster.objects.get(pk=cluster.pk))
        except BaseException as error:
            failed.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for i in range(10):
        rows(Query, name="first").update(priority=i, rate_share=0.5 if i % 2 else 1.0)
    for thread in threads:
        thread.join()
    assert not failed
    require_fresh(cluster)


def test_migration_begins_an_epoch_and_everything_is_read(cluster: Cluster) -> None:
    cluster_snapshot(cluster)
    epoch = states._shared[cluster.pk].changes.epoch
    triggers_create()
    cluster_snapshot(cluster)
    assert states._shared[cluster.pk].changes.epoch != epoch


def test_marks_do_not_grow_with_changes(cluster: Cluster) -> None:
    CHANGES["cost"](cluster)
    count = RowChange.objects.count()
    for _ in range(5):
        CHANGES["cost"](cluster)
    assert RowChange.objects.count() == count


@pytest.mark.postgres
def test_snapshots_by_difference_are_those_of_everything_read_on_postgresql(postgres_db: str) -> None:
    states._shared.clear()
    cluster = _cluster()
    test_snapshot_after_each_kind_of_change_is_that_of_everything_read(cluster)
    states._shared.clear()


@pytest.mark.postgres
def test_change_that_is_committed_after_a_later_one_is_seen_on_postgresql(postgres_db: str) -> None:
    """A transaction that began first ends last: its marks are older than the position that a reader has by then."""
    states._shared.clear()
    cluster, begun, end = _cluster(), threading.Event(), threading.Event()
    require_fresh(cluster)

    def write() -> None:
        with transaction.atomic():
            rows(Query, name="first").update(priority=4)
            begun.set()
            end.wait(60)
        connection.close()

    thread = threading.Thread(target=write)
    thread.start()
    assert begun.wait(60)
    rows(Query, name="second").update(priority=5)
    assert require_fresh(cluster).deployment.priorities["second"] == 5
    end.set()
    thread.join()
    assert require_fresh(cluster).deployment.priorities["first"] == 4
    states._shared.clear()


def our_triggers() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM sqlite_master WHERE type = 'trigger' AND name LIKE '%_marks_%'")
        return int(cursor.fetchone()[0])


@pytest.mark.skipif(connection.vendor != "sqlite", reason="PostgreSQL remakes no tables")
def test_triggers_make_way_for_a_migration_and_come_back(transactional_db: None) -> None:
    """SQLite reads every trigger anew where a table that it names is remade."""
    there = our_triggers()
    triggers_drop()
    assert there > 0 and our_triggers() == 0
    field = Query._meta.get_field("priority")
    nullable = type(field)(default=field.default, null=True)
    nullable.set_attributes_from_name("priority")
    nullable.model = Query
    for was, now in ((field, nullable), (nullable, field)):
        with connection.schema_editor() as editor:
            editor.alter_field(Query, was, now)
    triggers_create()
    assert our_triggers() == there
