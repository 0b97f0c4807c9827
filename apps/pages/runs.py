"""Pages of one run, and of what is done with it."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from apps.core.errors import Conflict, Impossible, Malformed, SluiceError, Stale
from apps.jobs.runs import RunKind
from apps.pages.base import ClusterPage

__all__ = ["RunAction", "RunPage"]


class RunPage(ClusterPage):
    """A page about one run of the cluster in the address."""

    kind: ClassVar[RunKind[Any]]
    noun: ClassVar[str]

    def rows(self) -> QuerySet[Any]:
        """Runs of the cluster, with what the page reads."""
        return self.kind.visible().filter(cluster=self.cluster)

    def found(self, pk: UUID) -> Any:
        """The run, or Missing."""
        return self.find(self.rows(), self.noun, pk=pk)

    def get(self, request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
        return self.shown(self.found(pk))

    def answer(self, run: Any, refusal: SluiceError | None = None, **context: object) -> HttpResponse:
        """The page with what all have: what is announced of the run, its REST address, why something was refused."""
        topic, _ = self.kind.topics or ("", "")
        shared = {"run": run, "topic": f"{topic}:{run.pk}", "rest_path": self.kind.address(run)}
        refused = {"refusal": refusal.message if refusal else ""}
        return self.page({**shared, **refused, **context}, refusal.status if refusal else 200)

    def shown(self, run: Any, refusal: SluiceError | None = None) -> HttpResponse:
        """The run's page; with `refusal`, why what was just asked could not be done."""
        raise NotImplementedError


class RunAction(RunPage):
    """POST: does one thing and goes to a run; a refusal is shown on the run's page."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
        try:
            run = self.act(self.found(pk))
        except (Stale, Conflict, Impossible, Malformed) as refusal:
            return self.shown(self.found(pk), refusal)
        return redirect(self.after(run))

    def act(self, run: Any) -> Any:
        """Do it; gives the run whose page comes next."""
        raise NotImplementedError

    def after(self, run: Any) -> str:
        """Address of the page that comes next."""
        return self.kind.page(run)
