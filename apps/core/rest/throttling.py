"""Request rate of one caller."""

from __future__ import annotations

from typing import Any

from rest_framework.request import Request
from rest_framework.throttling import SimpleRateThrottle

__all__ = ["TokenRateThrottle"]


class TokenRateThrottle(SimpleRateThrottle):
    """A rate per token, else per signed-in user, else per address (`DEFAULT_THROTTLE_RATES["token"]`).

    Counted in the memory of each web process: with n processes a caller reaches up to n times the rate. That is enough
    to keep one runaway script from starving people, and needs no Redis.
    """

    scope = "token"

    def get_cache_key(self, request: Request, view: Any) -> str:
        if request.auth is not None:
            caller = f"token:{request.auth.pk}"
        elif request.user and request.user.is_authenticated:
            caller = f"user:{request.user.pk}"
        else:
            caller = f"address:{self.get_ident(request)}"
        return self.cache_format % {"scope": self.scope, "ident": caller}
