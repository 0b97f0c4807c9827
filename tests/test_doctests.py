"""Examples in docstrings do what they say."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def _modules() -> list[str]:
    files = [path for folder in ("engine", "apps", "agent", "spark_jobs") for path in (ROOT / folder).rglob("*.py")]
    written = sorted(path.relative_to(ROOT) for path in files if ">>> " in path.read_text())
    return [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in written]


@pytest.mark.parametrize("name", _modules())
def test_examples_in_docstrings_run(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name), optionflags=FLAGS)
    assert result.attempted > 0
    assert result.failed == 0
