"""Answers of what-ifs: the finding in a sentence, and rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from django.utils.safestring import SafeString

from apps.pages.overview.tables import objective_text
from apps.pages.provisioning.charts import FrontChart
from apps.pages.provisioning.tables import outcome_mark, outcome_state
from apps.planning.choices import Find
from apps.planning.models import WhatIf
from apps.planning.sweeps import BenchSweep
from apps.planning.what_if_options import read_options
from apps.planning.what_ifs import SweepAnswer
from apps.ui.numbers import MISSING, factor, money, percent, seconds, seconds_range
from apps.ui.sentences import sentence
from engine.provisioning.answers.objectives import RealisedObjective
from engine.provisioning.answers.pools import MixAnswer, ParetoFront, ParetoPoint, PoolAnswer, PoolSize
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
    "query_cell",
    "size_row",
]


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
    def objectives(self) -> list[dict[str, Any]]:
        """Realised figures of every objective, the most threatened first."""
        return [realised_row(entry) for entry in self.answer.objectives]

    @property
    def splits(self) -> str:
        """Operators that are to be split, in how many parts."""
        return listed([f"{name} in {parts} parts" for name, parts in self.answer.splits.items()], 4)


def realised_row(entry: RealisedObjective) -> dict[str, Any]:
    """An objective with the median and interval of what is realised."""
    return {
        "query": entry.query,
        "objective": objective_text(entry.statistic, entry.bound_s),
        "estimate": seconds(entry.estimate_s, apart_from=entry.bound_s).html,
        "interval": seconds_range(entry.low_s, entry.high_s, apart_from=entry.bound_s).html,
        "lost": entry.lost,
        "state": entry.state,
    }


def query_cell(query: ScenarioQuery | None) -> dict[str, Any]:
    """A query in one scenario."""
    if query is None:
        return {"state": "", "value": MISSING}
    return {
        "state": query.state,
        "value": seconds(query.estimate_s, apart_from=query.bound_s).html,
        "interval": "" if query.high_s is None else seconds_range(query.low_s, query.high_s).html,
        "chance": "" if query.chance is None else percent(query.chance),
        "objective": objective_text(query.statistic, query.bound_s),
    }


def size_row(size: PoolSize | ParetoPoint, currency: str) -> dict[str, Any]:
    lost = size.lost
    late = dict.fromkeys((*size.late, *(lost.late if lost else ())))
    state = "fragile" if lost is not None and (lost.late or lost.stuck) else "holds"
    if size.late or size.stuck:
        state = "breached"
    return {
        "nodes": size.nodes,
        "cost": money(size.cost_per_hour, currency),
        "worst": "never catches up" if size.endless else seconds(size.worst_s).html,
        "lost": "never catches up" if lost and lost.endless else seconds(lost.worst_s if lost else None).html,
        "late": listed(list(late), 5),
        "mark": outcome_mark(state),
    }


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
    def sizes(self) -> list[dict[str, Any]]:
        return [size_row(size, self.currency) for size in self.answer.sizes]


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
    def rows(self) -> list[dict[str, Any]]:
        """Types with how many of each."""
        counts = self.answer.counts or {}
        return [
            {**option, "price": self.money(option["price_per_hour"]), "count": counts.get(option["name"])}
            for option in self.row.options["types"]
        ]

    @property
    def proofs(self) -> list[dict[str, Any]]:
        return [
            {
                "pool": mix_text(proof.pool or {}),
                "cost": self.money(proof.cost_per_hour),
                "message": proof.message,
                "proven": proof.proven,
            }
            for proof in self.answer.proofs
        ]


class FrontAnswer(WhatIfAnswer):
    """Cost against latency."""

    words = "pareto"

    answer: ParetoFront

    @property
    def points(self) -> list[dict[str, Any]]:
        """Points with the mark of realised figures where they were walked, else with that of mean costs."""
        rows = []
        for point in self.answer.points:
            row = size_row(point, self.currency)
            walked = bool(point.objectives)
            mark = outcome_mark(point.state) if walked else row["mark"]
            rows.append({**row, "mix": mix_text(point.counts), "price": row["cost"], "mark": mark, "walked": walked})
        return rows

    @property
    def chart(self) -> FrontChart:
        return FrontChart(self.answer.points, self.currency, self.options.lose_one)

    @property
    def ends(self) -> list[dict[str, Any]]:
        """The cheapest mix and the fastest one; none where none can be placed."""
        points = self.answer.points
        return [
            {"latency": seconds(FrontChart.latency(point)), "price": self.money(point.cost_per_hour)}
            for point in (points[:1] + points[-1:])
        ]


class ScenariosAnswer(WhatIfAnswer):
    """Scenarios side by side."""

    words = "compare"
    answer: ScenarioComparison

    @property
    def scenarios(self) -> list[dict[str, Any]]:
        return [
            {
                "name": scenario.name,
                "nodes": scenario.node_count,
                "cost": self.money(scenario.cost_per_hour),
                "worst": seconds(scenario.worst_s).html,
                "mace": seconds(scenario.mace_s).html,
                "lost": seconds(scenario.lost and scenario.lost.worst_s).html,
                "lost_node": scenario.lost and scenario.lost.node,
                "mark": outcome_mark(outcome_state(scenario)),
                "moves": len(scenario.moves),
                "words": scenario.words,
                "infeasible": scenario.infeasible.message if scenario.infeasible else "",
            }
            for scenario in self.answer.scenarios
        ]

    @property
    def queries(self) -> list[dict[str, Any]]:
        """A row for every query, with a cell for every scenario."""
        names = {name for scenario in self.answer.scenarios for name in scenario.queries}
        return [
            {"name": name, "cells": [query_cell(scenario.figures_of(name)) for scenario in self.answer.scenarios]}
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
    def rows(self) -> list[dict[str, Any]]:
        """The present state, then every node lost: those that do harm first."""
        losses = sorted(self.answer.losses, key=lambda lost: (not lost.infeasible, -len(lost.breaks), -len(lost.risks)))
        first = {"node": "", "cells": self._cells(self.answer.now), "breaks": "", "infeasible": ""}
        return [first, *(self._row(loss) for loss in losses)]

    def _row(self, loss: LossAnswer) -> dict[str, Any]:
        why = loss.infeasible.message if loss.infeasible else ""
        return {"node": loss.node, "cells": self._cells(loss), "breaks": len(loss.breaks), "infeasible": why}

    def _cells(self, outcome: ScenarioAnswer) -> list[dict[str, Any]]:
        return [query_cell(outcome.figures_of(name)) for name in self.names]


class GrowthAnswer(WhatIfAnswer):
    """By how much each load may grow."""

    words = "growth"
    answer: Growth

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The least room first."""
        rows = sorted(self.answer.queries.values(), key=lambda row: (row.factor is None, row.factor or 0.0))
        return [
            {
                "query": row.query,
                "factor": factor(row.factor).html,
                "more": "and more" if row.unlimited else "",
                "then": row.miss.message if row.miss else row.note,
                "nearest": self._nearest(row.nearest),
            }
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
    def sizes(self) -> list[dict[str, Any]]:
        return [size_row(size, self.currency) for size in self.answer.sizes]


RESULTS: dict[Find, Callable[[WhatIf, Any], Any]] = {
    Find.COMPARE: ScenariosAnswer,
    Find.SWEEP: SizesAnswer,
    Find.SMALLEST_POOL: PoolSizeAnswer,
    Find.CHEAPEST_MIX: CheapestMixAnswer,
    Find.PARETO: FrontAnswer,
    Find.SURVIVAL: LossesAnswer,
    Find.GROWTH: GrowthAnswer,
}
