"""How the demo's long work is done: here and now, or by workers while the visitor looks round."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from apps.accounts.models import User
from apps.fleet.models import Cluster
from apps.jobs.choices import JobKind
from apps.jobs.models import Job
from apps.jobs.running import Outcome, Reporter, run_job
from apps.jobs.services import job_submit

__all__ = ["Doing"]


@dataclass(frozen=True)
class Doing:
    """Makes jobs and has them done.

    Attributes
    ----------
    in_background : bool
        Leave what the demo does not rest on to the workers; without, the demo needs neither broker nor worker.
    """

    in_background: bool = False

    def job(self, kind: JobKind, title: str, cluster: Cluster, user: User, params: Mapping[str, Any]) -> Job:
        """A job for `finish`; in the background it is sent once the present transaction is committed."""
        if self.in_background:
            return job_submit(kind=kind, title=title, params=params, cluster=cluster, user=user)
        return Job.objects.create(kind=kind, title=title, params=dict(params), cluster=cluster, requested_by=user)

    def finish(self, job: Job, work: Callable[[Reporter], Outcome]) -> None:
        """Do a job here and now, unless workers have it.

        Raises
        ------
        RuntimeError
            It failed.
        """
        if self.in_background:
            return
        ended = run_job(job.pk, work)
        if ended is None or ended.error:
            raise RuntimeError(f"{job.title}: {ended.error if ended else 'not run'}")
