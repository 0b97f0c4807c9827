"""Ensembles that predict the analytic anchor and vote as they are told."""

from __future__ import annotations

import numpy as np

from engine.costream.features import FEATURES
from engine.costream.network import parameter_shapes
from engine.costream.prediction import Ensemble
from engine.costream.weights import Member, ModelCard, pack_weights

HIDDEN = 4


def anchor_member(
    *, half: float = 0.2, failing: bool = False, shift: float = 0.0, pressed: float = -1.0, extreme: bool = False
) -> Member:
    """Parameters of a network that answers the anchor with an interval of `half` in ln to both sides.

    Every placement succeeds without back-pressure; with `failing`, every one fails. `pressed` is the logit of
    back-pressure. With `extreme` weights the throughput is not finite.
    """
    member = {name: np.zeros(shape, np.float32) for name, shape in parameter_shapes("recommended", HIDDEN).items()}
    for metric in ("T", "Lp", "Le"):
        member[f"head.{metric}.1.bias"][:] = (shift, shift - half, shift + half)
    member["head.S.1.bias"][:] = -1.0 if failing else 1.0
    member["head.RO.1.bias"][:] = pressed
    if extreme:
        member["head.T.0.bias"][:] = member["head.T.1.weight"][:] = 3e38
    return member


def anchor_card(*, outside: bool | float = False, **fields: object) -> ModelCard:
    """A card whose domain holds everything, with `outside` no host, or only those of up to so much cpu in percent."""
    ranges = dict.fromkeys(FEATURES, (0.0, 1e15))
    if outside is True:
        ranges["host.cpu_percent"] = (1e9, 1e10)
    elif outside:
        ranges["host.cpu_percent"] = (0.0, outside)
    values: dict[str, object] = {
        "version": "anchor-1",
        "form": "recommended",
        "hidden": HIDDEN,
        "members": 3,
        "simulated": 5,
        "real": 0,
        "simulator": "1",
        "seed": 7,
        "parameters": "ab" * 32,
        "interval_scale": {"T": 1.0, "Lp": 1.0, "Le": 1.0},
        "ranges": ranges,
    }
    return ModelCard(**{**values, **fields})  # type: ignore[arg-type]


def anchor_archive(*, outside: bool | float = False, **member: object) -> tuple[bytes, ModelCard]:
    """Bytes of the weights, and their card."""
    parameters = anchor_member(**member)  # type: ignore[arg-type]
    return pack_weights([parameters] * 3, anchor_card(outside=outside))


def anchor_ensemble(*, outside: bool | float = False, **member: object) -> Ensemble:
    data, card = anchor_archive(outside=outside, **member)
    return Ensemble.parse(data, card.to_dict())
