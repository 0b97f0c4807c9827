"""Topics of Kafka beside a Flink: what is produced to the topics of its sources, by a broker's connection."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from apps.connections.choices import ConnectionEngine
from apps.connections.models import Connection, KeptAnswers
from apps.connections.rounds import EngineLook
from engine.connectors.picture import ArrivalCounts, Finding, Vertex
from engine.connectors.topics import TopicEnds, metric_topic, produced_counts, read_topic_ends
from engine.words import listed

__all__ = ["add_produced", "with_rounds_before"]

_HISTORY_S = 900.0  # of a broker's rounds that are kept, and counted over
_STALE_ROUNDS, _MIN_STALE_S = 4.0, 60.0  # without an answer, after which a broker tells nothing of now


def with_rounds_before(connection: Connection, answers: Mapping[str, object]) -> list[dict[str, object]]:
    """Rounds to keep of a Kafka, the newest first: of those before, what topics held, for a quarter of an hour."""
    newest = _ends_of(answers)
    if newest is None:
        return [dict(answers)]
    kept = KeptAnswers.objects.filter(connection=connection).first()
    before = [ends for part in (kept.answers if kept is not None else []) if (ends := _ends_of(part)) is not None]
    young = [ends for ends in before if 0.0 < newest.at_s - ends.at_s <= _HISTORY_S]
    rounds: list[dict[str, object]] = [{"": _document(ends)} for ends in young]
    return [dict(answers), *rounds]


def add_produced(connection: Connection, look: EngineLook) -> None:
    """Add to a look what is produced to the topics of its sources, where a connection of its cluster asks their broker.

    A source whose arrivals the connection's own query tells keeps those.
    """
    brokers = list(_brokers(connection)) if look.partitions else []
    for job in look.picture.jobs:
        for vertex in job.vertices:
            spelt = look.partitions.get(job.id, {}).get(vertex.id)
            if brokers and spelt and vertex.id not in look.offsets.get(job.id, {}):
                counts, finding = _produced(brokers, vertex, spelt, f"{job.name}/{vertex.label}")
                look.add((), [finding])
                if counts is not None:
                    look.offsets.setdefault(job.id, {})[vertex.id] = counts


@dataclass(frozen=True, eq=False)
class _Broker:
    """A connection to a broker, with what its rounds told of topics, the newest first."""

    name: str
    poll_interval_s: float
    rounds: list[TopicEnds]

    def partitions(self, spelt: Collection[tuple[str, int]]) -> list[tuple[str, int]] | None:
        """Partitions by their names in metrics; None where it lacks one, or has two topics that are spelt alike."""
        known: dict[tuple[str, int], list[tuple[str, int]]] = {}
        for topic, number in self.rounds[0].ends:
            known.setdefault((metric_topic(topic), number), []).append((topic, number))
        found = [known.get(partition, []) for partition in spelt]
        return [alike[0] for alike in found] if all(len(alike) == 1 for alike in found) else None


def _brokers(connection: Connection) -> Iterator[_Broker]:
    rows = Connection.objects.filter(cluster=connection.cluster_id, engine=ConnectionEngine.KAFKA)
    for row in rows.select_related("kept_answers").order_by("name"):
        kept = getattr(row, "kept_answers", None)
        rounds = [ends for part in (kept.answers if kept is not None else []) if (ends := _ends_of(part)) is not None]
        if rounds:
            yield _Broker(row.name, row.poll_interval_s, rounds)


def _produced(
    brokers: Sequence[_Broker], vertex: Vertex, spelt: Collection[tuple[str, int]], subject: str
) -> tuple[ArrivalCounts | None, Finding]:
    """Counts of what is produced to a source's partitions, None where nobody knows; and a finding about it."""
    topics = listed(sorted({topic for topic, _ in spelt}))
    instead = f"what {vertex.label} reads counts in its place"
    found = {broker: places for broker in brokers if (places := broker.partitions(spelt)) is not None}
    if len(found) != 1:
        names = listed([broker.name for broker in (found or brokers)])
        message = f"{names} each tell a topic {topics}" if found else f"{names} tells no topic {topics}, or two alike"
        return None, Finding("missing", "ends_unknown", subject, f"{message}: {instead}.")
    broker, places = next(iter(found.items()))
    age_s = time.time() - broker.rounds[0].at_s
    if age_s > max(_MIN_STALE_S, _STALE_ROUNDS * broker.poll_interval_s):
        message = f"{broker.name} told the ends of {topics} {age_s:,.0f} s ago, and not since: {instead}."
        return None, Finding("warning", "ends_unknown", subject, message)
    counts = produced_counts(vertex.id, broker.rounds, places)
    if counts is None:
        message = f"{broker.name} has told the ends of {topics} once: until it does again, {instead}."
        return None, Finding("missing", "ends_unknown", subject, message)
    message = (
        f"What is produced to {topics} counts as what comes to {vertex.label}, by the ends that {broker.name} tells."
    )
    return counts, Finding("found", "ends_counted", subject, message)


def _ends_of(answers: Any) -> TopicEnds | None:
    answer = answers.get("") if isinstance(answers, Mapping) else None
    if isinstance(answer, str):
        with suppress(ValueError):
            answer = json.loads(answer)
    return read_topic_ends(answer)


def _document(ends: TopicEnds) -> dict[str, object]:
    topics: dict[str, dict[str, float]] = {}
    for (topic, partition), end in ends.ends.items():
        topics.setdefault(topic, {})[str(partition)] = end
    return {"at_s": ends.at_s, "topics": topics}
