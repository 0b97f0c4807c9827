"""A job is done once in effect, whatever is delivered twice, cut off or cancelled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
import redis
from django.conf import settings as django_settings
from django.db import OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from kombu import Consumer, Message

from apps.accounts.models import User
from apps.core.errors import Conflict, Impossible, Unavailable
from apps.jobs.api import job_wait
from apps.jobs.models import LATER, Job, JobKind, JobState
from apps.jobs.runner import JobOutcome, JobReporter, run_job
from apps.jobs.selectors import jobs_lost
from apps.jobs.services import (
    LOST_AFTER,
    MAX_ATTEMPTS,
    JobCancelled,
    JobSuperseded,
    job_cancel,
    job_ended,
    job_fail,
    job_progress,
    job_resend,
    job_start,
    job_submit,
    job_succeed,
)
from console.celery import app
from tests.servers import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


def submit(**arguments: Any) -> Job:
    return job_submit(JobKind.ESTIMATE, "Estimate it", {"cluster": "c"}, **arguments)


def sent(queue: str = "background") -> int:
    """Messages that wait at the broker."""
    with redis.Redis.from_url(django_settings.REDIS_URL) as client:
        return sum(client.llen(f"{queue}\x06\x16{rank}" if rank else queue) for rank in django_settings.RANKS)


def silence(job: Job) -> None:
    """As if its worker had been killed a while ago."""
    before = timezone.now() - LOST_AFTER - timedelta(seconds=1)
    Job.objects.filter(pk=job.pk).update(heartbeat_at=before, sent_at=before)


@pytest.fixture
def endings() -> Iterator[list[tuple[str, bool]]]:
    """(state, whether inside of the transaction) of each job that ends."""
    seen: list[tuple[str, bool]] = []

    def note(sender: type, job: Job, **kwargs: Any) -> None:
        seen.append((job.state, transaction.get_connection().in_atomic_block))

    job_ended.connect(note)
    yield seen
    job_ended.disconnect(note)


def test_task_is_sent_only_after_the_commit() -> None:
    with transaction.atomic():
        submit()
        assert sent() == 0
    assert sent() == 1
    with transaction.atomic():
        submit()
        transaction.set_rollback(True)
    assert (sent(), Job.objects.count()) == (1, 1)


def test_what_somebody_waits_for_has_a_queue_of_its_own(user_of: Callable[..., User]) -> None:
    submit(user=user_of())
    assert (sent("interactive"), sent()) == (1, 0)
    submit()
    job_submit(JobKind.BACKTEST, "Takes minutes", {}, user=user_of())
    assert (sent("interactive"), sent()) == (1, 2)


def test_verdicts_go_before_what_else_people_wait_for(user_of: Callable[..., User]) -> None:
    submit(user=user_of())
    job_submit(JobKind.ADMISSION_PREVIEW, "Verdict", {}, user=user_of())
    job_submit(JobKind.DRY_RUN, "Verdict", {}, user=user_of())
    with redis.Redis.from_url(django_settings.REDIS_URL) as client:
        assert (client.llen("interactive"), client.llen("interactive\x06\x163")) == (2, 1)


def test_whoever_looks_at_a_preview_waits_for_no_scheduled_task(user_of: Callable[..., User]) -> None:
    with app.connection_for_write() as connection:
        for entry in django_settings.CELERY_BEAT_SCHEDULE.values():
            app.send_task(entry["task"], connection=connection, **entry["options"])
    submit()
    job_submit(JobKind.REPORT, "Takes minutes, of the schedule", {})
    job_submit(JobKind.BACKTEST, "Takes minutes", {}, user=user_of())
    job_submit(JobKind.ESTIMATE, "Of a large cluster", {LATER: True}, user=user_of())
    job_submit(JobKind.ADMISSION_PARTS, "Alternatives", {}, user=user_of())
    taken = taken_by_a_worker()
    assert taken[:2] == [JobKind.ADMISSION_PARTS, JobKind.ESTIMATE]
    assert taken[-2:] == [JobKind.BACKTEST, JobKind.REPORT]
    assert {*taken[2:-2]} == {
        JobKind.ESTIMATE,
        *(entry["task"] for entry in django_settings.CELERY_BEAT_SCHEDULE.values()),
    }


def taken_by_a_worker() -> list[str]:
    """Names of all waiting tasks, in the order in which a worker of both queues takes them from the broker."""
    names: list[str] = []

    def take(body: object, message: Message) -> None:
        names.append(message.headers["task"])
        message.ack()

    with app.connection_for_read() as connection, connection.channel() as channel:
        channel.basic_qos(0, 1, False)
        with Consumer(channel, list(app.amqp.queues.values()), callbacks=[take]), suppress(TimeoutError):
            while True:
                connection.drain_events(timeout=0.2)
    return names


def test_what_takes_long_for_its_size_leaves_the_queue_of_verdicts(user_of: Callable[..., User]) -> None:
    job = job_submit(JobKind.ESTIMATE, "Of a large cluster", {LATER: True}, user=user_of())
    assert (job.queue, job.priority) == ("background", 3)
    after_a_change = job_submit(JobKind.ESTIMATE, "After a query started", {})
    assert (after_a_change.queue, after_a_change.priority) == ("background", 6)
    assert job_submit(JobKind.BACKTEST, "Takes minutes", {}, user=user_of()).priority == 8
    assert job_submit(JobKind.BACKTEST, "Of the schedule", {}).priority == 9
    parts = job_submit(JobKind.ADMISSION_PARTS, "Of a program", {LATER: True}, user=user_of())
    assert (parts.queue, parts.priority) == ("background", 8)


def test_waiting_job_is_sent_again_once_somebody_waits_for_it(user_of: Callable[..., User]) -> None:
    job = submit(dedupe_key="one")
    assert submit(dedupe_key="one") == job
    assert (sent("interactive"), sent()) == (0, 1)
    for _ in range(2):
        asked = submit(dedupe_key="one", user=user_of())
        assert asked == job and asked.requested_by == user_of()
    assert (sent("interactive"), sent()) == (1, 1), "whichever comes second finds nothing to do"


def test_without_a_broker_nothing_is_stored(settings: Any) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    with pytest.raises(Unavailable) as caught:
        submit()
    assert caught.value.headers["Retry-After"]
    assert not Job.objects.exists()


def test_jobs_of_the_same_key_share_the_waiting_one() -> None:
    first = submit(dedupe_key="estimate:c")
    assert submit(dedupe_key="estimate:c") == first
    assert submit(dedupe_key="estimate:d") != first
    assert submit() != first
    job_start(first.pk)
    assert submit(dedupe_key="estimate:c") != first  # it started before the change that asks anew


def test_a_redelivered_task_of_a_finished_job_does_nothing() -> None:
    job = submit()
    stored: list[int] = []
    outcome = JobOutcome(store=lambda job: stored.append(job.attempt))
    for _ in range(3):
        run_job(job.pk, lambda report: outcome)
    job.refresh_from_db()
    assert (stored, job.state, job.attempt, job.progress) == ([1], JobState.SUCCEEDED, 1, 1.0)


def test_duplicate_delivery_is_ignored_while_the_worker_lives_and_repeated_after_its_loss() -> None:
    job = submit()
    first = job_start(job.pk)
    assert first is not None
    assert job_start(job.pk) is None
    silence(job)
    assert list(jobs_lost()) == [job]
    second = job_start(job.pk)
    assert second is not None
    assert second.attempt == 2

    stored: list[str] = []
    with pytest.raises(JobSuperseded):
        job_progress(first, 0.5, "back from the dead")
    with pytest.raises(JobSuperseded):
        job_succeed(first, store=lambda job: stored.append("first"))
    job_fail(first, Impossible("late"))
    job_succeed(second, store=lambda job: stored.append("second"))
    job.refresh_from_db()
    assert (stored, job.state, job.error) == (["second"], JobState.SUCCEEDED, None)


def test_task_of_a_killed_child_is_redelivered_at_once() -> None:
    job = submit()
    job_start(job.pk)
    again = job_start(job.pk, redelivered=True)
    assert again is not None
    assert again.attempt == 2


def test_job_that_kills_its_workers_fails_after_max_attempts(endings: list[tuple[str, bool]]) -> None:
    job = submit()
    for _ in range(MAX_ATTEMPTS):
        assert job_start(job.pk, redelivered=True)
    assert job_start(job.pk, redelivered=True) is None
    job.refresh_from_db()
    assert (job.state, job.error["code"]) == (JobState.FAILED, "worker_lost")
    assert endings == [(JobState.FAILED, True)]


def test_result_and_state_are_stored_in_one_transaction() -> None:
    job = submit()

    def store(job: Job) -> None:
        Job.objects.create(kind=JobKind.ESTIMATE, title="written by store")
        raise Impossible("no room for it", [("nodes[0]", "is full")])

    run_job(job.pk, lambda report: JobOutcome(store=store))
    job.refresh_from_db()
    assert job.state == JobState.FAILED
    assert job.error == {
        "code": "impossible",
        "message": "no room for it",
        "faults": [{"path": "nodes[0]", "message": "is full"}],
    }
    assert not Job.objects.filter(title="written by store").exists()


def test_result_address_comes_from_store() -> None:
    job = submit()
    run_job(job.pk, lambda report: JobOutcome(store=lambda job: JobOutcome({"run": 7}, "/c/x/", "/api/v1/estimates/7")))
    job.refresh_from_db()
    assert (job.result, job.result_url, job.result_api_url) == ({"run": 7}, "/c/x/", "/api/v1/estimates/7")


def test_unexpected_error_is_logged_and_fails_the_job(caplog: pytest.LogCaptureFixture) -> None:
    job = submit()
    run_job(job.pk, lambda report: 1 / 0)  # type: ignore[arg-type,return-value]
    job.refresh_from_db()
    assert job.error["code"] == "internal"
    assert str(job.pk) in job.error["message"]
    assert "division" not in str(job.error)
    assert "ZeroDivisionError" in caplog.text


def test_job_survives_a_database_error_until_the_sweep() -> None:
    job = submit()

    def work(report: JobReporter) -> JobOutcome:
        raise Unavailable("the database does not answer")

    with pytest.raises(Unavailable):
        run_job(job.pk, work)
    job.refresh_from_db()
    assert job.state == JobState.RUNNING


def test_a_waiting_job_is_cancelled_at_once(endings: list[tuple[str, bool]]) -> None:
    job = submit()
    assert job_cancel(job).state == JobState.CANCELLED
    assert job_cancel(job).state == JobState.CANCELLED
    assert run_job(job.pk, lambda report: pytest.fail("it was cancelled")) is None
    assert endings == [(JobState.CANCELLED, True)]


def test_running_job_is_cancelled_at_its_next_step(endings: list[tuple[str, bool]]) -> None:
    job = submit()

    def work(report: JobReporter) -> JobOutcome:
        report(0.1, "begin")
        assert job_cancel(job).state == JobState.RUNNING
        report(0.2, "go on")
        pytest.fail("it should have stopped")

    run_job(job.pk, work)
    job.refresh_from_db()
    assert (job.state, job.progress) == (JobState.CANCELLED, 0.1)
    assert endings == [(JobState.CANCELLED, True)]


def test_a_cancellation_before_the_end_stores_nothing() -> None:
    job = submit()
    running = job_start(job.pk)
    job_cancel(job)
    with pytest.raises(JobCancelled):
        job_succeed(running, store=lambda job: pytest.fail("cancelled"))


def test_an_ended_job_cannot_be_cancelled() -> None:
    job = submit()
    run_job(job.pk, lambda report: JobOutcome())
    with pytest.raises(Conflict, match="succeeded already"):
        job_cancel(job)


def test_progress_is_written_four_times_a_second_at_most(django_assert_max_num_queries: Any) -> None:
    job = job_start(submit().pk)
    report = JobReporter(job)
    with django_assert_max_num_queries(6):
        for number in range(1000):
            report(number / 1000, "count")
    report(0.999, "another step is shown at once")
    job.refresh_from_db()
    assert job.step == "another step is shown at once"


def test_lost_messages_are_sent_again() -> None:
    job = submit()
    with redis.Redis.from_url(django_settings.REDIS_URL) as client:
        client.delete(*client.keys("background*"))
    assert not jobs_lost().exists()
    Job.objects.update(sent_at=timezone.now() - timedelta(minutes=2))
    for lost in jobs_lost():
        job_resend(lost)
    assert sent() == 1
    assert not jobs_lost().exists()
    job.refresh_from_db()
    assert job.state == JobState.QUEUED


def test_heartbeats_continue_while_the_work_reports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from apps.jobs import runner

    monkeypatch.setattr(runner, "HEARTBEAT_S", 0.05)
    job = submit()

    def work(report: JobReporter) -> JobOutcome:
        silence(job)
        wait_until(lambda: not jobs_lost().exists(), what="a sign of life")
        job_cancel(job)
        wait_until(lambda: report.stop is not None, what="the heartbeat's notice of the cancellation")
        report(0.5, "more")
        pytest.fail("the heartbeat should have noticed the cancellation")

    run_job(job.pk, work)
    job.refresh_from_db()
    assert job.state == JobState.CANCELLED


def test_progress_noted_inside_a_transaction_is_written_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from apps.jobs import runner

    monkeypatch.setattr(runner, "HEARTBEAT_S", 0.05)
    job = submit()

    def work(report: JobReporter) -> JobOutcome:
        report.note(0.6, "Storing")
        assert Job.objects.get(pk=job.pk).step == ""
        wait_until(lambda: Job.objects.get(pk=job.pk).step == "Storing", what="the heartbeat's note")
        job_cancel(job)
        wait_until(lambda: report.stop is not None, what="the heartbeat's notice of the cancellation")
        report.note(0.7, "more")
        pytest.fail("a note should have stopped the work")

    run_job(job.pk, work)
    job.refresh_from_db()
    assert (job.state, job.progress) == (JobState.CANCELLED, 0.6)


def test_heartbeat_that_could_not_be_stored_is_followed_by_others(monkeypatch: pytest.MonkeyPatch) -> None:
    from apps.jobs import runner

    stored = runner.job_heartbeat
    failures = iter([OperationalError("database is locked")])

    def heartbeat(job: Job) -> None:
        for error in failures:
            raise error
        stored(job)

    monkeypatch.setattr(runner, "HEARTBEAT_S", 0.05)
    monkeypatch.setattr(runner, "job_heartbeat", heartbeat)
    job = submit()

    def work(report: JobReporter) -> JobOutcome:
        silence(job)
        wait_until(lambda: not jobs_lost().exists(), what="a sign of life")
        return JobOutcome()

    run_job(job.pk, work)
    job.refresh_from_db()
    assert job.state == JobState.SUCCEEDED


def test_wait_for_a_job_opens_no_connection_anew_and_reads_its_state_alone() -> None:
    job = submit()
    with CaptureQueriesContext(connection) as captured:
        before = connection.connection
        job_wait(job, 0.3)
    assert connection.connection is before or connection.vendor != "sqlite"
    looks = [each["sql"] for each in captured.captured_queries]
    assert len(looks) > 2 and all('"params"' not in sql for sql in looks[:-1])
