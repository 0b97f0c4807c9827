"""Request rate of one caller."""

from __future__ import annotations

from typing import Any

from rest_framework.request import Request
from rest_framework.throttling import SimpleRateThrottle

from apps.core.counters import CountedWindow, count_up

__all__ = ["TokenRateThrottle"]


class TokenRateThrottle(SimpleRateThrottle):
    """A rate per token, else per signed-in user, else per address (`DEFAULT_THROTTLE_RATES["token"]`).

    Counted over all processes (`apps.core.counters`): it keeps one runaway script from starving people.
    """

    scope = "token"
    left_s = 0.0

    def allow_request(self, request: Request, view: Any) -> bool:
        window = CountedWindow(self.get_cache_key(request, view), int(self.num_requests), float(self.duration))
        self.left_s = count_up([window])
        return not self.left_s

    def wait(self) -> float | None:
        return self.left_s or None

    def get_cache_key(self, request: Request, view: Any) -> str:
        if request.auth is not None:
            caller = f"token:{request.auth.pk}"
        elif request.user and request.user.is_authenticated:
            caller = f"user:{request.user.pk}"
        else:
            caller = f"address:{self.get_ident(request)}"
        return f"rate:{caller}"
