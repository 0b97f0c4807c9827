"""A Prometheus on loopback that reads the metrics of the Flink cluster beside it, from Debian's package."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from launcher.engines.folders import EngineMissing, FetchFailed, engines_dir, filled_folder
from launcher.output import Terminal
from launcher.places import LOOPBACK, child_environment
from launcher.services import Service

__all__ = ["DEFAULT_PROMETHEUS_PORT", "fetch_prometheus", "find_prometheus", "prometheus_service"]

DEFAULT_PROMETHEUS_PORT = 9090
_SCRAPE_S = 5


def find_prometheus() -> Path | None:
    """The program: from PATH, else the one that was fetched, else None."""
    if on_path := shutil.which("prometheus"):
        return Path(on_path)
    path = engines_dir() / "prometheus" / "usr" / "bin" / "prometheus"
    return path if path.is_file() else None


def fetch_prometheus(console: Terminal) -> Path:
    """The program, taken out of Debian's package where none is here; nothing is installed and no service started.

    Raises
    ------
    FetchFailed
        This machine has no apt, or it does not find the package.
    """
    if (path := find_prometheus()) is not None:
        return path
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        raise FetchFailed("Prometheus is fetched with apt-get, which is not here; put a `prometheus` on PATH instead")
    with filled_folder(engines_dir() / "prometheus") as folder:
        console.begin("prometheus", "downloading the package prometheus")
        _run(["apt-get", "-o", "APT::Sandbox::User=root", "download", "prometheus"], folder)
        package = next(folder.glob("prometheus_*.deb"))
        _run(["dpkg", "-x", str(package), str(folder)], folder)
        package.unlink()
    path = engines_dir() / "prometheus" / "usr" / "bin" / "prometheus"
    if not path.is_file():
        raise FetchFailed(f"the package prometheus holds no {path.name} where Debian's does")
    return path


def _run(command: list[str], folder: Path) -> None:
    answer = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise FetchFailed(
            f"{' '.join(command)}: {answer.stderr.strip() or answer.returncode}\n"
            "  Without a network connection it cannot be fetched; else `apt-get update` may be what is missing"
        )


def prometheus_service(folder: Path, port: int, targets: Sequence[str]) -> Service:
    """The server, its data and its configuration in `folder`; `targets` are the addresses that it reads, host:port.

    Raises
    ------
    EngineMissing
        It was never fetched.
    """
    binary = find_prometheus()
    if binary is None:
        raise EngineMissing("Prometheus is not on this machine: ./sluice engines prometheus fetch gets it")
    folder.mkdir(parents=True, exist_ok=True)
    configuration = {
        "global": {"scrape_interval": f"{_SCRAPE_S}s", "scrape_timeout": f"{_SCRAPE_S}s"},
        "scrape_configs": [{"job_name": "flink", "static_configs": [{"targets": list(targets)}]}],
    }
    path = folder / "prometheus.yml"
    path.write_text(json.dumps(configuration, indent=1))  # JSON is YAML, too
    options = {
        "config.file": path,
        "storage.tsdb.path": folder / "data",
        "storage.tsdb.retention.time": "2d",
        "web.listen-address": f"{LOOPBACK}:{port}",
        "log.level": "warn",
    }
    return Service(
        name="prometheus",
        command=[str(binary), *(f"--{name}={value}" for name, value in options.items())],
        env=child_environment(),
        cwd=folder,
        healthy=lambda: _is_ready(port),
    )


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/-/ready", timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
