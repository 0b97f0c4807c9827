"""Roles of people and scopes of tokens."""

from django.db import models

__all__ = ["ROLE_SCOPES", "SCOPE_TEXTS", "Role", "Scope", "TokenState"]


class Scope(models.TextChoices):
    """Permission of a caller. `admin` includes every other scope, `operate` includes `author`."""

    READ = "read", "Read"
    ADMIT = "admit", "Admit"
    AUTHOR = "author", "Author"
    OPERATE = "operate", "Operate"
    INGEST = "ingest", "Ingest"
    ADMIN = "admin", "Administer"


SCOPE_TEXTS = {
    Scope.READ: "see what its owner may see",
    Scope.ADMIT: "apply, approve, decline and override admissions",
    Scope.AUTHOR: "register and edit queries, and ask for previews of their admission",
    Scope.OPERATE: "change clusters, queries and arrivals; ask for previews, estimates and plans",
    Scope.INGEST: "send telemetry and statistics",
    Scope.ADMIN: "manage people; all of the others",
}


class Role(models.TextChoices):
    """Role of a person or a group where it is granted; each includes those before it."""

    VIEWER = "viewer", "Viewer"  #: reads
    AUTHOR = "author", "Author"  #: registers and edits queries, previews their admission
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
    Role.AUTHOR: frozenset({Scope.READ, Scope.AUTHOR}),
    Role.OPERATOR: frozenset({Scope.READ, Scope.AUTHOR, Scope.OPERATE, Scope.INGEST}),
    Role.ADMITTER: frozenset({Scope.READ, Scope.AUTHOR, Scope.OPERATE, Scope.INGEST, Scope.ADMIT}),
    Role.ADMIN: frozenset(Scope.values),
}
