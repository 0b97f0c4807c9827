"""`python -m spark_jobs.history JOB ...`, or `spark-submit spark_jobs/history/__main__.py JOB ...`."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file, whose own folder then stands where that of the packages belongs
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from spark_jobs.history.command import main

sys.exit(main(sys.argv[1:]))
