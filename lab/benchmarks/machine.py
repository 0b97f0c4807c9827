"""The machine that a benchmark runs on."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import numpy as np

__all__ = ["machine"]


def machine() -> str:
    """Processor, cores, Python and numpy in one line."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.machine()
    return f"{name}, {os.cpu_count()} cores; Python {platform.python_version()}, numpy {np.__version__}"
