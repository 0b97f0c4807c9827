"""Kinds of runs, and the life that all have: requested, answered by their job, failed or cancelled with it, deleted.

A kind derives from `RunKind` in a module of its own and is registered there; `RunViewSet` (`apps.jobs.viewsets`)
shows it to clients of the REST API, and `workers.jobs` has its task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Generic, TypeVar

from django.db import transaction
from django.db.models import Model, Q, QuerySet

from apps.accounts.models import User
from apps.core.clock import shared_now
from apps.core.events import announce
from apps.jobs.models import BRIEF, LATER, Job, JobState
from apps.jobs.runner import JobOutcome, JobReporter
from apps.jobs.services import job_submit, on_unanswered

__all__ = ["RUN_KINDS", "AnswerKind", "RunKind", "register", "runs_purge"]

R = TypeVar("R", bound=Model)


class RunKind(Generic[R]):
    """A kind of run: its rows, its job, and what is done at each step of its life.

    Attributes
    ----------
    model, job
        Its rows, and the kind of job that answers one.
    name
        Parameter of the job that names the run.
    path
        Its collection in the REST API; empty: what is read there is its job.
    topics
        What is announced of a run: its own topic, and that of the cluster's list. None: nothing is.
    asked, answered, failed, cancelled
        Its states before its job has ended, and after each end.
    columns, stamp, emptied
        The columns of the answer, that with its time, and those that are emptied when a run ends without one.
    related, bulk
        Rows that lists show with it, and columns that they leave out.
    retention, old
        Age after which runs are deleted (None: they go with what they are of), and those that may be.
    """

    model: type[R]
    job: str
    name: str
    path: str = ""
    topics: tuple[str, str] | None = None
    asked: str = "asked"
    answered: str = "answered"
    failed: str = "failed"
    cancelled: str = "cancelled"
    cancel_message: str = ""
    columns: Sequence[str] = ("result",)
    stamp: str = "finished_at"
    emptied: Sequence[str] = ()
    related: Sequence[str] = ("cluster", "job", "requested_by")
    bulk: Sequence[str] = ("snapshot_parts", "result")
    retention: ClassVar[timedelta | None] = None
    old: ClassVar[Q] = ~Q(state="asked")

    # What a kind says of itself

    def title(self, run: R) -> str:
        """Title of the run's job."""
        raise NotImplementedError

    def page(self, run: R) -> str:
        """Address of the run's page."""
        raise NotImplementedError

    def create(self, *, user: User | None, **asked: Any) -> R:
        """Check a question and write its run without a job; it may be answered already, or be one of before."""
        raise NotImplementedError

    def answer(self, run: R, report: JobReporter) -> Any:
        """Ask the engine, and set the columns of the answer or return what `keep` makes them of.

        Called in a worker, where alone the engine is loaded.
        """
        raise NotImplementedError

    def facts(self, run: R) -> Mapping[str, object]:
        """Small facts of an answer for its job."""
        return {self.name: str(run.pk)}

    def keep(self, run: R, answer: Any, job: Job) -> R:
        """Store an answer and do what follows from it, in the transaction that ends the job; the run as stored.

        Everybody who writes waits for it on SQLite: what takes time is done by `answer`, or by `follow`.
        """
        self.store(run)
        return run

    def follow(self, run: R, answer: Any) -> None:
        """Do what follows of an answer that is stored, outside of its transaction."""

    def cluster(self, run: R) -> Any:
        """The cluster that it is about."""
        return run.cluster

    def once(self, run: R, params: Mapping[str, object]) -> str:
        """Key of which one job waits at a time: asked again, the run has that job. Empty: each has its own."""
        return ""

    # The life that all have

    def visible(self) -> QuerySet[R]:
        """Every run without its bulk, newest first."""
        return self.model._default_manager.select_related(*self.related).defer(*self.bulk)

    def address(self, run: R) -> str:
        """Its address in the REST API."""
        return f"/api/v1/{self.path}/{run.pk}" if self.path else f"/api/v1/jobs/{run.job_id}"

    def announce(self, run: R) -> None:
        """Tell open pages that a run has changed."""
        if self.topics is not None:
            topic, list_topic = self.topics
            announce(f"{topic}:{run.pk}")
            announce(f"{list_topic}:{self.cluster(run).slug}")

    @transaction.atomic
    def request(
        self, *, user: User | None = None, by: Callable[..., Job] = job_submit, **asked: Any
    ) -> tuple[R, Any]:  # a job, or None
        """Request a run; arguments as of `create`. The job is None where a question was answered before or at once."""
        run = self.create(user=user if user is not None and user.pk else None, **asked)
        if run.state == self.asked and run.job_id is None:
            self.submit(run, user, by=by)
        return run, run.job

    def submit(self, run: R, user: User | None, *, by: Callable[..., Job] = job_submit, **params: object) -> Job:
        """Submit the job that answers a run, in the transaction that made the run; `params` are for `answer`."""
        run.job = self.job_by(by, run, user, {self.name: str(run.pk), **params})
        self._save(run, "job")
        self.announce(run)
        return run.job

    def job_by(self, by: Callable[..., Job], run: R, user: User | None, params: Mapping[str, object]) -> Job:
        """The job of a run, made by `job_submit` or what does as it does."""
        asked = {"title": self.title(run), "cluster": self.cluster(run), "dedupe_key": self.once(run, params)}
        later = {LATER: True} if self.is_long(run) else {}
        brief = {BRIEF: True} if self.is_brief(run) else {}
        return by(kind=self.job, params={**params, **later, **brief}, user=user, **asked)

    def is_long(self, run: R) -> bool:
        """Whether a run takes so long for its size that verdicts and short work must not wait for it."""
        return False

    def is_brief(self, run: R) -> bool:
        """Whether a run of a kind that may take minutes takes seconds, so that it waits for none that does."""
        return False

    def taken(self, job: Job) -> R:
        """The run that a job begins to answer."""
        return self.model._default_manager.select_related(*self.related).get(pk=job.params[self.name])

    def run_of(self, job: Job) -> R | None:
        """The job's run, locked: its end overwrites no decision of the same moment. None if it is deleted."""
        return self.model._default_manager.select_for_update().filter(pk=job.params[self.name]).first()

    def work(self, report: JobReporter) -> JobOutcome:
        """The work of the run's job."""
        run = self.taken(report.job)
        answer = self.answer(run, report)

        def store(job: Job) -> JobOutcome:
            kept = self.keep(run, answer, job)
            return JobOutcome(self.facts(kept), self.page(kept), self.address(kept))

        return JobOutcome(store=store, follow=lambda: self.follow(run, answer))

    def store(self, run: R) -> None:
        """Store the columns of an answer. Of a job, it is called in the transaction that ends the job."""
        run.state = self.answered
        setattr(run, self.stamp, shared_now())
        self._save(run, "state", self.stamp, *self.columns)
        self.announce(run)

    def end(self, job: Job) -> None:
        """Let a run fail or be cancelled with its job."""
        run = self.run_of(job)
        if run is None or not self.ends_with(job, run):
            return
        run.state, run.finished_at, run.message = self.state_after(job), shared_now(), self.message_after(job)
        for name in self.emptied:
            setattr(run, name, self.model._meta.get_field(name).get_default())
        self._save(run, "state", "finished_at", "message", *self.emptied)
        self.announce(run)

    def _save(self, run: R, *columns: str) -> None:
        """Save some columns; a kind may lack the common times."""
        known = {field.name for field in self.model._meta.concrete_fields}
        run.save(update_fields=[name for name in (*columns, "updated_at") if name in known])

    def ends_with(self, job: Job, run: R) -> bool:
        """Whether a run ends with its job that has no answer."""
        return bool(run.state == self.asked)

    def state_after(self, job: Job) -> str:
        """State of a run whose job ended without an answer."""
        return self.cancelled if job.state == JobState.CANCELLED else self.failed

    def message_after(self, job: Job) -> str:
        """Why a job failed, as far as a run keeps it."""
        return str((job.error or {}).get("message", self.cancel_message))[:500]

    @transaction.atomic
    def delete(self, *, run: R) -> None:
        """Delete a run; what was applied of it stays."""
        self.announce(run)
        run.delete()

    def purge(self) -> int:
        """Delete runs older than `retention`; returns the number."""
        if self.retention is None:
            return 0
        rows = self.model._default_manager.filter(self.old, created_at__lt=shared_now() - self.retention)
        return int(rows.delete()[1].get(self.model._meta.label, 0))


class AnswerKind(RunKind[R]):
    """A kind of a cluster whose row is written with its answer: until then its job has the question, and of one that
    failed there is no row.
    """

    related, bulk = ("cluster",), ("snapshot_parts",)

    def ask(self, cluster: Any, **asked: Any) -> Mapping[str, object]:
        """Check a question; parameters of its job."""
        raise NotImplementedError

    def request(
        self, *, cluster: Any, user: User | None = None, by: Callable[..., Job] = job_submit, **asked: Any
    ) -> tuple[R, Job]:
        """Request an answer; arguments as of `ask`. One that still waits for a worker is returned instead of a second
        one: it takes its snapshot when it starts.
        """
        run, params = self.model(cluster=cluster), {"cluster": cluster.slug, **self.ask(cluster, **asked)}
        return run, self.job_by(by, run, user, params)

    def is_brief(self, run: R) -> bool:
        """Whether a run of a kind that may take minutes takes seconds, so that it waits for none that does."""
        return False

    def taken(self, job: Job) -> R:
        return self.model(cluster=job.cluster, job=job)

    def run_of(self, job: Job) -> None:
        return None

    def write(self, run: R) -> None:
        """Write a run with its answer: it is as old as that."""
        run.created_at = shared_now()
        run.save()

    def answered_by(self, job: Job) -> R:
        """The run that a job wrote."""
        return self.visible().get(job=job)


#: Registered kinds by the kind of their job.
RUN_KINDS: dict[str, RunKind[Any]] = {}
K = TypeVar("K", bound=RunKind[Any])


def register(kind: K) -> K:
    """Give a kind its life: its task, its end with its job, its retention."""
    RUN_KINDS[kind.job] = kind
    on_unanswered(kind.job, kind.end)
    return kind


def runs_purge() -> int:
    """Delete the old runs of every kind; returns the number."""
    return sum(kind.purge() for kind in RUN_KINDS.values())
