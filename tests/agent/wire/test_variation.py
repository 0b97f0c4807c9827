"""Sums of variation in headers of counters: there and back, within bounds, and left alone by who does not know them."""

from __future__ import annotations

from typing import Any

import pytest

from agent.wire import (
    ARRIVAL_SUMS,
    COST_SUMS,
    Frame,
    FrameKind,
    decode_frames,
    encode_frame,
    variation_columns,
    variation_extra,
    variation_fault,
)

COSTS = [12.0, 3400.0, 0.0123456789, 1.2e6, 4.25, 1.5e-5]
ARRIVALS = [4.0, 12.5, 80.0, 0.8, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]


def through_a_frame(extra: dict[str, Any]) -> dict[str, Any]:
    data = encode_frame(Frame(FrameKind.COUNTERS, "a", "l", 1, extra=extra, body=b"x"))
    ((frame, _),) = decode_frames(data)
    return dict(frame.extra)


def test_sums_come_back_row_by_row() -> None:
    extra = through_a_frame(variation_extra([COSTS, [], COSTS], [ARRIVALS, [], []]))
    columns = variation_columns(extra, 3)
    assert [[columns[name][i] for name in COST_SUMS] for i in range(3)] == [
        pytest.approx(COSTS, rel=1e-8),
        [0.0] * 6,
        pytest.approx(COSTS, rel=1e-8),
    ]
    assert [columns[name][0] for name in ARRIVAL_SUMS] == pytest.approx(ARRIVALS)
    assert not any(columns[name][2] for name in ARRIVAL_SUMS)


def test_nothing_is_said_of_nothing_and_frames_without_it_have_zeros() -> None:
    assert variation_extra([[], []], [[], []]) == {}
    columns = variation_columns({"origin": "b"}, 2)
    assert set(columns) == {*COST_SUMS, *ARRIVAL_SUMS}
    assert all(column == [0.0, 0.0] for column in columns.values())


def test_rows_beyond_what_a_header_holds_have_none() -> None:
    rows = 400
    extra = through_a_frame(variation_extra([COSTS] * rows, [[]] * rows))
    told = sum(count > 0 for count in variation_columns(extra, rows)["runs"])
    assert 100 < told < rows


def test_another_version_is_left_alone() -> None:
    extra = {"variation": {"v": 2, "costs": "elsewhere"}}
    assert variation_fault(extra) == ""
    assert not any(variation_columns(extra, 1)["runs"])


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (7, "variation is 7"),
        ({"v": 1}, "variation.costs is None"),
        ({"v": 1, "costs": [], "arrivals": {}}, "variation.arrivals is {}"),
        ({"v": 1, "costs": [[1, 2]], "arrivals": []}, "variation.costs[0] is [1, 2]; allowed: none or 6 numbers"),
        ({"v": 1, "costs": [[-1] * 6], "arrivals": []}, "variation.costs[0]"),
        ({"v": 1, "costs": [[True] * 6], "arrivals": []}, "variation.costs[0]"),
        ({"v": 1, "costs": [[float("nan")] * 6], "arrivals": []}, "variation.costs[0]"),
        ({"v": 1, "costs": [[10**300] * 6], "arrivals": []}, "variation.costs[0]"),
        ({"v": 1, "costs": [], "arrivals": [[], ["1"] * 12]}, "variation.arrivals[1]"),
    ],
)
def test_sums_that_cannot_be_are_named(told: Any, words: str) -> None:
    assert variation_fault({"variation": told}).startswith(words)
    with pytest.raises(ValueError, match=r"extra\.variation"):
        variation_columns({"variation": told}, 5)


def test_sums_of_more_rows_than_there_are_are_refused() -> None:
    with pytest.raises(ValueError, match=r"costs has 2 items; allowed: 1, the rows of the body"):
        variation_columns(variation_extra([COSTS, COSTS], [[], []]), 1)
