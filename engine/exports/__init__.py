"""Decisions as an engine's operator applies them: settings, patches and calls, with their reverse."""

from engine.exports.export import (
    FORMATS,
    DecidedJob,
    DecidedOperator,
    EngineExport,
    EngineSettings,
    ExportNote,
    KubernetesTarget,
    RestCall,
    export_text,
)
from engine.exports.flink import flink_export
from engine.exports.spark import spark_export

__all__ = [
    "FORMATS",
    "DecidedJob",
    "DecidedOperator",
    "EngineExport",
    "EngineSettings",
    "ExportNote",
    "KubernetesTarget",
    "RestCall",
    "export_text",
    "flink_export",
    "spark_export",
]
