"""Sending frames to a console that is absent, busy, has lost frames, or refuses them."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.runtime import Spool, WalRecord
from agent.uplink import sender as sender_module
from agent.uplink.console import Client, ConsoleUnreachable
from agent.uplink.sender import CONSOLE, SpoolSender
from agent.wire import Frame, FrameKind, decode_frames
from tests.agent.fake_console import AGENT, SECRET, FakeConsole
from tests.servers import wait_until


class World:
    """A spool, a console and a sender between them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.got: list[tuple[str, int, int]] = []
        self.console = FakeConsole(self._take)
        self.console.start()
        self.spool = Spool(folder / "spool", 64 * 2**20, sync=False)
        self.sender = self.new_sender()
        self.written = 0

    def new_sender(self, route: str = CONSOLE) -> SpoolSender:
        def client_of(to: str) -> Client:
            return Client(self.console.url if to == CONSOLE else to, secret=SECRET)

        return SpoolSender(self.spool, client_of, self.folder, route=route)

    def _take(self, data: bytes) -> None:
        self.got += [(frame.life, frame.seq, frame.epoch) for frame, _ in decode_frames(data)]

    def write(self, count: int, body: bytes = b"x" * 100) -> None:
        for _ in range(count):
            self.written += 1
            frame = Frame(FrameKind.COUNTERS, AGENT, "", 1, epoch=self.written, body=body)
            assert self.spool.append(WalRecord("test", {}, (), (frame,)))

    def arrived(self) -> bool:
        return len({epoch for _, _, epoch in self.got}) == self.written

    def wait(self, condition: Callable[[], object], what: str) -> None:
        wait_until(condition, what=what)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    for name, value in {"IDLE_S": 0.01, "FIRST_PAUSE_S": 0.01, "MAX_PAUSE_S": 0.1, "REFUSED_PAUSE_S": 0.1}.items():
        monkeypatch.setattr(sender_module, name, value)
    made = World(tmp_path)
    yield made
    made.sender.stop(0)
    made.console.stop()
    made.spool.close()


def test_records_leave_the_queue_in_order(world: World) -> None:
    world.write(500)
    world.sender.start()
    world.wait(world.arrived, "500 frames")
    assert [seq for _, seq, _ in world.got] == list(range(1, 501))
    world.wait(lambda: world.spool.committed_seq == 500, "the commit")
    assert (world.sender.state, world.sender.fault, world.spool.unsent_frames) == ("sending", "", 0)


def test_frames_arrive_once_though_the_console_comes_and_goes(world: World) -> None:
    world.sender.start()
    for _ in range(4):
        world.write(50)
        world.wait(world.arrived, "frames while it is there")
        world.console.stop()
        world.write(50)
        world.wait(lambda: world.sender.state == "away", "the word away")
        assert "does not answer" in world.sender.fault
        world.console.start()
    world.wait(world.arrived, "frames from while it was away")
    assert len(world.got) == world.written
    world.wait(lambda: world.sender.state == "sending", "the word sending")


def test_lost_answer_causes_no_duplicate(world: World) -> None:
    """The console takes frames and dies before it answers: they are sent again and taken once."""
    calls = []

    def take_and_fail(data: bytes) -> Any:
        calls.append(data)
        if len(calls) == 1:
            world.console._frames(data)
            return 503, {"detail": "too late"}, {}
        return None

    world.console.no = take_and_fail
    world.write(20)
    world.sender.start()
    world.wait(lambda: world.spool.acked_seq == 20, "the acknowledgement")
    assert [seq for _, seq, _ in world.got] == list(range(1, 21))
    assert len(calls) == 2


def test_console_that_lost_the_last_frames_gets_them_again(world: World) -> None:
    world.console.commits = None
    world.write(30)
    world.sender.start()
    world.wait(world.arrived, "30 frames")
    world.wait(lambda: world.spool.acked_seq == 30, "the acknowledgement")
    world.console.accepted = dict.fromkeys(world.console.accepted, 12)
    world.write(1)
    world.wait(lambda: world.spool.acked_seq == 31, "the acknowledgement")
    assert 409 in world.console.posts
    assert [seq for _, seq, _ in world.got] == [*range(1, 31), *range(13, 32)]


def test_heartbeat_answer_reveals_lost_frames(world: World) -> None:
    world.console.commits = None
    world.write(30)
    world.sender.start()
    world.wait(lambda: world.spool.acked_seq == 30, "the acknowledgement")
    world.console.accepted = dict.fromkeys(world.console.accepted, 12)
    world.wait(lambda: world.sender.post_marker() is not None, "a pause")
    world.sender.reconcile(12, 0, world.sender.post_marker())
    world.wait(lambda: len(world.got) == 48, "the tail")


def test_heartbeat_answer_older_than_a_post_changes_nothing(world: World) -> None:
    world.write(10)
    since = world.sender.post_marker()
    world.sender.start()
    world.wait(lambda: world.spool.acked_seq == 10 and world.sender.post_marker() is not None, "the acknowledgement")
    world.sender.reconcile(0, 0, since)
    assert world.spool.acked_seq == 10


def test_sender_waits_for_the_retry_after_of_the_console(world: World) -> None:
    asked_at: list[float] = []
    said: list[tuple[str, str]] = []

    def busy(data: bytes) -> Any:
        asked_at.append(time.monotonic())
        said.append((world.sender.state, world.sender.fault))
        if len(asked_at) > 1:
            return None
        return 429, {"detail": "No room.", "accepted_seq": 0}, {"Retry-After": "1"}

    world.console.no = busy
    world.write(5)
    world.sender.start()
    world.wait(lambda: len(world.console.posts) == 2, "the second post")
    assert world.console.posts == [429, 200]
    assert said == [("sending", ""), ("held back", "No room.")]
    assert asked_at[1] - asked_at[0] >= 0.8


def test_accepted_part_of_a_post_is_not_sent_again(world: World) -> None:
    def half(data: bytes) -> Any:
        if world.console.posts:
            return None
        frames = list(decode_frames(data))
        world.console._frames(b"".join(bytes(part) for _, part in frames[:4]))
        return 429, {"detail": "No room.", "accepted_seq": 4}, {"Retry-After": "0"}

    world.console.no = half
    world.write(10)
    world.sender.start()
    world.wait(world.arrived, "the frames")
    assert [seq for _, seq, _ in world.got] == list(range(1, 11))


def test_a_post_that_is_too_large_is_halved(world: World) -> None:
    world.console.no = lambda data: (413, {"detail": "Too large."}, {}) if len(data) > 2**20 else None
    world.write(40, body=b"x" * 2**17)
    world.sender.start()
    world.wait(world.arrived, "the frames")
    assert world.console.posts.count(413) == 3


def test_a_wrong_secret_is_visible_and_nothing_is_lost(world: World) -> None:
    world.console.secret = "another"
    world.write(5)
    world.sender.start()
    world.wait(lambda: world.sender.state == "refused", "the word refused")
    assert world.sender.fault == "No agent has this secret."
    world.console.secret = SECRET
    world.wait(world.arrived, "the frames")


def test_frames_that_are_rejected_stay_and_say_why(world: World) -> None:
    said = {"detail": "frames[0]: wrong.", "faults": [{"path": "frames[0].entry", "message": "entry is 9"}]}
    world.console.no = lambda data: (422, said, {})
    world.write(5)
    world.sender.start()
    world.wait(lambda: world.sender.state == "rejected", "the word rejected")
    assert world.sender.fault == "frames[0]: wrong.; frames[0].entry: entry is 9"
    assert world.spool.unsent_frames == 5
    world.console.no = lambda data: None
    world.wait(world.arrived, "the frames")


def test_answer_without_accepted_seq_counts_as_absent(world: World) -> None:
    world.console.no = lambda data: (200, {"hello": "world"}, {})
    world.write(1)
    world.sender.start()
    world.wait(lambda: "is no console" in world.sender.fault, "the words")
    assert world.spool.unsent_frames == 1


@pytest.mark.parametrize("part", [b"", b'{"accepted_seq"'])
def test_answer_that_was_cut_off_is_none(part: bytes) -> None:
    """As of a console that goes away in the middle of it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as posted:
                while posted.readline() != b"frames\n":
                    pass
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n" + part)

        thread = threading.Thread(target=answer)
        thread.start()
        client = Client(f"http://127.0.0.1:{listener.getsockname()[1]}", secret=SECRET)
        with pytest.raises(ConsoleUnreachable, match="does not answer"):
            client.frames(b"frames\n")
        thread.join()


def test_new_receiver_gets_the_rest_and_nothing_twice(world: World) -> None:
    world.console.commits = 3
    world.write(10)
    world.sender.start()
    world.wait(world.arrived, "10 frames")
    world.sender.stop(0)
    other = World.__new__(World)
    other.got = []
    relay = FakeConsole(other._take)
    relay.start()
    try:
        world.write(5)
        world.sender = world.new_sender(route=relay.url)
        world.sender.start()
        world.wait(lambda: world.sender.state == "moving", "the word moving")
        assert "waiting until the frames sent to console are committed" in world.sender.fault
        assert other.got == []
        world.sender.reconcile(15, 15, None)
        world.write(5)
        world.wait(lambda: len(other.got) == 5, "the rest at the relay")
    finally:
        world.sender.stop(0)
        relay.stop()
    assert [epoch for _, _, epoch in world.got] == list(range(1, 16))
    assert [(seq, epoch) for _, seq, epoch in other.got] == [(i, 15 + i) for i in range(1, 6)]
