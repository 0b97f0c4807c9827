"""The engine's answer, cut into the rows that are kept of it."""

from __future__ import annotations

from typing import Any

from apps.estimates.curves import STRIP_PARTS, curves_pack, thinned
from apps.estimates.models import EstimateRun, NodeEstimate, QueryEstimate
from apps.queries.choices import QueryState
from apps.queries.models import Query

__all__ = ["node_rows", "query_rows", "run_facts"]

_PER_SUBINTERVAL = 200  # a list this long is a series, not a fact


def run_facts(answer: dict[str, Any]) -> dict[str, Any]:
    """What is said of the cluster as a whole; series and the parts that get rows of their own are left out."""
    parts = {"operators", "servers", "queries"}
    return {
        key: value
        for key, value in answer.items()
        if key not in parts and not (isinstance(value, list) and _is_series(value, answer))
    }


def query_rows(run: EstimateRun, answer: dict[str, Any]) -> list[QueryEstimate]:
    """One unsaved row for each query of the answer."""
    running = {
        query.name: query
        for query in Query.objects.filter(cluster=run.cluster, state=QueryState.RUNNING).select_related(
            "running_version"
        )
    }
    return [
        _query_row(run, running[name], found, _operators_of(name, answer, run.subinterval_s))
        for name, found in answer["queries"].items()
        if name in running  # stopped while it was estimated: nobody asks for it any more
    ]


def node_rows(run: EstimateRun, answer: dict[str, Any]) -> list[NodeEstimate]:
    """One unsaved row for each server: the cores of nodes, and links with a bandwidth."""
    return [
        NodeEstimate(
            run=run,
            server=name,
            node_name=(found.get("node") or "") if found["kind"] == "node" else "",
            mean_load=found["load_mean"],
            peak_load=found["load_peak"],
            excess_s=found["mace_wc"],
            excess=[round(value, 6) for value in thinned(found["mace"], STRIP_PARTS).tolist()],
        )
        for name, found in answer["servers"].items()
    ]


def _is_series(value: list[Any], answer: dict[str, Any]) -> bool:
    return len(value) == answer.get("subintervals") or len(value) >= _PER_SUBINTERVAL


def _query_row(
    run: EstimateRun, query: Query, found: dict[str, Any], operators: dict[str, dict[str, float]]
) -> QueryEstimate:
    facts = {key: value for key, value in found.items() if key != "series"}
    return QueryEstimate(
        run=run,
        query=query,
        version=query.running_version,
        statistic=found["statistic"],
        bound_s=found["bound_s"],
        estimate_s=found["estimate_s"],
        low_s=found["low_s"],
        high_s=found["high_s"],
        worst_s=found["worst_s"],
        headroom_share=found["headroom_share"],
        mace_s=found["mace_s"],
        state=found["state"],
        result={**facts, "operators": operators},
        series=curves_pack(found["series"], run.subinterval_s),
    )


def _operators_of(query: str, answer: dict[str, Any], subinterval_s: float) -> dict[str, dict[str, float]]:
    """Load and output of each of the query's operators, by their names within the query."""
    prefix = f"{query}/"
    return {
        name.removeprefix(prefix): _operator_facts(found, subinterval_s)
        for name, found in answer["operators"].items()
        if name.startswith(prefix)
    }


def _operator_facts(found: dict[str, Any], subinterval_s: float) -> dict[str, float]:
    load, output = found["load"], found["output"]
    count = max(1, len(load))
    return {
        "load_mean_cps": sum(load) / count / subinterval_s,
        "load_peak_cps": max(load, default=0.0) / subinterval_s,
        "output_mean_eps": sum(output) / count / subinterval_s,
        "output_peak_eps": max(output, default=0.0) / subinterval_s,
    }
