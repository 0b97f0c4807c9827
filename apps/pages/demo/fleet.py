"""The demo's clusters, nodes, links and arrivals."""

from __future__ import annotations

from typing import Any

__all__ = ["CLUSTER", "LINKS", "POOLS", "SOURCES", "STAGING", "STAGING_POOLS"]

CLUSTER: dict[str, Any] = {
    "slug": "eu-1",
    "name": "Europe 1",
    "environment": "prod",
    "time_zone": "Europe/Berlin",
    "subinterval_s": 2.0,
    "horizon_s": 1800.0,
    "preview_valid_s": 6 * 3600,
}
STAGING: dict[str, Any] = {
    "slug": "eu-2",
    "name": "Europe 2",
    "environment": "staging",
    "time_zone": "Europe/Berlin",
    "subinterval_s": 1.0,
    "horizon_s": 600.0,
}

# name, cycles/s of one core, cores, memory, price per hour, nodes
POOLS: list[tuple[str, float, int, int, str, list[str]]] = [
    ("general", 2.4e9, 2, 16 * 2**30, "0.2100", [f"n{i:02}" for i in range(1, 9)]),
    ("compute", 3.0e9, 4, 32 * 2**30, "0.4800", [f"n{i:02}" for i in range(9, 13)]),
]
STAGING_POOLS: list[tuple[str, float, int, int, str, list[str]]] = [
    ("small", 2.0e9, 2, 8 * 2**30, "0.0900", ["s1", "s2"]),
]

# Between racks: 10 Gbit/s with a delay; n07 feeds n09 over an older link of 1 Gbit/s
LINKS: list[tuple[str, str, float, float]] = [
    ("n07", "n09", 1.25e8, 0.002),
    ("n05", "n06", 1.25e9, 0.0005),
    ("n01", "n02", 1.25e9, 0.0005),
    ("n02", "n08", 1.25e9, 0.0005),
]

# source, what it is, generator
SOURCES: list[tuple[str, str, dict[str, Any]]] = [
    (
        "payments",
        "Card payments, all shops",
        {"kind": "diurnal", "mean_rate_eps": 1250.0, "swing": 0.35, "peak_s": 750.0, "day_s": 1800.0, "seed": 11},
    ),
    (
        "clicks",
        "Page views of the shops",
        {"kind": "on_off", "mean_rate_eps": 3600.0, "ratio": 3.0, "high_period_s": 40.0, "seed": 12},
    ),
    ("checkouts", "Paid orders", {"kind": "poisson", "mean_rate_eps": 230.0, "seed": 13}),
    (
        "impressions",
        "Shown advertisements",
        {"kind": "on_off", "mean_rate_eps": 4200.0, "ratio": 4.0, "high_period_s": 45.0, "seed": 14},
    ),
    (
        "searches",
        "Search requests",
        {"kind": "diurnal", "mean_rate_eps": 1500.0, "swing": 0.5, "peak_s": 1100.0, "day_s": 1800.0, "seed": 15},
    ),
    (
        "positions",
        "Positions of the vans",
        {"kind": "diurnal", "mean_rate_eps": 2600.0, "swing": 0.3, "peak_s": 450.0, "day_s": 1800.0, "seed": 16},
    ),
    ("app-logs", "Log lines of all services", {"kind": "poisson", "mean_rate_eps": 6200.0, "seed": 17}),
    ("sensors", "Readings of the warehouses' sensors", {"kind": "poisson", "mean_rate_eps": 1400.0, "seed": 18}),
    (
        "baskets",
        "Changes of shopping baskets",
        {"kind": "on_off", "mean_rate_eps": 700.0, "ratio": 5.0, "high_period_s": 30.0, "seed": 19},
    ),
    (
        "settlements",
        "Entries of the clearing run",
        {"kind": "diurnal", "mean_rate_eps": 800.0, "swing": 0.6, "peak_s": 0.0, "day_s": 3600.0, "seed": 20},
    ),
]
