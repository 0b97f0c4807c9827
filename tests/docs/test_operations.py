"""docs/operations.md and the files of production say what the code does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from console.env import Env, EnvError, variable_of

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs" / "operations.md").read_text()


def _section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def _compose() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]


def test_the_table_of_variables_is_that_of_the_code() -> None:
    cells = re.findall(r"^\| (`[A-Z_]+`(?:, `[A-Z_]+`)*) \|", _section("Environment variables"), re.MULTILINE)
    documented = [name for cell in cells for name in re.findall(r"[A-Z_]+", cell)]
    assert sorted(documented) == sorted(variable_of(field.name) for field in fields(Env))


def test_variables_of_the_live_loop_are_read_somewhere() -> None:
    documented = re.findall(
        r"^\| `([A-Z_]+)` \|", _section("Variables of the stream processor and the agents"), re.MULTILINE
    )
    sources = "".join(
        path.read_text() for name in ("agent", "spark_jobs", "launcher") for path in (ROOT / name).rglob("*.py")
    )
    assert documented
    assert [name for name in documented if f'"{name}"' not in sources] == []


def test_documented_defaults_are_the_real_ones() -> None:
    rows = dict(re.findall(r"^\| `([A-Z_]+)` \| `([^`]+)`", _section("Environment variables"), re.MULTILINE))
    without = Env.read({})
    for field in fields(Env):
        if (text := rows.get(variable_of(field.name))) is None:
            continue
        value = getattr(without, field.name)
        if isinstance(value, Path):
            value = value.relative_to(ROOT)
        shown = ",".join(value) if isinstance(value, list) else f"{value:g}" if isinstance(value, float) else value
        assert str(int(shown) if isinstance(shown, bool) else shown) == text, field.name


def test_all_wrong_variables_are_named_at_once() -> None:
    wrong = {
        "SLUICE_DEBUG": "maybe",
        "SLUICE_UPLOAD_MAX_MB": "0",
        "REDIS_URL": "http://:secret@x",
        "SLUICE_LOG_LEVEL": "loud",
    }
    with pytest.raises(EnvError) as error:
        Env.read(wrong)
    said = str(error.value)
    for name in wrong:
        assert name in said
    assert "'maybe'" in said
    assert "secret" not in said


@pytest.mark.process
def test_a_wrong_variable_ends_a_command_without_a_trace() -> None:
    env = os.environ | {"SLUICE_WORKER_CONCURRENCY": "many"}
    found = subprocess.run(
        [sys.executable, "manage.py", "check"], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert found.returncode == 1
    assert "SLUICE_WORKER_CONCURRENCY='many': allowed is a whole number from 1 to 64" in found.stderr
    assert "Traceback" not in found.stderr


@pytest.mark.process
def test_settings_of_production_pass_the_deployment_check(tmp_path: Path) -> None:
    # a browser of other tests in this process needs the variable, which no production has
    env = {name: value for name, value in os.environ.items() if name != "DJANGO_ALLOW_ASYNC_UNSAFE"} | {
        "SLUICE_SECRET_KEY": "7c0c1f6e" * 8,
        "SLUICE_HTTPS": "1",
        "SLUICE_ALLOWED_HOSTS": "sluice.example.org",
        "SLUICE_TRUSTED_ORIGINS": "https://sluice.example.org",
        "SLUICE_VAR_DIR": str(tmp_path),
        "DATABASE_URL": "postgres://sluice:x@127.0.0.1:1/sluice",
    }
    command = [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"]
    found = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr


def test_compose_has_every_process_with_a_health_check() -> None:
    services = _compose()
    assert set(services) == {"postgres", "valkey", "migrate", "web", "worker", "background", "beat", "stream"}
    for name, service in services.items():
        assert name == "migrate" or service["healthcheck"]["test"], name


def test_compose_knows_only_variables_that_exist_and_no_secret() -> None:
    known = {variable_of(field.name) for field in fields(Env)}
    for name in ("web", "worker", "background", "beat", "migrate"):
        environment = _compose()[name]["environment"]
        assert set(environment) <= known
        assert environment["SLUICE_SECRET_KEY"].startswith("${SLUICE_SECRET_KEY:?")
        assert "${POSTGRES_PASSWORD:?" in environment["DATABASE_URL"]


def test_web_believes_addresses_from_its_own_network_alone() -> None:
    web = _compose()["web"]
    assert "--no-proxy-headers" in web["command"]  # uvicorn would believe anybody on loopback
    trusted = re.fullmatch(r"\$\{SLUICE_TRUSTED_PROXIES:-(.+)\}", web["environment"]["SLUICE_TRUSTED_PROXIES"])[1]
    whole = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    (pool,) = whole["networks"]["default"]["ipam"]["config"]
    assert trusted == pool["subnet"] and "*" not in trusted
    assert "SLUICE_SUBNET" in pool["subnet"] and re.search(r":-([\d./]+)", pool["subnet"])[1] in PAGE


def test_files_and_messages_that_the_page_names_exist() -> None:
    sources = "".join(path.read_text() for path in [ROOT / "sluice", *(ROOT / "launcher").glob("*.py")])
    for message in re.findall(r"^\| `(?:… )?([^`…]+?)\s?…?` \|", _section("Troubleshooting"), re.MULTILINE):
        words = re.split(r"\d+|=", message)  # numbers and values are filled in when the message is made
        assert all(part.strip() in sources for part in words if len(part) > 8) or message == "database is locked", (
            message
        )
