"""Filters, search and order of a list under a name, and the view that a list opens with."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from apps.core.limits import MAX_KIND, MAX_NAME

__all__ = ["DefaultView", "SavedList", "SavedView"]


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


class SavedView(models.Model):
    """A list as somebody wants to find it again: for its owner alone, or for the team."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    list_name = models.CharField(max_length=MAX_KIND, choices=SavedList.choices)
    name = models.CharField(max_length=MAX_NAME)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="saved_views")
    is_team = models.BooleanField(default=False, help_text="Listed for everybody who signs in.")
    is_team_default = models.BooleanField(default=False, help_text="The list opens with it, unless one chose another.")
    parameters = models.JSONField(help_text="{parameter of the list's address: value}, with sort and q.")
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(
                fields=["list_name", "name"], condition=Q(is_team=True), name="team_view_name_once_per_list"
            ),
            models.UniqueConstraint(
                fields=["owner", "list_name", "name"], condition=Q(is_team=False), name="own_view_name_once_per_list"
            ),
            models.UniqueConstraint(
                fields=["list_name"], condition=Q(is_team_default=True), name="team_default_once_per_list"
            ),
            models.CheckConstraint(
                condition=Q(is_team=True) | Q(is_team_default=False), name="team_default_is_of_the_team"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class DefaultView(models.Model):
    """The view that a list opens with for one person; without a view, all rows whatever the team's default."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="default_views")
    list_name = models.CharField(max_length=MAX_KIND, choices=SavedList.choices)
    view = models.ForeignKey(SavedView, null=True, blank=True, on_delete=models.CASCADE, related_name="default_of")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "list_name"], name="default_view_once_per_list")]
