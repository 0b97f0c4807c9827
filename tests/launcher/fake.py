"""A small process for the runner's tests: writes what happens to it into a journal that all of them share."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("journal")
    parser.add_argument("--ready-after", type=float, default=0.0)
    parser.add_argument("--busy-until", type=Path, help="compute until this file is there, then be ready")
    parser.add_argument("--still-until", type=Path, help="do nothing until this file is there, then be ready")
    parser.add_argument("--crash-when", type=Path, help="crash once this file is there")
    parser.add_argument("--with-child", action="store_true", help="have a child that ignores every polite signal")
    parser.add_argument("--deaf", action="store_true", help="ignore SIGTERM")
    options = parser.parse_args()

    def note(event: str) -> None:
        with open(options.journal, "a") as journal:  # noqa: PTH123 - one short append, whole by itself
            journal.write(f"{options.name} {event} {os.getpid()}\n")

    def stop(number: int, frame: object) -> None:
        if not options.deaf:
            note("stopped")
            sys.exit(0)

    signal.signal(signal.SIGTERM, stop)
    note("started")
    if options.with_child:
        deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
        child = subprocess.Popen([sys.executable, "-c", deaf])
        with open(options.journal, "a") as journal:  # noqa: PTH123
            journal.write(f"{options.name} child {child.pid}\n")
    time.sleep(options.ready_after)
    while options.busy_until is not None and not options.busy_until.exists():
        sum(range(100_000))
    while options.still_until is not None and not options.still_until.exists():
        time.sleep(1)
    note("ready")
    print(f"{options.name} is ready", flush=True)
    while options.crash_when is None or not options.crash_when.exists():
        time.sleep(0.05)
    print("this is why it crashed", flush=True)
    sys.exit(3)


if __name__ == "__main__":
    main()
