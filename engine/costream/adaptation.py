"""Fine-tuning of an ensemble on observed executions, and the guard that judges it; NumPy alone.

All layers are trained further by Adam, on observed executions with simulated traces mixed in, so that nothing is
forgotten. A constant shift per metric would not do, since on another engine the threshold of overload moves; nor do
the heads alone.

Source: Costream (ICDE 2024), section VI, experiment on unseen patterns: fine-tuning with few traces.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from engine.arrays import FloatArray
from engine.costream.accuracy import balanced_accuracy, q_errors, q_quantiles
from engine.costream.backpropagation import RunTargets, loss_gradients
from engine.costream.batch import Float32Array, GraphBatch, collate, encode
from engine.costream.prediction import COSTS, Ensemble, ensemble_bounds, interval_scale, is_voted, votes_of
from engine.costream.weights import Member, ModelCard
from engine.query_graph.graph import CostTrace
from engine.solvers import solving
from engine.words import listed

__all__ = [
    "MIN_HELD_OUT",
    "MIN_OBSERVED",
    "FineTuningSettings",
    "GuardJudgement",
    "Observation",
    "fine_tune",
    "judge",
    "observation_errors",
    "observation_of",
    "split_observations",
    "tuned_card",
]

#: Observed executions without which there is no fine-tuning.
MIN_OBSERVED = 30
#: Of which so many at least are held out.
MIN_HELD_OUT = 10

_HELD_OUT_SHARE = 0.3
_MIN_GAIN = 0.02  # of the score, for a fine-tuned model to count as better
_MAX_VOTES_LOST = 0.05  # of balanced accuracy on simulated traces
_MIN_SCALED, _MIN_GROUPS = 30, 3  # held-out executions, and groups of them, from which on intervals may get narrower
_MIN_SCALE = 1e-3
_MAX_BALANCE = 5.0


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
class FineTuningSettings:
    """Settings of a fine-tuning; the seed decides the order of the traces alone."""

    epochs: int = 20
    learning_rate: float = 1e-3
    batch: int = 128
    observed_share: float = 0.9  # of the weight, for observed executions
    seed: int = 0


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


def fine_tune(
    ensemble: Ensemble,
    observed: Sequence[Observation],
    replay: Sequence[Observation] = (),
    settings: FineTuningSettings | None = None,
) -> tuple[Member, ...]:
    """Parameters of each member after training it further on observed executions.

    Parameters
    ----------
    observed
        Executions to learn from.
    replay
        Traces of the kind that the ensemble was trained on.

    Returns
    -------
    tuple of mappings
        As `pack_weights` takes them. The same input gives the same parameters.
    """
    solving()
    settings = settings or FineTuningSettings()
    traces = [*observed, *replay]
    weights = np.full(len(traces), (1.0 - settings.observed_share) / max(len(replay), 1))
    weights[: len(observed)] = (settings.observed_share if replay else 1.0) / max(len(observed), 1)
    targets = _targets(traces, weights * len(traces))
    encoded = [encode(o.trace.graph, o.trace.hosts, o.trace.placement) for o in traces]
    tuned = []
    for k, member in enumerate(ensemble.members):
        rng = np.random.default_rng(settings.seed + k)
        parts = np.array_split(rng.permutation(len(traces)), max(1, round(len(traces) / settings.batch)))
        batches = [(collate([encoded[i] for i in rows], ensemble.card.form), targets.rows(rows)) for rows in parts]
        adam = _Adam({name: value.astype(np.float32) for name, value in member.items()})
        steps = settings.epochs * len(batches)
        for step in range(steps):
            if step % len(batches) == 0:
                order = rng.permutation(len(batches))
            batch, wanted = batches[order[step % len(batches)]]
            _, gradients = loss_gradients(adam.parameters, batch, wanted)
            adam.step(gradients, settings.learning_rate * (1.0 - step / steps))
        tuned.append(adam.parameters)
    return tuple(tuned)


def observation_errors(ensemble: Ensemble, observations: Sequence[Observation]) -> dict[str, Any]:
    """Errors of an ensemble: per metric the number of runs and the median and 95 % quantile of q-errors; per vote the
    number and the balanced accuracy; and `score`, the mean of ln q and of wrong votes, which the guard compares.
    """
    if not observations:
        return {"score": 0.0}
    outputs = ensemble.evaluate(_batch(ensemble, observations))
    errors: dict[str, Any] = {}
    parts: list[float] = []
    for m, metric in enumerate(COSTS):
        rows, true = _known_costs(observations, m)
        if not rows:
            continue
        q = q_errors(true, np.exp(ensemble_bounds(outputs)[metric][0])[rows])
        errors[metric] = {"runs": len(q), **q_quantiles(q)}
        parts.append(float(np.log(q).mean()))
    for metric in ("RO", "S"):
        truth = [(i, o.backpressure if metric == "RO" else o.success) for i, o in enumerate(observations)]
        votes = is_voted(metric, votes_of(outputs, metric), len(outputs))
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


def tuned_card(
    card: ModelCard,
    version: str,
    trained: int,
    after: Ensemble,
    held_out: Sequence[Observation],
    simulated: Sequence[Observation] = (),
) -> ModelCard:
    """Card of a fine-tuned ensemble: how many executions it saw, its errors on those held out, intervals scaled anew.

    With `_MIN_SCALED` executions of `_MIN_GROUPS` groups held out, these scale the intervals. With fewer they can only
    widen them, as can simulated traces: training on few executions makes a model surer than it is right.
    """
    held, of_traces = _scales(after, held_out), _scales(after, simulated)
    scales = {}
    for m, metric in enumerate(COSTS):
        rows, _ = _known_costs(held_out, m)
        enough = len(rows) >= _MIN_SCALED and len({held_out[i].group for i in rows}) >= _MIN_GROUPS
        candidates = [held[metric]] if enough else [card.interval_scale[metric], held[metric], of_traces[metric]]
        scales[metric] = max(*candidates, _MIN_SCALE)
    errors = {**card.errors, "observed": observation_errors(after, held_out)}
    return replace(card, version=version, observed=card.observed + trained, interval_scale=scales, errors=errors)


def _scales(ensemble: Ensemble, observations: Sequence[Observation]) -> dict[str, float]:
    """Factors of intervals by metric that hold for observations; 0 where there are none."""
    bounds = ensemble_bounds(ensemble.evaluate(_batch(ensemble, observations))) if observations else {}
    scales = dict.fromkeys(COSTS, 0.0)
    for m, metric in enumerate(COSTS):
        rows, true = _known_costs(observations, m)
        if rows:
            centre, below, above = (part[rows] for part in bounds[metric])
            scales[metric] = interval_scale(np.log(true), (centre, below, above))
    return scales


def _known_costs(observations: Sequence[Observation], metric: int) -> tuple[list[int], FloatArray]:
    """Positions of the runs of which a cost was observed, and that cost."""
    known = [(i, cost) for i, cost in ((i, o.costs[metric]) for i, o in enumerate(observations)) if cost]
    return [i for i, _ in known], np.array([cost for _, cost in known], dtype=np.float64)


def _batch(ensemble: Ensemble, observations: Sequence[Observation]) -> GraphBatch:
    traces = [encode(o.trace.graph, o.trace.hosts, o.trace.placement) for o in observations]
    return collate(traces, ensemble.card.form)


def _targets(observations: Sequence[Observation], weights: FloatArray) -> RunTargets:
    costs = np.array([[value or np.nan for value in o.costs] for o in observations], dtype=np.float64)
    votes = np.array([[np.nan if v is None else float(v) for v in (o.backpressure, o.success)] for o in observations])
    known, voted = np.isfinite(costs), np.isfinite(votes)
    return RunTargets(
        np.log(np.where(known, costs, 1.0)).astype(np.float32),
        known.astype(np.float32),
        np.where(voted, votes, 0.0).astype(np.float32),
        (voted * _balance(votes)).astype(np.float32),
        weights.astype(np.float32),
    )


def _balance(votes: FloatArray) -> FloatArray:
    """Weights (g, 2) with which yes and no of a vote count alike, however rare one is; at most `_MAX_BALANCE`."""
    share = np.nansum(votes, axis=0) / np.maximum(np.isfinite(votes).sum(axis=0), 1)
    weights: FloatArray = 0.5 / np.maximum(np.where(votes > 0.5, share, 1.0 - share), 0.5 / _MAX_BALANCE)
    return weights


class _Adam:
    """Adam's moments of all parameters."""

    def __init__(self, parameters: dict[str, Float32Array]) -> None:
        self.parameters = parameters
        self._first = {name: np.zeros_like(value) for name, value in parameters.items()}
        self._second = {name: np.zeros_like(value) for name, value in parameters.items()}
        self._step = 0

    def step(self, gradients: Mapping[str, Float32Array], rate: float) -> None:
        """Move every parameter against its gradient."""
        self._step += 1
        for name, gradient in gradients.items():
            first, second = self._first[name], self._second[name]
            first += 0.1 * (gradient - first)
            second += 0.001 * (gradient**2 - second)
            mean, square = first / (1 - 0.9**self._step), second / (1 - 0.999**self._step)
            self.parameters[name] -= np.float32(rate) * mean / (np.sqrt(square) + np.float32(1e-8))
