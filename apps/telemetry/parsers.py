"""Bodies that are bytes: frames, and Arrow IPC streams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any

from rest_framework.parsers import BaseParser

from agent.wire import MOST_POST_BYTES
from apps.core.errors import TooLarge

__all__ = ["ArrowParser", "FramesParser"]


class FramesParser(BaseParser):
    """`application/vnd.sluice.frames`: frames one after the other."""

    media_type = "application/vnd.sluice.frames"

    def parse(
        self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> bytes:
        data = stream.read(MOST_POST_BYTES + 1)
        if len(data) > MOST_POST_BYTES:
            raise TooLarge(f"The body is larger than {MOST_POST_BYTES / 2**20:g} MiB.")
        return data


class ArrowParser(FramesParser):
    """`application/vnd.apache.arrow.stream`: an Arrow IPC stream."""

    media_type = "application/vnd.apache.arrow.stream"
