"""Operators of a query: the cores they run on, and what telemetry measured of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.estimates.models import EstimateRun, NodeEstimate
from apps.estimates.selectors import node_estimates
from apps.measurements.models import OperatorStatistic
from apps.measurements.selectors import OperatorEvidence, evidence_of_operators
from apps.pages.overview.findings import NodeLine
from apps.pages.queries.facts import QueryDetail
from apps.pages.queries.inputs import cost_dispersion_words
from apps.queries.models import Operator, Placement, Query
from apps.ui.numbers import MISSING, count, percent, ratio, scaled, seconds, significant
from apps.ui.pictures import heat_strip
from apps.ui.times import clock_time
from engine.document.elements import Replica
from engine.words import counted, listed, server_words

__all__ = ["MeasuredOperators", "PlaceLine", "PlacementLines"]


_HOT_S = 4.0


@dataclass(frozen=True)
class PlaceLine:
    """An operator, or a share of one, on a core."""

    operator: str
    kind: str
    node: str
    node_url: str
    core: str
    share: str
    load: float | None
    server_load: float | None
    others: str


class PlacementLines:
    """Placement of the running version; for others, the places in their documents."""

    def __init__(self, detail: QueryDetail) -> None:
        self.detail = detail

    @cached_property
    def placements(self) -> list[Placement]:
        rows = Placement.objects.filter(operator__version=self.detail.version).select_related("operator", "node")
        return list(rows.order_by("operator__position", "node__name", "core"))

    @cached_property
    def servers(self) -> dict[str, NodeEstimate]:
        if self.detail.estimate is None:
            return {}
        own = {_server(row) for row in self.placements}
        return {row.server: row for row in node_estimates(self.detail.estimate.run).filter(server__in=own)}

    @cached_property
    def neighbours(self) -> dict[tuple[int, int], set[str]]:
        """Names of the other queries on each core this query uses."""
        rows = Placement.objects.filter(node__in={row.node_id for row in self.placements})
        others = rows.exclude(operator__version__query=self.detail.query)
        names: dict[tuple[int, int], set[str]] = {}
        for node, core, name in others.values_list("node_id", "core", "operator__version__query__name"):
            names.setdefault((node, core), set()).add(name)
        return names

    @property
    def lines(self) -> list[PlaceLine]:
        return [self._line(row) for row in self.placements]

    def _line(self, row: Placement) -> PlaceLine:
        load = self.detail.operator_load(row.operator.name)
        server = self.servers.get(_server(row))
        return PlaceLine(
            operator=row.operator.name,
            kind=row.operator.get_kind_display(),
            node=row.node.name,
            node_url=reverse("pages:node", args=[self.detail.cluster.slug, row.node.name]),
            core=str(row.core),
            share="whole" if row.fraction >= 1 else str(percent(row.fraction)),
            load=load.load_peak_cps * row.fraction / row.node.capacity_cps if load else None,
            server_load=server.peak_load if server else None,
            others=", ".join(sorted(self.neighbours.get((row.node_id, row.core), ()))),
        )

    @property
    def asked(self) -> list[tuple[str, str, str, str]]:
        """(operator, kind, place in its document, predicted node) of a version that does not run."""
        return [
            (row.name, row.get_kind_display(), _asked(row), self.predicted.get(row.name, ""))
            for row in self.detail.version.operators.all()
        ]

    @cached_property
    def predicted(self) -> dict[str, str]:
        """Node of each operator in the first placement that was predicted; empty without one."""
        return dict(self.detail.prediction.placement) if self.detail.prediction else {}

    @property
    def run(self) -> EstimateRun | None:
        return self.detail.estimate.run if self.detail.estimate else None

    @property
    def strips(self) -> list[NodeLine]:
        """Excess over time of each core it uses, the most first."""
        ranked = sorted(self.servers.values(), key=lambda row: -row.excess_s)
        return [
            NodeLine(
                server_words(row.server, begins=True),
                reverse("pages:node", args=[self.detail.cluster.slug, row.node_name]) if row.node_name else "",
                heat_strip(
                    row.excess, f"{server_words(row.server, begins=True)}: highest excess {seconds(row.excess_s)}"
                ),
                seconds(row.excess_s),
                "watch" if row.excess_s >= _HOT_S else "",
                ratio(row.mean_load),
            )
            for row in ranked
        ]

    @property
    def sentence(self) -> str:
        """6 operators on 2 nodes, 3 cores; n03 also runs checkout-funnel."""
        if not self.placements and self.predicted:
            return "No operator is placed yet: admission puts each on the least busy core of its predicted node."
        if not self.placements:
            return "No operator is placed yet: admission puts each on the core where it waits least."
        nodes = {row.node_id for row in self.placements}
        cores = {(row.node_id, row.core) for row in self.placements}
        shared = sorted({name for names in self.neighbours.values() for name in names})
        places = f"{counted(len(nodes), 'node')} and {counted(len(cores), 'core')}"
        if not shared:
            return f"On {places}, shared with no other query."
        return f"On {places}, shared with {listed(shared, len(shared))}."


def _server(row: Placement) -> str:
    return f"{row.node.name}#{row.core}" if row.node.cores > 1 else row.node.name


def _asked(row: Operator) -> str:
    def place_text(replica: Replica) -> str:
        place = server_words(f"{replica.node}#{replica.core}")
        return place if replica.fraction >= 1 else f"{percent(replica.fraction)} on {place}"

    return ", ".join(place_text(Replica(**part)) for part in row.requested) or "anywhere"


_MEASURED = ("where", "selectivity", "cycles", "variation", "events", "span", "subintervals")


class MeasuredOperators:
    """The operators of a live query with their evidence; empty for a query that never ran live."""

    def __init__(self, query: Query) -> None:
        self.query = query

    @cached_property
    def rows(self) -> list[OperatorEvidence]:
        return evidence_of_operators(self.query)

    @property
    def sentence(self) -> str:
        """3 of 5 operators are ready; count wants 240 more events, about 3 min."""
        ready = sum(row.ready for row in self.rows)
        all_of_them = counted(len(self.rows), "operator")
        text = f"1 of {all_of_them} is ready" if ready == 1 else f"{ready} of {all_of_them} are ready"
        waiting = next((row for row in self.rows if not row.ready), None)
        return f"{text}." if waiting is None else f"{text}; {waiting.operator}: {waiting.text}."

    @property
    def lines(self) -> list[dict[str, object]]:
        return [_line(row) for row in self.rows]


def _line(evidence: OperatorEvidence) -> dict[str, object]:
    row = evidence.statistic
    waiting = {
        "operator": evidence.operator,
        "ready": evidence.ready,
        "text": evidence.text,
        "reason": row.reason if row else "",
        "since": clock_time(evidence.lacking_since) if evidence.lacking_since else "",
    }
    if row is None:
        return {**waiting, **dict.fromkeys(_MEASURED, MISSING), "last": None}
    return {
        **waiting,
        "where": _where(evidence.shares),
        "selectivity": _with_half(significant(row.selectivity), row.selectivity, evidence.selectivity_half),
        "cycles": _with_half(scaled(row.cycles_per_event).html, row.cycles_per_event, evidence.cycles_half),
        "variation": cost_dispersion_words(row),
        "events": count(row.events),
        "span": seconds((row.last_at - row.first_at).total_seconds()).html,
        "subintervals": _subintervals(row),
        "last": row.last_at,
    }


def _where(shares: dict[str, float]) -> str:
    """agent-1 38%, stream processor 24%: the largest three."""
    largest = sorted(shares.items(), key=lambda pair: -pair[1])
    return listed([f"{name} {percent(share)}" for name, share in largest], 4) or MISSING


def _with_half(text: Any, value: float, half: float | None) -> SafeString:
    """0.52 ± 3%."""
    if half is None or half == float("inf") or value <= 0.0:
        return format_html("{}", text)
    return format_html('{} <small class="muted">± {}</small>', text, percent(half / value).html)


def _subintervals(row: OperatorStatistic) -> SafeString:
    others = [(row.extrapolated, "extrapolated"), (row.missing, "missing")]
    text = ", ".join(f"{count(number)} {word}" for number, word in others if number)
    return format_html('{} <small class="muted">{}</small>', count(row.whole), text)
