"""People, groups of them, teams, what they are granted, and tokens."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from django.apps import apps
from django.contrib.auth.models import AbstractUser, UserManager
from django.db import models
from django.db.models.functions import Coalesce
from django.utils import timezone

from apps.accounts.choices import ROLE_SCOPES, Role
from apps.accounts.reach import implied_scopes, reach_of_grants
from apps.core.labels import MAX_SELECTOR, selector_parse
from apps.core.limits import DIGEST_LENGTH, MAX_NAME, MAX_NOTE, MAX_TIME_ZONE, PREFIX_LENGTH
from apps.core.reach import Reach, caller_now
from apps.ledger.recorder import Tracked, TrackedQuerySet, add_related
from engine.words import listed

__all__ = ["Grant", "Group", "Team", "Token", "User"]


class PersonManager(UserManager.from_queryset(TrackedQuerySet)):  # type: ignore[misc] # made at run time
    """People, whose changes in bulk are recorded as well."""

    use_in_migrations = False


class User(Tracked, AbstractUser):
    """A person who signs in; grants to the person and to the groups that it is in decide what it may do where."""

    ledger_kind, ledger_name, ledger_cluster, ledger_kept = "person", "username", None, False
    ledger_ignored = frozenset({"last_login", "date_joined", "single_keys"})
    ledger_guarded = frozenset({"email"})
    ledger_secret = frozenset({"password"})

    objects = PersonManager()

    time_zone = models.CharField(
        max_length=MAX_TIME_ZONE, default="UTC", help_text="IANA name; every time is shown in it."
    )
    single_keys = models.BooleanField(default=True, help_text="Single-key shortcuts such as / and [.")

    @cached_property
    def reach(self) -> Reach:
        """Scopes of the person by where they hold, read once for each time that the person is read."""
        known = getattr(self, "_prefetched_objects_cache", {})
        if {"grants", "memberships"} <= known.keys():  # of a list of people
            grants = [*self.grants.all(), *(grant for group in self.memberships.all() for grant in group.grants.all())]
            rows = [(grant.role, grant.cluster_id, grant.team_id, grant.selector) for grant in grants]
        else:
            held = Grant.objects.filter(models.Q(user=self) | models.Q(group__members=self))
            rows = list(held.values_list("role", "cluster", "team", "selector"))
        return reach_of_grants([*rows, (Role.ADMIN, None, None, "")] if self.is_superuser else rows)

    @property
    def scopes(self) -> frozenset[str]:
        """Scopes on the cluster that the person's request is about, else those held somewhere at least."""
        caller = caller_now()
        return self.reach.anywhere if caller.here is None or caller.person != self.pk else caller.here

    @property
    def role(self) -> str:
        """The role on everything, granted to the person itself; empty without one."""
        grant = self.grants.filter(cluster=None, team=None).first()
        return grant.role if grant is not None else ""

    def get_role_display(self) -> str:
        """The highest role that the person has on everything, else what it has elsewhere, in words."""
        names = [role.label for role in Role if ROLE_SCOPES[role] <= self.reach.everything]
        if names:
            return str(names[-1])
        names = [role.label for role in Role if ROLE_SCOPES[role] <= self.scopes]
        return f"{names[-1]} in parts" if names else "No role"

    def save(self, *args: Any, **options: Any) -> None:
        """Store it; of somebody who is switched off no session is left that would go on when they are switched on."""
        super().save(*args, **options)
        if not self.is_active:
            self.browser_sessions.all().delete()

    def refresh_from_db(self, *args: Any, **options: Any) -> None:
        self.__dict__.pop("reach", None)
        super().refresh_from_db(*args, **options)


class Team(Tracked):
    """People who own queries together; its name is what lists and documents call it."""

    ledger_kind, ledger_cluster, ledger_kept = "team", None, False

    name = models.CharField(max_length=MAX_NAME, unique=True)
    description = models.CharField(max_length=MAX_NOTE, blank=True)
    clusters = models.ManyToManyField(
        "fleet.Cluster", related_name="teams", blank=True, help_text="Clusters that it may register its queries in."
    )
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @classmethod
    def ledger_more(cls, images: Mapping[Any, dict[str, Any]]) -> None:
        """Add the keys of its clusters."""
        add_related(images, cls.clusters.through, "team", "cluster")


class Group(Tracked):
    """People who are granted roles together."""

    ledger_kind, ledger_cluster, ledger_kept = "group", None, False

    name = models.CharField(max_length=MAX_NAME, unique=True)
    members = models.ManyToManyField(User, related_name="memberships", blank=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @classmethod
    def ledger_more(cls, images: Mapping[Any, dict[str, Any]]) -> None:
        """Add the keys of its members."""
        add_related(images, cls.members.through, "group", "user")


class Grant(Tracked):
    """A role given to a person or a group: on a cluster, what a selector of labels matches in it, what a team owns, or
    (without any of them) on everything.
    """

    ledger_kind, ledger_kept = "grant", False
    ledger_name = Coalesce("user__username", "group__name")

    user = models.ForeignKey(User, null=True, blank=True, on_delete=models.CASCADE, related_name="grants")
    group = models.ForeignKey(Group, null=True, blank=True, on_delete=models.CASCADE, related_name="grants")
    role = models.CharField(max_length=16, choices=Role.choices)
    cluster = models.ForeignKey("fleet.Cluster", null=True, blank=True, on_delete=models.CASCADE, related_name="grants")
    team = models.ForeignKey(Team, null=True, blank=True, on_delete=models.CASCADE, related_name="grants")
    selector = models.CharField(
        max_length=MAX_SELECTOR, blank=True, help_text="Of labels in the cluster, in its one form; empty: all of it."
    )
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(user__isnull=True) ^ models.Q(group__isnull=True), name="grant_has_one_holder"
            ),
            models.CheckConstraint(
                condition=models.Q(cluster__isnull=True) | models.Q(team__isnull=True), name="grant_has_one_place"
            ),
            models.CheckConstraint(
                condition=models.Q(selector="") | models.Q(cluster__isnull=False), name="grant_by_labels_in_a_cluster"
            ),
            models.UniqueConstraint(
                Coalesce("user", 0),
                Coalesce("group", 0),
                Coalesce("cluster", 0),
                Coalesce("team", 0),
                "selector",
                name="one_role_per_holder_and_place",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.get_role_display()} of {self.user or self.group} on {self.place}"

    @property
    def place(self) -> str:
        """Where it holds, in words."""
        if self.cluster is not None and self.selector:
            return f"what has labels in cluster {self.cluster}: {selector_parse(self.selector).words}"
        if self.cluster is not None:
            return f"cluster {self.cluster}"
        return "everything" if self.team is None else f"team {self.team}"


class Token(Tracked):
    """A bearer token of a user. Only its SHA-256 is stored; scopes never exceed its owner's role."""

    ledger_kind, ledger_cluster, ledger_kept = "token", None, False
    ledger_ignored = frozenset({"digest", "prefix", "last_used_at"})

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="tokens")
    name = models.CharField(max_length=MAX_NAME)
    prefix = models.CharField(max_length=PREFIX_LENGTH, help_text="First characters, to recognise it.")
    digest = models.CharField(max_length=DIGEST_LENGTH, unique=True)
    scopes = models.JSONField(default=list)
    networks = models.JSONField(default=list, blank=True, help_text="CIDR networks it may be used from; empty = any.")
    places: Any = models.JSONField(
        null=True, blank=True, help_text="Keys of what it is bound to, {clusters, teams}; empty: wherever its owner is."
    )
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"

    @cached_property
    def reach(self) -> Reach:
        """Scopes of it by where they hold: never more than its owner, also after the owner's roles were lowered."""
        reach = self.user.reach.within(implied_scopes(self.scopes))
        return reach if self.places is None else reach.bound(self.places["clusters"], self.places["teams"])

    @cached_property
    def bound_to(self) -> dict[str, list[str]]:
        """Slugs of clusters and names of teams that it is bound to, as far as they are there."""
        held = self.places or {"clusters": [], "teams": []}
        clusters = apps.get_model("fleet.Cluster")._base_manager.filter(pk__in=held["clusters"]).order_by("slug")
        teams = Team.objects.filter(pk__in=held["teams"])
        return {
            "clusters": list(clusters.values_list("slug", flat=True)) if held["clusters"] else [],
            "teams": list(teams.values_list("name", flat=True)) if held["teams"] else [],
        }

    @property
    def places_words(self) -> str:
        """Places that it is bound to, in words."""
        names = [f"cluster {slug}" for slug in self.bound_to["clusters"]]
        names += [f"team {name}" for name in self.bound_to["teams"]]
        return listed(names) if names else "what is no longer there"
