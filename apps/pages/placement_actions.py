"""What is done with a placement run: stopped, applied, aborted, undone, asked again, deleted."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from apps.core.errors import Conflict, Impossible, Malformed, Stale
from apps.pages.base import done
from apps.pages.placement_forms import ApplyForm
from apps.pages.placement_run import OneRunPage
from apps.placements.applying import placement_abort, placement_apply, placement_undo
from apps.placements.models import PlacementRun
from apps.placements.services import placement_delete, placement_request_again, placement_stop
from apps.ui.feedback import toast

__all__ = ["Abort", "Apply", "Delete", "SearchAgain", "Stop", "Undo"]


class _Action(OneRunPage):
    """POST: does one thing and goes to a run; a refusal is shown on the run's page."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
        try:
            run = self.act(self.found(pk))
        except (Stale, Conflict, Impossible, Malformed) as refusal:
            return self.shown(self.found(pk), refusal)
        return redirect("pages:placement-run", slug, run.pk)

    def act(self, run: PlacementRun) -> PlacementRun:
        """Do it; gives the run whose page comes next."""
        raise NotImplementedError

    @property
    def user(self) -> Any:
        return self.request.user


class Stop(_Action):
    """End the search, keep its best."""

    def act(self, run: PlacementRun) -> PlacementRun:
        stopped = placement_stop(run=run)
        toast(self.request, "The search stops; its best placement becomes the proposal.")
        return stopped


class Apply(_Action):
    """Begin to move."""

    def post(self, request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
        form = ApplyForm(request.POST)
        if not form.is_valid():
            faults = [(name, str(message)) for name, messages in form.errors.items() for message in messages]
            words = "; ".join(f"{form.fields[name].label}: {message}" for name, message in faults)
            return self.shown(self.found(pk), Malformed(words, faults), form)
        return super().post(request, slug, pk)

    def act(self, run: PlacementRun) -> PlacementRun:
        form = ApplyForm(self.request.POST)
        form.is_valid()
        applying, _ = placement_apply(run=run, user=self.user, **form.cleaned_data)
        toast(self.request, "The moves have begun.")
        return applying


class Abort(_Action):
    """Stop after the present batch."""

    def act(self, run: PlacementRun) -> PlacementRun:
        aborted = placement_abort(run=run)
        toast(self.request, "No further batch is begun.")
        return aborted


class Undo(_Action):
    """Begin to move back."""

    def act(self, run: PlacementRun) -> PlacementRun:
        undoing, _ = placement_undo(run=run, user=self.user)
        toast(self.request, "The moves are being taken back.")
        return undoing


class SearchAgain(_Action):
    """The same search of the cluster as it is now."""

    def act(self, run: PlacementRun) -> PlacementRun:
        return placement_request_again(run=run, user=self.user)[0]


class Delete(OneRunPage):
    """Forget a run."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
        run = self.found(pk)
        try:
            placement_delete(run=run)
        except Conflict as refusal:
            return self.shown(self.found(pk), refusal)
        return done(request, "The run is deleted; what it moved stays where it is.", "pages:placement", slug)
