"""A plan of a comparison as the body of a new version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apps.queries.bodies import body_of
from apps.queries.models import QueryVersion

__all__ = ["body_of_plan"]


def body_of_plan(plan: Mapping[str, Any], base: QueryVersion) -> dict[str, Any]:
    """Operators by their bare names, on the nodes the plan was judged on.

    A polynomial model is taken from the version itself: the engine had it restated for a slice.
    """
    models = {(op["id"], k): entry.get("model") for op in body_of(base)["operators"] for k, entry in _inputs(op)}
    return {"operators": [_operator(op, plan["placement"], base.query.name, models) for op in plan["operators"]]}


def _inputs(operator: Mapping[str, Any]) -> Any:
    return enumerate(operator["inputs"])


def _operator(
    operator: Mapping[str, Any], placement: Mapping[str, Any], query: str, models: Mapping[tuple[str, int], Any]
) -> dict[str, Any]:
    name = operator["id"].removeprefix(f"{query}/")
    kept = {key: value for key, value in operator.items() if key not in {"node", "core", "split", "query", "inputs"}}
    inputs = []
    for k, entry in _inputs(operator):
        model = models.get((name, k)) if "model" in entry else None
        known = {key: value for key, value in entry.items() if key != "model"}
        read = entry["from"].removeprefix(f"{query}/").removesuffix(f"@{query}")
        inputs.append({**known, "from": read} | ({"model": model} if model else {}))
    return {**kept, "id": name, "inputs": inputs, **_place(placement.get(operator["id"], []))}


def _place(replicas: list[dict[str, Any]]) -> dict[str, Any]:
    if len(replicas) == 1 and replicas[0]["fraction"] == 1.0:
        return {"node": replicas[0]["node"], "core": replicas[0]["core"]}
    return {"split": replicas} if replicas else {}
