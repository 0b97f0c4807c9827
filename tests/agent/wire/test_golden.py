"""Frames have the bytes that were recorded, and what was recorded is read: agents and spools outlive a release."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from agent.wire import (
    ARRIVAL_SUMS,
    COST_SUMS,
    COUNTERS,
    REFINEMENTS,
    STATISTICS,
    SWEEPS,
    WATERMARKS,
    Frame,
    FrameKind,
    batch_bytes,
    decode_frames,
    encode_frame,
    table_of,
    variation_columns,
    variation_extra,
)
from tests.golden import GoldenRecord

FRAMES = GoldenRecord(Path(__file__).with_name("golden"))
EPOCH_US = 1_780_000_000_000_000
ROWS = 3


def _column(field: pa.Field, at: int) -> pa.Array:
    """Values by type and place, which differ from those of its neighbours; every field that may be has a null."""
    kind = field.type
    rows = range(ROWS)
    if pa.types.is_list(kind):
        items = _column(pa.field(field.name, kind.value_type), at).to_pylist()
        return pa.array([items[:row] for row in rows], kind)
    if pa.types.is_string(kind):
        return pa.array([f"{field.name}-{row}" for row in rows], kind)
    if pa.types.is_boolean(kind):
        return pa.array([row % 2 == 0 for row in rows], kind)
    if pa.types.is_floating(kind):
        return pa.array([(at + 1) / (row + 3) for row in rows], kind)
    first = EPOCH_US if field.name.endswith("_us") else 0
    return pa.array([first + at + 7 * row for row in rows], kind)


def _table(schema: pa.Schema, *, with_nulls: bool = False) -> pa.Table:
    columns = [_column(field, at) for at, field in enumerate(schema)]
    if with_nulls:
        columns = [pa.array([*column.to_pylist()[:-1], None], column.type) for column in columns]
    return pa.table(columns, schema=schema)


def _sums(names: tuple[str, ...]) -> list[list[float]]:
    return [[(at + 1) * 1.25 + row for at in range(len(names))] if row < 2 else [] for row in range(ROWS)]


BODIES = {
    "counters": _table(COUNTERS),
    "statistics": _table(STATISTICS),
    "refined": _table(REFINEMENTS, with_nulls=True),
    "sweeps": _table(SWEEPS, with_nulls=True),
    "watermarks": _table(WATERMARKS, with_nulls=True),
    "records": pa.table({"host": ["a", "b", None], "rtt": [1.5, 2.5, -0.0], "n": [1, 2, 3]}),
}
_MARK = {"watermarks": {"0": EPOCH_US, "1": EPOCH_US - 5}, "closing_epoch_us": EPOCH_US, "left_out": ["a2"]}


def _frame(kind: FrameKind, seq: int, body: str = "", **more: Any) -> Frame:
    data = batch_bytes(BODIES[body]) if body else b""
    return Frame(kind, "agent-1", "life-1", seq, query="lab/rtt", plan="0" * 64, epoch=EPOCH_US, body=data, **more)


GOLDEN_FRAMES = {
    "records": _frame(FrameKind.RECORDS, 1, "records", entry=2),
    "partials": _frame(FrameKind.PARTIALS, 2, "records", entry=3, extra={"window_us": EPOCH_US}),
    "checkpoint": _frame(FrameKind.CHECKPOINT, 3, "records", entry=3),
    "mark": _frame(FrameKind.MARK, 4, extra=_MARK),
    "counters": _frame(FrameKind.COUNTERS, 5, "counters", extra=variation_extra(_sums(COST_SUMS), _sums(ARRIVAL_SUMS))),
    "sweeps": _frame(FrameKind.SWEEPS, 7, "sweeps"),
    "result": _frame(FrameKind.RESULT, 8, "records", extra={"query": "lab/rtt", "é": "ü"}),
    "statistics": _frame(FrameKind.STATISTICS, 9, "statistics"),
    "refined": _frame(FrameKind.REFINED, 11, "refined"),
    "watermarks": _frame(FrameKind.WATERMARKS, 12, "watermarks"),
    "least": Frame(FrameKind.MARK, "a", "l", 1),
}


def test_every_kind_of_frame_is_recorded() -> None:
    assert {frame.kind for frame in GOLDEN_FRAMES.values()} == set(FrameKind)


def test_frames_have_the_recorded_bytes() -> None:
    """RECORD_GOLDEN=1 writes the record anew: agents of before then send other bytes than those of now."""
    encoded = {name: encode_frame(frame) for name, frame in GOLDEN_FRAMES.items()}
    FRAMES.check("frames", {name: [base64.b64encode(data).decode()] for name, data in encoded.items()})


@pytest.mark.parametrize("name", GOLDEN_FRAMES)
def test_recorded_frame_is_read(name: str) -> None:
    data = base64.b64decode(FRAMES.answers("frames")[name][0])
    ((frame, own),) = decode_frames(data)
    assert (frame, bytes(own)) == (GOLDEN_FRAMES[name], data)


@pytest.mark.parametrize("name", BODIES)
def test_recorded_body_is_read(name: str) -> None:
    frame = next(key for key, frame in GOLDEN_FRAMES.items() if frame.body == batch_bytes(BODIES[name]))
    ((frame, _),) = decode_frames(base64.b64decode(FRAMES.answers("frames")[frame][0]))
    table = table_of(frame.body)
    assert table.schema.equals(BODIES[name].schema)
    assert table.to_pylist() == BODIES[name].to_pylist()


def test_recorded_sums_are_read() -> None:
    data = base64.b64decode(FRAMES.answers("frames")["counters"][0])
    ((frame, _),) = decode_frames(data)
    columns = variation_columns(frame.extra, ROWS)
    for names in (COST_SUMS, ARRIVAL_SUMS):
        assert [columns[name] for name in names] == [
            [row[at] if row else 0.0 for row in _sums(names)] for at in range(len(names))
        ]
