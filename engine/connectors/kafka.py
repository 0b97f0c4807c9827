"""Consumer lag of Kafka: how much waits before a job, told by the broker itself, Burrow, Confluent or the CLI."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.connectors.answers import AnswerObject, Answers, number_of
from engine.connectors.picture import Finding

__all__ = [
    "GroupLag",
    "PartitionLag",
    "broker_findings",
    "is_broker_answer",
    "read_broker_lags",
    "read_burrow_lag",
    "read_cli_lag",
    "read_confluent_lag",
]

_WHAT = "answer about consumer lag"
_COLUMNS = ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")
_STATES = {
    "WARN": "its lag grows",
    "ERR": "its lag grows and it commits late",
    "STOP": "it has stopped committing",
    "STALL": "it commits without moving on",
    "REWIND": "its offsets went back",
    "NOTFOUND": "it is not known",
}
_UNKNOWN = "-"


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """Lag of one partition in events; None where no offset is committed yet or the end is not known."""

    topic: str
    partition: int | None
    lag: float | None
    end_offset: float | None = None


@dataclass(frozen=True, slots=True)
class GroupLag:
    """Lag of a consumer group now."""

    group: str
    events: float | None  #: events that wait, over the partitions that are known; None where none is
    partitions: tuple[PartitionLag, ...] = ()
    #: in Burrow's word where it tells one: OK, WARN, ERR, STOP, STALL, REWIND, NOTFOUND; empty otherwise
    state: str = ""
    complete: float = 1.0  #: share of the samples or partitions that are known, 0 to 1: below 1 there may be more
    findings: tuple[Finding, ...] = ()

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(sorted({partition.topic for partition in self.partitions if partition.topic}))

    def is_whole(self, topic: str) -> bool:
        """Whether the lag of every partition of a topic is known; otherwise at least the events told wait."""
        rows = [partition for partition in self.partitions if partition.topic == topic]
        return self.complete >= 1.0 and all(partition.lag is not None for partition in rows)

    def events_of(self, topic: str) -> float | None:
        """Events that wait in one topic; None where no partition of it is known."""
        lags = [partition.lag for partition in self.partitions if partition.topic == topic]
        known = [lag for lag in lags if lag is not None]
        return math.fsum(known) if known else None


def _group(
    group: str,
    partitions: Sequence[PartitionLag],
    findings: Iterable[Finding] = (),
    *,
    state: str = "",
    complete: float | None = None,
    events: float | None = None,
) -> GroupLag:
    known = [partition.lag for partition in partitions if partition.lag is not None]
    if complete is None:
        complete = len(known) / len(partitions) if partitions else 1.0
    total = events if events is not None else math.fsum(known) if known else None
    notes = [*findings, *_group_findings(group, partitions, state, complete)]
    if total is None and not partitions and not state:
        notes.append(Finding.of("missing", "lag_missing", group, group=group))
    return GroupLag(group, total, tuple(partitions), state, complete, tuple(notes))


def _group_findings(group: str, partitions: Sequence[PartitionLag], state: str, complete: float) -> Iterator[Finding]:
    unknown = [f"{p.topic}/{'?' if p.partition is None else p.partition}" for p in partitions if p.lag is None]
    if unknown:
        partitions_without = {"count": len(unknown), "partitions": unknown}
        yield Finding.of("missing", "offsets_missing", group, group=group, **partitions_without)
    if complete < 1.0 and not unknown:
        yield Finding.of("warning", "lag_incomplete", group, group=group, complete=complete)
    if state and state != "OK":
        meaning = _STATES.get(state, "not OK")
        yield Finding.of("warning", "consumer_state", group, group=group, state=state, meaning=meaning)


_BROKER = "broker"
_GROUPS = "consumer_groups"
_GROUP_STATES = {"Empty": "has no active members", "Dead": "is dead: it has neither members nor offsets"}


def is_broker_answer(document: Any) -> bool:
    """Whether it is what a broker answered about its groups."""
    return isinstance(document, Mapping) and _GROUPS in document


def broker_findings(document: Mapping[str, Any]) -> Iterator[Finding]:
    """Findings about the groups as a whole: there is none, or there are more than were asked about."""
    if not document.get(_GROUPS) and not document.get("unknown"):
        yield Finding.of("missing", "groups_missing", "")
    left_out = number_of(document.get("left_out"))
    if left_out:
        yield Finding.of("warning", "groups_left_out", "", count=int(left_out))


def read_broker_lags(document: Any) -> tuple[GroupLag, ...]:
    """Lag by group from what a broker answered: offsets committed, and ends of the partitions.

    A partition without a commit has a lag where it is empty alone; where a commit is beyond the end, one of the two is
    of another topic of that name, and the lag is not known.

    Raises
    ------
    DocumentError
        Missing fields, or another document.
    """
    known, record = _document(document, _BROKER)
    lags = []
    for row in record.records(_GROUPS, required=False):
        group, state = row.text("group"), str(row.fields.get("state") or "")
        rows = [_broker_partition(part) for part in row.records("partitions", required=False)]
        notes = list(_broker_findings(group, state, row.fields.get("error"), rows))
        lags.append((group, [partition for partition, _ in rows], notes))
    known.check()
    unknown = document.get("unknown")
    names = [name for name in unknown if isinstance(name, str)] if isinstance(unknown, list) else []
    return (
        *(_group(group, partitions, notes) for group, partitions, notes in lags),
        *(_group(name, [], state="NOTFOUND") for name in names),
    )


def _broker_partition(row: AnswerObject) -> tuple[PartitionLag, str]:
    """Lag of a partition, and the reason in a word where it has none."""
    topic, partition = row.text("topic"), int(row.number("partition", least=0))
    committed, begin, end = (row.optional(name) for name in ("committed", "begin", "end"))
    reason = str(row.fields.get("error") or "")
    if reason or end is None:
        return PartitionLag(topic, partition, None), reason or "its end is not told"
    if committed is None or committed < 0.0:
        return PartitionLag(topic, partition, 0.0 if begin == end else None, end), ""
    if committed > end:
        return PartitionLag(topic, partition, None, end), f"{committed:,.0f} are committed and its end is {end:,.0f}"
    return PartitionLag(topic, partition, end - committed, end), ""  # lag = end of the log - offset committed


def _broker_findings(
    group: str, state: str, error: object, rows: Sequence[tuple[PartitionLag, str]]
) -> Iterator[Finding]:
    if error:
        yield Finding.of("warning", "group_refused", group, group=group, reason=str(error))
    if state in _GROUP_STATES:
        told = {"group": group, "state": _GROUP_STATES[state]}
        yield Finding.of("warning", "consumer_state", group, "consumer_state_told", **told)
    reasons: dict[str, list[str]] = {}
    for partition, reason in rows:
        if reason:
            reasons.setdefault(reason, []).append(f"{partition.topic}/{partition.partition}")
    for reason, names in reasons.items():
        yield Finding.of(
            "warning", "ends_unread", group, group=group, count=len(names), partitions=names, reason=reason
        )


def read_burrow_lag(document: Any) -> GroupLag:
    """Lag of a group from Burrow's ``GET /v3/kafka/:cluster/consumer/:group/lag``.

    Raises
    ------
    DocumentError
        Burrow's own error, missing fields, or another document.
    """
    known, record = _document(document, "Burrow")
    if record.fields.get("error"):
        words = record.fields.get("message") or "an error without words"
        known.add_fault("Burrow", "message", f"it answered with an error: {words}")
        known.check()
    status = record.record("status")
    rows = [_burrow_partition(row) for row in status.records("partitions", required=False)]
    state = status.text("status")
    complete = status.optional("complete")
    total = status.number("totallag", least=0) if state != "NOTFOUND" else None
    group = status.text("group")
    known.check()
    return _group(
        group, rows, state=state, complete=min(1.0, max(0.0, 1.0 if complete is None else complete)), events=total
    )


def _burrow_partition(row: AnswerObject) -> PartitionLag:
    end = row.record("end", required=False)
    lag = row.optional("current_lag")
    lag = end.optional("lag") if lag is None else lag
    offset = end.optional("offset")
    return PartitionLag(
        row.text("topic"),
        int(row.number("partition", least=0)),
        None if lag is None or lag < 0.0 else lag,
        None if offset is None or lag is None else offset + lag,
    )


def read_confluent_lag(document: Any) -> GroupLag:
    """Lag of a group from Confluent's REST v3: ``…/consumer-groups/:group/lag-summary``, or ``…/lags``.

    Raises
    ------
    DocumentError
        Confluent's own error, missing fields, or another document.
    """
    known, record = _document(document, "Confluent REST")
    if "error_code" in record.fields:
        words = f"{record.fields['error_code']}: {record.fields.get('message')}"
        known.add_fault("Confluent REST", "error_code", f"it answered with an error: {words}")
        known.check()
    if "data" in record.fields:
        rows = list(record.records("data"))
        partitions = [_confluent_partition(row) for row in rows]
        group = rows[0].text("consumer_group_id") if rows else ""
        known.check()
        return _group(group, partitions)
    group, total = record.text("consumer_group_id"), record.number("total_lag", least=0)
    known.check()
    largest = record.optional("max_lag_partition_id")
    topic = str(record.fields.get("max_lag_topic_name") or "")
    worst = PartitionLag(topic, None if largest is None else int(largest), record.optional("max_lag"))
    return _group(group, [worst] if topic else [], complete=1.0, events=total)


def _confluent_partition(row: AnswerObject) -> PartitionLag:
    lag = row.optional("lag")
    return PartitionLag(
        row.text("topic_name"),
        int(row.number("partition_id", least=0)),
        None if lag is None or lag < 0.0 else lag,
        row.optional("log_end_offset"),
    )


def _document(document: Any, what: str) -> tuple[Answers, AnswerObject]:
    known = Answers({"/lag": document}, f"{_WHAT} ({what})")
    if isinstance(document, Mapping):
        return known, AnswerObject(known, what, "", document)
    known.record("/lag")
    known.check()
    raise AssertionError("a fault was raised")  # pragma: no cover


def read_cli_lag(text: str) -> tuple[GroupLag, ...]:
    """Lag by group from the text of ``kafka-consumer-groups.sh --describe``, in the order of the text.

    Raises
    ------
    DocumentError
        No line has the columns' names, or a line has another number of columns.

    Examples
    --------
    >>> lag, = read_cli_lag("GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG HOST\\ng t 0 5 15 10 /10.0.0.1\\n")
    >>> lag.group, lag.events, lag.partitions[0].end_offset
    ('g', 10.0, 15.0)
    """
    known = Answers({}, f"{_WHAT} (kafka-consumer-groups.sh)")
    columns: list[str] = []
    groups: dict[str, list[PartitionLag]] = {}
    notes: list[Finding] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if set(_COLUMNS) <= set(words):
            columns = words
        elif found := re.match(r"Consumer group '(.+)' (has no active members|does not exist)", line.strip()):
            told = {"group": found[1], "state": found[2]}
            notes.append(Finding.of("warning", "consumer_state", found[1], "consumer_state_told", **told))
        elif words and columns and words[0] not in ("Error:", "Warning:"):
            if len(words) < len(columns) - 1:  # the last column, a client's id, may be missing
                known.add_fault(f"line {number}", "", f"it has {len(words)} columns; allowed: {len(columns)}")
                continue
            row = dict(zip(columns, words, strict=False))
            groups.setdefault(row.get("GROUP", ""), []).append(_cli_partition(row))
    if not columns:
        known.add_fault("", "", f"no line names the columns; allowed: {', '.join(_COLUMNS)}")
    known.check()
    lags = [_group(group, rows, [n for n in notes if n.subject == group]) for group, rows in groups.items()]
    return tuple(lags)


def _cli_partition(row: Mapping[str, str]) -> PartitionLag:
    values = {name: None if row[name] == _UNKNOWN else number_of(row[name]) for name in _COLUMNS if name != "TOPIC"}
    number, lag = values["PARTITION"], values["LAG"]
    end = values["LOG-END-OFFSET"]
    return PartitionLag(
        row["TOPIC"], None if number is None else int(number), None if lag is None or lag < 0.0 else lag, end
    )
