"""The process that Spark forks its Python workers from (``spark.python.daemon.module``).

It imports once what workers need. What is there before the first fork is frozen: Spark collects garbage after every
task, which otherwise looks through all modules and takes longer than a small task does.
"""

from __future__ import annotations

import gc
import sys

from pyspark.daemon import manager

if __name__ == "__main__":
    if sys.argv[1] == "pyspark.worker":  # others only plan, and need less
        import pandas  # noqa: F401 - Spark's half of a stateful worker needs it
        import pyspark.worker  # noqa: F401

        import spark_jobs.stream  # noqa: F401
    gc.freeze()
    manager()
