"""Ensembles of model versions, loaded once per process, and the one in force in a cluster."""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock

from django.db import IntegrityError, transaction
from django.db.models import Max

from apps.core.errors import Impossible
from apps.fleet.models import Cluster
from apps.predictions.choices import ModelOrigin, ModelState
from apps.predictions.models import ModelVersion
from engine.costream.prediction import Ensemble, shipped_ensemble
from engine.costream.weights import WeightsError
from engine.errors import EngineError

__all__ = ["ModelInForce", "ensemble_of", "model_in_force", "next_number", "shipped_version", "version_in_force"]

_MAX_KEPT = 8  # ensembles; each has some two megabytes


@dataclass(frozen=True)
class ModelInForce:
    """The version that predicts for a cluster, its ensemble, and a sentence where another one should have."""

    version: ModelVersion
    ensemble: Ensemble
    note: str = ""


class _EnsembleCache:
    """Ensembles by the digest of their weights and their card, the least recently used dropped first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Ensemble] = OrderedDict()
        self._lock = Lock()

    def get(self, version: ModelVersion) -> Ensemble:
        key = f"{version.digest} {json.dumps(version.card, sort_keys=True)}"
        with self._lock:
            ensemble = self._kept.get(key)
        if ensemble is None:
            # read with the weights, which lists leave out
            ensemble = Ensemble.parse(bytes(version.weights or b""), version.card)
        with self._lock:
            self._kept[key] = ensemble
            self._kept.move_to_end(key)
            while len(self._kept) > _MAX_KEPT:
                self._kept.popitem(last=False)
        return ensemble


_cache = _EnsembleCache()


def shipped_version() -> ModelVersion:
    """The row of the weights that came with Sluice, made when they are first asked for.

    Raises
    ------
    Impossible
        They are missing or damaged.
    """
    try:
        card = shipped_ensemble().card
    except EngineError as error:
        raise Impossible(f"No model can predict: {error}", code="no_model") from None
    rows = ModelVersion.objects.filter(cluster=None, digest=card.sha256)
    version = rows.first()
    if version is None:
        try:
            with transaction.atomic():
                version = ModelVersion.objects.create(
                    number=next_number(None), origin=ModelOrigin.SHIPPED, digest=card.sha256, card=card.to_dict()
                )
        except IntegrityError:  # another process made it in the same moment
            version = rows.get()
    return version


def next_number(cluster: Cluster | None) -> int:
    """Number of a cluster's next version, or of the next shipped one."""
    newest = ModelVersion.objects.filter(cluster=cluster).aggregate(newest=Max("number"))["newest"]
    return (newest or 0) + 1


def version_in_force(cluster: Cluster) -> ModelVersion:
    """The fine-tuned version in force in a cluster, or else the shipped one."""
    own = ModelVersion.objects.filter(cluster=cluster, state=ModelState.IN_FORCE).first()
    return own or shipped_version()


def ensemble_of(version: ModelVersion) -> Ensemble:
    """Ensemble of a version.

    Raises
    ------
    WeightsError, DocumentError
        Its weights are not those of its card, or of a format that this version of Sluice does not read.
    """
    if version.origin == ModelOrigin.SHIPPED:
        shipped = shipped_ensemble()
        if shipped.card.sha256 != version.digest:
            raise WeightsError(f"The weights of {version} came with an earlier version of Sluice and are not kept")
        return shipped
    return _cache.get(version)


def model_in_force(cluster: Cluster) -> ModelInForce:
    """The version in force with its ensemble; where it cannot be read, the shipped one in its place.

    Raises
    ------
    Impossible
        There is none at all.
    """
    version = version_in_force(cluster)
    try:
        return ModelInForce(version, ensemble_of(version))
    except EngineError as error:
        shipped = shipped_version()
        if shipped.pk == version.pk:
            raise Impossible(f"No model can predict: {error}", code="no_model") from None
        note = f"Model {version} cannot be read ({error}); {shipped} stands in for it."
        return ModelInForce(shipped, ensemble_of(shipped), note)
