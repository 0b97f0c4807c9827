"""The key that an installation makes for itself."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from console.secret_key import kept_secrets


def test_the_secret_key_is_created_once_and_readable_by_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        (key,) = kept_secrets(tmp_path / "secret_key")
    finally:
        os.umask(before)
    assert len(key) > 50 and kept_secrets(tmp_path / "secret_key") == [key]
    assert stat.S_IMODE((tmp_path / "secret_key").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["secret_key"]


def test_processes_that_start_together_share_one_secret_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        keys = {key for (key,) in pool.map(kept_secrets, [tmp_path / "secret_key"] * 40)}
    assert len(keys) == 1 and "" not in keys
