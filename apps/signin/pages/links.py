"""Pages that links in mails lead to: a new password, and an invitation."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import method_decorator
from django.views.decorators.debug import sensitive_post_parameters

from apps.accounts.attempts import request_begin
from apps.signin.forms import AcceptForm, ResetForm, ResetRequestForm
from apps.signin.invitations import invitation_accept, invitation_of
from apps.signin.pages.front import FrontView, entered, form_tried, front_page
from apps.signin.password_resets import can_mail_links, password_reset, password_reset_request, person_of_reset
from apps.signin.sessions import SignInWay

__all__ = ["InvitationView", "ResetRequestView", "ResetView"]


class ResetRequestView(FrontView):
    """`/login/forgotten/`: asks for a link. The answer is the same whether there is such an account or not."""

    def get(self, request: HttpRequest) -> HttpResponse:
        return front_page(request, "forgotten", {"form": ResetRequestForm()})

    def post(self, request: HttpRequest) -> HttpResponse:
        form = ResetRequestForm(request.POST)
        if not form.is_valid() or not can_mail_links():
            return front_page(request, "forgotten", {"form": form}, 422)
        request_begin(request, "reset", limit=5, window_s=3600, name=form.cleaned_data["name"])
        password_reset_request(form.cleaned_data["name"])
        return front_page(request, "forgotten", {"asked": True})


class ResetView(FrontView):
    """`/login/reset/<token>/`: another password by a link."""

    def get(self, request: HttpRequest, token: str) -> HttpResponse:
        return front_page(request, "reset", {"form": ResetForm(), "person": person_of_reset(token)})

    @method_decorator(sensitive_post_parameters())
    def post(self, request: HttpRequest, token: str) -> HttpResponse:
        person, form = person_of_reset(token), ResetForm(request.POST)
        if form.is_valid():
            password = form.cleaned_data["password"]
            if form_tried(form, lambda: password_reset(token=token, password=password)):
                return front_page(request, "reset", {"done": True})
        return front_page(request, "reset", {"form": form, "person": person}, 422)


class InvitationView(FrontView):
    """`/invitation/<token>/`: somebody who was invited makes an account."""

    def get(self, request: HttpRequest, token: str) -> HttpResponse:
        return front_page(request, "invitation", {"form": AcceptForm(), "invitation": invitation_of(token)})

    @method_decorator(sensitive_post_parameters())
    def post(self, request: HttpRequest, token: str) -> HttpResponse:
        invitation, form = invitation_of(token), AcceptForm(request.POST)
        if form.is_valid():
            values = {name: form.cleaned_data[name] for name in ("username", "password")}
            user = form_tried(form, lambda: invitation_accept(secret=token, **values))
            if user is not None:
                return entered(request, user, SignInWay.INVITATION, settings.LOGIN_REDIRECT_URL)
        return front_page(request, "invitation", {"form": form, "invitation": invitation}, 422)
