"""Pages: signing in and out, links that are mailed, one's sessions and second factor, and invitations."""

from __future__ import annotations

import time
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login
from django.contrib.auth.views import LoginView as DjangoLoginView
from django.contrib.auth.views import LogoutView as DjangoLogoutView
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.utils.http import url_has_allowed_host_and_scheme
from django.views import View
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.debug import sensitive_post_parameters

from apps.accounts.attempts import SignInAttempt, attempt_begin, device_remember, request_begin
from apps.accounts.forms import TokenForm
from apps.accounts.models import User
from apps.accounts.permissions import ScopeRequiredMixin, signed_in_user
from apps.accounts.services import ENDS_SOON, token_create, token_revoke, tokens_of
from apps.core.body_sizes import SMALL
from apps.core.errors import Malformed, SluiceError
from apps.core.events import announce_session_end
from apps.core.messages import Gone, Undelivered
from apps.core.reach import AskedOn
from apps.ledger.entries import sign_in_recorded
from apps.signin.forms import (
    AcceptForm,
    CodeForm,
    FirstCodeForm,
    InvitationForm,
    ResetForm,
    ResetRequestForm,
    ServiceAccountForm,
)
from apps.signin.invitations import (
    invitation_accept,
    invitation_create,
    invitation_mail,
    invitation_of,
    invitation_revoke,
    invitations_listed,
)
from apps.signin.local_accounts import SignInForm, are_passwords_limited
from apps.signin.models import Invitation, ProviderAccount, ProviderSession, ServiceAccount
from apps.signin.password_resets import can_mail_links, password_reset, password_reset_request, person_of_reset
from apps.signin.provider import Provider, ProviderAnswer, ProviderEnded
from apps.signin.provider_accounts import (
    LinkNeeded,
    id_token_of,
    person_of_answer,
    provider_account_link,
    provider_account_unlink,
    provider_session_begin,
    provider_sessions_end,
)
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
from apps.signin.service_accounts import service_account_create, service_account_update, service_accounts_listed
from apps.signin.session_store import PROVIDER_SESSION
from apps.signin.sessions import SignInWay, session_end, session_note, sessions_end, sessions_of

__all__ = [
    "CodeView",
    "InvitationRevoke",
    "InvitationView",
    "InvitationsPage",
    "LinkView",
    "LoginView",
    "LogoutView",
    "ProviderAnswerView",
    "ProviderLogoutView",
    "ProviderView",
    "RecoveryCodesView",
    "ResetRequestView",
    "ResetView",
    "SecondFactorRemove",
    "SecondFactorView",
    "ServiceAccountChange",
    "ServiceAccountPage",
    "ServiceAccountsPage",
    "ServiceTokenRevoke",
    "SessionEnd",
    "SessionsEnd",
    "SignInPage",
    "Unlink",
]

_BACKEND = "django.contrib.auth.backends.ModelBackend"
_WAITING = "sign_in_waiting"  # in the session: whose password was right, until the code is
_ASKED = "sign_in_asked"  # in the session: what the provider was asked, by state
_LINK = "sign_in_link"  # in the session: an account at the provider that waits for a password
_WAIT_S = 600
_MAX_ASKED = 5  # tabs that sign in at once


def _address_after(request: HttpRequest, wanted: str | None) -> str:
    """Where a sign-in leads: to an address of this console alone."""
    hosts, secure = {request.get_host()}, request.is_secure()
    is_own = bool(wanted) and url_has_allowed_host_and_scheme(wanted, allowed_hosts=hosts, require_https=secure)
    return str(wanted) if is_own else settings.LOGIN_REDIRECT_URL


def _enter(request: HttpRequest, user: User, way: str, answer: ProviderAnswer | None = None) -> None:
    """Begin the session of a person."""
    login(request, user, backend=_BACKEND)
    session_note(request, way)
    sign_in_recorded(request, name=user.get_username(), key=user.pk, way=way)
    for name in (_WAITING, _ASKED, _LINK, PROVIDER_SESSION):
        request.session.pop(name, None)
    if answer is not None:
        request.session[PROVIDER_SESSION] = provider_session_begin(user, answer).pk


def _front(request: HttpRequest, template: str, context: dict[str, object], status: int = 200) -> HttpResponse:
    """A page before the sign-in."""
    return render(request, f"signin/{template}.html", {**_known(), **context}, status=status)


def _known() -> dict[str, object]:
    """Facts of this console that every page before the sign-in shows."""
    provider = settings.PROVIDER
    return {
        "demo": settings.DEMO,
        "provider": provider.name if provider else "",
        "limited": are_passwords_limited(),
        "can_mail_links": can_mail_links(),
    }


@method_decorator(never_cache, name="dispatch")
class _FrontView(View):
    """A view of somebody who is not known yet."""

    body_sizes = {"POST": SMALL}


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
            waiting = {"user": user.pk, "until": time.time() + _WAIT_S, "next": self.get_redirect_url()}
            self.request.session.cycle_key()
            self.request.session[_WAITING] = {**waiting, "hash": user.get_session_auth_hash()}
            return redirect("signin:code")
        self.attempt.succeed()
        return _entered(self.request, user, SignInWay.PASSWORD, self.get_success_url())

    def form_invalid(self, form: Any) -> HttpResponse:
        person = User.objects.filter(username__iexact=form.data.get("username", "").strip()).first()
        key, name = (person.pk, person.username) if person is not None else (None, "")
        sign_in_recorded(self.request, name=name, key=key, refusal="The user name or the password was wrong.")
        response = super().form_invalid(form)
        response.status_code = 422
        return response

    def get_context_data(self, **kwargs: Any) -> dict[str, object]:
        return super().get_context_data(**_known(), **kwargs)


def _entered(request: HttpRequest, user: User, way: str, to: str) -> HttpResponse:
    """Begin the session of somebody whose password was right, and link the account at the provider that waits."""
    link = _unexpired(request, _LINK)
    _enter(request, user, way)
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


def _unexpired(request: HttpRequest, name: str) -> dict[str, Any] | None:
    held = request.session.get(name)
    return held if isinstance(held, dict) and held.get("until", 0) > time.time() else None


class CodeView(_FrontView):
    """`/login/code/`: the code after the password."""

    def get(self, request: HttpRequest) -> HttpResponse:
        if _unexpired(request, _WAITING) is None:
            return redirect("signin:login")
        return _front(request, "code", {"form": CodeForm()})

    @method_decorator(sensitive_post_parameters())
    def post(self, request: HttpRequest) -> HttpResponse:
        waiting = _unexpired(request, _WAITING)
        user = User.objects.filter(pk=waiting["user"], is_active=True).first() if waiting else None
        if waiting is None or user is None or waiting["hash"] != user.get_session_auth_hash():
            return redirect("signin:login")
        form = CodeForm(request.POST)
        if form.is_valid():
            attempt = attempt_begin(request, user.get_username())
            if code_taken(user, form.cleaned_data["code"]):
                attempt.succeed()
                return _entered(request, user, SignInWay.CODE, _address_after(request, waiting["next"]))
            form.add_error("code", "This code is not right, or was used already.")
            sign_in_recorded(request, name=user.username, key=user.pk, refusal="The code after the password was wrong.")
        return _front(request, "code", {"form": form}, 422)


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
            url = provider.logout_url(id_token, _absolute(request, reverse("signin:login")))
        except SluiceError:
            url = ""
        # not by a redirect: browsers hold a form's redirects against `form-action` of the page that it was on
        left = _front(request, "left", {"url": url})
        if url:
            left.headers["Refresh"] = f"1; url={url}"
        return left


def _absolute(request: HttpRequest, path: str) -> str:
    return f"{settings.PUBLIC_URL}{path}" if settings.PUBLIC_URL else request.build_absolute_uri(path)


class ProviderView(_FrontView):
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
            asked = provider.begin(_absolute(request, reverse("signin:provider-answer")))
        except SluiceError as error:
            return _refused(request, error)
        now = time.time()
        held = {state: entry for state, entry in request.session.get(_ASKED, {}).items() if entry["until"] > now}
        newest = sorted(held, key=lambda state: held[state]["until"])[-_MAX_ASKED + 1 :]
        entry = {"nonce": asked.nonce, "verifier": asked.code_verifier, "until": now + _WAIT_S, "person": person}
        entry["next"] = reverse("signin:settings") if person else _address_after(request, request.GET.get("next"))
        request.session[_ASKED] = {**{state: held[state] for state in newest}, asked.state: entry}
        if person:  # see LogoutView
            return _front(request, "leave", {"url": asked.url})
        return HttpResponseRedirect(asked.url)


class ProviderAnswerView(_FrontView):
    """`/login/provider/answer/`: the provider sends the browser back here."""

    http_method_names = ["get"]

    def get(self, request: HttpRequest) -> HttpResponse:
        asked = dict(request.session.get(_ASKED, {}))
        entry = asked.pop(request.GET.get("state", ""), None)
        provider = Provider.configured()
        if entry is None or provider is None or entry["until"] < time.time():
            return _refused(request, ProviderEnded("This sign-in did not begin here, or took too long. Begin again."))
        request.session[_ASKED] = asked  # each state counts once
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
        address = _absolute(request, reverse("signin:provider-answer"))
        answer = provider.finish(address, request.GET["code"], entry["nonce"], entry["verifier"])
        if entry["person"] is not None:
            return self._link(request, answer, entry)
        try:
            user = person_of_answer(answer)
        except LinkNeeded:
            held = {"subject": answer.subject, "email": answer.verified_email, "until": time.time() + _WAIT_S}
            request.session[_LINK] = held
            return redirect("signin:link")
        _enter(request, user, SignInWay.PROVIDER, answer)
        return HttpResponseRedirect(entry["next"])

    def _link(self, request: HttpRequest, answer: ProviderAnswer, entry: dict[str, Any]) -> HttpResponse:
        if request.user.pk != entry["person"]:
            raise ProviderEnded("Somebody else has signed in here meanwhile. Nothing was linked.")
        provider_account_link(user=signed_in_user(request), subject=answer.subject)
        messages.success(request, f"From now on you can sign in with {settings.PROVIDER.name} as well.")
        return redirect("signin:settings")


def _refused(request: HttpRequest, error: SluiceError) -> HttpResponse:
    """The sign-in page with what went wrong: local accounts go on."""
    response = _front(request, "login", {"form": SignInForm(request), "refusal": error.message}, error.status)
    for name, value in error.headers.items():
        response.headers[name] = value
    return response


class LinkView(LoginView):
    """`/login/link/`: the password of the account whose address the provider vouches for; then both are one."""

    redirect_authenticated_user = False

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if _unexpired(request, _LINK) is None:
            return redirect("signin:login")
        return super().dispatch(request, *args, **kwargs)

    def get_context_data(self, **kwargs: Any) -> dict[str, object]:
        return super().get_context_data(linking=_unexpired(self.request, _LINK), **kwargs)


@method_decorator(csrf_exempt, name="dispatch")
class ProviderLogoutView(_FrontView):
    """`/login/provider/logout/`: the provider says that a session ended there (OpenID Connect Back-Channel Logout)."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest) -> HttpResponse:
        provider = Provider.configured()
        if provider is None:
            raise Malformed("There is no provider.")
        provider_sessions_end(*provider.read_logout(request.POST.get("logout_token", "")))
        return HttpResponse(status=200)


class ResetRequestView(_FrontView):
    """`/login/forgotten/`: asks for a link. The answer is the same whether there is such an account or not."""

    def get(self, request: HttpRequest) -> HttpResponse:
        return _front(request, "forgotten", {"form": ResetRequestForm()})

    def post(self, request: HttpRequest) -> HttpResponse:
        form = ResetRequestForm(request.POST)
        if not form.is_valid() or not can_mail_links():
            return _front(request, "forgotten", {"form": form}, 422)
        request_begin(request, "reset", limit=5, window_s=3600, name=form.cleaned_data["name"])
        password_reset_request(form.cleaned_data["name"])
        return _front(request, "forgotten", {"asked": True})


class ResetView(_FrontView):
    """`/login/reset/<token>/`: another password by a link."""

    def get(self, request: HttpRequest, token: str) -> HttpResponse:
        return _front(request, "reset", {"form": ResetForm(), "person": person_of_reset(token)})

    @method_decorator(sensitive_post_parameters())
    def post(self, request: HttpRequest, token: str) -> HttpResponse:
        person, form = person_of_reset(token), ResetForm(request.POST)
        if form.is_valid():
            password = form.cleaned_data["password"]
            if _tried(form, lambda: password_reset(token=token, password=password)):
                return _front(request, "reset", {"done": True})
        return _front(request, "reset", {"form": form, "person": person}, 422)


class InvitationView(_FrontView):
    """`/invitation/<token>/`: somebody who was invited makes an account."""

    def get(self, request: HttpRequest, token: str) -> HttpResponse:
        return _front(request, "invitation", {"form": AcceptForm(), "invitation": invitation_of(token)})

    @method_decorator(sensitive_post_parameters())
    def post(self, request: HttpRequest, token: str) -> HttpResponse:
        invitation, form = invitation_of(token), AcceptForm(request.POST)
        if form.is_valid():
            values = {name: form.cleaned_data[name] for name in ("username", "password")}
            user = _tried(form, lambda: invitation_accept(secret=token, **values))
            if user is not None:
                return _entered(request, user, SignInWay.INVITATION, settings.LOGIN_REDIRECT_URL)
        return _front(request, "invitation", {"form": form, "invitation": invitation}, 422)


def _tried(form: Any, work: Any) -> Any:
    """The row that a service made, or None with its faults in the form."""
    try:
        return work()
    except SluiceError as error:
        for fault in error.faults:
            form.add_error(fault.path if fault.path in form.fields else None, fault.message)
        if not error.faults:
            form.add_error(None, error.message)
        return None


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
            codes = _tried(form, lambda: second_factor_confirm(user=user, code=form.cleaned_data["code"]))
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
        made = _tried(form, lambda: invitation_create(by=by, **form.cleaned_data)) if form.is_valid() else None
        if made is None:
            return self._page(request, form, 422)
        invitation, secret = made
        link, mailed = _absolute(request, reverse("signin:invitation", args=[secret])), ""
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
        made = _tried(form, lambda: service_account_create(by=by, **form.cleaned_data)) if form.is_valid() else None
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
        made = _tried(form, lambda: token_create(user=account.user, **form.arguments())) if form.is_valid() else None
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
