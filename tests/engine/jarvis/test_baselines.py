"""Baselines of Jarvis, on the paper's probe of figure 5 and in general."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import DocumentError
from engine.jarvis.baselines import EpochPrediction, SourcePipeline, filter_cut
from engine.jarvis.settings import AdaptationSettings

# figure 5: 26.2 Mbps of 86 bytes; F takes 13 % of a core and keeps 86 %, G+R would take 80 % for all it gets
RECORDS = 26.2e6 / 8 / 86
PROBE = SourcePipeline(
    relay=[0.86, 0.5],
    cost=[0.13 / RECORDS, 0.80 / (0.86 * RECORDS)],
    sizes=[86.0, 86.0, 5.66 / 0.8375 * 1e6 / 8 / (0.43 * RECORDS)],
    kinds=["filter", "aggregate"],
)


def told(method: str, budget_s: float, **settings: object) -> tuple[EpochPrediction, float]:
    """The epoch that a method comes to, and its Mbps."""
    factors = PROBE.settled(AdaptationSettings(method, margin=1.0, **settings), budget_s, RECORDS)
    epoch = PROBE.epoch(factors, budget_s, RECORDS)
    return epoch, epoch.bytes_sent * 8 / 1e6


def test_baselines_reproduce_figure_5():
    epoch, mbps = told("scalar", 0.8)
    assert epoch.load_factors == pytest.approx((1.0, 0.8375))
    assert (mbps, epoch.overflow) == (pytest.approx(9.32, abs=0.01), pytest.approx(0, abs=1e-6))
    assert told("all-sp", 0.8)[1] == pytest.approx(26.2)
    for method in ("filter-src", "best-op"):
        assert told(method, 0.8)[1] == pytest.approx(22.53, abs=0.01)


def test_records_beyond_the_budget_overflow():
    """All-Src takes 93 % of a core: with 80, 13 of 93 records leave as they came."""
    epoch, mbps = told("all-src", 0.8)
    assert (epoch.cpu_s, epoch.overflow / RECORDS) == (pytest.approx(0.8), pytest.approx(13 / 93))
    assert mbps == pytest.approx(13 / 93 * 26.2 + 80 / 93 * 6.758, abs=0.01)
    assert told("all-src", 0.0)[1] == pytest.approx(26.2)


def test_best_cut_with_enough_budget_runs_every_operator():
    assert told("best-op", 1.0) == told("all-src", 1.0)
    assert told("scalar", 1.0)[0].load_factors == (1.0, 1.0)


def test_adaptive_methods_keep_their_margin_and_fixed_load_factors_match_the_operators():
    factors = PROBE.settled(AdaptationSettings(margin=0.9), 0.8, RECORDS)
    assert PROBE.epoch(factors, 0.8, RECORDS).cpu_s == pytest.approx(0.72)
    assert PROBE.settled(AdaptationSettings("fixed", load_factors=(0.5,)), 0.8, RECORDS) == (0.5, 0.0)
    assert PROBE.settled(AdaptationSettings("fixed", load_factors=(0.5, 1.0, 1.0)), 0.8, RECORDS) == (0.5, 1.0)


@pytest.mark.parametrize(
    ("kinds", "cut"),
    [
        (["window", "filter", "aggregate"], 2),
        (["parse", "map", "filter", "filter", "map", "filter"], 4),
        (["filter"], 1),
        (["window", "aggregate"], 0),
        (["aggregate", "filter"], 0),
        (["join", "filter"], 0),
        (["map"], 0),
        ([], 0),
    ],
)
def test_filter_src_runs_the_first_filters_and_their_preparation(kinds, cut):
    assert filter_cut(kinds) == cut


@given(
    st.lists(st.tuples(st.floats(0, 2), st.floats(0, 1e-3), st.floats(0, 200)), min_size=1, max_size=6),
    st.floats(0, 2),
)
def test_jarvis_sends_least_of_all_methods_within_the_budget(operators, budget_s):
    relay, cost, sizes = (list(column) for column in zip(*operators, strict=True))
    pipeline = SourcePipeline(relay, cost, [100.0, *sizes], ["filter"] * len(relay))

    def epoch(method: str) -> EpochPrediction:
        return pipeline.epoch(
            pipeline.settled(AdaptationSettings(method, margin=1.0), budget_s, 1000.0), budget_s, 1000.0
        )

    jarvis, best_op = epoch("scalar"), epoch("best-op")
    assert best_op.overflow == 0
    assert jarvis.overflow == pytest.approx(0, abs=1e-6)
    for entry in (best_op, *(epoch(method) for method in ("all-sp", "all-src", "filter-src"))):
        if not entry.overflow:
            assert jarvis.bytes_sent <= best_op.bytes_sent * (1 + 1e-9) + 1e-6
            assert best_op.bytes_sent <= entry.bytes_sent * (1 + 1e-9) + 1e-6


def test_settled_refuses_missing_sizes():
    with pytest.raises(DocumentError, match="sizes"):
        SourcePipeline([0.5], [1.0], [8.0], ["filter"]).settled(AdaptationSettings(), 1.0, 1.0)
