"""Ensembles that predict the fluid, all of it times the same factor, and vote as they are told."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from engine.costream.features import FEATURES
from engine.costream.intervals import KINDS
from engine.costream.prediction import Ensemble
from engine.costream.weights import ModelCard, pack_weights

Arrays = dict[str, npt.NDArray[Any]]


def anchor_arrays(
    card: ModelCard,
    *,
    half: float = 0.2,
    failing: bool = False,
    shift: float = 0.0,
    pressed: float = -1.0,
    extreme: bool = False,
) -> Arrays:
    """Arrays that answer the fluid with an interval of `half` in ln to both sides, at any distance.

    Every placement succeeds without back-pressure; with `failing`, every one fails. `pressed` is the logit of
    back-pressure. With `extreme` trees the throughput is not finite.
    """
    arrays: Arrays = {}
    for name, shape in card.shapes.items():
        arrays[name] = np.zeros(shape, np.uint8 if name.endswith(".column") else np.float32)
    for i in range(card.members):
        for metric, base in (("T", shift), ("Lp", shift), ("Le", shift), ("S", -1.0 if failing else 1.0)):
            arrays[f"{i}.{metric}.base"][:] = base
        arrays[f"{i}.RO.base"][:] = pressed
        if extreme:
            arrays[f"{i}.T.value"][:] = 3e38
    arrays["unit"][:] = arrays["factors"][:] = 1.0
    arrays["shrinkage"][:] = (1e30, 2e30)
    arrays["bounds"] = np.broadcast_to(np.array([-half, half], np.float32), (3, KINDS, 2))
    return arrays


def anchor_card(*, outside: bool | float = False, **fields: object) -> ModelCard:
    """A card whose domain holds everything, with `outside` no host, or only those of up to so much cpu in percent."""
    ranges = dict.fromkeys(FEATURES, (0.0, 1e15))
    if outside is True:
        ranges["host.cpu_percent"] = (1e9, 1e10)
    elif outside:
        ranges["host.cpu_percent"] = (0.0, outside)
    values: dict[str, object] = {
        "version": "anchor-1",
        "members": 3,
        "cost_trees": 2,
        "vote_trees": 1,
        "depth": 1,
        "points": 3,
        "simulated": 5,
        "real": 0,
        "calibrated": 4,
        "simulator": "1",
        "seed": 7,
        "parameters": "ab" * 32,
        "ranges": ranges,
    }
    return ModelCard(**{**values, **fields})  # type: ignore[arg-type]


def anchor_archive(*, outside: bool | float = False, **said: Any) -> tuple[bytes, ModelCard]:
    """Bytes of the weights, and their card."""
    card = anchor_card(outside=outside)
    return pack_weights(anchor_arrays(card, **said), card)


def anchor_ensemble(*, outside: bool | float = False, **said: Any) -> Ensemble:
    data, card = anchor_archive(outside=outside, **said)
    return Ensemble.parse(data, card.to_dict())
