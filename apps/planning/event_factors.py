"""Factors of an event: whose load comes at how many times the ordinary one, as text and as records."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from apps.core.errors import Fault
from apps.fleet.models import Cluster
from apps.planning.choices import FactorOf
from apps.queries.choices import QueryState
from apps.queries.models import ArrivalSeries, Query
from engine.errors import suggestion, value_words
from engine.kinds import Enumeration, Number
from engine.records import Record, Words

__all__ = ["EventFactor", "LoadOwners", "factors_read", "factors_text", "text_factors"]

MAX_FACTORS = 200
MAX_BY = 1000.0
_LINE = re.compile(r"(?:(?P<of>source|team|class)\s+)?(?P<name>.+?)\s*[:=]?\s+[×x]?\s*(?P<by>\S+?)\s*[×x]?\Z", re.I)


@dataclass(frozen=True, kw_only=True)
class EventFactor(Record):
    """A factor of the ordinary load. A class is the queries of one priority, and its name that number."""

    TITLE: ClassVar[str] = "a factor"

    of: Annotated[str, Enumeration(tuple(FactorOf.values))] = "source"
    name: Annotated[str, Words("A source, a team, or a priority; empty for the rest.")] = ""
    by: Annotated[float, Number(above=0.0, most=MAX_BY)]

    def find_faults(self) -> Iterator[Fault]:
        if self.of == FactorOf.REST and self.name:
            yield Fault("name", f"name is {self.name!r}; allowed: none, the rest has no name")
        if self.of != FactorOf.REST and not self.name:
            yield Fault("name", f"name is missing; allowed: the name of a {self.of}")
        if self.of == FactorOf.CLASS and self.name and not re.fullmatch(r"-?\d{1,9}", self.name):
            yield Fault("name", f"name is {self.name!r}; allowed: a priority, which is a whole number")

    @property
    def text(self) -> str:
        """`orders 3x`, as it is typed."""
        name = "rest" if self.of == FactorOf.REST else self.name
        kind = f"{self.of} " if self.of in (FactorOf.TEAM, FactorOf.CLASS) else ""
        return f"{kind}{name} {self.by:g}x"


class LoadOwners:
    """Sources, teams and classes of a cluster that a factor may name."""

    def __init__(self, cluster: Cluster) -> None:
        rows = list(Query.objects.filter(cluster=cluster).values_list("team__name", "priority", "state", "name"))
        self.sources = list(ArrivalSeries.objects.filter(cluster=cluster).values_list("source_id", flat=True))
        self.teams = sorted({team for team, *_ in rows if team})
        self.classes = [str(priority) for priority in sorted({priority for _, priority, *_ in rows})]
        self._running = [(team, priority, name) for team, priority, state, name in rows if state == QueryState.RUNNING]

    def names_of(self, of: str) -> list[str]:
        return {FactorOf.SOURCE: self.sources, FactorOf.TEAM: self.teams, FactorOf.CLASS: self.classes}[FactorOf(of)]

    def queries_of(self, factor: EventFactor) -> list[str]:
        """Running queries of a team or a class."""
        if factor.of == FactorOf.TEAM:
            return [name for team, _, name in self._running if team == factor.name]
        return [name for _, priority, name in self._running if str(priority) == factor.name]


def factors_read(items: Any, owners: LoadOwners, faults: list[Fault]) -> list[EventFactor]:
    """Factors of a document, with every fault: what is unknown, given twice, or out of range."""
    if not isinstance(items, (list, tuple)) or len(items) > MAX_FACTORS:
        faults.append(
            Fault("factors", f"factors is {value_words(items)}; allowed: a list of at most {MAX_FACTORS} factors")
        )
        return []
    seen: dict[tuple[str, str], int] = {}
    factors = []
    for i, item in enumerate(items):
        factor = EventFactor.read(item, "factors", i, faults)
        if factor is None:
            continue
        at = seen.setdefault((factor.of, factor.name), i)
        if at != i:
            faults.append(Fault(f"factors[{i}].name", f"{factor.text!r} is of what factors[{at}] is of already"))
        if factor.of != FactorOf.REST and factor.name not in (known := owners.names_of(factor.of)):
            near = suggestion(factor.name, known) or f"; allowed: {', '.join(known[:8]) or 'none, there is none'}"
            faults.append(Fault(f"factors[{i}].name", f"name is {factor.name!r}, which is no {factor.of}{near}"))
        factors.append(factor)
    return factors


def text_factors(text: str) -> list[dict[str, object]]:
    """Factors as people write them, one a line or between commas: `orders 3x, team ads 2, rest 1.5x`.

    What cannot be read is left to `factors_read`, which says so.
    """
    items: list[dict[str, object]] = []
    for line in re.split(r"[\n,;]+", text):
        if not line.strip():
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None:
            items.append({"of": str(FactorOf.SOURCE), "name": line.strip(), "by": ""})
            continue
        of, name = (match["of"] or "source").lower(), match["name"].strip()
        if match["of"] is None and name.lower() == "rest":
            of, name = str(FactorOf.REST), ""
        try:
            by: object = float(match["by"])
        except ValueError:
            by = match["by"]
        items.append({"of": of, "name": name, "by": by})
    return items


def factors_text(factors: Sequence[EventFactor] | Iterable[dict[str, Any]]) -> str:
    """`orders 3x, rest 1.5x`."""
    read = [factor if isinstance(factor, EventFactor) else EventFactor.parse(factor) for factor in factors]
    return ", ".join(factor.text for factor in read)
