"""Records of objectives in answers: realised figures, what is missed, and what all answers say of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, ClassVar

from pydantic import SerializerFunctionWrapHandler, model_serializer

from engine.document.deployment import Deployment
from engine.document.elements import Objective
from engine.document.memory import unstated_memory
from engine.document.policies import PolicyGap, SchedulingGap
from engine.estimation.answer import OperatorShare
from engine.latency_state import KNOWN, LatencyStanding, objective_state
from engine.records import Fact, Record, Sentence, Unwritten
from engine.words import bound_words, listed, step_words

__all__ = [
    "ObjectiveAnswer",
    "ObjectiveFigures",
    "ObjectiveMiss",
    "RealisedObjective",
    "coarse_sentence",
]

_NAMED = 6  # queries in a list, the last of a longer one being the number of those left out
_SHARED = ("objectives", "at_risk", "unknown", "assumed", "coarse_sources", "reservation", "notes")


@dataclass(frozen=True)
class RealisedObjective(Record):
    """A query's objective and the median and 90 % interval in which its statistic is realised, seconds."""

    TITLE: ClassVar[str] = "the figures of an objective"

    query: str
    statistic: str
    bound_s: float
    estimate_s: float
    low_s: float
    high_s: float
    state: str = ""  #: holds (the upper end is within the bound), at_risk (only the median is), unknown, or breached
    lost: str | None = None  #: the node that is lost
    words: str = ""  #: ``5.2 s [4.1, 6.9] of its 6 s``, and which node is lost
    #: whether the figures are known: not where nothing comes out, nor where a server never catches up
    standing: LatencyStanding = KNOWN
    #: what the figures lack where servers run other policies than stimulus time
    scheduling: SchedulingGap | None = None
    gap: Unwritten[PolicyGap | None] = None
    wait_s: Unwritten[float] = 0.0  #: part of the median that is no queue
    assumed: Unwritten[tuple[Sentence, ...]] = ()  #: sentences about what the figures rest on
    #: sources whose counts are too coarse to tell bursts; nothing measured supports what happens inside them
    coarse_sources: Unwritten[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        if not self.state:
            scheduling = self.gap and self.gap.answer(self.policy_high_s)
            for name, value in (("state", self._state), ("words", self._words), ("scheduling", scheduling)):
                object.__setattr__(self, name, value)

    @property
    def _state(self) -> str:
        objective = Objective(self.query, self.statistic, self.bound_s)
        high_s = self.high_s
        if self.gap is not None:
            high_s = inf if self.policy_high_s is None else max(high_s, self.policy_high_s)
        return objective_state(objective, self.estimate_s, high_s, self.standing).state

    @property
    def policy_high_s(self) -> float | None:
        """Upper end under the policies in force; None where there is no gap, or nobody knows one."""
        return None if self.gap is None else self.gap.high_s(self.high_s, self.wait_s)

    @property
    def is_lacking(self) -> bool:
        """Whether it holds by stimulus time, and nobody can say so of the policies in force."""
        if self.gap is None or not self.standing.is_known:
            return False
        return self.gap.lacks(self.bound_s, self.high_s, self.wait_s)

    @property
    def is_beyond_knowledge(self) -> bool:
        """Whether it holds by stimulus time and nobody knows by which factor it ends higher: no nodes help."""
        return self.is_lacking and self.policy_high_s is None

    @property
    def over(self) -> float:
        """The upper end of the interval, times the bound; more than that where the query never catches up.

        Under other policies than stimulus time it is theirs, where one is known.
        """
        return self.standing.times_over(max(self.high_s, self.policy_high_s or 0.0) / self.bound_s)

    @property
    def _words(self) -> str:
        text = bound_words(self.estimate_s, self.bound_s, self.low_s, self.high_s)
        text = f"{text} with {self.lost} lost" if self.lost else text
        if self.is_lacking and self.gap is not None:
            return f"{text} ({self.gap.words(self.policy_high_s)})"
        return text if self.standing.is_known else f"{text} ({self.standing.sentence.removesuffix('.')})"

    @property
    def gap_sentence(self) -> Fact | str:
        """Sentence on what the figures lack, of whatever state; empty where they lack nothing."""
        if self.gap is None:
            return ""
        return Fact("document.policy_gap_of", query=self.query, gap=self.gap.words(self.policy_high_s))


@dataclass(frozen=True, eq=False)
class ObjectiveFigures:
    """Realised figures that an answer rests on, and what they rest on themselves."""

    #: every objective; where losses are looked at, with the worst of them
    objectives: tuple[RealisedObjective, ...] = ()
    #: of the queries at risk: their figures with a core for each operator, where more nodes do not help
    alone: Mapping[str, RealisedObjective] = field(default_factory=dict)
    deployment: Deployment | None = None  #: what they are figures of

    @classmethod
    def of(
        cls,
        deployment: Deployment,
        objectives: Iterable[RealisedObjective],
        alone: Mapping[str, RealisedObjective] | None = None,
    ) -> ObjectiveFigures:
        """The figures of a deployment's objectives, the most threatened first."""
        ordered = tuple(sorted(objectives, key=lambda entry: -entry.over))
        return cls(ordered, alone or {}, deployment)

    @property
    def at_risk(self) -> tuple[RealisedObjective, ...]:
        """Those whose median is within the bound and whose upper end is not."""
        return tuple(entry for entry in self.objectives if entry.state == "at_risk")

    @property
    def unknown(self) -> tuple[RealisedObjective, ...]:
        """Those of whose latency nothing is known, since nothing comes out."""
        return tuple(entry for entry in self.objectives if entry.state == "unknown")

    @property
    def assumed(self) -> tuple[Fact | str, ...]:
        """Sentences on what the figures assume and leave out, each once."""
        sentences = [(*entry.assumed, entry.standing.sentence, entry.gap_sentence) for entry in self.objectives]
        return tuple(dict.fromkeys(sentence for each in sentences for sentence in each if sentence))

    @property
    def coarse_sources(self) -> tuple[str, ...]:
        """Sources whose counts hide bursts."""
        return tuple(dict.fromkeys(name for entry in self.objectives for name in entry.coarse_sources))

    @property
    def reservation(self) -> str:
        """Reservation of an answer that says "every objective" where some are at risk or unknown; empty elsewhere."""
        lacking = [entry for entry in self.at_risk if entry.is_lacking]
        kinds = {
            "in the median only": len(self.at_risk) - len(lacking),
            "by stimulus time only": len(lacking),
            "of unknown latency": len(self.unknown),
        }
        said = {kind: count for kind, count in kinds.items() if count}
        if len(said) == 1 and not self.unknown and len(self.at_risk) == len(self.objectives):
            return f", all of them {next(iter(said))}"
        return "".join(f", {count} {kind}" for kind, count in said.items())

    @property
    def sentences(self) -> Iterator[str]:
        """Sentences of an answer on objectives at risk or unknown, and on counts that hide bursts."""
        for entry in self.unknown[:_NAMED]:
            yield f"Nothing is known of the latency of {entry.query}: {entry.standing.sentence}"
        if self.at_risk:
            nearest = self.at_risk[0]
            names = listed([entry.query for entry in self.at_risk], _NAMED)
            first = "" if len(self.at_risk) == 1 else f", {nearest.query} most"
            yield f"At risk {'is' if len(self.at_risk) == 1 else 'are'} {names}{first}: {nearest.words}."
            if nearest.query in self.alone:
                yield f"More nodes do not help: alone it takes {self.alone[nearest.query].words}."
        if self.deployment and (unknown := unstated_memory(self.deployment, everywhere=True)):
            yield f"Whether state fits the memory of the nodes is not known: {unknown}."
        if self.coarse_sources and self.deployment:
            yield coarse_sentence(self.deployment, self.coarse_sources)


@dataclass(frozen=True, kw_only=True)
class ObjectiveAnswer(Record):
    """Base of answers about objectives: what a list of them shows, and a message.

    An answer just found has `figures`, from which the rest is worked out; one that is read back has not.
    """

    objectives: tuple[RealisedObjective, ...] = ()
    at_risk: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    assumed: tuple[Sentence, ...] = ()
    coarse_sources: tuple[str, ...] = ()
    reservation: str = ""
    notes: tuple[str, ...] = ()
    figures: Unwritten[ObjectiveFigures] = field(default_factory=ObjectiveFigures)

    def __post_init__(self) -> None:
        if self.figures.deployment is None:
            return
        shown = {
            "objectives": self.figures.objectives,
            "at_risk": tuple(entry.query for entry in self.figures.at_risk),
            "unknown": tuple(entry.query for entry in self.figures.unknown),
            "assumed": self.figures.assumed,
            "coarse_sources": self.figures.coarse_sources,
            "reservation": self.figures.reservation,
            "notes": tuple(self.figures.sentences),
        }
        for name, value in shown.items():
            object.__setattr__(self, name, value)
        for name, value in self._worked_out().items():
            object.__setattr__(self, name, value)

    def _worked_out(self) -> dict[str, Any]:
        """Further fields that an answer works out of its fields and figures."""
        return {}

    @model_serializer(mode="wrap")
    def _written(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        """Its own fields first; the message last."""
        plain: dict[str, object] = handler(self)
        last = [*(name for name in _SHARED if name in plain), *(["message"] if "message" in plain else [])]
        return {name: plain[name] for name in (*(name for name in plain if name not in last), *last)}


@dataclass(frozen=True, eq=False, kw_only=True)
class ObjectiveMiss(Record):
    """A query that breaks its objective or may: by how much, where and when, and with which node lost."""

    TITLE: ClassVar[str] = "a missed objective"

    query: str
    statistic: str
    bound_s: float
    value_s: float  #: median of the realised statistic, or Flow's value where Flow alone refuses
    low_s: float | None
    high_s: float | None
    state: str  #: at_risk where only the upper end is over the bound, else breached
    over_s: float
    by: str
    lost: str | None
    server: str | None
    node: str | None
    load_mean: float | None
    from_p: int | None  #: subintervals in which `server` falls behind; None where it does not
    to_p: int | None
    operators: tuple[OperatorShare, ...]
    message: str
    #: none where Flow alone refuses: it is over the bound by more than a slice
    realised: Unwritten[RealisedObjective | None] = None
    #: every query that breaks its objective or may, and how many times the bound its upper end is
    over: Unwritten[dict[str, float]] = field(default_factory=dict)
    noisy: Unwritten[frozenset[str]] = frozenset()  #: those of them that keep it with mean costs

    @property
    def worst(self) -> float:
        """The largest number of times that a query is over its bound."""
        return max(self.over.values(), default=0.0)


def coarse_sentence(deployment: Deployment, sources: Sequence[str]) -> str:
    """The sentence on counts that hide bursts: of which sources, and how wide they are."""
    step_s = max(source.arrivals_step_s or 0.0 for source in deployment.sources if source.id in sources)
    return (
        f"Arrivals of {listed(sources)} are known as counts per {step_words(step_s)}, which hide bursts: this rests on "
        "an assumption about them."
    )
