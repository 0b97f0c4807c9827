"""The benchmark of a fleet: what is recorded, how it is said again, what it comes to, and all of it once, small."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from agent.wire import FrameKind, decode_frames
from lab.benchmarks.fleet.arithmetic import UnitCosts, demands, first_to_break
from lab.benchmarks.fleet.clients import FleetAgent, say
from lab.benchmarks.fleet.command import main
from lab.benchmarks.fleet.recorded_agents import AgentRecording, record_agent
from lab.benchmarks.telemetry_loop import pipeline


@pytest.fixture(scope="module")
def recording() -> AgentRecording:
    return record_agent("here/probes", pipeline().digest, dict(pipeline().document), epochs=6)


def test_recording_of_a_real_agent_has_what_it_sends_in_order(recording: AgentRecording) -> None:
    frames = [frame for epoch in recording.epochs for frame in epoch]
    assert [frame.seq for frame in frames] == list(range(1, len(frames) + 1))
    assert {FrameKind.MARK, FrameKind.COUNTERS, FrameKind.PARTIALS} <= {frame.kind for frame in frames}
    assert all(epoch for epoch in recording.epochs)


def test_another_agent_says_the_same_under_its_own_name(recording: AgentRecording) -> None:
    said = [frame for epoch in range(6) for frame, _ in decode_frames(recording.post("a-7", epoch))]
    assert {frame.agent for frame in said} == {"a-7"}
    own = [frame for epoch in recording.epochs for frame in epoch]
    assert [(frame.seq, bytes(frame.body)) for frame in said] == [(frame.seq, bytes(frame.body)) for frame in own]
    assert json.dumps(recording.heartbeat(0, 1.0))


class Endpoint(ThreadingHTTPServer):
    """An HTTP endpoint that notes what each agent said, and refuses one of them."""

    def __init__(self) -> None:
        self.heard: dict[str, list[int]] = defaultdict(list)
        super().__init__(("127.0.0.1", 0), _Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        secret = self.headers["Authorization"].removeprefix("Bearer ")
        self.server.heard[secret].append(len(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(429 if secret == "s3" else 200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as heard:
        yield heard
        heard.shutdown()


def test_every_agent_says_its_epochs_in_order_and_refusals_are_no_frames(
    recording: AgentRecording, endpoint: Endpoint
) -> None:
    agents = [FleetAgent(f"a{n}", f"s{n}", recording) for n in range(40)]
    attained = say("frames", endpoint.server_port, agents, 3, 0.01, 60.0)
    sizes = [len(recording.post("a1", epoch)) for epoch in range(3)]
    assert endpoint.heard["s1"] == sizes
    assert (attained.asked, attained.done, attained.statuses) == (120, 117, {200: 117, 429: 3})
    assert attained.frames == 39 * sum(len(epoch) for epoch in recording.epochs[:3])


def test_nothing_is_begun_after_the_budget(recording: AgentRecording, endpoint: Endpoint) -> None:
    agents = [FleetAgent(f"a{n}", f"s{n}", recording) for n in range(4)]
    attained = say("heartbeats", endpoint.server_port, agents, 3, 1_000.0, 0.0)
    assert attained.asked == 12
    assert attained.done < 12


def test_process_that_is_spread_least_breaks_first() -> None:
    costs = UnitCosts({"web": 0.01}, {"web": 0.01, "redis": 1e-4, "driver": 2e-5, "spark workers": 2e-4}, 3.0)
    first, agents = first_to_break(costs)
    assert (first.process, agents) == ("redis", 10_000)
    by_process = {demand.process: demand.cores for demand in demands(costs, 1_000)}
    assert by_process == pytest.approx({"web": 15.0, "redis": 0.1, "driver": 0.02, "spark workers": 0.2, "jvm": 0.0})


def test_wrong_sizes_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--sizes", "3"])
    assert "sizes are at least 10, seconds 4 to 26" in capsys.readouterr().err


@pytest.mark.process
@pytest.mark.slow
def test_small_fleet_is_taken_whole_and_its_statements_do_not_grow(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--sizes", "20", "40", "--seconds", "6", "--json"])
    rows = {row["name"]: row["figures"] for row in json.loads(capsys.readouterr().out)["rows"]}
    for name in ("SQL statements of a heartbeat", "SQL statements of a post of frames"):
        few, many = (figure["value"] for figure in rows[name])
        assert 0 <= many <= few <= 4, name
    assert all(figure["value"] > 0 for figure in rows["frames worked off"])
    assert all(figure["value"] > 0 for figure in rows["CPU of 1,000 frames: web"])
