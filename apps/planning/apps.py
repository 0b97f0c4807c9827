from django.apps import AppConfig


class PlanningConfig(AppConfig):
    """Placements, plans, what-ifs, forecasts and backtests: runs that look ahead, or back, before anything changes."""

    name = "apps.planning"

    def ready(self) -> None:
        from apps.jobs.models import JobKind
        from apps.jobs.services import on_unanswered
        from apps.planning.placements.moves import moves_end
        from apps.planning.runs import connect

        connect()
        on_unanswered(JobKind.MOVES, moves_end)
