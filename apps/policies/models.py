"""Versions of a cluster's policy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models.functions import Cast, Concat
from django.utils import timezone

from apps.accounts.models import Team
from apps.core.limits import MAX_REASON
from apps.fleet.models import Cluster
from apps.ledger.recorder import Tracked
from engine.policies.policy import ClusterPolicy

__all__ = ["PolicyVersion"]


class PolicyVersion(Tracked):
    """A policy of a cluster as it was once applied. It never changes; the cluster's `policy_version` is in force."""

    ledger_kind = "policy"
    ledger_name = Concat(models.Value("version "), Cast("number", models.CharField()))
    ledger_kept = False

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="policy_versions")
    number = models.PositiveIntegerField(help_text="Counts from 1 in each cluster.")
    document: Any = models.JSONField(help_text="As engine.policies reads it.")
    teams = models.JSONField(default=dict, help_text="{name: key} of the teams that it names: they may be renamed.")
    note = models.CharField(max_length=MAX_REASON, blank=True, help_text="Why it was changed.")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-number"]
        constraints = [models.UniqueConstraint(fields=["cluster", "number"], name="policy_number_once_per_cluster")]

    def __str__(self) -> str:
        return f"version {self.number}"

    @property
    def policy(self) -> ClusterPolicy:
        """The policy that its document describes."""
        return self._renamed(ClusterPolicy.parse(self.document))

    def _renamed(self, policy: ClusterPolicy) -> ClusterPolicy:
        """The policy with the present names of teams that were renamed since: their quotas stay theirs."""
        names = dict(Team.objects.filter(pk__in=self.teams.values()).values_list("pk", "name")) if self.teams else {}
        now = {name: names.get(key, name) for name, key in self.teams.items()}
        if all(name == other for name, other in now.items()):
            return policy
        teams = tuple(replace(entry, team=now.get(entry.team, entry.team)) for entry in policy.teams)
        freezes = tuple(
            replace(freeze, teams=tuple(now.get(team, team) for team in freeze.teams)) for freeze in policy.freezes
        )
        return replace(policy, teams=teams, freezes=freezes)
