"""Base of pages before the sign-in: whom they are for, and the beginning of a session."""

from __future__ import annotations

import time
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.utils.decorators import method_decorator
from django.utils.http import url_has_allowed_host_and_scheme
from django.views import View
from django.views.decorators.cache import never_cache

from apps.accounts.attempts import device_remember
from apps.accounts.models import User
from apps.core.body_sizes import SMALL
from apps.core.errors import SluiceError
from apps.ledger.entries import sign_in_recorded
from apps.signin.local_accounts import are_passwords_limited
from apps.signin.password_resets import can_mail_links
from apps.signin.provider import ProviderAnswer
from apps.signin.provider_accounts import provider_account_link, provider_session_begin
from apps.signin.session_store import PROVIDER_SESSION
from apps.signin.sessions import session_note

__all__ = [
    "ASKED",
    "LINK",
    "WAITING",
    "WAIT_S",
    "FrontView",
    "absolute_address",
    "address_after",
    "console_facts",
    "entered",
    "form_tried",
    "front_page",
    "session_enter",
    "unexpired",
]

_BACKEND = "django.contrib.auth.backends.ModelBackend"
WAITING = "sign_in_waiting"  # in the session: whose password was right, until the code is
ASKED = "sign_in_asked"  # in the session: what the provider was asked, by state
LINK = "sign_in_link"  # in the session: an account at the provider that waits for a password
WAIT_S = 600


def address_after(request: HttpRequest, wanted: str | None) -> str:
    """Where a sign-in leads: to an address of this console alone."""
    hosts, secure = {request.get_host()}, request.is_secure()
    is_own = bool(wanted) and url_has_allowed_host_and_scheme(wanted, allowed_hosts=hosts, require_https=secure)
    return str(wanted) if is_own else settings.LOGIN_REDIRECT_URL


def absolute_address(request: HttpRequest, path: str) -> str:
    """A path of this console as links from elsewhere need it."""
    return f"{settings.PUBLIC_URL}{path}" if settings.PUBLIC_URL else request.build_absolute_uri(path)


def console_facts() -> dict[str, object]:
    """Facts of this console that every page before the sign-in shows."""
    provider = settings.PROVIDER
    return {
        "demo": settings.DEMO,
        "provider": provider.name if provider else "",
        "limited": are_passwords_limited(),
        "can_mail_links": can_mail_links(),
    }


def front_page(request: HttpRequest, template: str, context: dict[str, object], status: int = 200) -> HttpResponse:
    """A page before the sign-in."""
    return render(request, f"signin/{template}.html", {**console_facts(), **context}, status=status)


@method_decorator(never_cache, name="dispatch")
class FrontView(View):
    """A view of somebody who is not known yet."""

    body_sizes = {"POST": SMALL}


def session_enter(request: HttpRequest, user: User, way: str, answer: ProviderAnswer | None = None) -> None:
    """Begin the session of a person."""
    login(request, user, backend=_BACKEND)
    session_note(request, way)
    sign_in_recorded(request, name=user.get_username(), key=user.pk, way=way)
    for name in (WAITING, ASKED, LINK, PROVIDER_SESSION):
        request.session.pop(name, None)
    if answer is not None:
        request.session[PROVIDER_SESSION] = provider_session_begin(user, answer).pk


def entered(request: HttpRequest, user: User, way: str, to: str) -> HttpResponse:
    """Begin the session of somebody whose password was right, and link the account at the provider that waits."""
    link = unexpired(request, LINK)
    session_enter(request, user, way)
    if link is not None:
        try:
            provider_account_link(user=user, subject=link["subject"], email=link["email"])
        except SluiceError as error:
            messages.error(request, f"Not linked. {error.message}")
        else:
            messages.success(request, f"From now on you can sign in with {settings.PROVIDER.name} as well.")
    response = HttpResponseRedirect(to)
    device_remember(request, response, user.get_username())
    return response


def unexpired(request: HttpRequest, name: str) -> dict[str, Any] | None:
    """An entry that a session holds under a name for a while; None without one, and once its time is over."""
    held = request.session.get(name)
    return held if isinstance(held, dict) and held.get("until", 0) > time.time() else None


def form_tried(form: Any, work: Any) -> Any:
    """The row that a service made, or None with its faults in the form."""
    try:
        return work()
    except SluiceError as error:
        for fault in error.faults:
            form.add_error(fault.path if fault.path in form.fields else None, fault.message)
        if not error.faults:
            form.add_error(None, error.message)
        return None
