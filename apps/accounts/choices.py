"""Roles of people and scopes of tokens."""

from django.db import models

__all__ = ["ROLE_SCOPES", "Role", "Scope", "TokenState"]


class Scope(models.TextChoices):
    """Permission of a caller. `admin` includes every other scope."""

    READ = "read", "Read"  #: see everything of the console
    ADMIT = "admit", "Admit"  #: apply, withdraw, approve and override admissions
    OPERATE = "operate", "Operate"  #: change clusters, queries, arrivals; preview admissions; run estimates
    INGEST = "ingest", "Ingest"  #: send telemetry and statistics
    ADMIN = "admin", "Administer"  #: manage people and tokens


class Role(models.TextChoices):
    """Role of a person in the console."""

    VIEWER = "viewer", "Viewer"  #: reads
    OPERATOR = "operator", "Operator"  #: reads and changes, previews admissions
    ADMITTER = "admitter", "Admitter"  #: an operator who also decides admissions
    ADMIN = "admin", "Administrator"  #: everything


class TokenState(models.TextChoices):
    """State of a token."""

    ACTIVE = "active", "Active"
    EXPIRED = "expired", "Expired"
    REVOKED = "revoked", "Revoked"


ROLE_SCOPES: dict[str, frozenset[str]] = {
    Role.VIEWER: frozenset({Scope.READ}),
    Role.OPERATOR: frozenset({Scope.READ, Scope.OPERATE, Scope.INGEST}),
    Role.ADMITTER: frozenset({Scope.READ, Scope.OPERATE, Scope.INGEST, Scope.ADMIT}),
    Role.ADMIN: frozenset(Scope.values),
}
