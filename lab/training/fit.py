"""Fit of one network: loss, learning rate, shuffling by seed, early stopping on validation traces.

The loss of a batch is the mean over traces with output of smooth L1 on ln of the three costs, plus a share of the
pinball loss of their 10 % and 90 % quantiles, plus a share of the cross entropy of back-pressure and success over all
traces. Both classes of a vote weigh the same in total, as balanced accuracy counts them.

Sources: Costream (ICDE 2024), section VI; smooth L1 on ln instead of the paper's squared log(1 + y), because
throughputs below one tuple per second exist.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from engine.costream.accuracy import balanced_accuracy
from engine.costream.residual import COSTS
from lab.training.batch import FORMS, Float32Array, GraphBatch, collate
from lab.training.dataset import TraceSet
from lab.training.network import OUTPUTS, initial_parameters
from lab.training.torch_network import TorchNetwork

__all__ = ["EpochRecord", "FitSettings", "FittedMember", "fit_member", "smooth_loss"]

_SUCCESS, _BACKPRESSURE = OUTPUTS.index("S"), OUTPUTS.index("RO")
_LOW, _HIGH = (
    [OUTPUTS.index(f"{cost}_low") for cost in COSTS],
    [OUTPUTS.index(f"{cost}_high") for cost in COSTS],
)
_VALIDATION_BATCH = 512
_MIN_BATCH, _MIN_STEPS = 32, 40  # few traces are taken in smaller batches


def smooth_loss(predicted: Tensor, true: Tensor, beta: float) -> Tensor:
    """Smooth L1 of each value: squared up to `beta`, then absolute."""
    loss: Tensor = functional.smooth_l1_loss(predicted, true, beta=beta, reduction="none")
    return loss


@dataclass(frozen=True)
class FitSettings:
    """Settings of a fit; the defaults are those of the shipped weights.

    Attributes
    ----------
    form, hidden
        Form and width of the network (`lab.training.network`).
    epochs, patience
        Rounds over the training traces at the most, and how many without a lower validation loss end the fit.
    batch
        Traces per step.
    learning_rate, weight_decay
        Of AdamW; the rate rises over the first `warmup` steps and falls along a cosine.
    jitter
        Standard deviation of noise on the encoders' inputs in training: a run hides about as much.
    beta
        Deviation in ln up to which the loss is squared.
    quantile_share, vote_share
        Weights of pinball loss and cross entropy.
    network
        Makes the network of its parameters.
    cost_loss
        Loss (g, 3) of predicted and true costs in ln, and `beta`.
    """

    form: str = "recommended"
    hidden: int = 64
    epochs: int = 80
    patience: int = 20
    batch: int = 256
    learning_rate: float = 2e-3
    weight_decay: float = 0.1
    warmup: int = 200
    jitter: float = 0.03
    beta: float = 0.1
    quantile_share: float = 0.3
    vote_share: float = 0.1
    network: Callable[[Mapping[str, Any]], TorchNetwork] = TorchNetwork
    cost_loss: Callable[[Tensor, Tensor, float], Tensor] = smooth_loss


@dataclass(frozen=True)
class EpochRecord:
    """A point of the learning curves: losses after an epoch, and validation errors of this one network."""

    seed: int
    epoch: int
    seconds: float
    training_loss: float
    validation_loss: float
    q50: tuple[float, float, float]
    q95: tuple[float, float, float]
    backpressure_accuracy: float
    success_accuracy: float


@dataclass(frozen=True)
class FittedMember:
    """Parameters of the epoch of least validation loss, and the learning curve."""

    parameters: Mapping[str, Float32Array]
    curve: tuple[EpochRecord, ...]
    best_epoch: int


Targets = tuple[Tensor, Tensor, Tensor, Tensor]


def fit_member(
    training: TraceSet,
    validation: TraceSet,
    settings: FitSettings,
    seed: int,
    report: Callable[[EpochRecord], None] | None = None,
    begin: Mapping[str, Any] | None = None,
) -> FittedMember:
    """Fit a network; the same traces, settings and seed give the same parameters on the same machine.

    Parameters
    ----------
    report
        Called after each epoch.
    begin
        Parameters to begin with instead of random ones: fine-tuning.
    """
    torch.set_num_threads(1)  # the matrices are small
    rng = np.random.default_rng(seed)
    network = settings.network(_initial(training, settings, seed) if begin is None else begin)
    targets, weights = _targets(training), _class_weights(training)
    steps = math.ceil(len(training) / min(settings.batch, max(_MIN_BATCH, len(training) // _MIN_STEPS)))
    optimizer = torch.optim.AdamW(network.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, _learning_rate(settings, steps * settings.epochs))
    held = list(validation.batches(_VALIDATION_BATCH, settings.form))
    curve: list[EpochRecord] = []
    best, kept = math.inf, network.parameters_by_name()
    start = time.monotonic()
    for epoch in range(1, settings.epochs + 1):
        order, total = rng.permutation(len(training)), 0.0
        for rows in np.array_split(order, steps):
            batch = _jittered(collate([training.encoded[i] for i in rows], settings.form), settings.jitter, rng)
            loss = _loss(network(batch), _rows(targets, rows), weights, settings)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            total += float(loss.detach()) * len(rows)
        with torch.no_grad():
            outputs = torch.cat([network(batch) for batch in held])
            validation_loss = float(_loss(outputs, _targets(validation), weights, settings))
        seconds, mean_loss = time.monotonic() - start, total / len(training)
        curve.append(_record(seed, epoch, seconds, mean_loss, validation_loss, outputs.numpy(), validation))
        if report:
            report(curve[-1])
        if validation_loss < best:
            best, kept = validation_loss, network.parameters_by_name()
        elif epoch - _best_epoch(curve) >= settings.patience:
            break
    return FittedMember(kept, tuple(curve), _best_epoch(curve))


def _initial(training: TraceSet, settings: FitSettings, seed: int) -> dict[str, Float32Array]:
    """Random parameters whose heads give the anchor, or without one the mean of each cost."""
    parameters = initial_parameters(settings.form, settings.hidden, seed)
    known = training.success
    for i, cost in enumerate(COSTS):
        parameters[f"head.{cost}.1.weight"][:] = 0
        if settings.form != FORMS[0] and known.any():
            parameters[f"head.{cost}.1.bias"][:] = training.targets[known, i].mean()
    return parameters


def _best_epoch(curve: list[EpochRecord]) -> int:
    return min(curve, key=lambda record: record.validation_loss).epoch


def _learning_rate(settings: FitSettings, steps: int) -> Callable[[int], float]:
    """Factor on the learning rate at a step: a rise, then a cosine down to a hundredth."""
    warmup = max(1, min(settings.warmup, steps // 10))

    def factor(step: int) -> float:
        fall = 0.5 * (1.0 + math.cos(math.pi * min(1.0, step / steps)))
        return min(1.0, (step + 1) / warmup) * (0.01 + 0.99 * fall)

    return factor


def _targets(traces: TraceSet) -> Targets:
    """ln of the costs with 0 where there is none, whether there are any, back-pressure and success; float32."""
    costs = np.nan_to_num(traces.targets).astype(np.float32)
    columns = (traces.success, traces.backpressure, traces.success)
    present, pressed, success = (torch.from_numpy(column.astype(np.float32)) for column in columns)
    return torch.from_numpy(costs), present, pressed, success


def _rows(targets: Targets, rows: Any) -> Targets:
    costs, present, pressed, success = (column[rows] for column in targets)
    return costs, present, pressed, success


def _class_weights(traces: TraceSet) -> dict[int, tuple[float, float]]:
    """Per vote the weights of a trace without and with the property; a class that does not occur has none."""
    weights = {}
    for column, values in ((_BACKPRESSURE, traces.backpressure), (_SUCCESS, traces.success)):
        share = float(values.mean())
        weights[column] = (0.5 / (1 - share), 0.5 / share) if 0 < share < 1 else (1.0, 1.0)
    return weights


def _jittered(batch: GraphBatch, jitter: float, rng: np.random.Generator) -> GraphBatch:
    if not jitter:
        return batch
    inputs = {
        kind: x + np.float32(jitter) * rng.standard_normal(x.shape, dtype=np.float32)
        for kind, x in batch.inputs.items()
    }
    return replace(batch, inputs=inputs)


def _loss(
    outputs: Tensor, targets: Targets, weights: Mapping[int, tuple[float, float]], settings: FitSettings
) -> Tensor:
    costs, present, pressed, success = targets
    smooth = settings.cost_loss(outputs[:, :3], costs, settings.beta).sum(dim=1)
    below, above = costs - outputs[:, _LOW], costs - outputs[:, _HIGH]
    pinball = torch.maximum(0.1 * below, -0.9 * below) + torch.maximum(0.9 * above, -0.1 * above)
    regression = ((smooth + settings.quantile_share * pinball.sum(dim=1)) * present).sum() / present.sum().clamp(min=1)
    votes = sum(
        functional.binary_cross_entropy_with_logits(
            outputs[:, column], truth, weight=torch.where(truth > 0.5, weights[column][1], weights[column][0])
        )
        for column, truth in ((_BACKPRESSURE, pressed), (_SUCCESS, success))
    )
    loss: Tensor = regression + settings.vote_share * votes
    return loss


def _record(
    seed: int, epoch: int, seconds: float, training: float, validation: float, outputs: Float32Array, traces: TraceSet
) -> EpochRecord:
    ok = traces.success
    errors = np.exp(np.abs(outputs[ok, :3] - traces.targets[ok])) if ok.any() else np.full((1, 3), np.nan)
    q50, q95 = np.quantile(errors, (0.5, 0.95), axis=0).tolist()
    accuracies = [
        balanced_accuracy(truth, outputs[:, column] > 0)
        for column, truth in ((_BACKPRESSURE, traces.backpressure), (_SUCCESS, traces.success))
    ]
    return EpochRecord(seed, epoch, seconds, training, validation, tuple(q50), tuple(q95), *accuracies)
