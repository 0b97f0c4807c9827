"""Facts on the pages of one query: its state, the strip of figures, and what differs between versions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.utils.safestring import SafeString

from apps.admission.models import AdmissionRequest
from apps.admission.previews import ADMISSION
from apps.admission.selectors import admission_headline
from apps.core.reach import is_seen_in_part
from apps.estimates.answers import CatchUpTimes, OperatorLoad, StoredEstimate
from apps.estimates.causes import is_busy
from apps.estimates.choices import Certainty, DecidedBy, MeasurementLack
from apps.estimates.models import ObjectiveStatus, QueryEstimate
from apps.estimates.selectors import Staleness, estimate_under_way, query_estimate_latest, run_staleness
from apps.estimates.words import cause_sentence, evidence_words, lacking_words
from apps.fleet.choices import CostEvidence, Evidence
from apps.jobs.models import Job
from apps.pages.context import url_of
from apps.pages.labels import labels_cell, list_of
from apps.pages.overview.findings import Stat
from apps.pages.predictions.facts import HandOver, PredictionFacts
from apps.pages.queries.timeline import QueryTimeline
from apps.predictions.selectors import prediction_newest, query_basis
from apps.queries.bodies import version_body
from apps.queries.choices import ObjectiveState, QueryState
from apps.queries.models import Query, QueryVersion
from apps.queries.selectors import queries_never_run, version_current
from apps.ui.numbers import MISSING, Quantity, percent, ratio, seconds, seconds_range, significant
from apps.ui.sentences import sentence
from engine.estimation.answer import Bottleneck
from engine.estimation.noise.summary import RealisedStatistic
from engine.estimation.waits.summary import WaitTerm, main_wait
from engine.words import counted, duration_words, server_words, statistic_text, statistic_words
from engine.words.document import scheduling_words

__all__ = ["QueryDetail", "VersionChange", "version_difference"]


_TONES: dict[str, str] = {
    ObjectiveState.BREACHED: "bad",
    ObjectiveState.AT_RISK: "watch",
    ObjectiveState.UNKNOWN: "watch",
}


@dataclass(frozen=True)
class _KnownStat(Stat):
    """A figure with its statistics origin."""

    evidence: str = ""


@dataclass(frozen=True)
class RealisedLine:
    """One statistic of a query's estimate."""

    name: str
    figures: RealisedStatistic

    @property
    def words(self) -> str:
        return statistic_words(self.name, begins=True)

    @property
    def estimate(self) -> Quantity:
        return seconds(self.figures.estimate_s)

    @property
    def interval(self) -> Quantity:
        return seconds_range(self.figures.low_s, self.figures.high_s)


@dataclass(frozen=True)
class WaitLine:
    """One wait of a query's events beside its queues."""

    term: WaitTerm

    @property
    def words(self) -> str:
        text = str(self.term.words)
        return text[:1].upper() + text[1:]

    @property
    def worst(self) -> Quantity:
        return seconds(self.term.worst_s)

    @property
    def mean(self) -> Quantity:
        return seconds(self.term.mean_s)


class QueryDetail:
    """One query; every property is computed when a template asks for it."""

    def __init__(self, query: Query) -> None:
        self.query = query
        self.cluster = query.cluster

    @property
    def labels(self) -> Any:
        """Its labels, each leading to the queries that have it."""
        return labels_cell(self.query.labels, list_of("pages:queries", self.cluster.slug))

    @cached_property
    def version(self) -> QueryVersion:
        """The version that runs, or the newest."""
        return version_current(self.query)

    @cached_property
    def estimate(self) -> QueryEstimate | None:
        """The newest estimate, if it is of the running version."""
        return query_estimate_latest(self.query) if self.query.state == QueryState.RUNNING else None

    @cached_property
    def answer(self) -> StoredEstimate | None:
        """The answer of its estimate."""
        return self.estimate.answer if self.estimate else None

    @property
    def catch_up_times(self) -> CatchUpTimes | None:
        """When it has caught up with what waited, by the clock."""
        row = self.estimate
        return None if row is None else CatchUpTimes.of(row.answer, row.run.created_at)

    def operator_load(self, name: str) -> OperatorLoad | None:
        """Load and output of an operator by its estimate."""
        return self.answer.operators.get(name) if self.answer else None

    # -- of a query that never ran

    @cached_property
    def never_ran(self) -> bool:
        """Whether nobody knows a cost of one of its inputs."""
        if "version" not in self.__dict__:  # one statement, where a page reads its operators for nothing else
            return self.query.pk in queries_never_run([self.query.pk])
        entries = (entry for row in self.version.operators.all() for entry in row.inputs.all())
        return any(entry.cycles_per_event is None for entry in entries)

    @property
    def is_running(self) -> bool:
        return self.query.state == QueryState.RUNNING

    @property
    def predicted_evidence(self) -> str:
        """Mark of its numbers while it is predicted, empty once costs are known."""
        if self.has_unknown_costs:
            return CostEvidence.UNKNOWN
        return ("unmeasured" if self.is_running else "never_ran") if self.never_ran else ""

    @cached_property
    def has_unknown_costs(self) -> bool:
        """Whether an operator of it runs whose cost nothing tells."""
        return self.never_ran and any(
            entry.cycles_per_event is None and entry.evidence == CostEvidence.UNKNOWN
            for row in self.version.operators.all()
            for entry in row.inputs.all()
        )

    @cached_property
    def prediction(self) -> PredictionFacts | None:
        """The newest prediction, as long as it never ran."""
        row = prediction_newest(self.version) if self.never_ran else None
        return PredictionFacts(row, is_running=self.is_running) if row else None

    @cached_property
    def hand_over(self) -> HandOver | None:
        """Mace in the place of a prediction, since every cost is known."""
        if self.never_ran or self.version.costs_known_at is None:
            return None
        basis = query_basis(self.version)
        return HandOver(basis) if basis.prediction and basis.prediction.costs else None

    @property
    def bottleneck(self) -> Bottleneck | None:
        return self.answer.bottleneck if self.answer else None

    @cached_property
    def bottleneck_operator(self) -> str:
        """The operator of this query that takes most of its busiest server; "" where there is none."""
        prefix = f"{self.query.name}/"
        operators = self.bottleneck.operators if self.bottleneck else ()
        own = [entry for entry in operators if entry.operator.startswith(prefix)]
        return max(own, key=lambda entry: entry.share).operator.removeprefix(prefix) if own else ""

    @property
    def state(self) -> str:
        """State of its badge: against the objective while it runs, else the query's own."""
        if self.query.state != QueryState.RUNNING:
            return str(self.query.state)
        if self.standing is not None:
            return str(self.standing.state)
        return self.estimate.judged_state if self.estimate else "no_estimate"

    @property
    def mark(self) -> str:
        """Key of its badge: its state, and whether that is measured or estimated."""
        if self.query.state != QueryState.RUNNING:
            return self.state
        shown = self.standing or self.estimate
        return shown.mark if shown is not None else "no_estimate"

    @cached_property
    def standing(self) -> ObjectiveStatus | None:
        """Its status by measurement and estimate, while it runs."""
        if self.query.state != QueryState.RUNNING:
            return None
        return ObjectiveStatus.objects.select_related("estimate").filter(query=self.query).first()

    @property
    def evidence_words(self) -> str:
        """Evidence that its state rests on."""
        return evidence_words(self.standing) if self.standing else ""

    @property
    def is_measured(self) -> bool:
        """Whether a measurement that counts decided its state."""
        return self.standing is not None and self.standing.decided_by == DecidedBy.MEASUREMENT

    @property
    def gap(self) -> str:
        """Sentence on what cannot be observed, where that decides its state."""
        return self.cause if self.standing is not None and self.standing.decided_by == DecidedBy.NOTHING else ""

    @property
    def measured(self) -> Quantity:
        """The latency measured lately; missing where that does not count."""
        standing = self.standing
        if standing is None or standing.lacking:
            return Quantity(MISSING)
        return seconds(standing.measured_s, apart_from=standing.bound_s)

    @property
    def measured_span(self) -> str:
        """Stretch of time that was measured."""
        return duration_words(self.standing.span_s) if self.standing else ""

    @property
    def cause(self) -> str:
        """Sentence on the first cause of its lateness."""
        standing = self.standing
        return cause_sentence(standing.lateness[0]) if standing is not None and standing.causes else ""

    @property
    def other_causes(self) -> list[str]:
        """Sentences on what else is reported along its chain."""
        return [cause_sentence(cause) for cause in self.standing.lateness[1:]] if self.standing else []

    @property
    def is_server_busy(self) -> bool:
        """Whether its busiest server is busy enough to make it late."""
        return is_busy(self.bottleneck)

    @cached_property
    def staleness(self) -> Staleness:
        return run_staleness(self.estimate.run) if self.estimate else Staleness(False, ())

    @cached_property
    def estimate_job(self) -> Job | None:
        """The cluster's newest estimate that is not finished."""
        return estimate_under_way(self.cluster)

    @cached_property
    def last_request(self) -> AdmissionRequest | None:
        return ADMISSION.visible().filter(query=self.query).first()

    @property
    def is_part(self) -> bool:
        """Whether the reader sees a part of the cluster: pages of decisions are about all of it."""
        return is_seen_in_part(self.cluster.pk)

    @cached_property
    def last_headline(self) -> str:
        """The last decision about it in one sentence; empty without one."""
        return admission_headline(self.last_request) if self.last_request is not None else ""

    @property
    def admission_url(self) -> str:
        page = "" if self.is_part else url_of("pages:admission-new", self.cluster.slug)
        return f"{page}?query={self.query.name}" if page else ""

    @property
    def estimate_quantity(self) -> Quantity:
        if self.estimate is None:
            return Quantity(MISSING)
        return seconds(self.estimate.estimate_s, apart_from=self.estimate.bound_s)

    @cached_property
    def timeline(self) -> QueryTimeline:
        """Measurement and estimates by time."""
        return QueryTimeline(self.query, self.query.objective_statistic or "worst", self.query.objective_bound_s)

    # -- the sentence
    @cached_property
    def sentence(self) -> SafeString:
        return sentence("pages/queries/sentences/finding.html", detail=self)

    @property
    def standing_words(self) -> str:
        """Words on a latency that is not known or has no end; empty where its figures are what it is."""
        return self.answer.standing.sentence if self.answer else ""

    @property
    def statistic(self) -> str:
        return statistic_words(self.estimate.statistic) if self.estimate else ""

    @property
    def over_s(self) -> float:
        """Seconds over its objective."""
        standing = self.standing
        if standing is not None and standing.bound_s and standing.value_s is not None:
            return abs(standing.bound_s - standing.value_s)
        gap, _ = self.estimate.headroom if self.estimate else (None, None)
        return abs(gap or 0.0)

    @property
    def is_estimate_over(self) -> bool:
        """Whether the estimate is beyond the objective by itself."""
        row = self.estimate
        return row is not None and row.bound_s is not None and row.estimate_s > row.bound_s

    @property
    def high(self) -> Quantity:
        """Upper end of its interval."""
        row = self.estimate
        return seconds(row.high_s, apart_from=row.bound_s) if row else Quantity(MISSING)

    @property
    def server(self) -> str:
        """The core or link that makes it late."""
        return server_words(self.bottleneck.server if self.bottleneck else "")

    @property
    def policy_words(self) -> str:
        """Clause on how much higher it ends under the policies of its nodes; empty where that decides nothing."""
        row, scheduling = self.estimate, self.answer.scheduling if self.answer else None
        is_over = row is None or row.bound_s is None or (row.high_s or row.estimate_s) > row.bound_s
        return "" if is_over or scheduling is None else str(scheduling.lacking)

    @property
    def widened(self) -> float:
        """Factor of its interval's upper side for recent estimates that were off."""
        return self.answer.calibration.upper if self.answer and self.answer.calibration else 1.0

    @property
    def realised(self) -> list[RealisedLine]:
        """The other statistics of the estimate, the longest first; that of the objective stands in the strip."""
        own = self.estimate.statistic if self.estimate else ""
        realised = (self.answer.realised if self.answer else None) or {}
        lines = [RealisedLine(name, figures) for name, figures in realised.items() if name != own]
        return sorted(lines, key=lambda line: -line.figures.estimate_s)

    @cached_property
    def waits(self) -> list[WaitLine]:
        """Waits of its events beside its queues, along its ways."""
        return [WaitLine(term) for term in self.answer.waits] if self.answer else []

    @property
    def main_wait(self) -> WaitLine | None:
        """The longest of the waits that make most of the estimate; None where queues do."""
        row = self.estimate
        term = main_wait([line.term for line in self.waits], row.estimate_s, row.statistic) if row else None
        return WaitLine(term) if term else None

    # -- the strip
    @cached_property
    def stats(self) -> list[Stat]:
        standing = self.standing
        measured = [] if standing is None or standing.lacking == MeasurementLack.NONE else [self._measured()]
        return [self._objective(), *measured, self._estimate(), self._mace(), self._headroom(), self._bottleneck()]

    def _objective(self) -> Stat:
        query = self.query
        if not query.objective_bound_s:
            return Stat("Objective", Quantity("none"), "No objective set")
        note = statistic_words(query.objective_statistic, begins=True)
        if self.estimate and self.estimate.bound_s != query.objective_bound_s:
            note += ", changed since the estimate"
        return Stat("Objective", seconds(query.objective_bound_s), note)

    def _measured(self) -> Stat:
        standing = self.standing
        if standing is None or standing.lacking:
            note = lacking_words(standing) if standing else ""
            return Stat("Measured", Quantity(MISSING), f"{note[:1].upper()}{note[1:]}")
        over = bool(standing.bound_s and standing.measured_s and standing.measured_s > standing.bound_s)
        note = f"Over the last {self.measured_span}, {counted(standing.results, 'result')}"
        return Stat("Measured", self.measured, note, "bad" if over else "")

    def _estimate(self) -> Stat:
        row = self.estimate
        if row is None:
            return Stat("Estimate", Quantity(MISSING), "None yet")
        if row.certainty == Certainty.UNKNOWN:
            note = f"By what is known an event takes {self.estimate_quantity}"
            if self.has_unknown_costs:
                note = f"At least {self.estimate_quantity}; what an event costs at some operators is not known"
            return _KnownStat("Estimate", Quantity("unknown"), note, "watch", evidence=self._estimate_evidence)
        if row.certainty == Certainty.ENDLESS:
            grown = Quantity(f"over {self.estimate_quantity.text}", self.estimate_quantity.unit)
            note = "Reached within the horizon, and it grows on"
            return _KnownStat("Estimate", grown, note, "bad", evidence=self._estimate_evidence)
        if row.high_s is None:
            note = "No interval: no input has a sample"
            if self.never_ran:
                note = "With nominal costs: nothing is measured yet"
            return _KnownStat("Estimate", self.estimate_quantity, note, evidence=self._estimate_evidence)
        interval = seconds_range(row.low_s, row.high_s, apart_from=row.bound_s)
        return _KnownStat(
            "Estimate", self.estimate_quantity, f"{interval}, 90% interval", evidence=self._estimate_evidence
        )

    @property
    def _estimate_evidence(self) -> str:
        return self.predicted_evidence or Evidence.PREDICTED

    def _mace(self) -> Stat:
        if self.estimate is None:
            return Stat("Mace", Quantity(MISSING), "None yet")
        note, bound = "Largest excess on its servers", self.answer.scheduling if self.answer else None
        if bound:
            late = "No bound is proven" if bound.upper_s is None else f"At most {seconds(bound.upper_s)} late"
            note = f"{late}, as {scheduling_words(bound.nodes)}"
        return Stat("Mace", seconds(self.estimate.mace_s), note)

    def _headroom(self) -> Stat:
        if self.estimate is None or not self.estimate.bound_s:
            return Stat("Headroom", Quantity(MISSING), "No estimate yet" if self.estimate is None else "No objective")
        gap, share = self.estimate.headroom
        tone = _TONES.get(self.state, "")
        if gap is None and self.policy_words:
            return Stat("Headroom", Quantity(MISSING), f"Not known: {self.policy_words}", tone)
        if gap is None:
            never = "It is expected never to catch up" if self.estimate.is_expected else "It never catches up"
            note = never if self.state == ObjectiveState.BREACHED else "Its latency is not known"
            return Stat("Headroom", Quantity(MISSING), note, tone)
        note, scheduling = f"{percent(share)} of the objective", self.answer.scheduling if self.answer else None
        if scheduling and scheduling.lacking:
            note = f"{note}; {scheduling.lacking}"
        return Stat("Headroom", seconds(gap), note, tone)

    def _bottleneck(self) -> Stat:
        bottleneck = self.bottleneck
        if bottleneck is None:
            return Stat("Bottleneck", Quantity(MISSING), "None yet" if self.estimate is None else "Nothing waits")
        node, core_mark, core = bottleneck.server.partition("#")
        where = Quantity(node, f"core {core}") if core_mark else Quantity(node.replace("->", " → "))
        note = f"peak load {ratio(bottleneck.load_peak)}"
        name = "Bottleneck" if self.is_server_busy else "Busiest core"
        return Stat(name, where, f"{self.bottleneck_operator}, {note}".lstrip(", "))

    @property
    def objective_text(self) -> str:
        """worst ≤ 10 s."""
        bound = self.query.objective_bound_s
        return f"{statistic_text(self.query.objective_statistic)} ≤ {seconds(bound)}" if bound else "none"


_WORDS = {
    "cycles_per_event": "cycles per event",
    "bytes_per_event": "bytes per event",
    "state_bytes": "bytes of state",
    "from": "reads from",
}


@dataclass(frozen=True)
class VersionChange:
    """One difference: of an operator, in one respect."""

    operator: str
    what: str
    before: str
    after: str


def version_difference(old: QueryVersion, new: QueryVersion) -> list[VersionChange]:
    """Differences in the newer version's order; operators that are gone come last."""
    before, after = _operators(old), _operators(new)
    changes = []
    for name, body in after.items():
        if name not in before:
            changes.append(VersionChange(name, "operator", MISSING, _summary(body)))
        else:
            changes += _between(name, before[name], body)
    return changes + [
        VersionChange(name, "operator", _summary(before[name]), "removed") for name in before if name not in after
    ]


def _operators(version: QueryVersion) -> dict[str, dict[str, Any]]:
    return {body["id"]: body for body in version_body(version)["operators"]}


def _summary(body: Mapping[str, Any]) -> str:
    return f"{body['kind']}, reads {', '.join(entry['from'] for entry in body['inputs'])}"


def _between(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[VersionChange]:
    before, after = _facts(old), _facts(new)
    keys = [*after, *(key for key in before if key not in after)]
    return [
        VersionChange(name, key, before.get(key, MISSING), after.get(key, MISSING))
        for key in keys
        if before.get(key) != after.get(key)
    ]


def _facts(body: Mapping[str, Any]) -> dict[str, str]:
    """An operator's fields as words; several inputs are told apart by what they read."""
    facts = {_WORDS.get(key, key): _value_text(value) for key, value in body.items() if key not in {"id", "inputs"}}
    inputs = body["inputs"]
    facts["reads from"] = ", ".join(entry["from"] for entry in inputs)
    for entry in inputs:
        suffix = f", from {entry['from']}" if len(inputs) > 1 else ""
        facts |= {
            f"{_WORDS.get(key, key)}{suffix}": _value_text(value) for key, value in entry.items() if key != "from"
        }
    return facts


def _value_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return significant(value)
    if isinstance(value, list):
        return f"{len(value)} entries"
    return value if isinstance(value, str) else json.dumps(value)
