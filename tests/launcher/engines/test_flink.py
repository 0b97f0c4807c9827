"""Configuration of the Flink that is started: sizes that belong together, and what is switched on."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.engines.flink import FlinkCluster, FlinkOptions
from launcher.engines.flink_package import FLINK_VERSION
from launcher.engines.folders import EngineMissing


def _taskmanager(monkeypatch: pytest.MonkeyPatch, folder: Path, **settings: str) -> list[str]:
    """Command of the TaskManager of a cluster with these settings of its memory."""
    monkeypatch.setenv("SLUICE_ENGINES_DIR", str(folder / "engines"))
    (folder / "engines" / f"flink-{FLINK_VERSION}").mkdir(parents=True)
    memory = {f"taskmanager.memory.{name.replace('_', '.')}": size for name, size in settings.items()}
    cluster = FlinkCluster(folder, FlinkOptions(settings=memory))
    (service,) = (service for service in cluster._services() if service.name == "flink-taskmanager-1")
    cluster._configure()
    return list(service.command)


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
