"""Answers of what-ifs: the finding in a sentence, and rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.utils.safestring import SafeString

from apps.pages.overview.tables import objective_text
from apps.pages.provisioning.charts import FrontChart
from apps.pages.provisioning.tables import outcome_mark, outcome_state
from apps.planning.choices import Find
from apps.planning.models import WhatIf
from apps.planning.what_ifs.sweeps import BenchSweep
from apps.ui.numbers import MISSING, factor, money, percent, seconds, seconds_range
from apps.ui.sentences import sentence
from engine.words import listed, mix_text

__all__ = [
    "RESULTS",
    "CheapestMixAnswer",
    "FrontAnswer",
    "PoolSizeAnswer",
    "WhatIfAnswer",
    "first_known",
    "query_cell",
    "size_row",
]


class WhatIfAnswer:
    """An answer and the question it belongs to."""

    words = ""  # name of the template of its finding

    def __init__(self, row: WhatIf, answer: Mapping[str, Any]) -> None:
        self.row, self.answer, self.currency = row, answer, row.cluster.currency

    def money(self, value: Any) -> str:
        return money(value, self.currency)

    @property
    def sentence(self) -> SafeString:
        return sentence(f"pages/provisioning/sentences/{self.words}.html", result=self)

    @property
    def objectives(self) -> list[dict[str, Any]]:
        """Realised figures of every objective, the most threatened first; none of answers about nothing else."""
        return [realised_row(entry) for entry in self.answer.get("objectives", ())]

    @property
    def splits(self) -> str:
        """Operators that are to be split, in how many parts."""
        return listed([f"{name} in {parts} parts" for name, parts in self.answer.get("splits", {}).items()], 4)


def first_known(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def realised_row(entry: Mapping[str, Any]) -> dict[str, Any]:
    """An objective with the median and interval of what is realised."""
    bound = entry["bound_s"]
    return {
        "query": entry["query"],
        "objective": objective_text(entry["statistic"], bound),
        "estimate": seconds(entry["estimate_s"], apart_from=bound).html,
        "interval": seconds_range(entry["low_s"], entry["high_s"], apart_from=bound).html,
        "lost": entry["lost"],
        "state": entry["state"],
    }


def query_cell(query: Mapping[str, Any] | None) -> dict[str, Any]:
    """A query in one scenario."""
    if query is None:
        return {"state": "", "value": MISSING}
    bound = query["bound_s"]
    chance = (query.get("probability") or {}).get("share")
    return {
        "state": query["state"],
        "value": seconds(query["estimate_s"], apart_from=bound).html,
        "interval": "" if query.get("high_s") is None else seconds_range(query["low_s"], query["high_s"]).html,
        "chance": "" if chance is None else percent(chance),
        "objective": objective_text(query["statistic"], bound),
    }


def size_row(size: Mapping[str, Any], currency: str) -> dict[str, Any]:
    lost = size["lost"] or {}
    late = [*size["late"], *(name for name in lost.get("late", ()) if name not in size["late"])]
    state = "fragile" if lost.get("late") or lost.get("stuck") else "holds"
    if size["late"] or size["stuck"]:
        state = "breached"
    return {
        "nodes": size["nodes"],
        "cost": money(size["cost_per_hour"], currency),
        "worst": "never catches up" if size.get("endless") else seconds(size["worst_s"]).html,
        "lost": "never catches up" if lost.get("endless") else seconds(lost.get("worst_s")).html,
        "late": listed(late, 5),
        "mark": outcome_mark(state),
    }


class PoolSizeAnswer(WhatIfAnswer):
    """The smallest pool with its proof."""

    words = "smallest_pool"

    @property
    def price(self) -> str:
        cost = self.answer["cost_per_hour"]
        return "" if cost is None else self.money(cost)

    @property
    def lose_one(self) -> bool:
        return bool(self.row.options.get("lose_one", True))

    @property
    def fewer(self) -> int:
        """Nodes that can go."""
        return -int(self.answer["added"])

    @property
    def is_complete(self) -> bool:
        return bool(self.answer.get("complete", True))

    @property
    def proof(self) -> dict[str, Any] | None:
        """Proof that one node less is not enough."""
        return self.answer["proof"]

    @property
    def counterexample(self) -> dict[str, Any] | None:
        return (self.proof or {}).get("counterexample")

    @property
    def confirmation(self) -> str:
        """Confirmation of the answer: at which width, and for which losses."""
        return str(self.answer["confirmation"])

    @property
    def why_not(self) -> str:
        """Reason against an answer that is not confirmed."""
        return str((self.answer.get("miss") or {}).get("message", ""))

    @property
    def sizes(self) -> list[dict[str, Any]]:
        return [size_row(size, self.currency) for size in self.answer["sizes"]]


class CheapestMixAnswer(WhatIfAnswer):
    """The cheapest mix of node types."""

    words = "cheapest_mix"

    @property
    def mix(self) -> str:
        """New nodes by type; empty without one."""
        counts = self.answer["counts"] or {}
        return mix_text(counts) if any(counts.values()) else ""

    @property
    def price(self) -> str:
        return self.money(self.answer["cost_per_hour"])

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Types with how many of each."""
        counts = self.answer["counts"] or {}
        return [
            {**option, "price": self.money(option["price_per_hour"]), "count": counts.get(option["name"])}
            for option in self.row.options["types"]
        ]

    @property
    def proofs(self) -> list[dict[str, Any]]:
        return [
            {
                "pool": mix_text(proof["pool"] or {}),
                "cost": self.money(proof["cost_per_hour"]),
                "message": proof["message"],
                "proven": proof["proven"],
            }
            for proof in self.answer["proofs"]
        ]


class FrontAnswer(WhatIfAnswer):
    """Cost against latency."""

    words = "pareto"

    @property
    def points(self) -> list[dict[str, Any]]:
        return [
            {
                "mix": mix_text(point["counts"]),
                "cost": self.money(point["cost_per_hour"]),
                **size_row({**point, "cost_per_hour": None}, self.currency),
                **self._mark(point),
                "price": self.money(point["cost_per_hour"]),
            }
            for point in self.answer["points"]
        ]

    @staticmethod
    def _mark(point: Mapping[str, Any]) -> dict[str, Any]:
        """The mark of a point that was walked; the others have that of mean costs."""
        state = point.get("state", "open")
        return {"mark": outcome_mark(state), "walked": True} if point.get("objectives") else {"walked": False}

    @property
    def chart(self) -> FrontChart:
        return FrontChart(self.answer["points"], self.currency, self.row.options.get("lose_one", True))

    @property
    def ends(self) -> list[dict[str, Any]]:
        """The cheapest mix and the fastest one; none where none can be placed."""
        points = self.answer["points"]
        return [
            {"latency": seconds(FrontChart.latency(point)), "price": self.money(point["cost_per_hour"])}
            for point in (points[:1] + points[-1:])
        ]


class ScenariosAnswer(WhatIfAnswer):
    """Scenarios side by side."""

    words = "compare"

    @property
    def scenarios(self) -> list[dict[str, Any]]:
        return [
            {
                "name": scenario["name"],
                "nodes": scenario["node_count"],
                "cost": self.money(scenario["cost_per_hour"]),
                "worst": seconds(
                    first_known(scenario.get("worst_s"), scenario.get("flow_s"), scenario.get("mace_s"))
                ).html,
                "mace": seconds(scenario.get("mace_s")).html,
                "lost": seconds((scenario.get("lost") or {}).get("worst_s")).html,
                "lost_node": (scenario.get("lost") or {}).get("node"),
                "mark": outcome_mark(outcome_state(scenario)),
                "moves": len(scenario.get("moves", ())),
                "words": scenario.get("words", []),
                "infeasible": (scenario.get("infeasible") or {}).get("message", ""),
            }
            for scenario in self.answer["scenarios"]
        ]

    @property
    def queries(self) -> list[dict[str, Any]]:
        """A row for every query, with a cell for every scenario."""
        parts = [scenario.get("queries", {}) for scenario in self.answer["scenarios"]]
        names = dict.fromkeys(name for part in parts for name in part)
        return [{"name": name, "cells": [query_cell(part.get(name)) for part in parts]} for name in sorted(names)]

    @property
    def lacking(self) -> list[str]:
        """Lack of the figures where servers run other policies than stimulus time, each of it once."""
        parts = [scenario.get("queries", {}) for scenario in self.answer["scenarios"]]
        said = [(name, (part[name].get("scheduling") or {}).get("lacking")) for part in parts for name in part]
        return list(dict.fromkeys(f"Of {name} {words}." for name, words in said if words))

    @property
    def holding(self) -> list[str]:
        """Scenarios that keep every objective."""
        return [scenario["name"] for scenario in self._holding]

    @property
    def cheapest(self) -> dict[str, str] | None:
        """The cheapest of those whose price is known."""
        priced = [scenario for scenario in self._holding if scenario["cost_per_hour"] is not None]
        if not priced:
            return None
        best = min(priced, key=lambda scenario: scenario["cost_per_hour"])
        return {"name": best["name"], "price": self.money(best["cost_per_hour"])}

    @property
    def _holding(self) -> list[Mapping[str, Any]]:
        return [scenario for scenario in self.answer["scenarios"] if outcome_state(scenario) == "holds"]


class SurvivalAnswer(WhatIfAnswer):
    """Answer to the loss of each node: the queries that it breaks or puts at risk."""

    words = "survival"

    @property
    def harmful(self) -> list[Mapping[str, Any]]:
        """Losses that break an objective or leave something without a place."""
        return [loss for loss in self.answer["losses"] if loss["breaks"] or loss["infeasible"]]

    @property
    def risky(self) -> list[str]:
        """Nodes whose loss puts an objective at risk."""
        return [loss["node"] for loss in self.answer["losses"] if loss.get("risks")]

    @property
    def threatened(self) -> list[str]:
        """Queries that some loss puts at risk."""
        return list(dict.fromkeys(name for loss in self.answer["losses"] for name in loss.get("risks", ())))

    @property
    def by_mace(self) -> int:
        """Losses that were looked at by mean costs alone."""
        return int(self.answer.get("by_mace", 0))

    @property
    def most_harmful(self) -> Mapping[str, Any] | None:
        return max(self.harmful, key=lambda loss: len(loss["breaks"]), default=None)

    @property
    def late(self) -> list[str]:
        """Queries that miss their objective before any node is lost."""
        return [name for name, query in self.answer["now"].get("queries", {}).items() if query["state"] == "breached"]

    @property
    def names(self) -> list[str]:
        return list(self.answer["now"].get("queries", {}))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The present state, then every node lost: those that do harm first."""
        losses = sorted(
            self.answer["losses"],
            key=lambda lost: (-bool(lost["infeasible"]), -len(lost["breaks"]), -len(lost.get("risks", ()))),
        )
        first = {"node": "", "cells": self._cells(self.answer["now"]), "breaks": "", "infeasible": ""}
        return [first, *(self._row(loss) for loss in losses)]

    def _row(self, loss: Mapping[str, Any]) -> dict[str, Any]:
        why = (loss["infeasible"] or {}).get("message", "")
        return {"node": loss["node"], "cells": self._cells(loss), "breaks": len(loss["breaks"]), "infeasible": why}

    def _cells(self, outcome: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [query_cell(outcome.get("queries", {}).get(name)) for name in self.names]


class GrowthAnswer(WhatIfAnswer):
    """By how much each load may grow."""

    words = "growth"

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The least room first."""
        queries = self.answer["queries"].values()
        rows = sorted(queries, key=lambda query: (query["factor"] is None, query["factor"] or 0.0))
        return [
            {
                "query": row["query"],
                "factor": factor(row["factor"]).html,
                "more": "and more" if row["unlimited"] else "",
                "then": row["miss"]["message"] if row["miss"] else row["note"],
                "nearest": self._nearest(row.get("nearest")),
            }
            for row in rows
        ]

    @staticmethod
    def _nearest(nearest: Mapping[str, Any] | None) -> str:
        """probes at 3.1 s (2.4 to 4.6 s): the objective that is nearest to its bound with that factor."""
        if nearest is None:
            return ""
        interval = seconds_range(nearest["low_s"], nearest["high_s"], apart_from=nearest["bound_s"])
        return f"{nearest['query']} at {seconds(nearest['estimate_s'])} ({interval})"


class SweepAnswer(WhatIfAnswer):
    """Sizes that a job has looked at."""

    @property
    def sentence(self) -> SafeString:
        sweep = BenchSweep(self.answer["now"], self.answer["sizes"], {}, self.row.options.get("lose_one", True))
        lacking = self.answer.get("lacking", "")
        return sentence(
            "pages/provisioning/sentences/sweep.html", sweep=sweep, largest=sweep.sizes[-1], lacking=lacking
        )

    @property
    def sizes(self) -> list[dict[str, Any]]:
        return [size_row(size, self.currency) for size in self.answer["sizes"]]


RESULTS: dict[Find, Callable[[WhatIf, Mapping[str, Any]], Any]] = {
    Find.COMPARE: ScenariosAnswer,
    Find.SWEEP: SweepAnswer,
    Find.SMALLEST_POOL: PoolSizeAnswer,
    Find.CHEAPEST_MIX: CheapestMixAnswer,
    Find.PARETO: FrontAnswer,
    Find.SURVIVAL: SurvivalAnswer,
    Find.GROWTH: GrowthAnswer,
}
