"""Training by name: ``python -m training NAME [options]``.

A command is a module of this package with ``main(arguments) -> int``: 0 for success, 1 for a failure, 2 for wrong
usage.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from engine.compilation import show_compilation

__all__ = ["COMMANDS", "main"]

COMMANDS = {
    "corpus": "training.corpus",
    "costream": "training.costream",
    "evaluate": "training.evaluation",
    "executions": "training.executions",
}


def main(arguments: Sequence[str]) -> int:
    """Run the named command; returns its exit code, 2 for wrong usage."""
    names = ", ".join(COMMANDS)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(f"usage: sluice train NAME [options]\nnames: {names}")
        return 0 if arguments else 2
    if arguments[0] not in COMMANDS:
        print(f"{arguments[0]!r} is no command of training; allowed: {names}", file=sys.stderr)
        return 2
    code: int = importlib.import_module(COMMANDS[arguments[0]]).main(list(arguments[1:]))
    return code


if __name__ == "__main__":
    with show_compilation(sys.stderr):
        sys.exit(main(sys.argv[1:]))
