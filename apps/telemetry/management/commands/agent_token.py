"""`./sluice manage agent_token`: an enrolment token for agents of a cluster."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from apps.core.errors import SluiceError
from apps.fleet.selectors import cluster_by_slug
from apps.telemetry.agent_services import enrolment_create


class Command(BaseCommand):
    help = (
        "Make an enrolment token of a cluster and print its secret, which is shown only now and is all of the output."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--cluster", required=True, help="Slug of the cluster.")
        parser.add_argument("--uses", type=int, default=1, help="How many agents may join with it (default: 1).")
        parser.add_argument("--hours", type=float, default=24.0, help="How long it lasts (default: 24).")
        parser.add_argument("--networks", default="", help="With commas, such as 10.0.0.0/8 (default: anywhere).")
        parser.add_argument(
            "--agent", default="", help="The one agent it is for, also a known one (default: new names)."
        )
        parser.add_argument("--note", default="command line", help="What the list of tokens calls it.")

    def handle(self, *args: Any, **options: Any) -> None:
        networks = [network.strip() for network in options["networks"].split(",") if network.strip()]
        try:
            _, secret = enrolment_create(
                cluster=cluster_by_slug(options["cluster"]),
                user=None,
                uses=options["uses"],
                expires_at=timezone.now() + timedelta(hours=options["hours"]),
                note=options["note"],
                networks=networks,
                agent_name=options["agent"],
            )
        except OverflowError:
            raise CommandError(f"--hours {options['hours']:g}: allowed is a number of hours above 0.") from None
        except SluiceError as error:
            faults = "; ".join(f"{fault.path}: {fault.message}" for fault in error.faults)
            raise CommandError(f"{error.message} {faults}") from None
        self.stdout.write(secret)
