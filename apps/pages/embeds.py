"""A panel of a cluster for pages elsewhere: signed links that only show, and expire."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django import forms
from django.conf import settings
from django.core import signing
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.clickjacking import xframe_options_exempt

from apps.accounts.choices import Scope
from apps.accounts.models import User
from apps.accounts.permissions import signed_in_user
from apps.fleet.models import Cluster
from apps.pages.base import ClusterPage
from apps.pages.overview.findings import Findings, first_estimates
from apps.ui.parts import POLICY

__all__ = ["EmbedLinkPage", "EmbeddedPanel"]

_SALT = "sluice.embed"
_LASTS = {"1": "a day", "7": "a week", "30": "30 days", "90": "90 days"}
_SHOWN = 8


class EmbedForm(forms.Form):
    """Time for which a link shows the panel."""

    days = forms.ChoiceField(label="Valid for", choices=list(_LASTS.items()), initial="30")


class EmbedLinkPage(ClusterPage):
    """`/c/<slug>/embed/`: make a link to the panel of this cluster."""

    template_name = "pages/embed/link.html"
    scope = "operate"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        return self._show(EmbedForm())

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        form = EmbedForm(request.POST)
        if not form.is_valid():
            return self._show(form, 422)
        until = timezone.now() + timedelta(days=int(form.cleaned_data["days"]))
        content = {"cluster": self.cluster.pk, "user": signed_in_user(request).pk, "until": int(until.timestamp())}
        token = signing.dumps(content, salt=_SALT)
        path = reverse("pages:embedded-panel", args=[token])
        link = f"{settings.PUBLIC_URL}{path}" if settings.PUBLIC_URL else request.build_absolute_uri(path)
        frame_code = f'<iframe src="{link}" title="Sluice: {self.cluster.slug}" width="720" height="420"></iframe>'
        return self._show(form, link=link, frame_code=frame_code, until=until)

    def _show(self, form: EmbedForm, status: int = 200, **context: Any) -> HttpResponse:
        return self.page({"form": form, "origins": settings.EMBED_ORIGINS, **context}, status)


@method_decorator(xframe_options_exempt, name="dispatch")
class EmbeddedPanel(View):
    """`/embed/<token>/`: objectives of a cluster. It asks for no login, shows, and has neither links nor forms."""

    http_method_names = ["get", "head"]

    def get(self, request: HttpRequest, token: str) -> HttpResponse:
        cluster, until, why = _opened(token)
        context: dict[str, object] = {"why": why}
        if cluster is not None:
            findings = Findings(cluster)
            rows = first_estimates(findings.rows, _SHOWN)
            context |= {"cluster": cluster, "findings": findings, "rows": rows, "until": until}
        theme = request.GET.get("theme", "")
        context["theme"] = theme if theme in {"light", "dark"} else ""
        response = render(request, "pages/embed/panel.html", context, status=403 if cluster is None else 200)
        ancestors = " ".join(settings.EMBED_ORIGINS) or "'none'"
        response["Content-Security-Policy"] = POLICY.replace("frame-ancestors 'none'", f"frame-ancestors {ancestors}")
        response["Cache-Control"] = "no-store"
        response["Referrer-Policy"] = "no-referrer"  # the address is the proof
        return response


def _opened(token: str) -> tuple[Cluster | None, datetime | None, str]:
    """Cluster of a link and its end; without a cluster the reason. Who made it has to be allowed to read still."""
    try:
        content = signing.loads(token, salt=_SALT)
    except signing.BadSignature:
        return None, None, "This link was not made by this console, or its key is another one by now."
    until = datetime.fromtimestamp(content["until"], UTC)
    if until <= timezone.now():
        return None, until, f"This link expired at {until:%Y-%m-%d %H:%M} UTC."
    maker = User.objects.filter(pk=content["user"], is_active=True).first()
    cluster = Cluster.objects.filter(pk=content["cluster"]).first()
    if maker is None or cluster is None or Scope.READ not in maker.reach.on_cluster(cluster.pk):
        return None, until, "This link leads nowhere any more: its cluster or its maker is gone."
    return cluster, until, ""
