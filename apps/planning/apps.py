from django.apps import AppConfig


class PlanningConfig(AppConfig):
    """Placements, plans, what-ifs, forecasts and backtests: runs that look ahead, or back, before anything changes."""

    name = "apps.planning"

    def ready(self) -> None:
        from apps.ledger.entries import DECIDED_MODELS
        from apps.planning import api_urls  # noqa: F401 with them, every kind of run is registered
        from apps.planning.models import Evacuation, PlacementRun

        DECIDED_MODELS.update(placement=PlacementRun, evacuation=Evacuation)
