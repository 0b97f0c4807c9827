"""Looks: what an engine showed last, kept in its connection, so that a page can show it without asking again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from engine.connectors.markers import MarkerLatency
from engine.connectors.picture import EngineJob, EnginePicture, Place, Vertex, VertexSample

__all__ = ["look_document"]


def look_document(
    picture: EnginePicture,
    samples: Mapping[str, Iterable[VertexSample]] | None = None,
    polls: Mapping[str, int] | None = None,
    markers: Mapping[str, MarkerLatency] | None = None,
) -> dict[str, Any]:
    """A picture with the statistics so far, as `Connection.look` keeps it.

    Parameters
    ----------
    samples : mapping of str to VertexSample, optional
        By id of a job, statistics of its vertices; a job without any has none yet.
    polls : mapping of str to int, optional
        By id of a job, polls of its counters.
    markers : mapping of str to MarkerLatency, optional
        By id of a job, the latency of its markers.

    Returns
    -------
    dict
        ``{at_s, version, places, jobs}``. A job has `id, name, state, started_at_s, polls, operators`, and `markers`
        with `mean_s, p99_s` where there are some; an operator `id, label, kind, parallelism, slot_group, inputs`,
        `places` (names), and `events, cost_s, selectivity, span_s, contended_s` where it was sampled.
    """
    names = {place.id: place.name for place in picture.places}
    return {
        "at_s": picture.at_s,
        "version": picture.version,
        "places": [_place(place) for place in picture.places],
        "jobs": [
            _job(job, names, {sample.vertex: sample for sample in (samples or {}).get(job.id, ())})
            | {"polls": (polls or {}).get(job.id, 0)}
            | ({"markers": asdict(markers[job.id])} if markers and job.id in markers else {})
            for job in picture.jobs
        ],
    }


def _place(place: Place) -> dict[str, Any]:
    return {name: getattr(place, name) for name in ("id", "name", "cores", "slots", "memory_bytes", "cpu_load")}


def _job(job: EngineJob, places: Mapping[str, str], samples: Mapping[str, VertexSample]) -> dict[str, Any]:
    labels = {vertex.id: vertex.label for vertex in job.vertices}
    return {
        **{name: getattr(job, name) for name in ("id", "name", "state", "started_at_s")},
        "operators": [_operator(vertex, labels, places, samples.get(vertex.id)) for vertex in job.vertices],
    }


def _operator(
    vertex: Vertex, labels: Mapping[str, str], places: Mapping[str, str], sample: VertexSample | None
) -> dict[str, Any]:
    used = dict.fromkeys(places.get(subtask.place or "", "") for subtask in vertex.subtasks)
    sampled = ("events", "cost_s", "selectivity", "span_s", "contended_s") if sample is not None else ()
    return {
        **{name: getattr(vertex, name) for name in ("id", "label", "kind", "parallelism", "slot_group")},
        "inputs": [
            {"from": labels.get(exchange.upstream, ""), "strategy": exchange.strategy} for exchange in vertex.inputs
        ],
        "places": [name for name in used if name],
        **{name: getattr(sample, name) for name in sampled},
    }
