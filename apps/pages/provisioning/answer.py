"""Answer of the bench in words and rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.fleet.models import Cluster, NodePool
from apps.pages.overview.tables import objective_text
from apps.pages.provisioning.charts import BenchChart, size_words
from apps.pages.provisioning.forms import inputs_query
from apps.planning.sweeps import BREAKS, FRAGILE, UNPROVEN, BenchQuestion, BenchSize, BenchSweep
from apps.ui.numbers import Quantity, cps, factor, money, seconds, seconds_range
from apps.ui.sentences import sentence
from engine.latency_state import UNKNOWN
from engine.provisioning.answers.scenarios import ComparedScenario
from engine.words import counted, listed

__all__ = ["BenchAnswer", "BenchPoolRow", "BenchQueryRow"]


@dataclass(frozen=True)
class BenchQueryRow:
    """A query with the chosen number of nodes. `estimate_s` and what follows come from a job, once it is done."""

    name: str
    url: str
    statistic: str
    bound_s: float | None
    mace_s: float | None
    state: str
    label: str
    estimate_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    probability: float | None = None
    is_late_by_chance: bool = False
    is_endless: bool = False

    @property
    def objective(self) -> SafeString:
        return objective_text(self.statistic, self.bound_s)

    @property
    def interval(self) -> Any:
        if self.high_s is None:
            return format_html('<span class="muted">{}</span>', "none yet")
        return seconds_range(self.low_s, self.high_s, apart_from=self.bound_s).html


@dataclass(frozen=True)
class BenchPoolRow:
    """Nodes of a pool, now and with the chosen number."""

    name: str
    now: int
    then: int
    size: str
    price: float | None


class BenchAnswer:
    """A sweep with one number of nodes chosen.

    `refinement`: what a job has found for a number of nodes; None if nothing yet.
    """

    def __init__(
        self,
        cluster: Cluster,
        question: BenchQuestion,
        sweep: BenchSweep,
        refinement: Callable[[int], ComparedScenario | None] = lambda nodes: None,
    ) -> None:
        self.cluster, self.question, self.sweep = cluster, question, sweep
        self.inputs, self._refinement = question.inputs, refinement

    @cached_property
    def refined(self) -> ComparedScenario | None:
        """The chosen number of nodes as a job estimated it."""
        refinement = self._refinement(self.chosen.nodes)
        return None if refinement is None or refinement.infeasible else refinement

    @property
    def infeasible(self) -> str:
        """Reason why a job could not place everything on the chosen number of nodes."""
        refinement = self._refinement(self.chosen.nodes)
        return refinement.infeasible.message if refinement is not None and refinement.infeasible else ""

    @cached_property
    def chosen(self) -> BenchSize:
        """The number asked for; else the present one where it will do as things are, else the smallest that holds."""
        present = self.sweep.at(self.sweep.now) or self.sweep.sizes[-1]
        asked = self.sweep.at(self.inputs.nodes)
        if asked is not None:
            return asked
        return present if self.inputs.is_now and present.holds else self.sweep.smallest or present

    def address(self, nodes: int | None) -> str:
        """The page with that many nodes chosen."""
        page = reverse("pages:provisioning", args=[self.cluster.slug])
        return page + inputs_query(self.inputs, nodes=nodes)

    # -- the sentence

    @property
    def sentence(self) -> SafeString:
        """The finding with its numbers."""
        return sentence("pages/provisioning/sentences/bench.html", answer=self)

    @property
    def unknown(self) -> str:
        """Queries of whose latency nothing is known, whatever the number of nodes."""
        return listed(self.chosen.unknown, 3)

    @property
    def unknown_reason(self) -> str:
        """Why nothing is known of the first of them."""
        return self.question.unknown[self.chosen.unknown[0]]

    @property
    def waiting(self) -> str:
        """Queries for which events wait now."""
        return listed(self.question.waiting, 3)

    @property
    def load(self) -> str:
        """Load of the question in words; empty for the present one."""
        if self.inputs.sources:
            return "the loads asked for"
        return "" if self.inputs.factor == 1.0 else f"{factor(self.inputs.factor)} the load"

    @property
    def is_fragile(self) -> bool:
        return self.chosen.state == FRAGILE

    @property
    def largest(self) -> BenchSize:
        return self.sweep.sizes[-1]

    @property
    def up_s(self) -> Quantity:
        return size_words(self.chosen.worst_s, self.chosen.endless, self.sweep.bound_s, self.cluster.slice_s)

    @property
    def lost_s(self) -> Quantity | None:
        if self.chosen.lost_s is None and not self.chosen.lost_endless:
            return None
        return size_words(self.chosen.lost_s, self.chosen.lost_endless, self.sweep.bound_s, self.cluster.slice_s)

    @property
    def price(self) -> str:
        return "" if self.chosen.cost_per_hour is None else money(self.chosen.cost_per_hour, self.cluster.currency)

    @property
    def late_by_chance(self) -> str:
        """Queries that keep their objectives by Mace, and may miss them as estimated."""
        return self._otherwise(FRAGILE)

    @property
    def late_as_estimated(self) -> str:
        """Queries that keep their objectives by Mace, and miss them as estimated."""
        return self._otherwise(BREAKS)

    @property
    def unknown_as_estimated(self) -> str:
        """Queries that keep their objectives by Mace, and of whose latency nothing is known."""
        return self._otherwise(UNKNOWN)

    def _otherwise(self, state: str) -> str:
        return listed([row.name for row in self.rows if row.is_late_by_chance and row.state == state], 3)

    @property
    def trouble(self) -> str:
        """Reason against the chosen number of nodes."""
        return self._trouble(self.chosen)

    def _trouble(self, size: BenchSize) -> str:
        """Reason against a number of nodes: `checkout would take 11.9 s, against 10 s.`"""
        if size.stuck:
            return f"{size.stuck}."
        if size.state == BREAKS and set(size.endless) & set(size.late):
            return _endless_trouble([name for name in size.endless if name in size.late])
        if size.state == BREAKS:
            name = max(size.late, key=lambda query: (size.queries[query] or 0.0) / self.sweep.objectives[query].limit_s)
            bound = self.sweep.objectives[name].bound_s
            value = seconds(size.queries[name], apart_from=bound)
            if len(size.late) == 1:
                return f"{name} would take {value}, against {seconds(bound)}."
            return f"{name} would take {value}, against {seconds(bound)}, and {len(size.late) - 1} more would be late."
        endless = [name for name in size.lost_endless if name in size.lost_late]
        if endless:
            names = listed(endless, 2) if len(endless) <= 2 else f"{len(endless)} queries"
            return f"with {size.lost_node} lost {names} would never catch up."
        return self._loss_trouble(size.lost_node, size.lost_late, size.lost_share)

    @staticmethod
    def _loss_trouble(lost: str, late: Sequence[str], share: float | None) -> str:
        most = factor(share)
        if len(late) == 1:
            if share:
                return f"losing {lost} would take {late[0]} to {most} its objective."
            return f"losing {lost} would take {late[0]} over its objective."
        names = listed(late, 2) if len(late) == 2 else f"{len(late)} queries"
        if share:
            return f"losing {lost} would take {names} over their objectives, the worst to {most} its own."
        return f"losing {lost} would take {names} over their objectives."

    # -- beside the picture

    @property
    def callout(self) -> str:
        """The counterexample one step smaller, or what would do as well."""
        size, smallest = self.chosen, self.sweep.smallest
        if not self.sweep.objectives or not size.holds or smallest is None:
            return ""
        does_well = smallest.nodes < size.nodes
        other = smallest if does_well else self.sweep.before(size)
        if other is None:
            return ""
        facts = {"nodes": other.nodes, "saved": self._saved(other), "does_well": does_well}
        if other.state == FRAGILE and not other.stuck and self.sweep.bound_s and other.lost_s is not None:
            facts["lost"] = seconds(other.lost_s, apart_from=self.sweep.bound_s)
        elif not does_well:
            facts["trouble"] = self._trouble(other)
        return sentence("pages/provisioning/sentences/callout.html", **facts)

    def _saved(self, other: BenchSize) -> str:
        theirs, ours = other.cost_per_hour, self.chosen.cost_per_hour
        if theirs is None or ours is None or theirs == ours:
            return ""
        return money(ours - theirs, self.cluster.currency)

    @cached_property
    def chart(self) -> BenchChart:
        return BenchChart(
            self.sweep, self.chosen, self.cluster.currency, self.address, self._interval, self.cluster.slice_s
        )

    @property
    def _interval(self) -> tuple[float, float] | None:
        """The 90 % interval of the query with the largest upper end."""
        estimated = [row for row in self.rows if row.low_s is not None and row.high_s is not None]
        widest = max(estimated, key=lambda row: row.high_s or 0.0, default=None)
        return None if widest is None else (widest.low_s or 0.0, widest.high_s or 0.0)

    @property
    def key(self) -> list[tuple[str, str]]:
        """Entries of the chart's legend."""
        entries = [("estimate", "All nodes up"), ("alt", "One node lost")]
        entries += [("band", "90% interval, all up")] if self.chart.interval else []
        return [*entries, ("objective-line", "Objective")] if self.sweep.objectives else entries

    # -- tables

    @cached_property
    def rows(self) -> list[BenchQueryRow]:
        """Queries of the chosen size: what misses its objective first."""
        rows = [self._row(name, value) for name, value in self.chosen.queries.items()]
        order = {BREAKS: 0, FRAGILE: 1, UNKNOWN: 1}
        return sorted(rows, key=lambda row: (order.get(row.state, 2), not row.is_endless, -_share(row), row.name))

    def _row(self, name: str, mace_s: float | None) -> BenchQueryRow:
        asked = self.sweep.objectives.get(name)
        state, label = "holds", ""
        is_endless = name in self.chosen.endless
        if asked is None:
            state, label = ("none", "Never catches up") if is_endless else ("none", "")
        elif is_endless:
            state, label = BREAKS, "Never catches up"
        elif name in self.chosen.late:
            state = BREAKS
        elif self.inputs.lose_one and name in self.chosen.lost_late:
            state, label = FRAGILE, "Late with one lost"
        elif name in self.chosen.unknown:
            state, label = UNPROVEN, "Not known"
        elif self.sweep.is_unproven:
            state, label = UNPROVEN, "By stimulus time"
        refined = None if self.refined is None else self.refined.figures_of(name)
        is_other = refined is not None and refined.state in (BREAKS, FRAGILE, UNKNOWN)
        by_chance = asked is not None and state != BREAKS and is_other
        if refined is not None and by_chance:
            by_chance = not (refined.state == FRAGILE and refined.scheduling)
            state, label = (refined.state, "") if by_chance else (state, label)
        return BenchQueryRow(
            name,
            reverse("pages:query", args=[self.cluster.slug, name]),
            asked.statistic if asked else "worst",
            asked.bound_s if asked else None,
            mace_s,
            state,
            label,
            refined and refined.estimate_s,
            refined and refined.low_s,
            refined and refined.high_s,
            refined and refined.chance,
            by_chance,
            is_endless,
        )

    @cached_property
    def pools(self) -> list[BenchPoolRow]:
        """Nodes by pool, now and with the chosen number."""
        nodes = self.question.deployment.nodes
        more = self.chosen.nodes - len(nodes)
        model = self.question.model
        if model is not None:
            grown = model.pool
        else:
            grown = next((node.pool for node in nodes if node.id == self.question.like), nodes[-1].pool)
        rows = []
        for pool in self.cluster.pools.all():
            now = sum(node.pool == pool.name for node in nodes)
            then = max(0, now + more) if pool.name == grown else now
            if now or then:
                price = None if pool.price_per_hour is None else float(pool.price_per_hour)
                rows.append(BenchPoolRow(pool.name, now, then, _size_words(pool), price))
        return rows

    @property
    def unpriced(self) -> Sequence[str]:
        """Pools whose price is missing."""
        return [row.name for row in self.pools if row.price is None]

    @property
    def is_offered(self) -> bool:
        """Whether the chosen number of nodes is offered: not where it breaks an objective with all up."""
        return self.chosen.state != BREAKS and not self.infeasible and not self.late_as_estimated

    @property
    def preview_url(self) -> str:
        """Address of the page that adds nodes, or names those that could go."""
        page = reverse("pages:provisioning-nodes", args=[self.cluster.slug])
        return page + inputs_query(self.inputs, nodes=self.chosen.nodes)


def _endless_trouble(names: Sequence[str]) -> str:
    """`checkout would never catch up.`"""
    if len(names) == 1:
        return f"{names[0]} would never catch up."
    if len(names) == 2:
        return f"{listed(names, 2)} would never catch up."
    return f"{names[0]} and {len(names) - 1} more would never catch up."


def _share(row: BenchQueryRow) -> float:
    return (row.mace_s or 0.0) / row.bound_s if row.bound_s else 0.0


def _size_words(pool: NodePool) -> str:
    """4 cores of 3 Gcycles/s."""
    return f"{counted(pool.cores, 'core')} of {cps(pool.capacity_cps)}"
