"""Errors of predictions on a corpus: ``./sluice lab evaluate --corpus FILE``, NumPy alone.

Prints JSON: per cost median and 95 % quantile of the q-error, the share of truths within intervals and their width, the
same of the fluid alone, and balanced accuracies of both votes; of all traces, by joins and by the weakest host.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.arrays import FloatArray
from engine.costream.accuracy import balanced_accuracy, q_quantiles
from engine.costream.prediction import Ensemble, is_voted, shipped_ensemble
from engine.costream.residual import COSTS
from engine.errors import EngineError
from lab.training.dataset import TraceSet, read_corpus
from lab.training.options import print_faults

__all__ = ["ContenderAnswers", "cost_errors", "ensemble_answers", "error_report", "main"]

_MAX_LN = 50.0
_MIN_TRACES = 20  # below it a quantile says nothing
_SHAPES = ("linear", "two-way", "three-way")  # by joins
_HOSTS = ("weak", "medium", "strong")

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ContenderAnswers:
    """Answers of a contender for n runs: ln of costs (n, 3), votes (n,), and the ends of intervals, if it has any."""

    centre: FloatArray
    backpressure: BoolArray
    success: BoolArray
    ends: tuple[FloatArray, FloatArray] | None = None
    distance: FloatArray | None = None

    def take(self, rows: BoolArray) -> ContenderAnswers:
        """Those of some runs."""
        ends = None if self.ends is None else (self.ends[0][rows], self.ends[1][rows])
        distance = None if self.distance is None else self.distance[rows]
        return ContenderAnswers(self.centre[rows], self.backpressure[rows], self.success[rows], ends, distance)


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


def ensemble_answers(ensemble: Ensemble, traces: TraceSet) -> ContenderAnswers:
    """Answers of an ensemble for traces."""
    scores, members = ensemble.score(traces.facts), ensemble.card.members
    backpressure, success = (is_voted(vote, scores.votes_of(vote), members) for vote in ("RO", "S"))
    ends = scores.intervals(ensemble.arrays["bounds"])
    return ContenderAnswers(scores.centre, backpressure, success, ends, scores.distance)


def error_report(ensemble: Ensemble, traces: TraceSet) -> dict[str, Any]:
    """All errors of an ensemble on a corpus, as JSON."""
    card, answers = ensemble.card, ensemble_answers(ensemble, traces)
    report = {
        "corpus": {"file": traces.origin.name, "sha256": traces.origin.sha256, "traces": len(traces)},
        "weights": {"version": card.version, "sha256": card.sha256, "card": card.line},
    }
    report |= cost_errors(answers, traces)
    for name, of_trace, words in (
        ("by_shape", np.minimum(traces.facts.joins, len(_SHAPES) - 1), _SHAPES),
        ("by_host", traces.facts.weakest, _HOSTS),
    ):
        parts = {word: of_trace == i for i, word in enumerate(words)}
        report[name] = {
            word: cost_errors(answers.take(rows), traces.subset(rows)) for word, rows in parts.items() if rows.any()
        }
    return report


def cost_errors(answers: ContenderAnswers, traces: TraceSet) -> dict[str, Any]:
    """Errors of answers on labelled traces, a cost on those that tell it; coverage only where there are intervals."""
    errors: dict[str, Any] = {"traces": len(traces), "succeeded": int(traces.success.sum())}
    for i, metric in enumerate(COSTS):
        ok = traces.success & np.isfinite(traces.targets[:, i])  # of a real execution a cost may not be told
        true = traces.targets[ok, i]
        entry: dict[str, Any] = _quantiles(true, answers.centre[ok, i])
        if answers.ends is not None and ok.any():
            low, high = (end[ok, i] for end in answers.ends)
            entry["coverage"] = round(float(((low <= true) & (true <= high)).mean()), 4)
            entry["interval_ratio"] = round(float(np.exp(min(np.median(high - low), _MAX_LN))), 4)
        entry["fluid"] = _quantiles(true, traces.facts.costs[ok, i])
        errors[metric] = entry
    for metric, truth, said in (
        ("RO", traces.backpressure, answers.backpressure),
        ("S", traces.success, answers.success),
    ):
        errors[metric] = {"balanced_accuracy": round(balanced_accuracy(truth, said), 4)}
    return errors


def _quantiles(true: FloatArray, predicted: FloatArray) -> dict[str, float | None]:
    """Median and 95 % quantile of q-errors of values in ln; None of too few."""
    if len(true) < _MIN_TRACES:
        return {"q50": None, "q95": None}
    return {name: round(value, 4) for name, value in q_quantiles(np.exp(np.abs(true - predicted))).items()}
