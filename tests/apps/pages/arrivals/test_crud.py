"""Arrivals and load histories are deleted in the browser."""

from __future__ import annotations

from django.test import Client

from apps.planning.load_histories import history_create_from_generator
from apps.planning.models import LoadHistory
from apps.queries.arrivals.services import arrivals_create_from_generator
from apps.queries.models import ArrivalSeries
from tests.apps.pages.crud import DeleteTests


class TestArrivals(DeleteTests):
    model = ArrivalSeries
    delete_url = "/c/little/arrivals/{pk}/delete/"

    def make(self, browser: Client) -> ArrivalSeries:
        spec = {"kind": "poisson", "mean_rate_eps": 10.0, "seed": 1}
        return arrivals_create_from_generator(cluster=self.cluster, source_id="unread", spec=spec)


class TestLoadHistories(DeleteTests):
    model = LoadHistory
    delete_url = "/c/little/provisioning/forecast/histories/{pk}/delete/"

    def make(self, browser: Client) -> LoadHistory:
        spec = {"peak_rate_eps": 200.0, "weeks": 4}
        return history_create_from_generator(cluster=self.cluster, source_id="clicks", spec=spec)
