"""The spool: atomic records, exact recovery at any file end, bounds, and full disks."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.runtime.spool import Spool, WalRecord, WriterState
from agent.wire import Frame, FrameKind, decode_frames

LIMIT = 2**20


def frame(text: str, size: int = 0) -> Frame:
    return Frame(FrameKind.RECORDS, "agent", life="", seq=1, query=text, body=b"x" * size)


def record(number: int, frames: int = 1, size: int = 0, writer: str = "w") -> WalRecord:
    return WalRecord(writer, {"n": number}, (b"blob" * number,), [frame(f"{number}.{i}", size) for i in range(frames)])


def sent(spool: Spool, most_bytes: int = 2**30) -> list[tuple[int, str, str]]:
    found = []
    for seq, data in spool.unsent(most_bytes):
        (first, _), *others = decode_frames(data)
        assert not others
        assert first.seq == seq
        found.append((seq, first.query, first.life))
    return found


def newest(directory: Path) -> Path:
    return max(directory.glob("*.wal"))


def test_frames_are_numbered_from_one_in_one_order_for_all_writers(tmp_path):
    spool = Spool(tmp_path, LIMIT)
    assert spool.append(record(1, frames=2))
    assert spool.append(record(2, frames=1, writer="relay"))
    assert sent(spool) == [(1, "1.0", spool.life), (2, "1.1", spool.life), (3, "2.0", spool.life)]
    assert [seq for seq, _ in spool.unsent(1)] == [1]
    spool.acknowledged(2)
    assert [seq for seq, *_ in sent(spool)] == [3]
    assert (spool.acked_seq, spool.last_seq, spool.unsent_frames) == (2, 3, 1)
    spool.rewind(1)
    assert [seq for seq, *_ in sent(spool)] == [2, 3]


def test_writer_is_called_once_when_its_record_is_acknowledged(tmp_path):
    spool, heard = Spool(tmp_path, LIMIT), []
    for number in range(4):
        frames = [frame(f"{number}.{i}") for i in range(2)]
        spool.append(WalRecord("w", {}, (), frames, acknowledged=lambda number=number: heard.append(number)))
    spool.acknowledged(3)
    assert heard == [0]
    spool.rewind(0)
    spool.acknowledged(4)
    assert heard == [0, 1]
    spool.renew()  # numbers begin anew
    spool.committed(2)
    assert heard == [0, 1, 2]


def test_writer_restarted_in_the_same_process_finds_its_state(tmp_path):
    spool = Spool(tmp_path, LIMIT)
    spool.append(WalRecord("w", {"n": 1}, snapshot=lambda: WriterState({"upto": 1})))
    spool.append(WalRecord("w", {"n": 2}, snapshot=lambda: WriterState({"upto": 2})))
    assert [stored.notes for stored in spool.recovered("w")] == [{"upto": 2}]
    assert spool.recovered("another") == []


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.data())
@settings(max_examples=60, deadline=None)
def test_a_torn_tail_is_cut_off_at_any_byte(tmp_path_factory, frames, data):
    directory = tmp_path_factory.mktemp("spool")
    spool = Spool(directory, LIMIT, sync=False)
    ends = [spool.used_bytes]
    for number, count in enumerate(frames):
        spool.append(record(number, count, size=10))
        ends.append(spool.used_bytes)
    spool.close()
    cut = data.draw(st.integers(ends[0], ends[-1]))
    os.truncate(newest(directory), cut)
    whole = sum(end <= cut for end in ends[1:])
    again = Spool(directory, LIMIT, sync=False)
    assert [stored.notes["n"] for stored in again.recovered("w")] == list(range(whole))
    assert [query for _, query, _ in sent(again)] == [f"{n}.{i}" for n in range(whole) for i in range(frames[n])]
    assert again.life == spool.life
    again.append(record(99))
    assert sent(again)[-1][:2] == (sum(frames[:whole]) + 1, "99.0")
    again.close()


def test_garbage_behind_the_last_record_is_cut_off(tmp_path):
    spool = Spool(tmp_path, LIMIT)
    spool.append(record(1))
    spool.close()
    with newest(tmp_path).open("ab") as file:
        file.write(b"SLW1" + b"\xff" * 300)
    again = Spool(tmp_path, LIMIT)
    assert len(sent(again)) == 1
    assert newest(tmp_path).stat().st_size == again.used_bytes


def test_old_segments_go_when_committed_and_the_snapshot_stands_for_them(tmp_path):
    spool = Spool(tmp_path, limit_bytes=8 * 4000)
    for number in range(20):
        state = WriterState({"upto": number})
        spool.append(WalRecord("w", {"n": number}, (), [frame(str(number), 1000)], lambda state=state: state))
    before = len(list(tmp_path.glob("*.wal")))
    assert before > 3
    spool.committed(14)
    assert len(list(tmp_path.glob("*.wal"))) < before
    spool.close()
    again = Spool(tmp_path, limit_bytes=8 * 4000)
    first, *later = [stored.notes for stored in again.recovered("w")]
    assert [first["upto"] + 1 + i for i in range(len(later))] == [notes["n"] for notes in later]
    assert later[-1]["n"] == 19
    assert [seq for seq, *_ in sent(again)][-1] == 20
    assert sent(again)[0][0] <= 15
    assert again.committed_seq == sent(again)[0][0] - 1


def test_records_of_an_inactive_writer_are_kept(tmp_path):
    spool = Spool(tmp_path, LIMIT)
    spool.append(record(7, writer="relay"))
    spool.close()
    for number in range(6):
        spool = Spool(tmp_path, limit_bytes=8 * 2000)
        spool.append(record(number, size=2000))
        spool.committed(spool.last_seq)
        spool.close()
    assert [stored.notes["n"] for stored in Spool(tmp_path, LIMIT).recovered("relay")] == [7]


def test_records_before_the_first_snapshot_are_recovered_once(tmp_path):
    """A segment that begins after a restart repeats it, while the one before is still there."""
    spool = Spool(tmp_path, LIMIT)
    for number in (1, 2):
        spool.append(record(number, size=3000))
    for number in (3, 4):
        spool.close()
        spool = Spool(tmp_path, limit_bytes=8 * 2000)  # so that a segment begins
        spool.append(record(number))
        assert [stored.notes["n"] for stored in Spool(tmp_path, LIMIT).recovered("w")] == list(range(1, number + 1))


def test_committed_position_is_known_after_a_restart(tmp_path):
    """A receiver that then asks for older frames must not get those that were committed, in a new life or not."""
    spool = Spool(tmp_path, LIMIT)
    for number in range(6):
        spool.append(record(number))
        spool.committed(number)
    spool.close()
    again = Spool(tmp_path, LIMIT)
    assert (again.committed_seq, again.acked_seq) == (4, 4)
    assert [query for _, query, _ in sent(again)] == ["4.0", "5.0"]
    again.renew()
    assert [(seq, query) for seq, query, _ in sent(again)] == [(1, "4.0"), (2, "5.0")]


def test_states_follow_the_bytes_and_it_empties_again(tmp_path):
    spool = Spool(tmp_path, limit_bytes=80_000)
    seen = []
    for number in range(12):
        if spool.state == "full":
            break
        spool.append(record(number, size=8000))
        seen.append(spool.state)
    assert (seen[0], seen[6], seen[-1]) == ("ok", "filling", "full")
    assert spool.used_bytes <= spool.limit_bytes
    spool.committed(spool.last_seq)
    assert spool.state == "ok"


class FullDisk:
    """Takes some bytes of a write, then no more, until told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, takes: int) -> None:
        self.left, self._write = takes, os.write
        monkeypatch.setattr("agent.runtime.write_ahead_log.os.write", self)

    def __call__(self, descriptor: int, data: memoryview) -> int:
        if not self.left:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = self._write(descriptor, data[: self.left])
        self.left -= written
        return written


def test_one_record_that_fills_it_goes_when_it_is_committed(tmp_path):
    spool = Spool(tmp_path, 2**16, sync=False)
    spool.append(record(1, size=2**16))
    spool.acknowledged(1)
    assert spool.state == "full", "it may be asked for again"
    spool.committed(1)
    assert spool.state == "ok"
    spool.append(record(2))
    assert [text for _, text, _ in sent(spool)] == ["2.0"]
    spool.close()


@pytest.mark.parametrize("takes", [0, 1, 40, 200])
def test_append_to_a_full_disk_fails_and_can_be_repeated(tmp_path, monkeypatch, takes):
    spool = Spool(tmp_path, LIMIT)
    spool.append(record(1))
    disk = FullDisk(monkeypatch, takes)
    assert not spool.append(record(2, size=1000))
    assert spool.state == "disk-full"
    assert "No space left" in spool.fault
    assert newest(tmp_path).stat().st_size == spool.used_bytes
    disk.left = LIMIT
    assert spool.append(record(2, size=1000))
    assert (spool.state, spool.fault) == ("ok", "")
    spool.close()
    assert [query for _, query, _ in sent(Spool(tmp_path, LIMIT))] == ["1.0", "2.0"]


def test_disk_that_fills_between_segments_keeps_the_last_one(tmp_path, monkeypatch):
    spool = Spool(tmp_path, limit_bytes=8000)
    spool.append(record(1, size=1200))
    disk = FullDisk(monkeypatch, takes=10)
    assert not spool.append(record(2))
    disk.left = LIMIT
    assert spool.append(record(2))
    assert len(list(tmp_path.iterdir())) == 3
    assert [query for _, query, _ in sent(spool)] == ["1.0", "2.0"]


@pytest.mark.parametrize("failing", ["", ".wal"])  # the folder, to make the new name last; the new segment itself
def test_a_segment_that_cannot_be_opened_leaves_the_one_before(tmp_path, monkeypatch, failing):
    spool = Spool(tmp_path, LIMIT, sync=False)
    while spool.used_bytes < LIMIT // 8:
        assert spool.append(record(1, size=10_000))
    before, really_open = newest(tmp_path), os.open

    def refuse(path, *arguments):
        if Path(path).suffix == failing:
            raise OSError(errno.EMFILE, "Too many open files")
        return really_open(path, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr("agent.runtime.spool.segment_bytes", lambda *_: LIMIT // 8)
        patch.setattr("agent.runtime.spool.os.open", refuse)
        assert not spool.append(record(2))
        assert "Too many open files" in spool.fault
        assert newest(tmp_path) == before
    monkeypatch.setattr("agent.runtime.spool.segment_bytes", lambda *_: LIMIT)  # as with more room on the disk
    assert spool.append(record(3))
    last = spool.last_seq
    spool.close()
    again = Spool(tmp_path, LIMIT, sync=False)
    assert (again.last_seq, again.recovered("w")[-1].notes, again.faults) == (last, {"n": 3}, [])


def test_disk_filled_by_the_spool_empties_after_commits(tmp_path, monkeypatch):
    """A disk much smaller than the limit: what is committed must go although nothing can be written before."""
    disk = 2**20

    def used():
        return sum(path.stat().st_size for path in tmp_path.iterdir())

    def write(descriptor, data, real=os.write):
        if used() + len(data) > disk:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data)

    spool = Spool(tmp_path, 2**26)
    monkeypatch.setattr("agent.runtime.write_ahead_log.os.write", write)
    monkeypatch.setattr(
        "agent.runtime.write_ahead_log.shutil.disk_usage", lambda _: SimpleNamespace(free=disk - used())
    )
    for _ in range(3):
        while spool.append(record(1, size=10_000)):
            pass
        assert (spool.state, spool.append(record(1, size=10_000))) == ("disk-full", False)
        spool.committed(spool.last_seq)
        assert spool.append(record(1, size=10_000))
        assert spool.state == "ok"


def test_loss_of_committed_frames_starts_a_new_generation(tmp_path):
    spool = Spool(tmp_path, limit_bytes=8 * 1000)
    for number in range(6):
        spool.append(record(number, size=1000))
    old = spool.life
    spool.committed(3)
    kept = sent(spool)
    spool.rewind(0)
    assert spool.life != old
    assert sent(spool) == [(i + 1, query, spool.life) for i, (_, query, _) in enumerate(kept)]
    assert "are gone" in spool.faults[0]
    spool.append(record(6))
    spool.acknowledged(1)
    expected = sent(spool)
    spool.close()
    again = Spool(tmp_path, limit_bytes=8 * 1000)
    again.acknowledged(1)
    assert sent(again) == expected
    assert expected[-1] == (len(kept) + 1, "6.0", spool.life)


def test_damaged_segment_is_named_and_later_segments_are_read(tmp_path):
    spool = Spool(tmp_path, limit_bytes=8 * 1000)
    for number in range(4):
        spool.append(record(number, size=1000))
    spool.close()
    first = min(tmp_path.glob("*.wal"))
    data = bytearray(first.read_bytes())
    data[-10] ^= 1
    first.write_bytes(data)
    again = Spool(tmp_path, limit_bytes=8 * 1000)
    assert again.faults[0].startswith(f"{first.name} is damaged at byte")
    assert [query for _, query, _ in sent(again)] == ["1.0", "2.0", "3.0"]
    assert sent(again)[0][0] == 2
