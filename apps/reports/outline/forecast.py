"""The section of the forecast of shortage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from apps.reports.blocks import Block, Heading, Text

__all__ = ["forecast_blocks"]


def forecast_blocks(facts: dict[str, Any]) -> Iterator[Block]:
    found = facts["forecast"]
    yield Heading("forecast", "Forecast of shortage", f"The next {found['horizon_days']} days")
    if not found["available"]:
        yield Text(found["text"])
        return
