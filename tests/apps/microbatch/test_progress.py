"""Progress is taken in once, whole or not at all, predicted, fitted, and held against its predictions."""

from __future__ import annotations

import gzip
import json
import lzma
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import zstandard
from django.db import connection
from django.utils import timezone

from apps.core.errors import Impossible, Malformed, TooLarge
from apps.fleet.choices import InputOrigin
from apps.fleet.models import Cluster
from apps.microbatch import progress as ingest
from apps.microbatch.fits import MAX_GROWTH, fit_refit
from apps.microbatch.models import BatchFit, FitReason, MicroBatch, SparkQuery, SparkQueryState
from apps.microbatch.progress import documents_of, own_progress_ingest, progress_ingest
from apps.microbatch.selectors import fit_in_force, newest_rate, spark_query_state
from apps.microbatch.services import batches_purge, settings_apply, spark_query_create, spark_query_update
from tests.apps.microbatch.spark_progress import BEGIN, progress, progress_of_run

OTHER_RUN = "ab99d132-0000-4000-8000-000000000002"


@pytest.fixture
def query(cluster: Cluster) -> SparkQuery:
    return spark_query_create(cluster=cluster, name="orders", origin="listener")


def ingested(query: SparkQuery, documents: Any) -> ingest.ProgressAnswer:
    answer = progress_ingest(query=query, documents=documents)
    query.refresh_from_db()
    return answer


def test_progress_that_comes_again_is_counted_once(query: SparkQuery) -> None:
    documents = progress_of_run(range(6))
    first, again = ingested(query, documents), ingested(query, documents + progress_of_run(range(6, 8)))
    assert (first.accepted, first.repeated) == (6, 0)
    assert (again.accepted, again.repeated) == (2, 6)
    assert MicroBatch.objects.filter(query=query).count() == 8


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ({"timestamp": "0001-01-01T00:00:00+14:00"}, "[0].timestamp"),
        ({"runId": "\ud800"}, "batch 0.runId"),
        ({"name": "\x00"}, "batch 0.name"),
        ({"durationMs": {"triggerExecution": 5, "add\x00Batch": 4}}, "batch 0.durationMs"),
        ({"stateOperators": [{"operatorName": "\ud800"}]}, "batch 0.stateOperators"),
    ],
)
def test_value_that_no_database_holds_is_refused(query: SparkQuery, wrong: dict[str, Any], path: str) -> None:
    with pytest.raises(Malformed) as refused:
        ingested(query, documents_of(json.dumps([progress(0, 10, 100) | wrong]).encode()).documents)
    assert [fault.path for fault in refused.value.faults] == [path]


@pytest.mark.parametrize(
    ("odd", "path"),
    [
        ({"eventTime": {"max": "0001-01-01T00:00:00+14:00"}}, "[0].eventTime.max"),
        ({"trigger": {"type": "ProcessingTime", "intervalMs": 1e300}}, "[0].trigger.intervalMs"),
        ({"stateOperators": [{"numShufflePartitions": 1e300}]}, "[0].stateOperators[0].numShufflePartitions"),
        ({"stateOperators": [{"numShufflePartitions": 0.5}]}, "[0].stateOperators[0].numShufflePartitions"),
    ],
)
def test_odd_figure_is_left_out_and_named(query: SparkQuery, odd: dict[str, Any], path: str) -> None:
    text = documents_of(json.dumps([progress(0, 10, 100) | odd]).encode())
    answer = ingested(query, text.documents)
    assert answer.accepted == 1
    assert [line.split(":")[0] for line in answer.unread] == [path]


def test_odd_fields_that_are_not_used_do_no_harm(query: SparkQuery) -> None:
    SparkQuery.objects.update(spark_name="orders")
    documents = [
        progress(0, 10, 100, sources=5),
        progress(1, 10, 100, sources=[{"endOffset": "[" * 100_000}]),
        progress(2, 10, 100, name=["orders"]),
    ]
    assert (answer := ingested(query, documents)).accepted == 2 and answer.left_out == 1


def test_idle_progress_keeps_the_query_alive_and_stores_nothing(query: SparkQuery) -> None:
    answer = ingested(query, [progress(0, 0, 3, durationMs={"latestOffset": 2, "triggerExecution": 3})])
    assert (answer.accepted, answer.idle) == (0, 1)
    assert spark_query_state(query) == SparkQueryState.REPORTING


def test_one_faulty_batch_of_many_stores_none_and_names_every_fault(query: SparkQuery) -> None:
    documents = progress_of_run(range(4))
    documents[1] |= {"batchId": 1.5, "numInputRows": "7"}
    del documents[3]["runId"]
    with pytest.raises(Malformed) as refused:
        ingested(query, documents)
    assert {fault.path for fault in refused.value.faults} == {"[1].batchId", "[1].numInputRows", "[3].runId"}
    assert not MicroBatch.objects.exists()


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ({"numInputRows": 10**16}, "numInputRows"),
        ({"runId": "x" * 65}, "runId"),
        ({"timestamp": "2099-01-01T00:00:00Z"}, "timestamp"),
        ({"batchId": 10**16}, "batchId"),
    ],
)
def test_values_that_no_spark_reports_are_refused(query: SparkQuery, more: dict[str, Any], path: str) -> None:
    with pytest.raises(Malformed) as refused:
        ingested(query, [progress(3, 100, 50, **more)])
    assert refused.value.faults[0].path.endswith(path)


def test_fit_waits_for_three_batches_after_warm_up_and_predicts_those_that_follow(query: SparkQuery) -> None:
    ingested(query, progress_of_run(range(5)))
    assert fit_in_force(query) is None
    ingested(query, progress_of_run(range(5, 8), seed=2))
    fit = fit_in_force(query)
    assert fit is not None and (fit.reason, fit.batches) == (FitReason.FIRST, 5)
    rows = list(MicroBatch.objects.filter(query=query).order_by("batch"))
    assert [row.is_warm_up for row in rows] == [True] * 3 + [False] * 5
    assert [row.predicted_s is not None for row in rows] == [False] * 6 + [True] * 2
    assert fit.first_at == rows[3].begins_at


def test_fit_grows_with_the_batches_that_follow_up_to_its_limit(query: SparkQuery) -> None:
    ingested(query, progress_of_run(range(MAX_GROWTH + 13)))
    fit = fit_in_force(query)
    assert fit is not None and fit.batches == MAX_GROWTH
    assert fit.fixed_s == pytest.approx(0.4, rel=0.1) and fit.per_row_s == pytest.approx(2e-6, rel=0.05)
    assert query.drift_share is not None and query.drift_share < 0.05 and query.drifting_since is None


@pytest.mark.parametrize("alike", [0, MAX_GROWTH + 20])
def test_batches_in_one_file_are_predicted_as_if_they_had_come_one_by_one(
    cluster: Cluster, query: SparkQuery, alike: int
) -> None:
    drifts = [progress(batch, 1000, 400 + 5 * batch) for batch in range(alike)]  # all of one size: no fit yet
    documents = [*drifts, *progress_of_run(range(alike, alike + 30))]
    ingested(query, documents)
    other = spark_query_create(cluster=cluster, name="one by one", origin="listener")
    for document in documents:
        progress_ingest(query=other, documents=[document])
    predictions = [list(row.batches.order_by("batch").values_list("predicted_s", flat=True)) for row in (query, other)]
    assert predictions[0] == pytest.approx(predictions[1], nan_ok=False)
    first = query.batches.get(batch=21 if alike else 3)  # the newest 60, without warm-up
    for row in (query, other):
        fit = fit_in_force(row)
        assert fit is not None and fit.first_at == first.begins_at


def test_slower_batches_raise_the_flag_and_a_refit_lowers_it(query: SparkQuery) -> None:
    ingested(query, progress_of_run(range(70)))
    ingested(query, progress_of_run(range(70, 95), per_row_ms=0.004))
    assert query.drifting_since is not None and query.drift_bias is not None and query.drift_bias > 0.15
    connection.run_on_commit.clear()
    fit = fit_refit(query=query)
    topics = {topic for entry in connection.run_on_commit for topic in getattr(entry[1], "topics", ())}
    assert "cluster:little" in topics, "the attention list is told"
    query.refresh_from_db()
    assert (fit.reason, fit.batches, query.drifting_since) == (FitReason.REQUEST, 20, None)
    assert fit.per_row_s == pytest.approx(4e-6, rel=0.1)


def test_query_that_may_refits_by_itself(query: SparkQuery) -> None:
    spark_query_update(query=query, auto_refit=True)
    ingested(query, progress_of_run(range(70)))
    ingested(query, progress_of_run(range(70, 95), per_row_ms=0.004))
    fit = fit_in_force(query)
    assert fit is not None and fit.reason == FitReason.DRIFT and query.drifting_since is None


def test_fits_of_before_are_purged_and_the_one_in_force_stays(query: SparkQuery) -> None:
    ingested(query, progress_of_run(range(12)))
    newest = fit_refit(query=query)
    BatchFit.objects.update(since=BEGIN)
    assert BatchFit.objects.count() == 2 and batches_purge() == 1
    assert fit_in_force(query) == newest


def test_refit_at_an_even_rate_reaches_back_to_batches_of_another_size(query: SparkQuery) -> None:
    ingested(query, [progress(batch, 100_000, 500) for batch in range(20)])
    ingested(query, [progress(batch, 300_000, 700) for batch in range(20, 45)])
    fit = fit_refit(query=query)
    assert (fit.batches, fit.most_rows) == (42, 300_000)  # all but those that warm up
    assert fit.model.duration_s(300_000) == pytest.approx(0.7, rel=0.02)


def test_refit_of_batches_of_one_size_is_refused_with_the_reason(query: SparkQuery) -> None:
    ingested(query, [progress(batch, 1000, 50) for batch in range(8)])
    with pytest.raises(Impossible, match="5 micro-batches of 1 size"):
        fit_refit(query=query)
    assert not BatchFit.objects.exists()


def test_changed_settings_begin_a_new_fit_that_the_old_one_predicts_until_it_is_there(query: SparkQuery) -> None:
    ingested(query, progress_of_run(range(40)))
    old = fit_in_force(query)
    settings_apply(query=query, user=None, executors=4)
    SparkQuery.objects.update(settings_since=BEGIN + timedelta(seconds=5 * 40))
    slower = progress_of_run(range(40, 48), per_row_ms=0.001)
    ingested(query, slower[:2])
    assert fit_in_force(query) == old
    ingested(query, slower[2:])
    fit = fit_in_force(query)
    assert fit is not None and (fit.reason, fit.batches) == (FitReason.SETTINGS, 8)
    assert fit.setting_values["executors"] == 4 and fit.per_row_s == pytest.approx(1e-6, rel=0.2)
    fits = MicroBatch.objects.filter(query=query, batch__gte=40).order_by("batch").values_list("fit", flat=True)
    assert list(fits) == [old.pk if old else None] * 3 + [fit.pk] * 5


def test_another_run_warms_up_again(query: SparkQuery) -> None:
    ingested(query, progress_of_run(range(10)))
    ingested(query, progress_of_run(range(10, 15), runId=OTHER_RUN))
    assert list(query.batches.order_by("batch").values_list("is_warm_up", flat=True)[10:]) == [True] * 3 + [False] * 2


def test_settings_that_spark_reports_are_measured(query: SparkQuery) -> None:
    state = [{"operatorName": "stateStoreSave", "numRowsTotal": 5, "numShufflePartitions": 16}]
    ingested(query, progress_of_run(range(12), stateOperators=state))
    assert (query.shuffle_partitions, query.input_partitions, query.stateful) == (16, 2, True)
    assert query.trigger_s == 5.0  # from the distance of batches
    measured = {"shuffle_partitions", "input_partitions", "stateful", "trigger_s"}
    assert {name for name in query.setting_values if query.setting_origin(name) == InputOrigin.MEASURED} == measured
    assert query.settings_since is None  # nobody had given another value
    ingested(query, progress_of_run(range(12, 14), stateOperators=[state[0] | {"numShufflePartitions": 32}]))
    assert query.shuffle_partitions == 32 and query.settings_since == BEGIN + timedelta(seconds=60)


def test_setting_that_is_confirmed_keeps_its_origin(query: SparkQuery) -> None:
    ingested(query, progress_of_run(range(12)))
    settings_apply(query=query, user=None, input_partitions=2, executors=1)
    query.refresh_from_db()
    assert (query.setting_origin("input_partitions"), query.settings_since) == (InputOrigin.MEASURED, None)
    assert query.setting_origin("executors") == InputOrigin.ASSUMED


def test_trigger_that_somebody_has_given_stays(query: SparkQuery) -> None:
    spark_query_update(query=query, trigger_s=4.0)
    ingested(query, progress_of_run(range(20)))
    assert (query.trigger_s, query.setting_origin("trigger_s")) == (4.0, InputOrigin.ASSUMED)


def test_state_lag_and_parts_are_kept(query: SparkQuery) -> None:
    state = {"operatorName": "dedupe", "numRowsTotal": 6.9e8, "memoryUsedBytes": 100, "numRowsDroppedByWatermark": 3}
    event_time = {"max": (BEGIN - timedelta(seconds=2)).isoformat(), "watermark": BEGIN.isoformat()}
    ingested(query, [progress(0, 5, 50, stateOperators=[state], eventTime=event_time, inputRowsPerSecond=1.5)])
    row = query.batches.get()
    assert row.state == [{"operator": "dedupe", "rows": 6.9e8, "memory_bytes": 100.0, "dropped_rows": 3.0}]
    assert (row.event_lag_s, row.rows_per_s, row.parts_s["addBatch"]) == (2.0, 1.5, 0.04)


def test_progress_of_several_queries_is_refused_until_one_is_chosen(query: SparkQuery) -> None:
    documents = [*progress_of_run(range(2)), *progress_of_run(range(2), name="clicks", runId=OTHER_RUN)]
    with pytest.raises(Malformed, match="clicks and orders"):
        ingested(query, documents)
    spark_query_update(query=query, spark_name="orders")
    answer = ingested(query, documents)
    assert (answer.accepted, answer.left_out) == (2, 2)
    assert ingested(query, progress_of_run(range(2), name="clicks")).left_out == 2


def test_file_without_progress_of_the_query_says_whose_it_is(cluster: Cluster) -> None:
    file = spark_query_create(cluster=cluster, name="file", origin="file", spark_name="orders")
    with pytest.raises(Malformed, match="No progress of 'orders' is in it; there is progress of clicks"):
        ingested(file, progress_of_run(range(2), name="clicks"))


def test_progress_of_another_query_than_before_is_refused(query: SparkQuery) -> None:
    ingested(query, progress_of_run(range(2)))
    with pytest.raises(Malformed, match="Several Spark queries"):
        ingested(query, progress_of_run(range(2), name="clicks", runId=OTHER_RUN))


def test_own_query_registers_itself_once_and_gets_the_trigger_that_is_wanted(cluster: Cluster) -> None:
    settings = {"trigger_s": 2.0, "executors": 1, "cores_per_executor": 2}
    first = own_progress_ingest(documents=progress_of_run(range(3)), settings=settings)
    own = SparkQuery.objects.get()
    assert (own.origin, own.cluster, own.trigger_s, first.settings) == ("own", None, 2.0, None)
    settings_apply(query=own, user=None, trigger_s=1.0)
    again = own_progress_ingest(documents=progress_of_run(range(3, 5)), settings=settings)
    assert again.settings == {"trigger_s": 1.0} and SparkQuery.objects.count() == 1
    own_progress_ingest(documents=progress_of_run(range(5, 7)), settings=settings | {"trigger_s": 1.0})
    own.refresh_from_db()
    assert own.trigger_s == 1.0 and own.settings_since == BEGIN + timedelta(seconds=25)


def test_trigger_is_wanted_in_whole_milliseconds_as_it_is_reported(cluster: Cluster) -> None:
    own_progress_ingest(documents=progress_of_run(range(3)), settings={"trigger_s": 2.0})
    own = settings_apply(query=SparkQuery.objects.get(), user=None, trigger_s=2.248104)
    assert own.wanted_trigger_s == 2.248


def test_trigger_that_progress_names_changes_with_its_batches(query: SparkQuery) -> None:
    def with_trigger(batches: range, interval_ms: int) -> list[dict[str, Any]]:
        return progress_of_run(batches, trigger={"type": "ProcessingTime", "intervalMs": interval_ms})

    ingested(query, with_trigger(range(10), 5000))
    assert (query.trigger_s, query.settings_since) == (5.0, None)
    ingested(query, with_trigger(range(10, 14), 5000) + with_trigger(range(14, 20), 2500))
    assert (query.trigger_s, query.settings_since) == (2.5, BEGIN + timedelta(seconds=5 * 14))
    assert list(query.batches.order_by("batch").values_list("trigger_s", flat=True)[13:15]) == [5.0, 2.5]


def test_post_that_is_repeated_does_not_bring_former_settings_back(query: SparkQuery) -> None:
    def with_trigger(batches: range, interval_ms: int) -> list[dict[str, Any]]:
        return progress_of_run(batches, trigger={"type": "ProcessingTime", "intervalMs": interval_ms})

    ingested(query, with_trigger(range(10), 5000))
    ingested(query, with_trigger(range(12, 20), 2500))
    before = query.settings_since
    for late in (range(8, 10), range(8, 11)):
        ingested(query, with_trigger(late, 5000))
        assert (query.trigger_s, query.settings_since) == (2.5, before)


def test_rate_is_what_came_between_the_beginnings_of_batches(query: SparkQuery) -> None:
    ingested(query, [progress(batch, 1000 * batch, 50) for batch in range(4)])
    assert newest_rate(list(query.batches.order_by("batch"))) == pytest.approx(6000 / 15)
    assert newest_rate([]) is None


def test_batches_that_nobody_reported_do_not_lower_the_rate(query: SparkQuery) -> None:
    """A URL that tells the last batch alone is asked less often than batches end."""
    ingested(query, [progress(batch, 1000, 50) for batch in (0, 3, 6, 7, 8, 11)])
    assert newest_rate(list(query.batches.order_by("batch"))) == pytest.approx(1000 / 5)


def test_old_batches_are_purged_and_those_of_files_stay(
    cluster: Cluster, query: SparkQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = spark_query_create(cluster=cluster, name="file", origin="file")
    for row in (query, file):
        ingested(row, progress_of_run(range(5)))
    MicroBatch.objects.update(received_at=BEGIN)
    assert batches_purge() == 5 and file.batches.count() == 5
    monkeypatch.setattr("apps.microbatch.services.MAX_BATCHES", 3)
    assert batches_purge() == 2
    assert sorted(file.batches.values_list("batch", flat=True)) == [2, 3, 4]


class TestDocuments:
    def test_lines_arrays_and_event_logs_are_read(self) -> None:
        documents = progress_of_run(range(2))
        event = "org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent"
        log = [{"Event": "SparkListenerLogStart"}, *({"Event": event, "progress": item} for item in documents)]
        for text in (json.dumps(documents), "\n".join(map(json.dumps, documents)), "\n".join(map(json.dumps, log))):
            assert list(documents_of(text.encode()).documents) == documents

    @pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, zstandard.compress])
    def test_packed_logs_are_read(self, pack: Callable[[bytes], bytes]) -> None:
        documents = progress_of_run(range(2))
        text = "\n".join(map(json.dumps, documents))
        assert list(documents_of(pack(text.encode())).documents) == documents

    def test_log_that_is_still_written_gives_what_it_has(self) -> None:
        whole, last = map(json.dumps, progress_of_run(range(2)))
        text = documents_of(f"{whole}\n{last[:100]}".encode())
        assert list(text.documents) == progress_of_run(range(1))
        assert "line 2: it ends in the middle" in str(text.left_out[0])

    def test_what_cannot_be_read_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(Malformed, match="UTF-8"):
            documents_of(b"\xff")
        with pytest.raises(Malformed, match="line 1"):
            documents_of(b'{"batchId": ')
        with pytest.raises(Malformed, match="deeper"):
            documents_of(b"[" * 100_000)
        monkeypatch.setattr(ingest, "MAX_DOCUMENTS", 1)
        with pytest.raises(TooLarge):
            documents_of(b"{}\n{}")


def test_refit_is_in_force_though_the_clock_was_set_back(query: SparkQuery) -> None:
    ingested(query, progress_of_run(range(10)))
    BatchFit.objects.update(since=timezone.now() + timedelta(hours=1))
    fit = fit_refit(query=query)
    assert fit_in_force(query) == fit
