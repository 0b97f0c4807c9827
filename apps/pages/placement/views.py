"""Placement: the cluster's placement now, searches, one run, and what is done with it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django import forms
from django.db.models import Q
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse

from apps.accounts.permissions import signed_in_user
from apps.core.errors import Malformed, SluiceError
from apps.fleet.models import Cluster
from apps.pages.base import ClusterPage, try_service
from apps.pages.placement.facts import PlacementRunFacts
from apps.pages.placement.nodes import NodesNow
from apps.pages.placement.tables import finding_words, runs_table
from apps.pages.runs import RunAction, RunPage
from apps.planning.choices import PlacementAlgorithm, PlacementObjective, RunState
from apps.planning.models import PlacementRun
from apps.planning.placement_moves import (
    BATCH_SIZE,
    MAX_BATCH_SIZE,
    MAX_PACE,
    placement_abort,
    placement_apply,
    placement_done,
    placement_undo,
)
from apps.planning.placement_parameters import MAX_BUDGET_S, objective_default
from apps.planning.placement_search import PLACEMENT, placement_request_again, placement_stop
from apps.queries.choices import QueryState
from apps.queries.models import Operator
from apps.queries.snapshots.elements import operator_id
from apps.ui.feedback import toast

__all__ = [
    "RULES",
    "PlacementAbort",
    "PlacementApply",
    "PlacementApplyForm",
    "PlacementDelete",
    "PlacementDone",
    "PlacementLivePart",
    "PlacementPage",
    "PlacementRule",
    "PlacementRulePart",
    "PlacementRunPage",
    "PlacementRunsPage",
    "PlacementSearchAgain",
    "PlacementSearchForm",
    "PlacementStandingPart",
    "PlacementStop",
    "PlacementUndo",
]


#: What may be said of an operator and a node, or another operator.
RULES = {"pin": "stays on", "forbid": "must not be on", "apart": "not with"}


class PlacementRule:
    """One line of the advanced section."""

    def __init__(self, operator: str = "", kind: str = "pin", other: str = "") -> None:
        self.operator, self.kind, self.other = operator.strip(), kind if kind in RULES else "pin", other.strip()

    @property
    def is_empty(self) -> bool:
        return not self.operator and not self.other


class PlacementSearchForm(forms.Form):
    """A search. Constraints on single operators are lines of `rule_operator`, `rule_kind`, `rule_other`."""

    objective = forms.ChoiceField(label="Make small", choices=PlacementObjective.choices)
    budget_s = forms.FloatField(
        label="Search for",
        min_value=0.1,
        max_value=MAX_BUDGET_S,
        help_text=f"It ends earlier when nothing better can exist. Up to {MAX_BUDGET_S:g} s.",
    )
    max_moves = forms.IntegerField(
        label="At most",
        required=False,
        min_value=0,
        help_text="Empty: as many as it takes. Moves that gain less than 1% together are left out.",
    )
    may_split = forms.BooleanField(
        label="May split operators without state, or with state by key",
        required=False,
        help_text="Where one operator alone is the bottleneck, replicas share its events.",
    )
    algorithm = forms.ChoiceField(
        choices=PlacementAlgorithm.choices, required=False, help_text="Greedy ends without a search: to compare with."
    )
    seed = forms.IntegerField(
        required=False, min_value=0, help_text="Of the random numbers: the same one walks the same way."
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs["initial"] = {"budget_s": 5, "seed": 0, **(kwargs.get("initial") or {})}
        super().__init__(*args, **kwargs)

    @property
    def rules(self) -> list[PlacementRule]:
        """The lines as they were sent, else one empty line."""
        return _rules(self.data) or [PlacementRule()]

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        for rule in _rules(self.data):
            if not rule.operator or not rule.other:
                missing = "an operator" if not rule.operator or rule.kind == "apart" else "a node"
                said = f"{rule.operator or '…'} {RULES[rule.kind]} {rule.other or '…'}"
                self.add_error(None, f"Rule “{said}”: enter {missing}, or empty the line.")
        return data

    def asked(self, cluster: Cluster) -> dict[str, object]:
        """As the service takes it."""
        data = self.cleaned_data
        return {
            "algorithm": data["algorithm"] or PlacementAlgorithm.SEARCH,
            "objective": data["objective"],
            "budget_s": data["budget_s"],
            "seed": data["seed"] or 0,
            "constraints": self._constraints(cluster),
        }

    def _constraints(self, cluster: Cluster) -> dict[str, Any]:
        data = self.cleaned_data
        constraints: dict[str, Any] = {"pin": {}, "forbid": {}, "apart": []}
        for rule in _rules(self.data):
            if rule.kind == "pin":
                constraints["pin"][rule.operator] = rule.other
            elif rule.kind == "forbid":
                constraints["forbid"].setdefault(rule.operator, []).append(rule.other)
            else:
                constraints["apart"].append([rule.operator, rule.other])
        constraints = {name: value for name, value in constraints.items() if value}
        if data["max_moves"] is not None:
            constraints["max_moves"] = data["max_moves"]
        if data["may_split"]:
            constraints["may_split"] = list(_divisible(cluster))
        return constraints


class PlacementApplyForm(forms.Form):
    """Pace and size of the batches of moves."""

    pace = forms.FloatField(
        label="Pace",
        min_value=0,
        max_value=MAX_PACE,
        initial=1,
        help_text="Pause after each batch as a multiple of its estimated duration, at most 30 s. 0: none.",
    )
    batch_size = forms.IntegerField(
        label="Moves at a time",
        min_value=1,
        max_value=MAX_BATCH_SIZE,
        initial=BATCH_SIZE,
        help_text="Moves that touch the same node are never made together.",
    )


def _rules(data: Any) -> list[PlacementRule]:
    if not isinstance(data, QueryDict):
        return []
    lines = zip(data.getlist("rule_operator"), data.getlist("rule_kind"), data.getlist("rule_other"), strict=False)
    return [rule for rule in (PlacementRule(*line) for line in lines) if not rule.is_empty]


def _divisible(cluster: Cluster) -> Iterable[str]:
    is_divisible = Q(stateless=True) | Q(extra__keyed=True)
    rows = Operator.objects.filter(is_divisible, version__running_as__cluster=cluster)
    for query, name in rows.values_list("version__query__name", "name"):
        yield operator_id(query, name)


_LATEST = 5
_PICKS = 30


class PlacementPage(ClusterPage):
    """`/c/<slug>/placement/`"""

    template_name = "pages/placement/now.html"
    write_scope = "operate"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        return self._shown(PlacementSearchForm(initial={"objective": objective_default(self.cluster)}))

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        form = PlacementSearchForm(request.POST)
        if form.is_valid():
            run, ok = try_service(form, lambda: self._ask(form), {"constraints.max_moves": "max_moves"})
            if ok:
                return redirect("pages:placement-run", slug, run.pk)
        return self._shown(form, 422)

    def _ask(self, form: PlacementSearchForm) -> PlacementRun:
        run, _ = PLACEMENT.request(cluster=self.cluster, user=signed_in_user(self.request), **form.asked(self.cluster))
        return run

    def _shown(self, form: PlacementSearchForm, status: int = 200) -> HttpResponse:
        now = NodesNow(self.request, self.cluster)
        runs = PLACEMENT.visible().filter(cluster=self.cluster)[:_LATEST]
        context = {
            "form": form,
            "now": now,
            "rules": RULES,
            "runs": [{"run": run, "words": finding_words(run)} for run in runs],
            "has_running": self.cluster.queries.filter(state=QueryState.RUNNING).exists(),
            "rest_body": {"cluster": self.cluster.slug, "budget_s": 5},
        }
        return self.page(context, status)


class PlacementRunsPage(ClusterPage):
    """`/c/<slug>/placement/runs/`"""

    template_name = "pages/placement/runs.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        table = runs_table(request, self.cluster)
        return self.page({"table": table})


class PlacementRulePart(ClusterPage):
    """One more line for the constraints of a search."""

    template_name = "pages/placement/rule.html"
    scope = "operate"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        return self.page({"rule": PlacementRule(), "rules": RULES})


class PlacementRunPage(RunPage):
    """`/c/<slug>/placement/<uuid>/?show=moves`"""

    kind, noun = PLACEMENT, "placement run"
    template_name = "pages/placement/run.html"

    def shown(self, run: PlacementRun, refusal: SluiceError | None = None, form: Any = None) -> HttpResponse:
        facts = PlacementRunFacts(self.request, run, signed_in_user(self.request), compares=refusal is not None)
        notice = refusal.message if refusal and not facts.standing.is_stale else ""
        context = {"facts": facts, "notice": notice, "apply_form": form or PlacementApplyForm(), "table": facts.table}
        return self.answer(run, refusal, **context)


class PlacementLivePart(PlacementRunPage):
    """The part of the page that follows the search."""

    template_name = "pages/placement/live.html"

    def get(self, request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
        run = self.found(pk)
        if run.state != RunState.SEARCHING:
            return HttpResponse(status=204)  # the page around this part is on its way
        return self.page({"facts": PlacementRunFacts(request, run, signed_in_user(request)), "run": run})


class PlacementStandingPart(PlacementRunPage):
    """Changes of the cluster since the search, fetched on their own where finding them takes long."""

    template_name = "pages/placement/notices.html"

    def get(self, request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
        run = self.found(pk)
        return self.page({"facts": PlacementRunFacts(request, run, signed_in_user(request), compares=True), "run": run})


class PlacementStop(RunAction, PlacementRunPage):
    """End the search, keep its best."""

    def act(self, run: PlacementRun) -> PlacementRun:
        stopped = placement_stop(run=run)
        toast(self.request, "The search stops; its best placement becomes the proposal.")
        return stopped


class PlacementApply(RunAction, PlacementRunPage):
    """Begin to move."""

    def post(self, request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
        form = PlacementApplyForm(request.POST)
        if not form.is_valid():
            faults = [(name, str(message)) for name, messages in form.errors.items() for message in messages]
            words = "; ".join(f"{form.fields[name].label}: {message}" for name, message in faults)
            return self.shown(self.found(pk), Malformed(words, faults), form)
        return super().post(request, slug, pk)

    def act(self, run: PlacementRun) -> PlacementRun:
        form = PlacementApplyForm(self.request.POST)
        form.is_valid()
        applying, _ = placement_apply(run=run, user=signed_in_user(self.request), **form.cleaned_data)
        driven = PlacementRunFacts(self.request, applying, signed_in_user(self.request)).is_driven
        words = "The moves have begun." if driven else "The moves are recorded here; nothing moves by that."
        toast(self.request, words)
        return applying


class PlacementAbort(RunAction, PlacementRunPage):
    """Stop after the present batch."""

    def act(self, run: PlacementRun) -> PlacementRun:
        aborted = placement_abort(run=run)
        toast(self.request, "No further batch is begun.")
        return aborted


class PlacementDone(RunAction, PlacementRunPage):
    """Say that an engine made the moves."""

    def act(self, run: PlacementRun) -> PlacementRun:
        done = placement_done(run=run, note=self.request.POST.get("note", ""), user=signed_in_user(self.request))
        toast(self.request, "Noted as done.")
        return done


class PlacementUndo(RunAction, PlacementRunPage):
    """Begin to move back."""

    def act(self, run: PlacementRun) -> PlacementRun:
        undoing, _ = placement_undo(run=run, user=signed_in_user(self.request))
        toast(self.request, "The moves are being taken back.")
        return undoing


class PlacementSearchAgain(RunAction, PlacementRunPage):
    """The same search of the cluster as it is now."""

    def act(self, run: PlacementRun) -> PlacementRun:
        return placement_request_again(run=run, user=signed_in_user(self.request))[0]


class PlacementDelete(RunAction, PlacementRunPage):
    """Forget a run."""

    def act(self, run: PlacementRun) -> PlacementRun:
        PLACEMENT.delete(run=run)
        toast(self.request, "The run is deleted; what it moved stays where it is.")
        return run

    def after(self, run: PlacementRun) -> str:
        return reverse("pages:placement", args=[self.slug])
