"""A driver for the cluster's test: frames and records of every agent, counted in each batch into a file of its own.

``python -m tests.spark.cluster_job MASTER REDIS_URL FOLDER`` runs until FOLDER holds a file named ``stop``.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from spark_jobs.input.entries import EntryReader
from spark_jobs.input.source import frames_of, spans_of
from spark_jobs.session import spark_session


def sizes_of(batches: Any) -> Any:
    import pyarrow as pa

    from agent.wire import table_of

    for batch in batches:
        records = [table_of(body.as_py()).num_rows for body in batch["body"]]
        yield pa.RecordBatch.from_arrays([batch["agent"], pa.array(records, pa.int64())], names=["agent", "records"])


def main(master: str, redis_url: str, folder: Path) -> None:
    more = {"spark.cores.max": "2", "spark.executor.memory": "512m", "spark.task.maxFailures": "8"}
    spark = spark_session("cluster test", folder=folder / "spark", master=master, more=more)

    def write(frame: Any, number: int) -> None:
        unpacked = frame.mapInArrow(sizes_of, "agent string, records long")
        rows = unpacked.groupBy("agent").agg({"*": "count", "records": "sum"}).collect()
        counted = {row["agent"]: [row["count(1)"], row["sum(records)"]] for row in rows}
        made = folder / "batches" / f"{number}.made"
        made.write_text(json.dumps(counted))
        made.replace(made.with_suffix(".json"))

    (folder / "batches").mkdir()
    frames = frames_of(spans_of(spark, redis_url, max_entries=40), EntryReader(redis_url).frames)
    writer = frames.writeStream.foreachBatch(write).option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.start()
    while not (folder / "stop").exists() and query.isActive:
        time.sleep(0.1)
    failure = query.exception()
    query.stop()
    spark.stop()
    if failure is not None:
        raise failure


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
