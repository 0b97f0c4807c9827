"""Facts of an admission request: its verdict, what supports it, and what a person may do with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any
from zoneinfo import ZoneInfo

from django.urls import reverse
from django.utils.safestring import SafeString

from apps.accounts.choices import Scope
from apps.accounts.models import User
from apps.accounts.permissions import role_hint
from apps.admission.boards import receipts_of
from apps.admission.choices import AdmissionState, PartState, TrialState, Verdict
from apps.admission.models import AdmissionRequest, AdmissionTrial
from apps.admission.parts import DecisionPart, parts_of, parts_topic
from apps.admission.previews import ADMISSION
from apps.admission.queue import QueuePlace, cluster_queue
from apps.admission.replays import DecisionReplay, replay_latest
from apps.admission.selectors import (
    AdmissionStanding,
    admission_never_ran,
    admission_standing,
    patience_ends_at,
)
from apps.admission.trials import (
    MAX_TRIAL_MINUTES,
    TRIAL_MINUTES,
    TrialOffer,
    trial_events,
    trial_newest,
    trial_offer,
)
from apps.exports.services import admission_export
from apps.fleet.models import Cluster
from apps.jobs.models import Job
from apps.measurements.stream_processor import timing_now
from apps.pages.accuracy.receipts import REASONS, ReceiptLine
from apps.pages.admission import tables as rows
from apps.pages.admission.charts import OutcomePicture, time_at
from apps.pages.exports import ExportFacts, export_facts
from apps.pages.predictions.charts import interval_figure
from apps.pages.predictions.facts import PredictionFacts
from apps.predictions.selectors import prediction_newest
from apps.queries.choices import QueryState
from apps.queries.selectors import queries_never_run, version_never_ran
from apps.telemetry.configs import live_served
from apps.telemetry.selectors import queries_driven
from apps.ui.marks import VERDICTS, Mark
from apps.ui.numbers import Quantity, count, factor, percent, seconds
from apps.ui.sentences import sentence
from apps.ui.times import time_tag
from engine.admission.answer import Alternative, PartName, QueryEffect, Reason, own_effect
from engine.admission.changes import moves_in, nodes_in, start_s_in
from engine.words import counted, duration_words, statistic_words

__all__ = ["AdmissionDetail", "AdmissionPowers", "LiveWaits", "live_waits"]


@dataclass(frozen=True)
class LiveWaits:
    """The wait for the agents' epoch, the trigger and its batch; with it the queries `over` miss their objectives."""

    wait_s: float
    names: tuple[str, ...]
    over: tuple[str, ...]

    @property
    def wait(self) -> Quantity:
        return seconds(self.wait_s)


def live_waits(cluster: Cluster, effects: Sequence[QueryEffect]) -> LiveWaits | None:
    """The waits of live queries among a decision's effects, as the stages are now; None where there are none."""
    by_name = {effect.query: effect for effect in effects}
    live = live_served().filter(query__cluster=cluster, query__name__in=by_name)
    names = tuple(live.order_by("query__name").values_list("query__name", flat=True))
    if not names:
        return None
    timing = timing_now()
    wait_s = timing.epoch_s + timing.interval_s + timing.batch_s
    return LiveWaits(wait_s, names, tuple(name for name in names if _misses(by_name[name], wait_s)))


def _misses(effect: QueryEffect, wait_s: float) -> bool:
    bound_s, after_s = effect.bound_s, effect.after_s
    return bool(bound_s) and after_s is not None and after_s <= (bound_s or 0.0) < after_s + wait_s


#: Why a rejected request cannot be applied, by whether there are alternatives and whether a review may be asked for.
_REJECTED = {
    (True, True): "Apply is off while the verdict is reject. Pick an alternative below and preview it, "
    "or ask for a review.",
    (True, False): "Apply is off while the verdict is reject. Pick an alternative below and preview it.",
    (False, True): "Apply is off while the verdict is reject. No alternative would pass: change the query, "
    "or ask for a review.",
    (False, False): "Apply is off while the verdict is reject. No alternative would pass: change the query.",
}


#: The same while it is not known whether there are any, by whether they are still searched.
_UNSEARCHED = {
    True: "Apply is off while the verdict is reject. What would pass is still searched.",
    False: "Apply is off while the verdict is reject. Whether anything would pass is not known.",
}


class AdmissionPowers:
    """Of `user` over `request`: its standing says what can be done at all, the scopes who may do it."""

    request: AdmissionRequest
    user: User
    choices: Any  #: what the decision offers, empty if nothing

    @cached_property
    def standing(self) -> AdmissionStanding:
        return admission_standing(self.request)

    @property
    def can_preview(self) -> bool:
        return Scope.OPERATE in self.user.scopes

    @property
    def can_replay(self) -> bool:
        """Whether the decision can be asked again by what is so today: a member's alone would be another question."""
        return self.can_preview and self.request.group_id is None

    @property
    def can_decide(self) -> bool:
        return Scope.ADMIT in self.user.scopes

    @property
    def is_member(self) -> bool:
        """Whether it is decided on with its group, on the page of that."""
        return self.request.group_id is not None

    @property
    def is_undecided(self) -> bool:
        """A preview or a review that somebody has to act on."""
        return self.request.state in {AdmissionState.PREVIEW, AdmissionState.AWAITING}

    @property
    def is_open(self) -> bool:
        return self.is_undecided or self.request.state in {AdmissionState.QUEUED, AdmissionState.ESTIMATING}

    @property
    def can_act(self) -> bool:
        """Whether the main button works: Apply, Queue or Approve."""
        return self.can_decide and (self.standing.can_apply or self.standing.can_approve)

    @property
    def can_override(self) -> bool:
        return self.can_decide and self.standing.can_override

    @property
    def can_ask_again(self) -> bool:
        closed = {AdmissionState.ESTIMATING, AdmissionState.APPLIED, AdmissionState.QUEUED}
        return self.can_preview and self.request.state not in closed

    @property
    def can_complete(self) -> bool:
        """Whether parts that were cut, cancelled or failed can be computed again."""
        return self.can_preview and (self.is_undecided or self.request.state == AdmissionState.QUEUED)

    @property
    def can_ask_review(self) -> bool:
        needed = self.request.verdict in {Verdict.REVIEW, Verdict.REJECT}
        return self.can_preview and needed and self.request.state == AdmissionState.PREVIEW

    @property
    def verb(self) -> str:
        """Label of the main button."""
        return {Verdict.QUEUE: "Queue", Verdict.REVIEW: "Approve"}.get(Verdict(self.request.verdict), "Apply")

    @property
    def why_off(self) -> str:
        """Reason why the main button is off, as a sentence on the page; empty if it is on."""
        if not self.is_undecided or self.can_act:
            return ""
        if self.standing.is_stale or self.standing.is_expired:
            return f"{self.verb} is off: the preview no longer speaks of the cluster as it is. Preview it again."
        if self.request.verdict == Verdict.REJECT:
            part = parts_of(self.request).get("alternatives")
            if not self.alternatives and part is not None and (part.is_under_way or part.can_be_retried):
                return _UNSEARCHED[part.is_under_way]
            return _REJECTED[bool(self.alternatives), self.request.state == AdmissionState.PREVIEW]
        if self.can_decide and self.standing.why_not:
            return f"{self.verb} is off. {self.standing.why_not}"
        role = self.user.get_role_display()
        return f"{self.verb} is off: your role ({role}) may not decide. {role_hint(Scope.ADMIT)}"


#: In the address: what was asked, where another outcome would be shown.
AS_ASKED = "as-asked"

_WEAKEST_FIRST = ("unknown", "assumed", "predicted", "measured")
_MAX_ANCESTORS = 30


class AdmissionDetail(AdmissionPowers):
    """Facts of the page; every property is computed when the template reads it."""

    def __init__(self, request: AdmissionRequest, user: User, cluster: Cluster, outcome: str = "") -> None:
        self.request = request
        self.user = user
        self.cluster = cluster
        self.decision = request.decision
        self._outcome = outcome  # as the address asks for it

    @property
    def parent(self) -> tuple[str, str]:
        """The page above, for whoever sees the whole cluster."""
        return "Admission", "pages:admissions"

    @property
    def failure(self) -> Mapping[str, Any]:
        """Message and faults of an estimate that failed."""
        job = self.request.job
        if job is not None and job.error:
            return job.error
        return {"message": "The estimate failed, and the job that says why is not kept any more.", "faults": []}

    @property
    def cluster_topic(self) -> str:
        return f"cluster:{self.cluster.slug}"

    @cached_property
    def export(self) -> ExportFacts | None:
        """The decision in terms of the query's engine; None of a query that was not imported, or of an alternative."""
        if self.choice is not None:
            return None
        base = f"/api/v1/admissions/{self.request.pk}/export"
        return export_facts(lambda: admission_export(self.request), base)

    # -- the outcome that is shown

    @cached_property
    def choice(self) -> Alternative | None:
        """The alternative that is looked at in place of what was asked."""
        return self._choices.get(self._outcome)

    @cached_property
    def _choices(self) -> dict[str, Alternative]:
        return {choice.id: choice for choice in self.decision.alternatives} if self.decision else {}

    @cached_property
    def outcome(self) -> str:
        """Id of the alternative in the pictures; empty for what was asked. What is queued is shown as it starts."""
        if self.choice is not None:
            return self._outcome
        return "" if self._outcome == AS_ASKED else self._queued

    @cached_property
    def _queued(self) -> str:
        """Id of the later start that a queued request waits for; empty for any other."""
        starts = (name for name, choice in self._choices.items() if choice.kind == "start_at")
        return next(starts, "") if self.request.verdict == Verdict.QUEUE else ""

    def _effects_of(self, outcome: str) -> Sequence[QueryEffect]:
        source = self._choices[outcome] if outcome else self.decision
        return source.effects if source else ()

    def _changes_of(self, outcome: str) -> list[str]:
        source = self._choices[outcome] if outcome else self.decision
        changes = source.changes if source else ()
        return [rows.change_words(change) for change in changes or self.request.asked_changes]

    @cached_property
    def outcomes(self) -> list[rows.OutcomeLink]:
        """Links to the outcomes of this decision; none where there is only one."""
        if not self._choices:
            return []
        links = [(AS_ASKED, "At once" if self.request.verdict == Verdict.QUEUE else "As asked")]
        links += [(name, rows.alternative_label(choice)) for name, choice in self._choices.items()]
        return [
            rows.OutcomeLink(name, label, f"?alternative={name}", name == (self.outcome or AS_ASKED))
            for name, label in links
        ]

    @property
    def address(self) -> str:
        """The page with the outcome it shows."""
        page = reverse("pages:admission", args=[self.cluster.slug, self.request.pk])
        return f"{page}?alternative={self._outcome}" if self.choice is not None or self._outcome == AS_ASKED else page

    @cached_property
    def picture(self) -> OutcomePicture | None:
        """Latencies and loads over the horizon; None for decisions that were kept without."""
        curves, starts_at = self.request.decision_curves, self.request.previewed_at
        if curves is None or starts_at is None:
            return None
        effects = [row.effect for row in self.effects]
        return OutcomePicture(curves, self.outcome, effects, starts_at, ZoneInfo(self.cluster.time_zone))

    @property
    def affected(self) -> list[SafeString]:
        """Queries that miss an objective, or may: by how much, on which server, and when; a sentence each."""
        return [self._affected(row) for row in self.effects if row.is_harmed]

    def _affected(self, row: rows.EffectRow) -> SafeString:
        when_s, starts_at = row.effect.when_s, self.request.previewed_at
        return sentence(
            "pages/admission/sentences/affected.html",
            row=row,
            statistic=statistic_words(row.effect.statistic),
            at=time_at(starts_at, when_s, self.cluster) if starts_at and when_s is not None else "",
            into=duration_words(when_s) if starts_at and when_s is not None else "",
        )

    @property
    def moved_but_hold(self) -> list[str]:
        """Neighbours whose latency changes and whose objective holds, or that have none."""
        return [row.name for row in self.effects if row.is_changed and not row.is_candidate and not row.is_harmed]

    # -- of a query that never ran

    @property
    def prediction_shown(self) -> PredictionFacts | None:
        """The prediction that is shown while the request is estimated."""
        return self.prediction

    @cached_property
    def prediction(self) -> PredictionFacts | None:
        """The preview's own; while it is estimated, the newest of the version."""
        row = self.request.prediction
        if row is None and self.request.state == AdmissionState.ESTIMATING:
            row = prediction_newest(self.request.version)
        return PredictionFacts(row) if row is not None else None

    @cached_property
    def receipts(self) -> list[ReceiptLine]:
        """Receipts of its promise; empty before it is applied."""
        if self.request.state != AdmissionState.APPLIED or self.choice is not None:
            return []
        return [ReceiptLine(receipt) for receipt in receipts_of(self.request)]

    wrong_reasons = REASONS

    @property
    def reason_hint(self) -> str:
        """Hint at the role that may say why a verdict was wrong."""
        return role_hint(Scope.ADMIT)

    @cached_property
    def own_effect(self) -> QueryEffect | None:
        """The decision's effect on the candidate itself; None while there is no decision."""
        return own_effect(self.decision.effects) if self.decision else None

    @cached_property
    def never_ran(self) -> bool:
        """Whether the verdict rests on a prediction, or lacks one; of a request without a verdict, whether it will."""
        stored = admission_never_ran(self.request)
        return version_never_ran(self.request.version) if stored is None else stored

    @property
    def predicted_bar(self) -> SafeString:
        """The predicted statistic of the objective with its interval; empty without a prediction."""
        effect = self.own_effect
        if effect is None or not effect.is_predicted or effect.after_s is None:
            return SafeString("")
        label = f"Predicted {statistic_words(effect.statistic)}"
        return interval_figure(label, effect.after_s, effect.low_s, effect.high_s, effect.bound_s)

    @cached_property
    def unmeasured(self) -> set[str]:
        """Names of the queries among the effects whose costs are nominal."""
        names = {effect.query for outcome in ("", self.outcome) for effect in self._effects_of(outcome)}
        rows = dict(self.cluster.queries.filter(name__in=names).values_list("pk", "name"))
        return {rows[pk] for pk in queries_never_run(rows)}

    @property
    def nominal_neighbours(self) -> list[str]:
        """Queries among the effects, the candidate aside, of which nothing is measured."""
        names = {effect.query for effect in self._effects_of("") if not effect.is_candidate}
        return sorted(names & self.unmeasured)

    # -- what it is about

    @property
    def title(self) -> str:
        runs = self.request.query.state == QueryState.RUNNING and self.request.state != AdmissionState.APPLIED
        return f"Change to {self.request.version}" if runs else f"Add {self.request.version}"

    @property
    def crumb(self) -> str:
        return f"Preview {str(self.request.pk)[:4]}"

    @property
    def objective(self) -> tuple[str, float | None]:
        """Statistic and bound that are asked for."""
        query, asked = self.request.query, self.request.objective
        if self.own_effect is not None:
            return self.own_effect.statistic, self.own_effect.bound_s
        return (asked["statistic"], asked["bound_s"]) if asked else (query.objective_statistic, query.objective_bound_s)

    @property
    def sentence(self) -> SafeString:
        statistic, bound_s = self.objective
        return sentence(
            "pages/admission/sentences/request.html",
            ask=self.request,
            statistic=statistic_words(statistic) if bound_s else "",
            bound_s=bound_s,
        )

    # -- the verdict

    @property
    def mark(self) -> Mark:
        return VERDICTS[self.choice.verdict if self.choice else self.request.verdict]

    @property
    def headline(self) -> tuple[str, str]:
        """(consequence, reason); of an alternative what it does and what follows."""
        if self.choice is not None:
            return self.choice.title, self.choice.detail
        return (self.decision.words.consequence, self.decision.words.explanation) if self.decision else ("", "")

    @property
    def rule(self) -> str:
        """The rule of the cluster that decided."""
        deciding = {reason.code for reason in self._reasons if reason.review}
        if self.request.verdict == Verdict.REVIEW and "latency_unknown" in deciding:
            return "review latencies that nobody knows"
        if self.request.verdict == Verdict.REVIEW and self.never_ran:
            return "review what is predicted"
        if self.request.verdict == Verdict.REVIEW:
            return "review what is at risk" if any("at_risk" in code for code in deciding) else "review what is assumed"
        return "may wait" if self.request.verdict == Verdict.QUEUE else "protect objectives"

    @property
    def evidence(self) -> str:
        """The weakest kind that the estimate of the query rests on."""
        if self.never_ran:
            return "never_ran"
        return next((kind for kind, count in self.evidence_counts if count), "")

    @property
    def evidence_counts(self) -> list[tuple[str, int]]:
        counts = self.decision.evidence if self.decision else {}
        return [(kind, counts.get(kind, 0)) for kind in _WEAKEST_FIRST]

    @cached_property
    def live_waits(self) -> LiveWaits | None:
        """Waits that the latencies of live queries leave out."""
        return live_waits(self.cluster, self._effects_of(self.outcome))

    # -- its parts

    @cached_property
    def alternatives(self) -> list[rows.AlternativeRow]:
        return rows.alternative_rows(list(self._choices.values()), {link.id: link for link in self.outcomes})

    @cached_property
    def effects(self) -> list[rows.EffectRow]:
        return self._effect_rows(self.outcome)

    def _effect_rows(self, outcome: str) -> list[rows.EffectRow]:
        """Rows of an outcome; whether the candidate was measured, the decision tells for all time."""
        own = self.request.query.name
        nominal = self.unmeasured - {own} | ({own} if self.decision and self.decision.never_ran else set())
        return rows.effect_rows(self.cluster.slug, self._effects_of(outcome), nominal)

    @property
    def effects_shown(self) -> list[rows.EffectRow]:
        """The candidate, what changes, and what does not hold."""
        return [row for row in self.effects if row.is_candidate or row.is_changed or row.tone]

    @property
    def effects_still(self) -> list[rows.EffectRow]:
        """The rest: they hold as before."""
        return [row for row in self.effects if row not in self.effects_shown]

    @property
    def effects_still_count(self) -> int:
        """All that hold as before, those included that were stored by their number alone."""
        return len(self.effects_still) + self._unchanged

    @property
    def _unchanged(self) -> int:
        source = self._choices[self.outcome] if self.outcome else self.decision
        return (source.unchanged or 0) if source else 0

    @property
    def effects_note(self) -> str:
        """5 of 25 queries change."""
        neighbours = [row for row in self.effects if not row.is_candidate]
        changed = sum(row.is_changed for row in neighbours)
        if not neighbours and not self._unchanged:
            return "Nothing else runs on the cluster"
        others = counted(len(neighbours) + self._unchanged, "other query", "other queries")
        if self.request.verdict == Verdict.QUEUE and not self.outcome:
            return f"If it started at once, {changed} of {others} would change"
        return f"1 of {others} changes" if changed == 1 else f"{changed} of {others} change"

    @cached_property
    def reasons(self) -> list[rows.ReasonRow]:
        return rows.reason_rows(self._reasons)

    @property
    def _reasons(self) -> Sequence[Reason]:
        return self.decision.reasons if self.decision else ()

    @cached_property
    def nodes(self) -> list[rows.NodeRow]:
        return rows.node_rows(self.cluster.slug, self.decision.nodes if self.decision else ())

    @property
    def nodes_shown(self) -> list[rows.NodeRow]:
        return [row for row in self.nodes if row.is_changed]

    @property
    def nodes_still(self) -> str:
        """10 others stay as they are."""
        still = len(self.nodes) - len(self.nodes_shown)
        if still == 1:
            return "1 other node stays as it is."
        return f"{still} other nodes stay as they are." if still else ""

    @cached_property
    def places(self) -> list[rows.PlaceRow]:
        if self.decision is None:
            return []
        predicted = self.request.prediction.placement if self.request.prediction else {}
        start = self.request.previewed_at
        clock = partial(time_at, start, cluster=self.cluster) if start else None
        return rows.place_rows(self.request.query.name, self.decision, self.request.placement, predicted, clock)

    # -- parts that follow the verdict

    @property
    def parts_topic(self) -> str:
        return parts_topic(self.request)

    @cached_property
    def _parts(self) -> dict[PartName, DecisionPart]:
        return parts_of(self.request)

    @property
    def searched(self) -> list[str]:
        """Sentences on what was tried in vain and what measuring would change; none before it is searched."""
        searched = self.decision.searched if self.decision else None
        return list(searched.sentences) if searched else []

    @property
    def alternatives_part(self) -> DecisionPart | None:
        return self._parts.get("alternatives")

    @property
    def robustness_part(self) -> DecisionPart | None:
        return self._parts.get("robustness")

    @property
    def part_at_work(self) -> str:
        """The part whose progress is that of the job; empty where none is under way."""
        under_way = [name for name, part in self._parts.items() if part.is_under_way]
        return next((name for name in under_way if self._parts[name].state == PartState.RUNNING), "") or next(
            iter(under_way), ""
        )

    @property
    def room_words(self) -> str:
        """Whether a verdict that passes is thin, where that is not known; empty where it is."""
        thin = self.decision.thin if self.decision is not None else False
        return {"pending": "not known yet", "unknown": "not known"}.get(str(thin), "")

    @property
    def robustness(self) -> list[str]:
        """Room of a verdict that passes, in sentences; empty where that was not asked."""
        robustness = self.decision.robustness if self.decision else None
        return list(robustness.sentences) if robustness else []

    # -- the trial

    @property
    def is_doubted(self) -> bool:
        """Whether there is something to say of how far the verdict stands, or was measured for it."""
        part = self.robustness_part
        is_missing = part is not None and (part.is_under_way or part.can_be_retried)
        return bool(is_missing or self.robustness or self.trial or (self.measure and self.is_undecided))

    @cached_property
    def trial(self) -> AdmissionTrial | None:
        return trial_newest(self.request)

    @cached_property
    def trial_offer(self) -> TrialOffer:
        """Empty for those who may not start one, where nothing is in doubt, and while one runs."""
        is_asked = self.is_undecided and not self.is_member and self.choice is None
        is_asked = is_asked and bool(self.robustness or self.measure)
        is_running = self.trial is not None and self.trial.state == TrialState.RUNNING
        return trial_offer(self.request) if is_asked and self.can_preview and not is_running else TrialOffer()

    @cached_property
    def trial_events(self) -> int:
        return trial_events(self.trial) if self.trial is not None else 0

    @property
    def trial_count(self) -> str:
        """Events measured, as text: 12.4 k."""
        return count(self.trial_events)

    @property
    def trial_ratio(self) -> str:
        """Measured by assumed cost: 1.31 times."""
        return str(factor(self.trial.cost_ratio)) if self.trial is not None else ""

    @property
    def statistics_topic(self) -> str:
        return f"statistics:{self.cluster.slug}"

    trial_minutes, max_trial_minutes = TRIAL_MINUTES, MAX_TRIAL_MINUTES

    @property
    def measure(self) -> list[str]:
        """Operators to measure before a person has to decide, by their names within the query."""
        return [name.rpartition("/")[2] for name in self.decision.measure] if self.decision else []

    @property
    def changes(self) -> list[str]:
        return self._changes_of(self.outcome)

    @property
    def act_words(self) -> SafeString:
        """Sentences on what applying does: operators placed and moved, nodes added, when it starts."""
        changes = self.decision.changes if self.decision else ()
        neighbours = [name for name in moves_in(changes) if name.partition("/")[0] != self.request.query.name]
        start_s = start_s_in(changes) or (self.decision and self.decision.start_s) or 0.0
        return sentence(
            "pages/admission/sentences/act.html",
            ask=self.request,
            cluster=self.cluster,
            placed=sum(row.query == self.request.query.name for row in self.places),
            nodes=self.node_count,
            moved=neighbours,
            added=[node.id for node in nodes_in(changes)],
            start=time_at(self.request.previewed_at, start_s, self.cluster) if start_s else "",
        )

    @cached_property
    def acted(self) -> rows.AppliedOutcome:
        """Effects and changes of what would be applied, whichever outcome is shown."""
        return rows.AppliedOutcome(self._effect_rows(self._queued), self._changes_of(self._queued))

    @property
    def node_count(self) -> int:
        placement = self.decision.placement if self.decision else {}
        return len({part.node for parts in placement.values() for part in parts})

    @property
    def harmed(self) -> list[rows.EffectRow]:
        """Neighbours that would be over or at risk, and were not."""
        return [row for row in self.acted.effects if row.is_harmed and not row.is_candidate]

    @property
    def chain(self) -> list[AdmissionRequest]:
        """Previews this one follows, itself, and those that follow it, oldest first."""
        requests, parent_id = [self.request], self.request.parent_id
        while parent_id and len(requests) < _MAX_ANCESTORS:
            parent = ADMISSION.visible().get(pk=parent_id)
            requests.insert(0, parent)
            parent_id = parent.parent_id
        children = list(ADMISSION.visible().filter(parent=self.request).order_by("created_at"))
        return [*requests, *children] if len(requests) + len(children) > 1 else []

    # -- today

    @property
    def is_settled(self) -> bool:
        """Whether its decision is of the past: what is undecided can be previewed again."""
        return bool(self.request.verdict) and not self.is_open

    @cached_property
    def replay(self) -> tuple[Job | None, DecisionReplay | None]:
        """The newest job that replays it, and the newest answer."""
        return replay_latest(self.request)

    # -- the queue

    @cached_property
    def place(self) -> tuple[QueuePlace | None, int]:
        """Its place, and how many wait."""
        queue = cluster_queue(self.cluster)
        return queue.place_of(self.request), len(queue.requests)

    @property
    def gives_up_at(self) -> SafeString:
        return time_tag(patience_ends_at(self.request), relative=False)

    # -- the calls behind the page

    @property
    def rest_body(self) -> dict[str, object]:
        """The call that asks the same question."""
        request = self.request
        body: dict[str, object] = {
            "cluster": self.cluster.slug,
            "query": request.query.name,
            "version": request.version.number,
        }
        question = {"objective": request.objective, "placement": request.placement, "changes": request.changes}
        body |= {name: value for name, value in question.items() if value}
        if request.prediction is not None:
            body["target"] = request.target
        return body | ({"may_wait_s": request.may_wait_s} if request.may_wait_s else {})

    @property
    def apply_path(self) -> str:
        return f"{ADMISSION.address(self.request)}/{'approve' if self.verb == 'Approve' else 'apply'}"

    @property
    def moves_nothing(self) -> bool:
        """Whether its decision is in the books alone: no agent and no stream processor executes the query."""
        return self.request.query_id is not None and not queries_driven([self.request.query_id])

    @property
    def share_note(self) -> str:
        """Share of its sources' events, where it does not read all of them."""
        share = self.request.query.rate_share
        return f" Its sources must hold back {percent(1 - share)} of their events." if share < 1 else ""
