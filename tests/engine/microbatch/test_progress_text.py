"""Progress is found in whatever people have of it; what is left out is named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.errors import DocumentError
from engine.microbatch.progress_text import read_progress_text
from tests.engine.microbatch.test_progress import progress

GIVEN = (progress(0, name="orders"), progress(1, name="it's ok"))
MARK = "26/03/01 08:00:02 INFO MicroBatchExecution: Streaming query made progress: "


def indented(document: Any) -> str:
    return json.dumps(document, indent=2)


def logged(document: Any) -> str:
    return f"26/03/01 08:00:01 INFO Executor: Finished task 0.0 {{x}}\n{MARK}{indented(document)}\n"


WRAPPINGS = {
    "printed objects": "\n".join(map(indented, GIVEN)),
    "printed with prompts": "scala> q.recentProgress.foreach(println)\n" + "\n".join(map(indented, GIVEN)) + "\nscala>",
    "objects in one line": "".join(map(json.dumps, GIVEN)),
    "objects with commas": ",\n".join(map(indented, GIVEN)),
    "json text sequence": "".join(f"\x1e{json.dumps(document)}\n" for document in GIVEN),
    "literals of Python": "\n".join(map(repr, GIVEN)),
    "a list of Python": repr(list(GIVEN)),
    "a driver's log": "".join(map(logged, GIVEN)),
    "a log with times before each line": "".join(
        f"2026-03-01T08:00:02.123456789Z {line}\n" for line in "".join(map(logged, GIVEN)).splitlines()
    ),
    "a log of compose": "".join(f"driver-1  | {line}\n" for line in "".join(map(logged, GIVEN)).splitlines()),
    "a structured log": "\n".join(
        json.dumps({"ts": "2026", "level": "INFO", "msg": f"Streaming query made progress: {indented(document)}"})
        for document in GIVEN
    ),
    "windows lines": "\r\n".join(map(json.dumps, GIVEN)),
}


@pytest.mark.parametrize("text", WRAPPINGS.values(), ids=WRAPPINGS)
def test_usual_wrapping_is_read(text: str) -> None:
    assert read_progress_text(text).documents == GIVEN


def test_words_between_objects_are_told() -> None:
    left_out = read_progress_text(WRAPPINGS["printed with prompts"]).left_out
    assert [str(fault) for fault in left_out] == ["line 1: 2 lines without JSON from there on"]


@pytest.mark.parametrize("kept", [0.2, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("write", [json.dumps, indented, logged])
def test_end_that_was_cut_off_is_left_out_and_named(write: Any, kept: float) -> None:
    last = write(GIVEN[1])
    begins = last.index("{\n") if "{\n" in last else 0
    text = "\n".join([write(GIVEN[0]), last[: begins + int(kept * (len(last.rstrip()) - begins))]])
    read = read_progress_text(text)
    assert read.documents == GIVEN[:1]
    assert "it ends in the middle" in str(read.left_out[0])


def test_damaged_line_among_many_is_left_out_and_named() -> None:
    lines = [json.dumps(progress(number)) for number in range(20)]
    lines[4] = '{"id": oops}'
    read = read_progress_text("\n".join(lines))
    assert len(read.documents) == 19
    assert [fault.path for fault in read.left_out] == ["line 5"]


def test_text_that_is_mostly_damaged_is_refused_with_each_line() -> None:
    lines = [json.dumps(progress(0)), '{"id": oops}', '{"id": oops}']
    with pytest.raises(DocumentError) as refused:
        read_progress_text("\n".join(lines))
    assert [fault.path for fault in refused.value.faults] == ["line 2", "line 3"]
    assert "allowed: StreamingQueryProgress as JSON" in refused.value.faults[0].message
