"""Roles of people and scopes of tokens."""

from django.db import models

__all__ = ["ROLE_SCOPES", "SCOPE_TEXTS", "Role", "Scope", "TokenState"]


class Scope(models.TextChoices):
    """Permission of a caller. `admin` includes every other scope."""

    READ = "read", "Read"
    ADMIT = "admit", "Admit"
    OPERATE = "operate", "Operate"
    INGEST = "ingest", "Ingest"
    ADMIN = "admin", "Administer"


SCOPE_TEXTS = {
    Scope.READ: "see everything of the console",
    Scope.ADMIT: "apply, approve, decline and override admissions",
    Scope.OPERATE: "change clusters, queries and arrivals; ask for previews, estimates and plans",
    Scope.INGEST: "send telemetry and statistics",
    Scope.ADMIN: "manage people; all of the others",
}


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
