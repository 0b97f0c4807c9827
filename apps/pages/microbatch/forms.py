"""Forms of Spark queries: watch one, change it, upload progress, apply settings."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.core.files.uploadedfile import UploadedFile

from apps.microbatch.choices import SparkQueryOrigin
from apps.microbatch.models import MAX_OWN_TRIGGER_S, MIN_OWN_TRIGGER_S, SparkQuery
from apps.pages.crud import RowForm

__all__ = ["WAYS", "ApplyForm", "ProgressForm", "SparkQueryForm"]

#: Ways by which progress arrives, and what each needs.
WAYS = {
    SparkQueryOrigin.LISTENER: "A listener in the application posts each micro-batch. You get its code next.",
    SparkQueryOrigin.URL: "Sluice asks an address every 30 s, such as one that answers with recentProgress.",
    SparkQueryOrigin.FILE: "You upload what Spark has written: lines or a list of progress, or an event log.",
}
_SETTINGS = ["trigger_s", "executors", "cores_per_executor", "input_partitions", "shuffle_partitions"]
_SETTINGS += ["max_rows_per_trigger", "stateful"]
_OPTIONS = ["constraint_s", "statistic", "auto_refit"]
_LABELS = {
    "spark_name": "Name in Spark",
    "url": "URL",
    "trigger_s": "Trigger interval",
    "cores_per_executor": "Cores of an executor",
    "max_rows_per_trigger": "Largest batch",
    "stateful": "Keeps state between batches",
    "constraint_s": "Latency constraint",
    "auto_refit": "Refit by itself when it drifts",
}
_HELP = {
    "name": "As it is called here.",
    "spark_name": "Its name or id there, where several queries report in one place.",
    "url": "It answers with progress as JSON. Addresses of private networks need SLUICE_WEBHOOK_PRIVATE=1.",
    "trigger_s": "The processingTime of its trigger; 0 where a batch follows the one before without a pause.",
    "executors": "spark.executor.instances; 1 with a local master.",
    "cores_per_executor": "spark.executor.cores.",
    "input_partitions": "Partitions of the topic, or files of a batch.",
    "shuffle_partitions": "spark.sql.shuffle.partitions; the checkpoint of a stateful query fixes it.",
    "max_rows_per_trigger": "maxOffsetsPerTrigger and the like. Empty: no limit.",
    "stateful": "",
    "constraint_s": "That the latency of its rows is to keep. Empty: none.",
    "statistic": "Of the constraint: mean, or a quantile such as q0.95.",
    "auto_refit": "",
}


class ProgressForm(forms.Form):
    """A file of progress."""

    file = forms.FileField(
        label="Progress file",
        help_text="StreamingQueryProgress as JSON lines or a JSON list, or an event log of Spark.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["file"].help_text += f" At most {settings.UPLOAD_MAX_BYTES / 1e6:g} MB."
        self.fields["file"].widget.attrs["data-max-bytes"] = str(settings.UPLOAD_MAX_BYTES)

    def clean_file(self) -> bytes:
        return _content(self.cleaned_data["file"])


class SparkQueryForm(RowForm):
    """A Spark query. Settings that are left as they stand keep their origin; those that are typed are assumed."""

    file = forms.FileField(
        label="Progress file",
        help_text="StreamingQueryProgress as JSON lines or a JSON list, or an event log of Spark.",
    )

    class Meta:
        model = SparkQuery
        fields = ["name", "spark_name", "url", *_SETTINGS, *_OPTIONS]
        labels = _LABELS
        help_texts = _HELP

    field_order = ["name", "file", "url", "spark_name"]

    def __init__(self, *args: Any, origin: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.origin = origin or self.instance.origin
        if self.origin != SparkQueryOrigin.FILE or self.instance.pk:
            del self.fields["file"]
        if self.origin != SparkQueryOrigin.URL:
            del self.fields["url"]
        else:
            self.fields["url"].required = True
        if self.origin == SparkQueryOrigin.OWN:
            for name in ("name", "spark_name", *_SETTINGS):
                del self.fields[name]
        for name in set(_SETTINGS) & set(self.fields):
            field = self.fields[name]
            field.required = False
            if not self.instance.pk and name != "stateful":
                field.widget.attrs["placeholder"] = _placeholder(field.initial)
                field.initial = None  # what is typed is assumed, also where it is the default

    def clean_file(self) -> bytes:
        return _content(self.cleaned_data["file"])

    @property
    def values(self) -> dict[str, Any]:
        """Values for the services: those that differ from what stands there, and the name."""
        kept = {"name"} if not self.instance.pk else set()
        changed = {name for name in self.changed_data if name != "file"} | kept
        empty = [name for name in _SETTINGS if self.cleaned_data.get(name) is None and name != "max_rows_per_trigger"]
        return {name: self.cleaned_data[name] for name in self.Meta.fields if name in changed and name not in empty}


class ApplyForm(RowForm):
    """Settings of a plan; of the stream processor the trigger alone."""

    class Meta:
        model = SparkQuery
        fields = ["trigger_s", "executors", "cores_per_executor", "shuffle_partitions", "max_rows_per_trigger"]
        labels = _LABELS
        help_texts = _HELP

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.is_own:
            for name in [*self.fields][1:]:
                del self.fields[name]
            self.fields[
                "trigger_s"
            ].help_text = f"{MIN_OWN_TRIGGER_S} to {MAX_OWN_TRIGGER_S} s. It changes after the batch in work."

    @property
    def values(self) -> dict[str, Any]:
        """The settings that differ from those in force; all of them where none does."""
        changed = {name: self.cleaned_data[name] for name in self.fields if name in self.changed_data}
        return changed or {name: self.cleaned_data[name] for name in self.fields}


def _placeholder(default: Any) -> str:
    return "no limit" if default is None else f"{default:g} unless Spark reports it"


def _content(file: UploadedFile) -> bytes:
    if (file.size or 0) > settings.UPLOAD_MAX_BYTES:
        raise forms.ValidationError(f"It is larger than {settings.UPLOAD_MAX_BYTES / 1e6:g} MB.")
    return bytes(file.read())
