"""Range answers of Prometheus become arrivals and latencies; NaN, errors and what is no range are said."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from engine.connectors.answers import Answers
from engine.connectors.prometheus import (
    MAX_POINTS,
    PROMETHEUS_ANSWERS,
    RangeWindow,
    read_counts,
    read_latency,
    read_range,
)
from engine.errors import DocumentError
from tests.engine.connectors.recordings import DATA

WINDOW = RangeWindow(1000.0, 1060.0, 5.0)
TIMES = [1000.0 + 5.0 * i for i in range(13)]


def matrix(*series: tuple[dict[str, str], list[tuple[float, Any]]], **more: Any) -> dict[str, Any]:
    rows = [{"metric": labels, "values": [[t, str(v)] for t, v in samples]} for labels, samples in series]
    return {"status": "success", "data": {"resultType": "matrix", "result": rows}} | more


def query_of(path: str) -> str:
    return parse_qs(urlsplit(path).query)["query"][0]


def test_a_stretch_of_too_many_points_has_a_larger_step() -> None:
    window = RangeWindow.of(0.0, 86_400.0, 1.0)
    assert window.step_s == 10.0
    assert 86_400.0 / window.step_s + 1 <= MAX_POINTS


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"status": "error", "errorType": "bad_data", "error": "1:9: parse error"}, r"bad_data: 1:9: parse error"),
        ("<html>", "no JSON of Prometheus"),
        ({"jobs": []}, "no JSON of Prometheus"),
        ({"errors": ["prometheus answers 404: not here"]}, r"with an error \(prometheus answers 404: not here\)"),
        ({"status": "success", "data": {"resultType": "scalar", "result": [1, "2"]}}, "allowed: matrix or vector"),
        (
            {"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {}, "histograms": []}]}},
            "native histogram",
        ),
    ],
)
def test_what_is_no_range_of_numbers_is_refused_in_clear_words(answer: Any, words: str) -> None:
    path = WINDOW.path("x_total")
    with pytest.raises(DocumentError, match=words):
        read_latency({path: answer}, path)


def test_warnings_of_the_server_are_shown() -> None:
    path = WINDOW.path("x_total")
    _, findings = read_latency({path: matrix(warnings=["exceeded sample limit"])}, path)
    assert any("exceeded sample limit" in str(finding.message) for finding in findings)


def test_offsets_of_a_topic_are_arrivals_whatever_the_job_does() -> None:
    path = WINDOW.path("kafka_topic_partition_current_offset")
    first = ({"partition": "0"}, [(t, 10.0 * (t - 1000)) for t in TIMES])
    recreated = ({"partition": "1"}, [(t, 500.0 if t < 1030 else t - 1030) for t in TIMES])
    counts, findings = read_counts({path: matrix(first, recreated)}, path, "v1", step_s=5.0)
    assert counts is not None and counts.origin == "offsets" and findings == ()
    assert counts.counts[:3] == pytest.approx((50.0,) * 3)
    assert counts.counts[-1] == pytest.approx(55.0)


def counted(*series: Any, step_s: float = 5.0, **more: Any) -> tuple[list[Any], dict[str, str]]:
    path = WINDOW.path("kafka_topic_partition_current_offset")
    counts, findings = read_counts({path: matrix(*series, **more)}, path, "v1", step_s=step_s)
    return list(counts.counts) if counts else [], {finding.code: str(finding.message) for finding in findings}


def test_partition_that_two_exporters_tell_counts_once() -> None:
    rows = [
        ({"topic": "in", "partition": p, "instance": f"exporter-{i}"}, [(t, 1e6 + 20.0 * (t - 1000)) for t in TIMES])
        for p in ("0", "1")
        for i in range(2)
    ]
    counts, findings = counted(*rows)
    assert counts == pytest.approx([200.0] * 12) and "2 partitions" in findings["offsets_twice"]


def test_exporter_that_lags_or_is_missing_for_a_while_takes_nothing_away() -> None:
    first = ({"partition": "0", "pod": "a"}, [(t, 20.0 * (t - 1000)) for t in TIMES if t not in (1020.0, 1025.0)])
    lagging = ({"partition": "0", "pod": "b"}, [(t, max(0.0, 20.0 * (t - 1005))) for t in TIMES])
    counts, _ = counted(first, lagging)
    assert sum(counts) == pytest.approx(1200.0)


def test_equal_partitions_of_two_clusters_both_count_and_are_told() -> None:
    rows = [
        ({"topic": "in", "partition": "0", "kafka_cluster": name}, [(t, base + 20.0 * (t - 1000)) for t in TIMES])
        for name, base in (("a", 1e6), ("b", 1e6))
    ]
    counts, findings = counted(*rows)
    assert counts == pytest.approx([200.0] * 12) and "2 clusters" in findings["offsets_of_several"]


def test_partition_that_joins_or_has_a_gap_counts_what_grew() -> None:
    steady = ({"partition": "0"}, [(t, 10.0 * (t - 1000)) for t in TIMES])
    joins = ({"partition": "1"}, [(t, 5e6 + 10.0 * (t - 1000)) for t in TIMES[6:]])
    gap = ({"partition": "2"}, [(t, 10.0 * (t - 1000)) for t in TIMES if not 1005.0 < t < 1050.0])
    counts, _ = counted(steady, joins, gap)
    assert counts == pytest.approx([100.0] * 6 + [150.0] * 6)


def test_sum_that_jumps_by_what_joins_it_leaves_that_step_out() -> None:
    counts, findings = counted(({}, [(t, 10.0 * (t - 1000) + (5e6 if t >= 1030 else 0.0)) for t in TIMES]))
    assert counts[5] is None and sum(count or 0.0 for count in counts) == pytest.approx(550.0)
    assert "offsets_jump" in findings


def test_answer_of_a_part_of_the_storage_is_told() -> None:
    row = ({"partition": "0"}, [(t, 10.0 * (t - 1000)) for t in TIMES])
    assert "may be too low" in counted(row, isPartial=True)[1]["partial_answer"]
    assert "partial_answer" not in counted(row, isPartial=False)[1]
    assert "zone-b" in counted(row, warnings="store zone-b unavailable")[1]["prometheus_warning"]


def test_series_of_two_prometheus_count_once() -> None:
    known = Answers(
        {"/q": matrix(*[({"a": "1", "prometheus_replica": r}, [(1000.0, 5.0)]) for r in "xy"])}, PROMETHEUS_ANSWERS
    )
    answer = read_range(known, "/q", "rate")
    assert answer is not None and [series.samples for series in answer.series] == [((1000.0, 5.0),)]


def test_stretch_begins_and_ends_at_multiples_of_its_step() -> None:
    window = RangeWindow.of(1_700_000_007.0, 1_700_000_907.0, 15.0)
    assert (window.start_s % 15.0, window.end_s % 15.0, window.steps) == (0.0, 0.0, 60)


def test_a_users_query_is_the_latency_measured_at_each_step() -> None:
    path = WINDOW.path("histogram_quantile(0.99, sum by (le) (rate(latency_bucket[1m])))")
    first = ({"sink": "a"}, [(t, "+Inf" if t == 1010.0 else 0.5 * (1 + (t >= 1030))) for t in TIMES])
    samples, findings = read_latency({path: matrix(first, ({"sink": "b"}, [(1005.0, 0.75), (1015.0, -1.0)]))}, path)
    assert samples[:4] == ((1000.0, 0.5), (1005.0, 0.75), (1015.0, 0.5), (1020.0, 0.5)) and samples[-1] == (1060.0, 1.0)
    assert {finding.code for finding in findings} == {"values_unreadable"}
    with pytest.raises(DocumentError, match="not asked"):
        read_latency({}, path)


RECORDED = sorted((DATA / "prometheus").glob("*.json"))


@pytest.mark.skipif(not RECORDED, reason="no recorded answers (SLUICE_CASES)")
@pytest.mark.parametrize(
    "file", [f for f in RECORDED if f.stem.split("_")[0] in ("range", "instant", "error")], ids=lambda f: f.stem
)
def test_recorded_answers_are_read_or_refused_in_prometheus_words(file: Any) -> None:
    known = Answers({"/q": json.loads(file.read_text())}, PROMETHEUS_ANSWERS)
    answer = read_range(known, "/q", "busy")
    if file.stem.startswith("error"):
        with pytest.raises(DocumentError, match="Prometheus refused the query"):
            known.check()
        return
    known.check()
    assert answer is not None
    if file.stem in ("range_nan", "instant_inf", "instant_div0"):
        assert any(series.unreadable for series in answer.series)
    elif file.stem.startswith("range"):
        assert any(series.samples for series in answer.series)
