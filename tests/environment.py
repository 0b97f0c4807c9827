"""Pytest plug-in that settles the environment before Django reads its settings.

Each process of a test run (one per xdist worker) gets a var directory, a SQLite file and a Redis-protocol server of its
own, so nothing a test writes is seen by another process or by an installation in the same folder.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

from launcher.engines.folders import engines_dir
from launcher.places import free_port

RUN_DIR_VARIABLE = "SLUICE_TEST_RUN_DIR"
KEPT = ("SLUICE_TEST_", "SLUICE_CASES", "SLUICE_DATA", "SLUICE_REQUIRE_ALL")


def _run_dir() -> Path:
    """The folder of this run; the controlling process makes it and hands it on by the environment."""
    given = os.environ.get(RUN_DIR_VARIABLE)
    if given and "PYTEST_XDIST_WORKER" in os.environ:
        return Path(given)
    fast = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    made = tempfile.mkdtemp(prefix="sluice-test-", dir=fast)
    os.environ[RUN_DIR_VARIABLE] = made
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return Path(made)


def _redis_url() -> str:
    """A server given from outside, one database per worker; else a free port, where one starts when first asked for."""
    given = os.environ.get("SLUICE_TEST_REDIS_URL")
    if not given:
        return f"redis://127.0.0.1:{free_port()}/0"
    number = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    return f"{given.rsplit('/', 1)[0] if given.count('/') > 2 else given}/{number}"


def _settle(run_dir: Path) -> Path:
    engines = engines_dir()  # of the installation, not of the tests: what was fetched stays
    for name in [name for name in os.environ if name.startswith("SLUICE_") and not name.startswith(KEPT)]:
        del os.environ[name]
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    var_dir = run_dir / worker
    var_dir.mkdir(exist_ok=True)
    os.environ |= {
        "SLUICE_VAR_DIR": str(var_dir),
        "SLUICE_ENGINES_DIR": str(engines),
        "SLUICE_SECRET_KEY": "a-key-for-tests-only-" + "x" * 40,
        "DATABASE_URL": os.environ.get("SLUICE_TEST_DATABASE_URL", ""),
        "REDIS_URL": _redis_url(),
        "SLUICE_LOG_LEVEL": "WARNING",
        "OMP_NUM_THREADS": "1",
        "NUMBA_NUM_THREADS": "1",
    }
    return var_dir


#: The folder of this run, which its processes share.
RUN_DIR = _run_dir()
#: The folder of this process.
VAR_DIR = _settle(RUN_DIR)
