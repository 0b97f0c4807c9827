"""Variation of costs and arrivals on the whole way: counted by agents, summed by Spark's functions, kept, estimated."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from django.db.models import F, Sum
from rest_framework.test import APIClient

from agent.runtime.intake import StepCounts
from agent.runtime.query.control_proxy import RunCosts
from agent.wire import COUNTERS, VARIATION, Frame, FrameKind, batch_bytes, variation_extra
from apps.measurements.frames import statistics_receive
from apps.measurements.models import OperatorStatistic, StatisticsHour, StatisticsWindow
from apps.measurements.services import refine_cluster
from apps.measurements.subintervals import statistics_roll_up
from apps.queries.models import ArrivalSeries, OperatorInput
from apps.queries.snapshots.cluster import cluster_snapshot
from apps.queries.statistics import statistics_update
from apps.telemetry.models import LiveQuery
from engine.estimation.noise.dispersion import arrival_noise, cost_noise
from spark_jobs.statistics.subintervals import CounterFrame, epoch_rows, epoch_sums, merge_sums, statistics_rows
from tests.apps.measurements.frames import NOW, statistics_frame
from tests.apps.measurements.live import OPERATORS, agent_ids, fingerprints, live_query, make_live_cluster

pytestmark = [pytest.mark.django_db, pytest.mark.moment]

WIDTH_US = 10_000_000
CLUMP = 5  # records that come at once
CV2 = 0.4  # of a record's cost
_NOTHING = {field.name: "" if field.type == pa.string() else 0 for field in COUNTERS}


@pytest.fixture
def live() -> LiveQuery:
    return live_query(make_live_cluster())


class SimulatedAgent:
    """Counts of an agent's epochs of a second: ten polls of clumps of records, eight runs of each operator."""

    def __init__(self, live: LiveQuery, agent: str, seed: int) -> None:
        self.live, self.agent, self.marks = live, agent, fingerprints(live)
        self.rng = np.random.default_rng(seed)
        self.steps, self.runs = StepCounts(), [RunCosts() for _ in OPERATORS]

    def epoch(self, begins_us: int) -> pa.Table:
        """Rows of the stream processor for an epoch that begins then."""
        polled = CLUMP * self.rng.poisson(20, 10)
        for i, records in enumerate(polled.tolist()):
            self.steps.count(begins_us + 100_000 * i, records, emptied=True)
        rows, costs = [], []
        for i, (operator, runs) in enumerate(zip(OPERATORS, self.runs, strict=True)):
            total = int(polled.sum()) // 2**i
            cpu_ns = 0
            for records in np.diff(np.linspace(0, total, 9).astype(int)).tolist():
                took_ns = round(self.rng.gamma(records / CV2, CV2 * 1e-6) * 1e9)
                runs.add(records, took_ns)
                cpu_ns += took_ns
            counts = {"records_in": total, "records_processed": total, "records_out": total // 2, "cpu_ns": cpu_ns}
            named = {"operator": operator["id"], "fingerprint": self.marks[operator["id"]], "entry": i}
            told = {"query": self.live.key, "plan": self.live.plan, "epoch_us": begins_us, "load_factor": 1.0}
            rows.append(_NOTHING | counts | named | told)
            costs.append(runs.take())
        extra = variation_extra(costs, [self.steps.take(), [], []])
        table = pa.Table.from_pylist(rows, schema=COUNTERS)
        return epoch_rows([CounterFrame(table, self.agent, extra)], {self.live.key: WIDTH_US}, 1)


def tell(live: LiveQuery, *, seconds: int = 200, agents: int = 1) -> list[dict[str, Any]]:
    """Send what agents counted until a while ago through the stream processor's sums to the console."""
    begins_us = round((NOW - timedelta(seconds=seconds + 60)).timestamp()) * 1_000_000 // WIDTH_US * WIDTH_US
    simulated = [SimulatedAgent(live, agent, seed) for seed, agent in enumerate(agent_ids(live.query.cluster)[:agents])]
    tables = [agent.epoch(begins_us + 1_000_000 * i) for i in range(seconds) for agent in simulated]
    sums = merge_sums(pa.concat_tables([epoch_sums(table) for table in tables]))
    rows = statistics_rows(sums, 0)
    statistics_receive([Frame(FrameKind.STATISTICS, "stream", "stream", 1, body=batch_bytes(rows.combine_chunks()))])
    return rows.to_pylist()


def inputs(live: LiveQuery) -> dict[str, OperatorInput]:
    rows = OperatorInput.objects.filter(operator__version__query=live.query).select_related("operator")
    return {entry.operator.name: entry for entry in rows}


def test_variation_that_agents_counted_becomes_that_of_inputs_and_sources(live: LiveQuery) -> None:
    tell(live)
    refine_cluster(live.query.cluster, NOW)
    for entry in inputs(live).values():
        assert entry.cost_dispersion == pytest.approx(CV2, rel=0.25)
        assert entry.cost_cv2 is None
    statistic = OperatorStatistic.objects.get(operator="good")
    assert (statistic.cost_unit, statistic.cost_units) == ("runs", 200 * 8 - 8)
    series = ArrivalSeries.objects.get(source_id="probes")
    assert series.dispersion == pytest.approx(CLUMP, rel=0.2)
    assert series.dispersion_step_s == pytest.approx(0.2, rel=0.02)
    assert series.step_s == 10.0
    assert series.spec["dispersion_pairs"] > 900


def test_estimates_of_live_queries_assume_no_more_than_what_nobody_measured(live: LiveQuery) -> None:
    cluster = live.query.cluster

    def assumed() -> list[str]:
        deployment = cluster_snapshot(cluster).deployment
        slices = [arrival_noise(source, deployment.subinterval_s).assumed for source in deployment.sources]
        costs = [
            cost_noise(entry, operator.id).assumed for operator in deployment.operators for entry in operator.inputs
        ]
        return [words for words in [*slices, *costs] if words]

    before = assumed()
    assert sum(str(words).endswith(": 1.") for words in before) == 3
    tell(live)
    refine_cluster(cluster, NOW)
    after = assumed()
    assert not any(str(words).startswith("Arrivals") for words in after)
    assert all("from its dispersion over" in str(words) for words in after)
    statistics_update(
        version=live.version, statistics=[{"operator": operator["id"], "cost_cv2": CV2} for operator in OPERATORS]
    )
    assert assumed() == []


def test_arrivals_without_a_measured_dispersion_stay_assumed_inside_their_steps(live: LiveQuery) -> None:
    tell(live)
    StatisticsWindow.objects.update(fine_pairs=0.0, second_pairs=0.0, slow_pairs=0.0)
    refine_cluster(live.query.cluster, NOW)
    series = ArrivalSeries.objects.get(source_id="probes")
    assert (series.step_s, series.dispersion) == (10.0, None)
    (source,) = cluster_snapshot(live.query.cluster).deployment.sources
    assert arrival_noise(source, 2.5).unknown


def test_cv2_that_a_person_gave_outlives_what_telemetry_measures(live: LiveQuery) -> None:
    statistics_update(version=live.version, statistics=[{"operator": "good", "cost_cv2": 0.7}])
    tell(live)
    refine_cluster(live.query.cluster, NOW)
    entry = inputs(live)["good"]
    assert (entry.cost_cv2, entry.cost_dispersion) == (0.7, pytest.approx(CV2, rel=0.25))


def test_bursts_of_two_agents_are_taken_to_come_together(live: LiveQuery) -> None:
    tell(live, agents=2)
    refine_cluster(live.query.cluster, NOW)
    series = ArrivalSeries.objects.get(source_id="probes")
    assert 1.0 + (series.dispersion - 1.0) / 2.0 == pytest.approx(CLUMP, rel=0.2)


def test_queries_that_read_a_source_at_one_agent_count_its_steps_once(live: LiveQuery) -> None:
    other = live_query(live.query.cluster, "others")
    tell(live)
    tell(other)
    refine_cluster(live.query.cluster, NOW)
    series = ArrivalSeries.objects.get(source_id="probes")
    assert series.spec["dispersion_pairs"] < 1000
    assert series.dispersion == pytest.approx(CLUMP, rel=0.2)


def test_first_measured_dispersion_is_passed_on_at_once_and_the_same_again_is_not(live: LiveQuery) -> None:
    tell(live)
    StatisticsWindow.objects.update(runs=0.0, run_records=0.0, run_epochs=0.0)
    assert refine_cluster(live.query.cluster, NOW).inputs == 3
    tell_again = [told | {"batch": 2} for told in tell(live)]
    statistics_receive([statistics_frame(*tell_again)])
    assert refine_cluster(live.query.cluster, NOW + timedelta(seconds=10)).inputs == 3
    assert refine_cluster(live.query.cluster, NOW + timedelta(seconds=20)).inputs == 0


def test_variation_adds_up_by_the_hour_too(live: LiveQuery) -> None:
    tell(live)
    before = StatisticsWindow.objects.aggregate(*map(Sum, VARIATION))
    StatisticsWindow.objects.update(starts_at=F("starts_at") - timedelta(days=3))
    statistics_roll_up(NOW)
    assert StatisticsHour.objects.aggregate(*map(Sum, VARIATION)) == pytest.approx(before)
    assert not StatisticsWindow.objects.exists() and before["run_nn__sum"] > 0


def test_rest_shows_the_dispersion_of_costs_and_what_is_behind_it(api: APIClient, live: LiveQuery) -> None:
    tell(live)
    refine_cluster(live.query.cluster, NOW)
    shown = api.get(f"/api/v1/queries/{live.query.pk}/measurements").json()
    statistic = next(operator["statistic"] for operator in shown if operator["operator"] == "good")
    assert statistic["cost_dispersion"] == pytest.approx(CV2, rel=0.25)
    assert (statistic["cost_unit"], statistic["cost_dispersion_events"] > 50) == ("runs", True)
    stored = api.get(f"/api/v1/queries/{live.query.pk}/statistics").json()["statistics"]
    assert all(entry["cost_dispersion"] is not None for entry in stored)
