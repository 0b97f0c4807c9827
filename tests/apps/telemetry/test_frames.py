"""Frames of agents: accepted once and in order, refused by name, never an error of the server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
import redis
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from agent.wire import (
    SWEEPS,
    Frame,
    FrameKind,
    batch_bytes,
    broker,
    encode_frame,
    table_of,
    variation_extra,
)
from apps.fleet.services import cluster_update
from apps.telemetry import directory
from apps.telemetry.agent_services import Enrolled, agent_update
from apps.telemetry.frames import _note_running
from apps.telemetry.live_services import assignment_set, live_delete, live_start, live_stop
from apps.telemetry.models import Agent, LiveQuery, LiveState
from apps.telemetry.streams import stream_client
from tests.apps.telemetry.world import (
    client_of,
    counted,
    enrolled,
    frame,
    heartbeat,
    live_at,
    mark,
    partials,
    post,
    probing,
    records,
    running,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def live() -> tuple[LiveQuery, Enrolled, APIClient]:
    found, (joined,) = live_at(probing(), "a1")
    return found, joined, client_of(joined)


Given = tuple[LiveQuery, Enrolled, APIClient]


def in_redis(agent: Enrolled) -> list[tuple[int, str, int]]:
    entries = broker.read_entries(stream_client(), broker.partition_of(str(agent.agent.pk)), count=10_000)
    return [(entry.seq, entry.kind, entry.entry) for entry in entries]


def test_every_kind_of_frame_is_accepted(live: Given) -> None:
    query, agent, client = live
    frames = [
        frame(query, agent, 1),
        frame(query, agent, 2, entry=2),
        frame(query, agent, 3, kind=FrameKind.PARTIALS, entry=2, body=partials(query, 2)),
        mark(query, agent, 4),
        counted(agent, 5, (query.key, query.plan)),
    ]
    answer = post(client, *frames)
    assert (answer.status_code, answer.json()) == (200, {"accepted_seq": 5, "committed_seq": 0, "duplicates": 0})
    assert in_redis(agent) == [
        (1, "records", 0),
        (2, "records", 2),
        (3, "partials", 2),
        (4, "mark", 0),
        (5, "counters", 0),
    ]
    assert post(client, *frames).json() == {"accepted_seq": 5, "committed_seq": 0, "duplicates": 5}


def test_gap_names_the_expected_sequence_number(live: Given) -> None:
    query, agent, client = live
    answer = post(client, frame(query, agent, 2))
    assert (answer.status_code, answer.json()["code"], answer.json()["expected_seq"]) == (409, "gap", 1)


def test_full_stream_returns_when_to_retry(live: Given, settings: Any) -> None:
    query, agent, client = live
    settings.STREAM_MAX_BYTES = 5_000
    frames = [frame(query, agent, seq) for seq in range(1, 11)]
    answer = post(client, *frames)
    assert (answer.status_code, answer.json()["code"]) == (429, "full")
    assert int(answer["Retry-After"]) >= 1
    assert answer.json()["accepted_seq"] == len(in_redis(agent)) > 0


@pytest.mark.parametrize("cut", [1, 10, -1])
def test_truncated_bytes_are_refused(live: Given, cut: int) -> None:
    query, agent, client = live
    data = encode_frame(frame(query, agent, 1)) + encode_frame(frame(query, agent, 2))[:cut]
    answer = post(client, data)
    assert (answer.status_code, answer.json()["code"]) == (400, "corrupt")
    assert "frame 2" in answer.json()["detail"]
    assert not in_redis(agent)


def test_corrupted_frame_is_refused(live: Given) -> None:
    query, agent, client = live
    data = bytearray(encode_frame(frame(query, agent, 1)))
    data[-7] ^= 0x20
    answer = post(client, bytes(data))
    assert answer.status_code == 400
    assert "checksum" in answer.json()["detail"]
    assert post(client, b"").status_code == 400


def test_too_large_post_returns_413(live: Given) -> None:
    _, _, client = live
    answer = post(client, b"x" * (16 * 2**20 + 1))
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


def test_other_content_type_returns_415(live: Given) -> None:
    assert live[2].post("/api/v1/telemetry/batches", {}, format="json").status_code == 415


def told(answer: Any) -> tuple[int, str]:
    return answer.status_code, f"{answer.json()['faults'][0]['path']}: {answer.json()['faults'][0]['message']}"


def test_frame_of_another_agent_is_refused(live: Given) -> None:
    query, agent, client = live
    other = enrolled(query.query.cluster, "a2")
    status, why = told(post(client, frame(query, agent, 1), frame(query, other, 2)))
    assert status == 422
    assert why.startswith("frames[1].agent")
    assert str(other.agent.pk) in why
    assert not in_redis(agent)


def test_frame_of_a_query_without_assignment_is_refused(live: Given) -> None:
    query, agent, client = live
    other = enrolled(query.query.cluster, "a2")
    status, why = told(post(client_of(other), frame(query, other, 1)))
    assert (status, "'eu-1/s2s'" in why, "none is assigned" in why) == (422, True, True)
    status, why = told(post(client, replace(frame(query, agent, 1), query="eu-1/nothing")))
    assert (status, "allowed: eu-1/s2s" in why) == (422, True)
    status, why = told(post(client, replace(frame(query, agent, 1), plan="0" * 64)))
    assert (status, why.startswith("frames[0].plan")) == (422, True)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"entry": 3}, "frames[0].entry: entry is 3"),
        ({"entry": 1, "body": b""}, "no Arrow IPC stream"),
        ({"kind": FrameKind.PARTIALS, "entry": 1}, "no partials of 'eu-1/s2s' may enter"),
        ({"kind": FrameKind.RESULT}, "allowed: records, partials, checkpoint, mark, counters, sweeps"),
        ({"kind": FrameKind.MARK}, "frames[0].extra.watermarks"),
        ({"kind": FrameKind.MARK, "extra": {"watermarks": {"0": "soon"}}}, "frames[0].extra.watermarks"),
        (
            {"kind": FrameKind.MARK, "extra": {"watermarks": {"0": 1}, "closing_epoch_us": 2**60}},
            "frames[0].extra.closing_epoch_us",
        ),
        ({"life": "l 1"}, "frames[0].life"),
        ({"life": "l" * 65}, "frames[0].life"),
    ],
)
def test_invalid_frame_names_its_faults(live: Given, fields: dict[str, Any], words: str) -> None:
    query, agent, client = live
    made = frame(query, agent, 1, **{"body": records(query), **fields})
    status, why = told(post(client, made))
    assert status == 422
    assert words in why


def test_columns_must_match_the_entry_operator(live: Given) -> None:
    query, agent, client = live
    good = pa.ipc.open_stream(records(query)).read_all()
    at = good.schema.get_field_index("rtt_us")
    floats = good.set_column(at, "rtt_us", good["rtt_us"].cast(pa.float64()))
    wrong = {
        "the column 'rtt_us' is missing": good.drop_columns(["rtt_us"]),
        "the column 'rtt_us' is double; allowed: int64": floats,
        "the columns are": good.append_column("more", good["rtt_us"]),
    }
    for words, table in wrong.items():
        for _ in range(2):  # what was refused once is refused again
            status, why = told(post(client, frame(query, agent, 1, body=batch_bytes(table))))
            assert (status, words in why) == (422, True), why
    assert post(client, frame(query, agent, 1)).status_code == 200
    status, why = told(post(client, frame(query, agent, 2, entry=2, body=records(query, 0))))
    assert (status, "window_start" in why) == (422, True)


def test_sequence_numbers_of_a_post_must_be_consecutive(live: Given) -> None:
    query, agent, client = live
    status, why = told(post(client, frame(query, agent, 1), frame(query, agent, 3)))
    assert (status, why) == (422, "frames[1].seq: seq is 3 after 1; allowed: no gaps in a post")
    status, why = told(post(client, frame(query, agent, 1), frame(query, agent, 2, life="l2")))
    assert (status, why.startswith("frames[1].life")) == (422, True)


@pytest.mark.parametrize("secret", ["", "Bearer", "Bearer sla_wrong", "Basic sla_x", "Bearer slu_wrong"])
def test_wrong_secret_returns_401(live: Given, secret: str) -> None:
    query, agent, _ = live
    stranger = APIClient()
    stranger.credentials(**({"HTTP_AUTHORIZATION": secret} if secret else {}))
    answer = post(stranger, frame(query, agent, 1))
    assert answer.status_code == 401
    assert answer["WWW-Authenticate"].startswith("Bearer")


def test_token_of_a_person_is_refused(live: Given, api: APIClient) -> None:
    query, agent, _ = live
    assert post(api, frame(query, agent, 1)).status_code == 401
    assert heartbeat(api, agent).status_code == 401


def test_secret_of_an_agent_opens_no_other_endpoint(live: Given) -> None:
    for path in ("agents", "clusters", "live-queries", "stream-processor/plan"):
        assert live[2].get(f"/api/v1/{path}").status_code == 401, path


def test_disabled_or_deleted_agent_is_refused(live: Given) -> None:
    query, agent, client = live
    assert post(client, frame(query, agent, 1)).status_code == 200
    agent_update(agent=agent.agent, enabled=False)
    directory.forget_facts()  # what on_commit does outside of a test's transaction
    answer = post(client, frame(query, agent, 2))
    assert (answer.status_code, answer.json()["code"]) == (403, "agent_disabled")
    Agent.objects.all().delete()
    directory.forget_facts()
    answer = post(client, frame(query, agent, 2))
    assert (answer.status_code, answer.json()["code"]) == (401, "agent_unknown")


def test_frames_of_a_stopped_query_or_removed_assignment_are_accepted(live: Given) -> None:
    query, agent, client = live
    assignment_set(live=query, agent=agent.agent, enabled=False)
    assert post(client, frame(query, agent, 1)).status_code == 200
    live_stop(live=query)
    directory.forget_facts()
    assert post(client, frame(query, agent, 2)).status_code == 200
    late, later = frame(query, agent, 3), frame(query, agent, 4)
    live_delete(live=query)
    directory.forget_facts()
    assert post(client, late).status_code == 200
    live_start(query=query.query, agents=[enrolled(query.query.cluster, "a2").agent])
    directory.forget_facts()
    assert post(client, later).status_code == 200


def test_relay_sends_frames_of_all_agents_of_its_cluster(live: Given) -> None:
    query, *_ = live
    relay = enrolled(query.query.cluster, "relay", kind="relay")
    assert post(client_of(relay), frame(query, relay, 1)).status_code == 200
    other, _ = live_at(probing("other"), "b1")
    assert post(client_of(relay), frame(other, relay, 2)).status_code == 422


def test_relayed_frames_under_the_former_cluster_name_are_accepted(live: Given) -> None:
    query, *_ = live
    relay = enrolled(query.query.cluster, "relay", kind="relay")
    held = frame(query, relay, 1)
    cluster_update(cluster=query.query.cluster, slug="renamed")
    directory.forget_facts()
    assert post(client_of(relay), held).status_code == 200
    now = LiveQuery.objects.select_related("query__cluster").get(pk=query.pk)
    assert now.key.startswith("renamed/")
    assert post(client_of(relay), frame(now, relay, 2)).status_code == 200


def test_counters_of_a_query_without_assignment_are_refused(live: Given) -> None:
    query, agent, client = live
    mine = query.key, query.plan
    other, _ = live_at(probing("other"), "b1")
    for of, words in (
        ((other.key, other.plan), "frames[0].body.query: query is 'other/s2s'; allowed: eu-1/s2s"),
        ((query.key, "0" * 64), "frames[0].body.plan: plan is '0000"),
        ((query.key, None), "frames[0].body.plan: plan is ''"),
        ((None, query.plan), "frames[0].body.query: query is ''"),
    ):
        status, why = told(post(client, counted(agent, 1, mine, of)))
        assert (status, why.startswith(words)) == (422, True), why
    assert not in_redis(agent)
    assert post(client, counted(agent, 1, mine), counted(agent, 2)).status_code == 200


def test_counters_that_lack_a_column_are_refused(live: Given) -> None:
    query, agent, client = live
    today = counted(agent, 1, (query.key, query.plan))
    for name in ("records_queued", "records_overflow"):
        without = batch_bytes(table_of(today.body).drop_columns([name]))
        status, why = told(post(client, replace(today, body=without)))
        assert status == 422
        assert name in why


def test_counters_may_say_how_costs_vary_and_words_that_are_not_known_are_left_alone(live: Given) -> None:
    query, agent, client = live
    varied = variation_extra([[3.0] * 6, []], [[], []])
    known = counted(agent, 1, (query.key, query.plan), extra=varied)
    unknown = counted(agent, 2, (query.key, query.plan), extra={"variation": {"v": 99}, "of_tomorrow": [1]})
    assert post(client, known, unknown).status_code == 200
    wrong = {"variation": {"v": 1, "costs": [[-1.0] * 6], "arrivals": []}}
    status, why = told(post(client, counted(agent, 3, (query.key, query.plan), extra=wrong)))
    assert status == 422
    assert why.startswith("frames[0].extra.variation.costs[0]: variation.costs[0] is [-1.0"), why


def test_sweeps_are_accepted_like_counters(live: Given) -> None:
    query, agent, client = live
    row = {"query": query.key, "plan": query.plan, "stream": "probes", "deadline_us": 1_700_000_000_000_000}

    def swept(*rows: dict[str, Any]) -> Frame:
        body = batch_bytes(pa.Table.from_pylist(list(rows), schema=SWEEPS))
        return frame(query, agent, 1, kind=FrameKind.SWEEPS, query="", plan="", body=body)

    status, why = told(post(client, swept(row, row | {"query": "eu-1/other"})))
    assert (status, why.startswith("frames[0].body.query: query is 'eu-1/other'")) == (422, True), why
    status, why = told(post(client, replace(swept(row), body=counted(agent, 1, (query.key, query.plan)).body)))
    assert (status, why) == (422, "frames[0].body: the column 'stream' is missing; allowed: " + ", ".join(SWEEPS.names))
    assert post(client, swept(row)).status_code == 200


def test_unreadable_counters_are_refused(live: Given) -> None:
    query, agent, client = live
    whole = counted(agent, 1, (query.key, query.plan))
    wrong = whole.body.replace(query.key.encode(), b"\xff" * len(query.key))
    assert wrong != whole.body
    for body in (wrong, whole.body[:-300]):
        status, why = told(post(client, replace(whole, body=body)))
        assert (status, why.startswith("frames[0].body")) == (422, True), why


def test_counters_of_a_stopped_query_are_accepted(live: Given) -> None:
    query, agent, client = live
    of = query.key, query.plan
    live_stop(live=query)
    live_delete(live=query)
    directory.forget_facts()
    assert post(client, counted(agent, 1, of)).status_code == 200


def test_only_a_relay_is_authorised_for_agents_of_its_cluster(live: Given) -> None:
    query, agent, client = live
    of, child = (query.key, query.plan), str(agent.agent.pk)
    status, why = told(post(client, counted(agent, 1, of, extra={"origin": child})))
    assert (status, why) == (422, f"frames[0].extra.origin: origin is '{child}'; allowed: none, for 'a1' is no relay")
    relay = enrolled(query.query.cluster, "relay", kind="relay")
    other, (stranger,) = live_at(probing("other"), "b1")
    its = client_of(relay)
    for origin in (str(stranger.agent.pk), "stream", "", None, 7, child.upper(), [child]):
        status, why = told(post(its, counted(relay, 1, of, extra={"origin": origin})))
        assert (status, why.startswith("frames[0].extra.origin")) == (422, True), why
        assert why.endswith("allowed: the id of an agent of the cluster eu-1")
    status, why = told(post(its, counted(relay, 1, (other.key, other.plan), extra={"origin": child})))
    assert (status, why.startswith("frames[0].body.query")) == (422, True)
    assert post(its, counted(relay, 1, of, extra={"origin": child})).status_code == 200
    with CaptureQueriesContext(connection) as queries:
        assert post(its, counted(relay, 2, of, extra={"origin": child})).status_code == 200
    assert [captured_query["sql"] for captured_query in queries.captured_queries] == []
    agent.agent.delete()
    directory.forget_facts()
    assert post(its, counted(relay, 3, of, extra={"origin": child})).status_code == 200


def test_column_order_does_not_matter(live: Given) -> None:
    query, agent, client = live
    good = pa.ipc.open_stream(records(query)).read_all()
    turned = batch_bytes(good.select(good.column_names[::-1]))
    assert post(client, frame(query, agent, 1, body=turned)).status_code == 200


def test_new_assignment_authorises_at_once(live: Given) -> None:
    query, agent, client = live
    assert post(client, frame(query, agent, 1)).status_code == 200
    other = enrolled(query.query.cluster, "a2")
    its = client_of(other)
    assert post(its, frame(query, other, 1)).status_code == 422
    assignment_set(live=query, agent=other.agent)  # by another process: nothing is forgotten here
    directory._RETRY_S, before = 0.0, directory._RETRY_S
    try:
        assert post(its, frame(query, other, 1)).status_code == 200
    finally:
        directory._RETRY_S = before


def test_post_makes_no_sql_query(live: Given) -> None:
    query, agent, client = live
    of = query.key, query.plan
    assert post(client, frame(query, agent, 1), mark(query, agent, 2)).status_code == 200
    with CaptureQueriesContext(connection) as queries:
        assert post(client, frame(query, agent, 3), mark(query, agent, 4), counted(agent, 5, of)).status_code == 200
    assert [query["sql"] for query in queries.captured_queries] == []


def test_post_returns_503_without_redis_and_heartbeats_go_on(live: Given, settings: Any) -> None:
    query, agent, client = live
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    answer = post(client, frame(query, agent, 1))
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert int(answer["Retry-After"]) >= 1
    answer = heartbeat(client, agent)
    assert (answer.status_code, answer.json()["accepted_seq"]) == (200, None)


def test_post_returns_503_when_redis_is_full(live: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    query, agent, client = live

    def refuse(*_: Any) -> None:
        raise redis.ResponseError("MISCONF Errors writing to the AOF file: No space left on device")

    monkeypatch.setattr(broker, "run_script", refuse)
    assert post(client, frame(query, agent, 1)).status_code == 503


def test_sequence_continues_from_the_commit_after_redis_was_lost(live: Given) -> None:
    query, agent, client = live
    assert post(client, *(frame(query, agent, seq) for seq in range(1, 7))).json()["accepted_seq"] == 6
    broker.publish_committed(stream_client(), {(str(agent.agent.pk), "l1"): 4})
    answer = heartbeat(client, agent).json()
    assert (answer["accepted_seq"], answer["committed_seq"]) == (6, 4)
    directory.forget_facts()
    stream_client().flushdb()
    answer = post(client, frame(query, agent, 7))
    assert (answer.status_code, answer.json()["expected_seq"]) == (409, 5)
    answer = heartbeat(client, agent).json()
    assert (answer["accepted_seq"], answer["committed_seq"]) == (4, 4)
    assert post(client, *(frame(query, agent, seq) for seq in range(5, 8))).json()["accepted_seq"] == 7


def test_results_of_many_queries_note_them_running_with_as_many_statements_as_of_one(
    django_assert_num_queries: Any,
) -> None:
    first = probing()
    lives = [live_at(first)[0], *(live_at(running(first.cluster, name=f"q{i}"), f"b{i}")[0] for i in range(3))]
    with django_assert_num_queries(2):
        _note_running({lives[0].key})
    with django_assert_num_queries(2):
        _note_running({live.key for live in lives[1:3]})
    states = [LiveQuery.objects.get(pk=live.pk).state for live in lives]
    assert states == [LiveState.RUNNING] * 3 + [LiveState.STARTING]
    with django_assert_num_queries(3):
        _note_running({lives[0].key, "no-cluster/q", "no key"})
