"""Commands of the launcher that answer by themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher import cli


def test_installation_without_the_laboratory_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "ROOT", tmp_path)
    monkeypatch.setattr(cli, "_become", lambda *command: pytest.fail("started"))
    assert cli.main(["lab", "mace"]) == 1
    assert "comes without lab/" in capsys.readouterr().err


def test_laboratory_gets_its_arguments_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[tuple[str, ...]] = []
    monkeypatch.setattr(cli, "_become", lambda *command: called.append(command) or 0)
    assert cli.main(["lab", "mace", "--quick", ""]) == 0
    assert called == [("-m", "lab", "mace", "--quick", "")]
