"""The bill of materials is CycloneDX, and has what is installed."""

from __future__ import annotations

import json
import re
from importlib.metadata import version
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from django.core.management import CommandError, call_command

from agent import VERSION

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def bill(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("sbom") / "sbom.json"
    call_command("sbom", output=path)
    return path.read_text()


def test_bill_has_the_schema_of_cyclonedx(bill: str) -> None:
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(bill) is None


def test_every_requirement_is_listed_as_it_is_installed(bill: str) -> None:
    document = json.loads(bill)
    versions = {component["name"]: component["version"] for component in document["components"]}
    names = re.findall(r"^([\w.-]+)==", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    for name in names:
        assert versions[re.sub(r"[-_.]+", "-", name).lower()] == version(name)
    assert document["metadata"]["component"]["version"] == VERSION


def test_needs_are_known(bill: str) -> None:
    needs = {entry["ref"].partition("@")[0]: entry.get("dependsOn", []) for entry in json.loads(bill)["dependencies"]}
    assert any(ref.startswith("pkg:pypi/asgiref@") for ref in needs["pkg:pypi/django"])
    assert not any(ref.startswith("pkg:pypi/asgiref@") for ref in needs["sluice"])


def test_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"--output .*missing/sbom\.json: No such file"):
        call_command("sbom", output=tmp_path / "missing" / "sbom.json")
