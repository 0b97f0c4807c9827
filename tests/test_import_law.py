"""The import law of pyproject.toml holds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parent.parent
LINT = "from importlinter.cli import lint_imports_command; lint_imports_command()"


def test_no_import_goes_against_the_law() -> None:
    # in a process of its own: import-linter caches what it has imported
    found = subprocess.run([sys.executable, "-c", LINT], cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


def test_only_workers_load_the_compiler() -> None:
    """numba takes a second and 50 MB; pages and REST read documents and results, they compute nothing."""
    asked = "import sys, console.asgi, console.urls; print(sorted({'numba', 'scipy', 'pandas'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", asked], cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.stdout == "[]\n", found.stderr
