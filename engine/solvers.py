"""Solvers: functions of the engine that may compute for long, and say so when they begin, to whoever listens.

They say it to the audit hooks of Python (PEP 578), as the interpreter does of connections and processes that begin. So
whoever runs the engine can see to it that nothing waits for it that need not, as locks of a database do; without a hook
it costs nothing.
"""

from __future__ import annotations

import sys

__all__ = ["SOLVING", "solving"]

SOLVING = "sluice.engine.solver"  #: the event, told with the name of the function that begins


def solving() -> None:
    """Tell audit hooks that the calling function begins; what a hook raises keeps it from beginning."""
    sys.audit(SOLVING, sys._getframe(1).f_code.co_qualname)
