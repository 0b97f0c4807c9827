"""requirements.lock is made of requirements.txt, with a hash of each file."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCK = (ROOT / "requirements.lock").read_text()
PIN = re.compile(r"^([\w.-]+)(?:\[[\w,-]+\])?==([\w.+!-]+)", re.MULTILINE)
RENEW = "renew requirements.lock: the command stands in CONTRIBUTING.md"


def pins(text: str) -> dict[str, str]:
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in PIN.findall(text)}


def test_lock_has_every_requirement_at_its_version() -> None:
    locked, asked = pins(LOCK), pins((ROOT / "requirements.txt").read_text())
    assert {name: version for name, version in asked.items() if locked.get(name) != version} == {}, RENEW


def test_every_package_has_a_hash_and_no_address() -> None:
    entries = re.split(r"\n(?=\S)", LOCK.strip())
    packages = [entry for entry in entries if not entry.startswith("#")]
    assert len(packages) == len(PIN.findall(LOCK)) > 100
    assert [entry.partition(" ")[0] for entry in packages if "--hash=sha256:" not in entry] == []
    assert "://" not in LOCK, RENEW
