"""The demo's queries that ask to be admitted: one for each verdict."""

from __future__ import annotations

from apps.pages.demo.plans import Plan, Step

__all__ = ["BASKETS", "CHURN", "DELIVERY", "SETTLEMENT", "VOUCHERS"]

_MINUTE = {"policy": "time", "type": "tumbling", "size": 60, "slide": 60}
_SLIDING = {"policy": "time", "type": "sliding", "size": 300, "slide": 30}

# Fits into what is free: admitted.
DELIVERY = Plan(
    "delivery-eta",
    "Logistics",
    "When a van will be at the next three doors.",
    [
        Step("read-positions", "source", {"positions": (1.0, 28)}, size_bytes=110),
        Step("on-tour", "filter", {"read-positions": (0.4, 60)}, size_bytes=110),
        Step("road", "map", {"on-tour": (1.0, 420)}, size_bytes=140),
        Step("orders", "source", {"checkouts": (1.0, 70)}, size_bytes=320),
        Step("next-doors", "join", {"road": (0.3, 240), "orders": (0.9, 310)}, size_bytes=180),
        Step("eta", "map", {"next-doors": (1.0, 760)}, size_bytes=90),
        Step("send", "sink", {"eta": (1.0, 210)}, size_bytes=90),
    ],
    ("worst", 12.0),
    1,
    evidence="predicted",
)

# Asks for a node that a payment query needs: rejected there, and admitted with the change that it goes elsewhere.
VOUCHERS = Plan(
    "voucher-abuse",
    "Payments",
    "Vouchers that are tried on many accounts within minutes.",
    [
        Step("read-checkouts", "source", {"checkouts": (1.0, 70)}, size_bytes=320),
        Step("with-voucher", "filter", {"read-checkouts": (0.3, 90)}, size_bytes=320),
        Step("per-voucher", "window", {"with-voucher": (1.0, 900)}, size_bytes=160, window=_SLIDING),
        Step("accounts", "aggregate", {"per-voucher": (0.1, 1400)}, size_bytes=90),
        Step("flag", "sink", {"accounts": (1.0, 400)}, size_bytes=90),
    ],
    ("worst", 8.0),
    2,
    events=40_000,
)

# Holds, but its sample is too small to be sure: a person decides.
CHURN = Plan(
    "churn-score",
    "Growth",
    "How likely a visitor is to leave without an order, while the session still lasts.",
    [
        Step("read-clicks", "source", {"clicks": (1.0, 20)}, size_bytes=260),
        Step("members", "filter", {"read-clicks": (0.18, 27)}, size_bytes=260),
        Step("session", "window", {"members": (1.0, 217)}, size_bytes=240, window=_SLIDING),
        Step("features", "map", {"session": (1.0, 434)}, size_bytes=320),
        Step("score", "map", {"features": (1.0, 2036)}, size_bytes=60),
        Step("act", "sink", {"score": (0.1, 145)}, size_bytes=60),
    ],
    ("worst", 20.0),
    1,
    events=1600,
    spread=0.04,
)

# Fits once the clearing run has calmed down: queued.
SETTLEMENT = Plan(
    "settlement-check",
    "Finance",
    "Compares the clearing run with the payments it should hold.",
    [
        Step("read-entries", "source", {"settlements": (1.0, 69)}, size_bytes=400),
        Step("parse", "map", {"read-entries": (1.0, 276)}, size_bytes=380),
        Step("booked", "filter", {"parse": (0.96, 57)}, size_bytes=380),
        Step("compare", "map", {"booked": (1.0, 4100)}, size_bytes=120),
        Step("open-items", "filter", {"compare": (0.02, 92)}, size_bytes=120),
        Step("post", "sink", {"open-items": (1.0, 575)}, size_bytes=120),
    ],
    ("worst", 10.0),
    evidence="predicted",
)

# Bursts are more than any core can take: rejected, with choices.
BASKETS = Plan(
    "basket-affinity",
    "Recommendations",
    "Which products are put into one basket together, for the next page the visitor sees.",
    [
        Step("read-baskets", "source", {"baskets": (1.0, 30)}, size_bytes=280),
        Step("read-clicks", "source", {"clicks": (1.0, 12)}, size_bytes=260),
        Step("product-pages", "filter", {"read-clicks": (0.12, 16)}, size_bytes=260),
        Step("additions", "filter", {"read-baskets": (0.8, 33)}, size_bytes=280),
        Step("recent", "window", {"product-pages": (1.0, 143)}, size_bytes=200, window=_SLIDING),
        Step("pairs", "map", {"additions": (3.2, 226)}, size_bytes=110),
        Step("join-basket", "join", {"pairs": (0.35, 649), "recent": (0.2, 341)}, size_bytes=160),
        Step("affinity", "aggregate", {"join-basket": (0.1, 209)}, size_bytes=90, window=_MINUTE),
        Step("top-products", "map", {"affinity": (1.0, 385)}, size_bytes=90),
        Step("publish", "sink", {"top-products": (1.0, 143)}, size_bytes=90),
    ],
    ("worst", 12.0),
    1,
    events=80_000,
    spread=0.006,
    assumed=frozenset({"join-basket"}),
)
