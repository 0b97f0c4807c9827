"""Contenders of the benchmark of predictions, all trained on the same traces.

==================  ================================================================================================
constant            median of each cost, the commoner vote
fluid               nominal costs on the chosen hosts (`engine.query_graph.fluid`)
flat boosting       boosted trees of the fluid's summary, of the costs themselves
graph network       as published: messages between operators and hosts, without flow (Costream, algorithm 1)
residual            the product's: fluid times a residual that is shrunk away from what was trained
==================  ================================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from engine.costream.prediction import Ensemble
from engine.costream.residual import COSTS, VOTES, member_outputs
from lab.training.boosted_trees import BoostingSettings, fit_members
from lab.training.dataset import TraceSet
from lab.training.evaluation import ContenderAnswers, cost_errors, ensemble_answers

__all__ = ["Contender", "all_contenders", "print_errors"]

_BATCH = 512


@dataclass(frozen=True)
class Contender:
    """A trained model: what it says of traces."""

    name: str
    answers: Callable[[TraceSet], ContenderAnswers]

    def errors(self, traces: TraceSet) -> dict[str, Any]:
        """Errors on labelled traces."""
        return cost_errors(self.answers(traces), traces)


def all_contenders(training: TraceSet, validation: TraceSet, ensemble: Ensemble, epochs: int) -> list[Contender]:
    """Contenders in the order of the table, the residual last; without the network where PyTorch is missing."""
    contenders = [_constant(training), Contender("fluid", _fluid_answers), _boosting(training)]
    if find_spec("torch") is not None:
        contenders.append(_network(training, validation, epochs))
    return [*contenders, Contender("residual", lambda traces: ensemble_answers(ensemble, traces))]


def _constant(training: TraceSet) -> Contender:
    median = np.median(training.targets[training.success], axis=0)
    votes = [2 * truth.sum() > len(training) for truth in (training.backpressure, training.success)]

    def answers(traces: TraceSet) -> ContenderAnswers:
        backpressure, success = (np.full(len(traces), vote) for vote in votes)
        return ContenderAnswers(np.tile(median, (len(traces), 1)), backpressure, success)

    return Contender("constant", answers)


def _fluid_answers(traces: TraceSet) -> ContenderAnswers:
    backpressure, success = (traces.facts.votes > 0).T
    return ContenderAnswers(traces.facts.costs, backpressure, success)


def _boosting(training: TraceSet) -> Contender:
    facts = replace(training.facts, costs=np.zeros_like(training.facts.costs))
    settings = BoostingSettings(members=1)
    arrays = fit_members(replace(training, facts=facts), settings)

    def answers(traces: TraceSet) -> ContenderAnswers:
        outputs = member_outputs(arrays, 1, traces.facts.summary)[0]
        backpressure, success = (outputs[:, len(COSTS) + i] > 0 for i in range(len(VOTES)))
        return ContenderAnswers(outputs[:, : len(COSTS)], backpressure, success)

    return Contender("flat boosting", answers)


def _network(training: TraceSet, validation: TraceSet, epochs: int) -> Contender:
    from lab.training.fit import FitSettings, fit_member
    from lab.training.network import OUTPUTS, CostNetwork

    fitted = fit_member(training, validation, FitSettings(form="plain", epochs=epochs), 1, None)
    network = CostNetwork(fitted.parameters, "plain")

    def answers(traces: TraceSet) -> ContenderAnswers:
        outputs = np.concatenate([network.evaluate(batch) for batch in traces.batches(_BATCH, "plain")])
        column = {name: outputs[:, i].astype(np.float64) for i, name in enumerate(OUTPUTS)}
        return ContenderAnswers(np.stack([column[cost] for cost in COSTS], axis=1), column["RO"] > 0, column["S"] > 0)

    return Contender("graph network", answers)


def print_errors(title: str, rows: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    """A table of errors: q0.5/q0.95 per cost, balanced accuracies and what intervals hold, in per cent."""
    columns = "".join(f"{cost:>17}" for cost in COSTS)
    print(f"\n{title}\n  {'':16}{columns}{'RO':>8}{'S':>8}   intervals hold T, Lp, Le")
    for name, errors in rows:
        cells = "".join(f"{_pair(errors[cost]):>17}" for cost in COSTS)
        votes = "".join(f"{100 * errors[vote]['balanced_accuracy']:8.1f}" for vote in VOTES)
        held = [errors[cost]["coverage"] for cost in COSTS if "coverage" in errors[cost]]
        print(f"  {name:16}{cells}{votes}   {', '.join(f'{100 * share:.1f}' for share in held)}", flush=True)


def _pair(part: Mapping[str, Any]) -> str:
    if part["q50"] is None:
        return "too few"
    return f"{part['q50']:.3f}/{part['q95']:.2f}" if part["q95"] < 1e4 else f"{part['q50']:.3f}/{part['q95']:.0e}"
