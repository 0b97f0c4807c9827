"""An agent and the relay above it, both running: they exchange the messages of the model, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.config import ParentConfig
from agent.relay.relay import Relay
from agent.relay.server import Reply, Taker
from agent.runtime import Spool
from agent.runtime.downstream import COST, DELAY, FORWARDED
from agent.service import SourceAgent
from agent.settings import ReadableFolders
from agent.uplink import sender as sender_module
from agent.uplink.console import Client
from agent.uplink.sender import CONSOLE, SpoolSender
from agent.wire import FrameKind, decode_frames
from engine.klink.slack import forwarding_messages
from tests.agent.relay.test_relay import CHILDREN, PIPELINE, QUERY, Site, child_config, secret_hash
from tests.servers import wait_until

CHILD = CHILDREN[0]
FRAME_SAYS = {"watermarks", "closing_epoch_us", "final"}
ANSWER_SAYS = {"accepted_seq", "committed_seq", "duplicates"}


class Listener:
    """Messages between agent and relay."""

    def __init__(self) -> None:
        self.marks: list[dict[str, Any]] = []
        self.answers: list[dict[str, Any]] = []

    def hear(self, relay: Relay) -> None:
        """Take the posts of a relay that does not listen yet."""
        self._take: Taker = relay.take
        relay.take = self.take  # type: ignore[method-assign]

    def take(self, secret_hash: str, data: bytes) -> Reply:
        reply = self._take(secret_hash, data)
        if reply.status == 200:
            self.marks += [dict(frame.extra) for frame, _ in decode_frames(data) if frame.kind == FrameKind.MARK]
            self.answers.append(dict(reply.document))
        return reply


class Pair:
    """A relay, and one agent that posts to it."""

    def __init__(self, folder: Path, *, below: bool = True) -> None:
        children = [{"agent": CHILD, "secret_hash": secret_hash(CHILD), "queries": {QUERY: PIPELINE.digest}}]
        self.heard = Listener()
        self.site = Site(folder, hear=self.heard.hear, children=children)
        self.url = f"http://127.0.0.1:{self.site.port}"
        config = child_config(CHILD, [1.0, 1.0, 1.0])
        self.spool = Spool(folder / CHILD, 64 * 2**20, sync=False)
        self.work = SourceAgent(
            replace(config, parent=ParentConfig(self.url) if below else None), self.spool, ReadableFolders()
        )
        (folder / "state").mkdir()
        route = self.url if below else CONSOLE
        self.sender = SpoolSender(self.spool, self._client, folder / "state", route=route, costs=self.work.downstream)
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.work.run, args=(self.stopping,))
        self.thread.start()
        self.sender.start()

    def _client(self, route: str) -> Client:
        return Client(self.url, secret=f"sla_{CHILD}")

    def stop(self) -> None:
        self.stopping.set()
        self.thread.join()
        self.sender.stop(0.0)
        self.site.stop()
        self.spool.close()

    @property
    def downstream_cost_s(self) -> float:
        """Downstream cost in the agent's slack; 0 before its first epoch."""
        return sum(session.downstream_cost_s for session in self.work._runtime.scheduler._sessions.values())


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    monkeypatch.setattr(sender_module, "IDLE_S", 0.02)
    made = Pair(tmp_path)
    yield made
    made.stop()


def test_agent_and_relay_exchange_the_messages_of_the_model_only(pair: Pair) -> None:
    assert PIPELINE.aggregate is not None
    names = [operator.id for operator in PIPELINE.operators[: PIPELINE.aggregate + 1]]
    shared = [*((name, "agent") for name in names), (names[-1], "relay")]
    to_relay, to_agent = forwarding_messages(shared)
    assert (to_relay[:2], to_agent[:2]) == (("agent", "relay"), ("relay", "agent"))

    wait_until(lambda: pair.downstream_cost_s > 0, what="the relay's cost in the agent's slack")
    wait_until(lambda: any(DELAY in mark for mark in pair.heard.marks), what="how late the agent's watermarks are")
    said = {name for mark in pair.heard.marks for name in mark}
    assert said - FRAME_SAYS == set(to_relay[2])
    answered = {name for answer in pair.heard.answers for name in answer}
    assert answered - ANSWER_SAYS == {FORWARDED}
    cost_s = pair.downstream_cost_s  # before the answers: another may come at any moment
    told = [message for answer in pair.heard.answers for message in answer.get(FORWARDED, ())]
    assert {name for message in told for name in message} == {"query", "plan", *to_agent[2]}
    assert {(message["query"], message["plan"]) for message in told} == {(QUERY, PIPELINE.digest)}
    assert cost_s in {message[f"{COST}{names[-1]}"] for message in told}
    delays = [mark[DELAY] for mark in pair.heard.marks if DELAY in mark]
    assert {stream for delay in delays for stream in delay} == {PIPELINE.source.id}
    assert {delay[PIPELINE.source.id]["period_s"] for delay in delays} == {1.0}


def test_relay_schedules_by_the_agents_delays(pair: Pair) -> None:
    def merging() -> dict[str, Any]:
        queries = pair.site.relay.report()["relay"]["merging"]["queries"]
        return dict(queries[0]) if queries else {}

    def delay() -> dict[str, Any]:
        return dict(merging().get("delays", {}).get(CHILD, {}).get(PIPELINE.source.id, {}))

    wait_until(lambda: delay().get("mean_s") is not None, what="moments, of three windows at least")
    assert delay()["epochs"] >= 3 and delay()["variance_s2"] >= 0.0
    wait_until(lambda: merging().get("slack_s") is not None, what="a slack")
    wait_until(lambda: merging().get("row_cost_s", 0) > 0, what="a cost of rows")
    wait_until(lambda: merging().get("windows", 0) > 0, what="a window")
    assert pair.sender.ignored == 0 and pair.site.relay.report()["faults"] == []


def test_agent_without_a_relay_sends_no_delays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender_module, "IDLE_S", 0.02)
    pair = Pair(tmp_path, below=False)
    try:
        wait_until(lambda: any(FORWARDED in answer for answer in pair.heard.answers), what="an answer of a relay")
        wait_until(lambda: len(pair.heard.marks) > 30, what="three seconds of marks, so windows were swept")
        assert not any(DELAY in mark for mark in pair.heard.marks)
        assert pair.downstream_cost_s == 0.0, "the console's answers tell no costs"
    finally:
        pair.stop()


@pytest.mark.parametrize("wrong", [[{"query": 1}], "x", [{"query": QUERY, "plan": "p", "cost:x": -1}]])
def test_a_wrong_answer_is_counted_and_sending_goes_on(pair: Pair, wrong: Any) -> None:
    take = pair.heard._take

    def lying(secret_hash: str, data: bytes) -> Reply:
        reply = take(secret_hash, data)
        return replace(reply, document={**reply.document, FORWARDED: wrong}) if reply.status == 200 else reply

    pair.heard._take = lying
    wait_until(lambda: pair.sender.ignored >= 3, what="three answers")
    assert pair.sender.state == "sending" and pair.sender.fault == ""
    assert pair.spool.acked_seq > 0
