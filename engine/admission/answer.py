"""Answer of admission: the decision about a candidate with its reasons, effects, alternatives and curves, as records.

Their fields are the keys of the stored and of the REST answer. Nothing here computes: processes that only read answers
need no compiler loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, computed_field

from engine.admission.changes import Change
from engine.admission.grounds import Ground, NamedGround
from engine.document.elements import Replica
from engine.document.policies import SchedulingGap
from engine.kinds import Number, String
from engine.latency_state import KNOWN, CatchUp, LatencyStanding
from engine.placement.separation import ApartOperator
from engine.policies.facts import PolicyFacts
from engine.policies.rules import EvidenceRules
from engine.records import Flag, Omitted, Record, Words, WrittenAs
from engine.words.admission import AdmissionFinding, finding_words, robustness_sentences, search_sentences

__all__ = [
    "PARTS",
    "AdmissionDecision",
    "AdmissionPolicy",
    "Alternative",
    "AlternativeSearch",
    "DecisionCurves",
    "LostNode",
    "NodeEffect",
    "OutcomeCurves",
    "PartName",
    "QueryEffect",
    "Reason",
    "ReasonSubject",
    "Robustness",
    "Thinness",
    "WeakestAssumption",
    "Widening",
    "named_reason",
    "own_effect",
]


@dataclass(frozen=True, slots=True)
class AdmissionPolicy(Record):
    """Rules of admission."""

    TITLE: ClassVar[str] = "a policy"

    evidence: EvidenceRules = field(default_factory=EvidenceRules)  #: what evidence of a kind means
    #: share of every objective that must stay free above the upper end; less of it counts as at risk
    margin: Annotated[float, Number(least=0, most=0.9)] = 0.0
    #: an operator's statistics count as measured from so many events on
    min_events: Annotated[float, Number(least=0)] = 100.0
    may_move_neighbours: Flag = True  #: whether operators of running queries may be moved to make room
    #: share of its capacity that a server may be given on average over the horizon
    max_mean_load: Annotated[float, Number(above=0)] = 1.0
    #: a later start must leave at least this share of the horizon, and of the candidate's mean rate, to be judged on
    start_horizon_share: Annotated[float, Number(above=0, most=1)] = 0.25
    full_evaluations: Annotated[int, Number(least=1, whole=True)] = 5  #: runs of Flow that each search may spend
    closed_nodes: tuple[Annotated[str, String()], ...] = ()  #: nodes that take nothing new (draining)
    choices: Flag = True  #: whether to search for alternatives (``choices`` of a decision) at all
    #: whether to tell how much more load and cost a verdict that passes would stand, and which node may be lost
    robustness: Flag = True
    #: a verdict that stands less than this share of more load or cost is called thin; 0 calls none so
    thin_below: Annotated[float, Number(least=0)] = 0.1


@dataclass(frozen=True)
class ReasonSubject(Record):
    """Subject of a reason: a query, node, link, operator, source or statistic."""

    kind: str
    id: str


#: The ground of a reason or a verdict as it was computed, and its words once it is written or read back.
Finding = Annotated[Ground | AdmissionFinding, WrittenAs(AdmissionFinding, finding_words)]


@dataclass(frozen=True)
class Reason(Record):
    """One finding.

    `severity` is bad (it speaks against admission), watch (a person may want to look), info, or ok. `value` and `bound`
    are in `unit`; `where` is a server; `when_p` counts Mace's subintervals from 1, `when_s` is where that one begins.
    `review` tells that the policy wants a person to decide because of it.
    """

    TITLE: ClassVar[str] = "a reason"

    code: str
    severity: str
    subject: ReasonSubject
    finding: Finding
    bound: float | None = None
    value: float | None = None
    unit: str = "s"
    where: str | None = None
    when_p: int | None = None
    when_s: float | None = None
    review: bool = False

    @computed_field  # type: ignore[prop-decorator]
    @property
    def message(self) -> str:
        """The finding in one sentence."""
        return self.words.message

    @property
    def words(self) -> AdmissionFinding:
        """The finding in words."""
        return finding_words(self.finding)

    @property
    def ground(self) -> Ground:
        """The finding as it was computed in this process."""
        assert not isinstance(self.finding, AdmissionFinding)
        return self.finding

    @property
    def id(self) -> str:
        """Name of the subject."""
        return self.subject.id


def named_reason(
    code: str,
    severity: str,
    subject: ReasonSubject,
    names: tuple[str, ...] = (),
    bound: float | None = None,
    value: float | None = None,
    unit: str = "s",
    *,
    kind: str = "",
    of: int = 0,
    was: float = 0.0,
    about: str = "",
    where: str | None = None,
    review: bool = False,
) -> Reason:
    """A reason whose sentence needs names and its own numbers: about its subject, unless `about` something else."""
    ground = NamedGround(kind or code, about or subject.id, names, of, value or 0.0, bound or 0.0, was)
    return Reason(code, severity, subject, ground, bound, value, unit, where, review=review)


@dataclass(frozen=True)
class Widening(Record):
    """Widening of an interval's upper side: its factor, the scored runs that ask for it, and the upper end before."""

    factor: float
    runs: int
    stated_high_s: float


@dataclass(frozen=True, kw_only=True)
class QueryEffect(Record):
    """Effect of a decision on a query, or what the candidate itself may expect; seconds."""

    TITLE: ClassVar[str] = "an effect"

    query: str
    statistic: str
    bound_s: float | None
    before_s: float | None = None
    after_s: float | None = None
    flow_s: float | None = None  #: by mean costs alone
    low_s: float | None = None
    high_s: float | None = None
    change_s: float | None = None
    before_state: str = "none"
    after_state: str = "none"
    resolution_s: float | None = None
    shares: tuple[str, ...] = ()  #: nodes in common with the candidate; of the candidate those it goes to
    bottleneck: str | None = None
    when_s: float | None = None
    is_candidate: bool = False
    is_predicted: bool = False
    scheduling: SchedulingGap | None = None
    widening: Widening | None = None
    standing: LatencyStanding | None = KNOWN  #: None of a candidate that fits nowhere
    catch_up_before: CatchUp | None = None
    catch_up_after: CatchUp | None = None


def own_effect(effects: Iterable[QueryEffect]) -> QueryEffect:
    """The effect on the candidate itself."""
    return next(effect for effect in effects if effect.is_candidate)


@dataclass(frozen=True)
class NodeEffect(Record):
    """Peak load of a node's busiest core before and after, as a share of its capacity; a new node has no before."""

    node: str
    before_peak: float | None
    after_peak: float


def _least_headroom(judged: Sequence[tuple[float, float | None]]) -> float | None:
    """Of (bound, latency) in seconds; None where one of the latencies is not known."""
    known = [(bound, latency) for bound, latency in judged if latency is not None and isfinite(latency)]
    if not known or len(known) < len(judged):
        return None
    return min((bound - latency) / bound for bound, latency in known)


@dataclass(frozen=True, kw_only=True)
class Alternative(Record):
    """Changes with which the candidate would pass, and what follows from them."""

    TITLE: ClassVar[str] = "an alternative"

    id: str
    kind: str
    title: str
    detail: str
    changes: tuple[Change, ...]
    verdict: str
    estimate_s: float
    effects: tuple[QueryEffect, ...]
    unchanged: Annotated[Omitted[int], Words("Queries that stay as they are and are left out of `effects`.")] = None

    @property
    def own_changes(self) -> list[Change]:
        """Those of its kind, without what it was asked with."""
        return [change for change in self.changes if change.kind == self.kind]


@dataclass(frozen=True)
class AlternativeSearch(Record):
    """Kinds of alternatives that were sought without a result, and what measuring the candidate would change."""

    TITLE: ClassVar[str] = "a search for alternatives"

    tried: Annotated[tuple[str, ...], Words("Kinds of alternatives none of which passes.")]
    found: Annotated[Flag, Words("Whether another kind passes.")]
    verdict_measured: Annotated[
        str | None, Words("Verdict once the candidate ran and cost what is estimated now; null where it has run.")
    ] = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def sentences(self) -> tuple[str, ...]:
        """Sentences on what was tried and what measuring would change."""
        return tuple(search_sentences(self))


Curves = Mapping[str, list[float]]
OutcomeCurves = Mapping[
    str, Annotated[Curves, Words("By name, one value a step: seconds of queries, shares of capacity of nodes.")]
]


@dataclass(frozen=True)
class DecisionCurves(Record):
    """Curves of a decision: `queries` and `nodes` of each outcome.

    The first value is at the beginning of the horizon. What an outcome does not name is as `before`; a query or node
    that is new has no curve there. `after` is empty where the candidate fits nowhere.
    """

    TITLE: ClassVar[str] = "the curves of a decision"

    step_s: float
    before: OutcomeCurves
    after: OutcomeCurves
    alternatives: Annotated[Mapping[str, OutcomeCurves], Field(alias="choices")]


@dataclass(frozen=True, slots=True)
class LostNode(Record):
    """A node whose loss breaks objectives that hold, or leaves an operator without a place."""

    node: str
    breaks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WeakestAssumption(Record):
    """The cost of an operator that may be off by the least, in relation to how well it is known.

    `holds_up_to` is the share by which it may be higher with every objective kept, by mean costs; None if even five
    times as much is kept.
    """

    operator: str
    evidence: str
    holds_up_to: float | None


@dataclass(frozen=True, slots=True)
class Robustness(Record):
    """Room that a passing verdict has."""

    #: share by which all arrivals of the queries concerned may rise with the verdict as it is, confirmed in full; one
    #: of 0.01 to 1, which is as far as was tried. 0: no rise was confirmed. What the same rise does to the others
    #: without the candidate does not count.
    load: float
    costs: float  #: the same for the costs of the candidate's operators
    lost_nodes: tuple[LostNode, ...]  #: nodes that may not be lost, of those the queries concerned use
    nodes: int  #: nodes whose loss was looked at
    weakest: WeakestAssumption | None  #: none for a candidate without work

    @property
    def margin(self) -> float:
        """The smaller of the two shares."""
        return min(self.load, self.costs)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def sentences(self) -> tuple[str, ...]:
        """The room, in words."""
        return tuple(robustness_sentences(self))


PartName = Literal["alternatives", "robustness"]

#: Parts that follow a verdict, in the order in which they are computed.
PARTS: tuple[PartName, ...] = ("alternatives", "robustness")

#: Whether a verdict that passes stands too little: true or false once it is known, ``pending`` while that is computed,
#: ``unknown`` where it was not.
Thinness = bool | Literal["pending", "unknown"]


@dataclass(frozen=True, eq=False, kw_only=True)
class AdmissionDecision(Record):
    """Decision about a request for admission.

    `verdict` is admit, admit_with_changes, queue, review or reject. `placement` is empty where nothing fits;
    `apart` says why operators of the candidate are on other nodes than those they exchange events with, `measure` which
    of them to measure before a person has to decide. `searched` says which kinds of alternatives were sought in vain;
    none until alternatives were searched.
    `robustness` tells what a verdict that passes would stand, `thin` whether this is less than the policy wants. Both
    follow the verdict, as alternatives do, and until then `thin` is neither true nor false.
    `never_ran` tells that costs of the candidate were unknown, whether or not it was predicted; `prediction` is then
    that of the placement the decision is about, and no part of the document. `curves` may be kept elsewhere.
    """

    TITLE: ClassVar[str] = "a decision"

    verdict: str
    finding: Finding
    query: str
    snapshot: str
    reasons: tuple[Reason, ...]
    effects: tuple[QueryEffect, ...]
    unchanged: Annotated[Omitted[int], Words("Queries that stay as they are and are left out of `effects`.")] = None
    placement: Mapping[str, tuple[Replica, ...]]
    apart: tuple[ApartOperator, ...] = ()
    measure: tuple[str, ...] = ()
    alternatives: Annotated[tuple[Alternative, ...], Field(alias="choices")] = ()
    changes: tuple[Change, ...] = ()
    start_p: int | None = None
    start_s: float | None = None
    evidence: Mapping[str, int]
    nodes: tuple[NodeEffect, ...]
    curves: DecisionCurves | None = None
    policy: AdmissionPolicy
    policy_facts: Annotated[PolicyFacts | None, Words("The policy's version, and what quotas were counted by.")] = None
    never_ran: bool
    searched: AlternativeSearch | None = None
    robustness: Robustness | None = None
    thin: Thinness = False
    prediction: Annotated[Any, Field(exclude=True)] = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def headline(self) -> str:
        """The finding that the verdict rests on, in one sentence."""
        return self.words.message

    @property
    def words(self) -> AdmissionFinding:
        """The finding that the verdict rests on, in words."""
        return finding_words(self.finding)

    @property
    def least_headrooms(self) -> tuple[float | None, float | None]:
        """The least headroom of an objective before and after, (bound - latency) / bound.

        None where nobody knows it: a latency is not known, or effects were left out.
        """
        if self.unchanged:
            return None, None
        judged = [effect for effect in self.effects if effect.bound_s]
        ran = [effect for effect in judged if not effect.is_candidate or effect.before_s is not None]
        before = _least_headroom([(effect.bound_s or 0.0, effect.before_s) for effect in ran])
        return before, _least_headroom([(effect.bound_s or 0.0, effect.after_s) for effect in judged])

    @property
    def is_behind_others(self) -> bool:
        """Whether requests that come first in the queue speak against it."""
        return any(reason.code in ("queue_overdue", "queue_precedence") for reason in self.reasons)

    def placement_of(self, query: str) -> dict[str, tuple[Replica, ...]]:
        """Replicas of the operators of `query`, by their names within it."""
        prefix = f"{query}/"
        return {
            name.removeprefix(prefix): replicas for name, replicas in self.placement.items() if name.startswith(prefix)
        }
