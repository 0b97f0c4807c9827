"""Tables of admission: the list of requests, and the rows of one decision."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from django.db.models import Count
from django.db.models.fields.json import KT
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.admission.choices import AdmissionSource, AdmissionState, Verdict
from apps.admission.models import AdmissionRequest
from apps.admission.previews import ADMISSION
from apps.admission.queue import QueuePlace
from apps.admission.selectors import AdmissionFilter, patience_ends_at
from apps.fleet.models import Cluster
from apps.pages.overview.tables import objective_text
from apps.pages.saved_views.bar import open_views
from apps.saved_views.models import SavedList
from apps.ui.marks import STATES, VERDICTS, judged_state, state_mark, verdict_badge, verdict_icon
from apps.ui.numbers import MISSING, Quantity, cps, factor, percent, ratio, seconds
from apps.ui.pictures import before_after_bar, load_bar
from apps.ui.sentences import sentence
from apps.ui.tables import Choice, Column, Filter, Table
from apps.ui.times import time_tag
from engine.admission.answer import AdmissionDecision, Alternative, NodeEffect, QueryEffect, Reason, own_effect
from engine.admission.changes import Change, LaterStart, NewNode, ObjectiveChange, OperatorMove, RateChange
from engine.document.elements import Replica
from engine.latency_state import NEVER_CATCHES_UP
from engine.placement.separation import ApartOperator
from engine.words import counted, duration_words, server_words, statistic_text

__all__ = [
    "AlternativeRow",
    "AppliedOutcome",
    "EffectRow",
    "NodeRow",
    "OutcomeLink",
    "PlaceRow",
    "ReasonRow",
    "alternative_label",
    "alternative_rows",
    "change_words",
    "effect_rows",
    "node_rows",
    "place_rows",
    "reason_rows",
]


_WAITING = (AdmissionState.PREVIEW, AdmissionState.AWAITING)


class AdmissionCounts:
    """Number of requests of each verdict, in each state and of each source."""

    def __init__(self, cluster: Cluster) -> None:
        rows = AdmissionRequest.objects.filter(cluster=cluster).order_by()
        by_all = rows.values_list("verdict", "state", "source").annotate(n=Count("pk"))
        self.verdicts: dict[str, int] = {}
        self.states: dict[str, int] = {}
        self.sources: dict[str, int] = {}
        for verdict, state, source, n in by_all:
            self.sources[source] = self.sources.get(source, 0) + n
            self.verdicts[verdict] = self.verdicts.get(verdict, 0) + n
            self.states[state] = self.states.get(state, 0) + n
        self.total = sum(self.states.values())

    @property
    def sentence(self) -> SafeString:
        """2 wait for somebody to act, 1 queued, 5 applied, of 8 requests."""
        return sentence(
            "pages/admission/sentences/requests.html",
            total=self.total,
            waiting=sum(self.states.get(str(state), 0) for state in _WAITING),
            queued=self.states.get(str(AdmissionState.QUEUED), 0),
            applied=self.states.get(str(AdmissionState.APPLIED), 0),
        )


@dataclass(frozen=True)
class QueuedRequest:
    """A request in the queue."""

    place: QueuePlace
    request: AdmissionRequest

    @property
    def gives_up_at(self) -> SafeString:
        return time_tag(patience_ends_at(self.request), relative=False)


def admissions_table(request: HttpRequest, cluster: Cluster, counts: AdmissionCounts, *, can_ask: bool) -> Table:
    """Newest first; chips by verdict and by state."""
    empty = {
        "icon": "admission",
        "title": "No requests yet",
        "text": "Preview a query to see its latency and what it does to the others.",
    }
    if can_ask:
        url = reverse("pages:admission-new", args=[cluster.slug])
        empty |= {"url": url, "action": "Preview an admission", "action_icon": "plus"}
    return Table(
        request,
        _columns(cluster.slug),
        ADMISSION.visible().filter(cluster=cluster).annotate(headline=KT("result__headline")).defer("result"),
        caption="Admission requests",
        default_sort="-created",
        filters=[
            Filter("verdict", _verdicts(counts), all_label="Any verdict", all_count=counts.total),
            Filter("state", _states(counts), all_label="Any state"),
            Filter("source", _sources(counts), all_label="Any source"),
        ],
        filterset=AdmissionFilter,
        search=["query__name", "requested_by__username", "reason"],
        search_label="Query, person or reason",
        views=open_views(request, SavedList.ADMISSIONS),
        file_name=f"admissions-{cluster.slug}",
        empty=empty,
    )


def _verdicts(counts: AdmissionCounts) -> list[Choice]:
    marks = [(value, VERDICTS[value]) for value in Verdict.values]
    return [Choice(value, mark.label, counts.verdicts.get(value, 0), mark.drawing, mark.tone) for value, mark in marks]


def _states(counts: AdmissionCounts) -> list[Choice]:
    """States that occur: nine chips, most of them 0, would only be in the way."""
    return [
        Choice(value, STATES[value].label, counts.states[value])
        for value in AdmissionState.values
        if counts.states.get(value)
    ]


def _sources(counts: AdmissionCounts) -> list[Choice]:
    """Sources that occur."""
    return [
        Choice(value, label, counts.sources[value])
        for value, label in AdmissionSource.choices
        if value in counts.sources
    ]


def _heading(slug: str, row: AdmissionRequest) -> SafeString:
    mark = verdict_icon(row.verdict) if row.verdict else state_mark(row.state, " ")
    url = reverse("pages:admission", args=[slug, row.pk])
    return format_html('<span class="nm">{}<a class="name" href="{}">{}</a></span>', mark, url, row.version)


def _verdict(row: AdmissionRequest) -> SafeString:
    if row.verdict:
        return verdict_badge(row.verdict)
    return format_html('<span class="muted">{}</span>', "none yet")


def _finding(row: AdmissionRequest) -> SafeString:
    """The headline, else what is known instead of one."""
    if row.headline:
        return format_html('<span class="finding">{}</span>', row.headline)
    text = row.job.error.get("message", "") if row.job and row.job.error else ""
    return format_html('<span class="finding muted">{}</span>', text or STATES[row.state].label)


def _asked(row: AdmissionRequest) -> SafeString:
    by = row.requested_by or "rule"
    if row.source != AdmissionSource.CONSOLE:
        by = f"{by}, {row.get_source_display()}"
    return format_html('{} <span class="muted sm">{}</span>', time_tag(row.created_at), by)


def _state(row: AdmissionRequest) -> SafeString:
    by = f"by {row.decided_by}" if row.decided_by else ""
    word = "Applied, overridden" if row.overridden else ""
    return format_html('{} <span class="muted sm by">{}</span>', state_mark(row.state, word), by)


def _columns(slug: str) -> list[Column]:
    return [
        Column(
            "query", "Request", partial(_heading, slug), sort="query__name", csv=lambda row: str(row.version), full=True
        ),
        Column("verdict", "Verdict", _verdict, sort="verdict", csv=lambda row: row.verdict),
        Column("finding", "Finding", _finding, csv=lambda row: row.headline or "", full=True),
        Column("state", "State", _state, sort="state", csv=lambda row: row.state),
        Column("created", "Asked", _asked, sort="created_at", csv=lambda row: row.created_at, high_first=True),
    ]


SEVERITIES = {"bad": ("bad", "bad"), "watch": ("watch", "watch"), "ok": ("ok", "ok"), "info": ("info", "muted")}
_WORSE_SHARE = 0.01  # of its objective: by less a query that misses it may get worse
_CHANGED_S = 0.005  # a smaller change would be written as 0 s


@dataclass(frozen=True)
class OutcomeLink:
    """A link to one outcome of a decision."""

    id: str
    label: str
    url: str
    is_current: bool


def alternative_label(alternative: Alternative) -> str:
    """An alternative in a few words, where its title has no room."""
    match alternative.own_changes:
        case [OperatorMove(operator=name, node=node)]:
            return f"Move {name.rpartition('/')[2]} to {node}"
        case [OperatorMove(), *_] as moves:
            return f"Move {counted(len(moves), 'operator')}"
        case [NewNode(), *_] as added:
            return f"Add {counted(len(added), 'node')}"
        case [RateChange(share=share)]:
            return f"{percent(share)} of its rate"
        case [LaterStart(seconds=later_s)]:
            return f"Start {duration_words(later_s or 0.0)} later"
        case [ObjectiveChange(bound_s=bound_s)]:
            return f"Ask for {seconds(bound_s)}"
    return {"place_again": "Other nodes than asked for", "place_apart": "Away from doubts"}[alternative.kind]


@dataclass(frozen=True)
class AlternativeRow:
    """A choice that would pass."""

    title: str
    detail: str
    verdict: str
    statistic: str
    estimate: Quantity
    bound: Quantity
    link: OutcomeLink


def alternative_rows(alternatives: Sequence[Alternative], links: Mapping[str, OutcomeLink]) -> list[AlternativeRow]:
    """In the engine's order, with the `links` to their outcomes."""
    rows = []
    for row in alternatives:
        own = own_effect(row.effects)
        estimate = seconds(own.after_s, apart_from=own.bound_s)
        words, bound = statistic_text(own.statistic), seconds(own.bound_s)
        rows.append(AlternativeRow(row.title, row.detail, row.verdict, words, estimate, bound, links[row.id]))
    return rows


@dataclass(frozen=True)
class EffectRow:
    """A query before and after."""

    effect: QueryEffect
    url: str
    is_nominal: bool = False  #: nothing of it is measured

    @property
    def evidence(self) -> str:
        """Mark of its numbers where nothing of it is measured."""
        if not self.is_nominal and not self.effect.is_predicted:
            return ""
        return "never_ran" if self.is_candidate else "unmeasured"

    @property
    def name(self) -> str:
        return self.effect.query

    @property
    def is_candidate(self) -> bool:
        return self.effect.is_candidate

    @property
    def state(self) -> str:
        """Its mark; of a candidate that fits nowhere nothing is known."""
        return self.effect.after_state if self.effect.after_s is not None else "no_estimate"

    @property
    def tone(self) -> str:
        return {"breached": "bad", "at_risk": "watch", "unknown": "watch"}.get(self.state, "")

    @property
    def standing(self) -> str:
        """Whether its figures are known, what one event would meet, or grow without end (`engine.latency_state`)."""
        return self.effect.standing.kind if self.effect.standing else ""

    @property
    def objective(self) -> SafeString:
        """Its bound; the statistic only where it is not the worst case."""
        if self.effect.statistic == "worst" and self.effect.bound_s:
            return self.bound
        return objective_text(self.effect.statistic, self.effect.bound_s)

    @property
    def where(self) -> str:
        """The server that its work waits on; empty where there is none."""
        return server_words(self.effect.bottleneck or "")

    @property
    def bound(self) -> SafeString:
        return seconds(self.effect.bound_s).html

    @property
    def shares(self) -> str:
        """Nodes it has in common with the candidate; for the candidate those it goes to."""
        return _few(self.effect.shares)

    @property
    def bar(self) -> SafeString:
        effect = self.effect
        if self.state == "unknown":
            return SafeString("")
        figures = effect.before_s, effect.after_s, effect.bound_s
        return before_after_bar(*figures, self.name, effect.low_s, effect.high_s)

    @property
    def before(self) -> SafeString:
        if self.effect.before_state == "unknown":
            return SafeString("unknown")
        return seconds(self.effect.before_s, apart_from=self.effect.bound_s).html

    @property
    def after(self) -> SafeString:
        """The latency after; "unknown" where nobody knows it, and "over 20 min" where it only grows."""
        if self.state == "unknown":
            return SafeString("unknown")
        if self.standing == NEVER_CATCHES_UP:
            return format_html('<span class="sm">over</span> {}', self.after_figure)
        return self.after_figure

    @property
    def after_figure(self) -> SafeString:
        """The figure of the horizon alone, or of one event."""
        return seconds(self.effect.after_s, apart_from=self.effect.bound_s).html

    @property
    def is_changed(self) -> bool:
        return abs(self.effect.change_s or 0.0) >= _CHANGED_S

    @property
    def is_harmed(self) -> bool:
        """Whether it misses its objective, or may, because of the decision."""
        now, was = self.state, self.effect.before_state
        is_later = (self.effect.change_s or 0.0) > _WORSE_SHARE * (self.effect.bound_s or 0.0)
        worse = self.is_candidate or now != was or is_later
        return bool(self.tone) and worse

    @property
    def interval(self) -> str:
        """7.4 to 10.9 s; empty where there is none."""
        low, high = self.effect.low_s, self.effect.high_s
        return "" if low is None or high is None else f"{seconds(low).text} to {seconds(high)}"

    @property
    def change(self) -> SafeString | str:
        change_s = self.effect.change_s
        if change_s is None or "unknown" in (self.state, self.effect.before_state):
            return MISSING
        if not self.is_changed:
            return Quantity("0", "s").html
        change = seconds(change_s)
        return Quantity(f"+{change.text}" if change_s > 0 else change.text, change.unit).html

    @property
    def widened(self) -> str:
        """Up to 4.1 s: interval widened 1.8 × by 64 scored runs; empty where it is as the model states it."""
        widening = self.effect.widening
        if not widening:
            return ""
        runs = counted(widening.runs, "scored run")
        return f"Up to {seconds(self.effect.high_s)}: interval widened {factor(widening.factor)} by {runs}"

    @property
    def words(self) -> str:
        """The state after, in a word or two."""
        before, after = self.effect.before_state, self.state
        if after == "breached":
            return "Already over" if before == "breached" else "Would be late"
        return STATES[judged_state(after, "estimate")].label


@dataclass(frozen=True)
class AppliedOutcome:
    """Effects and changes of a decision that is applied."""

    effects: list[EffectRow]
    changes: list[str]

    @property
    def untouched(self) -> list[str]:
        """Neighbours on the same nodes that stay as they are."""
        rows = [row for row in self.effects if not row.is_candidate and row.effect.shares]
        return [row.name for row in rows if not row.is_changed]


def effect_rows(slug: str, effects: Sequence[QueryEffect], nominal: Collection[str] = frozenset()) -> list[EffectRow]:
    """The candidate first, then its neighbours, those that change most on top; none of `nominal` is measured."""
    rows = [
        EffectRow(effect, reverse("pages:query", args=[slug, effect.query]), effect.query in nominal)
        for effect in effects
    ]
    return sorted(rows, key=lambda row: (not row.is_candidate, -abs(row.effect.change_s or 0.0), row.name))


@dataclass(frozen=True)
class ReasonRow:
    """A finding; `bar` draws a load that is above capacity."""

    drawing: str
    tone: str
    title: str
    text: str
    bar: SafeString


def reason_rows(reasons: Sequence[Reason]) -> list[ReasonRow]:
    """The most serious first."""
    rows = []
    for reason in reasons:
        drawing, tone = SEVERITIES[reason.severity]
        is_load = reason.code == "node_overloaded" and reason.value is not None
        bar = _overload_bar(reason.value or 0.0, tone) if is_load else SafeString("")
        rows.append(ReasonRow(drawing, tone, reason.words.consequence, reason.words.explanation, bar))
    return rows


def _overload_bar(load: float, tone: str) -> SafeString:
    """A load against capacity, which is marked by a line."""
    scale = max(load, 1.0)
    return format_html(
        '<div class="mini overload" role="img" aria-label="Load {} of capacity">'
        '<i class="{}" style="width:{}%"></i><b style="left:{}%"></b></div>',
        ratio(load),
        "over" if tone == "bad" else "watch",
        f"{100 * load / scale:.0f}",
        f"{99 / scale:.0f}",
    )


@dataclass(frozen=True)
class NodeRow:
    """A node's peak load before and after."""

    name: str
    url: str
    before: SafeString | str
    after: SafeString
    is_changed: bool


def node_rows(slug: str, effects: Sequence[NodeEffect]) -> list[NodeRow]:
    """The busiest after it first. A node that would be added has no page yet."""
    nodes = sorted(effects, key=lambda node: -node.after_peak)
    scale = max((peak or 0.0 for node in nodes for peak in (node.before_peak, node.after_peak)), default=1.0)
    rows = []
    for node in nodes:
        before, after = node.before_peak, node.after_peak
        url = reverse("pages:node", args=[slug, node.node]) if before is not None else ""
        was = load_bar(before, scale=scale) if before is not None else "new"
        rows.append(NodeRow(node.node, url, was, load_bar(after, scale=scale), ratio(before) != ratio(after)))
    return rows


@dataclass(frozen=True)
class PlaceRow:
    """Place of an operator."""

    operator: str
    query: str
    where: str
    note: str


def place_rows(
    query: str,
    decision: AdmissionDecision,
    asked: Mapping[str, str],
    predicted: Mapping[str, str] | None = None,
    clock: Callable[[float], str] | None = None,
) -> list[PlaceRow]:
    """The query's operators in their order, then operators of others that would be moved.

    `predicted` is the node of each operator in a predicted first placement, `clock` the time of day of seconds into the
    horizon.
    """
    rows = []
    apart = {entry.operator: entry for entry in decision.apart}
    for identity, replicas in decision.placement.items():
        owner, _, name = identity.partition("/")
        where = ", ".join(_server(part) for part in replicas)
        wish = asked.get(name) or asked.get(identity) if owner == query else None
        note = "moved" if owner != query else "node predicted" if identity in (predicted or {}) else ""
        note = note or _apart_words(apart.get(identity), clock)
        if wish:
            is_kept = any(wish in {part.node, f"{part.node}#{part.core}"} for part in replicas)
            note = "as asked" if is_kept else f"asked for {wish}"
        rows.append(PlaceRow(name, owner, where, note))
    return rows


def _apart_words(entry: ApartOperator | None, clock: Callable[[float], str] | None) -> str:
    """Why an operator is on another node than one it exchanges events with."""
    if entry is None or entry.why == "company":
        return ""
    other = entry.other.rpartition("/")[2]
    if entry.server is None:
        return f"apart: it may not join {other}"
    at = f" at {clock(entry.at_s)}" if clock and entry.at_s is not None else ""
    limit = f"; operators join up to {ratio(entry.limit)}" if entry.limit else ""
    return f"apart, because beside {other} {server_words(entry.server)} would be at {ratio(entry.peak)}{at}{limit}"


def change_words(change: Change) -> str:
    """A change of an alternative as a phrase."""
    match change:
        case RateChange():
            return f"{change.query} reads {percent(change.share)} of its events; its sources must hold back the rest"
        case NewNode():
            cores, speed = counted(change.cores or 1, "core"), cps(change.capacity_cps)
            return f"the node {change.id} is added, like {change.like}, with {cores} of {speed}"
        case ObjectiveChange():
            statistic, bound = statistic_text(change.statistic), seconds(change.bound_s)
            return f"the objective of {change.query} becomes {statistic} at most {bound}"
        case OperatorMove():
            return f"{change.operator} goes to {_core(change)}"
        case LaterStart():
            return f"it starts {seconds(change.seconds)} after the preview"


def _server(part: Replica) -> str:
    share = f" ({percent(part.fraction)})" if part.fraction < 1 else ""
    return f"{_core(part)}{share}"


def _core(part: Replica | OperatorMove) -> str:
    return server_words(f"{part.node}#{part.core}")


def _few(names: Sequence[str]) -> str:
    """One or two names whole, of more the first and how many follow: the column is narrow."""
    return f"{names[0]} +{len(names) - 1}" if len(names) > 2 else ", ".join(names) or "none"
