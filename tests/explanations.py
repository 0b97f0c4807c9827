"""Pytest plug-in: a test that fails is explained, or at least named, and the run goes on.

Explaining reads source. So does every thread that writes a traceback into a log: it looks for the part of a line that
failed. Before Python 3.11.8 and 3.12.2 the depth of the tree under construction is counted in one place for all threads
(https://github.com/python/cpython/issues/106905); where the collector of garbage lets another thread go on meanwhile,
both counts are wrong, and `SystemError` comes out of pytest itself.
"""

from __future__ import annotations

import ast
import functools
import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

_HAS_ONE_COUNT = sys.version_info < (3, 11, 8) or (3, 12) <= sys.version_info < (3, 12, 2)


def parse_alone(parse: Callable[..., ast.AST]) -> Callable[..., ast.AST]:
    """`parse`, by one thread at a time and without the collector, which would let others run in the middle."""
    lock = threading.RLock()
    os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)

    @functools.wraps(parse)
    def alone(*arguments: Any, **options: Any) -> ast.AST:
        with lock:
            is_enabled = gc.isenabled()
            gc.disable()
            try:
                return parse(*arguments, **options)
            finally:
                if is_enabled:
                    gc.enable()

    return alone


if _HAS_ONE_COUNT:
    ast.parse = parse_alone(ast.parse)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[Any]:
    """A failure that cannot be explained is a failure still, not the end of the run."""
    try:
        return (yield)
    except Exception as fault:
        error = call.excinfo.value if call.excinfo else None
        return pytest.TestReport(
            nodeid=item.nodeid,
            location=item.location,
            keywords=dict.fromkeys(item.keywords, 1),
            outcome="failed",
            longrepr=f"{error!r}\n\nIt could not be explained: {fault!r}",
            when=call.when,
            duration=call.duration,
            start=call.start,
            stop=call.stop,
        )
