"""Page of the webhook that the ledger is posted to: its address and secret, a test, and how it goes."""

from __future__ import annotations

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from apps.core.limits import MAX_URL
from apps.ledger.destinations import changes_unsent, webhook_forward, webhook_try
from apps.ledger.services import MIN_SECRET, ledger_webhook_delete, ledger_webhook_update
from apps.ledger.webhook import WebhookAddress, webhook_in_force
from apps.ledger.webhook_api import RETRY_LIMIT
from apps.pages.base import Page, done, try_service
from engine.words import counted

__all__ = ["LedgerWebhookPage", "LedgerWebhookRemove", "LedgerWebhookRetry", "LedgerWebhookTest"]

_PAGE = "pages:ledger-webhook"


class LedgerWebhookForm(forms.Form):
    """Address and secret. They are never filled in: what is left empty stays as it is."""

    address = forms.CharField(
        max_length=MAX_URL,
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
        help_text="Where batches of CloudEvents are posted, such as https://audit.example/sluice.",
    )
    secret = forms.CharField(
        max_length=MAX_URL,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text=f"Signs each batch; at least {MIN_SECRET} characters, which the receiver knows as well.",
    )

    def __init__(self, webhook: WebhookAddress | None, data: object = None) -> None:
        super().__init__(data)  # type: ignore[arg-type]
        is_set = webhook is not None and webhook.row is not None
        for entry in self.fields.values():
            entry.required = not is_set
        if webhook is not None and is_set:
            self.fields["address"].help_text = f"Now at {webhook.host}; empty: it stays. Another gets all that is kept."
            self.fields["secret"].help_text = "Empty: it stays."


class LedgerWebhookPage(Page):
    """`/changes/webhook/`"""

    template_name = "pages/changes/webhook.html"
    scope = write_scope = "admin"

    def get(self, request: HttpRequest) -> HttpResponse:
        webhook = webhook_in_force()
        return self.answer(webhook, LedgerWebhookForm(webhook))

    def post(self, request: HttpRequest) -> HttpResponse:
        webhook = webhook_in_force()
        form = LedgerWebhookForm(webhook, request.POST)
        if form.is_valid():
            row, ok = try_service(form, lambda: ledger_webhook_update(**form.cleaned_data))
            if ok:
                return done(request, f"The history is posted to {row}.", _PAGE)
        return self.answer(webhook, form, 422)

    def answer(self, webhook: WebhookAddress | None, form: LedgerWebhookForm, status: int = 200) -> HttpResponse:
        unsent = changes_unsent() if webhook is not None else 0
        return self.page({"webhook": webhook, "row": webhook and webhook.row, "form": form, "unsent": unsent}, status)


class _Act(Page):
    http_method_names = ["post"]
    scope = write_scope = "admin"


class LedgerWebhookTest(_Act):
    """POST: post a test."""

    def post(self, request: HttpRequest) -> HttpResponse:
        sending = webhook_try()
        text = "The test arrived." if sending.error == "" else f"The test did not arrive: {sending.error}"
        return done(request, text if sending.error is not None else "There is no webhook.", _PAGE)


class LedgerWebhookRetry(_Act):
    """POST: send what it lacks now."""

    def post(self, request: HttpRequest) -> HttpResponse:
        sending = webhook_forward(RETRY_LIMIT)
        if sending.error:
            return redirect(_PAGE)  # the page says why
        return done(request, f"{counted(sending.count, 'change').capitalize()} sent.", _PAGE)


class LedgerWebhookRemove(_Act):
    """POST: back to the webhook that the environment names, or to none."""

    def post(self, request: HttpRequest) -> HttpResponse:
        ledger_webhook_delete()
        return done(request, "The webhook of the settings is removed.", _PAGE)
