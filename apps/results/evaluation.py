"""Evaluation of alert rules when a window arrives: alerts open for groups that break a rule, and resolve."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from django.utils import timezone

from apps.core.errors import Fault, Malformed, SluiceError
from apps.core.events import announce
from apps.queries.models import Query
from apps.results.models import Alert, AlertEvent, AlertRule, AlertState, Comparison, ResolvedBy, ResultWindow
from apps.results.notices import alerts_notify
from apps.results.rows import WINDOW, as_json, group_columns, is_number, table_in
from engine.dataflow import Pipeline
from engine.dataflow.arrow.kernels import row_kernel
from engine.dataflow.types import PipelineDocument
from engine.errors import DocumentError, EngineError

__all__ = ["MAX_ALERTS", "alerts_announce", "condition_check", "rows_where", "rules_evaluate"]


_TYPES = (
    (pa.types.is_timestamp, "timestamp"),
    (pa.types.is_boolean, "bool"),
    (pa.types.is_integer, "int64"),
    (pa.types.is_floating, "float64"),
)


#: The window's beginning under a name that a stream may have.
_AT = "window_at"


def rows_where(table: pa.Table, where: str) -> pa.Table:
    """The rows that meet a condition; all of them where it is empty."""
    if not where or not table.num_rows:
        return table
    pipeline = _pipeline(table.schema, where)
    schema = pipeline.source.schema  # in the order of the alphabet
    renamed = table.rename_columns([_AT if name == WINDOW else name for name in table.column_names])
    matching = row_kernel(pipeline, 0).run(renamed.select(schema.names).cast(schema))
    return matching.rename_columns([WINDOW if name == _AT else name for name in matching.column_names])


def condition_check(schema: pa.Schema, where: str) -> None:
    """Refuse what is no condition on these columns.

    Raises
    ------
    Malformed
        With the fault at `where`.
    """
    if not where:
        return
    try:
        _pipeline(schema, where)
    except DocumentError as error:
        said = error.faults[0].message if error.faults else error.message
        raise Malformed(f"where: {said}", [Fault("where", said)]) from None


def _pipeline(schema: pa.Schema, where: str) -> Pipeline:
    """A pipeline of one filter over a result's columns."""
    columns = {_AT if field.name == WINDOW else field.name: _type_name(field.type) for field in schema}
    document: PipelineDocument = {
        "source": {"id": "result", "time": _AT, "columns": columns},
        "operators": [{"id": "where", "kind": "filter", "expression": {"op": "filter", "where": where}}],
    }
    return Pipeline.parse(document)


def _type_name(kind: pa.DataType) -> str:
    return next((name for test, name in _TYPES if test(kind)), "string")


#: Alerts that one rule may have at a time: a rule that everything breaks would otherwise make thousands.
MAX_ALERTS = 100
_COMPARE = {
    Comparison.ABOVE: pc.greater,
    Comparison.AT_LEAST: pc.greater_equal,
    Comparison.BELOW: pc.less,
    Comparison.AT_MOST: pc.less_equal,
}


@dataclass(frozen=True)
class _Breach:
    """A group that breaks a rule in a window."""

    group: Mapping[str, object]
    value: float


def rules_evaluate(*, query: Query, window: ResultWindow, pipeline: PipelineDocument | None) -> None:
    """Open and resolve the alerts of a query's rules after `window` was stored. Called inside its transaction."""
    rules = list(AlertRule.objects.select_for_update().filter(query=query, enabled=True))
    if not rules:
        return
    windows = _newest(window, max(rule.for_windows for rule in rules))
    if window.window_us < windows[-1].window_us:
        return  # a revision of a window that no rule looks at any more
    tables = [table_in(window.body) for window in windows]
    step_us = _step_us(pipeline) or window.width_us
    changed = False
    for rule in rules:
        changed |= _evaluate(rule, windows, tables, step_us, pipeline)
    if changed:
        alerts_announce(query)


def alerts_announce(query: Query) -> None:
    """Tell open pages that alerts of a query have changed."""
    announce(f"alerts:{query.cluster.slug}")
    announce(f"cluster:{query.cluster.slug}")


def _newest(window: ResultWindow, count: int) -> list[ResultWindow]:
    rows = ResultWindow.objects.filter(query_id=window.query_id, plan=window.plan)
    return list(rows.order_by("-window_us")[:count])


def _step_us(pipeline: PipelineDocument | None) -> int | None:
    """Period of the pipeline's windows, if it has any."""
    for operator in pipeline["operators"] if pipeline else ():
        expression = operator["expression"]
        if expression["op"] == "window":
            return round(1e6 * (expression.get("slide_s") or expression["size_s"]))
    return None


def _evaluate(
    rule: AlertRule,
    windows: Sequence[ResultWindow],
    tables: Sequence[pa.Table],
    step_us: int,
    pipeline: PipelineDocument | None,
) -> bool:
    """Whether an alert was opened or resolved."""
    rule.fault, rule.unlisted, rule.evaluated_at = "", 0, timezone.now()
    changed = False
    try:
        groups = group_columns(pipeline, tables[0].schema)
        breaches = [_breaches(rule, table, groups) for table in tables[: rule.for_windows]]
    except (SluiceError, EngineError) as error:
        rule.fault = error.message[:300]
    else:
        newest = breaches[0]
        span_us = windows[0].window_us - windows[len(breaches) - 1].window_us
        in_a_row = len(breaches) == rule.for_windows and span_us == (rule.for_windows - 1) * step_us
        keys = set(newest).intersection(*breaches) if in_a_row else set()
        changed = _follow(rule, windows[0], newest, {key: newest[key] for key in keys}, tables[0], groups)
    rule.save(update_fields=["fault", "unlisted", "evaluated_at"])
    return changed


def _breaches(rule: AlertRule, table: pa.Table, groups: list[str]) -> dict[str, _Breach]:
    """The groups of one window that break the rule, by key; of a group with several rows the worst."""
    if rule.column not in table.column_names or not is_number(table.schema.field(rule.column).type):
        numbers = ", ".join(field.name for field in table.schema if is_number(field.type)) or "none"
        raise Malformed(f"The results have no number {rule.column!r}; their numbers: {numbers}.")
    table = rows_where(table, rule.where)
    values = table.column(rule.column).cast(pa.float64(), safe=False)
    mask = pc.fill_null(_COMPARE[Comparison(rule.comparison)](values, rule.threshold), False)
    rows = table.select([*groups, rule.column]).filter(mask).to_pylist()
    return _worst(rule, ((_group(row, groups), float(row[rule.column])) for row in rows))


def _worst(rule: AlertRule, rows: Iterable[tuple[Mapping[str, object], float]]) -> dict[str, _Breach]:
    worst: dict[str, _Breach] = {}
    for group, value in rows:
        key = _key(group)
        if key not in worst or _is_worse(rule, value, worst[key].value):
            worst[key] = _Breach(group, value)
    return worst


def _is_worse(rule: AlertRule, value: float, than: float) -> bool:
    return value > than if rule.comparison in (Comparison.ABOVE, Comparison.AT_LEAST) else value < than


def _group(row: Mapping[str, object], groups: list[str]) -> dict[str, object]:
    return {name: as_json(row[name]) for name in groups}


def _key(group: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(group, sort_keys=True, default=str).encode()).hexdigest()


def _follow(
    rule: AlertRule,
    window: ResultWindow,
    newest: Mapping[str, _Breach],
    fires: Mapping[str, _Breach],
    table: pa.Table,
    groups: list[str],
) -> bool:
    """Resolve what no longer breaks the rule, go on with what still does, open what is new."""
    firing = {alert.group_key: alert for alert in rule.alerts.select_for_update().filter(state=AlertState.FIRING)}
    ended = [alert for key, alert in firing.items() if key not in newest]
    present = _values_of(rule, table, groups) if ended else {}
    for alert in ended:
        value = present.get(alert.group_key)
        alert.state, alert.resolved_at = AlertState.RESOLVED, timezone.now()
        alert.resolved_by, alert.resolved_value = (ResolvedBy.VALUE if value is not None else ResolvedBy.GONE), value
        alert.last_window_us = window.window_us
        alert.save()
    alerts_notify(rule, AlertEvent.RESOLVED, ended)
    going_on = [alert for key, alert in firing.items() if key in newest]
    for alert in going_on:
        value = newest[alert.group_key].value
        alert.last_value, alert.last_window_us = value, window.window_us
        alert.worst_value = value if _is_worse(rule, value, alert.worst_value) else alert.worst_value
        alert.save(update_fields=["last_value", "last_window_us", "worst_value"])
    opened = _open(rule, window, {key: fire for key, fire in fires.items() if key not in firing}, len(going_on))
    return bool(ended or opened)


def _open(rule: AlertRule, window: ResultWindow, fires: Mapping[str, _Breach], already: int) -> int:
    """New alerts, the worst first, as far as the rule has room."""
    by_size = sorted(fires.items(), key=lambda entry: entry[1].value)
    if rule.comparison in (Comparison.ABOVE, Comparison.AT_LEAST):
        by_size.reverse()
    room = max(0, MAX_ALERTS - already)
    rule.unlisted = max(0, len(by_size) - room)
    opened = [
        Alert.objects.create(
            rule=rule,
            group=breach.group,
            group_key=key,
            opened_window_us=window.window_us,
            last_window_us=window.window_us,
            opened_value=breach.value,
            last_value=breach.value,
            worst_value=breach.value,
        )
        for key, breach in by_size[:room]
    ]
    alerts_notify(rule, AlertEvent.FIRING, opened)
    return len(opened)


def _values_of(rule: AlertRule, table: pa.Table, groups: list[str]) -> dict[str, float]:
    """The value of each group of a window, whether it breaks the rule or not."""
    rows = table.select([*groups, rule.column]).to_pylist()
    return {_key(_group(row, groups)): float(row[rule.column]) for row in rows if row[rule.column] is not None}
