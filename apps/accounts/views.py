"""Pages: sign-in and sign-out, own settings and own tokens. Failed sign-ins are slowed down."""

from __future__ import annotations

import hashlib
import unicodedata
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.views import LoginView as DjangoLoginView
from django.core.cache import cache
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.cache import never_cache

from apps.accounts.forms import ProfileForm, TokenForm
from apps.accounts.models import User
from apps.accounts.permissions import ScopeRequiredMixin, signed_in_user
from apps.accounts.selectors import tokens_of
from apps.accounts.services import token_create, token_revoke
from apps.core.errors import SluiceError, TooMany

__all__ = [
    "ALLOWED",
    "PER_ADDRESS",
    "WINDOW_S",
    "LoginView",
    "SettingsView",
    "TokenRevokeView",
    "TokensView",
    "attempts_check",
    "attempts_clear",
    "attempts_count",
]


# Counted in the memory of each web process, like the API's rate: n processes allow n times as many.
ALLOWED = 5  # per name and address
PER_ADDRESS = 50  # over all names: guessing one password for many names
WINDOW_S = 300


def attempts_check(username: str, address: str) -> None:
    """Raise TooMany when this address has failed too often lately."""
    counts = cache.get_many(_keys(username, address))
    for key, limit in zip(_keys(username, address), (ALLOWED, PER_ADDRESS), strict=True):
        if counts.get(key, 0) >= limit:
            minutes = WINDOW_S // 60
            raise TooMany(f"Too many failed sign-ins. Wait {minutes} minutes and try again.", retry_after_s=WINDOW_S)


def attempts_count(username: str, address: str) -> None:
    """Count a failure."""
    for key in _keys(username, address):
        if not cache.add(key, 1, WINDOW_S):
            try:
                cache.incr(key)
            except ValueError:  # it expired in between
                cache.set(key, 1, WINDOW_S)


def attempts_clear(username: str, address: str) -> None:
    """Reset the count of a name after a success; the address keeps its own."""
    cache.delete(_keys(username, address)[0])


def _keys(username: str, address: str) -> tuple[str, str]:
    # as the login form reads it: blanks around a name or full-width letters must not buy further attempts
    typed = unicodedata.normalize("NFKC", username).strip().casefold()
    name = hashlib.sha256(f"{typed}\n{address}".encode()).hexdigest()[:32]
    return f"signin:{name}", f"signin-from:{hashlib.sha256(address.encode()).hexdigest()[:32]}"


class LoginView(DjangoLoginView):
    """GET shows the form, POST signs in; too many failures become the error page 429."""

    template_name = "accounts/login.html"
    redirect_authenticated_user = True

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        attempts_check(*self._who())
        return super().post(request, *args, **kwargs)

    def form_valid(self, form: Any) -> HttpResponse:
        attempts_clear(*self._who())
        return super().form_valid(form)

    def form_invalid(self, form: Any) -> HttpResponse:
        attempts_count(*self._who())
        response = super().form_invalid(form)
        response.status_code = 422
        return response

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(demo=settings.DEMO, **kwargs)

    def _who(self) -> tuple[str, str]:
        return self.request.POST.get("username", ""), self.request.META.get("REMOTE_ADDR", "")


class _OwnSettings(ScopeRequiredMixin, View):
    """Everyone may change their own settings: the read scope is enough."""

    write_scope = "read"

    def page(self, form: ProfileForm | None = None, token_form: TokenForm | None = None) -> HttpResponse:
        user = signed_in_user(self.request)
        faulty = (form is not None and form.errors) or (token_form is not None and token_form.errors)
        context = {
            "form": form or ProfileForm(instance=user),
            "token_form": token_form or TokenForm(user),
            "tokens": tokens_of(user),
        }
        return render(self.request, "accounts/settings.html", context, status=422 if faulty else 200)


class SettingsView(_OwnSettings):
    """`/settings/`: GET the page, POST the profile form."""

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.page()

    def post(self, request: HttpRequest) -> HttpResponse:
        form = ProfileForm(request.POST, instance=User.objects.get(pk=signed_in_user(request).pk))
        if not form.is_valid():
            return self.page(form=form)
        form.save()
        messages.success(request, "Settings saved.")
        return redirect("accounts:settings")


@method_decorator(never_cache, name="dispatch")
class TokensView(_OwnSettings):
    """`/settings/tokens/`: GET the settings page, POST makes a token and shows its secret once."""

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.page()

    def post(self, request: HttpRequest) -> HttpResponse:
        form = TokenForm(signed_in_user(request), request.POST)
        if not form.is_valid():
            return self.page(token_form=form)
        try:
            token, secret = token_create(user=signed_in_user(request), **form.arguments())
        except SluiceError as error:
            for fault in error.faults:
                field = fault.path.partition("[")[0]
                form.add_error(field if field in form.fields else None, fault.message)
            return self.page(token_form=form)
        return render(request, "accounts/token_created.html", {"token": token, "secret": secret}, status=201)


class TokenRevokeView(_OwnSettings):
    """`/settings/tokens/<pk>/revoke/`: POST revokes an own token."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        token = token_revoke(token=get_object_or_404(signed_in_user(request).tokens, pk=pk))
        messages.success(request, f"The token {token} no longer works.")
        return redirect("accounts:settings")
