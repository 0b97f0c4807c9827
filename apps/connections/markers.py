"""Latency markers of a Flink, asked beside its counters: a lower bound of latency, by which nothing is scored."""

from __future__ import annotations

from apps.connections.rounds import Answers, EngineLook, ask
from apps.connections.transport import EngineAway, EngineClient, EngineRefused
from engine.connectors.markers import has_markers, marker_paths

__all__ = ["ask_markers"]


def ask_markers(client: EngineClient, look: EngineLook) -> None:
    """Add to a look the latency of each job's markers, where the engine has them; what cannot be asked is left out."""
    for job in look.picture.jobs:
        if not has_markers(job.settings):
            continue
        answers: Answers = {}
        try:
            for vertex in job.sinks:
                names = ask(client, f"/jobs/{job.id}/vertices/{vertex.id}/subtasks/metrics")
                answers |= {path: ask(client, path) for path in marker_paths(job.id, vertex.id, names)}
        except (EngineAway, EngineRefused):
            continue
        look.add_markers(job.id, answers)
