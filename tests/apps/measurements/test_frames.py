"""Reports of the stream processor are kept once, replaced by later batches, and bounded."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest
from django.utils import timezone

from agent.wire.frames import Frame, FrameKind
from agent.wire.schemas import COUNTERS, batch_bytes
from agent.wire.sums import SUM_NAMES
from apps.core.errors import Impossible, Malformed
from apps.measurements.frames import statistics_receive
from apps.measurements.models import StatisticsHour, StatisticsWindow
from apps.measurements.subintervals import KEEP_HOURS, KEEP_WINDOWS, MAX_WINDOWS, kept_from, statistics_purge
from apps.queries.models import Query
from spark_jobs.statistics.subintervals import SUM_ROWS, CounterFrame, epoch_rows, statistics_rows
from tests.apps.domain import make_cluster, make_query
from tests.apps.measurements.frames import NOW, row, statistics_frame

pytestmark = [pytest.mark.django_db, pytest.mark.moment]


@pytest.fixture
def query() -> Query:
    return make_query(make_cluster())


def test_duplicate_frame_changes_nothing(query: Query) -> None:
    frame = statistics_frame(row("parse"), row("count"), row("parse", place="a-1"))
    assert statistics_receive([frame]) == 3
    before = list(StatisticsWindow.objects.order_by("pk").values())
    assert statistics_receive([frame]) == 0
    assert list(StatisticsWindow.objects.order_by("pk").values()) == before


def test_later_batch_replaces_an_earlier_one_only(query: Query) -> None:
    statistics_receive([statistics_frame(row(records_out=10, batch=5))])
    assert statistics_receive([statistics_frame(row(records_out=7, batch=4))]) == 0
    assert StatisticsWindow.objects.get().records_out == 10
    assert statistics_receive([statistics_frame(row(records_out=11, batch=6))]) == 1
    assert (StatisticsWindow.objects.get().records_out, StatisticsWindow.objects.get().batch) == (11, 6)


def test_latest_batch_of_a_post_counts(query: Query) -> None:
    rows = [row(records_out=1, batch=2), row(records_out=9, batch=3), row(records_out=1, batch=1)]
    assert statistics_receive([statistics_frame(row, seq=i + 1) for i, row in enumerate(rows)]) == 1
    assert StatisticsWindow.objects.get().records_out == 9


def test_relayed_records_are_no_events(query: Query) -> None:
    counts = {"records_in": 100, "records_processed": 50, "records_drained": 30, "records_overflow": 20}
    statistics_receive([statistics_frame(row(**counts))])
    found = StatisticsWindow.objects.get()
    assert (found.records_processed, found.records_drained, found.records_overflow) == (50, 30, 20)
    assert found.cpu_ns == 2_000_000


def test_backlog_of_the_previous_subinterval_counts_as_processed(query: Query) -> None:
    counts = {"records_in": 100, "records_processed": 140, "records_drained": 90, "records_overflow": 20}
    statistics_receive([statistics_frame(row(**counts))])
    found = StatisticsWindow.objects.get()
    assert (found.records_in, found.records_processed) == (100, 140)
    assert (found.records_drained, found.records_overflow) == (90, 20)


def test_rows_of_deleted_queries_are_ignored(query: Query) -> None:
    assert statistics_receive([statistics_frame(row(query="eu-1/gone"), row(query="odd"), row())]) == 1


def test_every_invalid_row_is_named(query: Query) -> None:
    rows = [
        row(),
        row(cpu_ns=-1),
        row(place=""),
        row(records_processed=-1),
        row(cost_sum=float("nan")),
    ]
    with pytest.raises(Impossible) as caught:
        statistics_receive([statistics_frame(*rows)])
    named = [fault.path for fault in caught.value.faults]
    assert named == ["rows[1].cpu_ns", "rows[2].place", "rows[3].records_processed", "rows[4].cost_sum"]
    assert not StatisticsWindow.objects.exists()


def test_clock_far_ahead_does_not_block_other_rows(query: Query) -> None:
    assert statistics_receive([statistics_frame(row(place="skewed", ago_s=-7200), row(place="right"))]) == 1
    assert StatisticsWindow.objects.get().place == "right"


def test_frame_with_another_schema_is_refused(query: Query) -> None:
    body = batch_bytes(pa.table({"a": [1]}))
    with pytest.raises(Malformed, match="another schema"):
        statistics_receive([Frame(FrameKind.STATISTICS, "stream", "1", 1, body=body)])
    with pytest.raises(Malformed, match="cannot be read"):
        statistics_receive([Frame(FrameKind.STATISTICS, "stream", "1", 1, body=b"\0" * 40)])


def test_subinterval_outside_the_calendar_is_refused(query: Query) -> None:
    with pytest.raises(Impossible, match="window_us"):
        statistics_receive([statistics_frame(row() | {"window_us": 2**60})])


def test_old_subintervals_are_rolled_up_once(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timezone, "now", lambda: NOW)
    rows = [row(ago_s=600.0 * i, records_out=i) for i in range(1, 13)]  # two hours, ten minutes apart
    statistics_receive([statistics_frame(*rows)])
    later = NOW + MAX_WINDOWS * timedelta(seconds=1)
    rolled = statistics_purge(later)
    kept = StatisticsWindow.objects.count()
    assert rolled + kept == 12 and rolled >= 7
    assert sum(hour.windows for hour in StatisticsHour.objects.all()) == rolled
    total = sum(row.records_out for row in [*StatisticsHour.objects.all(), *StatisticsWindow.objects.all()])
    assert total == sum(range(1, 13))
    assert {row.starts_at.minute for row in StatisticsHour.objects.all()} == {0}
    assert statistics_purge(later) == 0
    assert statistics_purge(later + KEEP_HOURS + timedelta(days=2)) > 0
    assert not StatisticsHour.objects.exists() and not StatisticsWindow.objects.exists()


def test_row_for_a_rolled_up_hour_is_too_late(query: Query) -> None:
    late_s = MAX_WINDOWS * 1.0 + 3700
    assert statistics_receive([statistics_frame(row(ago_s=late_s), row())]) == 1


def test_wide_subintervals_are_kept_for_a_day() -> None:
    now = timezone.now()
    assert kept_from(timedelta(seconds=60), now) <= now - KEEP_WINDOWS
    assert now - kept_from(timedelta(seconds=1), now) < timedelta(hours=3.5)


def test_frame_made_by_the_stream_processor_is_accepted(query: Query) -> None:
    """Its sums have the schema, the names and the meaning that are kept here."""
    at_us = round(NOW.timestamp() - 60) * 1_000_000
    counts = {"records_in": 100, "records_processed": 70, "records_drained": 20, "records_overflow": 10}
    known = {"query": "eu-1/checkout", "plan": "a" * 64, "operator": "parse", "fingerprint": "fp", "epoch_us": at_us}
    zero = {field.name: 0 for field in COUNTERS}
    counters = pa.Table.from_pylist([{**zero, **known, **counts, "cpu_ns": 7_000_000}], schema=COUNTERS)
    epochs = epoch_rows([CounterFrame(counters, "agent-id")], {"eu-1/checkout": 1_000_000}, 4).to_pylist()
    fits = dict.fromkeys(SUM_ROWS.names, 0)
    sums = pa.Table.from_pylist([{**fits, **epochs[0], "window_us": at_us, "epochs": 1}], schema=SUM_ROWS)
    body = batch_bytes(statistics_rows(sums, 0))
    assert statistics_receive([Frame(FrameKind.STATISTICS, "stream", "stream", 1, body=body)]) == 1
    kept = StatisticsWindow.objects.get()
    assert (kept.place, kept.records_processed, kept.records_drained, kept.cpu_ns) == ("agent-id", 70, 20, 7_000_000)
    assert (kept.batch, kept.width_s, kept.measured) == (4, 1.0, True)


def test_a_column_keeps_each_sum_under_its_name() -> None:
    for model in (StatisticsWindow, StatisticsHour):
        sums = [field.name for field in model._meta.fields if field.has_default() and field.default == 0.0]
        assert sums == list(SUM_NAMES)
