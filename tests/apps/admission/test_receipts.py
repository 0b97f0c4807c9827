"""Receipts: a decision comes back after an hour, a day and a week, held against what was measured and nothing else."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.accounts.choices import Role
from apps.admission.boards import promise_board, receipts_listed
from apps.admission.choices import ErrorLack, ReceiptLack, ReceiptOutcome, ReceiptSpan
from apps.admission.decisions import admission_apply
from apps.admission.models import AdmissionRequest, Promise, Receipt
from apps.admission.previews import ADMISSION
from apps.admission.questions import AdmissionQuestion
from apps.admission.receipts import promises_keep, receipt_reason, receipts_write
from apps.core.errors import Conflict, Malformed
from apps.estimates.choices import RunOrigin
from apps.estimates.models import AccuracyObservation
from apps.fleet.choices import Evidence
from apps.queries.services import query_delete, query_stop
from apps.results.models import ResultWindow
from tests.apps.recordings import recorded
from tests.apps.small_cluster import make_query, run_jobs, small_cluster, start_query, user

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


def _applied() -> AdmissionRequest:
    """`third`, half a node beside `second`, promised well within 2 s."""
    cluster = small_cluster()
    start_query(cluster, "first", 0.6, "a")
    start_query(cluster, "second", 0.4, "b")
    make_query(cluster, "third", 0.5)
    somebody = user(Role.ADMITTER)
    request, _ = ADMISSION.request(cluster=cluster, user=somebody, question=AdmissionQuestion(query="third"))
    run_jobs()
    request.refresh_from_db()
    return admission_apply(request=request, user=somebody)


@pytest.fixture
def applied() -> AdmissionRequest:
    request = recorded(_applied)
    request.refresh_from_db()
    return request


def report(
    request: AdmissionRequest, at: datetime, latency_s: float, origin: str = RunOrigin.FLINK, **fields: Any
) -> AccuracyObservation:
    """Ten minutes of the query, as another engine measured them, up to a moment."""
    values: dict[str, Any] = {
        "cluster": request.cluster,
        "query": request.query,
        "version": request.version.number,
        "estimated_at": at - HOUR,
        "starts_at": at - timedelta(minutes=10),
        "ends_at": at,
        "statistic": "worst",
        "evidence": Evidence.ASSUMED,
        "expected_s": 0.5,
        "low_s": 0.4,
        "high_s": 0.6,
        "stated_low_s": 0.4,
        "stated_high_s": 0.6,
        "covered": 0.4 <= latency_s <= 0.6,
        "observed_s": latency_s,
        "windows": 100,
        "origin": origin,
    }
    return AccuracyObservation.objects.create(**(values | fields))


def written(request: AdmissionRequest, at: datetime) -> Receipt:
    """The receipt of the hour, written at a moment."""
    receipts_write(at)
    return Receipt.objects.select_related("promise").get(promise__request=request, span=ReceiptSpan.HOUR)


def test_applying_writes_the_promise_with_three_receipts_to_come(applied: Any) -> None:
    promise, effect = applied.promise, applied.result["effects"]
    own = next(row for row in effect if row["is_candidate"])
    assert (promise.promised_s, promise.low_s, promise.high_s) == (own["after_s"], own["low_s"], own["high_s"])
    assert (promise.verdict, promise.model, promise.evidence, promise.state) == ("admit", "flow", "assumed", "holds")
    due = dict(promise.receipts.values_list("span", "due_at"))
    assert {span: moment - applied.decided_at for span, moment in due.items()} == {
        "hour": HOUR,
        "day": timedelta(days=1),
        "week": timedelta(days=7),
    }
    assert not receipts_listed().exists()
    assert receipts_write(applied.decided_at + HOUR - timedelta(seconds=1)) == 0


def test_receipt_holds_the_promise_against_the_measurement(applied: Any) -> None:
    due = applied.decided_at + HOUR
    assert promises_keep(applied.decided_at + timedelta(minutes=1)) == 1
    promised_s = Promise.objects.get(request=applied).promised_s or 0.0
    report(applied, due, promised_s * 1.01)
    receipt = written(applied, due)
    assert (receipt.outcome, receipt.interval_held, receipt.is_wrong) == ("held", True, False)
    assert (receipt.results, receipt.lacking, receipt.decisions) == (100, "", 0)
    error = receipt.error_parts
    assert error is not None and error.load_s is None and error.costs_s is None  # nothing was measured of either
    assert error.changes_s + error.rest_s == pytest.approx(0.01 * promised_s)
    assert receipts_write(due) == 0  # once


def test_a_cluster_that_cannot_be_read_holds_up_nothing(applied: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(cluster: Any) -> None:
        raise ValueError(f"{cluster} cannot be read")

    assert promises_keep(applied.decided_at + timedelta(minutes=1)) == 1
    Promise.objects.create(
        cluster=applied.cluster, query_name="fourth", version=1, verdict="admit", model="flow", evidence="assumed",
        statistic="worst", state="holds", decided_at=applied.decided_at,
    )  # fmt: skip
    monkeypatch.setattr("apps.admission.receipts.snapshot_take", unreadable)
    assert promises_keep(applied.decided_at + timedelta(minutes=1)) == 0
    assert receipts_write(applied.decided_at + HOUR) == 0
    assert receipts_write(applied.decided_at + HOUR + timedelta(minutes=31)) == 1  # without what else changed


def test_a_missed_objective_makes_an_admission_wrong(applied: Any) -> None:
    due = applied.decided_at + HOUR
    report(applied, due, 2.5)
    receipt = written(applied, due)
    assert (receipt.outcome, receipt.is_wrong, receipt.asks_reason) == ("missed", True, True)
    assert receipt.error_lack == ErrorLack.NOT_KEPT


@pytest.mark.parametrize("origin", [RunOrigin.SIMULATED, None])
def test_what_was_not_measured_is_not_known(applied: Any, origin: str | None) -> None:
    due = applied.decided_at + HOUR
    if origin:
        report(applied, due, 0.5, origin, seed=1)
    receipt = written(applied, due)
    assert (receipt.outcome, receipt.lacking, receipt.measured_s) == ("not_known", ReceiptLack.NOTHING, None)
    assert (receipt.interval_held, receipt.is_wrong) == (None, False)


def test_without_objective_and_interval_nothing_held(applied: Any) -> None:
    due = applied.decided_at + HOUR
    Promise.objects.filter(request=applied).update(bound_s=None, low_s=None)
    report(applied, due, 0.5)
    receipt = written(applied, due)
    assert (receipt.outcome, receipt.lacking) == ("not_known", ReceiptLack.NO_PROMISE)


def test_results_of_another_version_are_none_of_this_promise(applied: Any) -> None:
    due = applied.decided_at + HOUR
    report(applied, due, 0.5, version=2)
    assert written(applied, due).lacking == ReceiptLack.NOTHING


@pytest.mark.parametrize(("number", "outcome"), [(1, "held"), (None, "not_known")])
def test_windows_of_a_plan_that_has_gone_are_none_of_this_promise(
    applied: Any, number: int | None, outcome: str
) -> None:
    due = applied.decided_at + HOUR
    Promise.objects.filter(request=applied).update(low_s=None)
    ResultWindow.objects.bulk_create(
        ResultWindow(
            query=applied.query, plan="p", window_us=round(at.timestamp() * 1e6), width_us=10_000_000, row_count=0,
            body=b"", complete=True, emitted_at=at, latency_s=0.5, version_number=number,
        )
        for at in (due - timedelta(seconds=10 * i) for i in range(60))
    )  # fmt: skip
    assert written(applied, due).outcome == outcome


def test_a_receipt_that_comes_late_looks_at_its_own_hour(applied: Any) -> None:
    due = applied.decided_at + HOUR
    promises_keep(applied.decided_at)
    report(applied, due, 0.5)
    report(applied, due + HOUR, 3.0)
    receipt = written(applied, due + timedelta(hours=9))
    assert receipt.measured_s == 0.5
    assert receipt.error_lack == ErrorLack.LATE


def test_a_stopped_and_a_deleted_query_say_so(applied: Any) -> None:
    query_stop(query=applied.query)
    assert written(applied, applied.decided_at + HOUR).lacking == ReceiptLack.STOPPED
    decided_at = applied.decided_at
    query_delete(query=applied.query)
    receipts_write(decided_at + timedelta(days=1))
    receipt = Receipt.objects.select_related("promise").get(span=ReceiptSpan.DAY)
    assert (receipt.lacking, receipt.outcome) == (ReceiptLack.DELETED, ReceiptOutcome.NOT_KNOWN)
    assert (receipt.promise.query_name, receipt.promise.request_id) == ("third", None)


def test_neighbours_that_came_since_are_told(applied: Any) -> None:
    promises_keep(applied.decided_at)
    node = applied.query.running_version.operators.get().placements.get().node.name
    start_query(applied.cluster, "fourth", 0.05, node)
    receipt = written(applied, applied.decided_at + HOUR)
    assert [(change.kind, change.subject) for change in receipt.changes_told] == [("query_added", "fourth")]


def test_the_reason_sets_the_measurement_aside_or_counts_it(applied: Any) -> None:
    due = applied.decided_at + HOUR
    run, later = report(applied, due, 2.5), report(applied, due + HOUR, 0.5)
    receipt, somebody = written(applied, due), user(Role.ADMIN)
    with pytest.raises(Malformed, match="text is missing"):
        receipt_reason(receipt=receipt, user=somebody, reason="other")
    with pytest.raises(Malformed, match="allowed: load, cost"):
        receipt_reason(receipt=receipt, user=somebody, reason="moon")
    receipt_reason(receipt=receipt, user=somebody, reason="failure", text="n2 lost its disk")
    run.refresh_from_db()
    later.refresh_from_db()
    assert (run.set_aside, run.counts, later.set_aside) == (True, False, False)
    receipt_reason(receipt=receipt, user=somebody, reason="load")
    run.refresh_from_db()
    assert (run.set_aside, run.counts) == (False, True)
    receipt.refresh_from_db()
    assert (receipt.reason, receipt.reason_by, receipt.asks_reason) == ("load", somebody, False)


def test_only_a_wrong_verdict_is_asked_for_its_reason(applied: Any) -> None:
    receipt = written(applied, applied.decided_at + HOUR)
    with pytest.raises(Conflict, match="wrong") as refusal:
        receipt_reason(receipt=receipt, user=None, reason="load")
    assert refusal.value.code == "not_wrong"


def test_the_board_counts_by_verdict_model_and_evidence(applied: Any) -> None:
    report(applied, applied.decided_at + HOUR, 2.5)
    receipts_write(applied.decided_at + timedelta(days=1))
    board = promise_board(receipts_listed())
    total = board.total
    assert (total.receipts, total.missed, total.not_known, total.wrong, total.unexplained) == (2, 1, 1, 1, 1)
    assert (total.intervals, total.intervals_held, total.kept_share) == (1, 0, 0.0)
    assert [row.name for row in board.spans] == ["hour", "day"]
    (by_verdict,), (by_model,), (by_evidence,) = board.verdicts, board.models, board.evidence
    assert (by_verdict.name, by_model.name, by_evidence.name) == ("admit", "flow", "assumed")


def test_a_promise_without_objective_kept_none(applied: Any) -> None:
    report(applied, applied.decided_at + HOUR, 0.5)
    Promise.objects.filter(request=applied).update(bound_s=None)
    receipts_write(applied.decided_at + HOUR)
    total = promise_board(receipts_listed()).total
    assert (total.known, total.objectives, total.kept_share) == (1, 0, None)
    assert total.kept_words == "1 receipt had no objective"


def test_rest_lists_receipts_and_takes_the_reason(applied: Any, api_of: Any) -> None:
    due = applied.decided_at + HOUR
    report(applied, due, 2.5)
    written(applied, due)
    reader, admitter = api_of(Role.VIEWER), api_of(Role.ADMIN)
    (row,) = reader.get("/api/v1/receipts?outcome=missed&wrong=true&span=hour").json()["results"]
    assert (row["query"], row["verdict"], row["measured_s"], row["bound_s"]) == ("third", "admit", 2.5, 2.0)
    assert reader.get("/api/v1/receipts/summary?cluster=little").json()["total"]["missed"] == 1
    own = reader.get(f"/api/v1/admissions/{applied.pk}").json()["receipts"]
    assert [entry["outcome"] for entry in own] == ["missed", "due", "due"]
    address = f"/api/v1/receipts/{row['id']}/reason"
    assert reader.post(address, {"reason": "load"}, format="json").status_code == 403
    told = admitter.post(address, {"reason": "load", "text": "Black Friday"}, format="json")
    assert (told.status_code, told.json()["reason_text"]) == (200, "Black Friday")


def test_times_are_moments_when_clocks_change(applied: Any) -> None:
    spring = datetime.fromisoformat("2027-03-28T01:30:00+01:00")  # half an hour before 2:00 becomes 3:00
    Promise.objects.filter(request=applied).update(decided_at=spring)
    Receipt.objects.filter(promise__request=applied, span=ReceiptSpan.HOUR).update(due_at=spring + HOUR)
    with timezone.override("Europe/Berlin"):
        receipt = written(applied, datetime.fromisoformat("2027-03-28T03:30:00+02:00"))
    assert receipt.outcome == ReceiptOutcome.NOT_KNOWN
    assert receipt.since == receipt.due_at - HOUR
