"""Record of a stream processor: found again from what it makes of queries, and refused where nothing can be told."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.costream.adaptation import Observation
from engine.query_graph.fluid import fluid_of
from engine.query_graph.processors import FLINK
from lab.__main__ import main
from lab.benchmarks.costream_executions import FLINK_EXECUTIONS, SHIPPED_EXECUTIONS, read_executions
from lab.benchmarks.stream_processors import fitted_record


def test_record_is_found_from_what_it_makes_of_queries() -> None:
    true = replace(FLINK, factors={**FLINK.factors, "sink": 0.2}, poll_s=2e-3)
    observed = []
    for i, trace in enumerate(read_executions(FLINK_EXECUTIONS).traces[:9]):
        fluid = fluid_of(trace.graph, trace.hosts, np.array([trace.placement]), processor=true)
        costs = tuple(np.exp(fluid.costs[0]).tolist())
        observed.append(Observation(trace, costs, bool(fluid.backpressure[0] > 0), True, str(i)))
    fitted = fitted_record(FLINK, observed)
    assert fitted.factors["sink"] == pytest.approx(0.2, rel=0.5) and fitted.executions == 9
    assert fitted.poll_s == pytest.approx(2e-3, rel=0.5)
    assert (fitted.buffer_bytes, fitted.is_chained) == (FLINK.buffer_bytes, FLINK.is_chained)


def test_executions_of_the_cost_table_itself_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stream-processor", "--executions", str(SHIPPED_EXECUTIONS)]) == 2
    assert "allowed: on one stream processor other than the nominal one" in capsys.readouterr().err
