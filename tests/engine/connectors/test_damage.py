"""Damaged answers are refused with their faults, or read; they never end in another error."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from engine.connectors.document import import_picture
from engine.connectors.flink import next_paths, read_flink
from engine.connectors.flink_polls import poll_flink, poll_paths
from engine.connectors.kafka import read_burrow_lag
from engine.connectors.picture import CounterPoll, VertexCounters
from engine.connectors.spark import PROGRESS, next_spark_paths, read_spark, sample_spark
from engine.connectors.statistics import sample_job
from engine.document.deployment import Deployment
from engine.errors import DocumentError
from tests.engine.connectors import test_flink_polls, test_kafka, test_spark
from tests.engine.connectors.flink_answers import NOW_MS, cluster, vertex

SEEDS = 30
WRONG: list[Any] = [
    *(None, True, "", "NaN", "-1", -1, 0, 1e308, math.inf, math.nan, 10**400, 2**63 - 1, -(2**63), "1e999", "<html>"),
    *([], {}, [None], [[]], {"a": 1}, "é\x00"),
]
FLINK = cluster(
    vertex("v1", "Source: clicks[4] -> Calc[5]", written=100, busy="NaN"),
    vertex("v2", "enrich", ("v1", "HASH"), parallelism=2, read=100, written=90, busy=50, idle=900),
    vertex("v3", "out[7]: Writer", "v2", read=90),
)


def places_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of everything within a document, of lists the first few items."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value[:4]) if isinstance(value, list) else ()
    for key, item in items:
        yield from places_in(item, (*path, key))


def damaged(document: Any, chance: random.Random) -> Any:
    """The document with one to three fields removed or replaced by what they cannot be."""
    document = copy.deepcopy(document)
    for _ in range(chance.choice([1, 1, 2, 3])):
        path = chance.choice(list(places_in(document)) or [("/jobs/overview",)])
        with suppress(KeyError, IndexError, TypeError):
            inner = document
            for key in path[:-1]:
                inner = inner[key]
            if chance.random() < 0.3:
                del inner[path[-1]]
            else:
                inner[path[-1]] = copy.deepcopy(chance.choice(WRONG))
    return document


def import_flink(answers: Any) -> None:
    picture = read_flink(answers, NOW_MS / 1000)
    next_paths(answers)
    poll_paths(picture)
    samples = {job.id: sample_job(job, [poll_flink(answers, job.id, 0.0)]) for job in picture.jobs}
    import_picture(picture, samples)


def import_spark(answers: Any) -> None:
    picture = read_spark(answers, 0.0)
    next_spark_paths(answers)
    import_picture(picture, {job.id: sample_spark(job, answers) for job in picture.jobs})


def import_series(answers: Any) -> None:
    sample_job(test_flink_polls.FLINK_JOB, test_flink_polls.read(answers).polls)


@pytest.mark.parametrize(
    ("read", "document"),
    [
        (import_flink, FLINK),
        (import_spark, test_spark.cluster(test_spark.run(stateOperators=[{"operatorName": "x", "commitTimeMs": 3}]))),
        (import_series, test_flink_polls.flink_answers()),
        (read_burrow_lag, test_kafka.burrow()),
    ],
    ids=["flink", "spark", "prometheus", "burrow"],
)
def test_damaged_answers_are_read_or_refused_with_their_faults(read: Callable[[Any], Any], document: Any) -> None:
    refusals = []
    for seed in range(SEEDS):
        try:
            read(damaged(document, random.Random(seed)))
        except DocumentError as error:
            refusals.append(error.faults)
    assert 0 < len(refusals) < SEEDS
    assert all(faults and all(fault.message for fault in faults) for faults in refusals)


def wandering_polls(chance: random.Random) -> Iterator[CounterPoll]:
    """Counters that stand still, go back, vanish and are not told, as chance has it."""
    at_s, attempt, sums = 0.0, 0, {id_: [0.0] * 5 for id_ in ("v1", "v2", "v3")}
    for _ in range(40):
        at_s += chance.choice([0.0, 0.5, 5.0, 15.0, 600.0])
        attempt += chance.random() < 0.05
        vertices = {}
        for id_, own in sums.items():
            for i in range(5):
                own[i] = max(
                    0.0,
                    own[i] + chance.choice([0.0, 0.0, 1.0, 50.0, 1e6, -1.0, -own[i] if chance.random() < 0.1 else 0.0]),
                )
            told = [value if chance.random() < 0.9 else None for value in own]
            if chance.random() < 0.95:
                records_in, records_out, busy_s, idle_s, held_s = told
                shares = tuple(own[: chance.choice([0, 1, 2])])
                vertices[id_] = VertexCounters(records_in, records_out, busy_s, idle_s, held_s, shares)
        loads = {"tm1": chance.random()} if chance.random() < 0.8 else {}
        yield CounterPoll("job", at_s, str(attempt), vertices, loads, {"tm1": chance.random() * at_s})


def test_statistics_of_any_counters_are_no_less_than_nothing_and_make_a_document() -> None:
    picture = read_flink(FLINK, NOW_MS / 1000)
    job = picture.jobs[0]
    for seed in range(SEEDS):
        sample = sample_job(job, wandering_polls(random.Random(seed)), places=picture.places)
        for operator in sample.operators.values():
            assert operator.cost_s is None or operator.cost_s >= 0.0
            assert all(batch.cycles >= 0.0 and batch.events > 0.0 for batch in operator.batches)
            assert 0.0 <= operator.contended_s <= operator.span_s + 1e-6
        pool = import_picture(picture, {job.id: sample})
        arrivals = {
            name: sample.arrivals[id_] for name, id_ in pool.queries[0].sources.items() if id_ in sample.arrivals
        }
        Deployment.parse(pool.to_deployment(arrivals, 5.0))


def test_progress_of_spark_under_the_path_of_answers_keeps_its_own_words() -> None:
    with pytest.raises(DocumentError, match="line 1 is not JSON"):
        read_spark({PROGRESS: "{"}, 0.0)
