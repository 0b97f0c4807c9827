"""Questions about executions: what is asked is what was executed, and records count as the console counts them."""

from __future__ import annotations

import pytest

from engine.costream.adaptation import observation_of
from engine.costream.prediction import shipped_ensemble
from engine.simulation.cohort import simulate_trace, trace_seed
from lab.__main__ import main
from lab.benchmarks.costream_executions import FLINK_EXECUTIONS, read_executions
from lab.benchmarks.false_admits import _QUIET, ExecutedWorld, answer_document, document_of


def test_document_is_predicted_as_the_execution_is() -> None:
    traces = [simulate_trace(trace_seed(5, i)).trace for i in range(3)]
    world = ExecutedWorld("simulated", [observation_of(trace) for trace in traces], [])
    assert (world.record.runs, world.record.queries) == (3, 3) and not world.record.is_borne_out
    told = 0
    for trace in [*traces, *read_executions(FLINK_EXECUTIONS).traces[:6]]:
        document, _ = document_of(trace, 60.0)
        decision = answer_document(document, _QUIET, world.record)
        assert decision.verdict in ("review", "reject")
        direct = shipped_ensemble().predict(trace.graph, trace.hosts, [trace.placement]).costs["Le"]
        if decision.prediction.costs is not None:
            told += 1
            latency = decision.prediction.costs.end_to_end_latency_s
            assert latency.mean == pytest.approx(direct.mean[0], rel=0.1)  # of hosts the document tells a little less
    assert told > 2


def test_unreadable_executions_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["false-admits", "--executions", "/nowhere.jsonl.gz"]) == 2
    assert "nowhere.jsonl.gz" in capsys.readouterr().err
