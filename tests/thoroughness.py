"""Examples of the long tests: a share of them in the usual run, all of them beside the laboratory's tests."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

import pytest

__all__ = ["examples", "share_of"]

T = TypeVar("T")

_THOROUGH = "SLUICE_THOROUGH"
_USUAL_SHARE = 10


def pytest_configure(config: pytest.Config) -> None:
    """Before the tests are imported, whose decorators ask."""
    if config.getoption("--lab") or config.getoption("--with-lab"):
        os.environ[_THOROUGH] = "1"


def examples(count: int) -> int:
    """Number of examples of a property: `count` in a thorough run, a tenth of it in others."""
    return count if os.environ.get(_THOROUGH) == "1" else max(1, count // _USUAL_SHARE)


def share_of(cases: Sequence[T], every: int) -> Sequence[T]:
    """All cases in a thorough run, one of `every` in others."""
    return cases if os.environ.get(_THOROUGH) == "1" else cases[::every]
