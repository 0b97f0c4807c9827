"""`./sluice manage calibrate`: measure one core of this machine and store its capacity in a node."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from apps.core.errors import SluiceError
from apps.fleet.selectors import cluster_by_slug, node_by_name
from apps.fleet.services import node_calibrate
from engine.calibration import Calibration, calibrate

__all__ = ["Command"]


class Command(BaseCommand):
    help = "Measure how many cycles per second one core of this machine offers, and store it as a node's capacity."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--cluster", help="slug of the cluster")
        parser.add_argument("--node", help="name of the node that stands for this machine")
        parser.add_argument("--seconds", type=float, default=2.0, help="duration in seconds (0.05 to 60, default 2)")
        parser.add_argument("--dry-run", action="store_true", help="print the measurement as JSON and store nothing")

    def handle(self, *args: Any, **options: Any) -> None:
        cluster, node = options["cluster"], options["node"]
        if not options["dry_run"] and not (cluster and node):
            raise CommandError("Give --cluster and --node to store the measurement, or --dry-run to print it.")
        try:
            # Looked up before measuring: a misspelt name should not cost the wait.
            target = None if options["dry_run"] else node_by_name(cluster_by_slug(cluster), node)
            measured = calibrate(options["seconds"])
            if target is None:
                self.stdout.write(json.dumps(asdict(measured)))
                return
            node_calibrate(
                node=target, capacity_cps=measured.capacity_cps, cores=measured.cores, measured_at=timezone.now()
            )
        except (SluiceError, ValueError) as error:
            raise CommandError(str(error)) from None
        self.stdout.write(_told(cluster, node, measured))


def _told(cluster: str, node: str, measured: Calibration) -> str:
    capacity = f"{measured.capacity_cps:.4g} cycles/s a core, {measured.cores} cores"
    return f"{cluster}/{node}: {capacity} ({measured.method}; {measured.seconds:.1f} s)"
