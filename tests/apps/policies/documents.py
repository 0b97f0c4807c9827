"""Policies for tests."""

from __future__ import annotations

from typing import Any

from apps.fleet.models import Cluster
from apps.policies.services import AppliedPolicy, policy_apply

__all__ = ["set_policy"]


def set_policy(cluster: Cluster, **document: Any) -> AppliedPolicy:
    """Put a policy into force; what is not given is as by default."""
    return policy_apply(cluster=cluster, document=document, user=None)
