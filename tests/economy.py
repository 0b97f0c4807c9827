"""Pytest plug-in: work that a run of thirteen thousand tests spares itself.

They and the modules that they import are half a million objects, none of which goes away before the end: the collector
of garbage leaves them alone, and comes less often. Hypothesis would parse every module of the repository, in each
process of a run, for constants to draw now and then: a third of what it takes to collect the tests.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from typing import Any

import pytest

_NEW_OBJECTS = 20_000  # a round for so many; Python's own 700 is a round in each request of a page


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Iterator[Any]:
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(_NEW_OBJECTS)
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems() -> None:
    """Before Hypothesis reads the modules, which it does when the tests are collected; it has no option for that."""
    if providers := sys.modules.get("hypothesis.internal.conjecture.providers"):
        providers._get_local_constants = lambda: providers._local_constants
