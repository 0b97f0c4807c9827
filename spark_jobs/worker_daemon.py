"""The process that Spark forks its Python workers from (``spark.python.daemon.module``).

It imports once what workers need, unless it is a fork itself of a process that has (`spark_jobs.worker_forks`).
"""

from __future__ import annotations

import sys

from pyspark.daemon import manager

from spark_jobs.worker_forks import import_workers

if __name__ == "__main__":
    if sys.argv[1] == "pyspark.worker":  # others only plan, and need less
        import_workers()
    manager()
