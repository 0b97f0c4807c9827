"""Windows of results: stored from RESULT frames, exported as CSV and Arrow."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from django.db import transaction
from django.http import HttpResponse, StreamingHttpResponse

from agent.wire import MAX_NUMBER, Frame, FrameKind, WireError, batch_bytes, table_of
from apps.core.errors import Fault, Malformed
from apps.core.events import announce
from apps.queries.models import Query
from apps.results.evaluation import rules_evaluate
from apps.results.models import ResultWindow
from apps.results.rows import as_json, body_of, table_in
from apps.telemetry.frames import receiver
from apps.telemetry.models import KnownPlan
from apps.ui.tables import csv_cell

__all__ = ["ARROW", "result_store", "results_arrow", "results_csv", "results_receive"]


_STORED = ("window_us", "width_us", "revision", "batch", "late", "early", "records")
_NUMBERS = dict.fromkeys((*_STORED, "emitted_us"), 0) | {"width_us": 1}
_OPTIONAL = {"late", "early", "records", "batch"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@receiver(FrameKind.RESULT)
def results_receive(frames: Sequence[Frame]) -> None:
    """Keep the windows of RESULT frames, in order, each in a transaction of its own."""
    for frame in frames:
        result_store(frame)


@transaction.atomic
def result_store(frame: Frame) -> ResultWindow | None:
    """Keep the window of a frame. One that came before, or in a higher revision, changes nothing.

    Results of a query that was deleted meanwhile belong to nobody and are left out, and so are those of a trial:
    refused, they would come again for ever.

    Raises
    ------
    Malformed
        The frame lacks a number, or its body is no table.
    """
    query, values, table = _query(frame.query), _values(frame), _table(frame)
    if query is None:
        return None
    stored = ResultWindow.objects.filter(query=query, plan=frame.plan, window_us=values["window_us"])
    row = stored.select_for_update().defer("body").first()
    if row is not None and row.revision >= values["revision"]:
        return row
    plan = KnownPlan.objects.select_related("live__version").filter(query=frame.query, digest=frame.plan).first()
    if plan is not None and plan.trial:
        return None
    live = plan.live if plan is not None else None
    values |= {
        "version_number": live.version.number if live is not None and live.plan == frame.plan else None,
        "row_count": table.num_rows,
        "body": body_of(table),
    }
    row, _ = ResultWindow.objects.update_or_create(
        query=query, plan=frame.plan, window_us=values.pop("window_us"), defaults=values
    )
    rules_evaluate(query=query, window=row, pipeline=plan.pipeline if plan is not None else None)
    announce(f"results:{query.pk}")
    return row


def _query(name: str) -> Query | None:
    cluster, _, own = name.partition("/")
    return Query.objects.select_related("cluster").filter(cluster__slug=cluster, name=own).first()


def _values(frame: Frame) -> dict[str, Any]:
    """Header of the frame, as the model holds it; every fault at once."""
    says = frame.extra
    faults = [
        Fault(f"extra.{name}", f"{name} is {says.get(name)!r}; allowed: a whole number from {minimum} on")
        for name, minimum in _NUMBERS.items()
        if not (name in _OPTIONAL and name not in says) and not _is_whole(says.get(name), minimum)
    ]
    closing_us = says.get("closing_epoch_us")
    if closing_us is not None and not _is_whole(closing_us, 0):
        faults.append(Fault("extra.closing_epoch_us", f"closing_epoch_us is {closing_us!r}; allowed: microseconds"))
    missing = says.get("missing", [])
    if not isinstance(missing, list) or not all(isinstance(missing_name, str) for missing_name in missing):
        faults.append(Fault("extra.missing", f"missing is {missing!r}; allowed: a list of agents' ids"))
    recovered = says.get("recovered", {})
    if not isinstance(recovered, dict) or not all(_is_whole(count, 0) for count in recovered.values()):
        faults.append(Fault("extra.recovered", f"recovered is {recovered!r}; allowed: records by agent's id"))
    if faults:
        raise Malformed(f"{faults[0].path}: {faults[0].message}.", faults)
    emitted_us = says["emitted_us"]
    return {
        **{name: says.get(name, 0) for name in _STORED},
        "complete": bool(says.get("complete", not missing)),
        "missing": missing,
        "recovered": recovered,
        "closing_epoch_at": _moment(closing_us) if closing_us else None,
        "emitted_at": _moment(emitted_us),
        # clocks of agents and of the stream processor may differ by more than the latency
        "latency_s": max(0.0, (emitted_us - closing_us) / 1e6) if closing_us else None,
    }


def _is_whole(value: Any, minimum: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and minimum <= value <= MAX_NUMBER


def _moment(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


def _table(frame: Frame) -> pa.Table:
    try:
        return table_of(frame.body)
    except WireError as error:
        raise Malformed(f"body: {error}.", [Fault("body", str(error))]) from None


ARROW = "application/vnd.apache.arrow.stream"
_LEAD = ("revision", "complete")


class _LineBuffer:
    """A file that gives back what is written into it."""

    def write(self, text: str) -> str:
        return text


def results_csv(windows: Iterable[ResultWindow], name: str) -> StreamingHttpResponse:
    """One line for each row; the columns are those of the first window."""
    headers = {"Content-Disposition": f'attachment; filename="{name}.csv"'}
    return StreamingHttpResponse(_lines(windows), content_type="text/csv; charset=utf-8", headers=headers)


def _lines(windows: Iterable[ResultWindow]) -> Iterator[str]:
    writer = csv.writer(_LineBuffer())
    names: list[str] | None = None
    for window in windows:
        table = table_in(window.body)
        if names is None:
            names = table.column_names
            yield writer.writerow([*_LEAD, *names])
        for row in table.to_pylist():
            cells = [csv_cell(as_json(row.get(column))) for column in names]
            yield writer.writerow([window.revision, str(window.complete).lower(), *cells])


def results_arrow(windows: Iterable[ResultWindow], name: str) -> HttpResponse:
    """One Arrow IPC stream; windows of another plan with other columns are left out."""
    tables: list[pa.Table] = []
    for window in windows:
        table = table_in(window.body)
        if not tables or table.schema.equals(tables[0].schema):
            tables.append(table)
    body = batch_bytes(pa.concat_tables(tables).combine_chunks()) if tables else b""
    headers = {"Content-Disposition": f'attachment; filename="{name}.arrow"'}
    return HttpResponse(body, content_type=ARROW, headers=headers)
