"""Question of an event: its loads by bucket, and what is to be kept and may be bought."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from engine.arrays import FloatArray
from engine.document.deployment import Node, Objective
from engine.records import Fact

__all__ = ["EventLoads", "EventQuestion", "note_last_time", "note_unread", "note_without_queries"]


@dataclass(frozen=True, eq=False)
class EventLoads:
    """Loads of an event by bucket, as multiples of the arrivals that a deployment has.

    Attributes
    ----------
    ordinary, high : mapping of str to array, shape (h,)
        Ordinary load of a source over its arrivals, as expected and at the upper end of its band; sources that are not
        in it stay at their arrivals.
    rests_on : mapping of str to str
        What each of them rests on.
    traces : mapping of str to array, shape (h,)
        Factors that sources without one of their own had the last time.
    sources, queries : mapping of str to float
        Factors of sources, for all who read them, and of single queries, for nobody else. Where both are given the
        larger counts.
    rest : float
        Factor of everything else.
    """

    starts_s: float
    bucket_s: float
    buckets: int
    ordinary: Mapping[str, FloatArray] = field(default_factory=dict)
    high: Mapping[str, FloatArray] = field(default_factory=dict)
    rests_on: Mapping[str, str] = field(default_factory=dict)
    traces: Mapping[str, FloatArray] = field(default_factory=dict)
    sources: Mapping[str, float] = field(default_factory=dict)
    queries: Mapping[str, float] = field(default_factory=dict)
    rest: float = 1.0

    @property
    def ends_s(self) -> float:
        return self.starts_s + self.buckets * self.bucket_s


@dataclass(frozen=True, eq=False)
class EventQuestion:
    """Objectives that an answer is to keep, and what it may use.

    Attributes
    ----------
    types : mapping of str to mapping
        Node types to buy, as `engine.provisioning.combinations.node_of` reads them.
    limits : sequence of Objective
        Objectives as mean costs alone are held against: divided by the factor of the nodes' policies, if one is known.
    like : str or Node, optional
        What further nodes of the staircase are like.
    lose_one : bool
        Whether objectives must hold with any one node lost.
    ends_s : float
        The end of the event, unix seconds; nodes are paid for until then.
    budget_s : float
        Seconds after which each search for a pool begins nothing new.
    steps_budget_s : float
        Seconds after which the steps of the staircase together try no other number of nodes.
    """

    types: Mapping[str, Mapping[str, object]]
    limits: Sequence[Objective]
    like: str | Node | None = None
    lose_one: bool = True
    lead_time_s: float = 0.0
    cost_per_violation_hour: float = 100.0
    currency: str = ""
    ends_s: float = 0.0
    mace_every: int = 1
    closed: Sequence[str] = ()
    budget_s: float = 60.0
    steps_budget_s: float = 60.0
    most: int = 64


def note_last_time(names: tuple[str, ...], since: str) -> Fact:
    """Sources that come as the last time, or that nothing of it is on record."""
    return Fact("event.trace", names=names, since=since) if names else Fact("event.no_trace", since=since)


def note_unread(names: tuple[str, ...]) -> Fact:
    """Sources with a factor that nobody reads."""
    return Fact("event.not_read", names=names)


def note_without_queries(names: tuple[str, ...]) -> Fact:
    """Teams and classes with a factor and without a running query that reads a source."""
    return Fact("event.without_queries", names=names)
