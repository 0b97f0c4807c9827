"""Evacuations: the list, the form, and one with its plan, its steps, and what is done with it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

from django import forms
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.accounts.permissions import signed_in_user
from apps.core.errors import SluiceError
from apps.fleet.models import Cluster
from apps.jobs.models import Job
from apps.pages.base import ClusterPage, done, try_service
from apps.pages.fleet.views import FleetList
from apps.pages.placement.tables import where_words
from apps.pages.runs import RunAction, RunPage
from apps.planning.choices import (
    EVACUATION_STATES,
    OPEN_EVACUATION_STATES,
    EvacuationOrder,
    EvacuationStepState,
    RunState,
)
from apps.planning.evacuation_commands import evacuation_commands
from apps.planning.evacuation_steps import (
    evacuation_confirm,
    evacuation_finish,
    evacuation_obstacle,
    evacuation_stop,
)
from apps.planning.evacuations import (
    EVACUATION,
    EvacuationFilter,
    failure_domain_labels,
    load_words,
    stored_plan,
)
from apps.planning.models import Evacuation, EvacuationStep
from apps.ui.feedback import toast
from apps.ui.marks import state_mark
from apps.ui.tables import Choice, Column, Filter, Table, request_columns
from apps.ui.times import time_tag
from engine.placement.answer import QueryChange
from engine.provisioning.answers.evacuations import EvacuationPlan, PlannedStep
from engine.words import counted, duration_words, listed

__all__ = [
    "Commands",
    "EvacuationConfirm",
    "EvacuationDelete",
    "EvacuationFinish",
    "EvacuationForm",
    "EvacuationNew",
    "EvacuationPage",
    "EvacuationStop",
    "EvacuationsPage",
]

_LOCAL = "%Y-%m-%dT%H:%M"
_NAMED = 6
_FIELDS = {"hold_s": "hold_min"}  # where refusals of the service belong


def evacuations_table(request: HttpRequest, cluster: Cluster) -> Table:
    """Newest first."""
    return Table(
        request,
        [
            Column("nodes", "Nodes", _nodes, csv=lambda run: " ".join(run.nodes), full=True),
            Column("order", "Order", lambda run: run.get_order_display(), csv=lambda run: run.order),
            Column(
                "starts", "From", lambda run: _moment(run.starts_at or run.begun_at, "once confirmed"), sort="starts_at"
            ),
            Column("ends", "Until", lambda run: _moment(run.ends_at, "ended by hand"), sort="ends_at"),
            Column("state", "State", lambda run: state_mark(run.state), sort="state", csv=lambda run: run.state),
            *request_columns(),
        ],
        EVACUATION.visible().filter(cluster=cluster),
        caption="Evacuations",
        default_sort="-created",
        filters=[Filter("state", [Choice(*state) for state in EVACUATION_STATES], all_label="Any state")],
        filterset=EvacuationFilter,
        file_name=f"evacuations-{cluster.slug}",
        empty={
            "icon": "nodes",
            "title": "No evacuation yet",
            "text": "Name nodes and a time: the plan says what moves, who is late meanwhile, and whether it fits.",
        },
    )


def _nodes(run: Evacuation) -> SafeString:
    url = reverse("pages:evacuation", args=[run.cluster.slug, run.pk])
    return format_html('<a class="name" href="{}">{}</a>', url, listed(run.nodes, _NAMED))


def _moment(moment: Any, otherwise: str) -> SafeString | str:
    return time_tag(moment, relative=False) if moment else otherwise


class EvacuationForm(forms.Form):
    """Nodes, their order, and a time in the person's zone."""

    nodes = forms.CharField(
        help_text="Names, separated by spaces; rack=r7 stands for all nodes with that label, pool=large for a pool."
    )
    order = forms.ChoiceField(
        choices=EvacuationOrder.choices,
        initial=EvacuationOrder.TOGETHER,
        help_text="One after the other is a rolling upgrade: each is back before the next one goes.",
    )
    domain = forms.ChoiceField(label="Failure domain", required=False, help_text="Label of nodes that go together.")
    starts_at = forms.DateTimeField(
        label="From",
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format=_LOCAL),
        help_text="In your time zone. Empty: as soon as the plan is confirmed.",
    )
    ends_at = forms.DateTimeField(
        label="Until",
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format=_LOCAL),
        help_text="When all are back. Empty: when you say so, or when the last one had its time.",
    )
    hold_min = forms.FloatField(
        label="Away each",
        required=False,
        min_value=0,
        help_text="How long each is away, where they follow one another.",
    )
    back = forms.BooleanField(
        label="Operators return with their nodes",
        required=False,
        initial=True,
        help_text="Otherwise they stay where they were moved.",
    )

    def __init__(self, *args: Any, cluster: Cluster, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        labels = failure_domain_labels(cluster)
        choices = [("", "none" if labels else "no node has a label"), *((label, label) for label in labels)]
        field = self.fields["domain"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = choices

    @property
    def asked(self) -> dict[str, object]:
        """Arguments of `EVACUATION.request`."""
        data = self.cleaned_data
        return {
            "nodes": data["nodes"].replace(",", " ").split(),
            "order": data["order"],
            "domain": data["domain"] if data["order"] == EvacuationOrder.DOMAIN else "",
            "starts_at": data["starts_at"],
            "ends_at": data["ends_at"],
            "hold_s": 60.0 * (data["hold_min"] or 0.0),
            "back": data["back"],
        }


class EvacuationsPage(FleetList):
    """`/c/<slug>/fleet/evacuations/`"""

    template_name = "pages/fleet/evacuations.html"
    tab = "evacuations"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        return self.show_list(evacuations_table(request, self.cluster))


class EvacuationNew(ClusterPage):
    """`/c/<slug>/fleet/evacuations/new/?nodes=n09`"""

    template_name = "pages/fleet/evacuation_new.html"
    scope = "operate"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        return self.shown(EvacuationForm(initial={"nodes": request.GET.get("nodes", "")}, cluster=self.cluster))

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        form = EvacuationForm(request.POST, cluster=self.cluster)
        if form.is_valid():
            asked, is_done = try_service(
                form,
                lambda: EVACUATION.request(cluster=self.cluster, user=signed_in_user(request), **form.asked),
                _FIELDS | {f"nodes[{i}]": "nodes" for i in range(len(form.asked["nodes"]))},  # type: ignore[arg-type]
            )
            if is_done:
                said = "The plan is being made. Nothing moves before you confirm it."
                return done(request, said, "pages:evacuation", slug, asked[0].pk)
        return self.shown(form, 422)

    def shown(self, form: EvacuationForm, status: int = 200) -> HttpResponse:
        body = {"cluster": self.slug, "nodes": [form["nodes"].value() or "n09"]}
        return self.page({"form": form, "rest_body": body}, status)


@dataclass(frozen=True)
class StepRow:
    """A step as it is planned, and how far it is."""

    row: EvacuationStep
    planned: PlannedStep | None

    @property
    def nodes(self) -> str:
        return listed(self.row.nodes, _NAMED)

    @property
    def job(self) -> Job | None:
        """The search or the moves that it waits for."""
        placement = self.row.placement
        jobs = (placement.moves_job, placement.job) if placement else ()
        return next((job for job in jobs if job is not None and not job.is_finished), None)

    @property
    def refusals(self) -> list[str]:
        """Why it cannot be done; empty if it can."""
        refusal = self.planned.refusal if self.planned else None
        if refusal is None:
            return []
        return [fault["message"] for fault in refusal.faults] or [refusal.message]

    @property
    def moves(self) -> list[dict[str, Any]]:
        return [
            {
                "operator": move.operator,
                "before": where_words([asdict(replica) for replica in move.before]),
                "after": where_words([asdict(replica) for replica in move.after]),
                "lasts": duration_words(move.duration_s) if move.operator not in self.unknown else "not known",
                "bump_s": move.bump_s,
                "bump_query": move.bump_query,
            }
            for move in (self.planned.moves if self.planned else ())
        ]

    @property
    def unknown(self) -> tuple[str, ...]:
        return self.planned.unknown if self.planned else ()

    @property
    def queries(self) -> list[QueryChange]:
        """Queries that it turns or touches, those that it breaks first."""
        if self.planned is None:
            return []
        turned = {*self.planned.breaks, *self.planned.risks}
        rows = [row for row in self.planned.queries if row.moved or row.query in turned]
        return sorted(rows, key=lambda row: (row.after_state != "breached", row.query not in turned, row.query))

    @property
    def delays(self) -> list[dict[str, Any]]:
        """Queries that it delays while operators move, in words."""
        rows = []
        for delay in self.planned.delays if self.planned else ():
            late = "no objective" if delay.bound_s is None else "in time"
            if delay.bound_s is not None and delay.late_s is None:
                late = "not known"
            elif delay.late_s:
                late = f"late for {duration_words(delay.late_s)}"
            rows.append({"query": delay.query, "extra_s": delay.extra_s, "late": late, "is_late": late[:4] == "late"})
        return rows

    @property
    def losses(self) -> list[str]:
        """Harm by the loss of a further node meanwhile, in words."""
        words = []
        for loss in self.planned.losses if self.planned else ():
            parts = [loss.refusal] if loss.refusal else []
            parts += [f"breaks {listed(loss.breaks, _NAMED)}"] if loss.breaks else []
            parts += [f"puts {listed(loss.risks, _NAMED)} at risk"] if loss.risks else []
            words.append(f"Losing {loss.node} as well: {'; '.join(parts)}.")
        return words


class EvacuationFacts:
    """An evacuation for its page."""

    def __init__(self, run: Evacuation, can_operate: bool) -> None:
        self.run, self.can_operate = run, can_operate

    @cached_property
    def plan(self) -> EvacuationPlan | None:
        return stored_plan(self.run)

    @cached_property
    def steps(self) -> list[StepRow]:
        rows = list(self.run.steps.select_related("placement__job", "placement__moves_job"))
        planned = list(self.plan.steps) if self.plan else [None] * len(rows)
        return [StepRow(row, step) for row, step in zip(rows, planned, strict=True)]

    @property
    def title(self) -> str:
        return f"Evacuation of {listed(self.run.nodes, _NAMED)}"

    @property
    def is_open(self) -> bool:
        return self.run.state in OPEN_EVACUATION_STATES

    @property
    def can_confirm(self) -> bool:
        return self.run.state == RunState.PROPOSED and self.is_possible and not self.obstacle

    @property
    def can_finish(self) -> bool:
        return (
            any(step.row.state == EvacuationStepState.AWAY for step in self.steps)
            and self.run.state == RunState.RUNNING
        )

    @property
    def can_stop(self) -> bool:
        return self.run.state in (RunState.SCHEDULED, RunState.RUNNING)

    @property
    def is_possible(self) -> bool:
        return self.plan is not None and self.plan.is_possible

    @cached_property
    def obstacle(self) -> str:
        """Why a possible plan cannot be confirmed."""
        obstacle = evacuation_obstacle(self.run) if self.is_possible else None
        return obstacle.message if obstacle else ""

    @property
    def breaks(self) -> str:
        return listed(self.run.facts.get("breaks", []), _NAMED)

    @property
    def risks(self) -> str:
        return listed(self.run.facts.get("risks", []), _NAMED)

    @property
    def late(self) -> str:
        return listed(self.run.facts.get("late", []), _NAMED)

    @property
    def answer(self) -> str:
        """The finding in a sentence."""
        if self.plan is None:
            return ""
        if not self.plan.is_possible:
            stuck = [node for step in self.plan.steps if step.refusal for node in step.nodes]
            return f"{listed(stuck, _NAMED)} cannot be emptied."
        moves = sum(len(step.moves) for step in self.plan.steps)
        if not moves:
            return "Nothing runs there: nothing has to move."
        what = f"{counted(moves, 'operator')} {'moves' if moves == 1 else 'move'}"
        least = "at least " if any(step.unknown for step in self.plan.steps) else "about "
        hold_s = self.run.hold_s * len(self.plan.steps)
        takes = f"It takes {least}{duration_words(self.run.facts['needed_s'] + hold_s)}, an estimate"
        takes += f", {duration_words(self.run.hold_s)} away each included." if hold_s else ", besides the time away."
        if self.breaks:
            return f"{what}, and {self.breaks} would miss the objective meanwhile. {takes}"
        if self.risks:
            return f"{what}, and {self.risks} may miss the objective meanwhile, or that is not known. {takes}"
        return f"{what}, and no objective is missed with the nodes away. {takes}"

    @property
    def load(self) -> str:
        return load_words(self.run) if self.run.facts else ""


class EvacuationPage(RunPage):
    """`/c/<slug>/fleet/evacuations/<uuid>/`"""

    kind, noun = EVACUATION, "evacuation"
    template_name = "pages/fleet/evacuation.html"

    def shown(self, run: Evacuation, refusal: SluiceError | None = None) -> HttpResponse:
        can_operate = "operate" in signed_in_user(self.request).scopes
        return self.answer(run, refusal, row=run, facts=EvacuationFacts(run, can_operate))


class Commands(EvacuationPage):
    """The plan as a shell script."""

    def get(self, request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
        answer = HttpResponse(evacuation_commands(self.found(pk)), content_type="text/plain; charset=utf-8")
        answer["Content-Disposition"] = f'attachment; filename="evacuation-{str(pk)[:8]}.sh"'
        return answer


class EvacuationConfirm(RunAction, EvacuationPage):
    """Confirm the plan."""

    def act(self, run: Evacuation) -> Evacuation:
        accepts = "accept_late" in self.request.POST
        run = evacuation_confirm(run=run, user=signed_in_user(self.request), accept_late=accepts)
        toast(self.request, "Confirmed: it begins at its time." if run.starts_at else "Confirmed: it begins now.")
        return run


class EvacuationFinish(RunAction, EvacuationPage):
    """End the time that the nodes are away."""

    def act(self, run: Evacuation) -> Evacuation:
        run = evacuation_finish(run=run)
        toast(self.request, "The nodes take operators again.")
        return run


class EvacuationStop(RunAction, EvacuationPage):
    """Stop, and take back what was done."""

    def act(self, run: Evacuation) -> Evacuation:
        run = evacuation_stop(run=run)
        toast(self.request, "It stops; what it moved is taken back.")
        return run


class EvacuationDelete(RunAction, EvacuationPage):
    """Forget an evacuation."""

    def act(self, run: Evacuation) -> Evacuation:
        EVACUATION.delete(run=run)
        toast(self.request, "The evacuation is deleted; what it moved stays where it is.")
        return run

    def after(self, run: Evacuation) -> str:
        return reverse("pages:evacuations", args=[self.slug])
