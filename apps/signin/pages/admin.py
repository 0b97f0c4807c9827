"""Pages of administrators: invitations and service accounts."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.cache import never_cache

from apps.accounts.forms import TokenForm
from apps.accounts.permissions import ScopeRequiredMixin, signed_in_user
from apps.accounts.services import ENDS_SOON, token_create, token_revoke, tokens_of
from apps.core.messages import Gone, Undelivered
from apps.signin.forms import InvitationForm, ServiceAccountForm
from apps.signin.invitations import (
    invitation_create,
    invitation_mail,
    invitation_revoke,
    invitations_listed,
)
from apps.signin.models import Invitation, ServiceAccount
from apps.signin.pages.front import absolute_address, form_tried
from apps.signin.password_resets import can_mail_links
from apps.signin.service_accounts import service_account_create, service_account_update, service_accounts_listed

__all__ = [
    "InvitationRevoke",
    "InvitationsPage",
    "ServiceAccountChange",
    "ServiceAccountPage",
    "ServiceAccountsPage",
    "ServiceTokenRevoke",
]


class _AdminPage(ScopeRequiredMixin, View):
    scope = write_scope = "admin"


@method_decorator(never_cache, name="dispatch")
class InvitationsPage(_AdminPage):
    """`/settings/people/invitations/`: the list; POST invites somebody and shows the link once."""

    def get(self, request: HttpRequest) -> HttpResponse:
        return self._page(request, InvitationForm())

    def post(self, request: HttpRequest) -> HttpResponse:
        form = InvitationForm(request.POST)
        by = signed_in_user(request)
        made = form_tried(form, lambda: invitation_create(by=by, **form.cleaned_data)) if form.is_valid() else None
        if made is None:
            return self._page(request, form, 422)
        invitation, secret = made
        link, mailed = absolute_address(request, reverse("signin:invitation", args=[secret])), ""
        if invitation.email and can_mail_links():
            try:
                invitation_mail(invitation, secret)
                mailed = f"It is on its way to {invitation.email}."
            except (Undelivered, Gone) as error:
                mailed = f"It was not mailed: {error}"
        context = {"invitation": invitation, "link": link, "mailed": mailed}
        return render(request, "signin/invited.html", context, status=201)

    def _page(self, request: HttpRequest, form: InvitationForm, status: int = 200) -> HttpResponse:
        context = {"form": form, "invitations": invitations_listed()[:200]}
        return render(request, "signin/invitations.html", context, status=status)


class InvitationRevoke(_AdminPage):
    """POST: the link of an invitation works no more."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        invitation = invitation_revoke(invitation=get_object_or_404(Invitation, pk=pk))
        messages.success(request, f"The invitation for {invitation.note} no longer works.")
        return redirect("signin:invitations")


class ServiceAccountsPage(_AdminPage):
    """`/settings/service-accounts/`: accounts of programs; POST makes one."""

    def get(self, request: HttpRequest) -> HttpResponse:
        return self._page(request, ServiceAccountForm())

    def post(self, request: HttpRequest) -> HttpResponse:
        form, by = ServiceAccountForm(request.POST), signed_in_user(request)
        made = form_tried(form, lambda: service_account_create(by=by, **form.cleaned_data)) if form.is_valid() else None
        if made is None:
            return self._page(request, form, 422)
        messages.success(request, f"{made.user.username} is there. Make a token for it.")
        return redirect("signin:service-account", made.pk)

    def _page(self, request: HttpRequest, form: ServiceAccountForm, status: int = 200) -> HttpResponse:
        context = {"form": form, "accounts": service_accounts_listed()[:500], "soon": timezone.now() + ENDS_SOON}
        return render(request, "signin/service_accounts.html", context, status=status)


@method_decorator(never_cache, name="dispatch")
class ServiceAccountPage(_AdminPage):
    """`/settings/service-accounts/<pk>/`: its tokens; POST makes one and shows its secret once."""

    def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        account = get_object_or_404(service_accounts_listed(), pk=pk)
        return self._page(request, account, TokenForm(account.user))

    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        account = get_object_or_404(service_accounts_listed(), pk=pk)
        form = TokenForm(account.user, request.POST)
        made = (
            form_tried(form, lambda: token_create(user=account.user, **form.arguments())) if form.is_valid() else None
        )
        if made is None:
            return self._page(request, account, form, 422)
        token, secret = made
        return render(request, "accounts/token_created.html", {"token": token, "secret": secret}, status=201)

    def _page(self, request: HttpRequest, account: Any, form: TokenForm, status: int = 200) -> HttpResponse:
        context = {"account": account, "tokens": tokens_of(account.user), "form": form}
        return render(request, "signin/service_account.html", context, status=status)


class ServiceAccountChange(_AdminPage):
    """POST switches an account of a program on or off."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        account = get_object_or_404(ServiceAccount, pk=pk)
        service_account_update(account=account, is_active=request.POST.get("is_active") == "true")
        messages.success(request, f"{account.user.username} is changed.")
        return redirect("signin:service-account", pk)


class ServiceTokenRevoke(_AdminPage):
    """POST revokes a token of an account of a program."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, pk: int, token_pk: int) -> HttpResponse:
        token = get_object_or_404(get_object_or_404(ServiceAccount, pk=pk).user.tokens, pk=token_pk)
        messages.success(request, f"The token {token_revoke(token=token)} no longer works.")
        return redirect("signin:service-account", pk)
