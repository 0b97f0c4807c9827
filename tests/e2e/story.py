"""The newcomer's story in numbers: four nodes carry the first query, but not the second one beside it."""

from __future__ import annotations

import json
from typing import Any

from tests.e2e.installation import ROOT

__all__ = ["CAPACITY_CPS", "FIRST", "NODES", "SECOND", "example"]

NODES = ("n1", "n2", "n3", "n4")
CAPACITY_CPS = 2.5e9  #: of the single core of each
FIRST = ("visitor-shares", 2.0)  #: name, and seconds that its worst case may be
SECOND = ("live-heatmap", 60.0)


def example(name: str) -> list[dict[str, Any]]:
    """The operators of an example of the documentation."""
    return json.loads((ROOT / "docs" / "examples" / f"{name}.json").read_text())["operators"]
