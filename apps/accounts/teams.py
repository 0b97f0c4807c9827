"""Teams: what people who own queries together are called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import ProtectedError

from apps.accounts.models import Team
from apps.core.errors import Conflict, Malformed, field_faults
from apps.core.limits import MAX_NAME
from apps.ledger.recorder import recorded
from engine.words import counted, listed

__all__ = ["team_create", "team_delete", "team_named", "team_update"]


def team_named(name: str) -> Team | None:
    """The team of a name, made where there is none; None for no name.

    Raises
    ------
    Malformed
        The name is too long.
    """
    name = name.strip()
    if not name:
        return None
    if len(name) > MAX_NAME:
        message = f"it has {len(name)} characters; at most {MAX_NAME} are allowed"
        raise Malformed(f"team: {message}.", [("team", message)])
    return Team.objects.filter(name=name).first() or team_create(name=name)


@recorded()
def team_create(*, name: str, description: str = "", clusters: Iterable[Any] = ()) -> Team:
    """Create a team, which owns nothing yet; in `clusters` its authors may register queries of it."""
    team = Team(name=name.strip(), description=description.strip())
    _check(team)
    team.save()
    Team.ledger_touch(team.pk)
    team.clusters.set(clusters)
    return team


@recorded()
def team_update(*, team: Team, clusters: Iterable[Any] | None = None, **fields: Any) -> Team:
    """Change a team's name, description or clusters; it owns what it owned, in whichever cluster."""
    for field, value in fields.items():
        setattr(team, field, value.strip())
    _check(team)
    team.save()
    if clusters is not None:
        Team.ledger_touch(team.pk)
        team.clusters.set(clusters)
    return team


@recorded()
def team_delete(*, team: Team) -> None:
    """Delete a team that owns nothing, with what was granted on it.

    Raises
    ------
    Conflict
        It owns something.
    """
    try:
        team.delete()
    except ProtectedError as error:
        kinds = Counter(type(row)._meta for row in error.protected_objects)
        owned = [counted(n, str(m.verbose_name), str(m.verbose_name_plural)) for m, n in kinds.items()]
        message = f"it owns {listed(owned)}"
        raise Conflict(f"The team {team.name!r} stays: {message}. Give them to another team first.") from None


def _check(team: Team) -> None:
    try:
        team.clean_fields()
    except ValidationError as error:
        faults = field_faults(error)
        raise Malformed(f"The team cannot be kept: {faults[0].path}: {faults[0].message}.", faults) from None
    if Team.objects.filter(name=team.name).exclude(pk=team.pk).exists():
        raise Conflict(f"There is a team {team.name!r} already.", [("name", "is taken")])
