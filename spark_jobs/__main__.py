"""`python -m spark_jobs`: the stream processor, until it is stopped."""

from __future__ import annotations

import sys

from spark_jobs.driver import main

sys.exit(main())
