"""The demo's queries: nine that run, one request for each verdict, another plan for a running one, and a draft that
never ran.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "BASKETS",
    "CHURN",
    "DELIVERY",
    "FRAUD_RULES",
    "NEVER_RAN",
    "NOTE",
    "RUNNING",
    "SETTLEMENT",
    "VOUCHERS",
    "DemoQuery",
    "operators_of",
]


BATCHES = 8
SAMPLE_AGE_S = 1200.0  # how long ago the demo's samples were taken
STATE_BYTES = {"window": 420e6, "join": 650e6, "aggregate": 90e6}  # what an operator carries when it moves


@dataclass(frozen=True)
class DemoOperator:
    """One operator. `reads` maps what it reads to (selectivity, thousand cycles per event; None: it never ran).

    `looks_at` and `writes` are fields of an event; None: not stated. `features` are those of the document that a model
    predicts by.
    """

    name: str
    kind: str
    reads: Mapping[str, tuple[float, float | None]]
    at: str = ""
    size_bytes: int = 120
    window: Mapping[str, Any] | None = None
    looks_at: tuple[str, ...] | None = None
    writes: tuple[str, ...] | None = None
    features: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class DemoQuery:
    """A query. `spread` is the relative deviation of its batches; 0: nothing was measured yet."""

    name: str
    team: str
    description: str
    steps: Sequence[DemoOperator]
    objective: tuple[str, float] | None = None
    priority: int = 0
    evidence: str = "measured"
    events: int = 200_000
    spread: float = 0.01
    assumed: frozenset[str] = field(default_factory=frozenset)


def operators_of(plan: DemoQuery) -> list[dict[str, Any]]:
    """The plan as the `operators` of a query's body. Batches are drawn with a seed of the plan's name."""
    draw = random.Random(plan.name)
    return [_operator(plan, step, draw) for step in plan.steps]


def _operator(plan: DemoQuery, step: DemoOperator, draw: random.Random) -> dict[str, object]:
    is_assumed = step.name in plan.assumed or not plan.spread
    kind = "assumed" if is_assumed else plan.evidence
    body: dict[str, object] = {
        "id": step.name,
        "kind": step.kind,
        "stateless": step.kind in {"source", "filter", "map", "sink"},
        "bytes_per_event": step.size_bytes,
        "evidence": {"kind": kind} if is_assumed else {"kind": kind, "events": plan.events, "age_s": SAMPLE_AGE_S},
        "inputs": [
            _input(name, selectivity, cost, 0.0 if is_assumed else plan.spread, plan.events, draw)
            for name, (selectivity, cost) in step.reads.items()
        ],
    }
    if step.kind in STATE_BYTES:
        body["state_bytes"] = STATE_BYTES[step.kind]
    fields = {"reads": step.looks_at, "writes": step.writes}
    body |= {name: list(names) for name, names in fields.items() if names is not None} | dict(step.features)
    if step.window:
        body["window"] = dict(step.window)
    if step.at:
        node, _, core = step.at.partition("#")
        body |= {"node": node, "core": int(core or 0)}
    return body


def _input(
    name: str, selectivity: float, thousands: float | None, spread: float, events: int, draw: random.Random
) -> dict[str, object]:
    entry: dict[str, Any] = {"from": name, "selectivity": selectivity}
    if thousands is None:
        return entry
    cycles = entry["cycles_per_event"] = thousands * 1e3
    if spread:
        size = events // BATCHES
        entry["batches"] = [
            {
                "events": size,
                "outputs": round(size * selectivity * draw.gauss(1.0, spread), 1),
                "cycles": round(size * cycles * draw.gauss(1.0, spread)),
            }
            for _ in range(BATCHES)
        ]
    return entry


# Results of a minute are promised from its end on; what every event changes goes out at once.
_MINUTE = {"policy": "time", "type": "tumbling", "size": 60, "slide": 60, "measured_from": "window_end"}
_RUNNING_MINUTE = {"policy": "time", "type": "tumbling", "size": 60, "slide": 60, "emit": "on_update"}
_SLIDING = {"policy": "time", "type": "sliding", "size": 300, "slide": 30, "emit": "on_update"}
_PAYMENT = ("raw", "amount", "country")

RUNNING = (
    DemoQuery(
        "payment-risk-features",
        "Payments",
        "Features of each card payment for the risk model: velocity, merchant history, distance to the last purchase.",
        [
            DemoOperator("read-payments", "source", {"payments": (1.0, 83.3)}, "n07", 420),
            DemoOperator("parse", "map", {"read-payments": (1.0, 374.7)}, "n07", 380),
            DemoOperator("known-cards", "filter", {"parse": (0.94, 124.9)}, "n07", 380),
            DemoOperator("by-card", "window", {"known-cards": (1.0, 457.9)}, "n07#1", 340, _SLIDING),
            DemoOperator("velocity", "aggregate", {"by-card": (1.0, 874.2)}, "n07#1", 120),
            DemoOperator("merchant", "map", {"known-cards": (1.0, 1332)}, "n09", 160),
            DemoOperator("distance", "map", {"known-cards": (1.0, 790.9)}, "n09#1", 160),
            DemoOperator("join-features", "join", {"velocity": (0.5, 541.1), "merchant": (0.5, 499.5)}, "n09#2", 260),
            DemoOperator("enrich", "join", {"join-features": (0.5, 541.1), "distance": (0.5, 374.7)}, "n09#2", 300),
            DemoOperator("publish", "sink", {"enrich": (1.0, 249.8)}, "n09#3", 300),
        ],
        ("worst", 10.0),
        3,
        events=1_400_000,
        spread=0.0035,
    ),
    DemoQuery(
        "checkout-funnel",
        "Growth",
        "Where visitors leave between basket and paid order, per minute and per campaign.",
        [
            DemoOperator("read-clicks", "source", {"clicks": (1.0, 54.4)}, "n05", 260),
            DemoOperator("shop-pages", "filter", {"read-clicks": (0.3, 61.8)}, "n05", 260),
            DemoOperator("read-checkouts", "source", {"checkouts": (1.0, 111.1)}, "n05", 320),
            DemoOperator("sessions", "window", {"shop-pages": (1.0, 518.7)}, "n05#1", 240, _SLIDING),
            DemoOperator("steps", "map", {"sessions": (1.0, 395.2)}, "n05#1", 180),
            DemoOperator("orders", "map", {"read-checkouts": (1.0, 765.8)}, "n06#1", 180),
            DemoOperator("match", "join", {"steps": (0.4, 642.2), "orders": (0.9, 1037.4)}, "n06", 220),
            DemoOperator("per-campaign", "aggregate", {"match": (0.02, 839.8)}, "n06", 90, _MINUTE),
            DemoOperator("report", "sink", {"per-campaign": (1.0, 2223)}, "n06", 90),
        ],
        ("worst", 15.0),
        2,
    ),
    DemoQuery(
        "ad-dedupe",
        "Ads",
        "Drops repeated impressions before they are billed.",
        [
            DemoOperator("read-impressions", "source", {"impressions": (1.0, 25.6)}, "n10", 310),
            DemoOperator("valid", "filter", {"read-impressions": (0.97, 44.8)}, "n10", 310),
            DemoOperator("key", "map", {"valid": (1.0, 153.6)}, "n10#1", 180),
            DemoOperator("seen", "window", {"key": (1.0, 208.6)}, "n10#2", 180, _SLIDING),
            DemoOperator("first-only", "aggregate", {"seen": (0.72, 217.7)}, "n10#3", 140),
            DemoOperator("bill", "sink", {"first-only": (1.0, 140.9)}, "n10#3", 140),
        ],
        ("worst", 30.0),
        1,
    ),
    DemoQuery(
        "search-trending",
        "Search",
        "Terms that rise faster than usual, refreshed every half minute.",
        [
            DemoOperator("read-searches", "source", {"searches": (1.0, 49.2)}, "n11", 190),
            DemoOperator("normalise", "map", {"read-searches": (1.0, 426.4)}, "n11", 150),
            DemoOperator("language", "map", {"normalise": (1.0, 852.9)}, "n11#1", 150),
            DemoOperator("terms", "map", {"language": (2.4, 541.2)}, "n11#1", 60),
            DemoOperator("counts", "window", {"terms": (0.3, 311.6)}, "n11#2", 60, _SLIDING),
            DemoOperator("rising", "aggregate", {"counts": (0.05, 1000.4)}, "n11#3", 60),
            DemoOperator("serve", "sink", {"rising": (1.0, 328)}, "n11#3", 60),
        ],
        ("q0.99", 20.0),
        1,
    ),
    DemoQuery(
        "session-stitch",
        "Data platform",
        "Joins clicks of one visitor over devices into sessions.",
        [
            DemoOperator("read-clicks", "source", {"clicks": (1.0, 31.2)}, "n12", 260),
            DemoOperator("humans", "filter", {"read-clicks": (0.88, 56.6)}, "n12", 260),
            DemoOperator("identify", "map", {"humans": (1.0, 467.1)}, "n12#1", 280),
            DemoOperator("devices", "map", {"humans": (0.25, 198.2)}, "n12#2", 120),
            DemoOperator("graph", "join", {"identify": (0.4, 226.4), "devices": (0.4, 537.8)}, "n12#2", 300),
            DemoOperator("sessions", "window", {"graph": (1.0, 467.1)}, "n12#3", 300, _SLIDING),
            DemoOperator("close", "aggregate", {"sessions": (0.06, 679.3)}, "n12#3", 420),
            DemoOperator("store", "sink", {"close": (1.0, 368)}, "n12", 420),
        ],
        ("worst", 60.0),
    ),
    DemoQuery(
        "geo-fence-alerts",
        "Logistics",
        "Tells a depot when a van enters or leaves its area.",
        [
            DemoOperator("read-positions", "source", {"positions": (1.0, 42.5)}, "n03", 110),
            DemoOperator("smooth", "map", {"read-positions": (1.0, 227.3)}, "n03", 110),
            DemoOperator("near-fence", "filter", {"smooth": (0.35, 454.7)}, "n03", 110),
            DemoOperator("inside", "map", {"near-fence": (1.0, 1439.7)}, "n03#1", 120),
            DemoOperator("crossed", "aggregate", {"inside": (0.04, 485)}, "n03#1", 90),
            DemoOperator("alert", "sink", {"crossed": (1.0, 606.2)}, "n03#1", 90),
        ],
        ("worst", 3.0),
        2,
        spread=0.006,
    ),
    DemoQuery(
        "fraud-rules",
        "Payments",
        "Hard rules that block a payment before the model has scored it.",
        [
            DemoOperator("read-payments", "source", {"payments": (1.0, 62.5)}, "n04", 420, writes=_PAYMENT),
            DemoOperator(
                "parse", "map", {"read-payments": (1.0, 281.2)}, "n04", 380, looks_at=("raw",), writes=("card", "shop")
            ),
            DemoOperator(
                "rules", "map", {"parse": (1.0, 1359.3)}, "n04#1", 120, looks_at=("card", "shop"), writes=("rule",)
            ),
            DemoOperator("hits", "filter", {"rules": (0.012, 93.8)}, "n04#1", 120, looks_at=("rule",), writes=()),
            DemoOperator("block", "sink", {"hits": (1.0, 1249.9)}, "n04", 120),
        ],
        ("worst", 4.2),
        5,
        events=900_000,
        spread=0.005,
    ),
    DemoQuery(
        "log-anomalies",
        "Reliability",
        "Log lines that do not look like those of the days before, grouped into incidents.",
        [
            DemoOperator("read-logs", "source", {"app-logs": (1.0, 28.8)}, "n01", 340),
            DemoOperator("decode", "map", {"read-logs": (1.0, 112)}, "n01", 320),
            DemoOperator("severe", "filter", {"decode": (0.22, 38.4)}, "n01", 320),
            DemoOperator("template", "map", {"severe": (1.0, 992)}, "n01#1", 180),
            DemoOperator("service", "map", {"severe": (1.0, 144)}, "n02", 140),
            DemoOperator("per-template", "window", {"template": (1.0, 256)}, "n02", 120, _RUNNING_MINUTE),
            DemoOperator("rates", "aggregate", {"per-template": (0.1, 512)}, "n02", 90),
            DemoOperator("baseline", "map", {"rates": (1.0, 2240)}, "n02#1", 110),
            DemoOperator("deviates", "filter", {"baseline": (0.08, 144)}, "n02#1", 110),
            DemoOperator("join-service", "join", {"deviates": (1.0, 416), "service": (0.01, 336)}, "n02#1", 200),
            DemoOperator("correlate", "window", {"join-service": (1.0, 768)}, "n08", 200, _SLIDING),
            DemoOperator("incidents", "aggregate", {"correlate": (0.2, 1440)}, "n08", 260),
            DemoOperator("rank", "map", {"incidents": (1.0, 3520)}, "n08", 260),
            DemoOperator("notify", "sink", {"rank": (1.0, 1120)}, "n08", 260),
        ],
        ("mean", 5.0),
    ),
    DemoQuery(
        "sensor-rollup",
        "Facilities",
        "Minute means of every sensor in the warehouses.",
        [
            DemoOperator("read-sensors", "source", {"sensors": (1.0, 24)}, "n08#1", 80),
            DemoOperator("calibrate", "map", {"read-sensors": (1.0, 210)}, "n08#1", 80),
            DemoOperator("per-minute", "aggregate", {"calibrate": (0.017, 180)}, "n08#1", 70, _MINUTE),
            DemoOperator("store", "sink", {"per-minute": (1.0, 250)}, "n08#1", 70),
        ],
        None,
        evidence="predicted",
        spread=0.0,
    ),
)


# Fits into what is free: admitted.
DELIVERY = DemoQuery(
    "delivery-eta",
    "Logistics",
    "When a van will be at the next three doors.",
    [
        DemoOperator("read-positions", "source", {"positions": (1.0, 28)}, size_bytes=110),
        DemoOperator("on-tour", "filter", {"read-positions": (0.4, 60)}, size_bytes=110),
        DemoOperator("road", "map", {"on-tour": (1.0, 420)}, size_bytes=140),
        DemoOperator("orders", "source", {"checkouts": (1.0, 70)}, size_bytes=320),
        DemoOperator("next-doors", "join", {"road": (0.3, 240), "orders": (0.9, 310)}, size_bytes=180),
        DemoOperator("eta", "map", {"next-doors": (1.0, 760)}, size_bytes=90),
        DemoOperator("send", "sink", {"eta": (1.0, 210)}, size_bytes=90),
    ],
    ("worst", 12.0),
    1,
    evidence="predicted",
)

# Asks for a node that a payment query needs: rejected there, and admitted with the change that it goes elsewhere.
VOUCHERS = DemoQuery(
    "voucher-abuse",
    "Payments",
    "Vouchers that are tried on many accounts within minutes.",
    [
        DemoOperator("read-checkouts", "source", {"checkouts": (1.0, 70)}, size_bytes=320),
        DemoOperator("with-voucher", "filter", {"read-checkouts": (0.3, 90)}, size_bytes=320),
        DemoOperator("per-voucher", "window", {"with-voucher": (1.0, 900)}, size_bytes=160, window=_SLIDING),
        DemoOperator("accounts", "aggregate", {"per-voucher": (0.1, 1400)}, size_bytes=90),
        DemoOperator("flag", "sink", {"accounts": (1.0, 400)}, size_bytes=90),
    ],
    ("worst", 8.0),
    2,
    events=40_000,
)

# Holds, but its sample is too small to be sure: a person decides.
CHURN = DemoQuery(
    "churn-score",
    "Growth",
    "How likely a visitor is to leave without an order, while the session still lasts.",
    [
        DemoOperator("read-clicks", "source", {"clicks": (1.0, 20)}, size_bytes=260),
        DemoOperator("members", "filter", {"read-clicks": (0.18, 27)}, size_bytes=260),
        DemoOperator("session", "window", {"members": (1.0, 217)}, size_bytes=240, window=_SLIDING),
        DemoOperator("features", "map", {"session": (1.0, 434)}, size_bytes=320),
        DemoOperator("score", "map", {"features": (1.0, 2036)}, size_bytes=60),
        DemoOperator("act", "sink", {"score": (0.1, 145)}, size_bytes=60),
    ],
    ("worst", 20.0),
    1,
    events=1600,
    spread=0.04,
)

# Fits once the clearing run has calmed down: queued.
SETTLEMENT = DemoQuery(
    "settlement-check",
    "Finance",
    "Compares the clearing run with the payments it should hold.",
    [
        DemoOperator("read-entries", "source", {"settlements": (1.0, 69)}, size_bytes=400),
        DemoOperator("parse", "map", {"read-entries": (1.0, 276)}, size_bytes=380),
        DemoOperator("booked", "filter", {"parse": (0.96, 57)}, size_bytes=380),
        DemoOperator("compare", "map", {"booked": (1.0, 4100)}, size_bytes=120),
        DemoOperator("open-items", "filter", {"compare": (0.02, 92)}, size_bytes=120),
        DemoOperator("post", "sink", {"open-items": (1.0, 575)}, size_bytes=120),
    ],
    ("worst", 10.0),
    evidence="predicted",
)

# Bursts are more than any core can take: rejected, with choices.
BASKETS = DemoQuery(
    "basket-affinity",
    "Recommendations",
    "Which products are put into one basket together, for the next page the visitor sees.",
    [
        DemoOperator("read-baskets", "source", {"baskets": (1.0, 30)}, size_bytes=280),
        DemoOperator("read-clicks", "source", {"clicks": (1.0, 12)}, size_bytes=260),
        DemoOperator("product-pages", "filter", {"read-clicks": (0.12, 16)}, size_bytes=260),
        DemoOperator("additions", "filter", {"read-baskets": (0.8, 33)}, size_bytes=280),
        DemoOperator("recent", "window", {"product-pages": (1.0, 143)}, size_bytes=200, window=_SLIDING),
        DemoOperator("pairs", "map", {"additions": (3.2, 226)}, size_bytes=110),
        DemoOperator("join-basket", "join", {"pairs": (0.35, 649), "recent": (0.2, 341)}, size_bytes=160),
        DemoOperator("affinity", "aggregate", {"join-basket": (0.1, 209)}, size_bytes=90, window=_MINUTE),
        DemoOperator("top-products", "map", {"affinity": (1.0, 385)}, size_bytes=90),
        DemoOperator("publish", "sink", {"top-products": (1.0, 143)}, size_bytes=90),
    ],
    ("worst", 12.0),
    1,
    events=80_000,
    spread=0.006,
    assumed=frozenset({"join-basket"}),
)


#: Nobody knows what it costs: a preview shows what a model predicts.
NEVER_RAN = DemoQuery(
    "checkout-outliers",
    "Payments",
    "Orders far above what their country usually pays. It never ran: its costs are predicted until they are measured.",
    [
        DemoOperator("read-checkouts", "source", {"checkouts": (1.0, None)}, size_bytes=180),
        DemoOperator(
            "large",
            "filter",
            {"read-checkouts": (0.3, None)},
            size_bytes=180,
            features={"filter": {"function": ">", "literal_type": "double"}},
        ),
        DemoOperator(
            "by-country",
            "aggregate",
            {"large": (0.2, None)},
            size_bytes=60,
            window={"policy": "time", "type": "tumbling", "size": 4, "measured_from": "window_end"},
            features={"aggregate": {"function": "max", "argument_type": "double", "group_by_type": "string"}},
        ),
        DemoOperator("publish", "sink", {"by-country": (1.0, None)}, size_bytes=60),
    ],
    ("mean", 1.0),
    spread=0.0,
)

NOTE = "Payments below the limit of every rule are dropped before the rules"

# `limits` reads nothing that `parse` writes, so the rules of rewriting have something to say about it as well.
FRAUD_RULES = DemoQuery(
    "fraud-rules",
    "Payments",
    "",
    [
        DemoOperator(
            "read-payments", "source", {"payments": (1.0, 62.5)}, size_bytes=420, writes=("raw", "amount", "country")
        ),
        DemoOperator(
            "parse",
            "map",
            {"read-payments": (1.0, 281.2)},
            size_bytes=380,
            looks_at=("raw",),
            writes=("card", "shop"),
        ),
        DemoOperator("limits", "filter", {"parse": (0.62, 71.0)}, size_bytes=380, looks_at=("amount",), writes=()),
        DemoOperator(
            "rules", "map", {"limits": (1.0, 1372.0)}, size_bytes=120, looks_at=("card", "shop"), writes=("rule",)
        ),
        DemoOperator("hits", "filter", {"rules": (0.019, 93.8)}, size_bytes=120, looks_at=("rule",), writes=()),
        DemoOperator("block", "sink", {"hits": (1.0, 1249.9)}, size_bytes=120),
    ],
    events=40_000,
    spread=0.012,
)
