"""Fit of a model to a cluster's own executions, and the guard that judges it; cheap, and NumPy alone.

The fluid gets the costs of the cluster's engine, what is left gets an offset, and intervals are calibrated anew. The
trees stay as they are: few executions cannot say more.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from engine.arrays import FloatArray
from engine.costream.accuracy import balanced_accuracy, q_errors, q_quantiles
from engine.costream.intervals import SHORTAGES, end_scale, shortage_of
from engine.costream.prediction import Ensemble, is_voted
from engine.costream.residual import COSTS, VOTES
from engine.costream.summary import FluidFacts
from engine.query_graph.graph import OPERATOR_KINDS, CostTrace, HostNode, QueryGraph
from engine.solvers import solving
from engine.words import listed

__all__ = [
    "MIN_HELD_OUT",
    "MIN_OBSERVED",
    "GuardJudgement",
    "Observation",
    "fit_executions",
    "judge",
    "observation_errors",
    "observation_of",
    "of_one_processor",
    "recalibrated",
    "split_observations",
]

#: Observed executions without which there is no fine-tuning.
MIN_OBSERVED = 30
#: Of which so many at least are held out.
MIN_HELD_OUT = 10

_HELD_OUT_SHARE = 0.3
_MIN_GAIN = 0.02  # of the score, for a fine-tuned model to count as better
_MAX_VOTES_LOST = 0.05  # of balanced accuracy on simulated traces
_MIN_SCALED, _MIN_GROUPS = 30, 3  # held-out executions, and groups of them, from which on intervals may get narrower
_FITTED = 200  # executions that costs are fitted to
_STEPS, _FINE = (0.25, 0.5, 2.0, 4.0), (0.71, 0.84, 1.19, 1.41)  # by which factors are tried
_PRICE = 0.003  # of the score, per factor of 2 that costs are away from the table's
_TOGETHER = 64  # executions of a query whose facts are made at once
_PRIOR_RUNS = 10.0  # without an error, that stand against what is observed


@dataclass(frozen=True)
class Observation:
    """A run with the costs that were observed; None where one was not.

    Attributes
    ----------
    trace
        Query, hosts and placement.
    costs
        Throughput (tuples/s), processing and end-to-end latency (s).
    backpressure, success
        As the paper defines them.
    group
        What belongs together, such as the query: never in training and held out at once.
    """

    trace: CostTrace
    costs: tuple[float | None, float | None, float | None]
    backpressure: bool | None
    success: bool | None
    group: str = ""


@dataclass(frozen=True)
class GuardJudgement:
    """Judgement of a fine-tuned model by executions that it was not trained on.

    Attributes
    ----------
    accepted
        Whether it is better.
    before, after
        Errors of the model that it was made from, and its own, as `observation_errors` has them; those on simulated
        traces under `simulated`.
    reason
        Sentence with the scores.
    """

    accepted: bool
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    reason: str


def observation_of(trace: CostTrace, group: str = "") -> Observation:
    """A labelled trace as an observation.

    Raises
    ------
    ValueError
        If the trace has no label.
    """
    label = trace.label
    if label is None:
        raise ValueError("the trace has no label; a trace of a run has one")
    costs = (label.throughput_eps, label.processing_latency_s, label.end_to_end_latency_s)
    return Observation(trace, costs if label.success else (None, None, None), label.backpressure, label.success, group)


def of_one_processor(observations: Sequence[Observation]) -> list[Observation]:
    """Those on the stream processor that most of them ran on: costs of one say nothing of another's."""
    counts = Counter(observation.trace.graph.processor for observation in observations)
    processor = max(sorted(counts), key=counts.__getitem__, default="")
    return [observation for observation in observations if observation.trace.graph.processor == processor]


def split_observations(observations: Sequence[Observation]) -> tuple[list[int], list[int]]:
    """Positions of observations to train on and to hold out: whole groups, about a third of the executions.

    Groups are taken by the hash of their names, so that those held out once mostly are again when more have come.
    """
    groups: dict[str, list[int]] = {}
    for i, observation in enumerate(observations):
        groups.setdefault(observation.group, []).append(i)
    names = sorted(groups, key=lambda name: hashlib.sha256(name.encode()).digest())
    wanted = max(MIN_HELD_OUT, round(_HELD_OUT_SHARE * len(observations)))
    held: list[int] = []
    for name in names:
        if len(held) < wanted and len(held) + len(groups[name]) <= len(observations) // 2:
            held += groups[name]
    kept = set(held)
    return [i for i in range(len(observations)) if i not in kept], sorted(held)


def fit_executions(ensemble: Ensemble, observed: Sequence[Observation], seed: int = 0) -> Ensemble:
    """The ensemble fitted to observed executions: the engine's costs first, then what is left.

    Parameters
    ----------
    observed
        All on one stream processor (`of_one_processor`). What the ensemble was fitted to on another one is dropped.
    seed
        Decides which `_FITTED` executions costs are fitted to, where there are more.

    Raises
    ------
    ValueError
        If there are none, or of several stream processors.

    Notes
    -----
    Factors on the cost table, of all kinds of operators together and then of each, are taken one after another where
    they lower the score (`observation_errors`) by more than `_PRICE` per factor of 2 away from 1: other costs move the
    threshold of overload, which no shift of predictions does. What is left gets an offset by cost and shortage,
    n/(n + `_PRIOR_RUNS`) of the median error in ln of its n runs. The same input gives the same answer.
    """
    solving()
    processors = {observation.trace.graph.processor for observation in observed}
    if len(processors) != 1:
        raise ValueError(f"observations of {len(processors)} stream processors; allowed: 1")
    (processor,) = processors
    if processor != ensemble.card.processor:
        ensemble = Ensemble(ensemble.arrays, replace(ensemble.card, processor=processor, observed=0))
        ensemble = _with(ensemble, factors=np.ones(len(OPERATOR_KINDS)), offsets=np.zeros((SHORTAGES, len(COSTS))))
    rows = np.sort(np.random.default_rng(seed).permutation(len(observed))[:_FITTED])
    part = [observed[i] for i in rows]
    factors = np.array(ensemble.arrays["factors"], dtype=np.float64)

    def price(tried: FloatArray) -> float:
        return _score(_with(ensemble, factors=tried), part) + _PRICE * float(np.abs(np.log2(tried)).mean())

    best = price(factors)
    kinds = _kinds_in(part)
    moves = [(kinds, _STEPS), *(((kind,), steps) for steps in (_STEPS, _FINE) for kind in kinds)]
    for moved, steps in moves:
        for step in steps:
            tried = factors.copy()
            tried[list(moved)] *= step
            if (value := price(tried)) < best:
                factors, best = tried, value
    fitted = _with(ensemble, factors=factors, offsets=np.zeros((SHORTAGES, len(COSTS))))
    return _with(fitted, offsets=_left(fitted, observed))


def _kinds_in(observations: Sequence[Observation]) -> tuple[int, ...]:
    kinds = {operator.kind for o in observations for operator in o.trace.graph.operators}
    return tuple(i for i, kind in enumerate(OPERATOR_KINDS) if kind in kinds)


def _with(ensemble: Ensemble, **arrays: FloatArray) -> Ensemble:
    """The ensemble with some arrays in the place of its own."""
    return Ensemble(ensemble.arrays | {name: a.astype(np.float32) for name, a in arrays.items()}, ensemble.card)


def _left(ensemble: Ensemble, observations: Sequence[Observation]) -> FloatArray:
    """Offsets, (shortages, costs), that what was observed asks for."""
    facts = _facts(ensemble, observations)
    centre, shortages = ensemble.score(facts).centre, shortage_of(facts.use)
    offsets = np.zeros((SHORTAGES, len(COSTS)))
    for m in range(len(COSTS)):
        rows, true = _known_costs(observations, m)
        errors, of_row = np.log(true) - centre[rows, m], shortages[rows]
        for shortage in np.unique(of_row):
            same = errors[of_row == shortage]
            offsets[shortage, m] = np.median(same) * len(same) / (len(same) + _PRIOR_RUNS)
    return offsets


def _score(ensemble: Ensemble, observations: Sequence[Observation]) -> float:
    return float(observation_errors(ensemble, observations)["score"])


def observation_errors(ensemble: Ensemble, observations: Sequence[Observation]) -> dict[str, Any]:
    """Errors of an ensemble: per metric the number of runs and the median and 95 % quantile of q-errors; per vote the
    number and the balanced accuracy; and `score`, the mean of ln q and of wrong votes, which the guard compares.
    """
    if not observations:
        return {"score": 0.0}
    scores = ensemble.score(_facts(ensemble, observations))
    errors: dict[str, Any] = {}
    parts: list[float] = []
    for m, metric in enumerate(COSTS):
        rows, true = _known_costs(observations, m)
        if not rows:
            continue
        q = q_errors(true, np.exp(scores.centre[rows, m]))
        errors[metric] = {"runs": len(q), **q_quantiles(q)}
        parts.append(float(np.log(q).mean()))
    for metric in VOTES:
        truth = [(i, o.backpressure if metric == "RO" else o.success) for i, o in enumerate(observations)]
        votes = is_voted(metric, scores.votes_of(metric), ensemble.card.members)
        known_votes = [(value, bool(votes[i])) for i, value in truth if value is not None]
        if known_votes:
            facts, said = zip(*known_votes, strict=True)
            errors[metric] = {"runs": len(facts), "accuracy": balanced_accuracy(facts, said)}
            parts.append(float(np.mean([a != b for a, b in known_votes])))
    errors["score"] = float(np.mean(parts)) if parts else 0.0
    return errors


def judge(
    before: Ensemble, after: Ensemble, held_out: Sequence[Observation], simulated: Sequence[Observation] = ()
) -> GuardJudgement:
    """Whether a fine-tuned ensemble is better than the one it was made from, on executions that neither has seen.

    It is when its score is lower by 2 % at least, and when on simulated traces, which neither has seen, none of its
    votes has lost more than 5 points of balanced accuracy: few executions show neither overload nor failure. With fewer
    than `MIN_HELD_OUT` executions nothing is accepted.
    """
    old, new = observation_errors(before, held_out), observation_errors(after, held_out)
    old["simulated"], new["simulated"] = observation_errors(before, simulated), observation_errors(after, simulated)
    scores = f"score {new['score']:.3f} against {old['score']:.3f} on {len(held_out)} executions held out"
    lost = _lost_votes(old["simulated"], new["simulated"])
    accepted = False
    if len(held_out) < MIN_HELD_OUT:
        reason = f"Refused: {len(held_out)} executions were held out, {MIN_HELD_OUT} are needed."
    elif new["score"] >= old["score"] * (1.0 - _MIN_GAIN):
        reason = f"Refused: {scores}; {1 - _MIN_GAIN:.0%} of it or less is needed."
    elif lost:
        reason = f"Refused: {scores}, but on {len(simulated)} simulated traces {listed(lost)}."
    else:
        accepted, reason = True, f"Accepted: {scores}."
    return GuardJudgement(accepted, old, new, reason)


def _lost_votes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Words for each vote that has got worse than the guard allows."""
    lost = []
    for metric, name in (("RO", "back-pressure"), ("S", "success")):
        if metric in old and new[metric]["accuracy"] < old[metric]["accuracy"] - _MAX_VOTES_LOST:
            lost.append(
                f"votes on {name} are {new[metric]['accuracy']:.1%} right instead of {old[metric]['accuracy']:.1%}"
            )
    return lost


def recalibrated(
    ensemble: Ensemble,
    version: str,
    fitted: int,
    held_out: Sequence[Observation],
    simulated: Sequence[Observation] = (),
) -> Ensemble:
    """A fitted ensemble with intervals by executions held out, and a card that says what it was fitted to.

    With `_MIN_SCALED` executions of `_MIN_GROUPS` groups held out, these scale the intervals. With fewer they can only
    widen them, as can simulated traces: a fit to few executions makes a model surer than it is right.
    """
    held, of_traces = _scales(ensemble, held_out), _scales(ensemble, simulated)
    bounds = np.array(ensemble.arrays["bounds"], dtype=np.float64)
    calibrated = 0
    for m in range(len(COSTS)):
        rows, _ = _known_costs(held_out, m)
        enough = len(rows) >= _MIN_SCALED and len({held_out[i].group for i in rows}) >= _MIN_GROUPS
        bounds[m] *= held[m] if enough else max(1.0, held[m], of_traces[m])
        calibrated = max(calibrated, len(rows) if enough else 0)
    card = replace(
        ensemble.card,
        version=version,
        observed=ensemble.card.observed + fitted,
        calibrated_here=calibrated,
        errors={**ensemble.card.errors, "observed": observation_errors(ensemble, held_out)},
    )
    return Ensemble(_with(ensemble, bounds=bounds).arrays, card)


def _scales(ensemble: Ensemble, observations: Sequence[Observation]) -> list[float]:
    """Factors of the intervals' ends, by cost, that hold for observations; 0 where there are none."""
    if not observations:
        return [0.0] * len(COSTS)
    scores = ensemble.score(_facts(ensemble, observations))
    scales = []
    for m in range(len(COSTS)):
        rows, true = _known_costs(observations, m)
        bounds = ensemble.arrays["bounds"][m][scores.kinds[rows]]
        errors = (np.log(true) - scores.centre[rows, m]) / scores.units[rows, m]
        scales.append(end_scale(bounds, errors, scores.spread[rows, m]) if rows else 0.0)
    return scales


def _known_costs(observations: Sequence[Observation], metric: int) -> tuple[list[int], FloatArray]:
    """Positions of the runs of which a cost was observed, and that cost."""
    known = [(i, cost) for i, cost in ((i, o.costs[metric]) for i, o in enumerate(observations)) if cost]
    return [i for i, _ in known], np.array([cost for _, cost in known], dtype=np.float64)


def _host_keys(trace: CostTrace) -> list[tuple[HostNode, int]]:
    """Host of each operator, and which one of those alike it is: two alike are two."""
    alike: Counter[HostNode] = Counter()
    keys: dict[int, tuple[HostNode, int]] = {}
    for j in dict.fromkeys(trace.placement):
        host = trace.hosts[j]
        keys[j] = host, alike[host]
        alike[host] += 1
    return [keys[j] for j in trace.placement]


def _facts(ensemble: Ensemble, observations: Sequence[Observation]) -> FluidFacts:
    """Facts in the order of the observations; those of a query are made together, on the hosts of all of them."""
    by_graph: dict[QueryGraph, list[int]] = {}
    for i, observation in enumerate(observations):
        by_graph.setdefault(observation.trace.graph, []).append(i)
    parts, order = [], []
    for graph, rows in by_graph.items():
        for start in range(0, len(rows), _TOGETHER):
            traces = [_host_keys(observations[i].trace) for i in rows[start : start + _TOGETHER]]
            row_of = {key: row for row, key in enumerate(dict.fromkeys(chain.from_iterable(traces)))}
            places = np.array([[row_of[key] for key in keys] for keys in traces])
            parts.append(ensemble.facts(graph, [host for host, _ in row_of], places))
        order += rows
    return FluidFacts.joined(parts).take(np.argsort(order))
