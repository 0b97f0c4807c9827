"""The section of recommended purchases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from apps.reports.blocks import Block, Heading, Text

__all__ = ["purchase_blocks"]


def purchase_blocks(facts: dict[str, Any]) -> Iterator[Block]:
    found = facts["purchases"]
    yield Heading("purchases", "Recommended purchases", f"At +{found['growth'] * 100:g}% load, any one node lost")
    if not found["available"]:
        yield Text(found["text"])
        return
