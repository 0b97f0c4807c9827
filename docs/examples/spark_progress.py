"""Progress of a Spark session's streaming queries at an address that Sluice can ask, and the driver's REST API there.

from spark_progress import serve_progress

serve_progress(spark, port=4050)   # before the first query starts
"""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQueryListener

KEPT = 1000  # micro-batches of all queries, the newest


class ProgressKeeper(StreamingQueryListener):
    """Keeps StreamingQueryProgress as lines of JSON."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=KEPT)

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        self.lines.append(" ".join(event.progress.json.split("\n")))

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        pass


def serve_progress(spark: SparkSession, port: int = 4050, host: str = "127.0.0.1") -> ThreadingHTTPServer:
    """Serve `/progress` and the REST API of the driver's web UI, which has to be on; nobody is asked for a password."""
    keeper, driver = ProgressKeeper(), spark.sparkContext.uiWebUrl
    spark.streams.addListener(keeper)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/progress":
                self.answer(200, "application/x-ndjson", "\n".join(keeper.lines).encode())
            elif driver and self.path.startswith("/api/v1/"):
                self.pass_on(f"{driver}{self.path}")
            else:
                self.answer(404, "text/plain", b"There are /progress and /api/v1 here.")

        def pass_on(self, url: str) -> None:
            try:
                with urllib.request.urlopen(url, timeout=10) as reply:
                    self.answer(reply.status, reply.headers.get_content_type(), reply.read())
            except urllib.error.HTTPError as error:
                self.answer(error.code, error.headers.get_content_type(), error.read())

        def answer(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer((host, port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
