"""`./sluice manage sbom`: the bill of materials of this installation, as CycloneDX."""

from __future__ import annotations

import re
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output.json import JsonV1Dot6
from django.core.management.base import BaseCommand, CommandError, CommandParser
from packageurl import PackageURL
from packaging.requirements import Requirement

from agent import VERSION

_MAX_LICENSE = 80  # some distributions have the whole text where its name belongs


class Command(BaseCommand):
    """Write every distribution of the environment with version, licence, address and what it needs."""

    help = "Write the bill of materials of this installation as CycloneDX 1.6 (JSON)."

    def add_arguments(self, parser: CommandParser) -> None:
        """The file; without one it goes to the standard output."""
        parser.add_argument("--output", type=Path, metavar="FILE", help="instead of the standard output")

    def handle(self, *args: Any, output: Path | None, **options: Any) -> None:
        text = JsonV1Dot6(bill_of_materials()).output_as_string(indent=2)
        if output is None:
            self.stdout.write(text)
            return
        try:
            output.write_text(f"{text}\n")
        except OSError as error:
            raise CommandError(f"--output {output}: {error.strerror}; allowed is a file that can be written") from error


def bill_of_materials() -> Bom:
    """The distributions beside this process, read from the environment rather than from what was asked for."""
    bom = Bom()
    bom.metadata.component = sluice = Component(
        name="sluice", version=VERSION, type=ComponentType.APPLICATION, bom_ref="sluice"
    )
    installed = {_normal(item.name): item for item in distributions()}
    components = {name: _component(name, item) for name, item in sorted(installed.items())}
    bom.components.update(components.values())
    needed: set[str] = set()
    for name, item in installed.items():
        names = {_normal(requirement.name) for requirement in _requirements(item)} & set(components)
        needed |= names
        bom.register_dependency(components[name], [components[other] for other in names])
    bom.register_dependency(sluice, [component for name, component in components.items() if name not in needed])
    return bom


def _component(name: str, item: Distribution) -> Component:
    url = PackageURL("pypi", name=name, version=item.version)
    metadata = item.metadata.json
    licence = str(metadata.get("license_expression") or metadata.get("license") or "").strip()
    return Component(
        name=name,
        version=item.version,
        type=ComponentType.LIBRARY,
        purl=url,
        bom_ref=url.to_string(),
        description=str(metadata.get("summary") or ""),
        licenses=[DisjunctiveLicense(name=licence)] if 0 < len(licence) <= _MAX_LICENSE else [],
    )


def _requirements(item: Distribution) -> list[Requirement]:
    """Needs that hold for this Python and machine, without extras."""
    requirements = map(Requirement, item.requires or [])
    return [one for one in requirements if one.marker is None or one.marker.evaluate({"extra": ""})]


def _normal(name: str) -> str:
    """The name as PyPI writes it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()
