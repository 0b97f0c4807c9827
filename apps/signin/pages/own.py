"""Pages: sessions, second factor and account at the provider of who is signed in."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters

from apps.accounts.attempts import attempt_begin
from apps.accounts.models import User
from apps.accounts.permissions import ScopeRequiredMixin, signed_in_user
from apps.core.reach import AskedOn
from apps.signin.forms import FirstCodeForm
from apps.signin.models import ProviderAccount
from apps.signin.pages.front import form_tried
from apps.signin.provider_accounts import provider_account_unlink
from apps.signin.second_factor import (
    code_taken,
    enrolment_of,
    has_second_factor,
    needs_second_factor,
    recovery_codes_left,
    recovery_codes_renew,
    second_factor_confirm,
    second_factor_remove,
)
from apps.signin.sessions import SignInWay, session_end, session_note, sessions_end, sessions_of

__all__ = [
    "RecoveryCodesView",
    "SecondFactorRemove",
    "SecondFactorView",
    "SessionEnd",
    "SessionsEnd",
    "SignInPage",
    "Unlink",
]


class _OwnPage(ScopeRequiredMixin, View):
    """Everyone may change how they sign in themselves."""

    asked_on = AskedOn.OWN
    write_scope = "read"


class SignInPage(_OwnPage):
    """`/settings/sign-in/`: sessions, second factor and the account at the provider."""

    def get(self, request: HttpRequest) -> HttpResponse:
        user = signed_in_user(request)
        provider = settings.PROVIDER
        account = ProviderAccount.objects.filter(user=user, issuer=provider.issuer).first() if provider else None
        context = {
            "sessions": sessions_of(user, request.session.session_key),
            "has_factor": has_second_factor(user),
            "needs_factor": needs_second_factor(user),
            "codes_left": recovery_codes_left(user),
            "provider": provider.name if provider else "",
            "account": account,
            "has_password": user.has_usable_password(),
        }
        return render(request, "signin/settings.html", context)


class SessionEnd(_OwnPage):
    """POST ends one of the own sessions."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, session_id: str) -> HttpResponse:
        session_end(user=signed_in_user(request), session_id=session_id)
        messages.success(request, "The session has ended, and its open pages with it.")
        return redirect("signin:settings")


class SessionsEnd(_OwnPage):
    """POST ends all other sessions of one's own."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest) -> HttpResponse:
        ended = sessions_end(user=signed_in_user(request), but=request.session.session_key)
        messages.success(request, f"Every other session of yours has ended ({ended}).")
        return redirect("signin:settings")


class Unlink(_OwnPage):
    """POST takes the account at the provider away."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest) -> HttpResponse:
        provider_account_unlink(user=signed_in_user(request))
        messages.success(request, "You sign in with your password alone.")
        return redirect("signin:settings")


@method_decorator(never_cache, name="dispatch")
class SecondFactorView(_OwnPage):
    """`/settings/second-factor/`: GET what the app is set up with, POST its first code."""

    def get(self, request: HttpRequest) -> HttpResponse:
        return self._page(request, FirstCodeForm())

    @method_decorator(sensitive_post_parameters())
    def post(self, request: HttpRequest) -> HttpResponse:
        user, form = signed_in_user(request), FirstCodeForm(request.POST)
        if form.is_valid():
            attempt = attempt_begin(request, user.get_username())
            codes = form_tried(form, lambda: second_factor_confirm(user=user, code=form.cleaned_data["code"]))
            if codes is not None:
                attempt.succeed()
                session_note(request, SignInWay.CODE)
                return render(request, "signin/recovery_codes.html", {"codes": "\n".join(codes)}, status=201)
        return self._page(request, form, 422)

    def _page(self, request: HttpRequest, form: FirstCodeForm, status: int = 200) -> HttpResponse:
        user = signed_in_user(request)
        if has_second_factor(user):
            return redirect("signin:settings")
        context = {"form": form, "enrolment": enrolment_of(user), "needed": needs_second_factor(user)}
        return render(request, "signin/second_factor.html", context, status=status)


class SecondFactorRemove(_OwnPage):
    """POST, with a code: no code is asked for any more."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest) -> HttpResponse:
        user = signed_in_user(request)
        if _is_code_right(request, user):
            second_factor_remove(user=user, by=user)
            messages.success(request, "No code is asked for any more.")
        return redirect("signin:settings")


@method_decorator(never_cache, name="dispatch")
class RecoveryCodesView(_OwnPage):
    """POST, with a code: new recovery codes in the place of the old ones."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest) -> HttpResponse:
        user = signed_in_user(request)
        if not _is_code_right(request, user):
            return redirect("signin:settings")
        return render(
            request, "signin/recovery_codes.html", {"codes": "\n".join(recovery_codes_renew(user=user))}, status=201
        )


def _is_code_right(request: HttpRequest, user: User) -> bool:
    """A session that was left open is no way to change the second factor."""
    attempt = attempt_begin(request, user.get_username())
    if not code_taken(user, request.POST.get("code", "")):
        messages.error(request, "This code is not right, or was used already. Nothing was changed.")
        return False
    attempt.succeed()
    return True
