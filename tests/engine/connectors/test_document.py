"""An imported job becomes a body that the deployment document takes, with names that stay and servers that are safe."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.connectors.document import SERVER_CPS, UNCOUNTED, ImportedPool, import_picture
from engine.connectors.flink import read_flink
from engine.connectors.picture import ArrivalCounts, EnginePicture, JobSample
from engine.connectors.statistics import sample_job
from engine.document.deployment import Deployment
from tests.engine.connectors.flink_answers import JOB, NOW_MS, cluster, poll, taskmanager, vertex


def rows(second: float, *, parallelism: int = 1, legacy: bool = False) -> tuple[dict[str, Any], ...]:
    events = 100 * second
    busy: Any = "NaN" if legacy else 0.1 * events
    return (
        vertex("v1", "Source: clicks[4]", written=events, write_bytes=50 * events, busy=busy, idle=990 * second),
        vertex(
            "v2", "enrich", ("v1", "HASH"), parallelism=parallelism, read=events, written=events / 2,
            busy=4 * events, idle=1000 * second * parallelism - 4 * events,
        ),
        vertex("v3", "out[5]: Writer", "v2", read=events / 2, busy=0, idle=1000 * second),
        vertex("v4", "out[6]: Writer", "v2", read=events / 2, busy=0, idle=1000 * second),
    )  # fmt: skip


def imported(*, cpu_per_s: float | None = 0.05, slots: int = 2, **kinds: Any) -> ImportedPool:
    answers = cluster(*rows(0.0, **kinds)) | {"/taskmanagers": {"taskmanagers": [taskmanager(slots=slots)]}}
    return import_picture(picture := read_flink(answers, NOW_MS / 1000), {JOB: sampled(picture, cpu_per_s, **kinds)})


def sampled(picture: EnginePicture, cpu_per_s: float | None, **kinds: Any) -> JobSample:
    cpu = [None if cpu_per_s is None else cpu_per_s * 5.0 * i for i in range(13)]
    return sample_job(picture.jobs[0], [poll(5.0 * i, *rows(5.0 * i, **kinds), cpu_s=cpu[i]) for i in range(13)])


def test_the_body_and_its_placement_are_a_deployment() -> None:
    pool = imported()
    query = pool.queries[0]
    document = pool.to_deployment({"orders.clicks": [100.0] * 10}, 1.0)
    deployment = Deployment.parse(document)
    assert [operator.id for operator in deployment.operators] == ["clicks", "enrich", "out", "out-2"]
    assert query.vertices == {"clicks": "v1", "enrich": "v2", "out": "v3", "out-2": "v4"}
    assert query.sources == {"orders.clicks": "v1"}
    enrich = query.body["operators"][1]
    assert enrich["inputs"][0]["cycles_per_event"] == pytest.approx(0.004 * SERVER_CPS)
    assert enrich["evidence"]["kind"] == "measured" and enrich["evidence"]["events"] == pytest.approx(6000)
    assert query.body["operators"][0]["bytes_per_event"] == pytest.approx(50.0)
    assert query.body["operators"][0]["buffer_timeout_s"] == 0.1


def test_what_leaves_over_two_exchanges_is_counted_for_each_of_them() -> None:
    """Flink's count of an operator's outputs is over all its exchanges; each reader of two takes half of it."""
    entry = imported().queries[0].body["operators"][1]["inputs"][0]
    assert entry["selectivity"] == pytest.approx(0.5)
    assert entry["batches"][0]["outputs"] / entry["batches"][0]["events"] == pytest.approx(0.5)


def test_names_are_the_same_after_a_redeploy_with_other_numbers_and_ids() -> None:
    before = imported().queries[0]
    answers = cluster(*rows(0.0))
    answers[f"/jobs/{JOB}"]["vertices"][0]["name"] = "Source: clicks[44]"
    after = import_picture(read_flink(answers, NOW_MS / 1000), {}).queries[0]
    assert [row["id"] for row in after.body["operators"]] == [row["id"] for row in before.body["operators"]]


def test_a_known_name_of_a_query_is_kept_and_equal_names_are_numbered() -> None:
    picture = read_flink(cluster(*rows(0.0)), NOW_MS / 1000)
    twin = replace(picture.jobs[0], id="b" * 32)
    both = import_picture(replace(picture, jobs=(picture.jobs[0], twin)), {})
    assert [query.name for query in both.queries] == ["orders", "orders-2"]
    known = import_picture(replace(picture, jobs=(picture.jobs[0], twin)), {}, names={"b" * 32: "orders"})
    assert [query.name for query in known.queries] == ["orders-2", "orders"]


def test_threads_that_wait_are_servers_of_their_own_and_free_slots_have_one_each() -> None:
    pool = imported(cpu_per_s=0.05)
    assert [finding.code for finding in pool.findings] == ["threads_are_servers", "memory_of_state"]
    assert pool.nodes[0].cores == 4 + 1
    assert [pool.queries[0].placement[name][0]["core"] for name in ("clicks", "enrich", "out", "out-2")] == [0, 1, 2, 3]


@pytest.mark.parametrize(("cpu_per_s", "level"), [(0.4, "found"), (None, "assumed")])
def test_threads_of_a_slot_share_a_server_where_they_compute_or_nothing_tells(
    cpu_per_s: float | None, level: str
) -> None:
    pool = imported(cpu_per_s=cpu_per_s)
    assert [(f.code, f.level) for f in pool.findings if f.code != "memory_of_state"] == [("slots_are_servers", level)]
    assert pool.nodes[0].cores == 2
    assert {part["core"] for parts in pool.queries[0].placement.values() for part in parts} == {0}


def test_threads_that_wait_for_the_cores_of_a_full_host_share_them() -> None:
    """Busy for wall time and hardly computing each, while together they take all there is: they wait for a core."""
    picture = read_flink(cluster(*rows(0.0)), NOW_MS / 1000)
    sample = sampled(picture, 0.05)
    full = replace(sample, cpu_cores={"tm1": 1.7}, busy_threads={"tm1": 10.0})
    pool = import_picture(picture, {JOB: full})
    assert pool.nodes[0].cores == 2
    assert {part["core"] for parts in pool.queries[0].placement.values() for part in parts} == {0}
    finding = next(finding for finding in pool.findings if finding.code == "slots_are_servers")
    assert "wait for a core" in str(finding.message)


def test_cores_that_another_taskmanager_of_the_host_uses_count_as_used() -> None:
    rows_ = [taskmanager(name, slots=2, totalResource={"cpuCores": 2.0}) for name in ("tm1", "tm2")]
    rows_ = [row | {"hardware": {"cpuCores": 4}} for row in rows_]
    picture = read_flink(cluster(*rows(0.0)) | {"/taskmanagers": {"taskmanagers": rows_}}, NOW_MS / 1000)
    sample = replace(sampled(picture, 0.05), busy_threads={"tm1": 3.0})
    assert import_picture(picture, {JOB: replace(sample, cpu_cores={"tm1": 0.2})}).nodes[0].cores == 5
    full = replace(sample, cpu_cores={"tm1": 0.2, "tm2": 3.2})
    assert import_picture(picture, {JOB: full}).nodes[0].cores == 2


def test_statistics_of_a_minute_are_rough_until_they_cover_five() -> None:
    pool = imported()
    assert {row["measured_s"] for row in pool.queries[0].body["operators"]} == {60.0}
    picture = read_flink(cluster(*rows(0.0)), NOW_MS / 1000)
    polls = [poll(10.0 * i, *rows(10.0 * i)) for i in range(32)]
    sample = sample_job(picture.jobs[0], polls)
    assert "measured_over" in {finding.code for finding in sample.findings}
    assert all("measured_s" not in row for row in import_picture(picture, {JOB: sample}).queries[0].body["operators"])


def test_costs_of_contended_hosts_say_in_steps_what_a_quiet_one_may_leave() -> None:
    picture = read_flink(cluster(*rows(0.0)), NOW_MS / 1000)
    sample = sampled(picture, 0.05)
    operators = {id_: replace(own, quiet_share=0.53 if id_ == "v2" else 1.0) for id_, own in sample.operators.items()}
    pool = import_picture(picture, {JOB: replace(sample, operators=operators)})
    running = Deployment.parse(pool.to_deployment({name: [1.0] for name in pool.queries[0].sources}, 1.0))
    assert [operator.quiet_share for operator in running.operators][:2] == [None, 0.5]


def test_servers_of_slots_are_no_more_than_cores_and_no_more_than_slots() -> None:
    assert imported(cpu_per_s=None, slots=8).nodes[0].cores == 2
    assert imported(cpu_per_s=None, slots=1).nodes[0].cores == 1


@pytest.mark.parametrize(("cpu_per_s", "capacity_cps"), [(None, 0.5e9), (0.4, 0.5e9), (0.02, 1e9)])
def test_quota_below_a_core_is_what_computing_threads_have(cpu_per_s: float | None, capacity_cps: float) -> None:
    quota = taskmanager(totalResource={"cpuCores": 0.5}, hardware={"cpuCores": 1})
    picture = read_flink(cluster(*rows(0.0)) | {"/taskmanagers": {"taskmanagers": [quota]}}, NOW_MS / 1000)
    pool = import_picture(picture, {JOB: sampled(picture, cpu_per_s)})
    assert pool.nodes[0].capacity_cps == capacity_cps and pool.nodes[0].quota_cps == 0.5e9
    nodes: Any = pool.to_deployment({}, 1.0)["nodes"]
    assert nodes[0]["capacity_cps"] == capacity_cps


@pytest.mark.parametrize(("cores", "servers", "each_cps"), [(0.5, 1, 0.5e9), (2.0, 2, 1e9), (16.0, 8, 1e9)])
def test_free_slots_of_an_idle_place_are_no_more_servers_than_cores(
    cores: float, servers: int, each_cps: float
) -> None:
    idle = taskmanager(totalResource={"cpuCores": cores}, hardware={"cpuCores": 16}, slotsNumber=8, freeSlots=8)
    picture = read_flink(cluster(*rows(0.0)) | {"/taskmanagers": {"taskmanagers": [idle]}}, NOW_MS / 1000)
    picture = replace(picture, jobs=(), places=tuple(replace(p, cores=cores, slots=8) for p in picture.places))
    (node,) = import_picture(picture, {}).nodes
    assert (node.cores, node.capacity_cps) == (servers, each_cps)


def test_subtasks_are_replicas_with_the_shares_that_they_took() -> None:
    picture = read_flink(cluster(*rows(0.0, parallelism=2)), NOW_MS / 1000)
    sample = sampled(picture, 0.05, parallelism=2)
    skewed = replace(sample.operators["v2"], shares=(0.25, 0.75))
    pool = import_picture(picture, {JOB: replace(sample, operators={**sample.operators, "v2": skewed})})
    assert [part["fraction"] for part in pool.queries[0].placement["enrich"]] == pytest.approx([0.25, 0.75])
    assert len({part["core"] for part in pool.queries[0].placement["enrich"]}) == 2
    Deployment.parse(pool.to_deployment({"orders.clicks": [100.0] * 4}, 1.0))


def test_a_source_that_hides_its_cost_has_none_and_nothing_stands_in() -> None:
    pool = imported(legacy=True)
    row: Any = pool.queries[0].body["operators"][0]
    assert row["evidence"]["kind"] == "unknown" and row["evidence"]["events"] > 0
    assert "cycles_per_event" not in row["inputs"][0]
    deployment = Deployment.parse(pool.to_deployment({"orders.clicks": [100.0] * 10}, 1.0))
    assert deployment.operators[0].is_cost_unknown
    assert deployment.operators[0].inputs[0].cycles_per_event < 1.0


def test_a_job_without_statistics_has_operators_of_unknown_cost() -> None:
    query = import_picture(read_flink(cluster(*rows(0.0)), NOW_MS / 1000), {}).queries[0]
    assert all("cycles_per_event" not in row["inputs"][0] for row in query.body["operators"])
    assert {row["evidence"]["kind"] for row in query.body["operators"]} == {"unknown"}
    assert "selectivity_unknown" in {finding.code for finding in query.findings}
    doubts = {row["id"]: row.get("unread") for row in query.body["operators"]}
    assert doubts == {"clicks": [UNCOUNTED], "enrich": [UNCOUNTED], "out": None, "out-2": None}


def test_an_operator_without_a_place_has_no_node() -> None:
    answers = cluster(*rows(0.0))
    del answers[f"/jobs/{JOB}/vertices/v2"]
    query = import_picture(read_flink(answers, NOW_MS / 1000), {}).queries[0]
    assert query.placement["enrich"] == [] and query.placement["clicks"] != []


def test_windows_go_into_the_body() -> None:
    name = "Window(TumblingEventTimeWindows(5000), EventTimeTrigger, Sum)"
    answers = cluster(vertex("v1", "Source: clicks"), vertex("v2", name, "v1"))
    body = import_picture(read_flink(answers, NOW_MS / 1000), {}).queries[0].body
    assert body["operators"][1]["window"] == {
        "policy": "time",
        "type": "tumbling",
        "size": 5.0,
        "watermark_delay_s": 0.2,
    }


def test_inputs_of_a_join_are_taken_to_be_alike_and_said_so() -> None:
    def joined(second: float) -> tuple[dict[str, Any], ...]:
        events = 100 * second
        sources = [vertex(f"v{i}", f"Source: s{i}", written=events, busy=events, idle=900 * second) for i in (1, 2)]
        return *sources, vertex("v3", "Join[3]", "v1", "v2", read=2 * events, busy=events, idle=900 * second)

    picture = read_flink(cluster(*joined(0.0)), NOW_MS / 1000)
    sample = sample_job(picture.jobs[0], [poll(5.0 * i, *joined(5.0 * i)) for i in range(4)])
    query = import_picture(picture, {JOB: sample}).queries[0]
    assert [entry["from"] for entry in query.body["operators"][2]["inputs"]] == ["s1", "s2"]
    assert "inputs_alike" in {finding.code for finding in query.findings}


def test_a_broadcast_reaches_every_subtask() -> None:
    def sent(second: float) -> tuple[dict[str, Any], ...]:
        events = 100 * second
        return (
            vertex("v1", "Source: rules", written=events, busy=events, idle=900 * second),
            vertex("v2", "apply", ("v1", "BROADCAST"), parallelism=3, read=3 * events, busy=events, idle=2900 * second),
        )

    picture = read_flink(cluster(*sent(0.0)), NOW_MS / 1000)
    sample = sample_job(picture.jobs[0], [poll(5.0 * i, *sent(5.0 * i)) for i in range(4)])
    body = import_picture(picture, {JOB: sample}).queries[0].body
    assert body["operators"][0]["inputs"][0]["selectivity"] == pytest.approx(3.0)


def test_sampled_arrivals_say_by_what_width_they_are_known() -> None:
    pool = imported()
    counts = ArrivalCounts("v1", 10.0, 1.0, (4.0,) * 30, 15.0, "written")
    document: Any = pool.to_deployment({"orders.clicks": counts}, 2.0, quiet_s=4.0)
    source = document["sources"][0]
    assert source["arrivals"] == [8.0] * 15 + [0.0] * 2
    assert source["arrivals_step_s"] == 16.0
    Deployment.parse(document)
