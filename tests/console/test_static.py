"""Which static files an installation serves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parent.parent.parent
ASK = """
import gzip, django
django.setup()
from django.conf import settings
from django.test import Client
answer = Client().get("/static/css/ui.css", headers={"Accept-Encoding": "gzip"})
print(answer.headers.get("Content-Encoding"), settings.WHITENOISE_USE_FINDERS)
"""


def _run(tmp_path: Path, *command: str) -> str:
    env = os.environ | {"SLUICE_VAR_DIR": str(tmp_path), "DJANGO_SETTINGS_MODULE": "console.settings"}
    process = subprocess.run([sys.executable, *command], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return process.stdout.strip()


@pytest.mark.night
def test_collected_static_files_are_served_compressed(tmp_path: Path) -> None:
    assert _run(tmp_path, "-c", ASK) == "None True"
    _run(tmp_path, "manage.py", "collectstatic", "--no-input", "--verbosity=0")
    assert _run(tmp_path, "-c", ASK) == "gzip False"
