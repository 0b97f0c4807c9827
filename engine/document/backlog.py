"""Backlogs of a deployment: which events wait at each input where the horizon begins, and since when.

A backlog is stated in events, in seconds that readers are behind, or in both; what is missing follows from the mean
rate of the stream over the horizon. Nothing is filled in where that rate is 0: how many events wait, or since when, is
then unknown, and said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, TypeVar

from pydantic import Field, computed_field

from engine.document.elements import MAX_BACKLOG_AGE_S, Backlog, DeploymentContent, Input, Operator, Source
from engine.document.translation import source_rates, stream_rates
from engine.records import Fact, Record, Unwritten

__all__ = [
    "USED",
    "InputBacklog",
    "has_backlogs",
    "list_backlogs",
    "settle_backlogs",
    "strip_backlogs",
    "with_new_readers",
]

Content = TypeVar("Content", bound=DeploymentContent)
USED, STALE, UNKNOWN_EVENTS, UNKNOWN_AGE = "used", "stale", "unknown_events", "unknown_age"


@dataclass(frozen=True)
class InputBacklog(Record):
    """Backlog of one input: its names, and what it amounts to as stated or by the known rate; None: unknown.

    `behind_s` is the age of the oldest event. `standing` is ``used``; ``stale``: read too long ago, not used;
    ``unknown_events``: nobody knows how many wait, not used; ``unknown_age``: used as if they had come just before the
    horizon. `number` is that of the input among those of all operators.
    """

    operator: str
    query: str | None
    source: Annotated[str, Field(alias="from")]
    events: float | None
    behind_s: float | None
    age_s: float | None
    origin: str
    standing: str
    number: Unwritten[int] = 0

    @property
    def is_used(self) -> bool:
        """Whether the horizon begins with it.

        Examples
        --------
        >>> waiting = InputBacklog("parse", "q", "clicks", 6e5, 1200.0, 20.0, "measured", "used")
        >>> waiting.is_used
        True
        >>> waiting.words.replace("\u00a0", " ")
        '600,000 events of clicks wait at parse, the oldest for 20 min (measured 20 s ago).'
        """
        return self.standing in (USED, UNKNOWN_AGE)

    @property
    def waits(self) -> bool:
        """Whether the horizon begins with events of it."""
        return self.is_used and (self.events or 0.0) > 0.0

    @computed_field  # type: ignore[prop-decorator]
    @property
    def words(self) -> str:
        """Sentence about it."""
        numbers = {name: getattr(self, name) for name in ("events", "behind_s", "age_s", "origin", "standing")}
        limit_s = MAX_BACKLOG_AGE_S
        return str(Fact("document.backlog", operator=self.operator, source=self.source, limit_s=limit_s, **numbers))


def has_backlogs(content: DeploymentContent) -> bool:
    """Whether a source or an input states a backlog, of whatever standing."""
    return any(source.backlog for source in content.sources) or any(
        entry.backlog for operator in content.operators for entry in operator.inputs
    )


def list_backlogs(content: DeploymentContent) -> tuple[InputBacklog, ...]:
    """Backlogs of all inputs that have one which says that something waits, in their order."""
    if not has_backlogs(content):
        return ()
    sources, operators = settle_backlogs(content.sources, content.operators, content.subinterval_s)
    by_source = {source.id: source.backlog for source in sources}
    found, number = [], 0
    for operator in operators:
        for entry in operator.inputs:
            backlog = entry.backlog or by_source.get(entry.source)
            if backlog is not None and not backlog.is_empty:
                found.append(_input_backlog(number, operator, entry, backlog))
            number += 1
    return tuple(found)


def _input_backlog(number: int, operator: Operator, entry: Input, backlog: Backlog) -> InputBacklog:
    standing = USED
    if backlog.is_stale:
        standing = STALE
    elif backlog.events is None:
        standing = UNKNOWN_EVENTS
    elif backlog.behind_s is None:
        standing = UNKNOWN_AGE
    return InputBacklog(
        operator.id,
        operator.query,
        entry.source,
        backlog.events,
        backlog.behind_s,
        backlog.age_s,
        backlog.origin,
        standing,
        number,
    )


def settle_backlogs(
    sources: Sequence[Source], operators: Sequence[Operator], subinterval_s: float
) -> tuple[tuple[Source, ...], tuple[Operator, ...]]:
    """Sources and operators whose backlogs have both events and age, as far as the known rates tell.

    A change of arrivals then leaves the past as it was.
    """
    rates = stream_rates(operators, source_rates(sources, subinterval_s), subinterval_s)

    def settled(backlog: Backlog | None, stream: str) -> Backlog | None:
        rate_eps = rates.get(stream, 0.0)
        if backlog is None or backlog.is_empty or not rate_eps > 0.0:
            return backlog
        if backlog.events is None and backlog.behind_s is not None:
            return replace(backlog, events=rate_eps * backlog.behind_s)
        if backlog.behind_s is None and backlog.events is not None:
            return replace(backlog, behind_s=backlog.events / rate_eps)
        return backlog

    return (
        tuple(replace(source, backlog=settled(source.backlog, source.id)) for source in sources),
        _with_input_backlogs(operators, lambda entry: settled(entry.backlog, entry.source)),
    )


def strip_backlogs(content: Content) -> Content:
    """The same with nothing waiting: of a horizon that does not begin now."""
    if not has_backlogs(content):
        return content
    sources = tuple(replace(source, backlog=None) for source in content.sources)
    return replace(content, sources=sources, operators=_with_input_backlogs(content.operators, lambda entry: None))


def with_new_readers(operators: Sequence[Operator], running: Sequence[Source]) -> tuple[Operator, ...]:
    """Operators that begin with the newest event of what others read already, unless an input says otherwise."""
    waiting = {source.id for source in running if source.backlog}
    nothing = Backlog(events=0.0, behind_s=0.0)
    return _with_input_backlogs(
        operators, lambda entry: entry.backlog or (nothing if entry.source in waiting else None)
    )


def _with_input_backlogs(
    operators: Sequence[Operator], backlog_of: Callable[[Input], Backlog | None]
) -> tuple[Operator, ...]:
    """Operators with other backlogs at their inputs; those that stay as they are are the same objects."""
    changed = []
    for operator in operators:
        inputs = [replace(entry, backlog=backlog_of(entry)) for entry in operator.inputs]
        same = all(entry.backlog == old.backlog for entry, old in zip(inputs, operator.inputs, strict=True))
        changed.append(operator if same else replace(operator, inputs=tuple(inputs)))
    return tuple(changed)
