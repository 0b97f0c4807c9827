"""Operators of plans, made once for each plan."""

from __future__ import annotations

from functools import lru_cache

from engine.dataflow.arrow import AggregateKernel, Kernel, RowKernel, StreamJoinKernel, kernel
from engine.dataflow.pipeline import Pipeline

__all__ = ["aggregate_of", "operator_of", "row_operator", "stream_join_of"]


class _Plan:
    """A pipeline as a key: plans of one digest are one."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline

    def __hash__(self) -> int:
        return hash(self.pipeline.digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Plan) and self.pipeline.digest == other.pipeline.digest


def operator_of(pipeline: Pipeline, index: int) -> Kernel:
    """The operator at `index`."""
    return _made(_Plan(pipeline), index)


def aggregate_of(pipeline: Pipeline) -> AggregateKernel:
    """The first aggregate, which every live query has."""
    assert pipeline.aggregate is not None
    made = operator_of(pipeline, pipeline.aggregate)
    assert isinstance(made, AggregateKernel)
    return made


def row_operator(pipeline: Pipeline, index: int) -> RowKernel:
    """A stateless operator."""
    made = operator_of(pipeline, index)
    assert isinstance(made, RowKernel)
    return made


def stream_join_of(pipeline: Pipeline) -> StreamJoinKernel:
    """The join with another stream, of a pipeline that has one."""
    assert pipeline.stream_join is not None
    made = operator_of(pipeline, pipeline.stream_join)
    assert isinstance(made, StreamJoinKernel)
    return made


@lru_cache(maxsize=1000)
def _made(plan: _Plan, index: int) -> Kernel:
    return kernel(plan.pipeline, index)
