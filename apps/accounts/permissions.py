"""Scopes: which one an API call or a page needs, and whether its caller has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from apps.accounts.choices import ROLE_SCOPES, Role, Scope
from apps.accounts.models import Token, User
from apps.core.errors import Forbidden, NotAuthenticated
from apps.core.reach import AskedOn, caller_now, check_row

__all__ = [
    "ScopePermission",
    "ScopeRequiredMixin",
    "SessionOnly",
    "enter_caller",
    "needed_scope",
    "redirect_to_sign_in",
    "require_scope",
    "role_hint",
    "scopes_of",
    "signed_in_user",
]


class ScopePermission(BasePermission):
    """The caller needs the scope that the view's `scopes` names for the method.

    `scopes = {"POST": "admit"}`; a viewset's action may stand instead of a method: `{"apply": "admit"}`. Without an
    entry reading needs `read` and everything else `operate`.
    """

    def has_permission(self, request: Request, view: Any) -> bool:
        if not request.user or not request.user.is_authenticated:
            return False  # REST framework makes it 401
        needed = needed_scope(request.method or "", view)
        asked_on = getattr(view, "asked_on", AskedOn.CONSOLE)
        enter_caller(request, needed, asked_on)
        if needed not in scopes_of(signed_in_user(request), request.auth):
            caller = f"The token {request.auth}" if isinstance(request.auth, Token) else "Your role"
            raise Forbidden(
                f"{caller} does not have the scope {str(needed)!r}. {role_hint(needed)}", code="scope_missing"
            )
        caller_now().check_asked_on(asked_on)
        return True

    def has_object_permission(self, request: Request, view: Any, obj: Any) -> bool:
        check_row(obj)
        return True


class SessionOnly(BasePermission):
    """Sessions only: a stolen token must not create another one."""

    def has_permission(self, request: Request, view: Any) -> bool:
        if isinstance(request.auth, Token):
            raise Forbidden("A token cannot change tokens. Sign in to do it.", code="session_only")
        return True


def needed_scope(method: str, view: Any) -> str:
    """The scope that a view asks of a method, or of the action that answers it."""
    scopes: Mapping[str, str] = getattr(view, "scopes", {})
    default = Scope.READ if method in SAFE_METHODS else Scope.OPERATE
    return scopes.get(getattr(view, "action", None) or "", scopes.get(method, default))


def signed_in_user(request: HttpRequest | Request) -> User:
    """The person behind a request, who may act through a token. Raises NotAuthenticated for strangers."""
    if not isinstance(request.user, User):
        raise NotAuthenticated("Sign in first.")
    return request.user


def scopes_of(user: User, token: object = None) -> frozenset[str]:
    """Scopes of the caller, on the cluster that the request is about once that is known.

    A token has never more than its owner, also after the owner's role was lowered.
    """
    caller = caller_now()
    if caller.here is not None and caller.person == user.pk:
        return caller.here
    return token.reach.anywhere if isinstance(token, Token) else user.scopes


def enter_caller(request: HttpRequest | Request, needed: str, asked_on: str) -> None:
    """Say who asks, which scope what they ask for needs, and where."""
    user, token = signed_in_user(request), getattr(request, "auth", None)
    reach = token.reach if isinstance(token, Token) else user.reach
    caller_now().enter(reach, user.pk, needed, role_hint(needed), asked_on, user.reach)


def role_hint(scope: str) -> str:
    """Sentence that names the roles with a scope."""
    roles = [str(Role(role).label) for role, scopes in ROLE_SCOPES.items() if scope in scopes]
    return f"It needs the role {' or '.join(roles)}."


def require_scope(request: HttpRequest, scope: str) -> None:
    """Raise unless the signed-in person has the scope; the error page names the roles that have it."""
    if not request.user.is_authenticated:
        raise NotAuthenticated("Sign in first.")
    if scope not in request.user.scopes:
        raise Forbidden(
            f"Your role ({request.user.get_role_display()}) may not do this. {role_hint(scope)}", code="scope_missing"
        )


class ScopeRequiredMixin:
    """First base of a page's view. `scope` for reading, `write_scope` for everything but GET and HEAD.

    `asked_on` is where it asks for them.
    """

    scope = "read"
    write_scope = "operate"
    asked_on: str = AskedOn.CONSOLE

    def setup(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        super().setup(request, *args, **kwargs)  # type: ignore[misc]
        if request.user.is_authenticated:
            enter_caller(request, self.needed_scope(request), self.asked_on)

    def needed_scope(self, request: HttpRequest) -> str:
        return self.scope if request.method in {"GET", "HEAD", "OPTIONS"} else self.write_scope

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not request.user.is_authenticated:
            return redirect_to_sign_in(request)
        require_scope(request, self.needed_scope(request))
        caller_now().check_asked_on(self.asked_on)
        return super().dispatch(request, *args, **kwargs)  # type: ignore[misc]


def redirect_to_sign_in(request: HttpRequest) -> HttpResponse:
    """Lead to the sign-in page and back; an htmx request leaves the page rather than show the form in a part."""
    htmx = getattr(request, "htmx", None)
    if htmx:
        path = htmx.current_url_abs_path or "/"
        return HttpResponse(status=401, headers={"HX-Redirect": redirect_to_login(path).url})
    return redirect_to_login(request.get_full_path())
