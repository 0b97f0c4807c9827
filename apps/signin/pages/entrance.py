"""Pages: signing in, with the second factor or at the provider, and out."""

from __future__ import annotations

import time
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.views import LoginView as DjangoLoginView
from django.contrib.auth.views import LogoutView as DjangoLogoutView
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.debug import sensitive_post_parameters

from apps.accounts.attempts import SignInAttempt, attempt_begin, request_begin
from apps.accounts.models import User
from apps.accounts.permissions import signed_in_user
from apps.core.body_sizes import SMALL
from apps.core.errors import Malformed, SluiceError
from apps.core.events import announce_session_end
from apps.ledger.entries import sign_in_recorded
from apps.signin.forms import CodeForm
from apps.signin.local_accounts import SignInForm
from apps.signin.models import ProviderSession
from apps.signin.pages.front import (
    ASKED,
    LINK,
    WAIT_S,
    WAITING,
    FrontView,
    absolute_address,
    address_after,
    console_facts,
    entered,
    front_page,
    session_enter,
    unexpired,
)
from apps.signin.provider import Provider, ProviderAnswer, ProviderEnded
from apps.signin.provider_accounts import (
    LinkNeeded,
    id_token_of,
    person_of_answer,
    provider_account_link,
    provider_sessions_end,
)
from apps.signin.second_factor import code_taken, has_second_factor
from apps.signin.session_store import PROVIDER_SESSION
from apps.signin.sessions import SignInWay

__all__ = [
    "CodeView",
    "LinkView",
    "LoginView",
    "LogoutView",
    "ProviderAnswerView",
    "ProviderLogoutView",
    "ProviderView",
]

_MAX_ASKED = 5  # tabs that sign in at once


class LoginView(DjangoLoginView):
    """`/login/`: GET shows the form, POST signs in; too many failures become the error page 429."""

    body_sizes = {"POST": SMALL}
    template_name = "signin/login.html"
    form_class = authentication_form = SignInForm
    redirect_authenticated_user = True

    attempt: SignInAttempt

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        self.attempt = attempt_begin(request, request.POST.get("username", ""))
        return super().post(request, *args, **kwargs)

    def form_valid(self, form: Any) -> HttpResponse:
        user = form.get_user()
        if has_second_factor(user):  # the attempt goes on counting, or codes could be guessed by repeating the password
            waiting = {"user": user.pk, "until": time.time() + WAIT_S, "next": self.get_redirect_url()}
            self.request.session.cycle_key()
            self.request.session[WAITING] = {**waiting, "hash": user.get_session_auth_hash()}
            return redirect("signin:code")
        self.attempt.succeed()
        return entered(self.request, user, SignInWay.PASSWORD, self.get_success_url())

    def form_invalid(self, form: Any) -> HttpResponse:
        person = User.objects.filter(username__iexact=form.data.get("username", "").strip()).first()
        key, name = (person.pk, person.username) if person is not None else (None, "")
        sign_in_recorded(self.request, name=name, key=key, refusal="The user name or the password was wrong.")
        response = super().form_invalid(form)
        response.status_code = 422
        return response

    def get_context_data(self, **kwargs: Any) -> dict[str, object]:
        return super().get_context_data(**console_facts(), **kwargs)


class CodeView(FrontView):
    """`/login/code/`: the code after the password."""

    def get(self, request: HttpRequest) -> HttpResponse:
        if unexpired(request, WAITING) is None:
            return redirect("signin:login")
        return front_page(request, "code", {"form": CodeForm()})

    @method_decorator(sensitive_post_parameters())
    def post(self, request: HttpRequest) -> HttpResponse:
        waiting = unexpired(request, WAITING)
        user = User.objects.filter(pk=waiting["user"], is_active=True).first() if waiting else None
        if waiting is None or user is None or waiting["hash"] != user.get_session_auth_hash():
            return redirect("signin:login")
        form = CodeForm(request.POST)
        if form.is_valid():
            attempt = attempt_begin(request, user.get_username())
            if code_taken(user, form.cleaned_data["code"]):
                attempt.succeed()
                return entered(request, user, SignInWay.CODE, address_after(request, waiting["next"]))
            form.add_error("code", "This code is not right, or was used already.")
            sign_in_recorded(request, name=user.username, key=user.pk, refusal="The code after the password was wrong.")
        return front_page(request, "code", {"form": form}, 422)


class LogoutView(DjangoLogoutView):
    """`/logout/`: POST ends the session, the open pages of it, and the provider's session where it began there."""

    next_page = "signin:login"

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        user = request.user
        kept = ProviderSession.objects.filter(pk=request.session.get(PROVIDER_SESSION)).first()
        id_token = id_token_of(kept)
        response = super().post(request, *args, **kwargs)
        if kept is not None:
            kept.delete()
        if user.is_authenticated:
            announce_session_end(user.pk)
        provider = Provider.configured()
        if not id_token or provider is None:
            return response
        try:
            url = provider.logout_url(id_token, absolute_address(request, reverse("signin:login")))
        except SluiceError:
            url = ""
        # not by a redirect: browsers hold a form's redirects against `form-action` of the page that it was on
        left = front_page(request, "left", {"url": url})
        if url:
            left.headers["Refresh"] = f"1; url={url}"
        return left


class ProviderView(FrontView):
    """`/login/provider/`: begins a sign-in at the provider, or (POST, signed in) links one's account there."""

    http_method_names = ["get", "post"]

    def get(self, request: HttpRequest) -> HttpResponse:
        return self._begin(request, None)

    def post(self, request: HttpRequest) -> HttpResponse:
        return self._begin(request, signed_in_user(request).pk)

    def _begin(self, request: HttpRequest, person: int | None) -> HttpResponse:
        provider = Provider.configured()
        if provider is None:
            return redirect("signin:login")
        # each leaves a session behind, and asks the provider
        request_begin(request, "provider", limit=100, window_s=300)
        try:
            asked = provider.begin(absolute_address(request, reverse("signin:provider-answer")))
        except SluiceError as error:
            return _refused(request, error)
        now = time.time()
        held = {state: entry for state, entry in request.session.get(ASKED, {}).items() if entry["until"] > now}
        newest = sorted(held, key=lambda state: held[state]["until"])[-_MAX_ASKED + 1 :]
        entry = {"nonce": asked.nonce, "verifier": asked.code_verifier, "until": now + WAIT_S, "person": person}
        entry["next"] = reverse("signin:settings") if person else address_after(request, request.GET.get("next"))
        request.session[ASKED] = {**{state: held[state] for state in newest}, asked.state: entry}
        if person:  # see LogoutView
            return front_page(request, "leave", {"url": asked.url})
        return HttpResponseRedirect(asked.url)


class ProviderAnswerView(FrontView):
    """`/login/provider/answer/`: the provider sends the browser back here."""

    http_method_names = ["get"]

    def get(self, request: HttpRequest) -> HttpResponse:
        asked = dict(request.session.get(ASKED, {}))
        entry = asked.pop(request.GET.get("state", ""), None)
        provider = Provider.configured()
        if entry is None or provider is None or entry["until"] < time.time():
            return _refused(request, ProviderEnded("This sign-in did not begin here, or took too long. Begin again."))
        request.session[ASKED] = asked  # each state counts once
        request.session.save()
        try:
            return self._finish(request, provider, entry)
        except SluiceError as error:
            return _refused(request, error)

    def _finish(self, request: HttpRequest, provider: Provider, entry: dict[str, Any]) -> HttpResponse:
        issuer = request.GET.get("iss", "")
        if issuer and issuer.rstrip("/") != provider.options.issuer.rstrip("/"):  # RFC 9207
            raise ProviderEnded("The answer comes from another provider than was asked. Begin again.")
        if "code" not in request.GET:
            raise ProviderEnded(f"{provider.options.name} did not sign you in.")
        address = absolute_address(request, reverse("signin:provider-answer"))
        answer = provider.finish(address, request.GET["code"], entry["nonce"], entry["verifier"])
        if entry["person"] is not None:
            return self._link(request, answer, entry)
        try:
            user = person_of_answer(answer)
        except LinkNeeded:
            held = {"subject": answer.subject, "email": answer.verified_email, "until": time.time() + WAIT_S}
            request.session[LINK] = held
            return redirect("signin:link")
        session_enter(request, user, SignInWay.PROVIDER, answer)
        return HttpResponseRedirect(entry["next"])

    def _link(self, request: HttpRequest, answer: ProviderAnswer, entry: dict[str, Any]) -> HttpResponse:
        if request.user.pk != entry["person"]:
            raise ProviderEnded("Somebody else has signed in here meanwhile. Nothing was linked.")
        provider_account_link(user=signed_in_user(request), subject=answer.subject)
        messages.success(request, f"From now on you can sign in with {settings.PROVIDER.name} as well.")
        return redirect("signin:settings")


def _refused(request: HttpRequest, error: SluiceError) -> HttpResponse:
    """The sign-in page with what went wrong: local accounts go on."""
    response = front_page(request, "login", {"form": SignInForm(request), "refusal": error.message}, error.status)
    for name, value in error.headers.items():
        response.headers[name] = value
    return response


class LinkView(LoginView):
    """`/login/link/`: the password of the account whose address the provider vouches for; then both are one."""

    redirect_authenticated_user = False

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if unexpired(request, LINK) is None:
            return redirect("signin:login")
        return super().dispatch(request, *args, **kwargs)

    def get_context_data(self, **kwargs: Any) -> dict[str, object]:
        return super().get_context_data(linking=unexpired(self.request, LINK), **kwargs)


@method_decorator(csrf_exempt, name="dispatch")
class ProviderLogoutView(FrontView):
    """`/login/provider/logout/`: the provider says that a session ended there (OpenID Connect Back-Channel Logout)."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest) -> HttpResponse:
        provider = Provider.configured()
        if provider is None:
            raise Malformed("There is no provider.")
        provider_sessions_end(*provider.read_logout(request.POST.get("logout_token", "")))
        return HttpResponse(status=200)
