"""Models of operators learn from ordinary epochs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.jarvis.adaptation.control import SourceOperator
from engine.jarvis.adaptation.operator_models import PipelineModel
from engine.jarvis.group_law import GroupLaw, distinct, keys
from engine.jarvis.refined_config import RefinedAdaptation
from tests.engine.jarvis.epochs import epoch, worked
from tests.engine.jarvis.refined_documents import document

MAP = SourceOperator("parse", "map")
GROUP = SourceOperator("pairs", "aggregate", stateful=True)
A, B = 2e-6, 8e-6


def grouped(records: int, groups: float = 500.0, scale: float = 1.0, **given: float):
    """A grouping operator's epoch with A seconds a record and B a group."""
    result = distinct(records, groups)
    cpu_s = scale * (A * records + B * result)
    return worked(
        records,
        groups=round(result),
        records_out=round(result),
        bytes_out=50 * round(result),
        **{"cpu_s": cpu_s} | given,
    )


def learned(operator: SourceOperator, *epochs) -> PipelineModel:
    model = PipelineModel([operator])
    for number, entry in enumerate(epochs):
        model.observe(epoch(entry, number=number))
    return model


@given(st.floats(1, 1e6), st.floats(0.05, 0.999))
def test_keys_is_the_inverse_of_distinct(records, share):
    assert distinct(records, keys(records, share * records)) == pytest.approx(share * records, rel=1e-6)


def test_records_without_collisions_give_infinite_keys():
    assert keys(100, 100) == float("inf")
    assert distinct(100, float("inf")) == 100


def test_epoch_with_few_collisions_hardly_counts():
    law = GroupLaw()
    law.observe(30_000, distinct(30_000, 500))
    for _ in range(50):
        law.observe(40, 40)
    assert law.groups == pytest.approx(500, rel=0.05)


def test_changed_number_of_keys_is_accepted_at_once():
    law = GroupLaw()
    for _ in range(20):
        law.observe(30_000, distinct(30_000, 50))
    law.observe(30_000, distinct(30_000, 500))
    assert law.groups == pytest.approx(500, rel=0.01)


def test_cost_and_relay_extrapolate_to_another_volume():
    model = learned(GROUP, *[grouped(500)] * 5, *[grouped(5_000)] * 5)
    relay, cost, _ = model.inputs(50_000)
    assert relay[0] == pytest.approx(distinct(50_000, 500) / 50_000, rel=0.02)
    assert cost[0] == pytest.approx(A + B * distinct(50_000, 500) / 50_000, rel=0.02)


def test_relay_and_cost_depend_on_the_share_that_gets_through():
    model = learned(GROUP, *[grouped(500)] * 5, *[grouped(5_000)] * 5)
    _, whole, _ = model.inputs(5_000)
    _, part, _ = model.inputs(5_000, effective=(0.1,))
    assert part[0] == pytest.approx(model.inputs(500)[1][0])
    assert part[0] > whole[0]


def test_proportional_records_and_groups_give_no_negative_cost():
    model = learned(GROUP, *[grouped(5_000)] * 30)
    for records in (50, 5_000, 500_000):
        assert model.operators[0].cpu_s(records) > 0
    assert model.operators[0].cpu_s(5_000) == pytest.approx(A * 5_000 + B * distinct(5_000, 500), rel=1e-3)


def test_cost_falling_with_groups_is_rejected():
    model = learned(GROUP, *[grouped(500, cpu_s=4e-3)] * 5, *[grouped(5_000, cpu_s=4.1e-2)] * 5)
    assert model.operators[0].cpu_s(100) >= 0
    assert model.operators[0].cpu_s(50_000) > model.operators[0].cpu_s(5_000)


@pytest.mark.parametrize("scale", [10.0, 0.1])
def test_tenfold_cost_change_is_accepted_at_once(scale):
    model = learned(GROUP, *[grouped(500)] * 5, *[grouped(5_000)] * 20, grouped(5_000, scale=scale))
    assert model.operators[0].cpu_s(5_000) == pytest.approx(scale * (A * 5_000 + B * distinct(5_000, 500)), rel=0.05)
    assert model.operators[0].cpu_s(500) == pytest.approx(scale * (A * 500 + B * distinct(500, 500)), rel=0.10)


def test_model_learns_only_from_thirty_records():
    model = learned(MAP, *[worked(10)] * 2)
    assert not model.operators[0].known
    model.observe(epoch(worked(10)))
    assert model.operators[0].known
    assert model.operators[0].cpu_s(100) == pytest.approx(1e-4)


def test_drained_epoch_teaches_nothing():
    model = learned(MAP, *[worked(1_000)] * 5)
    before = model.inputs(1_000)
    model.observe(epoch(worked(0, records_in=1_000, drained=1_000, bytes_in=10_000, bytes_drained=10_000)))
    assert model.inputs(1_000)[:2] == before[:2]


def test_relay_is_a_ratio_of_sums():
    model = learned(MAP, worked(1_000, records_out=900), worked(9_000, records_out=9_000))
    assert model.inputs(1_000)[0][0] == pytest.approx((0.7 * 900 + 9_000) / (0.7 * 1_000 + 9_000))


def test_relay_ratio_may_exceed_one():
    assert learned(MAP, worked(1_000, records_out=3_000)).inputs(500)[0] == [3.0]


def test_windowed_aggregate_is_learned_by_whole_windows():
    """Skewed keys: 300 groups in an epoch, 2,000 in a window of ten of them, when rows leave."""
    model = PipelineModel([SourceOperator("pairs", "aggregate", stateful=True, window_s=10.0)])
    seen = []
    for number in range(41):
        rows = 2_000 if number % 10 == 9 else 0
        model.observe(epoch(worked(1_000, groups=300, records_out=rows, bytes_out=50 * rows), number=number))
        seen.append(model.operators[0].rows(1_000, 1.0))
    assert seen[5] < 100  # by the epochs' law alone: as if the 300 groups came again and again
    assert seen[-1] == pytest.approx(200, rel=0.01)
    assert model.sizes() == [10.0, 50.0]


def test_windows_of_few_records_are_learned_together():
    """A reading a second of one host: its window of ten of them makes one row."""
    model = PipelineModel([SourceOperator("hosts", "aggregate", stateful=True, window_s=10.0)])
    known = []
    for number in range(60):
        rows = int(number % 10 == 9)
        model.observe(epoch(worked(1, groups=1, records_out=rows, bytes_out=110 * rows), number=number))
        known.append(model.operators[0].known)
    assert known.index(True) >= 30 and known[-1]
    assert model.operators[0].rows(1, 1.0) == pytest.approx(0.1, rel=0.01)


def test_window_begun_under_other_load_factors_is_ignored():
    model = PipelineModel([SourceOperator("pairs", "aggregate", stateful=True, window_s=10.0)])
    for number in range(100):
        p = 1.0 if number % 8 < 4 else 0.5
        rows = 2_000 if number % 10 == 9 else 0
        model.observe(epoch(worked(int(1_000 * p), load_factor=p, groups=300, records_out=rows), number=number))
    assert model.operators[0].window_law.groups is None


def test_forecast_adds_drained_and_output_bytes():
    model = learned(MAP, worked(1_000, records_out=500, bytes_out=1_000))
    forecast = model.forecast(100, (0.4,))
    assert forecast.cpu_s == pytest.approx(40e-6)
    assert forecast.sent == pytest.approx(60 * 10 + 20 * 2)
    assert model.forecast(100, (0.4,), "records").sent == pytest.approx(60)


class TestSeeded:
    OPERATORS = (SourceOperator("errors", "filter"), SourceOperator("pairs", "aggregate", stateful=True))

    def test_unknown_figures_are_seeded_from_the_prior(self):
        model = PipelineModel(self.OPERATORS)
        model.seed(RefinedAdaptation.parse(document()))
        relay, cost, sizes = model.inputs(10_000)
        assert all(operator.known for operator in model.operators)
        assert relay == pytest.approx([0.86, distinct(8_600, 500) / 8_600])
        assert cost == pytest.approx([1e-6, 3e-6 + 1e-5 * distinct(8_600, 500) / 8_600])
        assert sizes == [86, 86, 52]

    def test_known_figures_are_kept_over_the_prior(self):
        model = PipelineModel(self.OPERATORS)
        model.observe(epoch(worked(1_000, cpu_s=2e-3), worked(1_000, groups=100, records_out=100, cpu_s=4e-3)))
        model.seed(RefinedAdaptation.parse(document()))
        assert model.operators[0].cpu_s(1_000) == pytest.approx(2e-3)
        assert model.operators[1].cpu_s(1_000) == pytest.approx(4e-3)
