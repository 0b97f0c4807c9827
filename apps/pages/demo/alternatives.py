"""Another plan for one of the demo's running queries, which nobody has admitted yet."""

from __future__ import annotations

from apps.pages.demo.plans import Plan, Step

__all__ = ["FRAUD_RULES", "NOTE"]

NOTE = "Payments below the limit of every rule are dropped before the rules"

# `limits` reads nothing that `parse` writes, so the rules of rewriting have something to say about it as well.
FRAUD_RULES = Plan(
    "fraud-rules",
    "Payments",
    "",
    [
        Step("read-payments", "source", {"payments": (1.0, 62.5)}, size_bytes=420, writes=("raw", "amount", "country")),
        Step(
            "parse",
            "map",
            {"read-payments": (1.0, 281.2)},
            size_bytes=380,
            looks_at=("raw",),
            writes=("card", "shop"),
        ),
        Step("limits", "filter", {"parse": (0.62, 71.0)}, size_bytes=380, looks_at=("amount",), writes=()),
        Step("rules", "map", {"limits": (1.0, 1372.0)}, size_bytes=120, looks_at=("card", "shop"), writes=("rule",)),
        Step("hits", "filter", {"rules": (0.019, 93.8)}, size_bytes=120, looks_at=("rule",), writes=()),
        Step("block", "sink", {"hits": (1.0, 1249.9)}, size_bytes=120),
    ],
    events=40_000,
    spread=0.012,
)
