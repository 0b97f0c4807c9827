"""The list of a cluster's sources, the curve of one, and the facts on its page."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cached_property
from typing import Any

from django.db.models import Count
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from apps.fleet.models import Cluster
from apps.pages.arrivals.forms import GENERATOR_KINDS
from apps.pages.labels import LABELS_TEXT, label_filters, labels_cell, labels_column, list_of, with_labels_text
from apps.pages.overview.findings import Stat
from apps.pages.queries.features import FIELD_TYPES, fields_text
from apps.pages.saved_views.bar import open_views
from apps.queries.arrivals import series
from apps.queries.arrivals.numerals import COUNT_KINDS
from apps.queries.choices import ArrivalOrigin
from apps.queries.models import ArrivalSeries
from apps.queries.selectors import ArrivalFilter, SourceReaders, queries_reading, readers_by_source
from apps.saved_views.models import SavedList
from apps.ui.charts import Chart, Series, elapsed_axis, time_axis
from apps.ui.marks import evidence_mark
from apps.ui.numbers import MISSING, Quantity, count, factor, rate, scaled, seconds, significant
from apps.ui.pictures import sparkline
from apps.ui.tables import Choice, Column, Filter, Table
from apps.ui.times import exact, time_tag
from engine.arrays import FloatArray
from engine.words import counted, step_words

__all__ = ["SourceDetail", "arrivals_sentence", "arrivals_table", "rate_chart", "reader_links"]


_POINTS = 900
_SPARK_POINTS = 36
# Each row of a page unpacks its whole series for its sparkline.
_PAGE = 25


def arrivals_sentence(cluster: Cluster) -> str:
    """10 sources: 1 uploaded, 9 generated."""
    rows = cluster.arrivals.order_by().values("origin").annotate(n=Count("pk")).values_list("origin", "n")
    counts = dict(rows)
    if not counts:
        return "None yet. A query's latency can be estimated once its sources have arrivals."
    words = {ArrivalOrigin.UPLOAD: "uploaded", ArrivalOrigin.GENERATOR: "generated", ArrivalOrigin.DOCUMENT: "imported"}
    total = sum(counts.values())
    parts = [f"{counts[origin]} {word}" for origin, word in words.items() if origin in counts]
    return f"{counted(total, 'source')}: {', '.join(parts)}."


_READERS = 8  # named of a source


def reader_links(slug: str, readers: SourceReaders) -> SafeString:
    """The first readers, and how many more there are."""
    if not readers.names:
        return format_html('<span class="muted">{}</span>', "nobody")
    shown = readers.names[:_READERS]
    links = ((reverse("pages:query", args=[slug, name]), name) for name in shown)
    named = format_html_join(", ", '<a class="name" href="{}">{}</a>', links)
    more = readers.total - len(shown)
    return format_html("{} and {} more", named, f"{more:,}") if more else named


def arrivals_table(request: HttpRequest, cluster: Cluster, *, can_change: bool) -> Table:
    """Sources by name."""
    readers: dict[str, SourceReaders] = {}
    first = None if request.GET.get("export") else _READERS

    def load(rows: list[ArrivalSeries]) -> list[ArrivalSeries]:
        readers.update(readers_by_source(cluster, [row.source_id for row in rows], first))
        return rows

    rows = ArrivalSeries.objects.filter(cluster=cluster).select_related("team")
    labels = label_filters(request, rows)
    counts = dict(rows.order_by().values("origin").annotate(n=Count("pk")).values_list("origin", "n"))
    choices = [Choice(value, label, counts[value]) for value, label in ArrivalOrigin.choices if value in counts]
    empty = {
        "icon": "arrivals",
        "title": "No arrivals yet",
        "text": "Upload a trace of time stamps or counts, or generate one.",
    }
    if can_change:
        url = reverse("pages:arrivals-new", args=[cluster.slug])
        empty |= {"url": url, "action": "Add arrivals", "action_icon": "plus"}
    return Table(
        request,
        [*_columns(cluster.slug, readers), labels_column(request, labels)],
        with_labels_text(rows.defer("data", "spec") if request.GET.get("export") else rows.defer("spec")),
        caption="Arrivals",
        default_sort="source",
        filters=[Filter("origin", choices, all_count=sum(counts.values())), *labels],
        filterset=ArrivalFilter,
        search=["source_id", "description", "team__name", LABELS_TEXT],
        search_label="Source, description, team or label",
        page_size=_PAGE,
        load=load,
        views=open_views(request, SavedList.ARRIVALS),
        file_name=f"arrivals-{cluster.slug}",
        empty=empty,
    )


def _spark(row: ArrivalSeries) -> SafeString:
    _, _, largest = series.downsampled(series.unpack(row.data), _SPARK_POINTS)
    return sparkline(
        largest.tolist(),
        f"{row.source_id}: rate over the horizon, highest {rate(row.peak_eps)}",
        width=96,
        first=row.starts_at,
        span_s=row.slices * row.slice_s,
    )


_NOBODY = SourceReaders([], 0)


def _columns(slug: str, readers: Mapping[str, SourceReaders]) -> list[Column]:
    def name(row: ArrivalSeries) -> Any:
        url = reverse("pages:arrivals-detail", args=[slug, row.pk])
        return format_html('<a class="name" href="{}">{}</a>', url, row.source_id)

    return [
        Column("source", "Source", name, sort="source_id", csv=lambda row: row.source_id),
        Column("about", "Description", lambda row: row.description or "–", csv=lambda row: row.description, full=True),
        Column("origin", "From", lambda row: row.get_origin_display(), sort="origin", csv=lambda row: row.origin),
        Column(
            "evidence",
            "Evidence",
            lambda row: evidence_mark(row.evidence),
            sort="evidence",
            csv=lambda row: row.evidence,
        ),
        Column(
            "mean",
            "Mean rate",
            lambda row: rate(row.mean_eps).html,
            sort="events",
            csv=lambda row: row.mean_eps,
            num=True,
            high_first=True,
        ),
        Column(
            "peak",
            "Peak rate",
            lambda row: rate(row.peak_eps).html,
            sort="peak_eps",
            csv=lambda row: row.peak_eps,
            num=True,
            high_first=True,
        ),
        Column("spark", "Over the horizon", _spark, csv=lambda row: None, hide=True),
        Column(
            "readers",
            "Read by",
            lambda row: reader_links(slug, readers.get(row.source_id, _NOBODY)),
            csv=lambda row: " ".join(readers.get(row.source_id, _NOBODY).names),
            css=lambda row: "long",
        ),
        Column(
            "updated",
            "Stored",
            lambda row: time_tag(row.updated_at),
            sort="updated_at",
            csv=lambda row: row.updated_at,
            num=True,
            high_first=True,
        ),
    ]


def rate_chart(values: FloatArray, slice_s: float, starts_at: datetime | None, name: str) -> Chart:
    """Events per second over the horizon: the mean of each point, and the highest of its subintervals."""
    first, mean, largest = series.downsampled(values, _POINTS)
    step_s = len(values) * slice_s / len(first)
    x = elapsed_axis(step_s) if starts_at is None else time_axis(starts_at, step_s, len(first))
    curves = [Series("load", "Mean rate", y=(mean / slice_s).tolist(), ink="c-estimate")]
    if (largest > 1.001 * mean).any():
        curves.append(Series("third", "Highest subinterval", y=(largest / slice_s).tolist()))
    numbers = f"{rate(values.mean() / slice_s)} on average, at most {rate(values.max() / slice_s)}"
    finding = f"Events of {name} over the horizon: {numbers}."
    return Chart(id="rate", finding=finding, unit="/s", x=x, series=curves, steps=True)


_RANGES = {"busiest": "the busiest", "first": "the first"}
_FILLS = {"": "not needed", "zero": "no events after its end", "repeat": "repeated"}


class SourceDetail:
    """A source with its curve, its origin and its readers."""

    def __init__(self, row: ArrivalSeries) -> None:
        self.row = row

    @cached_property
    def chart(self) -> Chart:
        return rate_chart(series.unpack(self.row.data), self.row.slice_s, self.row.starts_at, self.row.source_id)

    @cached_property
    def readers(self) -> list[str]:
        return queries_reading(self.row)

    @property
    def reader_links(self) -> Any:
        return reader_links(self.row.cluster.slug, SourceReaders(self.readers, len(self.readers)))

    @property
    def horizon(self) -> Quantity:
        return seconds(self.row.slices * self.row.slice_s)

    @property
    def sentence(self) -> str:
        row = self.row
        peak = row.peak_eps / row.mean_eps if row.mean_eps else 0.0
        mean, most, width = rate(row.mean_eps), rate(row.peak_eps), self.peak_width
        if not peak:
            return f"{mean} on average over {self.horizon}, at most {most} in {width}."
        return f"{mean} on average over {self.horizon}, at most {most} in {width}, {factor(peak)} the mean."

    @property
    def peak_width(self) -> Quantity:
        """Stretch that the peak rate is of: a slice, or a count's where counts are coarser, as none tells of less."""
        return seconds(max(self.row.slice_s, self.row.step_s or 0.0))

    @property
    def stats(self) -> list[Stat]:
        row = self.row
        return [
            Stat("Mean rate", rate(row.mean_eps), f"over {self.horizon}"),
            Stat("Peak rate", rate(row.peak_eps), f"over {self.peak_width}"),
            Stat("Events", scaled(row.events), "over the whole horizon"),
            Stat("Read by", Quantity(str(len(self.readers))), "queries" if len(self.readers) != 1 else "query"),
        ]

    @property
    def fields(self) -> str:
        """Fields of an event by type; empty where nobody has stated them."""
        return fields_text(self.row.event_fields)

    @property
    def field_inputs(self) -> list[tuple[str, str, Any]]:
        """(name, label, number) of each type, to change them."""
        stated = self.row.event_fields
        return [(name, label, stated.get(name, "")) for name, label in FIELD_TYPES.items()]

    @property
    def facts(self) -> list[tuple[str, Any]]:
        """Origin of the series: its parameters or its file."""
        row = self.row
        facts = [("From", row.get_origin_display())]
        if row.starts_at:
            facts.append(("Begins", exact(row.starts_at)))
        if row.origin == ArrivalOrigin.UPLOAD:
            facts += self._upload()
        elif row.origin == ArrivalOrigin.GENERATOR:
            facts += self._generator()
        return [
            *self._owner,
            *facts,
            ("Slices", f"{row.slices:,} of {seconds(row.slice_s)}"),
            ("Counted", self._counted),
        ]

    @property
    def _owner(self) -> list[tuple[str, Any]]:
        """Its team and its labels: who has a role on either sees it."""
        labels = labels_cell(self.row.labels, list_of("pages:arrivals", self.row.cluster.slug))
        return [("Team", self.row.team or MISSING), ("Labels", labels)]

    @property
    def _counted(self) -> str:
        """Width at which the arrivals are really known, and what that hides."""
        row = self.row
        if row.step_s is None:
            return "per slice or finer"
        hidden = row.step_s > row.cluster.subinterval_s
        return f"per {step_words(row.step_s)}{', which hides bursts' if hidden else ''}"

    def _upload(self) -> list[tuple[str, Any]]:
        spec = self.row.spec
        return [
            ("File", spec.get("file", "–")),
            ("Times in", f"{spec.get('time_column')}, {spec.get('time_zone')}"),
            ("Counts in", spec.get("count_column") or "each line is one event"),
            *([("Numbers are", COUNT_KINDS[kind])] if (kind := spec.get("count_kind")) in COUNT_KINDS else []),
            ("Stretch", _RANGES.get(spec.get("stretch", ""), f"from {spec.get('stretch')}")),
            ("Lines", f"{count(spec.get('lines'))}, {count(spec.get('lines_left_out'))} left out"),
            ("Short trace", _FILLS.get(spec.get("fill", ""), "–")),
        ]

    def _generator(self) -> list[tuple[str, Any]]:
        spec = self.row.spec
        kind = GENERATOR_KINDS.get(spec.get("kind", ""), ("–", ""))[0]
        others = {name: value for name, value in spec.items() if name != "kind"}
        return [("Generator", kind), *((_words(name), _value_text(name, value)) for name, value in others.items())]

    @property
    def notes(self) -> list[str]:
        return list(self.row.spec.get("notes", []))


def _words(name: str) -> str:
    return name.removesuffix("_eps").removesuffix("_s").replace("_", " ").capitalize()


def _value_text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("_eps"):
        return str(rate(value))
    if name.endswith("_s"):
        return str(seconds(value))
    return str(value) if name == "seed" else significant(value)
