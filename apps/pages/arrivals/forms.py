"""Forms of arrivals and load histories: a file, its columns and time range, or a generator's parameters."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings

from apps.core.limits import MAX_ELEMENT_NAME, MAX_NAME, MAX_NOTE
from apps.fleet.models import Cluster
from apps.pages.labels import TypedLabelsField
from apps.planning.choices import BUCKETS
from apps.planning.load_buckets import GENERATOR_DEFAULTS
from apps.queries.arrivals.inspection import Inspection
from apps.queries.arrivals.numerals import COUNT_KINDS, DECIMAL_MARKS
from apps.queries.arrivals.times import TIME_FORMATS
from apps.queries.arrivals.uploads import UploadedTrace
from apps.ui.forms import choice_field

__all__ = [
    "GENERATOR_KINDS",
    "ColumnsForm",
    "GeneratorForm",
    "HistoryColumnsForm",
    "HistoryGeneratorForm",
    "SourceOwnerForm",
    "UploadForm",
]


_HISTORY_FROM_S = 172_800.0  # a forecast needs two days


GENERATOR_KINDS = {
    "diurnal": ("Diurnal", "Daily pattern: a wave around the mean, with Poisson noise."),
    "on_off": ("On-Off", "Bursts: high and low load in turn, of random lengths."),
    "poisson": ("Poisson", "A constant rate; events arrive independently of each other."),
}


class UploadForm(forms.Form):
    """The first step: a file."""

    file = forms.FileField(
        help_text="CSV or another delimited text, also gzip, xz, zstd or zip; time stamps or counts."
    )
    time_zone = forms.CharField(help_text="Of times that name none, such as Europe/Berlin.")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        limit = settings.UPLOAD_MAX_BYTES
        self.fields["file"].help_text += f" At most {limit / 1e6:g} MB."
        self.fields["file"].widget.attrs["data-max-bytes"] = str(limit)


class SourceOwnerForm(forms.Form):
    """Team and labels of a source."""

    team = forms.CharField(
        max_length=MAX_NAME, required=False, help_text="Its members see the source. One of a new name is made."
    )
    labels = TypedLabelsField()


class _SourceForm(forms.Form):
    """Fields that every source has."""

    source_id = forms.CharField(
        label="Source", max_length=MAX_ELEMENT_NAME, help_text="The name that operators read it by, without / and @."
    )
    description = forms.CharField(max_length=MAX_NOTE, required=False, help_text="The kind of events, in a few words.")
    replace = forms.BooleanField(
        label="Replace the arrivals of this source",
        required=False,
        help_text="Queries that read it are estimated again.",
    )

    @property
    def naming(self) -> dict[str, object]:
        return {name: self.cleaned_data[name] for name in ("source_id", "description", "replace")}


class _ReadingForm(forms.Form):
    """Reading of an uploaded file: its columns of times and counts."""

    key = forms.CharField(widget=forms.HiddenInput)
    time_column = forms.ChoiceField()
    time_format = forms.ChoiceField(required=False, choices=[("", "As found"), *TIME_FORMATS.items()])
    count_column = forms.ChoiceField(required=False)
    count_kind = forms.ChoiceField(
        label="The numbers are",
        required=False,
        choices=[("", "As found"), *COUNT_KINDS.items()],
        help_text="Rates are multiplied by their step; of a running total the differences count.",
    )
    decimal_mark = forms.ChoiceField(required=False, choices=[("", "As found"), *DECIMAL_MARKS.items()])
    time_zone = forms.CharField()
    leave_out_problems = forms.BooleanField(
        label="Skip unreadable lines", required=False, help_text="Otherwise nothing is stored."
    )

    def __init__(self, *args: Any, inspection: Inspection, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        names = [(column.name, column.name) for column in inspection.columns]
        choice_field(self, "time_column").choices = names
        choice_field(self, "count_column").choices = [("", "No column: each line is one event"), *names]

    @property
    def upload(self) -> UploadedTrace:
        """The kept file and how the form says to read it."""
        data = self.cleaned_data
        found = {name: data[name] or None for name in ("count_column", "time_format", "count_kind", "decimal_mark")}
        plain = {name: data[name] for name in ("key", "time_column", "time_zone", "leave_out_problems")}
        return UploadedTrace(**plain, **found)


class ColumnsForm(_ReadingForm, _SourceForm):
    """The second step: columns and time range."""

    stretch = forms.ChoiceField(
        choices=[("busiest", "The busiest"), ("first", "The first"), ("at", "From a chosen time")],
        help_text="A range as long as the horizon.",
    )
    start = forms.CharField(
        label="Begins at", required=False, help_text="Such as `1998-06-12 15:00`; for a range from a chosen time."
    )
    fill = forms.ChoiceField(
        label="If the trace ends before the horizon",
        required=False,
        choices=[("", "Refuse the trace"), ("repeat", "Repeat it"), ("zero", "No events after its end")],
    )
    keep_history = forms.BooleanField(
        label="Keep the whole file as load history", required=False, help_text="By the hour, for forecasts."
    )
    field_order = [
        "key",
        "source_id",
        "description",
        "time_column",
        "time_format",
        "count_column",
        "count_kind",
        "decimal_mark",
        "time_zone",
        "stretch",
        "start",
        "fill",
        "leave_out_problems",
        "replace",
    ]

    def __init__(self, *args: Any, inspection: Inspection, **kwargs: Any) -> None:
        super().__init__(*args, inspection=inspection, **kwargs)
        self.fields["source_id"].required = not self._is_preview
        if (inspection.span_s or 0.0) < _HISTORY_FROM_S:
            del self.fields["keep_history"]
        if inspection.time_column and not inspection.problems_total:
            self.fields["leave_out_problems"].help_text = "Every line of this file can be read as proposed."

    @property
    def _is_preview(self) -> bool:
        """For a preview the source needs no name."""
        return self.is_bound and "preview" in self.data

    def clean(self) -> None:
        super().clean()
        data = self.cleaned_data
        if data.get("stretch") == "at" and not data.get("start"):
            self.add_error("start", "Enter when the range begins, or choose another range.")

    @property
    def history(self) -> dict[str, Any] | None:
        """Arguments of `history_create_from_upload`, if the file is kept as load history."""
        if not self.cleaned_data.get("keep_history"):
            return None
        named = {name: self.cleaned_data[name] for name in ("source_id", "description")}
        return {"upload": self.upload, **named, "replace": True}

    @property
    def reading(self) -> dict[str, object]:
        """Arguments of `read_trace_window`."""
        data = self.cleaned_data
        stretch = data["start"] if data["stretch"] == "at" else data["stretch"]
        return {"upload": self.upload, "fill": data["fill"], "stretch": stretch}


def _number(label: str, help_text: str = "", **options: Any) -> forms.FloatField:
    return forms.FloatField(
        label=label, help_text=help_text, widget=forms.NumberInput(attrs={"step": "any"}), **options
    )


def _parameters(kind: str) -> dict[str, forms.Field]:
    """A generator's own fields, by the names its function has for them."""
    return {
        "poisson": {},
        "on_off": {
            "ratio": _number("High rate over low rate", "100: a burst has a hundred times the rate between bursts."),
            "duration_ratio": _number("Length of a burst over the time between", "0.333: bursts fill a quarter of it."),
            "high_period_s": _number("Mean length of a burst"),
            "fixed_periods": forms.BooleanField(label="Every period has its mean length", required=False),
        },
        "diurnal": {
            "swing": _number("Swing of the day", "Share of the mean that the wave goes up and down, 0 to 1."),
            "peak_s": _number("Top of the day", "After the horizon begins."),
            "second_swing": _number("Swing of the half day", "A second wave, twice a day; 0 for none."),
            "second_peak_s": _number("Top of the half day"),
            "day_s": _number("Length of a day", "86,400 s is a real one; a shorter one fits into a short horizon."),
            "noise": forms.BooleanField(label="Poisson noise", required=False),
        },
    }[kind]


class GeneratorForm(_SourceForm):
    """A generator with its parameters."""

    kind = forms.ChoiceField(label="Generator", choices=[(kind, label) for kind, (label, _) in GENERATOR_KINDS.items()])
    mean_rate_eps = _number("Mean rate", "In the long run; a single horizon deviates from it.")
    seed = forms.IntegerField(min_value=0, help_text="The same seed gives the same events.")

    def __init__(self, *args: Any, kind: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.own = _parameters(kind)
        self.fields.update(self.own)
        self.fields["kind"].help_text = GENERATOR_KINDS[kind][1]
        self.fields["source_id"].required = not (self.is_bound and "preview" in self.data)
        self.order_fields(["source_id", "description", "kind", "mean_rate_eps", *self.own, "seed", "replace"])

    @staticmethod
    def beginning(cluster: Cluster) -> dict[str, object]:
        """Parameters to start from; a horizon shorter than a day shows a whole short day."""
        day_s = min(86_400.0, cluster.horizon_s)
        return {
            "mean_rate_eps": 1000,
            "seed": 1,
            "ratio": 100,
            "duration_ratio": 0.333,
            "high_period_s": 10,
            "swing": 0.6,
            "second_swing": 0,
            "peak_s": round(day_s * 14 / 24),
            "second_peak_s": round(day_s * 20 / 24),
            "day_s": round(day_s),
            "noise": True,
        }

    @staticmethod
    def example(kind: str) -> dict[str, Any]:
        return {"kind": kind, "mean_rate_eps": 1000.0, "seed": 1}

    @property
    def spec(self) -> dict[str, object]:
        """Parameters of the generator, as the service takes them."""
        return {name: self.cleaned_data[name] for name in ("kind", "mean_rate_eps", "seed", *self.own)}


_BUCKET_NAMES = {
    60: "60 s",
    300: "5 min",
    900: "15 min",
    1800: "30 min",
    3600: "1 h",
    10_800: "3 h",
    21_600: "6 h",
    43_200: "12 h",
    86_400: "1 day",
}


class _HistoryForm(forms.Form):
    source_id = forms.CharField(label="Source", max_length=MAX_ELEMENT_NAME, help_text="The name of its arrivals.")
    description = forms.CharField(max_length=MAX_NOTE, required=False, help_text="The kind of events, in a few words.")
    bucket_s = forms.TypedChoiceField(
        label="Bucket",
        coerce=int,
        choices=[(value, _BUCKET_NAMES[value]) for value in BUCKETS],
        help_text="The forecast gives the load of buckets of this length.",
    )
    replace = forms.BooleanField(label="Replace the history of this source", required=False)

    @property
    def naming(self) -> dict[str, object]:
        return {name: self.cleaned_data[name] for name in ("source_id", "description", "bucket_s", "replace")}


class HistoryColumnsForm(_ReadingForm, _HistoryForm):
    """Columns of an uploaded file that hold times and counts."""

    time_zone = forms.CharField(help_text="Of times that name none, such as Europe/Berlin.")
    field_order = [
        "key",
        "source_id",
        "description",
        "time_column",
        "time_format",
        "count_column",
        "count_kind",
        "decimal_mark",
        "time_zone",
    ]

    def __init__(self, *args: Any, extends: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if extends:  # it has all of these already
            for name in ("source_id", "description", "bucket_s", "replace"):
                del self.fields[name]


def _share(label: str, help_text: str, name: str) -> forms.FloatField:
    return _number(label, help_text, initial=GENERATOR_DEFAULTS[name])


class HistoryGeneratorForm(_HistoryForm):
    """A daily and weekly pattern with growth and noise."""

    peak_rate_eps = _number("Rate in the busiest hour now", "Of a working day.")
    weeks = forms.IntegerField(initial=8, help_text="Before now.")
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
    def spec(self) -> dict[str, object]:
        return {name: self.cleaned_data[name] for name in GENERATOR_DEFAULTS}
