"""Two agents below a relay: the query's result is that of the query run whole, whatever is sent twice or restarted."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from agent.config import AgentConfig
from agent.relay.relay import Relay
from agent.relay.state import Children, RelayState
from agent.runtime import Spool
from agent.service import SourceAgent
from agent.settings import ReadableFolders
from agent.uplink.console import Client, ConsoleUnreachable
from agent.wire import Frame, FrameKind, batch_bytes, decode_frames, encode_frame
from engine.dataflow import Pipeline
from engine.dataflow.arrow.kernels import kernel, partial_schema, whole
from engine.dataflow.templates import TEMPLATES
from launcher.places import free_port
from tests.agent.reference import ReferenceProcessor, rows_of
from tests.servers import wait_until

QUERY = "eu/s2s"
CHILDREN = ("child-a", "child-b")
DOCUMENT = TEMPLATES["s2s-probe"]("probes", window_s=1).document
PIPELINE = Pipeline.parse(DOCUMENT)
RECORDS = 4000


def secret_hash(child: str) -> str:
    return hashlib.sha256(f"sla_{child}".encode()).hexdigest()


def relay_config(port: int, **more: Any) -> AgentConfig:
    children = [
        {"agent": child, "secret_hash": secret_hash(child), "queries": {QUERY: PIPELINE.digest}} for child in CHILDREN
    ]
    says = {"listen": f"127.0.0.1:{port}", "children": children, "pipelines": {PIPELINE.digest: DOCUMENT}} | more
    head = {"version": 1, "agent": "relay", "cluster": "eu", "epoch_s": 0.05}
    return AgentConfig.parse({**head, "sources": {}, "queries": [], "relay": says})


def child_config(child: str, load_factors: list[float]) -> AgentConfig:
    columns = {
        "src_ip": {"choice": ["a", "b"]},
        "src_cluster": {"constant": "x"},
        "dst_ip": {"skewed": ["p", "q", "r", "s"]},
        "dst_cluster": {"constant": "y"},
        "rtt_us": {"lognormal": [500, 0.5]},
        "err_code": {"choice": [0, 0, 0, 110]},
    }
    options = {"rate_per_s": 4000, "records": RECORDS, "seed": CHILDREN.index(child), "columns": columns}
    source = {"kind": "generator", "options": options, "time": "ts", "columns": DOCUMENT["source"]["columns"]}
    query = {"query": QUERY, "version": 1, "plan": PIPELINE.digest, "pipeline": DOCUMENT}
    query |= {"settings": {"method": "fixed", "load_factors": load_factors}}
    head = {"version": 1, "agent": child, "cluster": "eu", "epoch_s": 0.1, "sub_epochs": 2, "budget_cores": 4.0}
    return AgentConfig.parse({**head, "sources": {"probes": source}, "queries": [query]})


class Site:
    """A relay, with what its frames come to further up."""

    def __init__(self, folder: Path, *, hear: Callable[[Relay], object] = lambda relay: None, **more: Any) -> None:
        self.folder, self._hear = folder, hear
        self.port = free_port()
        self.config = relay_config(self.port, **more)
        self.above = ReferenceProcessor([PIPELINE])
        self.kinds: list[tuple[FrameKind, Any]] = []
        self.start()

    def start(self) -> None:
        self.spool = Spool(self.folder / "relay", 64 * 2**20, sync=False)
        self.relay = Relay(self.config, self.spool)
        self._hear(self.relay)
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.relay.run, args=(self.stopping,))
        self.thread.start()
        wait_until(self._answers, what="the relay's port")

    def _answers(self) -> bool:
        client = self.client("nobody")
        try:
            return client.frames(b"x").status == 401
        except ConsoleUnreachable:
            return False
        finally:
            client.close()

    def stop(self) -> None:
        self.stopping.set()
        self.thread.join()
        self.spool.close()

    def client(self, child: str) -> Client:
        return Client(f"http://127.0.0.1:{self.port}", secret=f"sla_{child}")

    def forward(self) -> None:
        """Up to the console, as the relay's sender would."""
        for seq, data in self.spool.unsent():
            self.above.take(data)
            self.kinds += [(frame.kind, dict(frame.extra)) for frame, _ in decode_frames(data)]
            self.spool.acknowledged(seq)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.stop()


def run_child(folder: Path, child: str, load_factors: list[float]) -> tuple[Spool, pa.Table]:
    """An agent until its generator has ended; its spool, and all of its records."""
    spool = Spool(folder / child, 64 * 2**20, sync=False)
    config = child_config(child, load_factors)
    work = SourceAgent(config, spool, ReadableFolders())
    taken: list[pa.RecordBatch] = []
    ((_, collector),) = work._collectors.values()
    poll = collector.poll
    collector.poll = lambda now_us, most: [taken.append(batch) or batch for batch in poll(now_us, most)]  # type: ignore
    stopping = threading.Event()
    thread = threading.Thread(target=work.run, args=(stopping,))
    thread.start()

    def closed() -> bool:
        """The windows have closed: nothing is open any more."""
        last = max(batch.column("ts")[-1].value for batch in taken) if taken else 0
        marks = [query["watermark_us"] for query in work.report()["queries"]]
        return sum(batch.num_rows for batch in taken) == RECORDS and min(marks, default=0) > last + 1_000_000

    wait_until(closed, what="the end of the generator")
    stopping.set()
    thread.join()
    return spool, pa.Table.from_batches(taken)


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[list[bytes], pa.Table]]:
    """Frames of two agents, each under load factors of its own."""
    made = {}
    for child, factors in zip(CHILDREN, ([1.0, 1.0, 0.6], [1.0, 0.7, 1.0]), strict=True):
        spool, table = run_child(tmp_path_factory.mktemp("agents"), child, factors)
        made[child] = ([data for _, data in spool.unsent()], table)
        spool.close()
    return made


def expected(agents: dict[str, tuple[list[bytes], pa.Table]]) -> list[dict[str, Any]]:
    return rows_of(whole(PIPELINE, pa.concat_tables(table for _, table in agents.values())))


def close(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {name: pytest.approx(value) if isinstance(value, float) else value for name, value in row.items()}
        for row in rows
    ]


def posts(frames: list[bytes], size: int) -> list[bytes]:
    return [b"".join(frames[at : at + size]) for at in range(0, len(frames), size)]


@pytest.mark.parametrize("restarts", [False, True])
def test_two_agents_equal_the_query_run_whole(site: Site, agents: Any, restarts: bool) -> None:
    pending = {child: posts(frames, 7) for child, (frames, _) in agents.items()}
    turn = 0
    while any(pending.values()):
        for child in CHILDREN:
            if pending[child]:
                data = pending[child].pop(0)
                client = site.client(child)
                assert client.frames(data).status == 200
                if turn % 3 == 0:  # the answer was lost: the same once more
                    again = client.frames(data)
                    assert (again.status, again.document["duplicates"]) == (200, sum(1 for _ in decode_frames(data)))
                client.close()
        turn += 1
        if restarts and turn % 4 == 0:
            site.stop()
            site.start()
        site.forward()
    for child, (frames, _) in agents.items():  # they ran one after the other: the windows of the second are still open
        (last, _) = next(decode_frames(frames[-1]))
        later = mark(child, last.seq + 1, last.epoch + 60_000_000, life=last.life)
        assert post(site, child, later).status == 200
    site.relay.send_on()
    site.forward()
    assert close(rows_of(site.above.result(QUERY, PIPELINE))) == expected(agents)
    assert site.above.late == 0
    for child, (_, table) in agents.items():
        origin = [extra for kind, extra in site.kinds if kind == FrameKind.COUNTERS and extra["origin"] == child]
        assert origin, f"counters of {child} ({table.num_rows} records)"


def test_partials_are_merged_to_less(site: Site, agents: Any) -> None:
    sent = 0
    for child, (frames, _) in agents.items():
        client = site.client(child)
        for data in posts(frames, 50):
            assert client.frames(data).status == 200
        client.close()
        sent += sum(len(frame.body) for data in frames for frame, _ in decode_frames(data) if frame.kind == "partials")
    site.relay.send_on()
    received = [frame for _, data in site.spool.unsent() for frame, _ in decode_frames(data)]
    merged = sum(len(frame.body) for frame in received if frame.kind == FrameKind.PARTIALS)
    assert 0 < merged < 0.8 * sent
    assert all(frame.agent == "relay" for frame in received)


def mark(child: str, seq: int, us: int, life: str = "life", **more: Any) -> bytes:
    says = {"watermarks": {str(k): us for k in range(4)}, "closing_epoch_us": us, "final": False} | more
    return encode_frame(Frame(FrameKind.MARK, child, life, seq, QUERY, PIPELINE.digest, epoch=us, extra=says))


def partial(child: str, seq: int, ts_us: int, kind: FrameKind = FrameKind.PARTIALS, entry: int = 2) -> bytes:
    row = {
        "ts": ts_us,
        "src_ip": "a",
        "src_cluster": "x",
        "dst_ip": "b",
        "dst_cluster": "y",
        "rtt_us": 5,
        "err_code": 0,
    }
    raw = pa.schema(
        [(field.name, pa.int64() if field.name == "ts" else field.type) for field in PIPELINE.source.schema]
    )
    table = pa.Table.from_pylist([row], raw).cast(PIPELINE.source.schema)
    for k in range(2):
        table = kernel(PIPELINE, k).run(table)
    body = batch_bytes(kernel(PIPELINE, 2).partial(table))
    return encode_frame(Frame(kind, child, "life", seq, QUERY, PIPELINE.digest, entry=entry, body=body))


def sent_marks(site: Site) -> list[dict[str, Any]]:
    site.relay.send_on()
    site.forward()
    return [extra for kind, extra in site.kinds if kind == FrameKind.MARK]


def post(site: Site, child: str, *frames: bytes) -> Any:
    client = site.client(child)
    try:
        return client.frames(b"".join(frames))
    finally:
        client.close()


def test_the_watermark_is_the_least_of_the_children(site: Site) -> None:
    post(site, "child-a", partial("child-a", 1, 500_000), mark("child-a", 2, 9_000_000))
    assert sent_marks(site) == [], "child-b has not said anything yet"
    post(site, "child-b", mark("child-b", 1, 700_000))
    assert sent_marks(site)[-1]["watermarks"]["3"] == 700_000
    assert not any(kind == FrameKind.PARTIALS for kind, _ in site.kinds), "the window ends at one second"
    post(site, "child-b", partial("child-b", 2, 600_000), mark("child-b", 3, 5_000_000))
    assert sent_marks(site)[-1] == {
        "watermarks": {str(k): 5_000_000 for k in range(4)},
        "closing_epoch_us": 9_000_000,
        "final": False,
    }
    assert [row["probes"] for row in site.above.result(QUERY, PIPELINE).to_pylist()] == [2]


def test_a_late_partial_goes_on_at_once(site: Site) -> None:
    for child in CHILDREN:
        post(site, child, mark(child, 1, 5_000_000))
    sent_marks(site)
    post(site, "child-a", partial("child-a", 2, 500_000))
    sent_marks(site)
    assert [row["probes"] for row in site.above.result(QUERY, PIPELINE).to_pylist()] == [1]


def test_a_window_days_ahead_is_not_held(site: Site) -> None:
    for child in CHILDREN:
        post(site, child, mark(child, 1, 5_000_000))
    sent_marks(site)
    post(site, "child-a", partial("child-a", 2, 60_000_000), partial("child-a", 3, 10 * 86_400_000_000))
    sent_marks(site)
    assert [row["probes"] for row in site.above.result(QUERY, PIPELINE).to_pylist()] == [1]
    for seq, child in enumerate(CHILDREN):
        post(site, child, mark(child, 4 if seq == 0 else 2, 99_000_000))
    sent_marks(site)
    assert [row["probes"] for row in site.above.result(QUERY, PIPELINE).to_pylist()] == [1, 1]


def test_a_silent_child_is_left_out_and_named(tmp_path: Path) -> None:
    site = Site(tmp_path, idle_after_s=0.3)
    try:
        post(site, "child-b", mark("child-b", 1, 1_000_000))

        def goes_on() -> bool:
            seq = site.relay._state.accepted_seq("child-a", "life") + 1
            post(site, "child-a", mark("child-a", seq, 9_000_000))
            marks = [extra for extra in sent_marks(site) if extra["watermarks"]["3"] == 9_000_000]
            return any(extra["left_out"] == ["child-b"] for extra in marks)

        def only_b_is_silent() -> bool:
            goes_on()
            report.update(site.relay.report())
            states = {child["agent"]: child["state"] for child in report["relay"]["children"]}
            return states == {"child-a": "connected", "child-b": "silent"}

        report: dict[str, Any] = {}  # the one that names child-b alone: child-a may be slow again in the next

        wait_until(goes_on, what="a watermark without child-b")
        wait_until(only_b_is_silent, what="the word silent for child-b alone")
        assert report["queries"][0]["faults"] == ["child-b is silent: windows close without it"]
        post(site, "child-b", mark("child-b", 2, 2_000_000))
        assert sent_marks(site)[-1]["watermarks"]["3"] == 9_000_000, "it never goes back"
    finally:
        site.stop()


def test_pause_of_all_children_is_nobodys_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The relay's network was away: the first child to be back leaves none of the others out."""
    clock = [1000.0]
    monkeypatch.setattr("agent.relay.state.time.monotonic", lambda: clock[0])
    children = Children(relay_config(1, idle_after_s=10.0).relay)
    key, state = (QUERY, PIPELINE.digest), RelayState()
    for clock[0], child in [(1001.0, "child-a"), (1002.0, "child-b"), (1100.0, "child-a")]:
        children.touch(child)
    assert children.silent(key, state) == set()
    for clock[0] in (1108.0, 1110.5):
        children.touch("child-a")
    assert children.silent(key, state) == {"child-b"}, "others went on being heard"


def test_ended_query_closes_all_windows(site: Site) -> None:
    site.relay.apply(relay_config(site.port, children=[{"agent": c, "secret_hash": secret_hash(c)} for c in CHILDREN]))
    for child in CHILDREN:
        post(site, child, partial(child, 1, 500_000), mark(child, 2, 600_000))
    sent_marks(site)
    post(site, "child-a", mark("child-a", 3, 600_000, final=True))
    assert not sent_marks(site)[-1]["final"]
    post(site, "child-b", mark("child-b", 3, 600_000, final=True))
    assert sent_marks(site)[-1]["final"]
    assert [row["probes"] for row in site.above.result(QUERY, PIPELINE).to_pylist()] == [2]
    assert not site.relay._state.held
    assert not site.relay._state.marks


def test_removed_child_no_longer_holds_the_others_back(site: Site) -> None:
    for child in CHILDREN:
        post(site, child, mark(child, 1, 1_000_000))
    site.relay.apply(relay_config(site.port, children=[{"agent": "child-a", "secret_hash": secret_hash("child-a")}]))
    post(site, "child-a", mark("child-a", 2, 9_000_000))
    assert sent_marks(site)[-1]["watermarks"]["3"] == 9_000_000
    assert post(site, "child-b", mark("child-b", 2, 9_000_000)).status == 401


def test_copies_of_open_windows_are_taken_and_end_here(site: Site) -> None:
    copy = partial("child-a", 1, 500_000, FrameKind.CHECKPOINT)
    assert post(site, "child-a", copy, mark("child-a", 2, 5_000_000)).document["accepted_seq"] == 2
    post(site, "child-b", partial("child-b", 1, 500_000), mark("child-b", 2, 5_000_000))
    sent_marks(site)
    assert [kind for kind, _ in site.kinds] == [FrameKind.PARTIALS, FrameKind.MARK]
    assert [row["probes"] for row in site.above.result(QUERY, PIPELINE).to_pylist()] == [1]
    wrong = post(site, "child-a", partial("child-a", 3, 500_000, FrameKind.CHECKPOINT, entry=1))
    assert "entry is 1; allowed for checkpoint: 2, the aggregate" in wrong.message


def test_wrong_posts_are_refused_with_their_status(site: Site) -> None:
    assert post(site, "nobody", mark("child-a", 1, 1)).status == 401
    assert post(site, "child-a", mark("child-b", 1, 1)).status == 422
    assert post(site, "child-a", b"SLF1 nonsense").status == 400
    assert post(site, "child-a", b"").status == 400
    assert post(site, "child-a", mark("child-a", 1, 1)[:-1]).status == 400
    gap = post(site, "child-a", mark("child-a", 3, 1))
    assert (gap.status, gap.document["code"], gap.document["expected_seq"]) == (409, "gap", 1)
    assert post(site, "child-a", mark("child-a", 1, 1), mark("child-a", 3, 1)).status == 422
    table = pa.table({"colour": ["red"]})
    wrong = Frame(FrameKind.RECORDS, "child-a", "life", 1, QUERY, PIPELINE.digest, entry=0, body=batch_bytes(table))
    answer = post(site, "child-a", encode_frame(wrong))
    assert answer.status == 422
    assert "its columns are colour; allowed: " in answer.message
    result = Frame(FrameKind.RESULT, "child-a", "life", 1, QUERY, PIPELINE.digest)
    assert post(site, "child-a", encode_frame(result)).status == 422
    assert post(site, "child-a", b"x" * (16 * 2**20 + 1)).status == 413
    assert site.relay.report()["relay"]["children"][0]["accepted_seq"] == 0


def test_a_full_relay_holds_its_children_back(tmp_path: Path) -> None:
    site = Site(tmp_path)
    try:
        site.spool.limit_bytes = 1
        answer = post(site, "child-a", mark("child-a", 1, 1))
        assert (answer.status, answer.retry_after_s, answer.document["accepted_seq"]) == (429, 2.0, 0)
        site.spool.limit_bytes = 2**26
        assert post(site, "child-a", mark("child-a", 1, 1)).status == 200
    finally:
        site.stop()


def test_a_plan_that_the_relay_does_not_know_passes_through(site: Site) -> None:
    site.relay.apply(relay_config(site.port, pipelines={}))
    post(site, "child-a", partial("child-a", 1, 500_000), mark("child-a", 2, 5_000_000))
    post(site, "child-b", partial("child-b", 1, 500_000), mark("child-b", 2, 5_000_000))
    sent_marks(site)
    assert [kind for kind, _ in site.kinds] == [FrameKind.PARTIALS, FrameKind.PARTIALS, FrameKind.MARK]
    assert [row["probes"] for row in site.above.result(QUERY, PIPELINE).to_pylist()] == [2]


def test_the_state_survives_a_snapshot(site: Site) -> None:
    post(site, "child-a", partial("child-a", 1, 500_000), mark("child-a", 2, 700_000))
    post(site, "child-b", mark("child-b", 1, 800_000))
    sent_marks(site)
    state = site.relay._state
    again = RelayState.recovered([state.stored()])
    assert again.held[QUERY, PIPELINE.digest][0].equals(state.held[QUERY, PIPELINE.digest][0])
    assert (again.accepted, again.marks, again.sent, again.shapes) == (
        state.accepted,
        state.marks,
        state.sent,
        state.shapes,
    )


def test_records_of_a_stream_that_is_joined_pass_through_with_who_sent_them(site: Site) -> None:
    join = {"op": "join", "stream": "others", "time": "at", "columns": {"at": "timestamp", "ip": "string"}}
    made = {**DOCUMENT, "operators": [*DOCUMENT["operators"]]}
    made["operators"].insert(1, {"id": "match", "expression": {**join, "on": {"src_ip": "ip"}, "take": {"x": "ip"}}})
    pipeline = Pipeline.parse(made)
    site.relay.apply(relay_config(site.port, pipelines={pipeline.digest: made}))

    def frame(seq: int, kind: FrameKind, entry: int, table: pa.Table) -> bytes:
        body = batch_bytes(table)
        return encode_frame(Frame(kind, "child-a", "life", seq, QUERY, pipeline.digest, entry=entry, body=body))

    others = pipeline.other_schema.empty_table()
    assert post(site, "child-a", frame(1, FrameKind.RECORDS, pipeline.other_entry, others)).status == 200
    ((_, data),) = site.spool.unsent()
    ((sent, _),) = decode_frames(data)
    assert (sent.entry, sent.extra["origin"]) == (pipeline.other_entry, "child-a")
    answer = post(
        site, "child-a", frame(2, FrameKind.PARTIALS, pipeline.aggregate, partial_schema(pipeline).empty_table())
    )
    assert answer.status == 422 and "allowed of a query that joins streams: records" in answer.message
    assert post(site, "child-a", frame(2, FrameKind.RECORDS, pipeline.other_entry + 1, others)).status == 422
