"""Forms of connections: connect and change one, upload answers, choose jobs and objectives of an import."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.conf import settings

from apps.connections.choices import ConnectionEngine, ConnectionOrigin
from apps.connections.looks import KeptJob
from apps.connections.models import MAX_POLL_S, MIN_POLL_S, Connection
from apps.core.addresses import host_of
from apps.core.limits import MAX_SLUG
from apps.pages.crud import RowForm
from apps.ui.forms import JsonField, range_field
from engine.words import statistic_words

__all__ = ["ENGINE_HELP", "AnswersForm", "ConnectionForm", "JobsForm", "suggested_name"]

#: Address that each engine is asked at, and the file that stands in for it.
ENGINE_HELP = {
    ConnectionEngine.FLINK: (
        "REST API of a JobManager, such as http://flink:8081.",
        "A zip of recorded answers of its REST API, or JSON {path: answer}; several rounds give statistics.",
    ),
    ConnectionEngine.SPARK: (
        "A listener that serves progress, such as http://driver:4050 (`docs/examples/spark_progress.py`).",
        "Lines or a list of StreamingQueryProgress, or an event log.",
    ),
    ConnectionEngine.PROMETHEUS: (
        "Prometheus, with PromQL for each operator of what it watches, such as http://prometheus:9090.",
        "Answers of range queries as JSON.",
    ),
    ConnectionEngine.KAFKA: (
        "A broker, such as kafka://broker:9092 or kafka+ssl://user@broker:9093?sasl=SCRAM-SHA-512 with the password as "
        "its token; Burrow or the REST proxy of Kafka, such as http://burrow:8000.",
        "Lag as JSON, or the table of kafka-consumer-groups.sh --describe.",
    ),
}
_STATISTICS = ("worst", "q0.99", "q0.95", "mean")
_NONE = "none"
_NOT_IN_NAMES = re.compile(r"[^a-z0-9._-]+")


def suggested_name(engine: str, url: str, taken: Sequence[str] = ()) -> str:
    """Name of a connection after the host of its address, or its engine; numbered where it is taken."""
    host = host_of(url).lower().strip("[]")
    base = _NOT_IN_NAMES.sub("-", host).strip("-._")[: MAX_SLUG - 4] or engine or "engine"
    names = [base, *(f"{base}-{number}" for number in range(2, len(taken) + 3))]
    return next(name for name in names if name not in taken)


class _AnswersField(forms.FileField):
    """A file of an engine's answers."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(label="File of answers", **kwargs)
        self.help_text = f"A zip, JSON or text, at most {settings.UPLOAD_MAX_BYTES / 1e6:g} MB."
        self.widget.attrs["data-max-bytes"] = str(settings.UPLOAD_MAX_BYTES)

    def clean(self, data: Any, initial: Any = None) -> Any:
        file = super().clean(data, initial)
        if file and (file.size or 0) > settings.UPLOAD_MAX_BYTES:
            raise forms.ValidationError(f"It is larger than {settings.UPLOAD_MAX_BYTES / 1e6:g} MB.")
        return file


class AnswersForm(forms.Form):
    """Newer answers of an engine that is not asked by URL."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["file"] = _AnswersField()


class _Lines(forms.CharField):
    """Names, one a line."""

    widget = forms.Textarea(attrs={"rows": 3, "spellcheck": "false"})

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(map(str, value)) if isinstance(value, list) else value

    def clean(self, value: Any) -> Any:
        lines = [line.strip() for line in super().clean(value).splitlines()]
        return list(dict.fromkeys(line for line in lines if line))


@dataclass(frozen=True)
class FormSection:
    """A panel of the form."""

    key: str
    title: str
    note: str
    fields: Sequence[forms.BoundField]
    is_open: bool


#: Panels beyond the first: key, title, note, fields.
_SECTIONS = (
    ("access", "Access", "Token and certificate", ("token", "no_token", "verify_tls", "ca_pem")),
    ("jobs", "Jobs", "Which of them, and how often they are polled", ("job_names", "poll_interval_s")),
    (
        "measured",
        "Measured latency and arrivals",
        "From a metric or Prometheus; without, what the engine counts by itself",
        ("latency_metric", "latency_query", "lag_query", "prometheus_url"),
    ),
    ("operators", "Operators of a Prometheus", "What it watches, operator by operator", ("operators",)),
)


class ConnectionForm(RowForm):
    """A connection by URL or by upload; the service checks whatever it can, so that all faults appear at once."""

    token = forms.CharField(
        required=False,
        strip=True,
        widget=forms.PasswordInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
        help_text="Sent as Authorization: Bearer; kept encrypted and never shown again.",
    )
    no_token = forms.BooleanField(label="Send no token any more", required=False)
    job_names = _Lines(
        label="Jobs",
        required=False,
        help_text="Names or ids, one a line. Empty: every job that runs. Objectives are set after the check.",
    )
    poll_interval_s = range_field(
        "Poll every", "Each round of questions adds to the statistics.", MIN_POLL_S, MAX_POLL_S, "s"
    )

    operators = JsonField(
        of=list,
        label="Operators",
        required=False,
        help_text="A list as JSON, for a Prometheus alone: engines tell theirs. PromQL says how many events/s an "
        "operator takes (rate) and how many seconds one takes (cost): "
        '`[{"name": "parse", "rate": "sum(rate(in_total[1m]))", "cost": "…"}, '
        '{"name": "count", "reads": ["parse"], "rate": "…"}]`.',
    )

    class Meta:
        model = Connection
        fields = ["engine", "url", "name", "verify_tls", "ca_pem", "job_names", "poll_interval_s", "operators"]
        fields += ["latency_metric", "latency_query", "lag_query", "prometheus_url"]
        labels = {
            "url": "Address",
            "verify_tls": "Check its certificate",
            "ca_pem": "Own certificate authority",
            "latency_metric": "Latency metric",
            "latency_query": "Latency in PromQL",
            "lag_query": "Arrivals or lag in PromQL",
            "prometheus_url": "Address of Prometheus",
        }
        help_texts = {
            "engine": "What answers at the address.",
            "url": "Hosts in private networks have to be listed in SLUICE_CONNECT_HOSTS.",
            "name": "Empty: after the host. It also names the pool of its nodes.",
            "verify_tls": "Without, whoever stands between can read the token and change the answers.",
            "ca_pem": "PEM, where its certificate is signed by a CA of your own.",
            "latency_metric": "End of the name of an operator metric that holds seconds, such as `resultLatency_p99`.",
            "latency_query": "Seconds, in place of a metric; `$job` stands for the id of the job.",
            "lag_query": "A counter of events that come to a source, such as that of `kafka_exporter`; "
            "`$topic` stands for what that reads.",
            "prometheus_url": "That both queries go to. A Flink's own counters of the last hour are read there, too.",
        }
        widgets = {
            "url": forms.TextInput(attrs={"spellcheck": "false", "autocomplete": "off", "inputmode": "url"}),
            "prometheus_url": forms.TextInput(attrs={"spellcheck": "false", "autocomplete": "off", "inputmode": "url"}),
            "ca_pem": forms.Textarea(
                attrs={"rows": 3, "spellcheck": "false", "placeholder": "-----BEGIN CERTIFICATE-----"}
            ),
            "latency_query": forms.Textarea(attrs={"rows": 2, "spellcheck": "false"}),
            "lag_query": forms.Textarea(attrs={"rows": 2, "spellcheck": "false"}),
        }

    def __init__(self, *args: Any, origin: str = "", taken: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.origin = self.instance.origin if self.instance.pk else origin
        self.taken = taken
        self.fields["name"].required = self.fields["prometheus_url"].required = False
        self.fields["engine"].initial = ConnectionEngine.FLINK
        self.fields["poll_interval_s"].initial = Connection._meta.get_field("poll_interval_s").default
        if self.is_upload:
            for name in ("url", "token", "no_token", "verify_tls", "ca_pem", "poll_interval_s", "prometheus_url"):
                del self.fields[name]
            for name in ("latency_metric", "latency_query", "lag_query"):
                del self.fields[name]
            if not self.instance.pk:
                self.fields["file"] = _AnswersField()
        else:
            self.fields["url"].required = True
            self.fields["url"].error_messages["required"] = "It is missing; enter one such as http://flink:8081."
        if self.instance.pk:
            self.fields["engine"].disabled = True
            self.fields["engine"].help_text = ""
        if self.instance.pk and self.instance.imported_at is not None:
            self.fields["name"].disabled = True
            self.fields["name"].help_text = "It stays: the pool of its nodes is named after it."
        if not self.instance.sealed_token:
            self.fields.pop("no_token", None)
        elif "token" in self.fields:
            self.fields["token"].help_text = "One is kept. Empty: it stays. Another address needs it again."

    @property
    def is_upload(self) -> bool:
        return bool(self.origin == ConnectionOrigin.UPLOAD)

    @property
    def sections(self) -> list[FormSection]:
        """The form's panels; those beyond the first open where something is typed or at fault."""
        first = FormSection("engine", "Engine", "", self._present("engine", "url", "file", "name"), is_open=True)
        return [first, *(section for section in self._further() if section.fields)]

    def _further(self) -> Iterator[FormSection]:
        for key, title, note, names in _SECTIONS:
            fields = self._present(*names)
            is_open = any(bound.errors or self._is_typed(bound) for bound in fields)
            yield FormSection(key, title, note, fields, is_open)

    def _present(self, *names: str) -> list[forms.BoundField]:
        return [self[name] for name in names if name in self.fields]

    def _is_typed(self, bound: forms.BoundField) -> bool:
        value = bound.value()
        return value not in (None, "", []) and value != self.fields[bound.name].initial

    @property
    def values(self) -> dict[str, object]:
        """Values for the services, of the fields without faults."""
        values = {name: self.cleaned_data[name] for name in self.Meta.fields if name in self.cleaned_data}
        if not values.get("name"):
            values["name"] = suggested_name(values.get("engine", ""), values.get("url", ""), self.taken)
        if self.instance.pk:
            del values["engine"]
        return values | self._token()

    def _token(self) -> dict[str, str]:
        """The token where one is typed or given up; a change without either keeps it."""
        typed = self.cleaned_data.get("token", "")
        is_kept = self.instance.pk and not typed and not self.cleaned_data.get("no_token")
        return {} if is_kept or self.is_upload else {"token": typed}


@dataclass(frozen=True)
class JobChoice:
    """A job that a check has found, and its fields in the form of the import."""

    job: KeptJob
    is_chosen: Any
    statistic: Any
    bound_s: Any


class JobsForm(forms.Form):
    """Jobs to import, each with an objective or none."""

    def __init__(self, jobs: Sequence[KeptJob], chosen: Sequence[str], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.jobs, self.chosen = jobs, chosen
        choices = [(_NONE, "No objective"), *((name, statistic_words(name, begins=True)) for name in _STATISTICS)]
        for number, job in enumerate(jobs):
            is_named = not chosen or job.name in chosen or job.id in chosen
            self.fields[f"job-{number}"] = forms.BooleanField(label=job.name, required=False, initial=is_named)
            self.fields[f"statistic-{number}"] = forms.ChoiceField(
                label=f"Objective of {job.name}", choices=choices, required=False, initial=_NONE
            )
            self.fields[f"bound-{number}"] = forms.FloatField(
                label=f"Bound of {job.name}", required=False, min_value=1e-6, widget=_bound_widget()
            )

    @property
    def lines(self) -> list[JobChoice]:
        return [
            JobChoice(job, self[f"job-{number}"], self[f"statistic-{number}"], self[f"bound-{number}"])
            for number, job in enumerate(self.jobs)
        ]

    def clean(self) -> None:
        """Every fault at once: no job, an objective without a bound, a bound without an objective."""
        super().clean()
        data = self.cleaned_data
        if not any(data.get(f"job-{number}") for number in range(len(self.jobs))):
            self.add_error(None, "No job is chosen; choose one or more.")
        for number, job in enumerate(self.jobs):
            bound, statistic = f"bound-{number}", data.get(f"statistic-{number}") or _NONE
            if bound in self.errors or not data.get(f"job-{number}"):
                continue
            if statistic != _NONE and data.get(bound) is None:
                self.add_error(bound, f"The objective of {job.name} has no bound; enter seconds, or choose none.")
            if statistic == _NONE and data.get(bound) is not None:
                self.add_error(bound, f"{job.name} has a bound without an objective; choose which latency it is of.")

    @property
    def values(self) -> dict[str, object]:
        """Arguments of the import: jobs by names, which a redeploy keeps, and objectives.

        Where every job is chosen and none was named before, jobs that start later belong to it, too.
        """
        data = self.cleaned_data
        taken = [(number, job) for number, job in enumerate(self.jobs) if data[f"job-{number}"]]
        objectives = {
            job.name: {"statistic": data[f"statistic-{number}"], "bound_s": data[f"bound-{number}"]}
            for number, job in taken
            if data[f"bound-{number}"] is not None
        }
        is_every = len(taken) == len(self.jobs) and not self.chosen
        return {"jobs": None if is_every else [self._word(job) for _, job in taken], "objectives": objectives}

    def _word(self, job: KeptJob) -> str:
        """Its name; its id where another job has the same name."""
        is_shared = sum(other.name == job.name for other in self.jobs) > 1
        return job.id if is_shared else job.name


def _bound_widget() -> forms.NumberInput:
    return forms.NumberInput(attrs={"step": "any", "class": "short"})
