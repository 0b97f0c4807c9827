"""Undo of changes to rollout policies."""

from __future__ import annotations

from apps.ledger.undo import UndoWay, register_undo
from apps.rollouts.models import RolloutPolicy
from apps.rollouts.services import policy_update

__all__: list[str] = []

register_undo(RolloutPolicy, UndoWay(lambda row, fields: policy_update(cluster=row.cluster, **fields)))
