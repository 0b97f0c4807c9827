"""A refined document to begin with."""

from __future__ import annotations

from typing import Any

from engine.jarvis.refined_config import seal

PLAN = "ab" * 32


def document(**changes: Any) -> dict[str, Any]:
    """A sealed document of a filter and an aggregate, with changed fields."""
    fields: dict[str, Any] = {
        "schema": 1,
        "config": "c-118",
        "version": 118,
        "parent": 117,
        "query": "this-host/s2s-probe",
        "plan": PLAN,
        "agent": "*",
        "settings": {"method": "scalar", "margin": 0.95},
        "record_bytes": [86, 86, 52],
        "operators": [
            {"id": "errors", "cost_s": 1e-6, "relay": 0.86, "records": 50_000, "standard_error": 0.01},
            {"id": "pairs", "cost_s": 3e-6, "group_cost_s": 1e-5, "groups": 500, "relay": 0.1, "records": 40_000},
        ],
        "fitted": {"records": [1_000, 40_000], "cores": [0.1, 0.8]},
        "plan_prior": {"lo": 1, "hi": 2, "theta": 0.8, "load_factors": [1.0, 0.8]},
        "valid_from_us": 1_700_000_000_000_000,
        "ttl_s": 3600,
        "fallback": "local",
    }
    return seal({**fields, **changes})
