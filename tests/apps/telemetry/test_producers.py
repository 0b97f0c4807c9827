"""Batches of producers, and reports of the stream processor."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from django.core.management import call_command
from rest_framework.test import APIClient

from agent.wire import Frame, FrameKind, batch_bytes, broker, decode_frames, encode_frame, table_of
from apps.accounts.models import Token
from apps.telemetry import frames as ingest_frames
from apps.telemetry.agent_services import agent_update
from apps.telemetry.configs import stream_plan
from apps.telemetry.live_services import assignment_set, live_start, live_stop
from apps.telemetry.models import Agent, LiveQuery
from apps.telemetry.sources import source_upsert
from apps.telemetry.streams import stream_client
from tests.apps.domain import make_arrivals, make_cluster, make_query, start
from tests.apps.telemetry.world import body, client_of, enrolled, live_at, probing

pytestmark = pytest.mark.django_db

PRODUCED = {"ts": "timestamp", "src_ip": "string", "dst_ip": "string", "rtt_us": "int64", "err_code": "int64"}
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
PATH = "/api/v1/streams/eu-1/s2s/{}/batches"


@pytest.fixture
def live() -> LiveQuery:
    """A query whose records a program sends; an agent must be named all the same, and does nothing."""
    cluster = make_cluster()
    source_upsert(cluster=cluster, source_id="probes", kind="producer", time="ts", columns=PRODUCED)
    make_arrivals(cluster, "probes")
    query = start(make_query(cluster, "s2s", body=body()))
    return live_start(query=query, agents=[enrolled(cluster).agent])


def table(rows: int = 2) -> pa.Table:
    return pa.table(
        {
            "dst_ip": pa.array(["10.0.0.2"] * rows),
            "err_code": pa.array([0] * rows, pa.int64()),
            "rtt_us": pa.array(range(rows), pa.int64()),
            "src_ip": pa.array(["10.0.0.1"] * rows),
            "ts": pa.array([MOMENT] * rows, pa.timestamp("us", "UTC")),
        }
    )


def produce(
    client: APIClient, sequence: object = 1, *, data: bytes | None = None, operator: str = "window", **headers: Any
) -> Any:
    names = {"X-Sluice-Producer": "shop", "X-Sluice-Sequence": str(sequence), "X-Sluice-Watermark": "1700000000000000"}
    given = {name: value for name, value in {**names, **headers}.items() if value is not None}
    data = batch_bytes(table()) if data is None else data
    return client.post(PATH.format(operator), data, content_type="application/vnd.apache.arrow.stream", headers=given)


def in_redis(name: str = "shop") -> list[Frame]:
    agent = str(Agent.objects.get(name=name).pk)
    entries = broker.read_entries(stream_client(), broker.partition_of(agent))
    return [next(decode_frames(entry.data))[0] for entry in entries if entry.agent == agent]


class TestProducers:
    def test_batch_becomes_a_records_frame_and_a_mark(self, live: LiveQuery, api: APIClient) -> None:
        answer = produce(api)
        assert (answer.status_code, answer.json()) == (200, {"accepted_sequence": 1, "duplicates": 0})
        records, mark = in_redis()
        assert (records.kind, records.seq, records.query, records.plan) == ("records", 1, "eu-1/s2s", live.plan)
        assert table_of(records.body).equals(table())
        assert (mark.kind, mark.seq) == ("mark", 2)
        assert mark.extra["watermarks"] == dict.fromkeys("0123", 1_700_000_000_000_000)
        producer = Agent.objects.get(name="shop")
        assert (producer.kind, producer.secret_hash) == ("producer", "")
        assert str(producer.pk) in stream_plan()["queries"][0]["agents"]

    def test_batches_are_accepted_once_and_in_order(self, live: LiveQuery, api: APIClient) -> None:
        assert [produce(api, n).status_code for n in (1, 2)] == [200, 200]
        assert produce(api, 2).json() == {"accepted_sequence": 2, "duplicates": 1}
        answer = produce(api, 4)
        assert (answer.status_code, answer.json()["code"], answer.json()["expected_sequence"]) == (409, "gap", 3)
        assert produce(api, 1, **{"X-Sluice-Life": "again"}).json()["duplicates"] == 0
        assert len(in_redis()) == 6

    def test_records_may_enter_at_a_later_operator(self, live: LiveQuery, api: APIClient) -> None:
        rows = table().append_column("window_start", pa.array([MOMENT] * 2, pa.timestamp("us", "UTC")))
        answer = produce(api, operator="rtt", data=batch_bytes(rows))
        assert answer.status_code == 200, answer.json()
        assert in_redis()[0].entry == 2

    @pytest.mark.parametrize(
        ("headers", "name"),
        [
            ({"X-Sluice-Producer": None}, "X-Sluice-Producer"),
            ({"X-Sluice-Sequence": None}, "X-Sluice-Sequence"),
            ({"X-Sluice-Sequence": "0"}, "X-Sluice-Sequence"),
            ({"X-Sluice-Sequence": "-1"}, "X-Sluice-Sequence"),
            ({"X-Sluice-Sequence": "9" * 40}, "X-Sluice-Sequence"),
            ({"X-Sluice-Watermark": "now"}, "X-Sluice-Watermark"),
            ({"X-Sluice-Life": "a b"}, "X-Sluice-Life"),
            ({"X-Sluice-Producer": "A B"}, "name"),
        ],
    )
    def test_invalid_headers_are_named(
        self, live: LiveQuery, api: APIClient, headers: dict[str, Any], name: str
    ) -> None:
        answer = produce(api, **headers)
        assert (answer.status_code, answer.json()["faults"][0]["path"]) == (400, name)

    def test_invalid_bodies_are_refused(self, live: LiveQuery, api: APIClient) -> None:
        assert produce(api, data=b"").status_code == 400
        assert produce(api, data=b"no arrow").json()["code"] == "corrupt"
        assert produce(api, data=batch_bytes(table())[:-20]).status_code in {200, 400}
        answer = produce(api, data=batch_bytes(table().drop_columns(["rtt_us"])))
        assert (answer.status_code, "'rtt_us' is missing" in answer.json()["detail"]) == (422, True)
        assert produce(api, data=b"x" * (4 * 2**20)).status_code == 413
        many = pa.concat_tables([table()] * 200_000).combine_chunks()
        packed = pa.BufferOutputStream()
        with pa.ipc.new_stream(packed, many.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(many)
        answer = produce(api, data=packed.getvalue().to_pybytes())
        assert (answer.status_code, "unpacked" in answer.json()["detail"]) == (413, True)

    def test_operator_that_takes_no_records_is_refused(self, live: LiveQuery, api: APIClient) -> None:
        answer = produce(api, operator="nothing")
        assert (answer.status_code, "allowed: window, good, rtt" in answer.json()["detail"]) == (422, True)

    def test_batch_needs_a_live_query_and_the_scope(
        self, live: LiveQuery, api: APIClient, api_of: Callable[..., APIClient]
    ) -> None:
        assert produce(api_of("viewer")).status_code == 403
        assert produce(api_of("operator", scopes=["read"])).status_code == 403
        assert produce(client_of(enrolled(live.query.cluster, "a2"))).status_code == 401
        live.query.name = "other"
        live.query.save()
        assert produce(api).status_code == 404
        live.query.name = "s2s"
        live.query.save()
        live_stop(live=live)
        answer = produce(api)
        assert (answer.status_code, answer.json()["code"]) == (409, "not_live")

    def test_removed_or_disabled_producer_is_refused(self, live: LiveQuery, api: APIClient) -> None:
        assert produce(api, 1).status_code == 200
        producer = Agent.objects.get(name="shop")
        assignment_set(live=live, agent=producer, enabled=False)
        assert produce(api, 2).status_code == 409
        assignment_set(live=live, agent=producer, enabled=True)
        agent_update(agent=producer, enabled=False)
        assert produce(api, 2).json()["code"] == "agent_disabled"

    def test_name_of_an_agent_is_refused_for_a_producer(self, live: LiveQuery, api: APIClient) -> None:
        assert produce(api, **{"X-Sluice-Producer": "a1"}).status_code == 409

    def test_full_stream_and_missing_redis_return_503(self, live: LiveQuery, api: APIClient, settings: Any) -> None:
        settings.STREAM_MAX_BYTES = 100
        answer = produce(api)
        assert (answer.status_code, answer.json()["code"], "Retry-After" in answer) == (429, "full", True)
        settings.REDIS_URL = "redis://127.0.0.1:1/0"
        assert produce(api).status_code == 503


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Frame]]:
    """Messages that a receiver of results got."""
    found: list[Frame] = []

    def take(frames: Sequence[Frame]) -> None:
        found.extend(frames)

    monkeypatch.setattr(ingest_frames, "_receivers", {})
    ingest_frames.receiver(FrameKind.RESULT)(take)
    return found


class TestFrames:
    def tell(self, client: APIClient, *frames: Frame, data: bytes | None = None) -> Any:
        data = b"".join(map(encode_frame, frames)) if data is None else data
        return client.post("/api/v1/stream-processor/frames", data, content_type="application/vnd.sluice.frames")

    def result(self, live: LiveQuery, seq: int = 1, kind: FrameKind = FrameKind.RESULT) -> Frame:
        return Frame(kind, "stream", "s", seq, query=live.key, plan=live.plan, body=b"x")

    def test_frames_go_to_their_receivers(self, api_of: Callable[..., APIClient], taken: list[Frame]) -> None:
        live, _ = live_at(probing(), "a1")
        client = api_of("operator", scopes=["ingest"])
        answer = self.tell(client, self.result(live, 1), self.result(live, 2))
        assert (answer.status_code, answer.json()) == (200, {"received": {"result": 2}})
        assert [frame.seq for frame in taken] == [1, 2]
        live.refresh_from_db()
        assert live.state == "running"

    def test_stopped_live_query_stays_stopped(self, api: APIClient, taken: list[Frame]) -> None:
        live, _ = live_at(probing(), "a1")
        live_stop(live=live)
        assert self.tell(api, self.result(live)).status_code == 200
        live.refresh_from_db()
        assert live.state == "stopped"

    def test_frames_without_a_receiver_are_refused_as_a_whole(self, api: APIClient, taken: list[Frame]) -> None:
        live, _ = live_at(probing(), "a1")
        answer = self.tell(api, self.result(live), self.result(live, 2, FrameKind.STATISTICS))
        assert (answer.status_code, "statistics" in answer.json()["detail"]) == (422, True)
        answer = self.tell(api, self.result(live), self.result(live, 2, FrameKind.RECORDS))
        assert (answer.status_code, answer.json()["faults"][0]["path"]) == (400, "frames[1].kind")
        assert self.tell(api, data=b"odd").status_code == 400
        assert not taken

    def test_each_kind_sent_by_the_stream_processor_has_a_receiver(self) -> None:
        told = {FrameKind.STATISTICS, FrameKind.REFINED, FrameKind.WATERMARKS}
        assert set(ingest_frames._receivers) == {FrameKind.RESULT, *told}


class TestState:
    def test_state_is_that_reported_by_the_stream_processor(self, api: APIClient, settings: Any) -> None:
        assert api.get("/api/v1/stream-processor").json() == {"state": "away"}
        broker.write_state(stream_client(), {"state": "warming", "batch": 0})
        assert api.get("/api/v1/stream-processor").json() == {"state": "warming", "batch": 0}
        settings.REDIS_URL = "redis://127.0.0.1:1/0"
        assert api.get("/api/v1/stream-processor").json() == {"state": "unknown"}


class TestToken:
    def test_command_creates_a_working_token(self, capsys: pytest.CaptureFixture[str]) -> None:
        call_command("stream_token")
        client = APIClient()
        client.credentials(HTTP_AUTHORIZATION=f"Bearer {capsys.readouterr().out.strip()}")
        assert client.get("/api/v1/stream-processor/plan").status_code == 200
        assert client.get("/api/v1/clusters").status_code == 403
        assert not Token.objects.get().user.has_usable_password()

    def test_file_with_a_working_token_is_kept(self, tmp_path: Path) -> None:
        path = tmp_path / "run" / "stream.token"
        call_command("stream_token", "--file", str(path))
        first = path.read_text()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        call_command("stream_token", "--file", str(path))
        assert path.read_text() == first
        Token.objects.all().delete()
        call_command("stream_token", "--file", str(path))
        assert path.read_text() != first
