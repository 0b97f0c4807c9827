"""SQL script of one query: functions, tables of events, the query, and a sink that throws its rows away."""

from __future__ import annotations

from pathlib import Path

from lab.benchmarks.nexmark.events import EventFeed, event_tables
from lab.benchmarks.nexmark.queries import NexmarkQuery

__all__ = ["FUNCTIONS", "query_script"]

FUNCTIONS = Path(__file__).with_name("WorkFunctions.java")
_SIDE_ROWS = 1000


def query_script(
    query: NexmarkQuery, feed: EventFeed, *, jar: Path, latencies: Path, parallelism: int = 1, only_plan: bool = False
) -> str:
    """The statements that start a query, named as it is, or that only plan it.

    The moments of its rows go to files in the folder `latencies`.
    """
    work = f", {feed.work}(worked, {query.result_us}) AS work_done" if query.result_us else ""
    start = "EXPLAIN" if only_plan else "CREATE TABLE sink WITH ('connector' = 'blackhole') AS"
    functions = {"park": "Park", "compute": "Compute", "observe": "Observe"}
    declared = "".join(
        f"CREATE TEMPORARY SYSTEM FUNCTION {name} AS 'WorkFunctions${kind}' USING JAR 'file://{jar}';\n"
        for name, kind in functions.items()
    )
    return (
        f"SET 'pipeline.name' = '{query.name}';\nSET 'table.local-time-zone' = 'UTC';\n"
        f"SET 'parallelism.default' = '{parallelism}';\n{declared}{event_tables(feed)}"
        "CREATE TEMPORARY TABLE side (number BIGINT, word STRING) WITH ('connector' = 'datagen',"
        f" 'fields.number.kind' = 'sequence', 'fields.number.start' = '0', 'fields.number.end' = '{_SIDE_ROWS - 1}',"
        " 'fields.word.length' = '8', 'rows-per-second' = '1000');\n"
        f"CREATE TEMPORARY VIEW result_rows AS {query.select};\n"
        f"{start} SELECT *{work}, observe(moment, '{latencies}') AS seen FROM result_rows;\n"
    )
