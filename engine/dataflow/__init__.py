"""Executable operators: one meaning, by pyarrow for agents and the stream processor.

`Pipeline.parse` reads and checks a document, `engine.dataflow.arrow.kernels` runs it, and
`engine.dataflow.templates` has ready ones.
"""

from engine.dataflow.operators import SourceRule
from engine.dataflow.pipeline import Pipeline, PipelineOperator, PipelineSource
from engine.dataflow.types import WINDOW_START

__all__ = ["WINDOW_START", "Pipeline", "PipelineOperator", "PipelineSource", "SourceRule"]
