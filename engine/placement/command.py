"""``place`` of the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.deployment import Deployment
from engine.placement.proposal import place

__all__ = ["command"]


def command(document: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Propose a placement for a deployment document; operators may lack a node.

    Options are those of `place`; with `rounds` and without `budget_s` time plays no part.
    """
    given = dict(options)
    if "rounds" in given:
        given.setdefault("budget_s", None)
    return place(Deployment.parse(document, placed=False), **given).to_dict()
