"""Objectives against realised latencies: what holds, what is at risk, what breaks, and what that rests on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from engine.document.deployment import Deployment
from engine.document.elements import Objective
from engine.document.memory import unknown_memory_words
from engine.document.policies import PolicyGap
from engine.estimation.query_flow import FlowedQueries
from engine.estimation.reports import QueryReport
from engine.latency_state import LatencyStanding, objective_state
from engine.noise.realisation import realise
from engine.noise.summary import RealisedQuery, RealisedStatistic
from engine.waits.estimate import query_waits, with_waits
from engine.waits.summary import NO_WAITS
from engine.words import listed, seconds_words, step_words

__all__ = ["ObjectiveFigures", "RealisedObjective", "coarse_sentence", "realised_objectives"]

_NAMED = 6  # queries in a list, the last of a longer one being the number of those left out


@dataclass(frozen=True, slots=True)
class RealisedObjective:
    """A query's objective and the median and 90 % interval in which its statistic is realised, seconds.

    Attributes
    ----------
    assumed : tuple of str
        Sentences about what the figures rest on.
    coarse_sources : tuple of str
        Sources whose counts are too coarse to tell bursts; nothing measured supports what happens inside them.
    lost : str or None
        The node that is lost.
    standing : LatencyStanding
        Whether the figures are known: not where nothing comes out, nor where a server never catches up.
    gap : PolicyGap or None
        What the figures lack where servers run other policies than stimulus time.
    wait_s : float
        Part of the median that is no queue.
    """

    query: str
    statistic: str
    bound_s: float
    figures: RealisedStatistic
    standing: LatencyStanding
    assumed: tuple[str, ...] = ()
    coarse_sources: tuple[str, ...] = ()
    lost: str | None = None
    gap: PolicyGap | None = None
    wait_s: float = 0.0

    @classmethod
    def of_report(cls, query: str, report: QueryReport, lost: str | None = None) -> RealisedObjective | None:
        """The realised figures that an estimate's report has of its objective; None without either."""
        if report.bound_s is None or report.noise is None:
            return None
        entry = Objective(query, report.statistic, report.bound_s)
        realised = _realised(entry, report.noise, report.standing, lost)
        return replace(realised, gap=report.gap, wait_s=report.wait_s)

    @property
    def state(self) -> str:
        """holds (the upper end is within the bound), at_risk (only the median is), unknown, or breached."""
        objective = Objective(self.query, self.statistic, self.bound_s)
        high_s = self.figures.high_s
        if self.gap is not None:
            high_s = inf if self.policy_high_s is None else max(high_s, self.policy_high_s)
        return str(objective_state(objective, self.figures.estimate_s, high_s, self.standing)["state"])

    @property
    def policy_high_s(self) -> float | None:
        """Upper end under the policies in force; None where there is no gap, or nobody knows one."""
        return None if self.gap is None else self.gap.high_s(self.figures.high_s, self.wait_s)

    @property
    def is_lacking(self) -> bool:
        """Whether it holds by stimulus time, and nobody can say so of the policies in force."""
        if self.gap is None or not self.standing.is_known:
            return False
        return self.gap.lacks(self.bound_s, self.figures.high_s, self.wait_s)

    @property
    def is_beyond_knowledge(self) -> bool:
        """Whether it holds by stimulus time and nobody knows by which factor it ends higher: no nodes help."""
        return self.is_lacking and self.policy_high_s is None

    @property
    def over(self) -> float:
        """The upper end of the interval, times the bound; more than that where the query never catches up.

        Under other policies than stimulus time it is theirs, where one is known.
        """
        return self.standing.times_over(max(self.figures.high_s, self.policy_high_s or 0.0) / self.bound_s)

    @property
    def words(self) -> str:
        """``5.2 s [4.1, 6.9] of its 6 s``, and which node is lost."""
        median, low, high, bound = seconds_words(
            self.figures.estimate_s, self.figures.low_s, self.figures.high_s, self.bound_s
        )
        text = f"{median} [{low[:-2]}, {high[:-2]}] of its {bound}"
        text = f"{text} with {self.lost} lost" if self.lost else text
        if self.is_lacking and self.gap is not None:
            return f"{text} ({self.gap.words(self.policy_high_s)})"
        return text if self.standing.is_known else f"{text} ({self.standing.words.removesuffix('.')})"

    @property
    def gap_sentence(self) -> str:
        """Sentence on what the figures lack, of whatever state; empty where they lack nothing."""
        return "" if self.gap is None else f"Of {self.query} {self.gap.words(self.policy_high_s)}."

    def to_dict(self) -> dict[str, Any]:
        """As JSON, without what all queries share."""
        return {
            "query": self.query,
            "statistic": self.statistic,
            "bound_s": self.bound_s,
            **self.figures.to_dict(),
            "state": self.state,
            "lost": self.lost,
            "words": self.words,
            "standing": self.standing.to_dict(),
            "scheduling": self.gap and {"nodes": dict(self.gap.nodes), **self.gap.to_dict(self.policy_high_s)},
        }


def realised_objectives(
    flowed: FlowedQueries,
    *,
    lost: str | None = None,
    queries: Collection[str] | None = None,
) -> dict[str, RealisedObjective]:
    """Realised figures of every query with an objective, or of those among `queries`."""
    deployment = flowed.deployment
    queues = realise(deployment, flowed.flow, queries=queries).queries
    waits = query_waits(deployment)
    known = with_waits(waits, queues)

    def realised(entry: Objective) -> RealisedObjective:
        own_s = known[entry.query].statistics[entry.statistic].estimate_s
        return replace(
            _realised(entry, known[entry.query], flowed.standings[entry.query], lost),
            gap=flowed.reporter.policy_gap(entry.query, entry.statistic, waits.get(entry.query, NO_WAITS).bound_s),
            wait_s=own_s - queues[entry.query].statistics[entry.statistic].estimate_s,
        )

    return {entry.query: realised(entry) for entry in deployment.objectives if entry.query in known}


def _realised(entry: Objective, known: RealisedQuery, standing: LatencyStanding, lost: str | None) -> RealisedObjective:
    return RealisedObjective(
        entry.query,
        entry.statistic,
        entry.bound_s,
        known.statistics[entry.statistic],
        standing,
        (*known.assumed, *known.not_modelled),
        known.assumed_sources,
        lost,
    )


@dataclass(frozen=True, eq=False)
class ObjectiveFigures:
    """Realised figures that an answer rests on, and what they rest on themselves.

    Attributes
    ----------
    objectives : tuple of RealisedObjective
        Every objective; where losses are looked at, with the worst of them.
    alone : mapping
        Of the queries at risk: their figures with a core for each operator, where more nodes do not help.
    deployment : Deployment, optional
        What they are figures of.
    """

    objectives: tuple[RealisedObjective, ...] = ()
    alone: Mapping[str, RealisedObjective] = field(default_factory=dict)
    deployment: Deployment | None = None

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
    def assumed(self) -> tuple[str, ...]:
        """Sentences on what the figures assume and leave out, each once."""
        sentences = [(*entry.assumed, entry.standing.words, entry.gap_sentence) for entry in self.objectives]
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
            yield f"Nothing is known of the latency of {entry.query}: {entry.standing.words}"
        if self.at_risk:
            nearest = self.at_risk[0]
            names = listed([entry.query for entry in self.at_risk], _NAMED)
            first = "" if len(self.at_risk) == 1 else f", {nearest.query} most"
            yield f"At risk {'is' if len(self.at_risk) == 1 else 'are'} {names}{first}: {nearest.words}."
            if nearest.query in self.alone:
                yield f"More nodes do not help: alone it takes {self.alone[nearest.query].words}."
        if self.deployment and (unknown := unknown_memory_words(self.deployment, everywhere=True)):
            yield f"Whether state fits the memory of the nodes is not known: {unknown}."
        if self.coarse_sources and self.deployment:
            yield coarse_sentence(self.deployment, self.coarse_sources)

    def to_dict(self) -> dict[str, Any]:
        """As JSON, to stand in an answer."""
        return {
            "objectives": [entry.to_dict() for entry in self.objectives],
            "at_risk": [entry.query for entry in self.at_risk],
            "unknown": [entry.query for entry in self.unknown],
            "assumed": list(self.assumed),
            "coarse_sources": list(self.coarse_sources),
            "reservation": self.reservation,
            "notes": list(self.sentences),
        }


def coarse_sentence(deployment: Deployment, sources: Sequence[str]) -> str:
    """The sentence on counts that hide bursts: of which sources, and how wide they are."""
    step_s = max(source.arrivals_step_s or 0.0 for source in deployment.sources if source.id in sources)
    return (
        f"Arrivals of {listed(sources)} are known as counts per {step_words(step_s)}, which hide bursts: this rests on "
        "an assumption about them."
    )
