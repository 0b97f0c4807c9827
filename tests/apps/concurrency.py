"""Several clients at the same moment, each with a connection of its own."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from django.db import connections

from apps.core.errors import SluiceError
from apps.estimates.refresh import refresh_paused

__all__ = ["run_concurrently"]


def run_concurrently(calls: Sequence[Callable[[], Any]]) -> dict[str, int]:
    """Each call in a thread with a connection of its own, released together; what came of them, counted."""
    barrier, outcomes = threading.Barrier(len(calls)), []

    def client(call: Callable[[], Any]) -> None:
        try:
            with refresh_paused():
                barrier.wait()
                call()
            outcomes.append("done")
        except SluiceError as error:
            outcomes.append(error.code)
        except Exception as error:
            outcomes.append(repr(error))
        finally:
            connections.close_all()

    threads = [threading.Thread(target=client, args=[call]) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return dict(Counter(outcomes))
