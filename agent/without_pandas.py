"""Keeps pandas out of the process.

pyarrow takes up pandas wherever it finds it, for conversions that an agent never asks for: 45 MB and half a second.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["keep_away"]


class _NotHere(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("an agent runs without pandas", name=fullname)
        return None


def keep_away() -> None:
    """To be called before pyarrow is used."""
    sys.meta_path.insert(0, _NotHere())
