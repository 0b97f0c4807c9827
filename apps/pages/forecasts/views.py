"""The forecast of a cluster: when objectives will be violated, how likely, and what it costs to do something."""

from __future__ import annotations

from zoneinfo import ZoneInfo

from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from apps.accounts.permissions import signed_in_user
from apps.core.errors import Malformed
from apps.pages.base import ClusterPage, done
from apps.pages.forecasts.facts import ForecastFacts
from apps.pages.forecasts.tables import outlook_table
from apps.planning.forecasts import DEFAULT_DAYS, FORECAST

__all__ = ["ForecastNow", "ForecastPage", "InClusterZone"]


class InClusterZone(ClusterPage):
    """Dates of forecasts are the cluster's: a peak at 14:00 there is one wherever it is read."""

    def page(self, context: dict[str, object], status: int = 200, template: str = "") -> HttpResponse:
        with timezone.override(ZoneInfo(self.cluster.time_zone)):
            return super().page(context, status, template)


class ForecastPage(InClusterZone):
    """`/c/<slug>/provisioning/forecast/`"""

    template_name = "pages/forecasts/page.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        facts = ForecastFacts(self.cluster, request.GET)
        with timezone.override(ZoneInfo(self.cluster.time_zone)):
            table = outlook_table(request, facts)
        return self.page({"facts": facts, "table": table})


class ForecastNow(ClusterPage):
    """POST: ask for a forecast."""

    http_method_names = ["post"]
    scope = "operate"

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        days = request.POST.get("horizon_days", str(DEFAULT_DAYS))
        if not (days.isascii() and days.isdigit() and len(days) < 5):
            message = f"horizon_days is {days[:20]!r}; allowed: a whole number of days"
            raise Malformed(f"{message}.", [("horizon_days", message)])
        FORECAST.request(cluster=self.cluster, horizon_days=int(days), user=signed_in_user(request))
        return done(request, "The forecast is asked for; it appears here by itself.", "pages:forecast", slug)
