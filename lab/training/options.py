"""Options of the training commands, and their faults on standard error."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from engine.errors import EngineError

__all__ = ["folder_option", "print_faults", "whole_option"]


def whole_option(text: str, name: str, least: int, most: int, faults: list[str]) -> int:
    """A whole number within bounds; `least` after adding to `faults`.

    Examples
    --------
    >>> faults = []
    >>> whole_option("12", "--epochs", 1, 100, faults), whole_option("1e3", "--epochs", 1, 100, faults), faults
    (12, 1, ["--epochs is '1e3'; allowed: a whole number from 1 to 100"])
    """
    if text.isascii() and text.isdigit() and len(text) <= 20 and least <= int(text) <= most:
        return int(text)
    faults.append(f"{name} is {text!r}; allowed: a whole number from {least} to {most}")
    return least


def folder_option(text: str, name: str, faults: list[str]) -> Path:
    """A folder to write to, which need not exist yet; what keeps it from being made or written is added to `faults`."""
    folder = Path(text)
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not nearest.is_dir():
        faults.append(f"--{name} is {text!r}, but {nearest} is a file; allowed: a folder")
    elif not os.access(nearest, os.W_OK | os.X_OK):
        faults.append(f"--{name} is {text!r}, but {nearest} cannot be written; allowed: a folder that can")
    return folder


def print_faults(command: str, error: EngineError) -> None:
    """An error and all of its faults on standard error."""
    print(f"sluice lab {command}: {error.message}", file=sys.stderr)
    for fault in error.faults:
        print(f"  {fault}", file=sys.stderr)
