"""State of the stream processor: its operators as last reported, a reading of what they keep, and asking for one."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from apps.pages.base import ClusterPage, done
from apps.pages.sources.facts import StreamCard, source_tabs
from apps.pages.sources.state.tables import ABOUT, keys_table
from apps.telemetry.ingest.stream_figures import state_reading, state_reading_request

__all__ = ["StatePage", "StateRead"]


class StatePage(ClusterPage):
    """`/c/<slug>/sources/state/`; the state is that of the installation, whatever the cluster."""

    template_name = "pages/sources/state/page.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        reading = state_reading()
        table = None if reading is None or not reading.keys else keys_table(request, reading)
        if table is not None and table.wants_csv:
            return table.csv_response()
        shown = {
            "stream": StreamCard(slug, {}),
            "reading": reading,
            "variables": [(row, ABOUT.get(row.variable, "")) for row in reading.variables] if reading else [],
            "table": table,
            "tabs": source_tabs(slug, "state"),
        }
        return self.page(shown)


class StateRead(ClusterPage):
    """POST: ask for a reading."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        state_reading_request()
        text = "The stream processor reads its state, at most once a minute; the page shows it when it is there."
        return done(request, text, "pages:stream-state", slug)
