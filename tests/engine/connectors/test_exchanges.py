"""Records over exchanges are those that readers count; what counters leave open is a range whose larger end counts.

Jobs have the shapes of public benchmark queries: a window read by an aggregate and a join (hot items), a source read by
a chained local aggregate and a join (highest bid), a source whose branches carry different rows (new users).
"""

from __future__ import annotations

from typing import Any

import pytest

from engine.connectors.document import ImportedPool, import_picture
from engine.connectors.flink import read_flink
from engine.connectors.picture import JobSample
from engine.connectors.statistics import sample_job
from engine.document.deployment import Deployment
from tests.engine.connectors.flink_answers import JOB, NOW_MS, cluster, poll, vertex

#: id, name, (upstream, strategy)…, events/s taken, events/s that leave over all exchanges
Row = tuple[str, str, tuple[Any, ...], float, float]


def answers_at(rows: tuple[Row, ...], second: float) -> tuple[dict[str, Any], ...]:
    return tuple(
        vertex(
            id_, name, *inputs, read=taken * second, written=written * second, busy=100 * second, idle=900 * second
        )
        for id_, name, inputs, taken, written in rows
    )  # fmt: skip


def sampled(rows: tuple[Row, ...]) -> tuple[ImportedPool, JobSample]:
    picture = read_flink(cluster(*answers_at(rows, 0.0)), NOW_MS / 1000)
    sample = sample_job(picture.jobs[0], [poll(5.0 * i, *answers_at(rows, 5.0 * i)) for i in range(13)])
    return import_picture(picture, {JOB: sample}), sample


def carried(rows: tuple[Row, ...], arrivals: float) -> dict[tuple[str, str], float]:
    """Events/s that each input of the imported document lets through: those whose cost is counted, by its part."""
    pool, sample = sampled(rows)
    operators = pool.queries[0].body["operators"]
    names, ids = pool.queries[0].vertices, [row[0] for row in rows]
    streams = dict.fromkeys(pool.queries[0].sources, arrivals)
    loads = {}
    for operator in operators:
        cost_ns = (sample.operators[names[operator["id"]]].cost_s or 0.0) * 1e9
        put_out = 0.0
        for entry in operator["inputs"]:
            rate = streams[entry["from"]]
            put_out += rate * entry["selectivity"]
            if entry["from"] in names:
                key = names[entry["from"]], names[operator["id"]]
                loads[key] = loads.get(key, 0.0) + rate * entry["cycles_per_event"] / cost_ns
        streams[operator["id"]] = put_out
    assert set(ids) == set(names.values())
    Deployment.parse(pool.to_deployment(dict.fromkeys(pool.queries[0].sources, [arrivals] * 10), 1.0))
    return loads


def hot_items(*, counted: str) -> tuple[Row, ...]:
    """A window of 40 rows/s into an aggregate and a join; counted over both exchanges together, or once."""
    out = {"together": 80.0, "once": 40.0}[counted]
    return (
        ("v1", "Source: bids[1] -> LocalWindowAggregate[3]", (), 0.0, 1000.0),
        ("v2", "GlobalWindowAggregate[5] -> Calc[6]", (("v1", "HASH"),), 1000.0, out),
        ("v3", "GlobalWindowAggregate[9] -> Calc[10]", (("v2", "HASH"),), 40.0, 2.0),
        ("v4", "WindowJoin[12] -> Calc[13] -> out[14]: Writer", (("v2", "HASH"), ("v3", "HASH")), 42.0, 0.0),
    )


@pytest.mark.parametrize("counted", ["together", "once"])
def test_readers_of_a_window_that_both_get_all_of_it_are_given_all_of_it(counted: str) -> None:
    loads = carried(hot_items(counted=counted), 1000.0)
    assert loads == pytest.approx({("v1", "v2"): 1000.0, ("v2", "v3"): 40.0, ("v2", "v4"): 40.0, ("v3", "v4"): 2.0})


def test_branches_of_a_source_that_carry_different_rows_are_as_their_readers_count_them() -> None:
    """A local aggregate chained to the source sends a row a second, the other branch every event to the join."""
    rows: tuple[Row, ...] = (
        ("v1", "Source: bids[1] -> (LocalWindowAggregate[3], Calc[4])", (), 0.0, 1001.0),
        ("v2", "GlobalWindowAggregate[5] -> Calc[6]", (("v1", "HASH"),), 1.0, 0.1),
        ("v3", "Join[8] -> out[9]: Writer", (("v1", "HASH"), ("v2", "HASH")), 1000.1, 0.0),
    )
    loads = carried(rows, 1001.0)
    assert loads == pytest.approx({("v1", "v2"): 1.0, ("v1", "v3"): 1000.0, ("v2", "v3"): 0.1})


def test_two_local_aggregates_of_one_source_reach_their_own_windows() -> None:
    rows: tuple[Row, ...] = (
        ("v1", "Source: events[1] -> (LocalWindowAggregate[3], LocalWindowAggregate[4])", (), 0.0, 40.0),
        ("v2", "GlobalWindowAggregate[5]", (("v1", "HASH"),), 10.0, 9.0),
        ("v3", "GlobalWindowAggregate[6]", (("v1", "HASH"),), 30.0, 25.0),
        ("v4", "WindowJoin[8] -> out[9]: Writer", (("v2", "HASH"), ("v3", "HASH")), 34.0, 0.0),
    )
    loads = carried(rows, 40.0)
    assert loads == pytest.approx({("v1", "v2"): 10.0, ("v1", "v3"): 30.0, ("v2", "v4"): 9.0, ("v3", "v4"): 25.0})


def crossed(*others: Row) -> tuple[Row, ...]:
    """Two sources that are both read by the same two joins: no counter tells whose rows are whose."""
    return (
        ("v1", "Source: a", (), 0.0, 300.0),
        ("v2", "Source: b", (), 0.0, 100.0),
        ("v3", "Join[3] -> out[5]: Writer", (("v1", "HASH"), ("v2", "HASH")), 150.0, 0.0),
        ("v4", "Join[4] -> out[6]: Writer", (("v1", "HASH"), ("v2", "HASH")), 250.0, 0.0),
        *others,
    )


def test_rows_that_cannot_be_told_apart_are_a_range_and_the_larger_end_counts() -> None:
    _, sample = sampled(crossed())
    flow = next(flow for flow in sample.flows if (flow.upstream, flow.reader) == ("v1", "v3"))
    assert (flow.least, flow.most) == pytest.approx((50.0, 150.0))
    finding = next(finding for finding in sample.findings if finding.code == "exchange_open")
    assert finding.level == "assumed" and "50.0 to 150.0 events/s" in str(finding.message)
    loads = carried(crossed(), 300.0)
    assert loads["v1", "v3"] >= 150.0 - 1e-6 and loads["v1", "v4"] >= 250.0 - 1e-6


def test_count_over_all_exchanges_narrows_what_is_open_where_another_vertex_shows_it() -> None:
    """A third source with two plain readers counts both exchanges together, so this version of the engine does."""
    shown: tuple[Row, ...] = (
        ("v5", "Source: c", (), 0.0, 20.0),
        ("v6", "out[7]: Writer", (("v5", "HASH"),), 10.0, 0.0),
        ("v7", "out[8]: Writer", (("v5", "HASH"),), 10.0, 0.0),
    )
    _, alone = sampled(crossed())
    _, beside = sampled(crossed(*shown))
    width = {
        name: sum(flow.most - flow.least for flow in sample.flows) for name, sample in (("a", alone), ("b", beside))
    }
    assert width["b"] <= width["a"]
    flow = next(flow for flow in beside.flows if (flow.upstream, flow.reader) == ("v1", "v4"))
    assert (flow.least, flow.most) == pytest.approx((150.0, 250.0))


def test_reader_that_counted_nothing_yet_is_given_everything() -> None:
    rows: tuple[Row, ...] = (
        ("v1", "Source: bids[1]", (), 0.0, 200.0),
        ("v2", "GlobalWindowAggregate[5]", (("v1", "HASH"),), 100.0, 3.0),
        ("v3", "late[6]", (("v1", "HASH"),), 0.0, 0.0),
    )
    _, sample = sampled(rows)
    flow = next(flow for flow in sample.flows if flow.reader == "v3")
    assert flow.most == pytest.approx(200.0)


def test_join_of_a_stream_with_itself_takes_what_it_counts() -> None:
    rows: tuple[Row, ...] = (
        ("v1", "Source: auctions", (), 0.0, 200.0),
        ("v2", "Join[3] -> out[4]: Writer", (("v1", "HASH"), ("v1", "HASH")), 200.0, 0.0),
    )
    assert carried(rows, 200.0)["v1", "v2"] == pytest.approx(200.0)


def test_bursts_of_a_window_are_no_higher_rate_of_its_readers() -> None:
    """Readers of a window see nothing for most of the time: their rate is over all of it, as the writer's is."""

    def at(second: float) -> tuple[dict[str, Any], ...]:
        closed = 400.0 * (second // 10)
        return (
            vertex("v1", "Source: bids", written=100 * second, busy=100 * second, idle=900 * second),
            vertex(
                "v2", "GlobalWindowAggregate[5]", "v1", read=100 * second, written=2 * closed, busy=100 * second,
                idle=900 * second,
            ),
            vertex("v3", "GlobalWindowAggregate[9]", "v2", read=closed, written=closed / 40, busy=0.1 * closed,
                   idle=1000 * second - 0.1 * closed),
            vertex("v4", "WindowJoin[12] -> out[13]: Writer", "v2", "v3", read=closed + closed / 40, busy=0.1 * closed,
                   idle=1000 * second - 0.1 * closed),
        )  # fmt: skip

    picture = read_flink(cluster(*at(0.0)), NOW_MS / 1000)
    sample = sample_job(picture.jobs[0], [poll(2.0 * i, *at(2.0 * i)) for i in range(61)])
    flows = {(flow.upstream, flow.reader): flow for flow in sample.flows}
    assert flows["v2", "v3"].most == pytest.approx(flows["v2", "v4"].most, rel=0.05)
    entry = import_picture(picture, {JOB: sample}).queries[0].body["operators"][1]["inputs"][0]
    assert entry["selectivity"] == pytest.approx(0.4, rel=0.1)
