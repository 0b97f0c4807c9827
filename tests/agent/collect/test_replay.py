"""Replays of recorded files: formats, pace, rounds, going on from any position."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from agent.collect import Collector
from agent.settings import ReadableFolders
from tests.agent.collect.collectors import collector_of

START_US = 1_700_000_000_000_000
FILE_US = 1_600_000_000_000_000
COLUMNS = {"ts": "timestamp", "host": "string", "ms": "float64"}
ROWS = [(FILE_US + i * 250_000, f"h{i % 3}", i / 4) for i in range(40)]


def csv_text(delimiter: str = ",") -> str:
    lines = [delimiter.join(("time", "host", "ms", "spare"))]
    lines += [delimiter.join((f"{us / 1e6:.6f}", host, str(ms), "x")) for us, host, ms in ROWS]
    return "\n".join(lines) + "\n"


def replay(path: Path, columns: dict[str, str] = COLUMNS, lateness_s: float = 0.0, **options: Any) -> Collector:
    given = {"path": str(path), "time_column": "time"} | options
    options = {k: v for k, v in given.items() if v is not None}
    readable = ReadableFolders([path.parent])
    return collector_of("replay", options, columns, lateness_s=lateness_s, readable=readable, name="r")


def drained(source: Collector, now_us: int, most: int = 10**9) -> list[dict[str, Any]]:
    table = pa.Table.from_batches(source.poll(now_us, most), source.schema)
    at = table.schema.get_field_index("ts")
    return table.set_column(at, "ts", table["ts"].cast(pa.int64())).to_pylist()


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    path = tmp_path / "recorded.csv"
    path.write_text(csv_text())
    return path


def test_event_times_begin_when_the_replay_does(recorded: Path) -> None:
    source = replay(recorded)
    assert drained(source, START_US) == [{"host": "h0", "ms": 0.0, "ts": START_US}]
    rows = drained(source, START_US + 1_000_000)
    assert [row["ts"] - START_US for row in rows] == [250_000, 500_000, 750_000, 1_000_000]
    assert source.watermark_us() == START_US + 1_250_000


def test_the_files_own_times_at_twice_the_speed(recorded: Path) -> None:
    source = replay(recorded, speed=2, rebase=False)
    drained(source, START_US, most=1)
    rows = drained(source, START_US + 1_000_000)
    assert [row["ts"] for row in rows] == [us for us, _, _ in ROWS[1:9]]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.csv.gz", "a.tsv.xz", "a.arrow", "a.arrow.gz"])
def test_format_follows_the_file_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if ".arrow" in name:
        schema = pa.schema([("time", pa.timestamp("ms")), ("host", pa.string()), ("ms", pa.float32())])
        rows = [{"time": us // 1000, "host": host, "ms": ms} for us, host, ms in ROWS]
        sink = pa.BufferOutputStream()
        new = pa.ipc.new_file if name.endswith("arrow") else pa.ipc.new_stream
        with new(sink, schema) as writer:
            writer.write(pa.RecordBatch.from_pylist(rows, schema=schema))
        data = sink.getvalue().to_pybytes()
    else:
        data = csv_text("\t" if ".tsv" in name else ",").encode()
    pack = gzip.compress if name.endswith(".gz") else lzma.compress if name.endswith(".xz") else bytes
    path.write_bytes(pack(data))
    source = replay(path, rebase=False)
    source.poll(START_US, 0)
    assert [(row["ts"], row["host"], row["ms"]) for row in drained(source, START_US + 10**9)] == ROWS
    assert source.report()["state"] == "ended"
    assert source.watermark_us() == START_US + 10**9


@pytest.mark.parametrize("options", [{}, {"loop": True}, {"rebase": False}, {"rate_per_s": 7.0}, {"speed": 0.5}])
def test_collector_continues_exactly_from_any_position(recorded: Path, options: dict[str, Any]) -> None:
    whole = replay(recorded, **options)
    whole.poll(START_US, 0)
    until_us = START_US + 25_000_000
    wanted = drained(whole, until_us)
    for taken in (0, 1, 17, 39, 40, 41, 79):
        first = replay(recorded, **options)
        first.poll(START_US, 0)
        begin = drained(first, until_us, most=taken)
        second = replay(recorded, **options)
        second.seek(first.position())
        assert begin + drained(second, until_us) == wanted, taken
        assert second.watermark_us() == whole.watermark_us()


def test_replay_rounds_follow_each_other_without_a_jump(recorded: Path) -> None:
    source = replay(recorded, loop=True)
    source.poll(START_US, 0)
    rows = drained(source, START_US + 60_000_000)
    assert [row["ts"] - START_US for row in rows] == [i * 250_000 for i in range(241)]
    assert [row["host"] for row in rows[40:43]] == ["h0", "h1", "h2"]


def test_replay_of_another_file_starts_at_its_beginning(recorded: Path) -> None:
    source = replay(recorded)
    source.poll(START_US, 10)
    position = source.position()
    recorded.write_text(csv_text() + "1600000100,h9,1.0,x\n")
    with pytest.raises(ValueError, match="has changed"):
        replay(recorded).seek(position)


def test_lines_with_and_without_their_own_times(tmp_path: Path) -> None:
    path = tmp_path / "old.log"
    path.write_text("began\n" + "".join(f"[2020-01-01T00:00:0{i}Z] line {i}\n" for i in range(5)))
    columns = {"ts": "timestamp", "line": "string"}
    timed = replay(path, columns, time_column=None, time_pattern=r"\[(.*?)\]", rebase=False)
    timed.poll(START_US, 0)
    rows = drained(timed, START_US + 10**8)
    assert [row["ts"] - rows[0]["ts"] for row in rows] == [0, 0, 1_000_000, 2_000_000, 3_000_000, 4_000_000]
    even = replay(path, columns, time_column=None, rate_per_s=2.0)
    even.poll(START_US, 0)
    assert [row["ts"] - START_US for row in drained(even, START_US + 1_000_000)] == [0, 500_000, 1_000_000]


def test_records_out_of_order_come_in_the_files_order(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("time,host,ms\n10,a,0\n12,b,0\n11,c,0\n13,d,0\n")
    source = replay(path, lateness_s=1.0)
    source.poll(START_US, 0)
    rows = drained(source, START_US + 2_000_000)
    assert [(row["host"], row["ts"] - START_US) for row in rows] == [("a", 0), ("b", 2_000_000), ("c", 1_000_000)]
    assert source.watermark_us() == START_US + 2_000_000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("time,host\n1,a\n", "ms"),
        ("time,host,ms\n1,a,fast\n", "fast"),
        ("time,host,ms\nnoon,a,1\n", "time has no time that can be read in record 0"),
    ],
)
def test_a_file_that_cannot_be_replayed_says_why(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    source = replay(path)
    assert drained(source, START_US) == []
    assert source.report()["state"] == "failed"
    assert words in source.report()["faults"][0]


def test_missing_file_is_a_fault_until_it_appears(tmp_path: Path) -> None:
    source = replay(tmp_path / "none.csv")
    assert drained(source, START_US) == []
    assert "No such file" in source.report()["faults"][0]


def test_rows_of_the_wrong_width_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("time,host,ms\n1,a,1\n2,b\n3,c,3\n")
    source = replay(path)
    source.poll(START_US, 0)
    assert [row["host"] for row in drained(source, START_US + 10**7)] == ["a", "c"]
    assert source.report()["faults"] == ["1 rows with too few or too many columns are left out"]
