"""Answers of what-ifs: the finding in a sentence, and rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from django.utils.safestring import SafeString

from apps.pages.overview.tables import objective_text
from apps.pages.provisioning.charts import FrontChart
from apps.pages.provisioning.tables import outcome_mark, outcome_state
from apps.planning.choices import Find
from apps.planning.models import WhatIf
from apps.planning.sweeps import BenchSweep
from apps.planning.what_if_options import read_options
from apps.planning.what_ifs import SweepAnswer
from apps.ui.numbers import MISSING, Quantity, factor, money, percent, seconds, seconds_range
from apps.ui.sentences import sentence
from engine.provisioning.answers.objectives import RealisedObjective
from engine.provisioning.answers.pools import MixAnswer, ParetoFront, ParetoPoint, PoolAnswer, PoolSize, Proof
from engine.provisioning.answers.scenarios import (
    ComparedScenario,
    Growth,
    LossAnswer,
    ScenarioAnswer,
    ScenarioComparison,
    ScenarioQuery,
    SurvivalAnswer,
)
from engine.words import listed, mix_text

__all__ = [
    "RESULTS",
    "CheapestMixAnswer",
    "FrontAnswer",
    "PoolSizeAnswer",
    "WhatIfAnswer",
]


class ObjectiveRow(NamedTuple):
    """An objective with the median and interval of what is realised."""

    query: str
    objective: SafeString
    estimate: SafeString
    interval: SafeString
    lost: str | None
    state: str


class QueryCell(NamedTuple):
    """A query in one scenario."""

    state: str = ""
    value: SafeString | str = MISSING
    interval: SafeString | str = ""
    chance: Quantity | str = ""
    objective: SafeString | str = ""


class SizeRow(NamedTuple):
    """A number of nodes, or a mix of a front, whose mark is of realised figures where it was `walked`."""

    nodes: int
    cost: str
    worst: SafeString | str
    lost: SafeString | str
    late: str
    mark: SafeString
    mix: str = ""
    walked: bool = False


class LossRow(NamedTuple):
    """A node lost, or none, and the queries then."""

    node: str
    cells: list[QueryCell]
    breaks: int | str = ""
    infeasible: str = ""
    lost: str = ""


class GrowthRow(NamedTuple):
    """By how much a load may grow."""

    query: str | None
    factor: SafeString
    more: str
    then: str
    nearest: str


class WhatIfAnswer:
    """An answer and the question it belongs to."""

    words = ""  # name of the template of its finding

    def __init__(self, row: WhatIf, answer: Any) -> None:
        self.row, self.answer, self.currency = row, answer, row.cluster.currency

    @cached_property
    def options(self) -> Any:
        """Options of the question, with their defaults."""
        return read_options(self.row.find, self.row.options)

    def money(self, value: Any) -> str:
        return money(value, self.currency)

    @property
    def sentence(self) -> SafeString:
        return sentence(f"pages/provisioning/sentences/{self.words}.html", result=self)

    @property
    def objectives(self) -> list[ObjectiveRow]:
        """Realised figures of every objective, the most threatened first."""
        return [_objective_row(entry) for entry in self.answer.objectives]

    @property
    def splits(self) -> str:
        """Operators that are to be split, in how many parts."""
        return listed([f"{name} in {parts} parts" for name, parts in self.answer.splits.items()], 4)


def _objective_row(entry: RealisedObjective) -> ObjectiveRow:
    return ObjectiveRow(
        entry.query,
        objective_text(entry.statistic, entry.bound_s),
        seconds(entry.estimate_s, apart_from=entry.bound_s).html,
        seconds_range(entry.low_s, entry.high_s, apart_from=entry.bound_s).html,
        entry.lost,
        entry.state,
    )


def _query_cell(query: ScenarioQuery | None) -> QueryCell:
    if query is None:
        return QueryCell()
    return QueryCell(
        query.state,
        seconds(query.estimate_s, apart_from=query.bound_s).html,
        "" if query.high_s is None else seconds_range(query.low_s, query.high_s).html,
        "" if query.chance is None else percent(query.chance),
        objective_text(query.statistic, query.bound_s),
    )


def _size_row(size: PoolSize | ParetoPoint, currency: str) -> SizeRow:
    lost = size.lost
    late = dict.fromkeys((*size.late, *(lost.late if lost else ())))
    state = "fragile" if lost is not None and (lost.late or lost.stuck) else "holds"
    if size.late or size.stuck:
        state = "breached"
    return SizeRow(
        size.nodes,
        money(size.cost_per_hour, currency),
        "never catches up" if size.endless else seconds(size.worst_s).html,
        "never catches up" if lost and lost.endless else seconds(lost.worst_s if lost else None).html,
        listed(list(late), 5),
        outcome_mark(state),
    )


class PoolSizeAnswer(WhatIfAnswer):
    """The smallest pool with its proof."""

    words = "smallest_pool"

    answer: PoolAnswer

    @property
    def price(self) -> str:
        cost = self.answer.cost_per_hour
        return "" if cost is None else self.money(cost)

    @property
    def lose_one(self) -> bool:
        return bool(self.options.lose_one)

    @property
    def fewer(self) -> int:
        """Nodes that can go."""
        return -(self.answer.added or 0)

    @property
    def sizes(self) -> list[SizeRow]:
        return [_size_row(size, self.currency) for size in self.answer.sizes]


class CheapestMixAnswer(WhatIfAnswer):
    """The cheapest mix of node types."""

    words = "cheapest_mix"

    answer: MixAnswer

    @property
    def mix(self) -> str:
        """New nodes by type; empty without one."""
        counts = self.answer.counts or {}
        return mix_text(counts) if any(counts.values()) else ""

    @property
    def price(self) -> str:
        return self.money(self.answer.cost_per_hour)

    @property
    def rows(self) -> list[tuple[Mapping[str, object], str, int | None]]:
        """(type, its price, how many of it)."""
        counts = self.answer.counts or {}
        types = self.row.options["types"]
        return [(entry, self.money(entry["price_per_hour"]), counts.get(entry["name"])) for entry in types]

    @property
    def proofs(self) -> list[tuple[Proof, str, str]]:
        """(proof, its mix, what that costs)."""
        return [(proof, mix_text(proof.pool or {}), self.money(proof.cost_per_hour)) for proof in self.answer.proofs]


class FrontAnswer(WhatIfAnswer):
    """Cost against latency."""

    words = "pareto"

    answer: ParetoFront

    @property
    def points(self) -> list[SizeRow]:
        """Points with the mark of realised figures where they were walked, else with that of mean costs."""
        rows = []
        for point in self.answer.points:
            row = _size_row(point, self.currency)._replace(mix=mix_text(point.counts))
            is_walked = bool(point.objectives)
            rows.append(row._replace(mark=outcome_mark(point.state), walked=True) if is_walked else row)
        return rows

    @property
    def chart(self) -> FrontChart:
        return FrontChart(self.answer.points, self.currency, self.options.lose_one)

    @property
    def ends(self) -> list[tuple[Quantity, str]]:
        """(latency, price) of the cheapest mix and the fastest one; none where none can be placed."""
        ends = self.answer.points[:1] + self.answer.points[-1:]
        return [(seconds(FrontChart.latency(point)), self.money(point.cost_per_hour)) for point in ends]


class ScenariosAnswer(WhatIfAnswer):
    """Scenarios side by side."""

    words = "compare"
    answer: ScenarioComparison

    @property
    def scenarios(self) -> list[tuple[ComparedScenario, str, SafeString]]:
        """(scenario, what it costs, its mark)."""
        return [
            (scenario, self.money(scenario.cost_per_hour), outcome_mark(outcome_state(scenario)))
            for scenario in self.answer.scenarios
        ]

    @property
    def queries(self) -> list[tuple[str, list[QueryCell]]]:
        """Every query, with a cell for every scenario."""
        names = {name for scenario in self.answer.scenarios for name in scenario.queries}
        return [
            (name, [_query_cell(scenario.figures_of(name)) for scenario in self.answer.scenarios])
            for name in sorted(names)
        ]

    @property
    def lacking(self) -> list[str]:
        """Lack of the figures where servers run other policies than stimulus time, each of it once."""
        reports = [(name, report) for scenario in self.answer.scenarios for name, report in scenario.queries.items()]
        said = [(name, (report.get("scheduling") or {}).get("lacking")) for name, report in reports]
        return list(dict.fromkeys(f"Of {name} {words}." for name, words in said if words))

    @property
    def holding(self) -> list[str]:
        """Scenarios that keep every objective."""
        return [scenario.name for scenario in self._holding]

    @property
    def cheapest(self) -> dict[str, str] | None:
        """The cheapest of those whose price is known."""
        priced = [
            (scenario.cost_per_hour, scenario) for scenario in self._holding if scenario.cost_per_hour is not None
        ]
        if not priced:
            return None
        price, best = min(priced, key=lambda pair: pair[0])
        return {"name": best.name, "price": self.money(price)}

    @property
    def _holding(self) -> list[ComparedScenario]:
        return [scenario for scenario in self.answer.scenarios if outcome_state(scenario) == "holds"]


class LossesAnswer(WhatIfAnswer):
    """Answer to the loss of each node: the queries that it breaks or puts at risk."""

    words = "survival"
    answer: SurvivalAnswer

    @property
    def harmful(self) -> list[LossAnswer]:
        """Losses that break an objective or leave something without a place."""
        return [loss for loss in self.answer.losses if loss.breaks or loss.infeasible]

    @property
    def risky(self) -> list[str]:
        """Nodes whose loss puts an objective at risk."""
        return [loss.node for loss in self.answer.losses if loss.risks]

    @property
    def threatened(self) -> list[str]:
        """Queries that some loss puts at risk."""
        return list(dict.fromkeys(name for loss in self.answer.losses for name in loss.risks))

    @property
    def most_harmful(self) -> LossAnswer | None:
        return max(self.harmful, key=lambda loss: len(loss.breaks), default=None)

    @property
    def late(self) -> list[str]:
        """Queries that miss their objective before any node is lost."""
        return list(self.answer.now.broken)

    @property
    def names(self) -> list[str]:
        return list(self.answer.now.queries)

    @property
    def rows(self) -> list[LossRow]:
        """The present state, then every node lost: those that do harm first."""
        losses = sorted(self.answer.losses, key=lambda lost: (not lost.infeasible, -len(lost.breaks), -len(lost.risks)))
        return [LossRow("", self._cells(self.answer.now)), *(self._row(loss) for loss in losses)]

    def _row(self, loss: LossAnswer) -> LossRow:
        why = loss.infeasible.message if loss.infeasible else ""
        return LossRow(loss.node, self._cells(loss), len(loss.breaks), why, listed(loss.lost, 6))

    @property
    def unit(self) -> str:
        """Unit that is lost in turn, as a title."""
        return f"Each {'failure domain' if any(loss.lost for loss in self.answer.losses) else 'node'} lost in turn"

    def _cells(self, outcome: ScenarioAnswer) -> list[QueryCell]:
        return [_query_cell(outcome.figures_of(name)) for name in self.names]


class GrowthAnswer(WhatIfAnswer):
    """By how much each load may grow."""

    words = "growth"
    answer: Growth

    @property
    def rows(self) -> list[GrowthRow]:
        """The least room first."""
        rows = sorted(self.answer.queries.values(), key=lambda row: (row.factor is None, row.factor or 0.0))
        return [
            GrowthRow(
                row.query,
                factor(row.factor).html,
                more="and more" if row.unlimited else "",
                then="; ".join(filter(None, (row.miss.message if row.miss else "", row.note))),
                nearest=self._nearest(row.nearest),
            )
            for row in rows
        ]

    @staticmethod
    def _nearest(nearest: RealisedObjective | None) -> str:
        """probes at 3.1 s (2.4 to 4.6 s): the objective that is nearest to its bound with that factor."""
        if nearest is None:
            return ""
        interval = seconds_range(nearest.low_s, nearest.high_s, apart_from=nearest.bound_s)
        return f"{nearest.query} at {seconds(nearest.estimate_s)} ({interval})"


class SizesAnswer(WhatIfAnswer):
    """Sizes that a job has looked at."""

    answer: SweepAnswer

    @property
    def sentence(self) -> SafeString:
        sweep = BenchSweep(self.answer.now, self.answer.sizes, {}, self.options.lose_one)
        return sentence(
            "pages/provisioning/sentences/sweep.html",
            sweep=sweep,
            largest=sweep.sizes[-1],
            lacking=self.answer.lacking,
        )

    @property
    def sizes(self) -> list[SizeRow]:
        return [_size_row(size, self.currency) for size in self.answer.sizes]


RESULTS: dict[Find, Callable[[WhatIf, Any], Any]] = {
    Find.COMPARE: ScenariosAnswer,
    Find.SWEEP: SizesAnswer,
    Find.SMALLEST_POOL: PoolSizeAnswer,
    Find.CHEAPEST_MIX: CheapestMixAnswer,
    Find.PARETO: FrontAnswer,
    Find.SURVIVAL: LossesAnswer,
    Find.GROWTH: GrowthAnswer,
}
