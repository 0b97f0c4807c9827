"""Resource plans are deleted in the browser."""

from __future__ import annotations

from uuid import UUID

from django.test import Client

from apps.planning.models import ResourcePlan
from tests.apps.pages.crud import DeleteTests
from tests.apps.pages.resource_plans.test_views import spark_plan


class TestResourcePlans(DeleteTests):
    model = ResourcePlan
    delete_url = "/c/little/provisioning/resource-plans/{pk}/delete/"

    def gone(self, url: str) -> str:
        return url.format(pk=UUID(int=0))

    def make(self, browser: Client) -> ResourcePlan:
        return spark_plan(self.cluster)
