"""Predictions of a run: statistics from the polls of its calm part, and an estimate for its schedule."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.arrays import nearest_rank
from engine.connectors.document import import_picture
from engine.connectors.flink import read_flink
from engine.connectors.flink_polls import poll_flink
from engine.connectors.statistics import sample_job
from engine.document.deployment import Deployment
from engine.estimation.estimate import estimate
from lab.benchmarks.flink.runs import FlinkRun

__all__ = ["STATISTICS", "Score", "deployment_of", "score_run"]

STATISTICS = ("worst", "q0.99", "mean")


@dataclass(frozen=True, slots=True)
class Score:
    """One statistic of one run: what was predicted, with its 90 % interval, and what came.

    `under_s` is what the product says that all latencies stay under (95 %), for the worst case alone.
    """

    pattern: str
    seed: int
    statistic: str
    estimate_s: float
    low_s: float
    high_s: float
    measured_s: float
    under_s: float | None = None

    @property
    def error(self) -> float:
        """Relative, with its sign."""
        return self.estimate_s / self.measured_s - 1.0

    @property
    def is_held(self) -> bool:
        return self.low_s <= self.measured_s <= self.high_s

    @property
    def is_false_under(self) -> bool:
        return self.under_s is not None and self.measured_s > self.under_s


def deployment_of(run: FlinkRun) -> Deployment:
    """The job as a connection would import it after the calm part, under its whole schedule."""
    picture = read_flink(run.picture, run.polls[0][0])
    job = next(job for job in picture.jobs if job.id == run.job)
    polls = [poll_flink(answers, job.id, at_s) for at_s, answers in run.polls]
    sample = sample_job(job, polls, places=picture.places)
    pool = import_picture(picture, {job.id: sample})
    arrivals = {name: [float(events) for events in run.arrivals] for name in pool.queries[0].sources}
    return Deployment.parse(pool.to_deployment(arrivals, 1.0))


def score_run(run: FlinkRun) -> list[Score]:
    """Every statistic of a run against its prediction."""
    deployment = deployment_of(run)
    (report,) = estimate(deployment).queries.values()
    assert report.noise is not None
    measured = np.array(run.latencies_s)
    values = {"worst": float(measured.max()), "q0.99": nearest_rank(measured, 0.99), "mean": float(measured.mean())}
    return [
        Score(
            run.pattern,
            run.seed,
            name,
            figures.estimate_s,
            figures.low_s,
            figures.high_s,
            values[name],
            report.under_s if name == "worst" else None,
        )
        for name in STATISTICS
        for figures in (report.noise.statistics[name],)
    ]
