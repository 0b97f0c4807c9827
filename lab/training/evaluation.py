"""Errors of an ensemble on a corpus: ``./sluice lab evaluate --corpus FILE``, NumPy alone.

Prints JSON: per cost median and 95 % quantile of the q-error, coverage and sharpness of its 80 % interval, the same on
the hard traces and by type of query, the analytic anchor beside it, and balanced accuracies of both votes.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.arrays import FloatArray
from engine.costream.accuracy import balanced_accuracy, q_quantiles
from engine.costream.network import CostNetwork
from engine.costream.prediction import COSTS, Ensemble, ensemble_bounds, is_voted, shipped_ensemble, votes_of
from engine.errors import EngineError
from engine.query_graph.graph import CostTrace
from lab.training.dataset import TraceSet, read_corpus
from lab.training.options import print_faults

__all__ = ["HARD_Q", "QUERY_TYPES", "cost_errors", "error_report", "evaluate_networks", "main"]

# A trace is hard for a cost if the analytic anchor is off by more than this factor.
HARD_Q = 1.25

# By number of joins; three-way and beyond.
QUERY_TYPES = ("linear", "two-way", "three-way")

_BATCH = 512
_MAX_LN = 50.0
_MIN_TRACES = 20  # below it a quantile says nothing

BoolArray = npt.NDArray[np.bool_]


def main(arguments: Sequence[str]) -> int:
    """Print the report; returns 0, or 2 with every fault of arguments, corpus and weights."""
    parser = argparse.ArgumentParser(
        prog="sluice lab evaluate", description="Errors of trained weights on a corpus, as JSON."
    )
    parser.add_argument("--corpus", required=True, help="labelled traces, .jsonl.gz")
    parser.add_argument("--weights", help="archive .npz with its card beside it (default: the shipped weights)")
    options = parser.parse_args(list(arguments))
    try:
        ensemble = Ensemble.load(Path(options.weights)) if options.weights else shipped_ensemble()
        traces = read_corpus(Path(options.corpus))
    except EngineError as error:
        print_faults("evaluate", error)
        return 2
    start = time.perf_counter()
    report = error_report(ensemble, traces)
    print(json.dumps(report | {"seconds": round(time.perf_counter() - start, 3)}, indent=1))
    return 0


def evaluate_networks(networks: Sequence[CostNetwork], traces: TraceSet, form: str) -> npt.NDArray[np.float32]:
    """`engine.costream.network.OUTPUTS` of each network for all traces, (m, n, 11)."""
    return np.stack(
        [np.concatenate([net.evaluate(batch) for batch in traces.batches(_BATCH, form)]) for net in networks]
    )


def error_report(ensemble: Ensemble, traces: TraceSet) -> dict[str, Any]:
    """All errors of an ensemble on a corpus, as JSON."""
    card = ensemble.card
    outputs = evaluate_networks(ensemble.networks, traces, card.form)
    report = {
        "corpus": {"file": traces.origin.name, "sha256": traces.origin.sha256, "traces": len(traces)},
        "weights": {"version": card.version, "sha256": card.sha256, "card": card.line},
        "outside_domain": round(float(np.mean([_is_outside(ensemble, trace) for trace in traces.traces])), 4),
    }
    report |= cost_errors(outputs, traces, card.interval_scale)
    kinds = np.minimum(traces.joins, len(QUERY_TYPES) - 1)
    by_type = {}
    for i, name in enumerate(QUERY_TYPES):
        rows = kinds == i
        if rows.any():
            by_type[name] = cost_errors(outputs[:, rows], traces.subset(rows), card.interval_scale)
    return report | {"by_type": by_type}


def _is_outside(ensemble: Ensemble, trace: CostTrace) -> bool:
    domain, used = ensemble.card.domain, set(trace.placement)
    return bool(
        domain.query_reasons(trace.graph)
        or domain.count_reason(len(used))
        or any(domain.host_reasons(j, trace.hosts[j]) for j in used)
    )


def cost_errors(
    outputs: npt.NDArray[np.float32], traces: TraceSet, scale: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """Errors of members' outputs (m, n, 11) on n traces; coverage only with the intervals' `scale`."""
    ok = traces.success
    bounds = ensemble_bounds(outputs)
    errors: dict[str, Any] = {"traces": len(traces), "succeeded": int(ok.sum())}
    for i, metric in enumerate(COSTS):
        centre, below, above = (values[ok] for values in bounds[metric])
        true = traces.targets[ok, i]
        entry: dict[str, Any] = _quantiles(true, centre)
        if scale is not None and ok.any():
            low, high = centre - scale[metric] * below, centre + scale[metric] * above
            entry["coverage"] = round(_coverage(true, low, high), 4)
            entry["interval_ratio"] = round(float(np.exp(min(np.median(high - low), _MAX_LN))), 4)
        anchor = traces.anchor[ok, i]
        hard = np.abs(true - anchor) > np.log(HARD_Q)
        entry["hard"] = {"traces": int(hard.sum())} | _quantiles(true[hard], centre[hard])
        entry["anchor"] = _quantiles(true, anchor)
        errors[metric] = entry
    for metric, truth in (("RO", traces.backpressure), ("S", traces.success)):
        said = is_voted(metric, votes_of(outputs, metric), len(outputs))
        errors[metric] = {"balanced_accuracy": round(balanced_accuracy(truth, said), 4)}
    return errors


def _quantiles(true: FloatArray, predicted: FloatArray) -> dict[str, float | None]:
    """Median and 95 % quantile of q-errors of values in ln; None of too few."""
    if len(true) < _MIN_TRACES:
        return {"q50": None, "q95": None}
    return {name: round(value, 4) for name, value in q_quantiles(np.exp(np.abs(true - predicted))).items()}


def _coverage(true: FloatArray, low: FloatArray, high: FloatArray) -> float:
    """Share of true values within their intervals, bounds included."""
    return float(((low <= true) & (true <= high)).mean())
