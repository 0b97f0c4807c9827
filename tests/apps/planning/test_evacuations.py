"""Evacuations from the question to the nodes being back: confirmed, carried out in steps, stopped and taken back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from apps.connections.models import Connection, ImportedJob
from apps.core.clock import shared_now
from apps.core.errors import Conflict, Impossible, Malformed
from apps.estimates.choices import DecidedBy
from apps.estimates.models import ObjectiveStatus
from apps.fleet.models import Cluster
from apps.fleet.services import node_create, node_drain, node_take_offline, node_update
from apps.jobs.services import job_start
from apps.planning.choices import RunState
from apps.planning.evacuation_steps import (
    evacuation_advance,
    evacuation_confirm,
    evacuation_finish,
    evacuation_stop,
    evacuations_advance,
)
from apps.planning.evacuations import EVACUATION, stored_plan
from apps.planning.models import Evacuation, PlacementRun
from apps.planning.placement_moves import BatchDone, batch_apply
from apps.planning.placement_search import PLACEMENT
from apps.queries.models import Placement, Query
from apps.queries.services import placement_move
from tests.apps.small_cluster import run_jobs, small_cluster, start_query

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster() -> Cluster:
    """Three nodes; two queries of 0.2 of a node on `a`, one on `b`."""
    cluster = small_cluster(nodes=("a", "b", "c"))
    for name, node in (("one", "a"), ("two", "a"), ("three", "b")):
        start_query(cluster, name, 0.2, node)
    return cluster


def places(cluster: Cluster) -> dict[str, str]:
    rows = Placement.objects.filter(operator__version__running_as__cluster=cluster)
    return dict(rows.values_list("operator__version__query__name", "node__name"))


def states(cluster: Cluster) -> dict[str, str]:
    return dict(cluster.nodes.values_list("name", "state"))


def planned(cluster: Cluster, *nodes: str, **asked: Any) -> Evacuation:
    run, _ = EVACUATION.request(cluster=cluster, nodes=nodes, pace=0.0, **asked)
    run_jobs()
    run.refresh_from_db()
    return run


def confirmed(cluster: Cluster, *nodes: str, **asked: Any) -> Evacuation:
    """Confirmed, though nobody has stated how large the states of its operators are."""
    return evacuation_confirm(run=planned(cluster, *nodes, **asked), user=None, accept_late=True)


def advanced(run: Evacuation, until: str = "", limit: int = 40) -> Evacuation:
    """Let the schedule and the workers do their work until a step is in a state, or nothing changes."""
    for _ in range(limit):
        if until and run.steps.filter(state=until).exists():
            break
        changed = evacuation_advance(run=run)
        if not run_jobs() and not changed:
            break
    run.refresh_from_db()
    return run


def test_node_is_emptied_and_comes_back_with_its_operators(cluster: Cluster) -> None:
    before = places(cluster)
    run = planned(cluster, "a")
    plan = stored_plan(run)
    assert run.state == RunState.PROPOSED and plan is not None
    assert {move.query for move in plan.steps[0].moves} == {"one", "two"}
    assert (places(cluster), states(cluster)["a"]) == (before, "active"), "planning moves nothing"
    evacuation_confirm(run=run, user=None, accept_late=True)
    advanced(run, until="away")
    assert states(cluster)["a"] == "draining"
    assert set(places(cluster).values()) <= {"b", "c"} and places(cluster)["three"] == "b"
    assert advanced(run).state == RunState.RUNNING, "without an end it waits to be told"
    evacuation_finish(run=run)
    assert advanced(run).state == RunState.DONE
    assert (places(cluster), states(cluster)["a"]) == (before, "active")


def test_operators_stay_elsewhere_where_that_was_asked(cluster: Cluster) -> None:
    run = confirmed(cluster, "a", back=False, starts_at=shared_now(), ends_at=shared_now() + timedelta(hours=1))
    advanced(run, until="away")
    after = places(cluster)
    evacuation_advance(run=run, now=shared_now() + timedelta(hours=2))
    assert advanced(run).state == RunState.DONE
    assert (places(cluster), states(cluster)["a"]) == (after, "active")


def test_it_begins_at_its_time(cluster: Cluster) -> None:
    at = shared_now() + timedelta(hours=2)
    run = confirmed(cluster, "a", starts_at=at, ends_at=at + timedelta(hours=1))
    assert run.state == RunState.SCHEDULED
    assert evacuations_advance() == 0
    assert evacuations_advance(now=at) == 1
    run.refresh_from_db()
    assert run.state == RunState.RUNNING


def test_rolling_upgrade_empties_one_failure_domain_after_the_other(cluster: Cluster) -> None:
    for name in ("a", "b"):
        node_update(node=cluster.nodes.get(name=name), labels={"rack": "r1"})
    before = places(cluster)
    run = confirmed(cluster, "pool=pool", order="domain", domain="rack")
    assert [step.nodes for step in run.steps.all()] == [["a", "b"], ["c"]]
    seen = []
    for _ in range(40):
        evacuation_advance(run=run)
        run_jobs()
        draining = tuple(sorted(name for name, state in states(cluster).items() if state == "draining"))
        if draining and draining not in seen:
            seen.append(draining)
    run.refresh_from_db()
    assert (run.state, run.message) == (RunState.DONE, "")
    assert seen == [("a", "b"), ("c",)]
    assert places(cluster) == before


def measured_late(cluster: Cluster, name: str) -> None:
    """A query that is measured late from now on."""
    ObjectiveStatus.objects.update_or_create(
        query=cluster.queries.get(name=name),
        defaults={
            "state": "breached",
            "decided_by": DecidedBy.MEASUREMENT,
            "since": shared_now(),
            "statistic": "worst",
            "updated_at": shared_now(),
        },
    )


@pytest.mark.parametrize("fails", ["a query", "a node", "a person"])
def test_guard_stops_it_and_takes_everything_back(cluster: Cluster, fails: str) -> None:
    before = places(cluster)
    node_create(pool=cluster.pools.get(), name="d")
    run = confirmed(cluster, "a")
    advanced(run, until="away")
    said = "A person stopped it."
    if fails == "a query":
        measured_late(cluster, "three")
        said = "three is measured late beyond the objective."
    elif fails == "a node":
        node_take_offline(node=cluster.nodes.get(name="d"))
        said = "d went away meanwhile."
    else:
        evacuation_stop(run=run)
    assert advanced(run).state == RunState.STOPPED
    assert run.message == said
    assert (places(cluster), states(cluster)["a"]) == (before, "active")


@pytest.mark.parametrize("fails", ["a query", "another node", "a node of it"])
def test_guard_between_confirmation_and_beginning_trips_before_anything_moves(cluster: Cluster, fails: str) -> None:
    node_create(pool=cluster.pools.get(), name="d")
    at = shared_now() + timedelta(hours=1)
    run = confirmed(cluster, "a", "c", starts_at=at, ends_at=at + timedelta(hours=1))
    before = places(cluster)
    if fails == "a query":
        measured_late(cluster, "three")
        said = "three is measured late beyond the objective."
    elif fails == "another node":
        node_take_offline(node=cluster.nodes.get(name="d"))
        said = "d went away meanwhile."
    else:
        node_take_offline(node=cluster.nodes.get(name="c"))
        said = "c is not there any more."
    assert evacuation_advance(run=run, now=at)
    run.refresh_from_db()
    assert (run.state, run.begun_at, run.message) == (RunState.STOPPED, None, f"{said} Nothing was moved.")
    assert (places(cluster), states(cluster)["a"]) == (before, "active")


def test_plan_whose_node_went_away_is_not_confirmed(cluster: Cluster) -> None:
    node_create(pool=cluster.pools.get(), name="d")
    run = planned(cluster, "a")
    node_take_offline(node=cluster.nodes.get(name="d"))
    with pytest.raises(Conflict, match="d went away meanwhile"):
        evacuation_confirm(run=run, user=None, accept_late=True)


def test_node_that_is_back_and_fails_stops_a_rolling_upgrade(cluster: Cluster) -> None:
    run = confirmed(cluster, "c", "a", order="each")
    for _ in range(40):
        evacuation_advance(run=run)
        run_jobs()
        if run.steps.get(number=1).state == "back":
            break
    node_take_offline(node=cluster.nodes.get(name="c"))
    assert advanced(run).state == RunState.STOPPED
    assert run.message == "c went away meanwhile."
    assert states(cluster) == {"a": "active", "b": "active", "c": "offline"}


def test_node_that_does_not_come_back_is_named_with_what_stays_elsewhere(cluster: Cluster) -> None:
    run = confirmed(cluster, "a")
    advanced(run, until="away")
    after = places(cluster)
    node_take_offline(node=cluster.nodes.get(name="a"))
    evacuation_finish(run=run)
    assert advanced(run).state == RunState.DONE
    assert run.message.startswith("a did not come back. one/work and two/work did not return")
    assert places(cluster) == after


def test_query_that_moved_meanwhile_is_named_and_left(cluster: Cluster) -> None:
    run = confirmed(cluster, "a")
    advanced(run, until="away")
    other = {"b": "c", "c": "b"}[places(cluster)["one"]]
    placement_move(query=cluster.queries.get(name="one"), placement={"work": [{"node": other}]})
    evacuation_finish(run=run)
    assert advanced(run).state == RunState.DONE
    assert places(cluster)["one"] == other and places(cluster)["two"] == "a"
    assert run.message == "one/work did not return: moved or stopped meanwhile, or the node is not there."


def test_cluster_that_moves_between_batches_is_searched_anew_and_everything_returns(cluster: Cluster) -> None:
    """The first batch is made, then another query moves; the second operator leaves by a run of its own."""
    before = places(cluster)
    run = confirmed(cluster, "a")
    for _ in range(2):
        evacuation_advance(run=run)
        run_jobs()
    evacuation_advance(run=run)
    step = run.steps.get()
    first = step.placement
    assert first is not None and first.moves_job is not None
    job = job_start(first.moves_job.pk)
    assert job is not None and isinstance(batch_apply(run=first, job=job), BatchDone)
    placement_move(query=cluster.queries.get(name="three"), placement={"work": [{"node": "c"}]})
    assert isinstance(batch_apply(run=first, job=job), list)
    advanced(run, until="away")
    step.refresh_from_db()
    assert step.placement is not None and step.placement.parent == first
    assert "a" not in places(cluster).values()
    evacuation_finish(run=run)
    assert advanced(run).state == RunState.DONE
    assert places(cluster) == before | {"three": "c"}


def test_query_of_an_engine_that_came_meanwhile_is_not_written_down_as_moved(cluster: Cluster) -> None:
    run = confirmed(cluster, "a", starts_at=shared_now() + timedelta(hours=1))
    connection = Connection.objects.create(cluster=cluster, name="flink", engine="flink")
    query = Query.objects.get(name="one")
    now = shared_now()
    ImportedJob.objects.create(
        connection=connection, query=query, version=query.running_version, name="one", started_at=now, seen_at=now
    )
    evacuation_advance(run=run, now=shared_now() + timedelta(hours=1))
    evacuation_advance(run=run, now=shared_now() + timedelta(hours=1))
    ended = advanced(run)
    assert ended.state == RunState.STOPPED and "one runs in a connected engine" in ended.message
    assert (places(cluster)["one"], states(cluster)["a"]) == ("a", "active")


def test_moves_that_were_deleted_are_missed_when_the_nodes_come_back(cluster: Cluster) -> None:
    run = confirmed(cluster, "b")
    advanced(run, until="away")
    PlacementRun.objects.all().delete()
    evacuation_finish(run=run)
    ended = advanced(run)
    assert ended.state == RunState.DONE and "operators stay where they are" in ended.message


def test_time_that_ends_before_the_nodes_are_empty_takes_it_back(cluster: Cluster) -> None:
    run = confirmed(cluster, "a", ends_at=shared_now() + timedelta(hours=1))
    for _ in range(3):
        evacuation_advance(run=run)
    assert states(cluster)["a"] == "draining"
    evacuation_advance(run=run, now=shared_now() + timedelta(hours=2))
    assert advanced(run).state == RunState.STOPPED
    assert run.message == "Its time ended before the nodes were empty."
    assert states(cluster)["a"] == "active"


class TestWhatIsRefused:
    def test_every_fault_of_a_question_is_told_at_once(self, cluster: Cluster) -> None:
        now = shared_now()
        asked: dict[str, Any] = {"starts_at": now + timedelta(hours=2), "ends_at": now + timedelta(hours=1)}
        with pytest.raises(Malformed) as refused:
            EVACUATION.create(
                cluster=cluster, user=None, nodes=["a", "x9", "rack=7"], order="domain", pace=99.0, **asked
            )
        paths = [fault.path for fault in refused.value.faults]
        assert paths == ["nodes[1]", "nodes[2]", "ends_at", "pace", "domain"]
        assert not Evacuation.objects.exists()

    def test_last_node_is_not_taken(self, cluster: Cluster) -> None:
        node_drain(node=cluster.nodes.get(name="c"))
        with pytest.raises(Impossible, match="no active node"):
            EVACUATION.create(cluster=cluster, user=None, nodes=["a", "b"])
        assert not Evacuation.objects.exists()

    @pytest.mark.parametrize(
        ("path", "asked"),
        [
            ("domain", {"order": "domain", "domain": "y" * 500}),
            ("domain", {"order": "each", "domain": "rack"}),
            ("ends_at", {"ends_at": datetime(9999, 12, 31, tzinfo=UTC)}),
        ],
    )
    def test_label_that_no_node_has_and_a_time_far_away_are_told(
        self, cluster: Cluster, path: str, asked: dict[str, Any]
    ) -> None:
        with pytest.raises(Malformed) as refused:
            EVACUATION.create(cluster=cluster, user=None, nodes=["a"], **asked)
        assert [fault.path for fault in refused.value.faults] == [path]

    def test_time_too_short_is_not_confirmed(self, cluster: Cluster) -> None:
        run = planned(cluster, "a", ends_at=shared_now() + timedelta(seconds=5))
        with pytest.raises(Conflict, match="too short"):
            evacuation_confirm(run=run, user=None)

    def test_pinned_operator_is_named(self, cluster: Cluster) -> None:
        run = planned(cluster, "a", constraints={"pin": {"one/work": "a"}})
        with pytest.raises(Impossible, match="pinned to a"):
            evacuation_confirm(run=run, user=None)
        assert states(cluster)["a"] == "active"

    def test_late_queries_have_to_be_accepted(self, cluster: Cluster) -> None:
        start_query(cluster, "full", 0.9, "c")
        run = planned(cluster, "a", "c")
        assert run.facts["breaks"]
        with pytest.raises(Conflict, match="would be late"):
            evacuation_confirm(run=run, user=None)
        assert evacuation_confirm(run=run, user=None, accept_late=True).state == RunState.SCHEDULED

    def test_pause_that_nobody_knows_is_not_taken_for_none(self, cluster: Cluster) -> None:
        run = planned(cluster, "b")
        assert (run.facts["breaks"], run.facts["late"]) == ([], ["three"])
        with pytest.raises(Conflict, match="or that is not known"):
            evacuation_confirm(run=run, user=None)

    def test_two_at_a_time_are_refused(self, cluster: Cluster) -> None:
        confirmed(cluster, "a")
        with pytest.raises(Conflict, match="scheduled at that time"):
            confirmed(cluster, "b")


def test_placement_search_leaves_nothing_on_a_draining_node(cluster: Cluster) -> None:
    node_drain(node=cluster.nodes.get(name="a"))
    run, _ = PLACEMENT.request(cluster=cluster, user=None, budget_s=0.2)
    run_jobs()
    run.refresh_from_db()
    assert run.state == RunState.PROPOSED
    assert {name for name, after in run.moves.values_list("query", "after") if after[0]["node"] != "a"} >= {
        "one",
        "two",
    }
    pinned, _ = PLACEMENT.request(cluster=cluster, user=None, budget_s=0.2, constraints={"pin": {"one/work": "a"}})
    run_jobs()
    pinned = PlacementRun.objects.get(pk=pinned.pk)
    assert pinned.state == RunState.FAILED and "one/work" in pinned.message and "pinned to a" in pinned.message
