"""What one node does: its cores in the newest estimate, the operators on it, the queries that share it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from apps.estimates.models import EstimateRun, NodeEstimate
from apps.estimates.selectors import node_estimates, run_latest
from apps.fleet.choices import NodeState
from apps.fleet.models import Cluster, Node
from apps.pages.context import url_of
from apps.pages.findings import NodeLine, Stat
from apps.queries.models import Placement
from apps.ui.charts import Chart, Series, elapsed_axis
from apps.ui.marks import EVIDENCE
from apps.ui.numbers import MISSING, Quantity, cps, percent, ratio, seconds
from apps.ui.pictures import heat_strip

__all__ = ["NodeDetail", "OperatorLine"]


@dataclass(frozen=True)
class OperatorLine:
    """An operator on the node."""

    name: str
    kind: str
    query: str
    query_url: str
    core: int
    fraction: str


class NodeDetail:
    """Everything the page of a node shows."""

    def __init__(self, cluster: Cluster, node: Node) -> None:
        self.cluster = cluster
        self.node = node

    @cached_property
    def run(self) -> EstimateRun | None:
        return run_latest(self.cluster)

    @cached_property
    def servers(self) -> list[NodeEstimate]:
        """Its cores, the busiest first."""
        if self.run is None:
            return []
        return sorted(node_estimates(self.run).filter(node_name=self.node.name), key=lambda one: -one.peak_load)

    @cached_property
    def operators(self) -> list[OperatorLine]:
        rows = Placement.objects.filter(node=self.node).select_related("operator__version__query")
        return [
            self._operator(row) for row in rows.order_by("operator__version__query__name", "operator__position", "core")
        ]

    def _operator(self, row: Placement) -> OperatorLine:
        query = row.operator.version.query
        url = url_of("pages:query", self.cluster.slug, query.name)
        share = "" if row.fraction >= 1 else str(percent(row.fraction))
        return OperatorLine(row.operator.name, row.operator.get_kind_display(), query.name, url, row.core, share)

    @cached_property
    def queries(self) -> list[str]:
        return list(dict.fromkeys(line.query for line in self.operators))

    @property
    def sentence(self) -> str:
        where = f"{self.node.cores} core{'s' if self.node.cores != 1 else ''} of {cps(self.node.capacity_cps)}"
        if self.node.state == NodeState.OFFLINE:
            return f"{where}, offline: not part of the cluster's capacity."
        if self.node.state == NodeState.PLANNED:
            return f"{where}, planned: not part of the cluster's capacity until it is activated."
        if not self.operators:
            return f"{where}, empty: no operator is placed on it."
        shared = f"{len(self.queries)} quer{'ies share' if len(self.queries) > 1 else 'y uses'} it"
        if not self.servers:
            return f"{where}; {shared}."
        busiest = self.servers[0]
        return f"{where}; {shared}. Its busiest core runs at {ratio(busiest.peak_load)} of capacity at its peak."

    @property
    def stats(self) -> list[Stat]:
        busiest = self.servers[0] if self.servers else None
        mean = Quantity(ratio(busiest.mean_load), "of capacity") if busiest else Quantity(MISSING)
        excess = seconds(busiest.excess_s) if busiest else Quantity(MISSING)
        known = EVIDENCE[self.node.evidence].label.lower()
        return [
            Stat("Capacity per core", cps(self.node.capacity_cps), f"{known}, pool {self.node.pool.name}"),
            Stat(
                "Load, busiest core", mean, f"{ratio(busiest.peak_load)} at its peak" if busiest else "No estimate yet"
            ),
            Stat("Excess at its peak", excess, "work waiting" if busiest else "No estimate yet"),
            Stat("Operators", Quantity(str(len(self.operators))), ", ".join(self.queries[:3]) or "none"),
        ]

    @property
    def lines(self) -> list[NodeLine]:
        """A strip per core."""
        return [
            NodeLine(
                one.server,
                "",
                heat_strip(one.excess, f"{one.server}: highest excess {seconds(one.excess_s)}"),
                seconds(one.excess_s),
                "watch" if one.excess_s >= 4 else "",
                ratio(one.mean_load),
            )
            for one in self.servers
        ]

    @cached_property
    def chart(self) -> Chart | None:
        """Excess of the busiest core over the estimated stretch."""
        if not self.servers or self.run is None:
            return None
        busiest = self.servers[0]
        step_s = self.run.slices * self.run.slice_s / max(len(busiest.excess), 1)
        return Chart(
            id="node-excess",
            finding=f"Work waiting on {busiest.server} over the stretch, at most {seconds(busiest.excess_s)}.",
            unit="s",
            x=elapsed_axis(step_s),
            series=[Series("load", "Work waiting", y=busiest.excess)],
            height=220,
            steps=True,
        )
