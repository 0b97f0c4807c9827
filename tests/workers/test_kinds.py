"""Kinds of jobs as a worker's process has them, which loads neither pages nor addresses."""

from __future__ import annotations

import subprocess
import sys

_CODE = """
import django
django.setup()
from apps.jobs.models import JobKind
from workers.jobs import JOB_WORK
print(sorted(set(JobKind.values) - set(map(str, JOB_WORK))))
"""


def test_a_worker_has_the_work_of_every_kind_of_job() -> None:
    said = subprocess.run([sys.executable, "-c", _CODE], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines()[-1] == "[]"
