from django.apps import AppConfig


class PlanningConfig(AppConfig):
    """Placements, plans, what-ifs, forecasts and backtests: runs that look ahead, or back, before anything changes."""

    name = "apps.planning"

    def ready(self) -> None:
        from apps.planning.runs import connect

        connect()
