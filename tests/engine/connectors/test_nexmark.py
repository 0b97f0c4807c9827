"""Queries of Nexmark as a real Flink answered for them under a light load: SQL over datagen, as Flink chains it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from engine.capacity.saturation import ClusterSaturation
from engine.connectors.document import ImportedPool, import_picture
from engine.connectors.flink import read_flink
from engine.connectors.flink_polls import poll_flink
from engine.connectors.statistics import sample_job
from engine.document.deployment import Deployment
from engine.estimation.estimate import estimate

RECORDED = sorted(path.name.removesuffix(".json.gz") for path in Path(__file__).with_name("nexmark").glob("*.gz"))
_PARKED = ("q0", "q1", "q5", "q7", "q11", "q12")  # their work is in the chain of a source that tells no busy time


def _recording(query: str) -> dict[str, Any]:
    path = Path(__file__).with_name("nexmark") / f"{query}.json.gz"
    found: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return found


def _imported(recording: dict[str, Any]) -> tuple[ImportedPool, Deployment]:
    """The job after the recorded polls, and its deployment under the rates that they counted."""
    at_s = recording["polls"][-1][0]
    picture = read_flink(recording["picture"], at_s)
    job = picture.jobs[0]
    polls = [poll_flink(answers, job.id, asked_s) for asked_s, answers in recording["polls"]]
    sample = sample_job(job, polls, places=picture.places)
    pool = import_picture(picture, {job.id: sample})
    counts = {name: sample.arrivals[vertex] for name, vertex in pool.queries[0].sources.items()}
    arrivals = {name: [came.events / (len(came.counts) * came.step_s)] * 60 for name, came in counts.items()}
    return pool, Deployment.parse(pool.to_deployment(arrivals, 1.0))


@pytest.mark.parametrize("query", RECORDED)
def test_shape_is_that_of_the_plan(query: str) -> None:
    recording = _recording(query)
    plan = recording["picture"][f"/jobs/{recording['job']}"]["plan"]["nodes"]
    (imported,) = _imported(recording)[0].queries
    read = [entry["from"] for operator in imported.body["operators"] for entry in operator["inputs"]]
    assert len(imported.body["operators"]) == len(plan)
    assert sum(name not in imported.sources for name in read) == sum(len(node.get("inputs", ())) for node in plan)


@pytest.mark.parametrize("query", _PARKED)
def test_more_than_was_done_at_saturation_is_never_promised(query: str) -> None:
    recording = _recording(query)
    capacity = ClusterSaturation(_imported(recording)[1]).of_query(query)
    measured = recording["saturated_per_s"] / recording["light_per_s"]
    assert capacity.rate_per_s is None or capacity.rate_per_s / capacity.now_per_s < 1.2 * measured
    assert capacity.at_most_per_s is None or capacity.at_most_per_s / capacity.now_per_s > measured


@pytest.mark.parametrize(("query", "measured_s"), [("q5", 6.3), ("q7", 14.3), ("q8", 14.7), ("q12", 10.4)])
def test_worst_case_of_a_window_is_what_its_first_event_waits(query: str, measured_s: float) -> None:
    (report,) = estimate(_imported(_recording(query))[1]).queries.values()
    assert report.noise is not None
    assert report.noise.statistics["worst"].estimate_s == pytest.approx(measured_s, rel=0.1)
