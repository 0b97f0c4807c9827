"""Configuration of the Flink that is started: sizes that belong together, and what is switched on."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.engines.flink import FlinkCluster, FlinkHost, FlinkOptions
from launcher.engines.flink_package import FLINK_VERSION
from launcher.engines.folders import EngineMissing


def _taskmanagers(monkeypatch: pytest.MonkeyPatch, folder: Path, options: FlinkOptions) -> list[list[str]]:
    """Commands of the TaskManagers of a cluster, whose configuration is written."""
    monkeypatch.setenv("SLUICE_ENGINES_DIR", str(folder / "engines"))
    (folder / "engines" / f"flink-{FLINK_VERSION}").mkdir(parents=True)
    cluster = FlinkCluster(folder, options)
    services = [service for service in cluster._services() if service.name.startswith("flink-taskmanager-")]
    cluster._configure()
    return [list(service.command) for service in services]


def _taskmanager(monkeypatch: pytest.MonkeyPatch, folder: Path, **settings: str) -> list[str]:
    """Command of the TaskManager of a cluster with these settings of its memory."""
    memory = {f"taskmanager.memory.{name.replace('_', '.')}": size for name, size in settings.items()}
    (command,) = _taskmanagers(monkeypatch, folder, FlinkOptions(settings=memory))
    return command


def test_limits_of_java_follow_the_sizes_that_flink_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "-Xmx352m" in _taskmanager(monkeypatch, tmp_path)
    larger = _taskmanager(monkeypatch, tmp_path / "larger", task_heap_size="1g", network_min="96m", network_max="96m")
    assert "-Xmx1120m" in larger and "-XX:MaxDirectMemorySize=208m" in larger


def test_size_that_is_none_is_refused_with_what_is_allowed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(EngineMissing, match="'plenty' is no size of memory here; allowed is a number with m or g"):
        _taskmanager(monkeypatch, tmp_path, task_heap_size="plenty")


def test_flame_graphs_are_switched_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _taskmanager(monkeypatch, tmp_path)
    assert '"rest.flamegraph.enabled": "true"' in (tmp_path / "conf" / "config.yaml").read_text()


def test_each_host_has_a_taskmanager_with_its_address_and_cores(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hosts = (FlinkHost("198.18.0.11", ("on", "host1"), 0.5), FlinkHost("198.18.0.12", ("on", "host2")))
    first, second = _taskmanagers(monkeypatch, tmp_path, FlinkOptions(slots=2, address="198.18.0.1", hosts=hosts))
    assert first[:2] == ["on", "host1"] and second[:2] == ["on", "host2"]
    assert {"taskmanager.host=198.18.0.11", "taskmanager.cpu.cores=0.5"} <= {word.strip() for word in first}
    assert {"taskmanager.host=198.18.0.12", "taskmanager.cpu.cores=2.0"} <= {word.strip() for word in second}
    config = (tmp_path / "conf" / "config.yaml").read_text()
    assert '"jobmanager.rpc.address": "198.18.0.1"' in config and '"rest.bind-address": "198.18.0.1"' in config
