"""Remedies of a late query as records: what each wins, costs, risks, and does to everybody else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from pydantic import JsonValue, computed_field

from engine.document.elements import Replica
from engine.latency_state import LatencyStanding
from engine.records import Fact, Flag, Omitted, Record, Sentence, Words

__all__ = ["KINDS", "PREVIEWS", "QueryRemedies", "Remedy", "RemedyEffect", "TriedRemedy"]

#: Kinds in the order of what they cost: nothing but a move or a restart, money, events, another query, the promise.
KINDS = ("move", "parallelism", "plan", "add_node", "scale_rate", "stop", "objective")
#: Pages on which a remedy is previewed.
PREVIEWS = ("placement", "scenario", "parallelism", "plans")


@dataclass(frozen=True)
class RemedyEffect(Record):
    """A query before and after; seconds of the statistic of its objective."""

    TITLE: ClassVar[str] = "an effect of a remedy"

    query: str
    bound_s: float | None
    before_s: float
    after_s: Annotated[float | None, Words("null: it is stopped")]
    before_state: str
    after_state: Annotated[str, Words("holds, at_risk, breached, unknown, none or stopped")]


@dataclass(frozen=True, kw_only=True)
class Remedy(Record):
    """A change that helps a late query, estimated in full.

    `won_s` is the estimate before less that after: None where before nothing catches up. `ready_s` is when it helps, in
    seconds from when somebody does it: its state has travelled or its job is back, and what waits is processed; None
    where nobody knows. `effects` has the query itself first and then all others that change.
    """

    TITLE: ClassVar[str] = "a remedy"

    id: str
    kind: Annotated[str, Words(", ".join(KINDS))]
    title: Sentence
    estimate_s: float
    low_s: float | None
    high_s: float | None
    state: Annotated[str, Words("of the objective afterwards: holds, at_risk or breached")]
    won_s: float | None
    ready_s: float | None
    cost: Sentence
    risk: Sentence
    breaks: tuple[str, ...] = ()
    mends: tuple[str, ...] = ()
    effects: tuple[RemedyEffect, ...] = ()
    price_per_hour: Omitted[float] = None
    preview: Annotated[str, Words(", ".join(PREVIEWS))] = PREVIEWS[0]
    placement: Annotated[Mapping[str, tuple[Replica, ...]], Words("replicas of operators that are elsewhere then")] = (
        field(default_factory=dict)
    )
    changes: Annotated[tuple[Mapping[str, JsonValue], ...], Words("as a scenario has them; empty of moves alone")] = ()
    parallelism: Omitted[int] = None
    plan: Omitted[str] = None

    @property
    def is_enough(self) -> bool:
        """Whether the objective holds with it, and nobody else's breaks."""
        return self.state == "holds" and not self.breaks


@dataclass(frozen=True)
class TriedRemedy(Record):
    """A kind of remedy that was looked for in vain, with the best that was estimated of it; None: none came so far."""

    TITLE: ClassVar[str] = "a kind of remedy that was tried"

    kind: str
    why: Sentence
    estimate_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class QueryRemedies(Record):
    """Remedies of a query, the best first, and what was tried in vain.

    `unknown` says what nobody knows of it, which any estimate rests on; where its latency is not known at all there are
    no remedies.
    """

    TITLE: ClassVar[str] = "remedies of a query"

    query: str
    state: str
    statistic: str
    bound_s: float | None
    estimate_s: float
    high_s: float | None
    standing: LatencyStanding
    unknown: tuple[Sentence, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    tried: tuple[TriedRemedy, ...] = ()
    waits_longer: Annotated[Flag, Words("whether events wait already for longer than the objective allows")] = False

    @computed_field  # type: ignore[prop-decorator]
    @property
    def words(self) -> str:
        """A sentence about them."""
        return str(
            Fact(
                "remedies.answer",
                query=self.query,
                state=self.state,
                is_unknown=bool(self.unknown),
                enough=sum(remedy.is_enough for remedy in self.remedies),
                count=len(self.remedies),
                waits_longer=self.waits_longer,
            )
        )
