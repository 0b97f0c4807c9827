"""The tabs of the sources: agents, how they schedule, their configurations, and how those are rolled out."""

from __future__ import annotations

from django.urls import reverse

__all__ = ["source_tabs"]

_TABS = {
    "agents": ("Agents", "pages:sources"),
    "schedule": ("Schedule", "pages:schedule"),
    "configs": ("Configs", "pages:configs"),
    "policy": ("Rollout policy", "pages:rollout-policy"),
}


def source_tabs(slug: str, current: str) -> list[tuple[str, str, bool]]:
    """(label, address, is it this page)."""
    return [(label, reverse(name, args=[slug]), tab == current) for tab, (label, name) in _TABS.items()]
