"""Settings of the provider, as the environment gives them."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["ProviderSettings"]


@dataclass(frozen=True)
class ProviderSettings:
    """Where the OpenID provider is and what it knows of us (docs/operations.md)."""

    name: str  #: as people know it; stands on the button
    issuer: str
    client_id: str
    client_secret: str = field(repr=False)
    scopes: str = "openid profile email"
    groups_claim: str = "groups"
    username_claim: str = "preferred_username"
