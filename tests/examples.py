"""Examples of docstrings: the modules that have any, and their runs."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

__all__ = ["modules_with_examples", "run_examples"]

_ROOT = Path(__file__).resolve().parent.parent
_FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def modules_with_examples(*folders: str) -> list[str]:
    """Names of the modules in these folders of the repository whose docstrings have examples, in order."""
    files = [path for folder in folders for path in (_ROOT / folder).rglob("*.py")]
    written = sorted(path.relative_to(_ROOT) for path in files if ">>> " in path.read_text())
    return [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in written]


def run_examples(name: str) -> None:
    """Fail unless all examples of a module do what they say."""
    result = doctest.testmod(importlib.import_module(name), optionflags=_FLAGS)
    assert result.attempted > 0
    assert result.failed == 0
