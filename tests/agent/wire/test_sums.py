"""One declaration of an operator's sums: schemas have its columns, and those who compute with them use its names."""

from __future__ import annotations

from dataclasses import fields

import pyarrow as pa

from agent.wire import COUNT_SUMS, COUNTERS, STATISTICS, SUM_NAMES, SUMS, VARIATION, Merge, OperatorCounts
from engine.jarvis.fits import EpochSums, WindowSums
from engine.measurement.places import PlaceWindow
from engine.measurement.sums import CostEquations

#: Of records of the engine: what is no sum of an operator.
OTHERS = {"place", "at_s", "measured", "costs", "levels", "is_windowed", "windows", "closings"}


def test_each_sum_is_declared_once_with_its_meaning() -> None:
    assert len(set(SUM_NAMES)) == len(SUMS)
    assert all(each.help.endswith(".") and each.unit for each in SUMS)


def test_statistics_have_a_column_of_each_sum() -> None:
    columns = [name for name in STATISTICS.names[STATISTICS.names.index("epochs") :] if name != "measured"]
    assert columns == list(SUM_NAMES)
    for each in SUMS:
        assert STATISTICS.field(each.name).type == (pa.int64() if each.is_whole else pa.float64())


def test_counters_have_a_column_of_all_that_an_agent_counts() -> None:
    counted = [counter.name for counter in fields(OperatorCounts)]
    assert [name for name in COUNTERS.names if name in counted] == counted
    assert {*counted} - {each.name for each in COUNT_SUMS} == {"records_queued"}


def test_sums_of_a_fit_are_of_one_config_version() -> None:
    fitted = [each.name for each in SUMS if each.merge is Merge.LARGEST]
    assert {field.name for field in fields(CostEquations)} < set(fitted)
    assert not {*VARIATION, *(each.name for each in COUNT_SUMS)} & set(fitted)


def test_records_of_the_engine_use_the_names_of_the_wire() -> None:
    for record in (CostEquations, EpochSums, PlaceWindow, WindowSums):
        assert {field.name for field in fields(record)} - OTHERS <= set(SUM_NAMES), record
