"""Import hook that keeps pandas out of the process.

pyarrow imports pandas wherever it is installed, for conversions that an agent never uses: 45 MB and half a second.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["block_pandas"]


class _PandasBlock(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("an agent runs without pandas", name=fullname)
        return None


def block_pandas() -> None:
    """To be called before pyarrow is used."""
    sys.meta_path.insert(0, _PandasBlock())
