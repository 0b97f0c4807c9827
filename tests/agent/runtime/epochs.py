"""A runtime of one query over probe records, and what its spool makes a stream processor of."""

from __future__ import annotations

from agent.config import AgentConfig
from agent.runtime import Runtime, Spool
from agent.wire import decode_frames
from engine.dataflow.arrow.kernels import whole
from engine.jarvis.settings import AdaptationSettings
from tests.agent.reference import ReferenceProcessor, rows_of
from tests.agent.runtime.configs import agent_config, query_config
from tests.agent.runtime.doubles import ManualClock
from tests.agent.runtime.pipelines import AGENT, probes_pipeline

QUERY = "here/probes"
PIPELINE = probes_pipeline()
LIMIT = 64 * 2**20


def by_hand(*load_factors: float) -> AdaptationSettings:
    return AdaptationSettings(method="fixed", load_factors=load_factors)


ALL = by_hand(1.0, 1.0, 1.0, 1.0)


def config(*load_factors: float, version: int = 1, budget_cores: float = 8.0, **more) -> AgentConfig:
    queries = more.pop("queries", (query_config(QUERY, PIPELINE, by_hand(*load_factors) if load_factors else ALL),))
    return agent_config(version, AGENT, queries, budget_cores=budget_cores, **more)


def unlimited() -> float:
    return 64.0


def runtime_of(tmp_path, source, settings=None, clock=None, limit=LIMIT):
    spool = Spool(tmp_path / "spool", limit, sync=False)
    return Runtime(settings or config(), {"probes": source}, spool, clock or ManualClock(), quota=unlimited), spool


def frames_of(spool):
    return [frame for _, data in spool.unsent(2**30) for frame, _ in decode_frames(data)]


def processed_by(spool, *pipelines) -> ReferenceProcessor:
    reference = ReferenceProcessor(pipelines or (PIPELINE,))
    for _, data in spool.unsent(2**30):
        reference.take(data)
    return reference


def run_to_the_end(runtime, source, clock=None) -> None:
    while not source.done:
        assert runtime.run_epoch()
        if clock is not None:
            clock.pass_s(1)
    assert runtime.run_epoch()


def expected_of(records, pipeline=PIPELINE):
    return rows_of(whole(pipeline, records))
