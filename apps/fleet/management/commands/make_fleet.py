"""`./sluice manage make_fleet`: a made-up fleet as a deployment document, to try the product at any size."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

__all__ = ["Command"]


class Command(BaseCommand):
    help = "Write a made-up fleet with running queries as a deployment document, to import into a cluster."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--nodes", type=int, default=400, help="nodes of three pools (400)")
        parser.add_argument("--operators", type=int, default=4000, help="operators, ten to a query (4000)")
        parser.add_argument("--seconds", type=int, default=1000, help="horizon, seconds (1000)")
        parser.add_argument("--load", type=float, default=0.55, help="mean load as a share of all capacity (0.55)")
        parser.add_argument("--seed", type=int, default=1, help="seed of the random numbers (1)")

    def handle(self, *args: Any, **options: Any) -> None:
        minimum = {"nodes": 1, "operators": 1, "seconds": 1}
        faults = [
            f"--{name} is {options[name]}; allowed: at least {low}"
            for name, low in minimum.items()
            if options[name] < low
        ]
        if not 0.0 < options["load"] <= 2.0:
            faults.append(f"--load is {options['load']:g}; allowed: above 0 and up to 2")
        if faults:
            raise CommandError("; ".join(faults))
        from engine.sample_fleet import FleetPlan, make_fleet  # compiles; only this command needs it

        plan = FleetPlan(options["nodes"], options["operators"], options["seconds"], options["load"], options["seed"])
        self.stdout.write(json.dumps(make_fleet(plan), separators=(",", ":")))
