"""Mask of what is told of queries to somebody who sees a part of their cluster: those of other teams have no name.

Rows are narrowed where they enter an answer (`apps.core.reach`). What was computed of a whole cluster, such as a
verdict, names its queries within, and gives their objectives and latencies in numbers and in sentences. There a name
outside the caller's teams becomes `OTHER`, a sentence with one tells how its objective stands and nothing else, and
beside either no number is left. A word that happens to be such a name is masked, too: too much, and never too little.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from django.db.models import Q

from apps.core.reach import is_seen_in_part, visible
from apps.fleet.models import Cluster
from apps.queries.models import ArrivalSeries, OperatorInput, Query

__all__ = ["OTHER", "OTHER_SOURCE", "MaskedSerializerMixin", "QueryMask", "arrivals_seen", "mask_of"]

OTHER, OTHER_SOURCE = "a query of another team", "a source of another team"
_ABOUT = ("query", "subject", "message")  #: fields that say what a part of an answer is about
_KEPT = frozenset({*_ABOUT, "code", "severity", "kind", "is_candidate", "before_state", "after_state"})
_STANDS = r"(?:would miss|may miss|misses|would keep) its objective(?: already)?"
_DROPPED = frozenset({"policy_facts"})  # what teams use of their quotas


class QueryMask:
    """Mask of queries and sources by their names; `own` are the queries that are shown."""

    def __init__(self, hidden: Iterable[str], own: Iterable[str], sources: Iterable[str] = ()) -> None:
        self._own, self._hidden, self._sources = frozenset(own), frozenset(hidden), frozenset(sources)

    def text(self, text: str) -> str:
        """A name, with an operator of its query or alone, or a sentence.

        >>> mask = QueryMask(["calm"], ["bids"], ["clicks"])
        >>> mask.text("calm/work"), mask.text("calm would miss 2 s."), mask.text("bids holds, calmly.")
        ('a query of another team', 'This is about a query of another team.', 'bids holds, calmly.')
        >>> mask.text("clicks"), mask.text("clicks has no arrivals.")
        ('a source of another team', 'This is about a source of another team.')

        Of an objective it is said how it stands, without figures:

        >>> mask.text("calm would miss its objective: it waits 3 s for n1")
        'A query of another team would miss its objective'
        """
        for names, other in ((self._hidden, OTHER), (self._sources, OTHER_SOURCE)):
            named = rf"(?:{'|'.join(map(re.escape, names))})"
            if names and re.search(rf"(?<![\w-]){named}(?![\w-])", text):
                if said := re.match(rf"{named} ({_STANDS})", text):
                    return f"{other[0].upper()}{other[1:]} {said.group(1)}"
                return f"This is about {other}." if " " in text else other
        return text

    def document(self, document: Any) -> Any:
        """A computed answer: of parts about masked queries what they are about, their states, and nothing else.

        Names are masked that stand in the answer as a query and are not one's own, also of those that are gone.
        """
        return self.naming(document)._masked(document)

    def naming(self, document: Any) -> QueryMask:
        """The mask that hides queries of others that a computed answer names, too."""
        return QueryMask(self._hidden | self.others(_queries_named(document)), self._own, self._sources)

    def others(self, names: Iterable[str]) -> set[str]:
        """Those of some names of queries that are not one's own."""
        return set(names) - self._own

    def _masked(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, (list, tuple)):
            return [self._masked(entry) for entry in value]
        if not isinstance(value, Mapping):
            return value
        shown = {
            key: None if key in _DROPPED else self._masked(entry)
            for key, entry in value.items()
            if self.text(key) == key
        }
        if all(shown.get(key) == value.get(key) for key in _ABOUT):
            return shown
        return {key: entry if key in _KEPT else None for key, entry in shown.items()}


def mask_of(cluster: Cluster) -> QueryMask | None:
    """The mask for the caller of the present request; None for whoever sees the whole cluster."""
    if not is_seen_in_part(cluster.pk):
        return None
    rows = Query.objects.filter(cluster=cluster)
    own = set(visible(rows).values_list("name", flat=True))
    sources = set(ArrivalSeries.objects.filter(cluster=cluster).values_list("source_id", flat=True))
    seen = set(arrivals_seen(cluster).values_list("source_id", flat=True))
    return QueryMask(set(rows.values_list("name", flat=True)) - own, own, sources - seen)


class MaskedSerializerMixin:
    """Rows of a cluster as they are, masked for whoever sees a part of it."""

    def cluster_of_row(self, row: Any) -> Cluster:
        """The cluster that a row is about."""
        return row.cluster  # type: ignore[no-any-return]

    def to_representation(self, instance: Any) -> Any:
        shown, masks = super().to_representation(instance), self.context.setdefault("masks", {})  # type: ignore[misc, attr-defined]
        cluster = self.cluster_of_row(instance)
        if cluster.pk not in masks:
            masks[cluster.pk] = mask_of(cluster)
        mask = masks[cluster.pk]
        return shown if mask is None else mask.document(shown)


def arrivals_seen(cluster: Cluster) -> Any:
    """Arrivals of a cluster: for whoever sees a part of it those that their teams own, or a query of theirs reads."""
    rows = ArrivalSeries.objects.filter(cluster=cluster)
    if not is_seen_in_part(cluster.pk):
        return rows
    own = visible(Query.objects.filter(cluster=cluster))
    inputs = OperatorInput.objects.filter(operator__version__query__in=own)
    return rows.filter(Q(source_id__in=inputs.values("source_id")) | Q(pk__in=visible(rows).values("pk")))


def _queries_named(document: Any) -> Iterable[str]:
    if isinstance(document, Mapping):
        name = document.get("query", document.get("id") if document.get("kind") == "query" else None)
        if isinstance(name, str) and name:
            yield name
        for entry in document.values():
            yield from _queries_named(entry)
    elif isinstance(document, (list, tuple)):
        for entry in document:
            yield from _queries_named(entry)
