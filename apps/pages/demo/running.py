"""The demo's nine running queries."""

from __future__ import annotations

from apps.pages.demo.plans import Plan, Step

__all__ = ["RUNNING"]

_MINUTE = {"policy": "time", "type": "tumbling", "size": 60, "slide": 60}
_SLIDING = {"policy": "time", "type": "sliding", "size": 300, "slide": 30}
_PAYMENT = ("raw", "amount", "country")

RUNNING = (
    Plan(
        "payment-risk-features",
        "Payments",
        "Features of each card payment for the risk model: velocity, merchant history, distance to the last purchase.",
        [
            Step("read-payments", "source", {"payments": (1.0, 83.3)}, "n07", 420),
            Step("parse", "map", {"read-payments": (1.0, 374.7)}, "n07", 380),
            Step("known-cards", "filter", {"parse": (0.94, 124.9)}, "n07", 380),
            Step("by-card", "window", {"known-cards": (1.0, 457.9)}, "n07#1", 340, _SLIDING),
            Step("velocity", "aggregate", {"by-card": (1.0, 874.2)}, "n07#1", 120),
            Step("merchant", "map", {"known-cards": (1.0, 1332)}, "n09", 160),
            Step("distance", "map", {"known-cards": (1.0, 790.9)}, "n09#1", 160),
            Step("join-features", "join", {"velocity": (0.5, 541.1), "merchant": (0.5, 499.5)}, "n09#2", 260),
            Step("enrich", "join", {"join-features": (0.5, 541.1), "distance": (0.5, 374.7)}, "n09#2", 300),
            Step("publish", "sink", {"enrich": (1.0, 249.8)}, "n09#3", 300),
        ],
        ("worst", 10.0),
        3,
        events=1_400_000,
        spread=0.0035,
    ),
    Plan(
        "checkout-funnel",
        "Growth",
        "Where visitors leave between basket and paid order, per minute and per campaign.",
        [
            Step("read-clicks", "source", {"clicks": (1.0, 54.4)}, "n05", 260),
            Step("shop-pages", "filter", {"read-clicks": (0.3, 61.8)}, "n05", 260),
            Step("read-checkouts", "source", {"checkouts": (1.0, 111.1)}, "n05", 320),
            Step("sessions", "window", {"shop-pages": (1.0, 518.7)}, "n05#1", 240, _SLIDING),
            Step("steps", "map", {"sessions": (1.0, 395.2)}, "n05#1", 180),
            Step("orders", "map", {"read-checkouts": (1.0, 765.8)}, "n06#1", 180),
            Step("match", "join", {"steps": (0.4, 642.2), "orders": (0.9, 1037.4)}, "n06", 220),
            Step("per-campaign", "aggregate", {"match": (0.02, 839.8)}, "n06", 90, _MINUTE),
            Step("report", "sink", {"per-campaign": (1.0, 2223)}, "n06", 90),
        ],
        ("worst", 15.0),
        2,
    ),
    Plan(
        "ad-dedupe",
        "Ads",
        "Drops repeated impressions before they are billed.",
        [
            Step("read-impressions", "source", {"impressions": (1.0, 25.6)}, "n10", 310),
            Step("valid", "filter", {"read-impressions": (0.97, 44.8)}, "n10", 310),
            Step("key", "map", {"valid": (1.0, 153.6)}, "n10#1", 180),
            Step("seen", "window", {"key": (1.0, 208.6)}, "n10#2", 180, _SLIDING),
            Step("first-only", "aggregate", {"seen": (0.72, 217.7)}, "n10#3", 140),
            Step("bill", "sink", {"first-only": (1.0, 140.9)}, "n10#3", 140),
        ],
        ("worst", 30.0),
        1,
    ),
    Plan(
        "search-trending",
        "Search",
        "Terms that rise faster than usual, refreshed every half minute.",
        [
            Step("read-searches", "source", {"searches": (1.0, 49.2)}, "n11", 190),
            Step("normalise", "map", {"read-searches": (1.0, 426.4)}, "n11", 150),
            Step("language", "map", {"normalise": (1.0, 852.9)}, "n11#1", 150),
            Step("terms", "map", {"language": (2.4, 541.2)}, "n11#1", 60),
            Step("counts", "window", {"terms": (0.3, 311.6)}, "n11#2", 60, _SLIDING),
            Step("rising", "aggregate", {"counts": (0.05, 1000.4)}, "n11#3", 60),
            Step("serve", "sink", {"rising": (1.0, 328)}, "n11#3", 60),
        ],
        ("q0.99", 20.0),
        1,
    ),
    Plan(
        "session-stitch",
        "Data platform",
        "Joins clicks of one visitor over devices into sessions.",
        [
            Step("read-clicks", "source", {"clicks": (1.0, 31.2)}, "n12", 260),
            Step("humans", "filter", {"read-clicks": (0.88, 56.6)}, "n12", 260),
            Step("identify", "map", {"humans": (1.0, 467.1)}, "n12#1", 280),
            Step("devices", "map", {"humans": (0.25, 198.2)}, "n12#2", 120),
            Step("graph", "join", {"identify": (0.4, 226.4), "devices": (0.4, 537.8)}, "n12#2", 300),
            Step("sessions", "window", {"graph": (1.0, 467.1)}, "n12#3", 300, _SLIDING),
            Step("close", "aggregate", {"sessions": (0.06, 679.3)}, "n12#3", 420),
            Step("store", "sink", {"close": (1.0, 368)}, "n12", 420),
        ],
        ("worst", 60.0),
    ),
    Plan(
        "geo-fence-alerts",
        "Logistics",
        "Tells a depot when a van enters or leaves its area.",
        [
            Step("read-positions", "source", {"positions": (1.0, 42.5)}, "n03", 110),
            Step("smooth", "map", {"read-positions": (1.0, 227.3)}, "n03", 110),
            Step("near-fence", "filter", {"smooth": (0.35, 454.7)}, "n03", 110),
            Step("inside", "map", {"near-fence": (1.0, 1439.7)}, "n03#1", 120),
            Step("crossed", "aggregate", {"inside": (0.04, 485)}, "n03#1", 90),
            Step("alert", "sink", {"crossed": (1.0, 606.2)}, "n03#1", 90),
        ],
        ("worst", 3.0),
        2,
        spread=0.006,
    ),
    Plan(
        "fraud-rules",
        "Payments",
        "Hard rules that block a payment before the model has scored it.",
        [
            Step("read-payments", "source", {"payments": (1.0, 62.5)}, "n04", 420, writes=_PAYMENT),
            Step(
                "parse", "map", {"read-payments": (1.0, 281.2)}, "n04", 380, looks_at=("raw",), writes=("card", "shop")
            ),
            Step("rules", "map", {"parse": (1.0, 1359.3)}, "n04#1", 120, looks_at=("card", "shop"), writes=("rule",)),
            Step("hits", "filter", {"rules": (0.012, 93.8)}, "n04#1", 120, looks_at=("rule",), writes=()),
            Step("block", "sink", {"hits": (1.0, 1249.9)}, "n04", 120),
        ],
        ("worst", 4.0),
        5,
        events=900_000,
        spread=0.005,
    ),
    Plan(
        "log-anomalies",
        "Reliability",
        "Log lines that do not look like those of the days before, grouped into incidents.",
        [
            Step("read-logs", "source", {"app-logs": (1.0, 28.8)}, "n01", 340),
            Step("decode", "map", {"read-logs": (1.0, 112)}, "n01", 320),
            Step("severe", "filter", {"decode": (0.22, 38.4)}, "n01", 320),
            Step("template", "map", {"severe": (1.0, 992)}, "n01#1", 180),
            Step("service", "map", {"severe": (1.0, 144)}, "n02", 140),
            Step("per-template", "window", {"template": (1.0, 256)}, "n02", 120, _MINUTE),
            Step("rates", "aggregate", {"per-template": (0.1, 512)}, "n02", 90),
            Step("baseline", "map", {"rates": (1.0, 2240)}, "n02#1", 110),
            Step("deviates", "filter", {"baseline": (0.08, 144)}, "n02#1", 110),
            Step("join-service", "join", {"deviates": (1.0, 416), "service": (0.01, 336)}, "n02#1", 200),
            Step("correlate", "window", {"join-service": (1.0, 768)}, "n08", 200, _SLIDING),
            Step("incidents", "aggregate", {"correlate": (0.2, 1440)}, "n08", 260),
            Step("rank", "map", {"incidents": (1.0, 3520)}, "n08", 260),
            Step("notify", "sink", {"rank": (1.0, 1120)}, "n08", 260),
        ],
        ("mean", 5.0),
    ),
    Plan(
        "sensor-rollup",
        "Facilities",
        "Minute means of every sensor in the warehouses.",
        [
            Step("read-sensors", "source", {"sensors": (1.0, 24)}, "n08#1", 80),
            Step("calibrate", "map", {"read-sensors": (1.0, 210)}, "n08#1", 80),
            Step("per-minute", "aggregate", {"calibrate": (0.017, 180)}, "n08#1", 70, _MINUTE),
            Step("store", "sink", {"per-minute": (1.0, 250)}, "n08#1", 70),
        ],
        None,
        evidence="predicted",
        spread=0.0,
    ),
)
