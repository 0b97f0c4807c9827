"""``admit`` of the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.admission.decision import decide
from engine.admission.policy import read_policy
from engine.deployment import Deployment
from engine.errors import DocumentError, Fault
from engine.wording import show

__all__ = ["command"]


def command(document: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Decide on ``candidate`` of a deployment document that holds what runs; ``changes`` are applied first.

    Options are `policy` (an object, or its JSON text) and `mace_every`.
    """
    if not isinstance(document, Mapping):
        raise DocumentError([Fault("", f"the document is {show(document)}; allowed: an object")])
    if "candidate" not in document:
        raise DocumentError([Fault("candidate", "candidate is missing; admit needs the query that wants to join")])
    running = {name: value for name, value in document.items() if name not in ("candidate", "changes")}
    policy = read_policy(options.get("policy") or {})
    decision = decide(
        Deployment.parse(running),
        document["candidate"],
        policy=policy,
        changes=document.get("changes", ()),
        mace_every=options.get("mace_every", 1),
    )
    return decision.to_dict()
