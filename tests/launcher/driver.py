"""Runs the real runner over three fakes until a signal comes: `driver.py JOURNAL LOGDIR [options of the last fake]`."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from launcher.output import Terminal
from launcher.runner import ProcessRunner, StartFailed, Stopped
from tests.launcher.fake_services import fake


def main() -> int:
    journal, logs = Path(sys.argv[1]), Path(sys.argv[2])
    for number in (signal.SIGINT, signal.SIGHUP):  # ignored where the tests run under nohup or in the background
        signal.signal(number, signal.SIG_DFL)
    runner = ProcessRunner(Terminal(), logs)
    runner.catch_signals()
    try:
        for name in ("first", "second"):
            runner.start(fake(name, journal))
        runner.start(fake("third", journal, *sys.argv[3:]))
        print("all are ready", flush=True)
        runner.watch()
    except Stopped:
        pass
    except StartFailed as failure:
        print(failure)
        return 1
    finally:
        runner.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
