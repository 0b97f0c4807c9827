"""Pytest plug-in: the collector of garbage leaves alone what lives as long as the run, and comes less often.

Ten thousand tests and the modules that they import are half a million objects, none of which goes away before the end.
"""

from __future__ import annotations

import gc
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
