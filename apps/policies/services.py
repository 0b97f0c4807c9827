"""Policies checked and applied."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any

from django.db.models import Max

from apps.accounts.choices import Scope
from apps.accounts.models import Team, User
from apps.core.errors import Conflict, Fault, Malformed, fault_count
from apps.core.events import announce
from apps.core.limits import MAX_REASON
from apps.fleet.models import Cluster
from apps.fleet.services import cluster_announce, cluster_locked
from apps.ledger.recorder import recorded
from apps.policies.models import PolicyVersion
from apps.policies.selectors import policy_of, policy_version_numbered
from engine.errors import suggestion
from engine.policies.policy import ClusterPolicy, OverrideRules
from engine.records import BAD
from engine.words import listed

__all__ = ["AppliedPolicy", "policy_apply", "policy_check", "policy_restore"]


@dataclass(frozen=True)
class AppliedPolicy:
    """The policy in force after an apply, and whether it is a new version."""

    policy: ClusterPolicy
    version: PolicyVersion | None  #: None: none was ever set, and this is what holds by default
    is_new: bool


def policy_check(*, cluster: Cluster, document: Any) -> ClusterPolicy:
    """Read a policy of a cluster.

    Raises
    ------
    Malformed
        With every fault: of the document, names of teams and pools that there are none of, and rules that nobody could
        act by.
    """
    faults: list[Fault] = []
    read = ClusterPolicy.read_parts(document, "", "", faults)
    if read is not BAD:
        faults += _name_faults(cluster, read)
        faults += _second_person_faults(cluster, read)
    if faults:
        raise Malformed(f"The policy has {fault_count(faults)}; first: {faults[0].message}.", faults)
    return read  # type: ignore[no-any-return]  # read whole, since it has no fault


def _name_faults(cluster: Cluster, policy: Any) -> list[Fault]:
    pools = list(cluster.pools.values_list("name", flat=True))
    teams = list(Team.objects.values_list("name", flat=True))
    named = [("team", policy.named_teams, teams), ("pool", policy.named_pools, pools)]
    faults = []
    for noun, names, known in named:
        for path, name in names:
            if name not in known:
                allowed = (
                    suggestion(name, known) or f"; allowed: {listed(known, 20) if known else 'none, there are none'}"
                )
                faults.append(Fault(path, f"{noun} is {name!r}, which is no {noun} that is known{allowed}"))
    return faults


def _second_person_faults(cluster: Cluster, policy: Any) -> list[Fault]:
    """Overrides that need a second person where there is none: nobody could ever override."""
    overrides: list[tuple[str, OverrideRules]] = []
    if policy.override is not BAD:
        overrides.append(("override", policy.override))
    for i, team in policy.readable_teams:
        if team.override is not None:
            overrides.append((f"teams[{i}].override", team.override))
    faults = []
    for path, rules in overrides:
        if not rules.second_person:
            continue
        needed = Scope.ADMIT if "admitter" in rules.roles else Scope.ADMIN
        people = User.objects.filter(is_active=True).iterator()
        count = len(list(islice((user for user in people if needed in user.reach.on_cluster(cluster.pk)), 2)))
        if count < 2:
            whom = "nobody who is active has" if not count else "only one active person has"
            told = f"second_person is true, but {whom} a role of {', '.join(rules.roles)} here"
            faults.append(Fault(f"{path}.second_person", f"{told}; allowed: false"))
    return faults


@recorded()
def policy_apply(
    *, cluster: Cluster, document: Any, user: User | None, note: str = "", base: int | None = None
) -> AppliedPolicy:
    """Put a policy into force as a new version; one that says the same as the present one changes nothing.

    `base` is the version that it was made from, where somebody knows: another in force since is a conflict.

    Raises
    ------
    Malformed
        As of `policy_check`; nothing is stored.
    Conflict
        Another version than `base` is in force.
    """
    cluster.refresh_from_db(from_queryset=cluster_locked(cluster))
    policy = policy_check(cluster=cluster, document=document)
    if base is not None and base != cluster.policy_version:
        message = f"version {cluster.policy_version} is in force by now, not {base}"
        raise Conflict(f"The policy has changed meanwhile: {message}.", [("base", message)], code="policy_moved")
    versions = cluster.policy_versions
    if policy == policy_of(cluster):
        return AppliedPolicy(policy, versions.filter(number=cluster.policy_version).first(), is_new=False)
    number = (versions.aggregate(newest=Max("number"))["newest"] or 0) + 1
    names = {name for _, name in policy.named_teams}
    version = PolicyVersion.objects.create(
        cluster=cluster,
        number=number,
        document=policy.to_dict(),
        teams=dict(Team.objects.filter(name__in=names).values_list("name", "pk")),
        note=note[:MAX_REASON],
        created_by=user,
    )
    cluster.policy_version = number
    cluster.save(update_fields=["policy_version", "updated_at"])
    announce(f"policy:{cluster.slug}")
    cluster_announce(cluster)
    return AppliedPolicy(policy, version, is_new=True)


def policy_restore(*, cluster: Cluster, number: int, user: User | None, note: str = "") -> AppliedPolicy:
    """Put an older version into force again, as a new one."""
    old = policy_version_numbered(cluster, number)
    words = note or f"Back to version {number}"
    return policy_apply(cluster=cluster, document=old.policy.to_dict(), user=user, note=words)
