"""A decision as members of a team see it who see a part of the cluster: their own query, and of others a sum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from django.utils.safestring import SafeString

from apps.admission.others import OthersLoad, load_of_others
from apps.admission.selectors import masked_result
from apps.admission.trials import TrialOffer
from apps.pages.admission.facts import AdmissionDetail
from apps.pages.admission.tables import SEVERITIES, EffectRow
from apps.queries.masks import mask_of
from engine.admission.answer import Alternative, QueryEffect
from engine.words import listed

__all__ = ["OwnDecision"]


class OwnDecision(AdmissionDetail):
    """Facts of a request of one's own team; effects on queries of others are none of them."""

    trial_offer = TrialOffer()  # an agent is everybody's
    parent = ("Queries", "pages:queries")
    affected: list[SafeString] = []  # reasons say it, masked
    prediction_shown = None  # a prediction shows its traces on the whole cluster

    @cached_property
    def _choices(self) -> Mapping[str, Alternative]:
        return {}  # each tells what it does to others

    def _effects_of(self, outcome: str) -> Sequence[QueryEffect]:
        return [effect for effect in super()._effects_of(outcome) if effect.is_candidate]

    @property
    def failure(self) -> Mapping[str, Any]:
        """Message and faults of an estimate that failed, masked."""
        mask, whole = mask_of(self.cluster), super().failure
        return whole if mask is None else {**mask.document(whole), "message": mask.text(str(whole["message"]))}

    @property
    def headline(self) -> tuple[str, str]:
        return str(self._masked.get("headline", "")), ""

    @cached_property
    def _masked(self) -> Mapping[str, object]:
        return masked_result(self.request) or {}

    @cached_property
    def told_reasons(self) -> list[tuple[str, str, str]]:
        """Drawing, tone and sentence of each reason, masked; the same sentence once."""
        rows: object = self._masked.get("reasons")
        found = [(*SEVERITIES[row["severity"]], row["message"]) for row in rows] if isinstance(rows, list) else []
        return list(dict.fromkeys(found))

    @property
    def own(self) -> EffectRow | None:
        """The effect on the query itself; None while there is no verdict."""
        return next(iter(self.effects), None)

    @cached_property
    def own_places(self) -> list[tuple[str, str]]:
        """The nodes that each operator of the query goes to."""
        placed = self.decision.placement_of(self.request.query.name) if self.decision else {}
        return [(operator, listed([part.node for part in parts], 9)) for operator, parts in placed.items()]

    @cached_property
    def others(self) -> OthersLoad | None:
        """Load of the queries of other teams now, in sum."""
        return load_of_others(self.cluster)
