"""Lists that views are saved of."""

from __future__ import annotations

from django.db import models

__all__ = ["SavedList"]


class SavedList(models.TextChoices):
    """A list of the console; its views apply in every cluster."""

    QUERIES = "queries", "Queries"
    NODES = "nodes", "Nodes"
    POOLS = "pools", "Pools"
    LINKS = "links", "Links"
    ADMISSIONS = "admissions", "Admission requests"
    ARRIVALS = "arrivals", "Arrivals"
    HISTORIES = "histories", "Load histories"
    AGENTS = "agents", "Agents"
    CONNECTIONS = "connections", "Connections"
    CONFIGS = "configs", "Configs"
    PLACEMENTS = "placements", "Placement runs"
    WHAT_IFS = "what_ifs", "Answers"
    RESOURCE_PLANS = "resource_plans", "Resource plans"
    SPARK_QUERIES = "spark_queries", "Spark queries"
    BACKTESTS = "backtests", "Backtests"
    REPORTS = "reports", "Reports"
    JOBS = "jobs", "Jobs"
