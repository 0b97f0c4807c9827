"""One placement run: live while it searches, then what it proposes, and how far it is applied."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse

from apps.core.errors import Missing, SluiceError
from apps.pages.base import ClusterPage
from apps.pages.placement_detail import RunDetail
from apps.pages.placement_forms import ApplyForm
from apps.placements.choices import RunState
from apps.placements.models import PlacementRun
from apps.placements.selectors import placements_visible

__all__ = ["LivePart", "OneRunPage", "RunPage", "StandingPart"]


class OneRunPage(ClusterPage):
    """A page about one run of the cluster in the address."""

    template_name = "pages/placement/run.html"

    def found(self, pk: UUID) -> PlacementRun:
        """The run, or Missing."""
        run = placements_visible().filter(cluster=self.cluster, pk=pk).first()
        if run is None:
            raise Missing(f"Cluster {self.cluster.slug!r} has no placement run {pk}.")
        return run

    def shown(self, run: PlacementRun, refusal: SluiceError | None = None, form: Any = None) -> HttpResponse:
        """The run's page; with `refusal`, why what was just asked could not be done."""
        detail = RunDetail(self.request, run, self.request.user, compares=refusal is not None)
        notice = refusal.message if refusal and not detail.standing.is_stale else ""
        context = {"one": detail, "run": run, "notice": notice, "apply_form": form or ApplyForm()}
        return self.page(context, refusal.status if refusal else 200)


class RunPage(OneRunPage):
    """`/c/<slug>/placement/<uuid>/?show=moves`"""

    def get(self, request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
        run = self.found(pk)
        detail = RunDetail(request, run, request.user)
        if detail.table is not None and detail.table.wants_csv:
            return detail.table.csv_response()
        return self.shown(run)


class LivePart(OneRunPage):
    """The part of the page that follows the search."""

    template_name = "pages/placement/live.html"

    def get(self, request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
        run = self.found(pk)
        if run.state != RunState.SEARCHING:
            return HttpResponse(status=204)  # the page around this part is on its way
        return self.page({"one": RunDetail(request, run, request.user), "run": run})


class StandingPart(OneRunPage):
    """What has moved since: fetched by itself where finding it out takes long."""

    template_name = "pages/placement/notices.html"

    def get(self, request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
        run = self.found(pk)
        return self.page({"one": RunDetail(request, run, request.user, compares=True), "run": run})
