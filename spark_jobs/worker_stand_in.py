"""The process that Spark started, in the place of a fork of `spark_jobs.worker_forks`; it imports next to nothing.

It hands on what it was given, waits for the fork's end, and ends with its code. Where nobody forks it becomes the
interpreter that was asked for.
"""

import os
import socket
import sys


def main(interpreter: str, arguments: list[str]) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(os.environ["SLUICE_WORKER_FORKS"])
            import json

            request = {"arguments": arguments, "environment": dict(os.environ), "folder": os.getcwd()}  # noqa: PTH109 - pathlib takes long to import
            socket.send_fds(connection, [json.dumps(request).encode() + b"\n"], [0, 1, 2])
        except OSError:
            os.execv(interpreter, [interpreter, *arguments])
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1):
            os.dup2(nothing, number)  # whoever reads them learns of the fork's end
        code = connection.recv(16)
    os._exit(int(code) if code else 1)


main(sys.argv[1], sys.argv[2:])
