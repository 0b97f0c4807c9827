"""The worker in which a streaming data source plans its batches: as Spark's own, but it connects before it imports.

Spark gives up after ten seconds, and on a busy machine imports take as long.
"""

from __future__ import annotations

import os
import socket

if __name__ == "__main__":
    host = "::1" if os.environ.get("SPARK_PREFER_IPV6") == "True" else "127.0.0.1"
    with socket.create_connection((host, int(os.environ["PYTHON_WORKER_FACTORY_PORT"]))) as connection:
        from pyspark.serializers import write_int
        from pyspark.sql.streaming.python_streaming_source_runner import main
        from pyspark.util import _do_server_auth

        with connection.makefile("rwb", int(os.environ["SPARK_BUFFER_SIZE"])) as file:
            _do_server_auth(file, os.environ["PYTHON_WORKER_FACTORY_SECRET"])
            write_int(os.getpid(), file)
            file.flush()
            main(file, file)
