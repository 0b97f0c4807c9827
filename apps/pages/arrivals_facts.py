"""What the page of one source shows."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from apps.pages.arrivals_forms import GENERATOR_KINDS
from apps.pages.arrivals_table import rate_chart, reader_links
from apps.pages.findings import Stat
from apps.queries import series
from apps.queries.choices import ArrivalOrigin
from apps.queries.models import ArrivalSeries
from apps.queries.selectors import queries_reading
from apps.ui.charts import Chart
from apps.ui.numbers import Quantity, count, factor, rate, scaled, seconds, significant
from apps.ui.times import exact

__all__ = ["SourceDetail"]

_STRETCHES = {"busiest": "the busiest", "first": "the first"}
_FILLS = {"": "not needed", "zero": "no events after its end", "repeat": "repeated"}


class SourceDetail:
    """A source with its curve, what it was made from, and who reads it."""

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
        return reader_links(self.row.cluster.slug, self.readers)

    @property
    def horizon(self) -> Quantity:
        return seconds(self.row.slices * self.row.slice_s)

    @property
    def sentence(self) -> str:
        row = self.row
        peak = row.peak_eps / row.mean_eps if row.mean_eps else 0.0
        most = f"at most {rate(row.peak_eps)} in {seconds(row.slice_s)}"
        text = f"{rate(row.mean_eps)} on average over {self.horizon}, {most}"
        return f"{text}, {factor(peak)} the mean." if peak else f"{text}."

    @property
    def stats(self) -> list[Stat]:
        row = self.row
        return [
            Stat("Mean rate", rate(row.mean_eps), f"over {self.horizon}"),
            Stat("Peak rate", rate(row.peak_eps), f"in a slice of {seconds(row.slice_s)}"),
            Stat("Events", scaled(row.events), "in the whole stretch"),
            Stat("Read by", Quantity(str(len(self.readers))), "queries" if len(self.readers) != 1 else "query"),
        ]

    @property
    def facts(self) -> list[tuple[str, Any]]:
        """What it was made from."""
        row = self.row
        known = [("From", row.get_origin_display())]
        if row.starts_at:
            known.append(("Begins", exact(row.starts_at)))
        if row.origin == ArrivalOrigin.UPLOAD:
            known += self._upload()
        elif row.origin == ArrivalOrigin.GENERATOR:
            known += self._generator()
        return [*known, ("Slices", f"{row.slices:,} of {seconds(row.slice_s)}")]

    def _upload(self) -> list[tuple[str, Any]]:
        spec = self.row.spec
        return [
            ("File", spec.get("file", "–")),
            ("Times in", f"{spec.get('time_column')}, {spec.get('time_zone')}"),
            ("Counts in", spec.get("count_column") or "each line is one event"),
            ("Stretch", _STRETCHES.get(spec.get("stretch", ""), f"from {spec.get('stretch')}")),
            ("Lines", f"{count(spec.get('lines'))}, {count(spec.get('lines_left_out'))} left out"),
            ("Short trace", _FILLS.get(spec.get("fill", ""), "–")),
        ]

    def _generator(self) -> list[tuple[str, Any]]:
        spec = self.row.spec
        kind = GENERATOR_KINDS.get(spec.get("kind", ""), ("–", ""))[0]
        others = {name: value for name, value in spec.items() if name != "kind"}
        return [("Generator", kind), *((_words(name), _told(name, value)) for name, value in others.items())]

    @property
    def notes(self) -> list[str]:
        return list(self.row.spec.get("notes", []))


def _words(name: str) -> str:
    return name.removesuffix("_eps").removesuffix("_s").replace("_", " ").capitalize()


def _told(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("_eps"):
        return str(rate(value))
    if name.endswith("_s"):
        return str(seconds(value))
    return str(value) if name == "seed" else significant(value)
