"""Pages: own settings, own password and own tokens."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters

from apps.accounts.attempts import attempt_begin
from apps.accounts.forms import PasswordForm, ProfileForm, TokenForm
from apps.accounts.models import User
from apps.accounts.permissions import ScopeRequiredMixin, signed_in_user
from apps.accounts.services import password_change, token_create, token_revoke, tokens_of
from apps.core.errors import SluiceError
from apps.core.reach import AskedOn

__all__ = ["PasswordView", "SettingsView", "TokenRevokeView", "TokensView"]


class _OwnSettings(ScopeRequiredMixin, View):
    """Everyone may change their own settings: the read scope is enough."""

    asked_on = AskedOn.OWN
    write_scope = "read"

    def page(
        self,
        form: ProfileForm | None = None,
        token_form: TokenForm | None = None,
        password_form: PasswordForm | None = None,
    ) -> HttpResponse:
        user = signed_in_user(self.request)
        faulty = any(given is not None and given.errors for given in (form, token_form, password_form))
        context = {
            "form": form or ProfileForm(instance=user),
            "token_form": token_form or TokenForm(user),
            "password_form": password_form or PasswordForm(),
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


class PasswordView(_OwnSettings):
    """`/settings/password/`: POST changes the own password. Other sessions end; this one goes on."""

    http_method_names = ["post"]

    @method_decorator(sensitive_post_parameters())
    def post(self, request: HttpRequest) -> HttpResponse:
        user = User.objects.get(pk=signed_in_user(request).pk)
        form = PasswordForm(request.POST)
        if not form.is_valid():
            return self.page(password_form=form)
        attempt = attempt_begin(request, user.get_username())  # a session left open is no way to guess the password
        try:
            password_change(user=user, current=form.cleaned_data["current"], password=form.cleaned_data["password"])
        except SluiceError as error:
            for fault in error.faults:
                form.add_error(fault.path, fault.message)
            return self.page(password_form=form)
        attempt.succeed()
        update_session_auth_hash(request, user)
        messages.success(request, "Your password is changed. Every other session of yours has ended.")
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
