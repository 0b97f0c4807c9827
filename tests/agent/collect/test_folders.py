"""Folders of the host's owner: collectors read nothing else, whoever edits sources in the console."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from agent.collect import Collector, rotation
from agent.settings import AgentSettings, OutsideFolders, ReadableFolders
from tests.agent.collect.collectors import collector_of

COLUMNS = {"ts": "timestamp", "line": "string"}
NOW_US = 1_700_000_000_000_000


@pytest.fixture(autouse=True)
def _quick_scans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "_SCAN_S", 0.0)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A folder that may be read, beside a file that may not."""
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "a.log").write_text("allowed\n")
    (tmp_path / "secret").write_text("secret\n")
    return folder


def collector(kind: str, path: Path, readable: ReadableFolders) -> Collector:
    more: dict[str, Any] = {"begin": "start"} if kind == "log_file" else {"rate_per_s": 1000.0}
    return collector_of(kind, {"path": str(path), **more}, COLUMNS, readable=readable, name="s")


def read(source: Collector) -> list[str]:
    given = [*source.poll(NOW_US, 100), *source.poll(NOW_US + 10_000_000, 100)]
    return [line for batch in given for line in batch.column("line").to_pylist()]


@pytest.mark.parametrize(("kind", "state"), [("log_file", "not allowed"), ("replay", "failed")])
def test_file_outside_the_folders_is_not_read_and_is_a_fault(logs: Path, kind: str, state: str) -> None:
    readable = ReadableFolders([logs])
    assert read(collector(kind, logs / "a.log", readable)) == ["allowed"]
    (logs / "link.log").symlink_to(logs.parent / "secret")
    for path in (logs.parent / "secret", logs / "../secret", logs / "link.log", Path("/etc/shadow")):
        source = collector(kind, path, readable)
        assert read(source) == []
        report = source.report()
        assert report["state"] == state
        assert report["faults"] == [f"{path} is outside of what agent.toml allows: read_from is {logs}"]


def test_file_outside_looks_like_a_missing_one(logs: Path) -> None:
    source = collector("log_file", logs.parent / "no such file", ReadableFolders([logs]))
    assert read(source) == []
    assert source.report()["state"] == "not allowed"


def test_pattern_reads_files_inside_and_names_no_others(logs: Path) -> None:
    (logs / "b.log").symlink_to(logs.parent / "secret")
    source = collector("log_file", logs / "*.log", ReadableFolders([logs]))
    assert read(source) == ["allowed"]
    report = source.report()
    assert report["state"] == "collecting"
    assert report["faults"] == [f"a file of {logs}/*.log is outside of what agent.toml allows: read_from is {logs}"]
    (logs / "b.log").unlink()
    assert read(source) == []
    assert source.report()["faults"] == []
    everywhere = collector("log_file", logs.parent / "*", ReadableFolders([logs]))
    assert read(everywhere) == []
    assert "secret" not in str(everywhere.report())


def test_a_rotation_that_leads_outside_is_not_read(logs: Path) -> None:
    path = logs / "a.log"
    source = collector("log_file", path, ReadableFolders([logs]))
    assert read(source) == ["allowed"]
    path.write_text("")  # cut: what was unread is looked for beside it
    (logs / "a.log.1").symlink_to(logs.parent / "secret")
    assert read(source) == []


def test_a_position_does_not_open_what_is_no_longer_allowed(logs: Path) -> None:
    before = collector("log_file", logs / "a.log", ReadableFolders([logs]))
    assert read(before) == ["allowed"]
    (logs / "a.log").write_text("allowed\nmore\n")
    after = collector("log_file", logs / "a.log", ReadableFolders([]))
    after.seek(before.position())
    assert read(after) == []
    assert "read_from is nothing" in after.report()["faults"][-1]


def test_a_folder_may_itself_be_a_link(logs: Path) -> None:
    named = logs.parent / "named"
    named.symlink_to(logs)
    for folder, path in ((named, logs / "a.log"), (logs, named / "a.log")):
        assert read(collector("log_file", path, ReadableFolders([folder]))) == ["allowed"]


def test_the_agents_own_files_are_never_read(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text('url = "http://127.0.0.1:1"\nread_from = ["."]\nstate_dir = "state"\ntoken_file = "token"\n')
    (tmp_path / "state").mkdir()
    readable = AgentSettings.load(file).readable
    (tmp_path / "link").symlink_to(tmp_path / "state" / "identity.json")
    for own in (file, tmp_path / "token", tmp_path / "state" / "identity.json", tmp_path / "link"):
        own.touch()
        with pytest.raises(OutsideFolders, match="is the agent's own"):
            readable.open(own)
    (tmp_path / "app.log").touch()
    os.close(readable.open(tmp_path / "app.log"))


def test_default_folder_is_var_log_only(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text('url = "http://127.0.0.1:1"\n')
    readable = AgentSettings.load(file).readable
    readable.check("/var/log/syslog")
    for path in ("/var/logs/x", "/var/log/../x", "/etc/passwd", tmp_path / "a.log"):
        with pytest.raises(OutsideFolders):
            readable.check(path)
