"""Sources: agents, the stream processor, what is collected, static tables, and enrolment."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.conf import settings
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from apps.accounts.permissions import signed_in_user
from apps.core.body_sizes import DOCUMENT
from apps.core.errors import Conflict
from apps.core.limits import MAX_SHORT_NOTE, MAX_SLUG
from apps.fleet.models import Cluster
from apps.pages.base import ClusterPage, done, try_service
from apps.pages.crud import Crud
from apps.pages.sources.agent_tables import AgentLine, agent_lines, agents_table
from apps.pages.sources.facts import RolloutPanel, SourcesFinding, StreamCard, source_tabs
from apps.rollouts.rollout_selectors import rollout_now
from apps.telemetry.agent_services import enrolment_create, enrolment_revoke
from apps.telemetry.collectors import COLLECTORS
from apps.telemetry.models import COLUMN_TYPES, Agent, EnrolmentToken, StaticTable, TelemetrySource
from apps.telemetry.selectors import enrolments_listed, source_readers, sources_listed, tables_listed
from apps.telemetry.sources import source_delete, source_upsert, table_delete, table_upsert
from apps.ui.forms import JsonField, set_range
from engine.words import counted

__all__ = ["AgentForm"]

MIN_CORES = 0.01
_TYPES = ", ".join(COLUMN_TYPES)
_MONO = {"spellcheck": "false"}


class EnrolForm(forms.Form):
    """A token that agents join with."""

    uses = forms.IntegerField(label="Number of agents", initial=1, min_value=1, help_text="Each join uses it once.")
    hours = forms.IntegerField(
        label="Valid for", initial=24, min_value=1, max_value=24 * 366, help_text="It is of no use afterwards."
    )
    agent_name = forms.CharField(
        label="For one agent",
        max_length=MAX_SLUG,
        required=False,
        help_text="Its name, where one that is known has lost its secret. Empty: new agents only.",
    )
    note = forms.CharField(label="Note", max_length=MAX_SHORT_NOTE, required=False, help_text="Such as rack r7.")

    @property
    def values(self) -> dict[str, object]:
        values = self.cleaned_data
        expires_at: datetime = timezone.now() + timedelta(hours=values["hours"])
        return {name: values[name] for name in ("uses", "agent_name", "note")} | {"expires_at": expires_at}


class AgentForm(forms.Form):
    """CPU budget of an agent: from a hundredth of a core to all that its machine has."""

    budget_cores = forms.FloatField(label="CPU budget", help_text="Of one core is 1; what it needs beyond is drained.")

    def __init__(self, *args: Any, agent: Agent | None = None, **kwargs: Any) -> None:
        if agent is not None:
            kwargs.setdefault("initial", {"budget_cores": agent.budget_cores})
        super().__init__(*args, **kwargs)
        self.most = max(float(agent.cores), agent.budget_cores) if agent is not None else 1024.0
        set_range(self.fields["budget_cores"], MIN_CORES, self.most, "cores")

    @property
    def value(self) -> str:
        """As its number field shows it."""
        value = self["budget_cores"].value()
        return f"{value:g}" if isinstance(value, float) else str(value or "")

    @property
    def step(self) -> int:
        """Position of the slider, 0 to 200: its steps are equal ratios, so that a hundredth of a core counts."""
        try:
            value = min(max(float(self.value), MIN_CORES), self.most)
        except ValueError:
            return 0
        return round(200 * math.log(value / MIN_CORES) / math.log(self.most / MIN_CORES))


class _Lines(forms.CharField):
    """`ts timestamp` a line as {"ts": "timestamp"}; every line that is none is told."""

    widget = forms.Textarea(attrs={**_MONO, "rows": 8})

    def prepare_value(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return "\n".join(f"{name} {kind}" for name, kind in value.items())
        return value

    def clean(self, value: Any) -> dict[str, str]:
        columns: dict[str, str] = {}
        faults = []
        for number, line in enumerate(super().clean(value).splitlines(), 1):
            parts = line.replace(":", " ").replace(",", " ").split()
            if not parts:
                continue
            if len(parts) != 2:
                faults.append(f"Line {number} is {line.strip()!r}; allowed: a name and a type, such as rtt_us int64.")
            elif parts[1] not in COLUMN_TYPES:
                faults.append(f"Line {number}: the type of {parts[0]} is {parts[1]!r}; allowed: {_TYPES}.")
            elif parts[0] in columns:
                faults.append(f"Line {number}: {parts[0]} is there already.")
            else:
                columns[parts[0]] = parts[1]
        if faults:
            raise forms.ValidationError(faults)
        return columns


class SourceForm(forms.Form):
    """A stream of records: who makes them, and their columns."""

    source_id = forms.CharField(label="Name", max_length=MAX_SLUG, help_text="Name in operators and arrivals.")
    kind = forms.ChoiceField(label="Collected by", choices=COLLECTORS)
    columns = _Lines(label="Columns", help_text=f"One a line: name and type, such as ts timestamp. Types: {_TYPES}.")
    time = forms.CharField(label="Column of event time", max_length=MAX_SLUG, initial="ts", help_text="A timestamp.")
    lateness_s = forms.FloatField(
        label="Lateness",
        initial=1.0,
        min_value=0,
        max_value=86_400,
        help_text="Time that windows wait for late records.",
    )
    options = JsonField(
        label="Options of the collector",
        required=False,
        help_text='As JSON, such as `{"path": "/var/log/app.log"}` of a log file, `{"rate_per_s": 50}` of a generator.',
    )

    def __init__(self, *args: Any, source: TelemetrySource | None = None, **kwargs: Any) -> None:
        if source is not None:
            names = ("source_id", "kind", "columns", "time", "lateness_s", "options")
            kwargs.setdefault("initial", {name: getattr(source, name) for name in names})
        super().__init__(*args, **kwargs)
        if source is not None:
            self.fields["source_id"].disabled = True


class TableForm(forms.Form):
    """A small table that queries join their records with, pasted or uploaded as CSV."""

    name = forms.CharField(max_length=MAX_SLUG, help_text="Name in joins.")
    columns = _Lines(
        label="Types of its columns",
        required=False,
        help_text="One a line: name and type. Left empty, every column is a string.",
    )
    text = forms.CharField(
        label="Rows",
        required=False,
        strip=False,
        widget=forms.Textarea(attrs={**_MONO, "rows": 12}),
        help_text="As CSV with a heading line; an empty cell is null.",
    )
    file = forms.FileField(label="Or a CSV file", required=False)

    def __init__(self, *args: Any, table: StaticTable | None = None, **kwargs: Any) -> None:
        if table is not None:
            initial = {"name": table.name, "columns": table.columns, "text": csv_text(table)}
            kwargs.setdefault("initial", initial)
        super().__init__(*args, **kwargs)
        if table is not None:
            self.fields["name"].disabled = True

    @property
    def values(self) -> dict[str, object]:
        """Arguments of `table_upsert`."""
        return {name: self.cleaned_data[name] for name in ("name", "columns", "rows")}

    def clean(self) -> None:
        super().clean()
        values = self.cleaned_data
        text = _decoded(self, values)
        if not self.errors:
            heading, rows = _read(text)
            types = values.get("columns") or dict.fromkeys(heading, "string")
            if not heading:
                self.add_error("text", "There is no heading line. Paste CSV, or choose a file.")
            elif missing := [name for name in types if name not in heading]:
                self.add_error("columns", f"{', '.join(missing)}: the heading has {', '.join(heading)}.")
            else:
                values["rows"] = self._typed(heading, rows, types)
                values["columns"] = types

    def _typed(self, heading: list[str], rows: list[list[str]], types: Mapping[str, str]) -> list[list[Any]]:
        """Rows in the order of the types; the first ten cells that are none are told."""
        faults: list[str] = []
        typed = []
        for number, row in enumerate(rows, 2):
            if len(row) != len(heading):
                faults.append(f"Line {number} has {len(row)} cells; the heading has {len(heading)}.")
                continue
            cells = dict(zip(heading, row, strict=True))
            line = []
            for name, kind in types.items():
                try:
                    line.append(_cell(cells[name], kind))
                except ValueError:
                    faults.append(f"Line {number}: {name} is {cells[name]!r}; allowed: {_ALLOWED[kind]}.")
                    line.append(None)
            typed.append(line)
        for fault in faults[:10]:
            self.add_error("text", fault)
        if len(faults) > 10:
            self.add_error("text", f"And {len(faults) - 10} more.")
        return typed


_ALLOWED = {
    "int64": "a whole number",
    "float64": "a number",
    "bool": "true or false",
    "timestamp": "a time such as 2026-11-21T14:32:00Z",
    "string": "a text",
}


def _cell(text: str, kind: str) -> Any:
    if text == "":
        return None
    if kind == "int64":
        return int(text)
    if kind == "float64":
        return float(text)
    if kind == "bool":
        if text.strip().lower() not in {"true", "false"}:
            raise ValueError(text)
        return text.strip().lower() == "true"
    if kind == "timestamp":
        return datetime.fromisoformat(text).isoformat()
    return text


def _decoded(form: TableForm, values: Mapping[str, Any]) -> str:
    file = values.get("file")
    if file is None:
        return values.get("text") or ""
    try:
        return file.read().decode("utf-8-sig")
    except UnicodeDecodeError:
        form.add_error("file", "It is no UTF-8 text. Save it as CSV in UTF-8.")
        return ""


def _read(text: str) -> tuple[list[str], list[list[str]]]:
    lines = [row for row in csv.reader(io.StringIO(text)) if row]
    return ([name.strip() for name in lines[0]], lines[1:]) if lines else ([], [])


def csv_text(table: StaticTable) -> str:
    """The table as the form takes it."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(["" if value is None else value for value in row] for row in table.rows)
    return out.getvalue()


class SourcesPage(ClusterPage):
    """`/c/<slug>/sources/`"""

    template_name = "pages/sources/list.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        lines = agent_lines(self.cluster)
        table = agents_table(request, self.cluster, lines, can_change="operate" in signed_in_user(request).scopes)
        return self.shown(lines, table)

    def shown(self, lines: list[AgentLine], table: Any, status: int = 200, **context: Any) -> HttpResponse:
        names = {str(line.agent.pk): line.agent.name for line in lines}
        stream, rollout = StreamCard(self.slug, names), rollout_now(self.cluster)
        shared = {
            "table": table,
            "has_agents": bool(lines),
            "agent_count": len(lines),
            "tabs": source_tabs(self.slug, "agents"),
            "stream": stream,
            "rollout": RolloutPanel(rollout) if rollout is not None else None,
            "finding": SourcesFinding(lines, stream, rollout),
            "sources": list(sources_listed().filter(cluster=self.cluster)),
            "tables": list(tables_listed().filter(cluster=self.cluster)),
            "enrol": EnrolForm(),
            "open_tokens": tokens_open(self.cluster),
        }
        return self.page({**shared, **context}, status)


def tokens_open(cluster: Cluster) -> list[EnrolmentToken]:
    """Tokens that agents can still join with."""
    rows = enrolments_listed().filter(cluster=cluster, revoked_at=None, uses_left__gt=0, expires_at__gt=timezone.now())
    return list(rows[:20])


class TokenRevoke(SourcesPage):
    """POST: nobody joins with a token any more."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        token = self.find(enrolments_listed().filter(cluster=self.cluster), "enrolment token", pk=pk)
        enrolment_revoke(token=token)
        return done(request, f"Nobody joins with {token} any more.", "pages:sources", slug)


class AgentEnrol(SourcesPage):
    """POST: make a token that agents join with; the command to run is shown once."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        form = EnrolForm(request.POST)
        joined: tuple[EnrolmentToken, str] | None = None
        if form.is_valid():
            joined, _ = try_service(
                form, lambda: enrolment_create(cluster=self.cluster, user=signed_in_user(request), **form.values)
            )
        lines = agent_lines(self.cluster)
        table = agents_table(request, self.cluster, lines, can_change=True)
        if joined is None:
            return self.shown(lines, table, 422, enrol=form)
        token, secret = joined
        return self.shown(lines, table, 201, joined=JoinCommand(request, self.cluster, token, secret))


@dataclass(frozen=True)
class JoinCommand:
    """Command with which an agent joins by a token."""

    request: HttpRequest
    cluster: Cluster
    token: EnrolmentToken
    secret: str

    @property
    def url(self) -> str:
        return settings.PUBLIC_URL or self.request.build_absolute_uri("/").rstrip("/")

    @property
    def command(self) -> str:
        """Join, then run; the agent keeps its secret in its folder."""
        join = f'./sluice agent enrol --url "{self.url}" \\\n  --token "{self.secret}" \\\n  --state-dir sluice-agent'
        return f"{join} &&\n./sluice agent run --config sluice-agent/agent.toml"


class SourceCrud(Crud):
    """Sources of records: who collects them, and their columns."""

    noun = "source"
    form_class = SourceForm
    form_keyword = "source"
    template_name = "pages/sources/source_form.html"
    change_scope = "read"
    kept_fields = ("kind", "columns", "time", "lateness_s", "options")
    back = "pages:sources"
    delete_name = "pages:source-delete"
    shows_refusals = True
    service_delete = staticmethod(source_delete)

    def rows(self) -> QuerySet[TelemetrySource]:
        return TelemetrySource.objects.filter(cluster=self.cluster)

    def create(self, form: SourceForm) -> TelemetrySource:
        refuse_taken_name(self.rows(), "source_id", form.cleaned_data["source_id"], "source")
        return source_upsert(cluster=self.cluster, **form.cleaned_data)

    def update(self, row: TelemetrySource, form: SourceForm) -> TelemetrySource:
        return source_upsert(cluster=self.cluster, **form.cleaned_data)

    def context(self, row: TelemetrySource | None) -> dict[str, object]:
        rest_body = {"cluster": self.slug, "source_id": "probes", "kind": "host_metrics", "time": "ts"}
        return {"readers": source_readers(row) if row is not None else [], "rest_body": rest_body}


class TableCrud(Crud):
    """Static tables that queries join their records with."""

    body_sizes = {"POST": DOCUMENT}
    noun = "table"
    form_class = TableForm
    form_keyword = "table"
    template_name = "pages/sources/table_form.html"
    change_scope = "read"
    back = "pages:sources"
    delete_name = "pages:static-table-delete"
    shows_refusals = True
    fault_fields = {"rows": "text"}
    service_delete = staticmethod(table_delete)

    def rows(self) -> QuerySet[StaticTable]:
        return StaticTable.objects.filter(cluster=self.cluster)

    def create(self, form: TableForm) -> StaticTable:
        refuse_taken_name(self.rows(), "name", form.cleaned_data["name"], "table")
        return table_upsert(cluster=self.cluster, **form.values)

    def update(self, row: StaticTable, form: TableForm) -> StaticTable:
        return table_upsert(cluster=self.cluster, **form.values)

    def saved(self, row: StaticTable) -> HttpResponse:
        text = f"{row} is saved with {counted(len(row.rows), 'row')}."
        return done(self.request, text, self.back, *self.back_arguments(row))

    def context(self, row: StaticTable | None) -> dict[str, object]:
        rest = {"cluster": self.slug, "name": "tor_of", "columns": {"ip": "string"}, "rows": [["10.0.0.1"]]}
        return {"rest_body": rest}


def refuse_taken_name(rows: QuerySet[Any], field: str, name: str, noun: str) -> None:
    """Refuse to create what would silently change the row of that name."""
    if rows.filter(**{field: name}).exists():
        message = f"It is {name!r}; a {noun} of that name exists. Change that one, or take another name."
        raise Conflict(message, [(field, message)])
