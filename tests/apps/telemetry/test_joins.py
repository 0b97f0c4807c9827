"""Queries that join two streams go live: agents are told both, records of both are taken in, neither source may go."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from rest_framework.test import APIClient

from agent.config import AgentConfig
from agent.wire import FrameKind, batch_bytes, broker, decode_frames
from apps.core.errors import Conflict, Impossible
from apps.fleet.models import Cluster
from apps.measurements.models import OperatorStatistic
from apps.measurements.selectors import plan_operators
from apps.measurements.statistics import statistics_inherit
from apps.queries.models import OperatorInput, Query
from apps.telemetry.configs import agent_config, stream_plan
from apps.telemetry.live_services import live_start, live_stop
from apps.telemetry.models import Agent, TelemetrySource
from apps.telemetry.sources import source_delete, source_upsert
from apps.telemetry.streams import stream_client
from engine.dataflow import Pipeline
from tests.apps.domain import make_arrivals, make_cluster, make_query, start
from tests.apps.telemetry.test_producers import PATH
from tests.apps.telemetry.world import COLUMNS, SOURCE, client_of, enrolled, frame, live_at, mark, post

pytestmark = pytest.mark.django_db

JOIN = {"op": "join", "stream": "replies", "on": {"src_ip": "dst_ip"}, "take": {"back_us": "rtt_us"}, "within": "agent"}
COUNT = {"op": "aggregate", "by": ["src_ip"], "compute": {"n": "count(*)", "back": "avg(back_us)"}}


def body(join: dict[str, Any] = JOIN, *, reads: tuple[str, ...] = ("window", "replies")) -> dict[str, Any]:
    """A window, a join that reads the window's records and another source, and an aggregate."""

    def operator(name: str, expression: dict[str, Any], *inputs: str) -> dict[str, Any]:
        statistics = {"selectivity": 0.5, "cycles_per_event": 1_000}
        entries = [{"from": source, **statistics} for source in inputs]
        return {"id": name, "kind": expression["op"], "expression": expression, "inputs": entries}

    window = operator("window", {"op": "window", "size_s": 10}, "probes")
    return {"operators": [window, operator("match", join, *reads), operator("count", COUNT, "match")]}


def two_sources(kind: dict[str, Any] = SOURCE, other: dict[str, Any] = SOURCE) -> Cluster:
    cluster = make_cluster()
    source_upsert(cluster=cluster, source_id="probes", **kind)
    source_upsert(cluster=cluster, source_id="replies", **other)
    for name in ("probes", "replies"):
        make_arrivals(cluster, name)
    return cluster


def joining(cluster: Cluster | None = None, **more: Any) -> Query:
    return start(make_query(cluster or two_sources(), "s2s", body=body(**more)))


def refusals(query: Query) -> dict[str, str]:
    with pytest.raises(Impossible) as caught:
        live_at(query)
    return {fault.path: fault.message for fault in caught.value.faults}


def test_needed_columns_and_time_come_from_the_other_source() -> None:
    live, _ = live_at(joining())
    pipeline = Pipeline.parse(live.pipeline)
    assert pipeline.streams == ("probes", "replies") and (live.source.source_id, str(live.joined)) == pipeline.streams
    assert live.source_operators == 1
    assert pipeline.other_schema.names == ["dst_ip", "rtt_us", "ts"]
    assert live.pipeline["operators"][1]["expression"]["time"] == "ts"


def test_joined_source_may_be_the_first_input() -> None:
    live, _ = live_at(joining(reads=("replies", "window")))
    assert live.source.source_id == "probes"
    again = start(
        make_query(live.query.cluster, "self", body=body({**JOIN, "stream": "probes"}, reads=("window", "probes")))
    )
    own = live_start(query=again, agents=list(Agent.objects.all()))
    assert (own.source, own.joined) == (live.source, live.source)


def test_config_of_an_agent_holds_both_sources() -> None:
    live, (joined,) = live_at(joining())
    document = agent_config(joined.agent)
    assert sorted(document["sources"]) == ["probes", "replies"]
    config = AgentConfig.parse(document)
    assert config.queries[0].pipeline.streams == ("probes", "replies")
    assert stream_plan()["queries"][0]["pipeline"] == live.pipeline


@pytest.mark.parametrize(
    ("change", "path", "says"),
    [
        (
            {"join": {**JOIN, "stream": "acks"}, "reads": ("window", "acks")},
            "match",
            "no agent collects; allowed: probes",
        ),
        ({"reads": ("window",)}, "match", "does not read it; allowed: a second input from 'replies'"),
        ({"join": {**JOIN, "time": "at"}}, "match", "for the time of the stream 'replies'; allowed: ts"),
        ({"join": {**JOIN, "columns": {"rtt_us": "string"}}}, "match", "rtt_us of the stream 'replies' as string"),
        ({"join": {**JOIN, "take": {"x": "rtt"}}}, "operators[1].expression.take", "did you mean 'rtt_us'?"),
        ({"join": {"op": "filter", "where": "true"}}, "match", "has 2 inputs; allowed: one"),
    ],
)
def test_invalid_join_is_refused_with_what_is_allowed(change: dict[str, Any], path: str, says: str) -> None:
    cluster = two_sources()
    make_arrivals(cluster, "acks")
    assert says in refusals(joining(cluster, **change))[path]


def test_producer_stream_joins_only_another_producer_stream() -> None:
    programs = {"kind": "producer", "time": "ts", "columns": COLUMNS}
    cluster = two_sources(other=programs)
    assert "both collected by agents, or both sent by programs" in refusals(joining(cluster))["match"]


def test_producers_send_both_streams(api: APIClient) -> None:
    programs = {"kind": "producer", "time": "ts", "columns": COLUMNS}
    live = live_start(query=joining(cluster := two_sources(programs, programs)), agents=[enrolled(cluster).agent])
    pipeline = Pipeline.parse(live.pipeline)
    headers = {"X-Sluice-Producer": "shop", "X-Sluice-Sequence": "1", "X-Sluice-Watermark": "1700000000000000"}
    data = batch_bytes(pipeline.other_schema.empty_table())
    kind = "application/vnd.apache.arrow.stream"
    answer = api.post(PATH.format("replies"), data, content_type=kind, headers=headers)
    assert answer.status_code == 200, answer.json()
    agent = str(Agent.objects.get(name="shop").pk)
    entries = broker.read_entries(stream_client(), broker.partition_of(agent))
    sent = next(decode_frames(entries[0].data))[0]
    assert (sent.kind, sent.entry) == (FrameKind.RECORDS, pipeline.other_entry)
    refused = api.post(PATH.format("nothing"), data, content_type=kind, headers=headers)
    assert refused.json()["faults"][0]["message"] == "operator is 'nothing'; allowed: window, match, replies"


def test_records_of_both_streams_are_accepted_and_partial_aggregates_refused() -> None:
    live, (joined,) = live_at(joining())
    client, other = client_of(joined), Pipeline.parse(live.pipeline).other_entry
    taken = post(client, frame(live, joined, 1), frame(live, joined, 2, entry=1), frame(live, joined, 3, entry=other))
    assert taken.status_code == 200, taken.json()
    assert post(client, mark(live, joined, 4)).status_code == 200
    wrong = frame(live, joined, 5, entry=other, body=batch_bytes(pa.table({"ts": [1]})))
    assert "is missing" in post(client, wrong).json()["detail"]
    behind = frame(live, joined, 5, entry=2, body=wrong.body)
    assert "where no records" in post(client, behind).json()["detail"]
    sent = frame(live, joined, 5, kind=FrameKind.PARTIALS, entry=2, body=wrong.body)
    assert "where no partials" in post(client, sent).json()["detail"]


def test_source_of_a_join_cannot_be_deleted_or_changed(api: APIClient) -> None:
    live, _ = live_at(joining())
    replies = TelemetrySource.objects.get(source_id="replies")
    with pytest.raises(Conflict, match="s2s read it"):
        source_upsert(cluster=replies.cluster, source_id="replies", columns={"ts": "timestamp"})
    listed = api.get("/api/v1/telemetry-sources?cluster=eu-1").json()["results"]
    assert [row["reader_count"] for row in listed] == [1, 1]
    live_stop(live=live)
    with pytest.raises(Conflict, match="is read by s2s"):
        source_delete(source=replies)


def test_rest_shows_the_joined_stream_and_where_the_join_runs(api: APIClient) -> None:
    live, _ = live_at(joining())
    assert api.get(f"/api/v1/live-queries/{live.pk}").json()["joined"] == "replies"
    found = api.get("/api/v1/live-queries/check?cluster=eu-1&query=s2s").json()
    assert (found["executable"], found["source"], found["joined"]) == (True, "probes", "replies")
    window, match, count = found["operators"]
    assert (window["allowed"], match["allowed"], match["rule"], count["rule"]) == (True, False, 3, None)
    assert "no agent holds records back" in match["reason"]


def test_statistics_of_a_join_cover_both_inputs() -> None:
    live, _ = live_at(joining())
    (operator,) = [plan_operator for plan_operator in plan_operators(live) if plan_operator.name == "match"]
    batches = [{"events": 100, "outputs": 40, "cycles": 5e5}] * 12
    facts = {"selectivity": 0.4, "cycles_per_event": 5e3, "whole": 12, "extrapolated": 0, "missing": 0, "ready": True}
    OperatorStatistic.objects.create(
        query=live.query, operator="match", fingerprint=operator.fingerprint, events=1200, units=12, batches=batches,
        first_at=live.started_at, last_at=live.started_at, **facts,
    )  # fmt: skip
    assert statistics_inherit(version=live.version, operators=[operator]) == 2
    found = OperatorInput.objects.filter(operator__name="match")
    assert [(statistic.selectivity, statistic.events) for statistic in found] == [(0.4, 1200)] * 2
