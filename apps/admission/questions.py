"""Question of a request: the version it is about, its digest, and the snapshot that the engine is asked with."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from django.db import transaction

from apps.accounts.models import User
from apps.admission.candidates import candidate_of
from apps.admission.members import lost_members
from apps.admission.models import AdmissionRequest
from apps.admission.precedence import queue_changes, waiting_ahead
from apps.admission.standings import policy_standing
from apps.core.errors import Conflict, Fault, Impossible, Malformed, Missing, fault_count, from_engine, join_path
from apps.core.limits import MAX_REASON, MAX_WAIT_S
from apps.estimates.bases import BaseFacts, base_facts, cluster_base
from apps.estimates.calibration import queries_untrusted, query_calibrations
from apps.fleet.choices import NodeState
from apps.fleet.models import Cluster
from apps.policies.selectors import admission_rules
from apps.predictions.selectors import model_words, prediction_record
from apps.predictions.services import CandidatePrediction, candidate_predict
from apps.queries.arrivals.series import unpack
from apps.queries.arrivals.services import arrivals_create_from_counts, arrivals_fields_update
from apps.queries.choices import QueryState
from apps.queries.models import Query, QueryVersion
from apps.queries.selectors import version_never_ran
from apps.queries.services import query_create, query_version_create
from apps.queries.snapshots.cluster import (
    SLICES_PER_SUBINTERVAL,
    Snapshot,
    cluster_parts,
    snapshot_changes,
)
from apps.queries.snapshots.outlines import ClusterOutline
from apps.queries.snapshots.parts import snapshot_take
from apps.queries.snapshots.relatives import StoppedRelatives
from engine.admission.answer import AdmissionPolicy
from engine.admission.changes import Change, read_changes
from engine.costream.accuracy import PredictionRecord
from engine.document.candidate import read_candidate
from engine.document.deployment import Deployment
from engine.document.elements import Source
from engine.document.kinds import ID, PRIORITY, STATISTIC
from engine.document.reader import faulty_items
from engine.errors import EngineError
from engine.kinds import Number, String
from engine.measurement.trust import QueryCalibration
from engine.policies.candidate_policy import PolicyStanding
from engine.records import BAD, ItemCount, Record, Words

if TYPE_CHECKING:
    from engine.admission.decision import OpenDecision
    from engine.admission.group import OpenGroup

__all__ = [
    "AdmissionQuestion",
    "LatencyObjective",
    "MemberQuestion",
    "RequestQuestion",
    "ask_engine",
    "ask_group",
    "draft_from_document",
    "draft_version",
    "fingerprint",
    "is_model_changed",
    "question_changes",
    "question_check",
    "question_of",
]


_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LatencyObjective(Record):
    """A latency objective."""

    TITLE: ClassVar[str] = "an objective"

    statistic: Annotated[str, STATISTIC, Words("worst, mean, or a quantile such as q0.99.")]
    bound_s: Annotated[float, Number(least=1e-6), Words("At most so many seconds.")]


@dataclass(frozen=True, kw_only=True)
class MemberQuestion(Record):
    """A query to run: one that is registered, or one described by a document. Exactly one of the two."""

    TITLE: ClassVar[str] = "a member of a group"
    JUDGES_PARTS: ClassVar[bool] = True

    query: Annotated[str | None, ID, Words("Name of a registered query.")] = None
    document: Annotated[
        Mapping[str, object] | None,
        Words("query, operators, and optionally sources, objective, priority, team, description."),
    ] = None
    version: Annotated[int | None, Number(least=1, whole=True), Words("Which version; default the newest.")] = None
    objective: Annotated[LatencyObjective | None, Words("In place of the query's own.")] = None
    placement: Annotated[Mapping[str, str], Words("{operator: node} or node#core; the rest is chosen.")] = field(
        default_factory=dict
    )
    changes: Annotated[
        tuple[Mapping[str, object], ...], ItemCount(most=50), Words("Changes as an alternative carries them.")
    ] = ()
    target: Annotated[
        Literal["T", "Lp", "Le"],
        Words("Metric that the first placement of a query that never ran is chosen by: T, Lp or Le (default)."),
    ] = "Le"

    @property
    def name(self) -> str:
        """Name of its query; empty where its document has none."""
        document = self.document if isinstance(self.document, Mapping) else {}
        name = document.get("query") if self.query is None else self.query
        return name if isinstance(name, str) else ""

    def find_faults(self) -> Iterator[Fault]:
        if self.query is None and self.document is None:
            yield Fault("query", "query is missing; give exactly one of query and document")
        elif self.query is not None and self.document is not None:
            yield Fault("", "give exactly one of query and document")
        elif self.document is not None and self.version is not None:
            yield Fault("version", "a document is always a new version; leave it out")


@dataclass(frozen=True, kw_only=True)
class AdmissionQuestion(MemberQuestion):
    """A request to run a query: one that is registered, or one described by a document. Exactly one of the two."""

    TITLE: ClassVar[str] = "a request for admission"

    may_wait_s: Annotated[float, Number(least=0, most=MAX_WAIT_S), Words("How long it would wait in the queue.")] = 0.0
    mode: Annotated[
        Literal["preview", "apply"],
        Words("preview only says what would happen; apply does it at once if the verdict lets it (scope admit)."),
    ] = "preview"
    reason: Annotated[str, Words("Why it is wanted; kept with the decision.")] = ""

    def find_faults(self) -> Iterator[Fault]:
        yield from super().find_faults()
        if self.reason is not BAD and len(self.reason) > MAX_REASON:
            yield Fault("reason", f"reason has {len(self.reason)} characters; allowed: at most {MAX_REASON}")

    def digest(self, cluster: str) -> str:
        """Digest by which the same question asked again is known, whatever the reason."""
        asked = {name: value for name, value in self.to_dict().items() if name != "reason"}
        return fingerprint({**asked, "cluster": cluster})


@dataclass(frozen=True, kw_only=True)
class _Head(Record):
    TITLE: ClassVar[str] = "a query's document"
    JUDGES_PARTS: ClassVar[bool] = True

    query: Annotated[str, ID]
    sources: tuple[Source, ...] = ()
    priority: Annotated[int | None, PRIORITY] = None
    team: Annotated[str | None, String()] = None
    description: Annotated[str | None, String()] = None
    note: Annotated[str | None, String()] = None

    def stated(self, *names: str) -> dict[str, object]:
        """The fields that are given, without fault."""
        given = {name: getattr(self, name) for name in names}
        return {name: value for name, value in given.items() if value is not None and value is not BAD}


_ELSEWHERE = frozenset({"operators", "objective", "labels"})  # read by the services that store them


def draft_version(*, cluster: Cluster, name: str, number: int | None) -> QueryVersion:
    """A version of a registered query: the newest, unless a number is given."""
    query = cluster.queries.filter(name=name).first()
    if query is None:
        raise Missing(f"There is no query {name!r} in {cluster.slug}.", [("query", f"{name!r} is not registered")])
    versions = query.versions.select_related("query__cluster")
    version = versions.filter(number=number).first() if number is not None else versions.first()
    if version is None:
        raise Missing(f"Query {name} has no version {number}.", [("version", f"{number} does not exist")])
    if query.state == QueryState.RUNNING and query.running_version_id == version.pk:
        raise Conflict(f"{version} is running already.", [("query", "this version is running")], code="running")
    return version


def draft_from_document(
    *, cluster: Cluster, document: Mapping[str, Any], user: User | None
) -> tuple[QueryVersion, dict[str, object]]:
    """Register what a document describes: the sources it brings, and the query or a new version of it.

    A source that the cluster has may be repeated with the same arrivals, in slices or in subintervals. Called inside a
    transaction: with any fault nothing stays.

    Returns
    -------
    The version, and the objective to hold in place of that of a query that was there before (empty: its own).

    Raises
    ------
    Malformed, Conflict
        With every fault, its path beginning with `document`.
    """
    faults: list[Fault] = []
    rest = {key: value for key, value in document.items() if key not in _ELSEWHERE}
    head = _Head.read_parts(rest, "", "document", faults)
    faulty = faulty_items(faults, "document.sources")
    for i, source in enumerate(() if head.sources is BAD else head.sources):
        if i not in faulty:
            store = partial(_store_source, cluster, source)
            _collect_faults(faults, f"document.sources[{i}]", store)
    is_sourceless = bool(faults)
    query = None if head.query is BAD else cluster.queries.filter(name=head.query).first()
    store = partial(_store_query, cluster, query, head, document, user)
    written: list[Fault] = []
    version = _collect_faults(written, "document", store)
    faults += [fault for fault in written if not (is_sourceless and fault.path.endswith(".from"))]
    if faults:
        raise Malformed(f"The document has {fault_count(faults)}; first: {faults[0].path}: {faults[0].message}", faults)
    return version, dict(document.get("objective") or {}) if query is not None else {}


def _store_query(
    cluster: Cluster, query: Query | None, head: _Head, document: Mapping[str, Any], user: User | None
) -> QueryVersion:
    body = {"operators": document.get("operators")}
    if query is not None:
        fields: Any = head.stated("note")
        version = query_version_create(query=query, body=body, user=user, **fields)
    else:
        objective = document.get("objective")
        # a name with a fault is refused by the caller: the document's own fault is known already
        name = "unnamed" if head.query is BAD else head.query
        fields = {**head.stated("team", "description", "priority", "note"), "labels": document.get("labels")}
        created = query_create(cluster=cluster, name=name, body=body, objective=objective, user=user, **fields)
        version = created.versions.get()
    return QueryVersion.objects.select_related("query__cluster").get(pk=version.pk)


def _store_source(cluster: Cluster, source: Source) -> None:
    source_id, arrivals = source.id, source.arrivals
    event_fields = None if source.event_fields is None else source.event_fields.to_dict()
    stored = cluster.arrivals.filter(source_id=source_id).first()
    is_coarse = len(arrivals) * 4 == cluster.slices
    if stored is not None:
        values = unpack(stored.data)
        values = values.reshape(-1, 4).sum(axis=1) if is_coarse else values
        if len(values) != len(arrivals) or not np.allclose(values, arrivals):
            message = f"{source_id!r} has other arrivals in {cluster.slug}; allowed: the same, or a new id"
            raise Conflict(f"Source {message}.", [("arrivals", message)])
        if event_fields and not stored.event_fields:
            arrivals_fields_update(arrivals=stored, event_fields=event_fields)
        return
    created = arrivals_create_from_counts(
        cluster=cluster,
        source_id=source_id,
        counts=arrivals,
        step_s=cluster.subinterval_s if is_coarse else cluster.slice_s,
        known_step_s=source.arrivals_step_s,
        dispersion=source.dispersion,
        dispersion_step_s=source.dispersion_step_s,
    )
    if event_fields:
        arrivals_fields_update(arrivals=created, event_fields=event_fields)


def _collect_faults(faults: list[Fault], path: str, store: Callable[[], Any]) -> Any:
    """Result of `store`; its faults are kept, so that all of them are reported at once."""
    try:
        with transaction.atomic():
            return store()
    except (Malformed, Conflict) as error:
        faults += [Fault(join_path(path, fault.path), fault.message) for fault in error.faults] or [
            Fault(path, error.message)
        ]
        return None


CANDIDATE = "candidate"
MODEL = "model"
TRUST = "trust"


@dataclass(frozen=True)
class RequestQuestion:
    """Question to the engine: running deployment, candidate, and a digest of both.

    `parts` are the snapshot's parts, the candidate's own, and the queries whose estimates are not to be trusted. So a
    preview is stale as well when the candidate's statistics or the arrivals only it reads have changed, and when trust
    was lost; factors that move do not count. `closed_nodes` take nothing new. `running` is the `snapshot` without an
    earlier version of the query.
    """

    snapshot: Deployment
    running: Deployment
    candidate: Mapping[str, object]
    parts: dict[str, str]
    digest: str
    closed_nodes: tuple[str, ...]
    never_ran: bool = False
    calibrations: Mapping[str, QueryCalibration] = field(default_factory=dict)
    record: PredictionRecord = field(default_factory=PredictionRecord)
    standing: PolicyStanding | None = None

    @property
    def cluster_parts(self) -> dict[str, str]:
        """Parts of the snapshot alone."""
        return {name: content for name, content in self.parts.items() if not _is_own(name)}


def _is_own(part: str) -> bool:
    """Whether a part of a question is no part of the cluster's snapshot."""
    return part in (MODEL, TRUST) or part.startswith(f"{CANDIDATE}:")


def question_of(request: AdmissionRequest, snapshot: Snapshot | None = None) -> RequestQuestion:
    """Take a snapshot of the request's cluster as it is now. An earlier version of the query is left out of it.

    A preview does so once, in its job, where the engine is asked; checks and comparisons do without.
    """
    snapshot = snapshot or snapshot_take(request.cluster)
    members = request.members
    running = snapshot.deployment
    for member in members:
        running = _without_earlier_version(running, member)
    candidate = StoppedRelatives(request.cluster).beside(candidate_of(request))
    calibrations = query_calibrations(request.cluster)
    parts = {**snapshot.parts, **_candidate_parts(members), **_trust_part(request.cluster)}
    never_ran = version_never_ran(request.version)
    return RequestQuestion(
        snapshot.deployment,
        running,
        candidate,
        parts,
        fingerprint(parts),
        snapshot.closed_nodes,
        never_ran,
        calibrations,
        prediction_record(request.cluster),
        policy_standing(request, ahead=waiting_ahead(request) if request.pk == members[0].pk else ()),
    )


def ask_engine(
    request: AdmissionRequest,
    question: RequestQuestion,
    changes: Sequence[Mapping[str, Any] | Change],
    report: Callable[[float, str], None],
    begun_s: float,
    policy: AdmissionPolicy | None = None,
) -> tuple[OpenDecision, CandidatePrediction | None, BaseFacts]:
    """The decision as far as its verdict needs, and its base; about a query that never ran, a model predicts first.

    `policy` are the rules to decide by; those of the cluster's policy unless given.
    """
    from engine.admission.decision import open_decision  # and with it the models, which only workers load

    prediction = _predict(request, question, begun_s) if question.never_ran else None
    base = cluster_base(request.cluster, question.snapshot)
    facts = base_facts(base)
    if question.running is not question.snapshot:
        base = base.moved(question.running)
    opened = open_decision(
        base.estimate.deployment,
        question.candidate,
        policy=policy or admission_rules(request.cluster, request.query, question.closed_nodes),
        standing=question.standing,
        changes=changes,
        mace_every=SLICES_PER_SUBINTERVAL,
        prediction=prediction.answer if prediction else None,
        predictor=prediction.predictor if prediction else None,
        record=question.record,
        calibrations=question.calibrations,
        currency=request.cluster.currency,
        kept=base,
        progress=report,
    )
    return opened, prediction, facts


def ask_group(
    members: Sequence[AdmissionRequest],
    questions: Sequence[RequestQuestion],
    more: Sequence[Change],
    report: Callable[[float, str], None],
    begun_s: float,
) -> tuple[OpenGroup, list[CandidatePrediction | None], BaseFacts]:
    """The decision about a group, whose members are asked with `more` changes, the predictions behind it, and its base.

    `questions` are the members' own, of one snapshot.
    """
    from engine.admission.group import GroupMember, decide_group  # and with it the models, which only workers load

    first, cluster = questions[0], members[0].cluster
    predictions = [
        _predict(member, question, begun_s) if question.never_ran else None
        for member, question in zip(members, questions, strict=True)
    ]
    base = cluster_base(cluster, first.snapshot)
    asked = [
        GroupMember(
            question.candidate,
            (*member.changes, *more),
            admission_rules(cluster, member.query, question.closed_nodes),
            question.standing,
            prediction.answer if prediction else None,
            prediction.predictor if prediction else None,
        )
        for member, question, prediction in zip(members, questions, predictions, strict=True)
    ]
    opened = decide_group(
        asked,
        base,
        may_wait_s=members[0].may_wait_s,
        record=first.record,
        calibrations=first.calibrations,
        currency=cluster.currency,
        progress=report,
    )
    return opened, predictions, base_facts(base)


def _predict(request: AdmissionRequest, question: RequestQuestion, begun_s: float) -> CandidatePrediction | None:
    """The prediction for a request; None without a model, and then a person decides."""
    try:
        return candidate_predict(
            cluster=request.cluster,
            running=question.running,
            candidate=read_candidate(question.candidate, question.running),
            closed_nodes=question.closed_nodes,
            target=request.target,
            begun_s=begun_s,
        )
    except Impossible as error:
        _log.warning("query %s is not predicted: %s", request.query, error)
        return None


def is_model_changed(request: AdmissionRequest, question: RequestQuestion) -> bool:
    """Whether another model predicts now than the one that a question was answered by."""
    return MODEL in question.parts and question.parts[MODEL] != model_words(request.cluster)


def _trust_part(cluster: Cluster) -> dict[str, str]:
    lost = queries_untrusted(cluster)
    return {TRUST: fingerprint({"lost": lost})} if lost else {}


def _without_earlier_version(running: Deployment, request: AdmissionRequest) -> Deployment:
    name = request.query.name
    return running.without_query(name) if name in running.queries else running


def _candidate_parts(members: Sequence[AdmissionRequest]) -> dict[str, str]:
    parts = dict[str, str]()
    for request in members:
        team = {"team": request.query.team_id} if request.query.team_id else {}
        parts[f"{CANDIDATE}:{request.query.name}"] = fingerprint({**candidate_of(request), **team})
        if version_never_ran(request.version):
            parts[MODEL] = model_words(request.cluster)
    return parts


def question_check(request: AdmissionRequest, outline: ClusterOutline, *, path: str) -> None:
    """Refuse a question the engine could not read; `path` is where the query stood in what was sent.

    `outline` is the cluster's, taken before its lock.
    """
    faults = _placement_faults(request)
    running = _without_earlier_version(outline.deployment, request)
    document = _without_running_sources(candidate_of(request), running)
    try:
        candidate = read_candidate(document, running, path=path)
        read_changes(request.changes, running, candidate, closed_nodes=outline.closed_nodes)
    except EngineError as error:
        faults += from_engine(error).faults
    if faults:
        faults = list({(fault.path, fault.message): fault for fault in faults}.values())
        raise Malformed(f"The request has {fault_count(faults)}; first: {faults[0].path}: {faults[0].message}", faults)


def _without_running_sources(document: Mapping[str, Any], running: Deployment) -> Mapping[str, object]:
    """The candidate without sources that became its own only after the outline was taken."""
    running_ids = {source.id for source in running.sources}
    sources = [source for source in document.get("sources", ()) if source["id"] not in running_ids]
    return {**document, "sources": sources} if "sources" in document else document


def _placement_faults(request: AdmissionRequest) -> list[Fault]:
    """Operators that do not exist, and nodes that do not or take nothing new."""
    operators = set(request.version.operators.values_list("name", flat=True))
    active = dict(request.cluster.nodes.filter(state=NodeState.ACTIVE).values_list("name", "cores"))
    faults = []
    for name, where in request.placement.items():
        node, _, core = where.partition("#")
        if name.removeprefix(f"{request.query.name}/") not in operators:
            faults.append(Fault(f"placement.{name}", f"{name!r} is not an operator of {request.query.name}"))
        if node not in active:
            faults.append(Fault(f"placement.{name}", f"{node!r} is not an active node of {request.cluster.slug}"))
        elif core and not (core.isascii() and core.isdigit() and int(core) < active[node]):
            faults.append(Fault(f"placement.{name}", f"{core!r} is not a core of {node}, which has {active[node]}"))
    return faults


def question_changes(request: AdmissionRequest, parts: Mapping[str, str] | None = None) -> list[str]:
    """Changes of the cluster since the preview, in words; empty if nothing has moved. Builds no snapshot.

    `parts` are the cluster's where they are known; they are read unless given.
    """
    members = request.members
    return [*_moved_parts(members, parts), *queue_changes(members[0])]


def _moved_parts(members: Sequence[AdmissionRequest], parts: Mapping[str, str] | None) -> list[str]:
    request = members[0]
    after = {
        **(cluster_parts(request.cluster) if parts is None else parts),
        **_candidate_parts(members),
        **_trust_part(request.cluster),
    }
    if request.snapshot == fingerprint(after):
        return []
    before = dict(request.snapshot_parts)
    own = {f"{CANDIDATE}:{member.query.name}": member.query.name for member in members}
    others = [name for part, name in own.items() if before.pop(part, None) != after.pop(part, None)]
    before = {part: content for part, content in before.items() if not part.startswith(f"{CANDIDATE}:")}
    model, newest = before.pop(MODEL, None), after.pop(MODEL, None)
    trust, trust_now = before.pop(TRUST, None), after.pop(TRUST, None)
    changes = list(snapshot_changes(before, after))
    changes += [f"the plan, the statistics or the sources of {name} itself" for name in others]
    changes += [f"{name}, which was deleted" for name in lost_members(members)]
    if model != newest:
        changes.append("the model that predicts")
    if trust != trust_now:
        changes.append("the trust in estimates of running queries")
    return changes


def fingerprint(value: Mapping[str, object]) -> str:
    """SHA-256 of a JSON-like value; arrays count by their bytes."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    return hashlib.sha256(value.tobytes()).hexdigest() if hasattr(value, "tobytes") else str(value)
