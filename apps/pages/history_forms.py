"""What people choose when they add a load history: the columns of a file, or a pattern to generate."""

from __future__ import annotations

from typing import Any

from django import forms

from apps.forecasts.choices import BUCKETS
from apps.forecasts.generating import DEFAULTS
from apps.queries.inspecting import Inspection
from apps.queries.times import TIME_FORMATS

__all__ = ["HistoryColumnsForm", "HistoryGeneratorForm"]

_BUCKET_NAMES = {
    900: "15 min",
    1800: "30 min",
    3600: "1 h",
    10_800: "3 h",
    21_600: "6 h",
    43_200: "12 h",
    86_400: "1 day",
}


class _HistoryForm(forms.Form):
    source_id = forms.CharField(label="Source", max_length=120, help_text="As its arrivals are called.")
    description = forms.CharField(max_length=200, required=False, help_text="What arrives.")
    bucket_s = forms.TypedChoiceField(
        label="Bucket",
        coerce=int,
        choices=[(value, _BUCKET_NAMES[value]) for value in BUCKETS],
        help_text="What is forecast is the load of such a stretch of time.",
    )
    replace = forms.BooleanField(label="Replace the history of this source", required=False)

    @property
    def naming(self) -> dict[str, Any]:
        return {name: self.cleaned_data[name] for name in ("source_id", "description", "bucket_s", "replace")}


class HistoryColumnsForm(_HistoryForm):
    """Which columns of an uploaded file are its times and counts."""

    key = forms.CharField(widget=forms.HiddenInput)
    time_column = forms.ChoiceField()
    time_format = forms.ChoiceField(required=False, choices=[("", "As found"), *TIME_FORMATS.items()])
    count_column = forms.ChoiceField(required=False)
    time_zone = forms.CharField(help_text="Of times that name none, such as Europe/Berlin.")
    leave_out_problems = forms.BooleanField(
        label="Leave out lines that cannot be read", required=False, help_text="Otherwise nothing is stored."
    )
    field_order = ["key", "source_id", "description", "time_column", "time_format", "count_column", "time_zone"]

    def __init__(self, *args: Any, inspection: Inspection, extends: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        names = [(column.name, column.name) for column in inspection.columns]
        self.fields["time_column"].choices = names
        self.fields["count_column"].choices = [("", "None: each line is one event"), *names]
        if extends:  # it has all of these already
            for name in ("source_id", "description", "bucket_s", "replace"):
                del self.fields[name]

    @property
    def reading(self) -> dict[str, Any]:
        """How the file is read."""
        data = self.cleaned_data
        return {
            **{name: data[name] for name in ("key", "time_column", "time_zone", "leave_out_problems")},
            "count_column": data["count_column"] or None,
            "time_format": data["time_format"] or None,
        }


def _share(label: str, help_text: str, name: str) -> forms.FloatField:
    widget = forms.NumberInput(attrs={"step": "any"})
    return forms.FloatField(label=label, help_text=help_text, initial=DEFAULTS[name], widget=widget)


class HistoryGeneratorForm(_HistoryForm):
    """A daily and weekly pattern with growth and noise."""

    peak_rate_eps = forms.FloatField(
        label="Rate in the busiest hour now",
        help_text="Of a working day.",
        widget=forms.NumberInput(attrs={"step": "any"}),
    )
    weeks = forms.IntegerField(initial=8, help_text="Up to now.")
    growth_per_week = _share("Growth per week", "0.02: 2% more each week.", "growth_per_week")
    daily_swing = _share("Swing of the day", "0.5: the night has half of the day's rate.", "daily_swing")
    weekend_dip = _share("Dip of the weekend", "0.2: 20% less on Saturday and Sunday.", "weekend_dip")
    peak_hour = _share("Busiest hour", "Of the day in the cluster's zone, 0 to 24.", "peak_hour")
    noise = _share("Noise", "0.03: an hour deviates by about 3%.", "noise")
    seed = forms.IntegerField(initial=0, help_text="The same seed gives the same load.")
    field_order = [
        "source_id",
        "description",
        "peak_rate_eps",
        "weeks",
        "growth_per_week",
        "daily_swing",
        "weekend_dip",
    ]

    @property
    def spec(self) -> dict[str, Any]:
        return {name: self.cleaned_data[name] for name in DEFAULTS}
