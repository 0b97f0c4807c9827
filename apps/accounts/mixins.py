"""Who may see a page."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse

from apps.accounts.permissions import role_hint
from apps.core.errors import Forbidden, NotAuthenticated

__all__ = ["ScopeRequiredMixin", "require_scope"]


def require_scope(request: HttpRequest, scope: str) -> None:
    """Raise unless the signed-in person has the scope; the error page names the roles that have it."""
    if not request.user.is_authenticated:
        raise NotAuthenticated("Sign in first.")
    if scope not in request.user.scopes:
        raise Forbidden(
            f"Your role ({request.user.get_role_display()}) may not do this. {role_hint(scope)}", code="scope_missing"
        )


class ScopeRequiredMixin:
    """First base of a page's view. `scope` for reading, `write_scope` for everything but GET and HEAD."""

    scope = "read"
    write_scope = "operate"

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not request.user.is_authenticated:
            return _to_login(request)
        require_scope(request, self.scope if request.method in {"GET", "HEAD", "OPTIONS"} else self.write_scope)
        return super().dispatch(request, *args, **kwargs)  # type: ignore[misc]


def _to_login(request: HttpRequest) -> HttpResponse:
    """The login page, back to here afterwards; htmx has to leave the page rather than put the form into a part."""
    if getattr(request, "htmx", False):
        path = request.htmx.current_url_abs_path or "/"
        return HttpResponse(status=401, headers={"HX-Redirect": redirect_to_login(path).url})
    return redirect_to_login(request.get_full_path())
